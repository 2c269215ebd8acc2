#include "harness/model/identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"

static void write_sizes(FILE *out, const fl_model_config *config) {
    const struct {
        const char *key;
        size_t value;
    } sizes[] = {{"layers", config->layers},
                 {"model_dim", config->model_dim},
                 {"query_heads", config->query_heads},
                 {"kv_heads", config->kv_heads},
                 {"head_dim", config->head_dim},
                 {"mlp_dim", config->mlp_dim},
                 {"vocabulary", config->vocabulary},
                 {"max_positions", config->max_positions},
                 {"activation", (size_t)config->activation},
                 {"tied_head", config->tied_head},
                 {"query_key_norm", config->query_key_norm}};
    fprintf(out, "architecture %s\n", config->architecture);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        fprintf(out, "%s %zu\n", sizes[i].key, sizes[i].value);
    fprintf(out, "norm_epsilon %.17g\nattention_scale %.9g\n", config->norm_epsilon,
            (double)config->attention_scale);
}

static void write_rope(FILE *out, const fl_rope_config *rope) {
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"theta", rope->theta},
                   {"factor", rope->factor},
                   {"low_frequency_factor", rope->low_frequency_factor},
                   {"high_frequency_factor", rope->high_frequency_factor},
                   {"original_max_positions", rope->original_max_positions},
                   {"beta_fast", rope->beta_fast},
                   {"beta_slow", rope->beta_slow},
                   {"mscale", rope->mscale},
                   {"mscale_all_dim", rope->mscale_all_dim},
                   {"attention_factor", rope->attention_factor}};
    fprintf(out, "rope.type %d\nrope.rotary_dim %zu\nrope.truncate %d\n", (int)rope->type, rope->rotary_dim,
            rope->truncate);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        fprintf(out, "rope.%s %.17g\n", numbers[i].key, numbers[i].value);
}

static void write_config(FILE *out, const fl_model_config *config) {
    write_sizes(out, config);
    write_rope(out, &config->rope);
    fputs("sliding_window", out);
    for (size_t layer = 0; layer < config->layers; layer++)
        fprintf(out, " %zu", config->sliding_window[layer]);
    fprintf(out, "\nbos_token %ld\neos_tokens", config->bos_token);
    for (size_t i = 0; i < config->eos_count; i++) fprintf(out, " %ld", config->eos_tokens[i]);
    fputc('\n', out);
}

fl_status fl_model_descriptor(const fl_model *model, char **text, fl_error *error) {
    char *buffer = NULL;
    size_t bytes = 0;
    *text = NULL;
    FILE *out = open_memstream(&buffer, &bytes);
    if (out == NULL) return fl_error_set(error, FL_ERROR_MEMORY, "%s: no memory to describe it", model->path);
    write_config(out, &model->config);
    bool complete = ferror(out) == 0;
    complete = fclose(out) == 0 && complete;
    fl_status status =
        complete ? fl_memory_copy_string(text, buffer, error)
                 : fl_error_set(error, FL_ERROR_MEMORY, "%s: no memory to describe it", model->path);
    free(buffer);
    return status;
}

fl_status fl_model_identity(const fl_model *model, const fl_hash *weights, const char *tokenizer,
                            fl_hash *out, fl_error *error) {
    *out = *weights;
    if (fl_checkpoint_gguf(model->checkpoint) != NULL) return FL_OK;
    char *descriptor = NULL;
    fl_hash_stream *stream = NULL;
    fl_status status;
    FL_TRY_DONE(status, fl_model_descriptor(model, &descriptor, error));
    FL_TRY_DONE(status, fl_hash_stream_create(&stream, error));
    const char *const parts[] = {weights->text, descriptor, tokenizer};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        fl_hash_stream_add(stream, parts[i], strlen(parts[i]) + 1);
    *out = fl_hash_stream_value(stream);
done:
    fl_hash_stream_destroy(stream);
    fl_memory_free(descriptor);
    return status;
}
