#include "harness/model/config_source.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/model/json_text.h"

const cJSON *fl_config_find(const fl_config_source *source, const char *key) {
    const cJSON *item = fl_json_member(source->nested, key);
    return item != NULL ? item : fl_json_member(source->object, key);
}

bool fl_config_given(const fl_config_source *source, const char *key) {
    const cJSON *item = fl_config_find(source, key);
    return item != NULL && !cJSON_IsNull(item);
}

fl_status fl_config_refuse(const fl_config_source *source, fl_status status, const char *key,
                           const char *what, fl_error *error) {
    return fl_error_set(error, status, "%s: key %s%s: %s", source->path, source->where, key, what);
}

fl_status fl_config_require(const fl_config_source *source, const char *key, fl_error *error) {
    if (fl_config_given(source, key)) return FL_OK;
    return fl_config_refuse(source, FL_ERROR_FORMAT, key, "is missing", error);
}

fl_status fl_config_size(const fl_config_source *source, const char *key, size_t least, size_t most,
                         size_t *out, fl_error *error) {
    if (!fl_config_given(source, key)) return FL_OK;
    size_t value = 0;
    if (!fl_json_size(fl_config_find(source, key), &value) || value < least || value > most) {
        char what[96];
        snprintf(what, sizeof what, "is not a whole number from %zu to %zu", least, most);
        return fl_config_refuse(source, FL_ERROR_FORMAT, key, what, error);
    }
    *out = value;
    return FL_OK;
}

fl_status fl_config_number(const fl_config_source *source, const char *key, double *out, fl_error *error) {
    if (!fl_config_given(source, key)) return FL_OK;
    const cJSON *item = fl_config_find(source, key);
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble)) {
        return fl_config_refuse(source, FL_ERROR_FORMAT, key, "is not a finite number", error);
    }
    *out = item->valuedouble;
    return FL_OK;
}

fl_status fl_config_positive(const fl_config_source *source, const char *key, double *out, fl_error *error) {
    if (!fl_config_given(source, key)) return FL_OK;
    double value = 0.0;
    FL_TRY(fl_config_number(source, key, &value, error));
    if (!(value >= FL_CONFIG_SMALLEST && value <= FL_CONFIG_LARGEST)) {
        return fl_config_refuse(source, FL_ERROR_FORMAT, key, "is not above 0 and of a sensible size", error);
    }
    *out = value;
    return FL_OK;
}

fl_status fl_config_bool(const fl_config_source *source, const char *key, bool *out, fl_error *error) {
    if (!fl_config_given(source, key)) return FL_OK;
    const cJSON *item = fl_config_find(source, key);
    if (!cJSON_IsBool(item))
        return fl_config_refuse(source, FL_ERROR_FORMAT, key, "is not true or false", error);
    *out = cJSON_IsTrue(item);
    return FL_OK;
}

fl_status fl_config_text(const fl_config_source *source, const char *key, const char **out, fl_error *error) {
    if (!fl_config_given(source, key)) return FL_OK;
    const cJSON *item = fl_config_find(source, key);
    if (!cJSON_IsString(item)) return fl_config_refuse(source, FL_ERROR_FORMAT, key, "is not text", error);
    *out = item->valuestring;
    return FL_OK;
}

bool fl_config_in_list(const char *const *list, const char *key) {
    for (; *list != NULL; list++) {
        if (strcmp(*list, key) == 0) return true;
    }
    return false;
}
