/* Mechanism parameters: what the replacement itself introduces, and the only thing that may ever be trained.
 *
 * Per linearised layer i, named as in the file (safetensors, F32, [in][out]):
 *   layers.<i>.gate.w1 [E][rank], gate.w2 [rank][H*D], gate.bias [H*D]     channel gates (gla, kgla, kda)
 *   layers.<i>.gate.weight [E][H], gate.bias [H]                           scalar gates (gated, decay, gated_delta)
 *   layers.<i>.gate.a_log [H]                                              with `gate: {form: softplus}`
 *   layers.<i>.beta.weight [E][H], beta.bias [H]
 *   layers.<i>.conv.{q,k,v}.weight [H*D][kernel], conv.{q,k,v}.bias [H*D]
 *   layers.<i>.lora.{q,k,v,o}.a [in][rank], lora.{q,k,v,o}.b [rank][out]   with `lora`; b starts at 0
 *   and whatever the rule declares (fl_rule.parameters and .factors), under layers.<i>.<name>.
 * Initialisation: the paper's (gate bias 1, beta bias -1, the rest uniform +-1/sqrt(fan_in) as torch.nn.Linear), seeded per
 * layer and tensor, so that adding a tensor or a layer never shifts another's numbers.
 *
 * A layer's parameters are one flat block described by a table, so that an optimiser, a file or a hash can walk them. */
#ifndef FL_ATTN_VARIANTS_MECHANISM_H
#define FL_ATTN_VARIANTS_MECHANISM_H

#include <stdbool.h>
#include <stddef.h>

#include "attn_variants/variant.h"
#include "harness/base/hash.h"
#include "harness/base/shapes.h"
#include "harness/base/status.h"
#include "harness/model/checkpoint.h"

enum { FL_MECHANISM_MAX_TENSORS = 32 };

typedef struct fl_mechanism_tensor {
    char name[48];   /* without "layers.<i>." */
    size_t rank;
    size_t shape[3];
    size_t offset;   /* in floats, from the layer's block */
    size_t count;
} fl_mechanism_tensor;

/* How far the parameters have been fitted; the furthest of all stages counts. */
typedef enum fl_fit {
    FL_FIT_NONE = 0, /* as initialised */
    FL_FIT_LAYERS,   /* layer by layer: "calibrated" */
    FL_FIT_NETWORK   /* through the whole network: "trained" */
} fl_fit;

typedef struct fl_mechanism {
    const fl_variant *variant; /* borrowed */
    fl_fit fit;                /* kept in the file; one that says nothing counts as FL_FIT_NETWORK */
    fl_attention_shape shape;
    size_t layers;
    size_t tensor_count;       /* the same table for every linearised layer */
    fl_mechanism_tensor tensors[FL_MECHANISM_MAX_TENSORS];
    size_t layer_floats;
    float **layer;             /* [L] block of layer_floats, NULL for softmax layers */
} fl_mechanism;

/* Initialised from variant->seed, or loaded from variant->mechanism_path when that is set. The variant must have been fitted. */
fl_status fl_mechanism_create(const fl_variant *variant, const fl_attention_shape *shape, size_t layers,
                              fl_mechanism **out, fl_error *error);
void fl_mechanism_destroy(fl_mechanism *mechanism);

/* Every tensor must be there with its shape and nothing else may be; all faults are listed at once. A file without any LoRA
 * tensor may be loaded into a mechanism with LoRA, which then starts as initialised: so adapters follow a fit without them. */
fl_status fl_mechanism_load(fl_mechanism *mechanism, const char *path, fl_error *error);
/* The tensors of one layer that a file holds as `prefix` and the tensor's name ("p.gate.w1"); what it lacks stays as it is.
 * A name behind the prefix that is no parameter, or one of another shape, is an error; the layer is then half taken. */
fl_status fl_mechanism_take(fl_mechanism *mechanism, size_t layer, const fl_checkpoint *file, const char *prefix,
                            fl_error *error);
fl_status fl_mechanism_save(const fl_mechanism *mechanism, const char *path, fl_error *error);

/* Pointer to a tensor of a layer by name ("gate.w1"), or NULL when this variant has none. */
float *fl_mechanism_find(const fl_mechanism *mechanism, size_t layer, const char *name);
const fl_mechanism_tensor *fl_mechanism_find_tensor(const fl_mechanism *mechanism, const char *name);

bool fl_mechanism_tensor_is_lora(const fl_mechanism_tensor *tensor);

size_t fl_mechanism_parameter_count(const fl_mechanism *mechanism);
fl_hash fl_mechanism_hash(const fl_mechanism *mechanism);

#endif
