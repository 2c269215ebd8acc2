/* A checkpoint in words, for `frostline inspect`. */
#ifndef FL_MODEL_DESCRIBE_H
#define FL_MODEL_DESCRIBE_H

#include "harness/base/status.h"

/* *text = fl_memory block: files, tensor types, parameters, and, when it is a model that this build
 * understands, its architecture, sizes, rope and windows; else why not, and every tensor. path: what
 * fl_model_open takes, or any safetensors file. Fails only when the weights themselves cannot be read. */
fl_status fl_model_describe(const char *path, char **text, fl_error *error);

#endif
