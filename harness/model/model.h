/* Model: a frozen pretrained transformer, mapped read-only.
 *
 * fl_model_open takes a .gguf file, a .safetensors file or shard index with config.json beside it, or a
 * Hugging Face folder (config.json
 * + model.safetensors or model.safetensors.index.json). Nothing is copied or converted: tensors point into
 * the mapped files. Every required tensor is checked for presence and shape before this returns; what is
 * missing is listed whole.
 *
 * tie_word_embeddings says how a head that is not stored is found; a head that is stored with other values than the
 * embedding's is used (as Transformers 5 does) and `note` says so. Of a tied pair either name may be the one stored. */
#ifndef FL_MODEL_MODEL_H
#define FL_MODEL_MODEL_H

#include "harness/base/hash.h"
#include "harness/base/status.h"
#include "harness/model/checkpoint.h"
#include "harness/model/model_config.h"
#include "harness/model/tensor.h"

typedef struct fl_layer_weights {
    fl_tensor input_norm;                                    /* [E] */
    fl_tensor query, key, value, output;                     /* [H*D][E], [Hkv*D][E], [Hkv*D][E], [E][H*D] */
    fl_tensor query_bias, key_bias, value_bias, output_bias; /* or absent */
    fl_tensor query_norm, key_norm;                          /* [D] or absent */
    fl_tensor post_attention_norm;                           /* [E] */
    fl_tensor gate, up, down;                                /* [F][E], [F][E], [E][F] */
    fl_tensor gate_bias, up_bias, down_bias;                 /* or absent */
} fl_layer_weights;

typedef struct fl_model {
    char *path;
    fl_model_config config;
    fl_tensor embedding;      /* [V][E] */
    fl_tensor final_norm;     /* [E] */
    fl_tensor head;           /* [V][E]; the embedding when tied */
    fl_layer_weights *layers; /* [L] */
    fl_checkpoint *checkpoint;
    const char *note;     /* what a reader of this checkpoint should know, or NULL; not owned */
    float *rope_divisors; /* owned storage behind config.rope.divisors, or NULL */
} fl_model;

fl_status fl_model_open(const char *path, fl_model **out, fl_error *error);
void fl_model_close(fl_model *model);

/* Hash of every mapped weight file, read afresh at each call: taken before and after a run. */
fl_status fl_model_hash(const fl_model *model, fl_hash *out, fl_error *error);

/* Number of weights (tied ones once). */
size_t fl_model_parameter_count(const fl_model *model);

#endif
