#include "harness/model/config_gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/model/config_source.h"

enum { MAX_LAYERS = 10000, MAX_WIDTH = 1 << 28, MAX_POSITIONS = 1 << 30, KEY_BYTES = 128 };

/* After "<architecture>.": what is read here, and what says nothing about the computation. */
static const char *const known_keys[] = {"context_length",
                                         "embedding_length",
                                         "block_count",
                                         "feed_forward_length",
                                         "attention.head_count",
                                         "attention.head_count_kv",
                                         "attention.key_length",
                                         "attention.value_length",
                                         "attention.layer_norm_rms_epsilon",
                                         "attention.sliding_window",
                                         "rope.dimension_count",
                                         "rope.freq_base",
                                         "rope.scale_linear",
                                         "rope.scaling.type",
                                         "rope.scaling.factor",
                                         "rope.scaling.original_context_length",
                                         "rope.scaling.attn_factor",
                                         "rope.scaling.yarn_beta_fast",
                                         "rope.scaling.yarn_beta_slow",
                                         "rope.scaling.finetuned",
                                         "vocab_size",
                                         "tensor_data_layout",
                                         "nextn_predict_layers",
                                         "expert_count",
                                         "expert_used_count"};

typedef struct key_reader {
    const fl_gguf *gguf;
    const char *prefix; /* "llama" */
} key_reader;

static fl_status refuse(const key_reader *reader, fl_status status, const char *name, const char *what,
                        fl_error *error) {
    return fl_error_set(error, status, "%s: key %s.%s: %s", fl_gguf_path(reader->gguf), reader->prefix, name,
                        what);
}

static const char *full_key(const key_reader *reader, const char *name, char key[KEY_BYTES]) {
    snprintf(key, KEY_BYTES, "%s.%s", reader->prefix, name);
    return key;
}

static bool given(const key_reader *reader, const char *name) {
    char key[KEY_BYTES];
    return fl_gguf_has(reader->gguf, full_key(reader, name, key));
}

/* An array counts as one number when all its elements are equal: per-layer values that do not differ. */
static bool find_size(const key_reader *reader, const char *name, uint64_t *out, bool *differs) {
    char key[KEY_BYTES];
    size_t count = 0;
    int64_t first = 0, value = 0;
    if (fl_gguf_find_unsigned(reader->gguf, full_key(reader, name, key), out)) return true;
    if (!fl_gguf_array_count(reader->gguf, key, &count) ||
        !fl_gguf_array_integer(reader->gguf, key, 0, &first)) {
        return false;
    }
    for (size_t i = 1; i < count; i++) {
        fl_gguf_array_integer(reader->gguf, key, i, &value);
        *differs = *differs || value != first;
    }
    *out = (uint64_t)first;
    return first >= 0;
}

/* Leaves *out alone when the key is absent. */
static fl_status read_size(const key_reader *reader, const char *name, size_t most, size_t *out,
                           fl_error *error) {
    uint64_t value = 0;
    bool differs = false;
    if (!given(reader, name)) return FL_OK;
    if (!find_size(reader, name, &value, &differs) || value < 1 || value > most) {
        char what[80];
        snprintf(what, sizeof what, "is not a whole number from 1 to %zu", most);
        return refuse(reader, FL_ERROR_FORMAT, name, what, error);
    }
    if (differs) {
        return refuse(reader, FL_ERROR_UNSUPPORTED, name,
                      "values that differ between layers are not supported", error);
    }
    *out = (size_t)value;
    return FL_OK;
}

static fl_status require_size(const key_reader *reader, const char *name, size_t most, size_t *out,
                              fl_error *error) {
    if (!given(reader, name)) return refuse(reader, FL_ERROR_FORMAT, name, "is missing", error);
    return read_size(reader, name, most, out, error);
}

static fl_status read_positive(const key_reader *reader, const char *name, double *out, fl_error *error) {
    char key[KEY_BYTES];
    double value = 0.0;
    if (!given(reader, name)) return FL_OK;
    if (!fl_gguf_find_number(reader->gguf, full_key(reader, name, key), &value) ||
        !(value >= FL_CONFIG_SMALLEST && value <= FL_CONFIG_LARGEST)) {
        return refuse(reader, FL_ERROR_FORMAT, name, "is not a number above 0 and of a sensible size", error);
    }
    *out = value;
    return FL_OK;
}

/* Keys with the architecture's prefix that are not in the table, and experts, change the computation. */
static fl_status check_keys(const key_reader *reader, fl_error *error) {
    size_t prefix = strlen(reader->prefix);
    for (size_t i = 0; i < fl_gguf_key_count(reader->gguf); i++) {
        const char *key;
        size_t bytes;
        bool known = false;
        fl_gguf_key(reader->gguf, i, &key, &bytes);
        if (bytes <= prefix || memcmp(key, reader->prefix, prefix) != 0 || key[prefix] != '.') continue;
        for (size_t j = 0; j < sizeof known_keys / sizeof known_keys[0]; j++) {
            size_t length = strlen(known_keys[j]);
            known = known ||
                    (length == bytes - prefix - 1 && memcmp(known_keys[j], key + prefix + 1, length) == 0);
        }
        if (known) continue;
        return fl_error_set(error, FL_ERROR_UNSUPPORTED, "%s: key %.*s: not understood",
                            fl_gguf_path(reader->gguf), (int)bytes, key);
    }
    char key[KEY_BYTES];
    uint64_t experts = 0;
    if (given(reader, "expert_count") &&
        (!fl_gguf_find_unsigned(reader->gguf, full_key(reader, "expert_count", key), &experts) ||
         experts > 0)) {
        return refuse(reader, FL_ERROR_UNSUPPORTED, "expert_count", "mixtures of experts are not supported",
                      error);
    }
    return FL_OK;
}

static fl_status find_architecture(const fl_gguf *gguf, const fl_architecture **out, fl_error *error) {
    const char *name, *path = fl_gguf_path(gguf);
    size_t bytes;
    if (!fl_gguf_find_string(gguf, "general.architecture", &name, &bytes)) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: key general.architecture is missing or not text",
                            path);
    }
    *out = fl_architecture_of_gguf(name, bytes);
    if (*out != NULL) return FL_OK;
    char known[FL_ARCHITECTURE_LIST_BYTES];
    fl_architecture_list(known);
    return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                        "%s: key general.architecture: \"%.*s\" is not supported (supported: %s)", path,
                        (int)bytes, name, known);
}

static fl_status read_heads(const key_reader *reader, fl_model_config *config, fl_error *error) {
    FL_TRY(require_size(reader, "attention.head_count", MAX_WIDTH, &config->query_heads, error));
    config->kv_heads = config->query_heads;
    FL_TRY(read_size(reader, "attention.head_count_kv", MAX_WIDTH, &config->kv_heads, error));
    if (config->query_heads % config->kv_heads != 0) {
        return refuse(reader, FL_ERROR_FORMAT, "attention.head_count_kv",
                      "does not divide attention.head_count", error);
    }
    if (!given(reader, "attention.key_length") && config->model_dim % config->query_heads != 0) {
        return refuse(reader, FL_ERROR_FORMAT, "attention.head_count", "does not divide embedding_length",
                      error);
    }
    config->head_dim = config->model_dim / config->query_heads;
    FL_TRY(read_size(reader, "attention.key_length", MAX_WIDTH, &config->head_dim, error));
    size_t value_length = config->head_dim;
    FL_TRY(read_size(reader, "attention.value_length", MAX_WIDTH, &value_length, error));
    if (value_length != config->head_dim) {
        return refuse(reader, FL_ERROR_UNSUPPORTED, "attention.value_length",
                      "differs from attention.key_length", error);
    }
    config->attention_scale = (float)(1.0 / sqrt((double)config->head_dim));
    return FL_OK;
}

static fl_status read_layers(const key_reader *reader, fl_model_config *config, size_t *skipped,
                             fl_error *error) {
    char key[KEY_BYTES];
    uint64_t predictors = 0;
    FL_TRY(require_size(reader, "block_count", MAX_LAYERS, &config->layers, error));
    if (given(reader, "nextn_predict_layers") &&
        (!fl_gguf_find_unsigned(reader->gguf, full_key(reader, "nextn_predict_layers", key), &predictors) ||
         predictors >= config->layers)) {
        return refuse(reader, FL_ERROR_FORMAT, "nextn_predict_layers", "is not a number below block_count",
                      error);
    }
    config->layers -= (size_t)predictors;
    *skipped = (size_t)predictors;
    return FL_OK;
}

static fl_status read_sizes(const key_reader *reader, fl_model_config *config, size_t *skipped,
                            fl_error *error) {
    FL_TRY(require_size(reader, "embedding_length", MAX_WIDTH, &config->model_dim, error));
    FL_TRY(require_size(reader, "feed_forward_length", MAX_WIDTH, &config->mlp_dim, error));
    FL_TRY(require_size(reader, "context_length", MAX_POSITIONS, &config->max_positions, error));
    FL_TRY(read_size(reader, "vocab_size", MAX_WIDTH, &config->vocabulary, error));
    FL_TRY(read_layers(reader, config, skipped, error));
    if (!given(reader, "attention.layer_norm_rms_epsilon")) {
        return refuse(reader, FL_ERROR_FORMAT, "attention.layer_norm_rms_epsilon", "is missing", error);
    }
    FL_TRY(read_positive(reader, "attention.layer_norm_rms_epsilon", &config->norm_epsilon, error));
    return read_heads(reader, config, error);
}

static bool text_is(const char *text, size_t bytes, const char *word) {
    return strlen(word) == bytes && memcmp(text, word, bytes) == 0;
}

static fl_status read_scaling_type(const key_reader *reader, fl_rope_config *rope, fl_error *error) {
    char key[KEY_BYTES];
    const char *type = "none";
    size_t bytes = strlen(type);
    bool found = fl_gguf_find_string(reader->gguf, full_key(reader, "rope.scaling.type", key), &type, &bytes);
    if (!found && given(reader, "rope.scaling.type")) {
        return refuse(reader, FL_ERROR_FORMAT, "rope.scaling.type", "is not text", error);
    }
    if (text_is(type, bytes, "none")) {
        rope->type = FL_ROPE_DEFAULT;
        bool scaled = given(reader, "rope.scaling.factor") || given(reader, "rope.scale_linear");
        if (!found && scaled) rope->type = FL_ROPE_LINEAR;
    } else if (text_is(type, bytes, "linear")) {
        rope->type = FL_ROPE_LINEAR;
    } else if (text_is(type, bytes, "yarn")) {
        rope->type = FL_ROPE_YARN;
    } else {
        return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                            "%s: key %s: \"%.*s\" is not supported (none, linear, yarn are)",
                            fl_gguf_path(reader->gguf), key, (int)bytes, type);
    }
    return FL_OK;
}

static fl_status read_rope(const key_reader *reader, const fl_architecture *architecture,
                           fl_model_config *config, fl_error *error) {
    fl_rope_config *rope = &config->rope;
    size_t original = config->max_positions;
    double attention = 0.0;
    rope->rotary_dim = config->head_dim;
    FL_TRY(read_size(reader, "rope.dimension_count", MAX_WIDTH, &rope->rotary_dim, error));
    if (rope->rotary_dim % 2 != 0 || rope->rotary_dim > config->head_dim ||
        (rope->rotary_dim != config->head_dim && !architecture->partial_rotary)) {
        return refuse(reader, FL_ERROR_UNSUPPORTED, "rope.dimension_count",
                      "is not the (even) head dimension", error);
    }
    rope->theta = 10000.0; /* ggml's default, whatever the architecture */
    FL_TRY(read_positive(reader, "rope.freq_base", &rope->theta, error));
    if (!(rope->theta > 1.0))
        return refuse(reader, FL_ERROR_FORMAT, "rope.freq_base", "is not above 1", error);
    FL_TRY(read_scaling_type(reader, rope, error));
    rope->factor = 1.0;
    FL_TRY(read_positive(reader, "rope.scale_linear", &rope->factor, error));
    FL_TRY(read_positive(reader, "rope.scaling.factor", &rope->factor, error));
    FL_TRY(read_size(reader, "rope.scaling.original_context_length", MAX_POSITIONS, &original, error));
    rope->original_max_positions = (double)original;
    rope->truncate = true;
    rope->beta_fast = 32.0;
    rope->beta_slow = 1.0;
    FL_TRY(read_positive(reader, "rope.scaling.yarn_beta_fast", &rope->beta_fast, error));
    FL_TRY(read_positive(reader, "rope.scaling.yarn_beta_slow", &rope->beta_slow, error));
    FL_TRY(read_positive(reader, "rope.scaling.attn_factor", &attention, error));
    /* ggml multiplies its own magnitude correction by this one. */
    if (attention > 0.0 && rope->type == FL_ROPE_YARN) {
        rope->attention_factor = attention * (rope->factor > 1.0 ? 1.0 + 0.1 * log(rope->factor) : 1.0);
    }
    return FL_OK;
}

static fl_status read_window(const key_reader *reader, const fl_architecture *architecture,
                             fl_model_config *config, fl_error *error) {
    size_t window = 0;
    FL_TRY(FL_ALLOCATE(&config->sliding_window, config->layers, error));
    if (!given(reader, "attention.sliding_window")) return FL_OK;
    /* Mistral goes by "llama" here: there a window holds for every layer. Elsewhere the file does not say for
     * which. */
    if (!architecture->gguf_permuted) {
        return refuse(reader, FL_ERROR_UNSUPPORTED, "attention.sliding_window",
                      "not understood with this architecture", error);
    }
    FL_TRY(read_size(reader, "attention.sliding_window", MAX_POSITIONS, &window, error));
    for (size_t layer = 0; layer < config->layers; layer++) config->sliding_window[layer] = window;
    return FL_OK;
}

static fl_status read_token(const fl_gguf *gguf, const char *key, long *out, fl_error *error) {
    uint64_t id = 0;
    *out = -1;
    if (!fl_gguf_has(gguf, key)) return FL_OK;
    if (!fl_gguf_find_unsigned(gguf, key, &id) || id > UINT32_MAX) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: key %s is not a token id", fl_gguf_path(gguf), key);
    }
    *out = id == UINT32_MAX ? -1 : (long)id;
    return FL_OK;
}

fl_status fl_config_gguf_read(const fl_gguf *gguf, fl_model_config *config,
                              const fl_architecture **architecture, size_t *skipped_layers, fl_error *error) {
    memset(config, 0, sizeof *config);
    FL_TRY(find_architecture(gguf, architecture, error));
    key_reader reader = {gguf, (*architecture)->gguf_name};
    config->architecture = (*architecture)->name;
    config->activation = FL_ACTIVATION_SILU;
    config->query_key_norm = (*architecture)->query_key_norm;
    FL_TRY(check_keys(&reader, error));
    FL_TRY(read_sizes(&reader, config, skipped_layers, error));
    FL_TRY(read_rope(&reader, *architecture, config, error));
    FL_TRY(read_window(&reader, *architecture, config, error));
    FL_TRY(read_token(gguf, "tokenizer.ggml.bos_token_id", &config->bos_token, error));
    FL_TRY(read_token(gguf, "tokenizer.ggml.eos_token_id", &config->eos_token, error));
    config->eos_tokens[0] = config->eos_token;
    config->eos_count = config->eos_token >= 0;
    return FL_OK;
}
