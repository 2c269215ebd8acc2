#include "harness/model/config_json.h"

#include <math.h>
#include <string.h>

#include "harness/base/input_file.h"
#include "harness/base/memory.h"
#include "harness/model/config_rope.h"
#include "harness/model/config_source.h"
#include "harness/model/json_text.h"

/* Large enough for any real model, small enough that products of two fit. */
enum { MAX_LAYERS = 10000, MAX_WIDTH = 1 << 28, MAX_POSITIONS = 1 << 30 };

static const char *const read_keys[] = {"model_type",
                                        "architectures",
                                        "text_config",
                                        "vocab_size",
                                        "hidden_size",
                                        "intermediate_size",
                                        "num_hidden_layers",
                                        "num_attention_heads",
                                        "num_key_value_heads",
                                        "head_dim",
                                        "hidden_act",
                                        "max_position_embeddings",
                                        "rms_norm_eps",
                                        "tie_word_embeddings",
                                        "attention_bias",
                                        "mlp_bias",
                                        "rope_theta",
                                        "rope_scaling",
                                        "rope_parameters",
                                        "partial_rotary_factor",
                                        "original_max_position_embeddings",
                                        "sliding_window",
                                        "use_sliding_window",
                                        "max_window_layers",
                                        "layer_types",
                                        "bos_token_id",
                                        "eos_token_id",
                                        NULL};

/* Dropout is off in a frozen model, and the precision of softmax is float32 or better anyway. */
static const char *const harmless_keys[] = {"attention_dropout", "attn_pdrop", "attn_implementation",
                                            "attention_softmax_in_fp32", NULL};

/* Each changes the computation of models that have it; null, false, 0 and empty mean "not in use". */
static const char *const refused_keys[] = {"quantization_config",
                                           "compression_config",
                                           "quantization",
                                           "attn_logit_softcapping",
                                           "final_logit_softcapping",
                                           "logit_softcapping",
                                           "logits_soft_cap",
                                           "logit_scale",
                                           "logits_scaling",
                                           "attention_multiplier",
                                           "embedding_multiplier",
                                           "residual_multiplier",
                                           "embedding_scale",
                                           "scale_embeddings",
                                           "residual_scale",
                                           "scale_emb",
                                           "scale_depth",
                                           "dim_model_base",
                                           "query_pre_attn_scalar",
                                           "attention_sinks",
                                           "num_experts",
                                           "num_local_experts",
                                           "n_routed_experts",
                                           "num_experts_per_tok",
                                           "moe_intermediate_size",
                                           "num_nextn_predict_layers",
                                           "qk_layernorm",
                                           "use_qk_norm",
                                           "qk_norm",
                                           "query_key_norm",
                                           "clip_qkv",
                                           "alibi",
                                           "use_alibi",
                                           "position_embedding_type",
                                           "use_parallel_residual",
                                           "parallel_attn",
                                           "no_rope_layers",
                                           "no_rope_layer_interval",
                                           "use_rope",
                                           "use_mrope",
                                           "mrope_section",
                                           "use_bidirectional_attention",
                                           "sliding_window_pattern",
                                           "_sliding_window_pattern",
                                           "full_attention_interval",
                                           "layers_block_type",
                                           "block_types",
                                           "linear_attention",
                                           "local_attention",
                                           "attention_chunk_size",
                                           "attention_window_size",
                                           "add_cross_attention",
                                           "is_encoder_decoder",
                                           "qkv_bias",
                                           "use_bias",
                                           "hidden_activation",
                                           "activation_function",
                                           "norm_type",
                                           "layer_norm_eps",
                                           "layer_norm_epsilon",
                                           NULL};

static bool begins_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool not_in_use(const cJSON *item) {
    return cJSON_IsNull(item) || cJSON_IsFalse(item) || (cJSON_IsNumber(item) && item->valuedouble == 0.0) ||
           ((cJSON_IsArray(item) || cJSON_IsObject(item)) && item->child == NULL);
}

static fl_status check_keys(const fl_config_source *source, const cJSON *object, fl_error *error) {
    for (const cJSON *item = object != NULL ? object->child : NULL; item != NULL; item = item->next) {
        const char *key = item->string;
        if (fl_config_in_list(read_keys, key) || fl_config_in_list(harmless_keys, key) || not_in_use(item))
            continue;
        if (fl_config_in_list(refused_keys, key) || begins_with(key, "rope") || begins_with(key, "attn") ||
            begins_with(key, "attention")) {
            return fl_config_refuse(source, FL_ERROR_UNSUPPORTED, key, "not understood", error);
        }
    }
    return FL_OK;
}

/* What both levels say must be the same, but for the names of the two models. */
static fl_status check_agreement(const fl_config_source *source, fl_error *error) {
    for (const char *const *key = read_keys; *key != NULL; key++) {
        if (strcmp(*key, "model_type") == 0 || strcmp(*key, "architectures") == 0) continue;
        const cJSON *outer = fl_json_member(source->object, *key),
                    *inner = fl_json_member(source->nested, *key);
        if (outer == NULL || inner == NULL || cJSON_IsNull(outer) || cJSON_IsNull(inner)) continue;
        if (cJSON_Compare(outer, inner, true)) continue;
        return fl_config_refuse(source, FL_ERROR_FORMAT, *key, "the top level and text_config disagree",
                                error);
    }
    return FL_OK;
}

static fl_status check_class(const fl_config_source *source, const fl_architecture *architecture,
                             fl_error *error) {
    const cJSON *list =
        fl_json_member(source->nested != NULL ? source->nested : source->object, "architectures");
    if (list == NULL || cJSON_IsNull(list)) return FL_OK;
    const cJSON *first = cJSON_IsArray(list) ? list->child : NULL;
    if (first == NULL || first->next != NULL || !cJSON_IsString(first)) {
        return fl_config_refuse(source, FL_ERROR_FORMAT, "architectures", "is not a list of one class name",
                                error);
    }
    if (fl_config_in_list(architecture->class_names, first->valuestring)) return FL_OK;
    return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                        "%s: key architectures: class \"%s\" is not supported with model_type \"%s\"",
                        source->path, first->valuestring, architecture->name);
}

static fl_status find_architecture(const fl_config_source *source, const fl_architecture **out,
                                   fl_error *error) {
    const char *model_type = NULL;
    FL_TRY(fl_config_require(source, "model_type", error));
    FL_TRY(fl_config_text(source, "model_type", &model_type, error));
    *out = fl_architecture_of_model_type(model_type);
    if (*out == NULL) {
        char known[FL_ARCHITECTURE_LIST_BYTES];
        fl_architecture_list(known);
        return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                            "%s: model_type \"%s\" is not supported (supported: %s)", source->path,
                            model_type, known);
    }
    return check_class(source, *out, error);
}

static fl_status read_required_size(const fl_config_source *source, const char *key, size_t most, size_t *out,
                                    fl_error *error) {
    FL_TRY(fl_config_require(source, key, error));
    return fl_config_size(source, key, 1, most, out, error);
}

static fl_status read_heads(const fl_config_source *source, const fl_architecture *architecture,
                            fl_model_config *config, fl_error *error) {
    FL_TRY(read_required_size(source, "num_attention_heads", MAX_WIDTH, &config->query_heads, error));
    config->kv_heads = config->query_heads;
    bool absent = fl_config_find(source, "num_key_value_heads") == NULL;
    if (absent && architecture->default_kv_heads > 0) config->kv_heads = architecture->default_kv_heads;
    FL_TRY(fl_config_size(source, "num_key_value_heads", 1, MAX_WIDTH, &config->kv_heads, error));
    if (config->query_heads % config->kv_heads != 0) {
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "%s: key num_key_value_heads: %zu does not divide %zu query heads", source->path,
                            config->kv_heads, config->query_heads);
    }
    if (fl_config_given(source, "head_dim")) {
        return fl_config_size(source, "head_dim", 1, MAX_WIDTH, &config->head_dim, error);
    }
    config->head_dim = architecture->default_head_dim;
    if (config->head_dim > 0 && fl_config_find(source, "head_dim") == NULL) return FL_OK;
    if (config->model_dim % config->query_heads != 0) {
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "%s: key head_dim: not given, and %zu heads do not divide hidden_size %zu",
                            source->path, config->query_heads, config->model_dim);
    }
    config->head_dim = config->model_dim / config->query_heads;
    return FL_OK;
}

static fl_status read_sizes(const fl_config_source *source, const fl_architecture *architecture,
                            fl_model_config *config, fl_error *error) {
    FL_TRY(read_required_size(source, "vocab_size", MAX_WIDTH, &config->vocabulary, error));
    FL_TRY(read_required_size(source, "hidden_size", MAX_WIDTH, &config->model_dim, error));
    FL_TRY(read_required_size(source, "intermediate_size", MAX_WIDTH, &config->mlp_dim, error));
    FL_TRY(read_required_size(source, "num_hidden_layers", MAX_LAYERS, &config->layers, error));
    config->max_positions = architecture->default_max_positions;
    FL_TRY(
        fl_config_size(source, "max_position_embeddings", 1, MAX_POSITIONS, &config->max_positions, error));
    config->norm_epsilon = architecture->default_norm_epsilon;
    FL_TRY(fl_config_positive(source, "rms_norm_eps", &config->norm_epsilon, error));
    FL_TRY(read_heads(source, architecture, config, error));
    config->attention_scale = (float)(1.0 / sqrt((double)config->head_dim));
    return FL_OK;
}

static fl_status read_activation(const fl_config_source *source, fl_model_config *config, fl_error *error) {
    static const struct {
        const char *name;
        fl_activation activation;
    } known[] = {{"silu", FL_ACTIVATION_SILU},
                 {"swish", FL_ACTIVATION_SILU},
                 {"gelu_pytorch_tanh", FL_ACTIVATION_GELU_TANH},
                 {"gelu_new", FL_ACTIVATION_GELU_TANH},
                 {"gelu", FL_ACTIVATION_GELU}};
    const char *name = "silu";
    FL_TRY(fl_config_text(source, "hidden_act", &name, error));
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, name) != 0) continue;
        config->activation = known[i].activation;
        return FL_OK;
    }
    return fl_error_set(error, FL_ERROR_UNSUPPORTED, "%s: key hidden_act: activation \"%s\" is not supported",
                        source->path, name);
}

static fl_status read_bias(const fl_config_source *source, const char *key, fl_bias_rule rule, bool *out,
                           fl_error *error) {
    bool fixed = rule == FL_BIAS_ALWAYS;
    *out = fixed;
    FL_TRY(fl_config_bool(source, key, out, error));
    if (rule == FL_BIAS_CONFIG || *out == fixed) return FL_OK;
    return fl_config_refuse(
        source, FL_ERROR_UNSUPPORTED, key,
        fixed ? "this architecture always has these biases" : "this architecture has no such biases", error);
}

static fl_status read_parts(const fl_config_source *source, const fl_architecture *architecture,
                            fl_model_config *config, fl_model_parts *parts, fl_error *error) {
    FL_TRY(read_bias(source, "attention_bias", architecture->input_bias, &parts->input_bias, error));
    FL_TRY(read_bias(source, "mlp_bias", architecture->mlp_bias, &parts->mlp_bias, error));
    parts->output_bias = architecture->output_bias == FL_BIAS_CONFIG
                             ? parts->input_bias
                             : architecture->output_bias == FL_BIAS_ALWAYS;
    parts->query_key_norm = architecture->query_key_norm;
    config->query_key_norm = architecture->query_key_norm;
    return fl_config_bool(source, "tie_word_embeddings", &config->tied_head, error);
}

/* A token id, or a list of them; -1 in place of one stands for none. Nothing is changed when the key is
 * absent. */
static fl_status read_tokens(const fl_config_source *source, const char *key, long ids[FL_MODEL_EOS_MAX],
                             size_t *count, fl_error *error) {
    const cJSON *item = fl_config_find(source, key);
    if (item == NULL) return FL_OK;
    *count = 0;
    if (cJSON_IsNull(item)) return FL_OK;
    bool list = cJSON_IsArray(item);
    if (list) item = item->child;
    if (item == NULL) return fl_config_refuse(source, FL_ERROR_FORMAT, key, "is not a token id", error);
    for (; item != NULL; item = list ? item->next : NULL) {
        size_t id = 0;
        if (cJSON_IsNumber(item) && item->valuedouble == -1.0) continue;
        if (!fl_json_size(item, &id) || id > MAX_WIDTH)
            return fl_config_refuse(source, FL_ERROR_FORMAT, key, "is not a token id", error);
        if (*count == FL_MODEL_EOS_MAX)
            return fl_config_refuse(source, FL_ERROR_UNSUPPORTED, key, "names more than 16 tokens", error);
        ids[(*count)++] = (long)id;
    }
    return FL_OK;
}

static fl_status read_special(const fl_config_source *source, const fl_architecture *architecture,
                              fl_model_config *config, fl_error *error) {
    long starts[FL_MODEL_EOS_MAX] = {architecture->default_bos};
    size_t start_count = architecture->default_bos >= 0;
    config->eos_tokens[0] = architecture->default_eos;
    config->eos_count = architecture->default_eos >= 0;
    FL_TRY(read_tokens(source, "bos_token_id", starts, &start_count, error));
    FL_TRY(read_tokens(source, "eos_token_id", config->eos_tokens, &config->eos_count, error));
    config->bos_token = start_count > 0 ? starts[0] : -1;
    config->eos_token = config->eos_count > 0 ? config->eos_tokens[0] : -1;
    return FL_OK;
}

/* Whether an entry of layer_types is a sliding layer; `fallback` when there is no such list. */
static fl_status read_layer_type(const fl_config_source *source, const cJSON *entry, size_t layer,
                                 bool fallback, bool *sliding, fl_error *error) {
    *sliding = fallback;
    if (entry == NULL) return FL_OK;
    const char *name = cJSON_IsString(entry) ? entry->valuestring : "";
    *sliding = strcmp(name, "sliding_attention") == 0;
    if (*sliding || strcmp(name, "full_attention") == 0) return FL_OK;
    return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                        "%s: key layer_types: layer %zu is of type \"%s\", which is not supported",
                        source->path, layer, name);
}

/* *window = the window of sliding layers (0: none may be), *first = the first layer that slides by default.
 */
static fl_status read_window_rule(const fl_config_source *source, const fl_architecture *architecture,
                                  size_t layers, size_t *window, size_t *first, fl_error *error) {
    bool in_use = false;
    *window = fl_config_find(source, "sliding_window") == NULL ? architecture->default_window : 0;
    *first = 0;
    FL_TRY(fl_config_size(source, "sliding_window", 1, MAX_POSITIONS, window, error));
    FL_TRY(fl_config_bool(source, "use_sliding_window", &in_use, error));
    if (architecture->window == FL_WINDOW_UPPER_LAYERS) {
        *first = architecture->default_window_layers;
        FL_TRY(fl_config_size(source, "max_window_layers", 0, MAX_LAYERS, first, error));
        if (!in_use) *window = 0;
    } else if (in_use) {
        return fl_config_refuse(source, FL_ERROR_UNSUPPORTED, "use_sliding_window",
                                "not understood with this architecture", error);
    }
    if (architecture->window == FL_WINDOW_NEVER && *window > 0) {
        return fl_config_refuse(source, FL_ERROR_UNSUPPORTED, "sliding_window",
                                "this architecture has no window", error);
    }
    if (*window == 0) *first = layers;
    return FL_OK;
}

static fl_status read_windows(const fl_config_source *source, const fl_architecture *architecture,
                              fl_model_config *config, fl_error *error) {
    size_t window = 0, first = 0;
    FL_TRY(read_window_rule(source, architecture, config->layers, &window, &first, error));
    const cJSON *list = fl_config_given(source, "layer_types") ? fl_config_find(source, "layer_types") : NULL;
    if (list != NULL && (!cJSON_IsArray(list) || (size_t)cJSON_GetArraySize(list) != config->layers)) {
        return fl_config_refuse(source, FL_ERROR_FORMAT, "layer_types",
                                "is not a list with one entry for each layer", error);
    }
    FL_TRY(FL_ALLOCATE(&config->sliding_window, config->layers, error));
    const cJSON *entry = list != NULL ? list->child : NULL;
    for (size_t layer = 0; layer < config->layers; layer++, entry = entry != NULL ? entry->next : NULL) {
        bool sliding = false;
        FL_TRY(read_layer_type(source, entry, layer, layer >= first, &sliding, error));
        if (sliding && window == 0) {
            return fl_config_refuse(source, FL_ERROR_FORMAT, "layer_types",
                                    "names a sliding layer, but no window is in use", error);
        }
        if (!sliding && architecture->window == FL_WINDOW_ALL_LAYERS && window > 0) {
            return fl_config_refuse(source, FL_ERROR_UNSUPPORTED, "layer_types",
                                    "this architecture slides in all layers or in none", error);
        }
        config->sliding_window[layer] = sliding ? window : 0;
    }
    return FL_OK;
}

static fl_status read_document(const fl_config_source *source, fl_model_config *config, fl_model_parts *parts,
                               const fl_architecture **architecture, fl_error *error) {
    if (!cJSON_IsObject(source->object) || (source->nested != NULL && !cJSON_IsObject(source->nested))) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: the config is not an object", source->path);
    }
    FL_TRY(find_architecture(source, architecture, error));
    FL_TRY(check_keys(source, source->object, error));
    FL_TRY(check_keys(source, source->nested, error));
    FL_TRY(check_agreement(source, error));
    config->architecture = (*architecture)->name;
    FL_TRY(read_sizes(source, *architecture, config, error));
    FL_TRY(read_activation(source, config, error));
    FL_TRY(read_parts(source, *architecture, config, parts, error));
    FL_TRY(read_special(source, *architecture, config, error));
    FL_TRY(read_windows(source, *architecture, config, error));
    return fl_config_rope_read(source, *architecture, config, error);
}

fl_status fl_config_json_parse(const char *text, size_t bytes, const char *path, fl_model_config *config,
                               fl_model_parts *parts, const fl_architecture **architecture, fl_error *error) {
    memset(config, 0, sizeof *config);
    memset(parts, 0, sizeof *parts);
    cJSON *document = NULL;
    FL_TRY(fl_json_parse(text, bytes, path, 0, &document, error));
    const cJSON *nested = fl_json_member(document, "text_config");
    fl_config_source source = {path, "", document, cJSON_IsNull(nested) ? NULL : nested};
    fl_status status = read_document(&source, config, parts, architecture, error);
    cJSON_Delete(document);
    return status;
}

fl_status fl_config_json_read(const char *path, fl_model_config *config, fl_model_parts *parts,
                              const fl_architecture **architecture, fl_error *error) {
    memset(config, 0, sizeof *config);
    char *text = NULL;
    size_t bytes = 0;
    FL_TRY(fl_input_read(path, FL_JSON_MAX_BYTES, &text, &bytes, error));
    fl_status status = fl_config_json_parse(text, bytes, path, config, parts, architecture, error);
    fl_memory_free(text);
    return status;
}

fl_status fl_config_json_read_generation(const char *path, fl_model_config *config, fl_error *error) {
    cJSON *document;
    long ids[FL_MODEL_EOS_MAX];
    size_t count = 0;
    FL_TRY(fl_json_read_file(path, &document, error));
    const fl_config_source source = {path, "", document, NULL};
    fl_status status = cJSON_IsObject(document)
                           ? read_tokens(&source, "eos_token_id", ids, &count, error)
                           : fl_error_set(error, FL_ERROR_FORMAT, "%s: not a JSON object", path);
    cJSON_Delete(document);
    if (status != FL_OK || count == 0) return status;
    memcpy(config->eos_tokens, ids, count * sizeof ids[0]);
    config->eos_count = count;
    config->eos_token = ids[0];
    return FL_OK;
}
