#include "harness/model/model.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/input_file.h"
#include "harness/base/memory.h"
#include "harness/base/text_file.h"
#include "harness/model/architecture.h"
#include "harness/model/checkpoint_entries.h"
#include "harness/model/config_gguf.h"
#include "harness/model/config_json.h"
#include "harness/model/fault_list.h"
#include "harness/model/gguf.h"
#include "harness/model/model_paths.h"

enum { NAME_BYTES = 256, PREFIX_COUNT = 4 };

/* Where the tensors of the language model are in a Hugging Face checkpoint: plain, inside a multimodal model
 * of the old and of the new layout, or saved without a head. */
typedef struct name_scheme {
    const char *body; /* before "embed_tokens", "layers.<i>.", "norm" */
    const char *head; /* NULL: this layout has none */
    bool whole;       /* the checkpoint holds nothing else, so a name that is not understood is refused */
} name_scheme;

static const name_scheme schemes[PREFIX_COUNT] = {
    {"model.", "lm_head.weight", true},
    {"language_model.model.", "language_model.lm_head.weight", false},
    {"model.language_model.", "lm_head.weight", false},
    {"", NULL, true},
};

/* One opening: what has been understood so far, what was wrong, which tensors have found their place. */
typedef struct loader {
    fl_model *model;
    const fl_architecture *architecture;
    const name_scheme *scheme; /* NULL: GGUF */
    fl_model_parts parts;
    size_t skipped_layers;
    bool *used; /* [tensors of the checkpoint] */
    fl_fault_list faults;
} loader;

static bool begins_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Takes the tensor called `name` when its shape is right; otherwise notes the fault. columns 0: a vector of
 * `rows`. */
static void take(loader *load, const char *name, size_t rows, size_t columns, fl_tensor *out) {
    const fl_checkpoint *checkpoint = load->model->checkpoint;
    const fl_checkpoint_entry *entry = fl_checkpoint_lookup(checkpoint, name);
    if (entry == NULL) {
        fl_fault_list_add(&load->faults, FL_ERROR_FORMAT, "tensor %s is missing", name);
        return;
    }
    load->used[entry - fl_checkpoint_entry_at(checkpoint, 0)] = true;
    const fl_tensor *tensor = &entry->tensor;
    if (!entry->readable) {
        fl_fault_list_add(&load->faults, FL_ERROR_UNSUPPORTED,
                          "tensor %s has type %s, which is not supported", name, entry->type_name);
        return;
    }
    if (columns > 0 && (tensor->rank != 2 || tensor->rows != rows || tensor->columns != columns)) {
        fl_fault_list_add(&load->faults, FL_ERROR_FORMAT,
                          "tensor %s: expected [%zu][%zu], found rank %zu, [%zu][%zu]", name, rows, columns,
                          tensor->rank, tensor->rows, tensor->columns);
        return;
    }
    if (columns == 0 && (tensor->rank != 1 || tensor->columns != rows)) {
        fl_fault_list_add(&load->faults, FL_ERROR_FORMAT,
                          "tensor %s: expected [%zu], found rank %zu, [%zu][%zu]", name, rows, tensor->rank,
                          tensor->rows, tensor->columns);
        return;
    }
    *out = *tensor;
}

static void take_layer(loader *load, size_t layer) {
    const fl_model_config *config = &load->model->config;
    for (size_t i = 0; i < load->architecture->layer_weight_count; i++) {
        const fl_weight_descriptor *weight = &load->architecture->layer_weights[i];
        if (!fl_architecture_has_weight(weight, &load->parts)) continue;
        char name[NAME_BYTES];
        if (load->scheme != NULL) {
            snprintf(name, sizeof name, "%slayers.%zu.%s", load->scheme->body, layer, weight->hugging_face);
        } else {
            snprintf(name, sizeof name, "blk.%zu.%s", layer, weight->gguf);
        }
        fl_tensor *tensor = (fl_tensor *)((char *)&load->model->layers[layer] + weight->offset);
        size_t rows = fl_architecture_axis(config, weight->rows);
        size_t columns = weight->columns == FL_AXIS_NONE ? 0 : fl_architecture_axis(config, weight->columns);
        take(load, name, rows, columns, tensor);
        if (tensor->data != NULL && weight->rotated && load->scheme == NULL &&
            load->architecture->gguf_permuted) {
            tensor->permuted_heads = weight->rows == FL_AXIS_KV ? config->kv_heads : config->query_heads;
        }
    }
}

/* Two matrices of one shape that mean the same numbers. */
static bool same_values(const fl_tensor *a, const fl_tensor *b, float *row_a, float *row_b) {
    if (a->type == b->type && a->permuted_heads == b->permuted_heads)
        return memcmp(a->data, b->data, fl_tensor_bytes(a)) == 0;
    for (size_t row = 0; row < a->rows; row++) {
        fl_tensor_widen_row(a, row, row_a);
        fl_tensor_widen_row(b, row, row_b);
        if (memcmp(row_a, row_b, a->columns * sizeof *row_a) != 0) return false;
    }
    return true;
}

/* A tied pair of which both are stored: tied when they are alike, else the stored head counts. */
static fl_status untie_when_different(loader *load, fl_error *error) {
    fl_model *model = load->model;
    if (model->embedding.data == NULL || model->head.data == NULL) return FL_OK;
    float *rows;
    FL_TRY(FL_ALLOCATE(&rows, 2 * model->embedding.columns, error));
    bool same = same_values(&model->embedding, &model->head, rows, rows + model->embedding.columns);
    fl_memory_free(rows);
    model->config.tied_head = same;
    if (same) model->head = model->embedding;
    model->note = same ? "the stored head is not used: the head is tied, and its values equal the embedding's"
                       : "tie_word_embeddings is true, yet the stored lm_head.weight differs from the "
                         "embedding: the stored head is used";
    return FL_OK;
}

static fl_status take_head(loader *load, const char *embedding, const char *head, fl_error *error) {
    fl_model *model = load->model;
    const fl_model_config *config = &model->config;
    const bool has_embedding = fl_checkpoint_lookup(model->checkpoint, embedding) != NULL;
    const bool has_head = fl_checkpoint_lookup(model->checkpoint, head) != NULL;
    const bool tied = config->tied_head;
    if (has_embedding || !tied || !has_head)
        take(load, embedding, config->vocabulary, config->model_dim, &model->embedding);
    if (has_head) {
        take(load, head, config->vocabulary, config->model_dim, &model->head);
        if (tied && has_embedding) return untie_when_different(load, error);
        if (tied) model->embedding = model->head;
    } else if (tied) {
        model->head = model->embedding;
    } else {
        fl_fault_list_add(
            &load->faults, FL_ERROR_FORMAT,
            "tensor %s is missing, and tie_word_embeddings does not say that the embedding replaces it",
            head);
    }
    return FL_OK;
}

static fl_status take_outer(loader *load, fl_error *error) {
    fl_model *model = load->model;
    char embedding[NAME_BYTES] = "token_embd.weight", norm[NAME_BYTES] = "output_norm.weight";
    const char *head = "output.weight";
    if (load->scheme != NULL) {
        snprintf(embedding, sizeof embedding, "%sembed_tokens.weight", load->scheme->body);
        snprintf(norm, sizeof norm, "%snorm.weight", load->scheme->body);
        head = load->scheme->head != NULL ? load->scheme->head : "lm_head.weight";
    }
    FL_TRY(take_head(load, embedding, head, error));
    take(load, norm, model->config.model_dim, 0, &model->final_norm);
    return FL_OK;
}

/* Tensors that may lie in a checkpoint without having a part in the model. */
static bool may_be_left(const loader *load, const char *name) {
    const fl_model_config *config = &load->model->config;
    if (load->scheme == NULL) {
        size_t block = 0;
        return load->skipped_layers > 0 && sscanf(name, "blk.%zu.", &block) == 1 && block >= config->layers &&
               block < config->layers + load->skipped_layers;
    }
    if (fl_checkpoint_name_ends_with(name, ".rotary_emb.inv_freq")) return true;
    return !load->scheme->whole && !begins_with(name, load->scheme->body);
}

static void note_left_over(loader *load) {
    const fl_checkpoint *checkpoint = load->model->checkpoint;
    for (size_t i = 0; i < fl_checkpoint_count(checkpoint); i++) {
        const char *name = fl_checkpoint_entry_at(checkpoint, i)->tensor.name;
        if (load->used[i] || may_be_left(load, name)) continue;
        fl_fault_list_add(&load->faults, FL_ERROR_UNSUPPORTED, "tensor %s is not part of architecture %s",
                          name, load->architecture->name);
    }
}

/* rope_freqs.weight: what every inverse frequency is divided by. It replaces any scaling that the keys name.
 */
static fl_status take_divisors(loader *load, fl_error *error) {
    fl_model *model = load->model;
    fl_rope_config *rope = &model->config.rope;
    fl_tensor tensor = {0};
    if (fl_checkpoint_lookup(model->checkpoint, "rope_freqs.weight") == NULL) return FL_OK;
    take(load, "rope_freqs.weight", rope->rotary_dim / 2, 0, &tensor);
    if (tensor.data == NULL) return FL_OK;
    FL_TRY(FL_ALLOCATE(&model->rope_divisors, tensor.columns, error));
    fl_tensor_widen_row(&tensor, 0, model->rope_divisors);
    for (size_t i = 0; i < tensor.columns; i++) {
        if (model->rope_divisors[i] > 0.0f && model->rope_divisors[i] < 1e30f) continue;
        fl_fault_list_add(&load->faults, FL_ERROR_FORMAT,
                          "tensor rope_freqs.weight: entry %zu is not above 0", i);
        break;
    }
    rope->divisors = model->rope_divisors;
    rope->type = FL_ROPE_DEFAULT;
    return FL_OK;
}

/* GGUF states biases and tied heads only by the tensors it holds. */
static void find_gguf_parts(loader *load) {
    const fl_checkpoint *checkpoint = load->model->checkpoint;
    const fl_architecture *architecture = load->architecture;
    struct {
        fl_bias_rule rule;
        const char *name;
        bool *present;
    } biases[] = {{architecture->input_bias, "blk.0.attn_q.bias", &load->parts.input_bias},
                  {architecture->output_bias, "blk.0.attn_output.bias", &load->parts.output_bias},
                  {architecture->mlp_bias, "blk.0.ffn_gate.bias", &load->parts.mlp_bias}};
    for (size_t i = 0; i < sizeof biases / sizeof biases[0]; i++) {
        bool there = fl_checkpoint_lookup(checkpoint, biases[i].name) != NULL;
        *biases[i].present = biases[i].rule == FL_BIAS_CONFIG ? there : biases[i].rule == FL_BIAS_ALWAYS;
    }
    load->parts.query_key_norm = architecture->query_key_norm;
    load->model->config.tied_head = fl_checkpoint_lookup(checkpoint, "output.weight") == NULL;
}

static fl_status open_gguf(loader *load, const char *path, fl_error *error) {
    fl_model *model = load->model;
    FL_TRY(fl_checkpoint_open(path, &model->checkpoint, error));
    FL_TRY(fl_config_gguf_read(fl_checkpoint_gguf(model->checkpoint), &model->config, &load->architecture,
                               &load->skipped_layers, error));
    find_gguf_parts(load);
    const fl_checkpoint_entry *embedding = fl_checkpoint_lookup(model->checkpoint, "token_embd.weight");
    if (model->config.vocabulary == 0 && embedding != NULL) model->config.vocabulary = embedding->tensor.rows;
    return FL_OK;
}

/* The scheme under which `member` is there; *scheme stays when there is none. */
static fl_status find_scheme_by(loader *load, const char *path, const char *member, fl_error *error) {
    for (size_t i = 0; i < PREFIX_COUNT; i++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%s%s", schemes[i].body, member);
        if (fl_checkpoint_lookup(load->model->checkpoint, name) == NULL) continue;
        if (load->scheme != NULL) {
            return fl_error_set(error, FL_ERROR_UNSUPPORTED, "%s: holds two language models, %s%s and %s",
                                path, load->scheme->body, member, name);
        }
        load->scheme = &schemes[i];
    }
    return FL_OK;
}

/* By the embedding, or where only the head of a tied pair is stored by the final norm. */
static fl_status find_scheme(loader *load, const char *path, fl_error *error) {
    load->scheme = NULL;
    FL_TRY(find_scheme_by(load, path, "embed_tokens.weight", error));
    if (load->scheme == NULL) FL_TRY(find_scheme_by(load, path, "norm.weight", error));
    if (load->scheme == NULL) load->scheme = &schemes[0];
    return FL_OK;
}

/* It lies beside config.json, or is not there. */
static fl_status read_generation_config(const char *config_path, fl_model_config *config, fl_error *error) {
    const char *slash = strrchr(config_path, '/');
    char *folder, *path;
    FL_TRY(fl_memory_copy_string(&folder, slash != NULL ? config_path : ".", error));
    if (slash != NULL) folder[slash - config_path] = '\0';
    fl_status status = fl_path_join(folder, "generation_config.json", &path, error);
    fl_memory_free(folder);
    FL_TRY(status);
    if (access(path, F_OK) == 0) status = fl_config_json_read_generation(path, config, error);
    fl_memory_free(path);
    return status;
}

static fl_status open_hugging_face(loader *load, const char *config_path, const char *weights_path,
                                   fl_error *error) {
    fl_model *model = load->model;
    FL_TRY(fl_config_json_read(config_path, &model->config, &load->parts, &load->architecture, error));
    FL_TRY(read_generation_config(config_path, &model->config, error));
    FL_TRY(fl_checkpoint_open(weights_path, &model->checkpoint, error));
    return find_scheme(load, weights_path, error);
}

/* A file beside which there is no config.json. */
static fl_status refuse_file(const char *path, const fl_model_paths *paths, fl_error *error) {
    unsigned char start[9] = {0}; /* safetensors: the header's length in eight bytes, then JSON */
    size_t got = 0;
    FL_TRY(fl_input_start(paths->weights, (char *)start, sizeof start, &got, error));
    if (got == sizeof start && start[8] == '{' && start[7] == 0)
        return fl_error_set(error, FL_ERROR_IO, "%s: there is no %s", path, paths->config);
    return fl_error_set(
        error, FL_ERROR_FORMAT,
        "%s: is neither GGUF nor safetensors; a model is a .gguf file, a Hugging Face folder, or a "
        ".safetensors file with config.json beside it",
        path);
}

static fl_status open_any(loader *load, const char *path, fl_error *error) {
    fl_model_paths paths;
    FL_TRY(fl_model_paths_find(path, &paths, error));
    fl_status status = FL_OK;
    if (paths.config == NULL) {
        status = open_gguf(load, paths.weights, error);
    } else if (access(paths.config, F_OK) != 0) {
        status = refuse_file(path, &paths, error);
    } else {
        status = open_hugging_face(load, paths.config, paths.weights, error);
    }
    fl_model_paths_free(&paths);
    return status;
}

static fl_status check_layers(const loader *load, const char *path, fl_error *error) {
    size_t layers = load->model->config.layers, tensors = fl_checkpoint_count(load->model->checkpoint);
    if (layers <= tensors) return FL_OK;
    return fl_error_set(error, FL_ERROR_FORMAT,
                        "%s: the config names %zu layers, the checkpoint holds only %zu tensors", path,
                        layers, tensors);
}

static fl_status load_tensors(loader *load, const char *path, fl_error *error) {
    fl_model *model = load->model;
    FL_TRY(check_layers(load, path, error));
    FL_TRY(FL_ALLOCATE(&load->used, fl_checkpoint_count(model->checkpoint), error));
    FL_TRY(FL_ALLOCATE(&model->layers, model->config.layers, error));
    FL_TRY(take_outer(load, error));
    for (size_t layer = 0; layer < model->config.layers; layer++) take_layer(load, layer);
    if (load->scheme == NULL) FL_TRY(take_divisors(load, error));
    note_left_over(load);
    return fl_fault_list_result(&load->faults, path, error);
}

fl_status fl_model_open(const char *path, fl_model **out, fl_error *error) {
    *out = NULL;
    loader load = {0};
    FL_TRY(FL_ALLOCATE(&load.model, 1, error));
    fl_status status = fl_memory_copy_string(&load.model->path, path, error);
    if (status == FL_OK) status = open_any(&load, path, error);
    if (status == FL_OK) status = load_tensors(&load, path, error);
    fl_memory_free(load.used);
    if (status != FL_OK) {
        fl_model_close(load.model);
        return status;
    }
    *out = load.model;
    return FL_OK;
}

void fl_model_close(fl_model *model) {
    if (model == NULL) return;
    fl_checkpoint_close(model->checkpoint);
    fl_memory_free(model->config.sliding_window);
    fl_memory_free(model->rope_divisors);
    fl_memory_free(model->layers);
    fl_memory_free(model->path);
    fl_memory_free(model);
}

fl_status fl_model_hash(const fl_model *model, fl_hash *out, fl_error *error) {
    return fl_checkpoint_hash(model->checkpoint, out, error);
}

static size_t elements(const fl_tensor *tensor) {
    return tensor->data != NULL ? tensor->rows * tensor->columns : 0;
}

size_t fl_model_parameter_count(const fl_model *model) {
    const fl_architecture *architecture = fl_architecture_of_model_type(model->config.architecture);
    size_t total = elements(&model->embedding) + elements(&model->final_norm);
    if (!model->config.tied_head) total += elements(&model->head);
    for (size_t layer = 0; layer < model->config.layers; layer++) {
        for (size_t i = 0; i < architecture->layer_weight_count; i++) {
            size_t offset = architecture->layer_weights[i].offset;
            total += elements((const fl_tensor *)((const char *)&model->layers[layer] + offset));
        }
    }
    return total;
}

fl_attention_shape fl_model_attention_shape(const fl_model_config *config) {
    return (fl_attention_shape){.query_heads = config->query_heads,
                                .kv_heads = config->kv_heads,
                                .head_dim = config->head_dim,
                                .model_dim = config->model_dim,
                                .scale = config->attention_scale};
}
