#include "harness/model/config_rope.h"

#include <math.h>
#include <string.h>

#include "harness/model/json_text.h"

typedef struct rope_kind {
    const char *name;
    fl_rope_type type;
    const char *required[4], *optional[9]; /* NULL-terminated */
} rope_kind;

static const rope_kind kinds[] = {
    {"default", FL_ROPE_DEFAULT, {NULL}, {NULL}},
    {"linear", FL_ROPE_LINEAR, {"factor"}, {NULL}},
    {"dynamic", FL_ROPE_DYNAMIC, {"factor"}, {NULL}},
    {"llama3",
     FL_ROPE_LLAMA3,
     {"factor", "low_freq_factor", "high_freq_factor"},
     {"original_max_position_embeddings"}},
    {"yarn",
     FL_ROPE_YARN,
     {NULL},
     {"factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
      "mscale_all_dim", "truncate"}},
};
static const char *const always[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor", NULL};
static const char *const layer_types[] = {"full_attention", "sliding_attention", NULL};

/* Both spellings, or both of two places, must say the same. *out = the one that is given, or NULL. */
static fl_status same(const fl_config_source *source, const char *key, const cJSON *first,
                      const cJSON *second, const cJSON **out, fl_error *error) {
    if (cJSON_IsNull(first)) first = NULL;
    if (cJSON_IsNull(second)) second = NULL;
    *out = first != NULL ? first : second;
    if (first == NULL || second == NULL || cJSON_Compare(first, second, true)) return FL_OK;
    return fl_config_refuse(source, FL_ERROR_FORMAT, key, "is given twice with different values", error);
}

/* {full_attention: {...}, sliding_attention: {...}}: one description for each layer type. They must agree. */
static fl_status unnest(const fl_config_source *source, const cJSON *outer, const cJSON **out,
                        fl_error *error) {
    bool nested = false;
    const cJSON *found = NULL;
    for (const cJSON *item = outer->child; item != NULL; item = item->next) {
        nested = nested || fl_config_in_list(layer_types, item->string);
    }
    *out = outer;
    if (!nested) return FL_OK;
    for (const cJSON *item = outer->child; item != NULL; item = item->next) {
        if (!fl_config_in_list(layer_types, item->string)) {
            return fl_config_refuse(source, FL_ERROR_UNSUPPORTED, item->string, "is not a known layer type",
                                    error);
        }
        if (!cJSON_IsObject(item)) {
            return fl_config_refuse(source, FL_ERROR_UNSUPPORTED, item->string,
                                    "layers without rope are not supported", error);
        }
        if (found != NULL && !cJSON_Compare(found, item, true)) {
            return fl_config_refuse(source, FL_ERROR_UNSUPPORTED, item->string,
                                    "rope that differs between layer types is not supported", error);
        }
        found = item;
    }
    *out = found;
    return FL_OK;
}

static fl_config_source inner_source(const fl_config_source *source, const char *name, const cJSON *object) {
    const char *where = strcmp(name, "rope_scaling") == 0 ? "rope_scaling." : "rope_parameters.";
    return (fl_config_source){source->path, where, object, NULL};
}

/* The object that describes rope under either name, or NULL. */
static fl_status find_object(const fl_config_source *source, const cJSON **out, const char **name,
                             fl_error *error) {
    const cJSON *parameters = fl_config_find(source, "rope_parameters");
    const cJSON *scaling = fl_config_find(source, "rope_scaling"), *chosen = NULL;
    FL_TRY(same(source, "rope_scaling", parameters, scaling, &chosen, error));
    *name = chosen != NULL && chosen == scaling ? "rope_scaling" : "rope_parameters";
    *out = NULL;
    if (chosen == NULL) return FL_OK;
    if (!cJSON_IsObject(chosen))
        return fl_config_refuse(source, FL_ERROR_FORMAT, *name, "is not an object", error);
    fl_config_source inner = inner_source(source, *name, chosen);
    return unnest(&inner, chosen, out, error);
}

static bool has_key(const rope_kind *kind, const char *key) {
    return fl_config_in_list(always, key) || fl_config_in_list(kind->required, key) ||
           fl_config_in_list(kind->optional, key);
}

static fl_status find_kind(const fl_config_source *inner, const rope_kind **out, fl_error *error) {
    const cJSON *chosen = NULL;
    const char *name = "default";
    FL_TRY(same(inner, "type", fl_config_find(inner, "rope_type"), fl_config_find(inner, "type"), &chosen,
                error));
    if (chosen != NULL) FL_TRY(fl_config_text(inner, chosen->string, &name, error));
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].name, name) != 0) continue;
        *out = &kinds[i];
        return FL_OK;
    }
    return fl_error_set(
        error, FL_ERROR_UNSUPPORTED,
        "%s: key %s%s: rope type \"%s\" is not supported (default, linear, dynamic, llama3, yarn are)",
        inner->path, inner->where, chosen->string, name);
}

static fl_status check_keys(const fl_config_source *inner, const rope_kind *kind, fl_error *error) {
    for (const cJSON *item = inner->object->child; item != NULL; item = item->next) {
        if (cJSON_IsNull(item) || has_key(kind, item->string)) continue;
        return fl_error_set(error, FL_ERROR_UNSUPPORTED, "%s: key %s%s: not understood with rope type \"%s\"",
                            inner->path, inner->where, item->string, kind->name);
    }
    for (const char *const *key = kind->required; *key != NULL; key++) {
        FL_TRY(fl_config_require(inner, *key, error));
    }
    return FL_OK;
}

static fl_status check_values(const fl_config_source *inner, const fl_rope_config *rope, fl_error *error) {
    if (rope->type == FL_ROPE_LLAMA3 && !(rope->high_frequency_factor > rope->low_frequency_factor)) {
        return fl_config_refuse(inner, FL_ERROR_FORMAT, "high_freq_factor", "is not above low_freq_factor",
                                error);
    }
    if (rope->type == FL_ROPE_DYNAMIC && rope->rotary_dim <= 2) {
        return fl_config_refuse(inner, FL_ERROR_UNSUPPORTED, "rope_type",
                                "dynamic needs more than 2 rotary dimensions", error);
    }
    return FL_OK;
}

/* A positive number, or 0 for "not given". */
static fl_status read_scale(const fl_config_source *inner, const char *key, double *out, fl_error *error) {
    FL_TRY(fl_config_number(inner, key, out, error));
    return *out == 0.0 ? FL_OK : fl_config_positive(inner, key, out, error);
}

static fl_status read_values(const fl_config_source *inner, const fl_config_source *source,
                             size_t max_positions, fl_rope_config *rope, fl_error *error) {
    rope->truncate = true;
    rope->original_max_positions = (double)max_positions;
    FL_TRY(
        fl_config_positive(inner, "original_max_position_embeddings", &rope->original_max_positions, error));
    FL_TRY(
        fl_config_positive(source, "original_max_position_embeddings", &rope->original_max_positions, error));
    /* YaRN: an absent factor is the ratio of the two lengths. */
    rope->factor = rope->type == FL_ROPE_YARN ? (double)max_positions / rope->original_max_positions : 1.0;
    FL_TRY(fl_config_positive(inner, "factor", &rope->factor, error));
    FL_TRY(fl_config_positive(inner, "low_freq_factor", &rope->low_frequency_factor, error));
    FL_TRY(fl_config_positive(inner, "high_freq_factor", &rope->high_frequency_factor, error));
    rope->beta_fast = 32.0;
    rope->beta_slow = 1.0;
    FL_TRY(fl_config_positive(inner, "beta_fast", &rope->beta_fast, error));
    FL_TRY(fl_config_positive(inner, "beta_slow", &rope->beta_slow, error));
    FL_TRY(read_scale(inner, "mscale", &rope->mscale, error));
    FL_TRY(read_scale(inner, "mscale_all_dim", &rope->mscale_all_dim, error));
    FL_TRY(fl_config_positive(inner, "attention_factor", &rope->attention_factor, error));
    FL_TRY(fl_config_bool(inner, "truncate", &rope->truncate, error));
    return check_values(inner, rope, error);
}

/* rope_theta and partial_rotary_factor may stand inside or beside the object. */
static fl_status read_number_at_either(const fl_config_source *source, const fl_config_source *inner,
                                       const char *key, double *out, fl_error *error) {
    const cJSON *chosen = NULL;
    FL_TRY(same(source, key, fl_config_find(source, key), fl_config_find(inner, key), &chosen, error));
    FL_TRY(fl_config_positive(source, key, out, error));
    return fl_config_positive(inner, key, out, error);
}

static fl_status read_partial(const fl_config_source *source, const fl_config_source *inner,
                              const fl_architecture *architecture, fl_model_config *config, fl_error *error) {
    double partial = 1.0;
    FL_TRY(read_number_at_either(source, inner, "partial_rotary_factor", &partial, error));
    if (partial > 1.0) {
        return fl_config_refuse(source, FL_ERROR_FORMAT, "partial_rotary_factor", "is above 1", error);
    }
    if (partial != 1.0 && !architecture->partial_rotary) {
        return fl_config_refuse(source, FL_ERROR_UNSUPPORTED, "partial_rotary_factor",
                                "this architecture rotates whole heads", error);
    }
    config->rope.rotary_dim = (size_t)((double)config->head_dim * partial);
    if (config->rope.rotary_dim == 0 || config->rope.rotary_dim % 2 != 0) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: %zu rotary dimensions are not an even number",
                            source->path, config->rope.rotary_dim);
    }
    return FL_OK;
}

fl_status fl_config_rope_read(const fl_config_source *source, const fl_architecture *architecture,
                              fl_model_config *config, fl_error *error) {
    const cJSON *object = NULL;
    const char *name = "rope_parameters";
    const rope_kind *kind = &kinds[0];
    fl_rope_config *rope = &config->rope;
    FL_TRY(find_object(source, &object, &name, error));
    fl_config_source inner = inner_source(source, name, object);
    FL_TRY(find_kind(&inner, &kind, error));
    if (object != NULL) FL_TRY(check_keys(&inner, kind, error));
    rope->type = kind->type;
    rope->theta = architecture->default_theta;
    FL_TRY(read_number_at_either(source, &inner, "rope_theta", &rope->theta, error));
    if (!(rope->theta > 1.0))
        return fl_config_refuse(source, FL_ERROR_FORMAT, "rope_theta", "is not above 1", error);
    FL_TRY(read_partial(source, &inner, architecture, config, error));
    return read_values(&inner, source, config->max_positions, rope, error);
}
