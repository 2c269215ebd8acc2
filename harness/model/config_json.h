/* config.json of a Hugging Face folder -> fl_model_config. Internal to harness/model.
 *
 * Read: the keys of the classes in architecture.h, in the spelling of Transformers 4 (rope_theta,
 * rope_scaling) and 5 (rope_parameters), at the top or in text_config. A key that says something about the
 * computation and is not understood is refused by name; so is a key given twice with different values. */
#ifndef FL_MODEL_CONFIG_JSON_H
#define FL_MODEL_CONFIG_JSON_H

#include "harness/base/status.h"
#include "harness/model/architecture.h"
#include "harness/model/model_config.h"

/* config->sliding_window is allocated; the caller frees it, also after an error. */
fl_status fl_config_json_read(const char *path, fl_model_config *config, fl_model_parts *parts,
                              const fl_architecture **architecture, fl_error *error);

/* The same from text; `path` is named in errors. */
fl_status fl_config_json_parse(const char *text, size_t bytes, const char *path, fl_model_config *config,
                               fl_model_parts *parts, const fl_architecture **architecture, fl_error *error);

/* generation_config.json: the tokens that it says end a text take the place of config.json's, as in Transformers'
 * generate(). Nothing else is read. */
fl_status fl_config_json_read_generation(const char *path, fl_model_config *config, fl_error *error);

#endif
