/* Identity: what decides a model's numbers beside its weights, in one form.
 *
 * A Hugging Face folder says in config.json, generation_config.json and the tokenizer's files what a GGUF file holds itself:
 * the weights' hash alone would call a folder the same model after its rope_theta was changed. */
#ifndef FL_MODEL_IDENTITY_H
#define FL_MODEL_IDENTITY_H

#include "harness/base/hash.h"
#include "harness/base/status.h"
#include "harness/model/model.h"

/* *text = the configuration after all defaults, one "key value" a line in a fixed order, numbers so that they read back
 * exactly: equal texts and equal weights compute the same. An fl_memory block. */
fl_status fl_model_descriptor(const fl_model *model, char **text, fl_error *error);

/* Of weights, descriptor and tokenizer ("" when there is none). Of a GGUF file, whose hash covers all three, the weights'
 * hash itself. */
fl_status fl_model_identity(const fl_model *model, const fl_hash *weights, const char *tokenizer, fl_hash *out,
                            fl_error *error);

#endif
