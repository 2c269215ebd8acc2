/* The rope keys of a config.json, old and new spelling. Internal to harness/model. */
#ifndef FL_MODEL_CONFIG_ROPE_H
#define FL_MODEL_CONFIG_ROPE_H

#include "harness/base/status.h"
#include "harness/model/architecture.h"
#include "harness/model/config_source.h"

/* Fills config->rope; head_dim and max_positions are set already. Keys given at two places must agree, layer
 * types must not differ, and every key must belong to the rope type. */
fl_status fl_config_rope_read(const fl_config_source *source, const fl_architecture *architecture,
                              fl_model_config *config, fl_error *error);

#endif
