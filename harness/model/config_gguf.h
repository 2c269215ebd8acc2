/* The hyperparameter keys of a GGUF file -> fl_model_config. Internal to harness/model.
 *
 * Keys are "<architecture>.<name>"; one that is not understood is refused by name. Which biases there are,
 * and whether the head is tied, GGUF says only through its tensors: model.c finds out. */
#ifndef FL_MODEL_CONFIG_GGUF_H
#define FL_MODEL_CONFIG_GGUF_H

#include "harness/base/status.h"
#include "harness/model/architecture.h"
#include "harness/model/gguf.h"
#include "harness/model/model_config.h"

/* config->sliding_window is allocated; the caller frees it, also after an error. config->vocabulary stays 0
 * when the file does not say. *skipped_layers = trailing blocks of the file that are not part of the model
 * (next-token predictors). */
fl_status fl_config_gguf_read(const fl_gguf *gguf, fl_model_config *config,
                              const fl_architecture **architecture, size_t *skipped_layers, fl_error *error);

#endif
