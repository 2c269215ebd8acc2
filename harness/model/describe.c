#include "harness/model/describe.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/memory.h"
#include "harness/model/checkpoint.h"
#include "harness/model/model.h"
#include "harness/model/model_paths.h"

enum { TYPE_SLOTS = 64 };

typedef struct type_count {
    const char *name;
    size_t tensors, elements, bytes;
} type_count;

static size_t elements(const fl_tensor *tensor) {
    return tensor->rows * tensor->columns;
}

static void write_bytes(FILE *out, size_t bytes) {
    if (bytes >= 10u << 20) {
        fprintf(out, "%.1f MiB", (double)bytes / (1 << 20));
    } else {
        fprintf(out, "%zu bytes", bytes);
    }
}

static void write_files(FILE *out, const fl_checkpoint *checkpoint) {
    bool gguf = fl_checkpoint_format_of(checkpoint) == FL_CHECKPOINT_GGUF;
    fprintf(out, "format        %s, %zu tensors\n", gguf ? "GGUF" : "safetensors",
            fl_checkpoint_count(checkpoint));
    for (size_t i = 0; i < fl_checkpoint_file_count(checkpoint); i++) {
        fprintf(out, "file          %s, ", fl_checkpoint_file_path(checkpoint, i));
        write_bytes(out, fl_checkpoint_file_bytes(checkpoint, i));
        fputc('\n', out);
    }
}

static void write_types(FILE *out, const fl_checkpoint *checkpoint) {
    type_count counts[TYPE_SLOTS] = {{0}};
    for (size_t i = 0; i < fl_checkpoint_count(checkpoint); i++) {
        const fl_checkpoint_entry *entry = fl_checkpoint_entry_at(checkpoint, i);
        size_t slot = 0;
        while (slot + 1 < TYPE_SLOTS && counts[slot].name != NULL &&
               strcmp(counts[slot].name, entry->type_name) != 0) {
            slot++;
        }
        if (counts[slot].name == NULL) counts[slot].name = entry->type_name;
        counts[slot].tensors++;
        counts[slot].elements += elements(&entry->tensor);
        counts[slot].bytes += entry->byte_count;
    }
    for (size_t slot = 0; slot < TYPE_SLOTS && counts[slot].name != NULL; slot++) {
        fprintf(out, "type          %-8s %6zu tensors, %zu elements, ", counts[slot].name,
                counts[slot].tensors, counts[slot].elements);
        write_bytes(out, counts[slot].bytes);
        fputc('\n', out);
    }
}

static void write_gguf_text(FILE *out, const fl_gguf *gguf, const char *label, const char *key) {
    const char *text;
    size_t bytes;
    if (!fl_gguf_find_string(gguf, key, &text, &bytes)) return;
    fprintf(out, "%-14s", label);
    for (size_t i = 0; i < bytes && i < 200; i++) fputc((unsigned char)text[i] < 0x20 ? ' ' : text[i], out);
    fputc('\n', out);
}

static void write_gguf(FILE *out, const fl_gguf *gguf) {
    size_t tokens = 0;
    write_gguf_text(out, gguf, "name", "general.name");
    write_gguf_text(out, gguf, "licence", "general.license");
    write_gguf_text(out, gguf, "tokenizer", "tokenizer.ggml.model");
    write_gguf_text(out, gguf, "pre-tokenizer", "tokenizer.ggml.pre");
    if (fl_gguf_array_count(gguf, "tokenizer.ggml.tokens", &tokens))
        fprintf(out, "tokens        %zu\n", tokens);
}

static void write_rope(FILE *out, const fl_rope_config *rope) {
    static const char *const names[] = {
        [FL_ROPE_DEFAULT] = "default", [FL_ROPE_LINEAR] = "linear", [FL_ROPE_DYNAMIC] = "dynamic",
        [FL_ROPE_LLAMA3] = "llama3",   [FL_ROPE_YARN] = "yarn",
    };
    fprintf(out, "rope          %s, theta %g, %zu dimensions", names[rope->type], rope->theta,
            rope->rotary_dim);
    if (rope->type != FL_ROPE_DEFAULT) fprintf(out, ", factor %g", rope->factor);
    if (rope->type == FL_ROPE_LLAMA3 || rope->type == FL_ROPE_YARN) {
        fprintf(out, ", original length %g", rope->original_max_positions);
    }
    if (rope->divisors != NULL) fputs(", frequencies divided by rope_freqs.weight", out);
    fputc('\n', out);
}

static void write_windows(FILE *out, const fl_model_config *config) {
    size_t sliding = 0, window = 0;
    for (size_t i = 0; i < config->layers; i++) {
        if (config->sliding_window[i] > 0) window = config->sliding_window[i];
        sliding += config->sliding_window[i] > 0;
    }
    if (sliding > 0) {
        fprintf(out, "window        %zu positions in %zu of %zu layers\n", window, sliding, config->layers);
    }
}

static void write_model(FILE *out, const fl_model *model) {
    const fl_model_config *config = &model->config;
    static const char *const activations[] = {[FL_ACTIVATION_SILU] = "silu",
                                              [FL_ACTIVATION_GELU_TANH] = "gelu (tanh)",
                                              [FL_ACTIVATION_GELU] = "gelu"};
    fprintf(out, "architecture  %s, %zu layers, width %zu, MLP %zu (%s)\n", config->architecture,
            config->layers, config->model_dim, config->mlp_dim, activations[config->activation]);
    fprintf(out, "attention     %zu query heads, %zu key/value heads, head dimension %zu, scale %g%s%s\n",
            config->query_heads, config->kv_heads, config->head_dim, (double)config->attention_scale,
            model->layers[0].query_bias.data != NULL ? ", biases" : "",
            config->query_key_norm ? ", query/key norm" : "");
    fprintf(out, "vocabulary    %zu, head %s\n", config->vocabulary,
            config->tied_head ? "tied to the embedding" : "separate");
    fprintf(out, "positions     %zu\n", config->max_positions);
    write_rope(out, &config->rope);
    write_windows(out, config);
    fprintf(out, "norm epsilon  %g\n", config->norm_epsilon);
    fprintf(out, "parameters    %zu\n", fl_model_parameter_count(model));
    if (model->note != NULL) fprintf(out, "note          %s\n", model->note);
}

static void write_tensors(FILE *out, const fl_checkpoint *checkpoint) {
    for (size_t i = 0; i < fl_checkpoint_count(checkpoint); i++) {
        const fl_checkpoint_entry *entry = fl_checkpoint_entry_at(checkpoint, i);
        fprintf(out, "tensor        %s %s ", entry->tensor.name, entry->type_name);
        for (size_t axis = 0; axis < entry->tensor.rank; axis++)
            fprintf(out, "[%zu]", entry->tensor.shape[axis]);
        fputs(entry->readable ? "\n" : " (listed only)\n", out);
    }
}

static void write_all(FILE *out, const char *path, const fl_checkpoint *checkpoint, const fl_model *model,
                      const char *why_not) {
    fprintf(out, "checkpoint    %s\n", path);
    write_files(out, checkpoint);
    if (model != NULL) write_model(out, model);
    if (fl_checkpoint_gguf(checkpoint) != NULL) write_gguf(out, fl_checkpoint_gguf(checkpoint));
    write_types(out, checkpoint);
    if (why_not != NULL) fprintf(out, "not a model   %s\n", why_not);
    if (model == NULL) write_tensors(out, checkpoint);
}

static fl_status write_text(const char *path, const fl_checkpoint *checkpoint, const fl_model *model,
                            const char *why_not, char **text, fl_error *error) {
    char *buffer = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&buffer, &bytes);
    if (out == NULL)
        return fl_error_set(error, FL_ERROR_MEMORY, "%s: description: %s", path, strerror(errno));
    write_all(out, path, checkpoint, model, why_not);
    bool complete = ferror(out) == 0;
    complete = fclose(out) == 0 && complete;
    fl_status status = complete
                           ? fl_memory_copy_string(text, buffer, error)
                           : fl_error_set(error, FL_ERROR_MEMORY, "%s: out of memory: description", path);
    free(buffer);
    return status;
}

fl_status fl_model_describe(const char *path, char **text, fl_error *error) {
    *text = NULL;
    fl_model_paths paths;
    FL_TRY(fl_model_paths_find(path, &paths, error));
    fl_model *model = NULL;
    fl_checkpoint *checkpoint = NULL;
    fl_error why_not = {FL_OK, ""};
    fl_status status = FL_OK;
    bool with_config = paths.config == NULL || access(paths.config, F_OK) == 0;
    fl_status model_status = with_config ? fl_model_open(path, &model, &why_not) : FL_OK;
    if (model == NULL) status = fl_checkpoint_open(paths.weights, &checkpoint, error);
    if (status == FL_OK) {
        status = write_text(path, model != NULL ? model->checkpoint : checkpoint, model,
                            model_status != FL_OK ? why_not.message : NULL, text, error);
    }
    fl_checkpoint_close(checkpoint);
    fl_model_close(model);
    fl_model_paths_free(&paths);
    return status;
}
