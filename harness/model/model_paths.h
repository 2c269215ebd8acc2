/* Where a model's files are: the path rules of fl_model_open. Internal to harness/model. */
#ifndef FL_MODEL_MODEL_PATHS_H
#define FL_MODEL_MODEL_PATHS_H

#include "harness/base/status.h"

typedef struct fl_model_paths {
    char *weights; /* what fl_checkpoint_open takes */
    char *config;  /* config.json, or NULL: a GGUF file carries its own */
} fl_model_paths;

/* path: a folder, a GGUF file, or a safetensors file or shard index. config is where config.json must be;
 * whether it is there is not looked at. */
fl_status fl_model_paths_find(const char *path, fl_model_paths *out, fl_error *error);
void fl_model_paths_free(fl_model_paths *paths);

#endif
