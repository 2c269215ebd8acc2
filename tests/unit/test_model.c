/* Opening a model: every tensor checked, everything wrong named at once, GGUF and Hugging Face the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/model/architecture.h"
#include "harness/model/describe.h"
#include "harness/model/finite_check.h"
#include "harness/model/identity.h"
#include "harness/model/model.h"
#include "tests/support/checkpoint_builder.h"
#include "tests/support/fixture.h"

/* A model of three layers, small enough to build in every test. H, Hkv, D do not divide each other by
 * accident. */
enum {
    LAYERS = 3,
    MODEL = 64,
    HEADS = 6,
    KV_HEADS = 2,
    HEAD_DIM = 16,
    MLP = 96,
    VOCABULARY = 40,
    MAX_TENSORS = 64
};

typedef struct built_tensor {
    char name[96];
    size_t rank, shape[2];
    float *data;
} built_tensor;

typedef struct built_model {
    built_tensor tensors[MAX_TENSORS];
    size_t count;
} built_model;

static built_tensor *add(built_model *model, const char *name, size_t rows, size_t columns) {
    built_tensor *tensor = &model->tensors[model->count];
    assert_true(model->count < MAX_TENSORS);
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->rank = columns > 0 ? 2 : 1;
    tensor->shape[0] = rows;
    tensor->shape[1] = columns;
    size_t elements = rows * (columns > 0 ? columns : 1);
    assert_int_equal(FL_ALLOCATE(&tensor->data, elements, NULL), FL_OK);
    for (size_t i = 0; i < elements; i++)
        tensor->data[i] = (float)(i % 1009) / 512.0f - (float)model->count / 16.0f;
    model->count++;
    return tensor;
}

/* Every tensor the architecture asks for, in Hugging Face's names. */
static void build(built_model *model, const fl_architecture *architecture, const fl_model_parts *parts,
                  bool tied, const char *body, const char *head) {
    memset(model, 0, sizeof *model);
    char name[96];
    const fl_model_config config = {
        .model_dim = MODEL, .query_heads = HEADS, .kv_heads = KV_HEADS, .head_dim = HEAD_DIM, .mlp_dim = MLP};
    snprintf(name, sizeof name, "%sembed_tokens.weight", body);
    add(model, name, VOCABULARY, MODEL);
    snprintf(name, sizeof name, "%snorm.weight", body);
    add(model, name, MODEL, 0);
    if (!tied) add(model, head, VOCABULARY, MODEL);
    for (size_t layer = 0; layer < LAYERS; layer++) {
        for (size_t i = 0; i < architecture->layer_weight_count; i++) {
            const fl_weight_descriptor *weight = &architecture->layer_weights[i];
            if (!fl_architecture_has_weight(weight, parts)) continue;
            snprintf(name, sizeof name, "%slayers.%zu.%s", body, layer, weight->hugging_face);
            size_t columns =
                weight->columns == FL_AXIS_NONE ? 0 : fl_architecture_axis(&config, weight->columns);
            add(model, name, fl_architecture_axis(&config, weight->rows), columns);
        }
    }
}

static built_tensor *built(built_model *model, const char *name) {
    for (size_t i = 0; i < model->count; i++) {
        if (strcmp(model->tensors[i].name, name) == 0) return &model->tensors[i];
    }
    fail_msg("the test built no tensor %s", name);
    return NULL;
}

static void release(built_model *model) {
    for (size_t i = 0; i < model->count; i++) fl_memory_free(model->tensors[i].data);
    model->count = 0;
}

/* folder/name with config.json and model.safetensors. */
static const char *write_model(const built_model *model, const char *name, const char *config) {
    static char path[1024];
    char file[1100];
    fl_checkpoint_write_tensor tensors[MAX_TENSORS];
    for (size_t i = 0; i < model->count; i++) {
        const built_tensor *tensor = &model->tensors[i];
        tensors[i] = (fl_checkpoint_write_tensor){
            tensor->name, tensor->data, tensor->rank, {tensor->shape[0], tensor->shape[1]}};
    }
    snprintf(path, sizeof path, "%s/%s", fl_test_folder(), name);
    mkdir(path, 0700);
    fl_put_text(path, "config.json", config);
    snprintf(file, sizeof file, "%s/model.safetensors", path);
    assert_int_equal(fl_checkpoint_write_safetensors(file, tensors, model->count, NULL, NULL, 0, NULL),
                     FL_OK);
    return path;
}

#define SIZES                                                                                                \
    "\"vocab_size\":40,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":3,\"num_attention_" \
    "heads\":6,"                                                                                             \
    "\"num_key_value_heads\":2,\"head_dim\":16,\"max_position_embeddings\":128"

static const char llama_config[] = "{\"model_type\":\"llama\"," SIZES "}";
static const char tied_config[] = "{\"model_type\":\"llama\"," SIZES ",\"tie_word_embeddings\":true}";
static const char biased_config[] =
    "{\"model_type\":\"llama\"," SIZES ",\"attention_bias\":true,\"mlp_bias\":true}";

static void build_llama(built_model *model, bool tied) {
    const fl_model_parts parts = {0};
    build(model, fl_architecture_of_model_type("llama"), &parts, tied, "model.", "lm_head.weight");
}

static fl_model *open_good(const char *path) {
    fl_model *model = NULL;
    fl_error error = {FL_OK, ""};
    if (fl_model_open(path, &model, &error) != FL_OK) fail_msg("%s", error.message);
    return model;
}

static void assert_refused(const char *path, fl_status status, const char *first, const char *second) {
    fl_model *model = NULL;
    fl_error error = {FL_OK, ""};
    fl_status found = fl_model_open(path, &model, &error);
    if (found == FL_OK) fail_msg("%s was accepted (expected: %s)", path, first);
    assert_null(model);
    if (found != status) fail_msg("status %s, message: %s", fl_status_name(found), error.message);
    if (strstr(error.message, first) == NULL || (second != NULL && strstr(error.message, second) == NULL)) {
        fail_msg("\"%s\" or \"%s\" is not in: %s", first, second, error.message);
    }
}

static void test_a_whole_model_opens_and_its_weights_are_in_place(void **state) {
    (void)state;
    built_model source;
    build_llama(&source, false);
    fl_model *model = open_good(write_model(&source, "whole", llama_config));
    assert_true(model->config.layers == LAYERS && !model->config.tied_head);
    assert_memory_equal(model->layers[1].key.data,
                        built(&source, "model.layers.1.self_attn.k_proj.weight")->data,
                        (size_t)KV_HEADS * HEAD_DIM * MODEL * sizeof(float));
    assert_true(model->layers[2].down.rows == MODEL && model->layers[2].down.columns == MLP);
    assert_null(model->layers[0].query_bias.data);
    assert_null(model->layers[0].query_norm.data);
    assert_true(model->layers[0].query.permuted_heads == 0);
    size_t expected = 0;
    for (size_t i = 0; i < source.count; i++) {
        expected +=
            source.tensors[i].shape[0] * (source.tensors[i].rank == 2 ? source.tensors[i].shape[1] : 1);
    }
    assert_int_equal(fl_model_parameter_count(model), expected);
    fl_attention_shape shape = fl_model_attention_shape(&model->config);
    assert_true(shape.query_heads == HEADS && shape.kv_heads == KV_HEADS && shape.head_dim == HEAD_DIM &&
                shape.scale == 0.25f);
    fl_hash first, second;
    assert_int_equal(fl_model_hash(model, &first, NULL), FL_OK);
    assert_int_equal(fl_model_hash(model, &second, NULL), FL_OK);
    assert_string_equal(first.text, second.text);
    fl_model_close(model);
    release(&source);
}

static void test_every_path_form_opens_the_same_model(void **state) {
    (void)state;
    built_model source;
    build_llama(&source, true);
    const char *path = write_model(&source, "paths", tied_config);
    char file[1200], index[1200];
    snprintf(file, sizeof file, "%s/model.safetensors", path);
    fl_model *by_folder = open_good(path), *by_file = open_good(file);
    assert_true(by_folder->config.tied_head && by_folder->head.data == by_folder->embedding.data);
    assert_int_equal(fl_model_parameter_count(by_folder), fl_model_parameter_count(by_file));
    assert_string_equal(by_file->path, file);
    fl_model_close(by_folder);
    fl_model_close(by_file);

    /* Only the index: every tensor in one shard of another name. */
    snprintf(index, sizeof index, "%s/only.safetensors", path);
    assert_int_equal(rename(file, index), 0);
    fl_bytes text = {0};
    fl_bytes_add(&text, "{\"weight_map\":{", 15);
    for (size_t i = 0; i < source.count; i++) {
        char item[160];
        int length = snprintf(item, sizeof item, "%s\"%s\":\"only.safetensors\"", i > 0 ? "," : "",
                              source.tensors[i].name);
        fl_bytes_add(&text, item, (size_t)length);
    }
    fl_bytes_add(&text, "}}", 2);
    const char *index_path = fl_put_file(path, "model.safetensors.index.json", &text);
    fl_bytes_free(&text);
    fl_model *sharded = open_good(path), *by_index = open_good(index_path);
    assert_int_equal(fl_model_parameter_count(sharded), fl_model_parameter_count(by_index));
    fl_model_close(sharded);
    fl_model_close(by_index);
    release(&source);
}

static void test_what_is_not_there_is_said_so(void **state) {
    (void)state;
    char path[1200];
    assert_refused(fl_test_folder(), FL_ERROR_IO, "neither model.safetensors nor", fl_test_folder());
    snprintf(path, sizeof path, "%s/absent", fl_test_folder());
    assert_refused(path, FL_ERROR_IO, "cannot open", "absent");
    built_model source;
    build_llama(&source, true);
    const char *model = write_model(&source, "bare", tied_config);
    snprintf(path, sizeof path, "%s/model.safetensors", model);
    char config[1200];
    snprintf(config, sizeof config, "%s/config.json", model);
    unlink(config);
    assert_refused(path, FL_ERROR_IO, "there is no", "config.json");
    assert_refused(model, FL_ERROR_IO, "there is no", "config.json");
    unlink(path);
    fl_put_text(model, "config.json", tied_config);
    assert_refused(model, FL_ERROR_IO, "neither model.safetensors nor model.safetensors.index.json", "bare");
    release(&source);
}

static void test_all_faults_are_listed_in_one_message(void **state) {
    (void)state;
    built_model source;
    build_llama(&source, false);
    snprintf(built(&source, "model.layers.0.self_attn.q_proj.weight")->name, 96,
             "model.layers.0.self_attn.qkv_proj.weight");
    built(&source, "model.layers.1.mlp.up_proj.weight")->shape[0] = MLP - 1;
    built(&source, "model.layers.2.input_layernorm.weight")->shape[0] = MODEL / 2;
    built_tensor *norm = built(&source, "model.norm.weight");
    norm->rank = 2;
    norm->shape[0] = 1;
    norm->shape[1] = MODEL;
    const char *path = write_model(&source, "faults", llama_config);
    static const char *const expected[] = {
        "tensor model.norm.weight: expected [64], found rank 2, [1][64]",
        "tensor model.layers.0.self_attn.q_proj.weight is missing",
        "tensor model.layers.1.mlp.up_proj.weight: expected [96][64], found rank 2, [95][64]",
        "tensor model.layers.2.input_layernorm.weight: expected [64], found rank 1, [1][32]",
        "tensor model.layers.0.self_attn.qkv_proj.weight is not part of architecture llama"};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_refused(path, FL_ERROR_FORMAT, expected[i], path);
    release(&source);

    /* Nothing fits: the list is cut and says how much was left out. */
    build_llama(&source, false);
    for (size_t i = 0; i < source.count; i++) source.tensors[i].name[0] = 'x';
    assert_refused(write_model(&source, "nothing", llama_config), FL_ERROR_FORMAT,
                   "tensor model.embed_tokens.weight is missing", "more");
    release(&source);
}

static void test_a_config_with_other_sizes_than_the_tensors_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *expected;
    } cases[] = {
        {"\"hidden_size\":64", "\"hidden_size\":60", "tensor model.embed_tokens.weight: expected [40][60]"},
        {"\"vocab_size\":40", "\"vocab_size\":41", "tensor model.embed_tokens.weight: expected [41][64]"},
        {"\"intermediate_size\":96", "\"intermediate_size\":97", "mlp.gate_proj.weight: expected [97][64]"},
        {"\"num_hidden_layers\":3", "\"num_hidden_layers\":4",
         "tensor model.layers.3.input_layernorm.weight is missing"},
        {"\"num_hidden_layers\":3", "\"num_hidden_layers\":2",
         "tensor model.layers.2.input_layernorm.weight is not part"},
        {"\"num_hidden_layers\":3", "\"num_hidden_layers\":9999", "names 9999 layers"},
        {"\"num_attention_heads\":6", "\"num_attention_heads\":4", "q_proj.weight: expected [64][64]"},
        {"\"num_key_value_heads\":2", "\"num_key_value_heads\":3", "k_proj.weight: expected [48][64]"},
        {"\"head_dim\":16", "\"head_dim\":8", "q_proj.weight: expected [48][64]"}};
    built_model source;
    build_llama(&source, false);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char config[512];
        const char *at = strstr(llama_config, cases[i].from);
        assert_non_null(at);
        snprintf(config, sizeof config, "%.*s%s%s", (int)(at - llama_config), llama_config, cases[i].to,
                 at + strlen(cases[i].from));
        fl_model *model = NULL;
        fl_error error;
        assert_int_not_equal(fl_model_open(write_model(&source, "sizes", config), &model, &error), FL_OK);
        if (strstr(error.message, cases[i].expected) == NULL) fail_msg("%s: %s", cases[i].to, error.message);
    }
    release(&source);
}

static void test_the_head_follows_the_tie_rule(void **state) {
    (void)state;
    built_model source;
    build_llama(&source, true);
    assert_refused(write_model(&source, "untied", llama_config), FL_ERROR_FORMAT,
                   "tensor lm_head.weight is missing", "tie_word_embeddings");
    release(&source);
    /* Tied, and a head with other values in the file all the same: it is used, and the description says so.
     */
    build_llama(&source, false);
    const char *path = write_model(&source, "both", tied_config);
    fl_model *model = open_good(path);
    assert_ptr_not_equal(model->head.data, model->embedding.data);
    assert_false(model->config.tied_head);
    assert_non_null(model->note);
    fl_model_close(model);
    char *text = NULL;
    assert_int_equal(fl_model_describe(path, &text, NULL), FL_OK);
    assert_non_null(strstr(text, "differs from the embedding"));
    fl_memory_free(text);
    release(&source);
}

static void test_biases_must_be_where_the_config_says(void **state) {
    (void)state;
    built_model source;
    const fl_model_parts parts = {.input_bias = true, .output_bias = true, .mlp_bias = true};
    build(&source, fl_architecture_of_model_type("llama"), &parts, false, "model.", "lm_head.weight");
    const char *path = write_model(&source, "biased", biased_config);
    fl_model *model = open_good(path);
    assert_true(model->layers[2].output_bias.columns == MODEL && model->layers[2].gate_bias.columns == MLP);
    assert_true(model->layers[2].key_bias.columns == KV_HEADS * HEAD_DIM &&
                model->layers[2].key_bias.rank == 1);
    fl_model_close(model);
    assert_refused(write_model(&source, "biased", llama_config), FL_ERROR_UNSUPPORTED,
                   "tensor model.layers.0.self_attn.q_proj.bias is not part of architecture llama",
                   "mlp.down_proj.bias");
    release(&source);
    build_llama(&source, false);
    assert_refused(write_model(&source, "unbiased", biased_config), FL_ERROR_FORMAT,
                   "tensor model.layers.0.self_attn.q_proj.bias is missing", "mlp.up_proj.bias");
    release(&source);
}

static void test_tensors_without_a_part_are_refused_or_known(void **state) {
    (void)state;
    built_model source;
    build_llama(&source, true);
    add(&source, "model.layers.0.self_attn.rotary_emb.inv_freq", 8, 0);
    fl_model_close(open_good(write_model(&source, "legacy", tied_config)));
    add(&source, "score.weight", 2, 2);
    assert_refused(write_model(&source, "legacy", tied_config), FL_ERROR_UNSUPPORTED,
                   "tensor score.weight is not part of", "llama");
    release(&source);
}

static void test_multimodal_and_headless_layouts_are_found(void **state) {
    (void)state;
    static const struct {
        const char *body, *head;
    } layouts[] = {{"language_model.model.", "language_model.lm_head.weight"},
                   {"model.language_model.", "lm_head.weight"}};
    const fl_model_parts parts = {0};
    built_model source;
    for (size_t i = 0; i < 2; i++) {
        build(&source, fl_architecture_of_model_type("llama"), &parts, false, layouts[i].body,
              layouts[i].head);
        add(&source, "vision_tower.patch.weight", 5, 5);
        fl_model *model = open_good(write_model(&source, "multimodal", llama_config));
        assert_non_null(model->layers[0].query.data);
        fl_model_close(model);
        add(&source, "model.embed_tokens.weight", VOCABULARY, MODEL);
        assert_refused(write_model(&source, "multimodal", llama_config), FL_ERROR_UNSUPPORTED,
                       "holds two language models", layouts[i].body);
        release(&source);
    }
    build(&source, fl_architecture_of_model_type("llama"), &parts, true, "", NULL);
    fl_model_close(open_good(write_model(&source, "headless", tied_config)));
    release(&source);
}

/* One tensor as GGUF stores it: query and key rows (or bias entries) interleaved where the architecture is
 * permuted. */
static fl_gguf_build_tensor converted(const built_tensor *source, const char *name, size_t heads,
                                      float *room) {
    size_t rows = source->shape[0], columns = source->rank == 2 ? source->shape[1] : 1,
           half = rows / (heads > 0 ? heads : 1) / 2;
    for (size_t row = 0; row < rows; row++) {
        size_t target = row;
        if (heads > 0) {
            size_t head = row / (2 * half), within = row % (2 * half);
            target = head * 2 * half + 2 * (within % half) + within / half;
        }
        memcpy(room + target * columns, source->data + row * columns, columns * sizeof(float));
    }
    return (fl_gguf_build_tensor){
        name, 0, source->rank, {source->shape[0], source->shape[1]}, room, rows * columns * sizeof(float)};
}

typedef struct gguf_tensors {
    fl_gguf_build_tensor tensors[MAX_TENSORS];
    char names[MAX_TENSORS][64];
    float *rooms[MAX_TENSORS];
    size_t count;
} gguf_tensors;

static void convert(gguf_tensors *out, built_model *source, const char *from, const char *to, size_t heads) {
    const built_tensor *tensor = built(source, from);
    size_t i = out->count++;
    snprintf(out->names[i], sizeof out->names[i], "%s", to);
    assert_int_equal(
        FL_ALLOCATE(&out->rooms[i], tensor->shape[0] * (tensor->rank == 2 ? tensor->shape[1] : 1), NULL),
        FL_OK);
    out->tensors[i] = converted(tensor, out->names[i], heads, out->rooms[i]);
}

static void convert_all(gguf_tensors *out, built_model *source, const fl_architecture *architecture,
                        const fl_model_parts *parts) {
    memset(out, 0, sizeof *out);
    convert(out, source, "model.embed_tokens.weight", "token_embd.weight", 0);
    convert(out, source, "model.norm.weight", "output_norm.weight", 0);
    for (size_t layer = 0; layer < LAYERS; layer++) {
        for (size_t i = 0; i < architecture->layer_weight_count; i++) {
            const fl_weight_descriptor *weight = &architecture->layer_weights[i];
            if (!fl_architecture_has_weight(weight, parts)) continue;
            char from[96], to[64];
            snprintf(from, sizeof from, "model.layers.%zu.%s", layer, weight->hugging_face);
            snprintf(to, sizeof to, "blk.%zu.%s", layer, weight->gguf);
            size_t heads = !architecture->gguf_permuted || !weight->rotated ? 0
                           : weight->rows == FL_AXIS_KV                     ? KV_HEADS
                                                                            : HEADS;
            convert(out, source, from, to, heads);
        }
    }
}

static void add_size(fl_bytes *pairs, const char *prefix, const char *name, uint32_t value) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", prefix, name);
    fl_gguf_add_u32(pairs, key, value);
}

static size_t add_pairs(fl_bytes *pairs, const char *prefix) {
    char key[96];
    fl_gguf_add_string(pairs, "general.architecture", prefix);
    add_size(pairs, prefix, "context_length", 128);
    add_size(pairs, prefix, "embedding_length", MODEL);
    add_size(pairs, prefix, "block_count", LAYERS);
    add_size(pairs, prefix, "feed_forward_length", MLP);
    add_size(pairs, prefix, "attention.head_count", HEADS);
    add_size(pairs, prefix, "attention.head_count_kv", KV_HEADS);
    add_size(pairs, prefix, "attention.key_length", HEAD_DIM);
    add_size(pairs, prefix, "attention.value_length", HEAD_DIM);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", prefix);
    fl_gguf_add_f32(pairs, key, 1e-6f);
    return 10;
}

static const char *write_gguf(const gguf_tensors *tensors, const char *name, const char *prefix) {
    fl_bytes pairs = {0}, file = {0};
    size_t count = add_pairs(&pairs, prefix);
    fl_build_gguf(&file, &pairs, count, tensors->tensors, tensors->count, 32);
    const char *path = fl_put_file(fl_test_folder(), name, &file);
    fl_bytes_free(&pairs);
    fl_bytes_free(&file);
    return path;
}

static void release_gguf(gguf_tensors *tensors) {
    for (size_t i = 0; i < tensors->count; i++) fl_memory_free(tensors->rooms[i]);
    tensors->count = 0;
}

static void assert_same_tensor(const fl_tensor *a, const fl_tensor *b, const char *name) {
    if ((a->data == NULL) != (b->data == NULL)) fail_msg("%s is in one model only", name);
    if (a->data == NULL) return;
    assert_true(a->rows == b->rows && a->columns == b->columns);
    float first[VOCABULARY * MODEL], second[VOCABULARY * MODEL];
    for (size_t row = 0; row < a->rows; row++) {
        fl_tensor_widen_row(a, row, first);
        fl_tensor_widen_row(b, row, second);
        if (memcmp(first, second, a->columns * sizeof(float)) != 0)
            fail_msg("%s differs in row %zu", name, row);
    }
}

static void assert_same_weights(const fl_model *a, const fl_model *b, const fl_architecture *architecture) {
    assert_same_tensor(&a->embedding, &b->embedding, "embedding");
    assert_same_tensor(&a->final_norm, &b->final_norm, "final norm");
    for (size_t layer = 0; layer < LAYERS; layer++) {
        for (size_t i = 0; i < architecture->layer_weight_count; i++) {
            size_t offset = architecture->layer_weights[i].offset;
            assert_same_tensor((const fl_tensor *)((const char *)&a->layers[layer] + offset),
                               (const fl_tensor *)((const char *)&b->layers[layer] + offset),
                               architecture->layer_weights[i].hugging_face);
        }
    }
}

static void test_a_gguf_file_widens_to_the_same_weights(void **state) {
    (void)state;
    static const struct {
        const char *name, *config;
        fl_model_parts parts;
    } cases[] = {
        {"llama", tied_config, {0}},
        {"llama",
         "{\"model_type\":\"llama\"," SIZES
         ",\"tie_word_embeddings\":true,\"attention_bias\":true,\"mlp_bias\":true}",
         {.input_bias = true, .output_bias = true, .mlp_bias = true}},
        {"qwen2", "{\"model_type\":\"qwen2\"," SIZES ",\"tie_word_embeddings\":true}", {.input_bias = true}},
        {"qwen3",
         "{\"model_type\":\"qwen3\"," SIZES ",\"tie_word_embeddings\":true}",
         {.query_key_norm = true}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const fl_architecture *architecture = fl_architecture_of_model_type(cases[i].name);
        built_model source;
        static gguf_tensors tensors;
        build(&source, architecture, &cases[i].parts, true, "model.", NULL);
        convert_all(&tensors, &source, architecture, &cases[i].parts);
        fl_model *first = open_good(write_model(&source, "pair", cases[i].config));
        fl_model *second = open_good(write_gguf(&tensors, "pair.gguf", cases[i].name));
        assert_same_weights(first, second, architecture);
        assert_int_equal(second->layers[1].key.permuted_heads, architecture->gguf_permuted ? KV_HEADS : 0);
        assert_true(second->config.vocabulary == VOCABULARY && second->config.tied_head);
        assert_int_equal(fl_model_parameter_count(first), fl_model_parameter_count(second));
        fl_model_close(first);
        fl_model_close(second);
        release_gguf(&tensors);
        release(&source);
    }
}

static void test_gguf_tensors_are_checked_like_the_others(void **state) {
    (void)state;
    const fl_model_parts parts = {0};
    const fl_architecture *architecture = fl_architecture_of_model_type("llama");
    built_model source;
    static gguf_tensors tensors;
    build_llama(&source, true);
    convert_all(&tensors, &source, architecture, &parts);
    snprintf(tensors.names[3], sizeof tensors.names[3], "blk.0.attn_qkv.weight");
    const char *path = write_gguf(&tensors, "renamed.gguf", "llama");
    assert_refused(path, FL_ERROR_FORMAT, "tensor blk.0.attn_q.weight is missing",
                   "blk.0.attn_qkv.weight is not part of");
    snprintf(tensors.names[3], sizeof tensors.names[3], "blk.0.attn_q.weight");
    /* A type that no file should hold where a weight is needed: named. */
    tensors.tensors[0].type = 15;
    tensors.tensors[0].shape[0] = VOCABULARY * MODEL / 256;
    tensors.tensors[0].shape[1] = 256;
    tensors.tensors[0].bytes = VOCABULARY * MODEL / 256 * 292;
    assert_refused(write_gguf(&tensors, "quant.gguf", "llama"), FL_ERROR_UNSUPPORTED,
                   "tensor token_embd.weight has type Q8_K, which is not supported", "quant.gguf");
    release_gguf(&tensors);
    release(&source);
}

static void test_rope_frequencies_of_a_gguf_file_are_used(void **state) {
    (void)state;
    const fl_model_parts parts = {0};
    const fl_architecture *architecture = fl_architecture_of_model_type("llama");
    built_model source;
    static gguf_tensors tensors;
    build_llama(&source, true);
    convert_all(&tensors, &source, architecture, &parts);
    built_tensor *divisors = add(&source, "divisors", HEAD_DIM / 2, 0);
    for (size_t i = 0; i < HEAD_DIM / 2; i++) divisors->data[i] = 1.0f + (float)i;
    convert(&tensors, &source, "divisors", "rope_freqs.weight", 0);
    fl_model *model = open_good(write_gguf(&tensors, "divisors.gguf", "llama"));
    assert_non_null(model->config.rope.divisors);
    assert_true(model->config.rope.divisors[3] == 4.0f && model->config.rope.type == FL_ROPE_DEFAULT);
    fl_model_close(model);
    tensors.rooms[tensors.count - 1][2] = 0.0f;
    assert_refused(write_gguf(&tensors, "divisors.gguf", "llama"), FL_ERROR_FORMAT,
                   "rope_freqs.weight: entry 2 is not above 0", NULL);
    tensors.tensors[tensors.count - 1].shape[0] = HEAD_DIM / 4;
    tensors.tensors[tensors.count - 1].bytes = HEAD_DIM;
    assert_refused(write_gguf(&tensors, "divisors.gguf", "llama"), FL_ERROR_FORMAT,
                   "tensor rope_freqs.weight: expected [8]", NULL);
    release_gguf(&tensors);
    release(&source);
}

static void test_running_out_of_memory_leaves_nothing_behind(void **state) {
    (void)state;
    built_model source;
    build_llama(&source, true);
    const char *path = write_model(&source, "memory", tied_config);
    for (size_t n = 1;; n++) {
        fl_model *model = NULL;
        fl_memory_fail_at(n);
        fl_status status = fl_model_open(path, &model, NULL);
        fl_memory_fail_at(0);
        fl_model_close(model);
        if (status == FL_OK) break;
        assert_int_equal(status, FL_ERROR_MEMORY);
        assert_null(model);
    }
    release(&source);
}

static void test_a_file_without_config_is_described_by_its_tensors(void **state) {
    (void)state;
    const float data[4] = {0};
    const fl_checkpoint_write_tensor tensor = {"layers.0.gate.w1", data, 2, {2, 2}};
    char path[1200], *text = NULL;
    fl_error error;
    snprintf(path, sizeof path, "%s/mechanism", fl_test_folder());
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/mechanism/m.safetensors", fl_test_folder());
    assert_int_equal(fl_checkpoint_write_safetensors(path, &tensor, 1, NULL, NULL, 0, NULL), FL_OK);
    assert_int_equal(fl_model_describe(path, &text, NULL), FL_OK);
    assert_non_null(strstr(text, "layers.0.gate.w1 F32 [2][2]"));
    assert_null(strstr(text, "architecture"));
    fl_memory_free(text);
    snprintf(path, sizeof path, "%s/none", fl_test_folder());
    assert_int_equal(fl_model_describe(path, &text, &error), FL_ERROR_IO);
    assert_null(text);
    built_model source;
    build_llama(&source, true);
    assert_int_equal(
        fl_model_describe(write_model(&source, "other", "{\"model_type\":\"rwkv\"}"), &text, NULL), FL_OK);
    assert_non_null(strstr(text, "model_type \"rwkv\" is not supported"));
    assert_non_null(strstr(text, "model.norm.weight"));
    fl_memory_free(text);
    release(&source);
}

static void test_the_reference_checkpoints_open_with_their_numbers(void **state) {
    (void)state;
    static const struct {
        const char *name, *architecture;
        size_t parameters, head_dim, kv_heads, window;
        fl_rope_type rope;
        double theta;
        fl_dtype type;
        bool tied;
    } cases[] = {
        {"llama_gqa", "llama", 170432, 16, 2, 0, FL_ROPE_DEFAULT, 1e4, FL_DTYPE_F32, false},
        {"llama_mha_bias", "llama", 184640, 16, 4, 0, FL_ROPE_DEFAULT, 1e4, FL_DTYPE_F32, false},
        {"llama3_rope", "llama", 186816, 32, 2, 0, FL_ROPE_LLAMA3, 5e5, FL_DTYPE_F32, true},
        {"llama_linear_rope", "llama", 149952, 16, 2, 0, FL_ROPE_LINEAR, 1e4, FL_DTYPE_F32, true},
        {"llama_bf16_sharded", "llama", 170432, 16, 2, 0, FL_ROPE_DEFAULT, 1e4, FL_DTYPE_BF16, false},
        {"llama_f16", "llama", 149952, 16, 2, 0, FL_ROPE_DEFAULT, 1e4, FL_DTYPE_F16, true},
        {"mistral_swa", "mistral", 170432, 16, 2, 16, FL_ROPE_DEFAULT, 1e4, FL_DTYPE_F32, false},
        {"qwen2", "qwen2", 150336, 16, 2, 0, FL_ROPE_DEFAULT, 1e4, FL_DTYPE_F32, true},
        {"qwen2_yarn", "qwen2", 170816, 16, 2, 0, FL_ROPE_YARN, 1e6, FL_DTYPE_F32, false},
        {"qwen3", "qwen3", 187008, 32, 2, 0, FL_ROPE_DEFAULT, 1e4, FL_DTYPE_F32, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char relative[128];
        snprintf(relative, sizeof relative, "reference/%s", cases[i].name);
        const char *path = fl_pack_path(relative);
        if (path == NULL) fl_fixture_skip("test_the_reference_checkpoints_open_with_their_numbers", relative);
        fl_model *model = open_good(path);
        const fl_model_config *config = &model->config;
        assert_string_equal(config->architecture, cases[i].architecture);
        assert_int_equal(fl_model_parameter_count(model), cases[i].parameters);
        assert_true(config->layers == 3 && config->model_dim == 64 && config->query_heads == 4 &&
                    config->mlp_dim == 160);
        assert_true(config->head_dim == cases[i].head_dim && config->kv_heads == cases[i].kv_heads);
        assert_true(config->sliding_window[0] == cases[i].window &&
                    config->sliding_window[2] == cases[i].window);
        assert_true(config->rope.type == cases[i].rope && config->rope.theta == cases[i].theta);
        assert_true(config->tied_head == cases[i].tied && config->vocabulary == 320 &&
                    config->norm_epsilon == 1e-6);
        assert_int_equal(model->layers[0].query.type, cases[i].type);
        fl_model_close(model);
    }
}

static void test_reference_checkpoints_of_other_architectures_are_refused_by_name(void **state) {
    (void)state;
    static const char *const names[] = {"gemma3_text", "gpt2", "gpt_neox", "qwen3_5_text", "qwen3_next"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char relative[128], expected[128];
        snprintf(relative, sizeof relative, "reference/%s", names[i]);
        snprintf(expected, sizeof expected, "model_type \"%s\" is not supported", names[i]);
        const char *path = fl_pack_path(relative);
        if (path == NULL)
            fl_fixture_skip("test_reference_checkpoints_of_other_architectures_are_refused_by_name",
                            relative);
        assert_refused(path, FL_ERROR_UNSUPPORTED, expected, "llama");
    }
}

static void test_the_default_model_opens(void **state) {
    (void)state;
    const char *path = fl_default_model_path();
    if (path == NULL) fl_fixture_skip("test_the_default_model_opens", "models/smollm2-135m.gguf");
    fl_model *model = open_good(path);
    const fl_model_config *config = &model->config;
    assert_string_equal(config->architecture, "llama");
    assert_true(config->layers == 30 && config->model_dim == 576 && config->query_heads == 9 &&
                config->kv_heads == 3);
    assert_true(config->head_dim == 64 && config->mlp_dim == 1536 && config->vocabulary == 49152 &&
                config->tied_head);
    assert_true(config->max_positions == 8192 && (float)config->norm_epsilon == 1e-5f &&
                config->rope.theta == 100000.0);
    assert_true(config->bos_token == 1 && config->eos_token == 2);
    assert_true(model->layers[29].query.permuted_heads == 9 && model->layers[29].key.permuted_heads == 3);
    assert_true(model->layers[29].value.permuted_heads == 0 && model->layers[29].query.type == FL_DTYPE_Q4_1);
    assert_int_equal(fl_model_parameter_count(model), 134515008);
    fl_model_close(model);
}

/* Of a tied pair either name may be the one that is stored, and both when they agree. */
static void test_a_tied_pair_may_be_stored_under_either_name_or_both(void **state) {
    (void)state;
    static const char *const heads[][2] = {{"model.", "lm_head.weight"},
                                           {"language_model.model.", "language_model.lm_head.weight"},
                                           {"model.language_model.", "lm_head.weight"}};
    const fl_model_parts parts = {0};
    const fl_architecture *llama = fl_architecture_of_model_type("llama");
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        built_model source;
        char embedding[96];
        snprintf(embedding, sizeof embedding, "%sembed_tokens.weight", heads[i][0]);
        build(&source, llama, &parts, true, heads[i][0], heads[i][1]);
        built_tensor *stored = built(&source, embedding);
        snprintf(stored->name, sizeof stored->name, "%s", heads[i][1]);
        fl_model *model = open_good(write_model(&source, "head_only", tied_config));
        assert_true(model->config.tied_head && model->note == NULL);
        assert_ptr_equal(model->head.data, model->embedding.data);
        assert_memory_equal(model->embedding.data, stored->data, sizeof(float) * VOCABULARY * MODEL);
        fl_model_close(model);
        assert_refused(write_model(&source, "head_only", llama_config), FL_ERROR_FORMAT,
                       "embed_tokens.weight is missing", NULL);
        release(&source);
    }
    built_model source;
    build_llama(&source, false);
    memcpy(built(&source, "lm_head.weight")->data, built(&source, "model.embed_tokens.weight")->data,
           sizeof(float) * VOCABULARY * MODEL);
    fl_model *model = open_good(write_model(&source, "both", tied_config));
    assert_true(model->config.tied_head);
    assert_ptr_equal(model->head.data, model->embedding.data);
    fl_model_close(model);
    built(&source, "lm_head.weight")->data[VOCABULARY * MODEL - 1] += 1.0f;
    model = open_good(write_model(&source, "both", tied_config));
    assert_false(model->config.tied_head);
    assert_memory_equal(model->head.data, built(&source, "lm_head.weight")->data,
                        sizeof(float) * VOCABULARY * MODEL);
    fl_model_close(model);
    release(&source);
}

static void test_every_end_of_text_token_is_read(void **state) {
    (void)state;
    static const struct {
        const char *config, *generation;
        size_t count;
        long ids[3];
    } cases[] = {{"", NULL, 1, {2}},
                 {",\"eos_token_id\":[7,8,9]", NULL, 3, {7, 8, 9}},
                 {",\"eos_token_id\":7", "{\"eos_token_id\":[5,7]}", 2, {5, 7}},
                 {",\"eos_token_id\":[7,8]", "{\"eos_token_id\":3}", 1, {3}},
                 {",\"eos_token_id\":[7,8]", "{\"eos_token_id\":null}", 2, {7, 8}},
                 {",\"eos_token_id\":[7,8]", "{\"temperature\":NaN}", 2, {7, 8}},
                 {",\"eos_token_id\":null", NULL, 0, {0}},
                 {",\"eos_token_id\":-1", "{}", 0, {0}}};
    built_model source;
    build_llama(&source, true);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char config[512], name[32];
        snprintf(config, sizeof config, "{\"model_type\":\"llama\"," SIZES ",\"tie_word_embeddings\":true%s}",
                 cases[i].config);
        snprintf(name, sizeof name, "eos%zu", i);
        const char *path = write_model(&source, name, config);
        if (cases[i].generation != NULL) fl_put_text(path, "generation_config.json", cases[i].generation);
        fl_model *model = open_good(path);
        assert_int_equal(model->config.eos_count, cases[i].count);
        for (size_t t = 0; t < cases[i].count; t++)
            assert_int_equal(model->config.eos_tokens[t], cases[i].ids[t]);
        assert_int_equal(model->config.eos_token, cases[i].count > 0 ? cases[i].ids[0] : -1);
        fl_model_close(model);
    }
    const char *path = write_model(&source, "eos_bad", tied_config);
    fl_put_text(path, "generation_config.json", "{\"eos_token_id\":[1,\"</s>\"]}");
    assert_refused(path, FL_ERROR_FORMAT, "generation_config.json", "eos_token_id");
    fl_put_text(path, "generation_config.json", "[1]");
    assert_refused(path, FL_ERROR_FORMAT, "generation_config.json", "not a JSON object");
    release(&source);
}

static void assert_damaged(fl_model *model, const char *what) {
    fl_error error = {FL_OK, ""};
    assert_int_equal(fl_model_check_finite(model, &error), FL_ERROR_FORMAT);
    if (strstr(error.message, what) == NULL || strstr(error.message, "the model is damaged") == NULL)
        fail_msg("\"%s\" is not in: %s", what, error.message);
}

static void test_weights_that_are_not_finite_are_a_damaged_model(void **state) {
    (void)state;
    built_model source;
    build_llama(&source, false);
    fl_model *model = open_good(write_model(&source, "finite", llama_config));
    assert_int_equal(fl_model_check_finite(model, NULL), FL_OK);
    fl_model_close(model);
    static const char *const names[] = {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight",
                                        "model.layers.2.mlp.down_proj.weight",
                                        "model.layers.0.input_layernorm.weight"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        float *last = &built(&source, names[i])->data[MODEL - 1], kept = *last;
        *last = i % 2 == 0 ? NAN : -INFINITY;
        model = open_good(write_model(&source, "finite", llama_config));
        assert_damaged(model, names[i]);
        assert_damaged(model,
                       i % 2 == 0 ? "holds NaN at row 0, column 63" : "an infinity at row 0, column 63");
        fl_model_close(model);
        *last = kept;
    }
    release(&source);
}

/* Two rows in each stored type; bits: of the last number, or of the last block's last scale. */
static void test_the_finite_check_knows_every_stored_type(void **state) {
    (void)state;
    built_model source;
    build_llama(&source, true);
    fl_model *model = open_good(write_model(&source, "types", tied_config));
    for (fl_dtype type = FL_DTYPE_F32; type < FL_DTYPE_COUNT; type++) {
        enum { COLUMNS = 256 };
        unsigned char bytes[2 * COLUMNS * sizeof(float)] = {0};
        const bool plain = fl_dtype_block_elements(type) == 1;
        size_t block = fl_dtype_block_bytes(type), total = 2 * fl_dtype_row_bytes(type, COLUMNS);
        fl_tensor *tensor = &model->layers[1].value;
        *tensor = (fl_tensor){bytes, type, 2, {2, COLUMNS}, 2, COLUMNS, 0, "value"};
        assert_int_equal(fl_model_check_finite(model, NULL), FL_OK);
        const unsigned char bits[2] = {type == FL_DTYPE_F32 || type == FL_DTYPE_BF16 ? 0x80 : 0x00,
                                       type == FL_DTYPE_F32 || type == FL_DTYPE_BF16 ? 0x7f : 0x7c};
        const size_t last[FL_DTYPE_COUNT] = {
            [FL_DTYPE_Q4_1] = 2, [FL_DTYPE_Q5_1] = 2, [FL_DTYPE_Q2_K] = 82, [FL_DTYPE_Q3_K] = 108,
            [FL_DTYPE_Q4_K] = 2, [FL_DTYPE_Q5_K] = 2, [FL_DTYPE_Q6_K] = 208};
        memcpy(bytes + (plain ? total - 2 : total - block + last[type]), bits, 2);
        assert_damaged(model, "tensor value");
        assert_damaged(model, "row 1");
    }
    fl_model_close(model);
    release(&source);
}

static fl_hash identity_of(const built_model *source, const char *config, const char *generation,
                           const char *tokenizer) {
    fl_hash weights, identity;
    const char *path = write_model(source, "identity", config);
    fl_put_text(path, "generation_config.json", generation);
    fl_model *model = open_good(path);
    assert_int_equal(fl_model_hash(model, &weights, NULL), FL_OK);
    assert_int_equal(fl_model_identity(model, &weights, tokenizer, &identity, NULL), FL_OK);
    fl_model_close(model);
    return identity;
}

/* The same weights under another configuration are another model; the same words written otherwise are not.
 */
static void test_the_configuration_is_part_of_a_models_identity(void **state) {
    (void)state;
#define WITH(more) "{\"model_type\":\"llama\"," SIZES ",\"tie_word_embeddings\":true" more "}"
    static const char *const others[] = {WITH(",\"rope_theta\":500"),
                                         WITH(",\"rms_norm_eps\":1e-5"),
                                         WITH(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}"),
                                         WITH(",\"hidden_act\":\"gelu\""),
                                         WITH(",\"eos_token_id\":[2,3]"),
                                         WITH(",\"bos_token_id\":5")};
    static const char *const same[] = {WITH(",\"rope_theta\":10000.0"), WITH(",\"dtype\":\"float32\""),
                                       WITH(",\"_name_or_path\":\"x\",  \"rope_theta\": 1e4")};
    built_model source;
    build_llama(&source, true);
    const fl_hash plain = identity_of(&source, WITH(""), "{}", "t");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_string_not_equal(identity_of(&source, others[i], "{}", "t").text, plain.text);
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        assert_string_equal(identity_of(&source, same[i], "{}", "t").text, plain.text);
    assert_string_not_equal(identity_of(&source, WITH(""), "{\"eos_token_id\":[2,7]}", "t").text, plain.text);
    assert_string_equal(identity_of(&source, WITH(""), "{\"temperature\":0.5}", "t").text, plain.text);
    assert_string_not_equal(identity_of(&source, WITH(""), "{}", "other").text, plain.text);
    release(&source);
#undef WITH
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_configuration_is_part_of_a_models_identity),
        cmocka_unit_test(test_a_tied_pair_may_be_stored_under_either_name_or_both),
        cmocka_unit_test(test_every_end_of_text_token_is_read),
        cmocka_unit_test(test_weights_that_are_not_finite_are_a_damaged_model),
        cmocka_unit_test(test_the_finite_check_knows_every_stored_type),
        cmocka_unit_test(test_a_whole_model_opens_and_its_weights_are_in_place),
        cmocka_unit_test(test_every_path_form_opens_the_same_model),
        cmocka_unit_test(test_what_is_not_there_is_said_so),
        cmocka_unit_test(test_all_faults_are_listed_in_one_message),
        cmocka_unit_test(test_a_config_with_other_sizes_than_the_tensors_is_refused),
        cmocka_unit_test(test_the_head_follows_the_tie_rule),
        cmocka_unit_test(test_biases_must_be_where_the_config_says),
        cmocka_unit_test(test_tensors_without_a_part_are_refused_or_known),
        cmocka_unit_test(test_multimodal_and_headless_layouts_are_found),
        cmocka_unit_test(test_a_gguf_file_widens_to_the_same_weights),
        cmocka_unit_test(test_gguf_tensors_are_checked_like_the_others),
        cmocka_unit_test(test_rope_frequencies_of_a_gguf_file_are_used),
        cmocka_unit_test(test_running_out_of_memory_leaves_nothing_behind),
        cmocka_unit_test(test_a_file_without_config_is_described_by_its_tensors),
        cmocka_unit_test(test_the_reference_checkpoints_open_with_their_numbers),
        cmocka_unit_test(test_reference_checkpoints_of_other_architectures_are_refused_by_name),
        cmocka_unit_test(test_the_default_model_opens),
    };
    return cmocka_run_group_tests(tests, fl_test_folder_make, fl_test_folder_remove);
}
