/* Reading members of a config.json: top level and text_config as one, with errors that name file and key.
 * Internal to harness/model. */
#ifndef FL_MODEL_CONFIG_SOURCE_H
#define FL_MODEL_CONFIG_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <cjson/cJSON.h>

#include "harness/base/status.h"

/* Positive values lie between these, so that float32 arithmetic on them stays finite. */
#define FL_CONFIG_SMALLEST 1e-15
#define FL_CONFIG_LARGEST 1e15

typedef struct fl_config_source {
    const char *path;
    const char *where; /* put before key names in errors: "" or "rope_scaling." */
    const cJSON *object;
    const cJSON *nested; /* text_config, or NULL; what it says goes before `object` */
} fl_config_source;

/* The member, JSON null included, or NULL. */
const cJSON *fl_config_find(const fl_config_source *source, const char *key);
/* True when the member is there and not null. */
bool fl_config_given(const fl_config_source *source, const char *key);

/* Each leaves *out alone when the member is absent or null. */
fl_status fl_config_size(const fl_config_source *source, const char *key, size_t least, size_t most,
                         size_t *out, fl_error *error);
fl_status fl_config_positive(const fl_config_source *source, const char *key, double *out, fl_error *error);
fl_status fl_config_number(const fl_config_source *source, const char *key, double *out, fl_error *error);
fl_status fl_config_bool(const fl_config_source *source, const char *key, bool *out, fl_error *error);
fl_status fl_config_text(const fl_config_source *source, const char *key, const char **out, fl_error *error);

/* FL_ERROR_FORMAT unless the member is there and not null. */
fl_status fl_config_require(const fl_config_source *source, const char *key, fl_error *error);

/* "<path>: key <where><key>: <what>". */
fl_status fl_config_refuse(const fl_config_source *source, fl_status status, const char *key,
                           const char *what, fl_error *error);

bool fl_config_in_list(const char *const *list, const char *key);

#endif
