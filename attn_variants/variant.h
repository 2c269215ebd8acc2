/* Variant: a rule with all its interventions, resolved from the `variant:` mapping of a config.
 *
 * The keys are pinned in the house plan; every rule adds its own options (attn_variant.h). A variant is immutable after
 * fl_variant_bind and shared by all layers, sessions and threads. */
#ifndef FL_ATTN_VARIANTS_VARIANT_H
#define FL_ATTN_VARIANTS_VARIANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn_variants/attn_variant.h"
#include "harness/base/status.h"
#include "harness/compute/merge.h"
#include "harness/config/node.h"
#include "harness/config/options.h"

typedef enum fl_gate_source { FL_GATE_PROJECTED = 0, FL_GATE_CONSTANT } fl_gate_source;
/* log a = log sigmoid(x), the paper's; or log a = -exp(a_log) softplus(x), as GDN, KDA, GDN-2, Comba and DeltaProduct publish
 * it, with a_log [H] trainable. The first is the second with a_log = 0 (and x for -x, which a projection absorbs). */
typedef enum fl_gate_form { FL_GATE_LOG_SIGMOID = 0, FL_GATE_SOFTPLUS } fl_gate_form;
typedef enum fl_conv_init { FL_CONV_IDENTITY = 0, FL_CONV_TORCH } fl_conv_init;
typedef enum fl_route {
    FL_ROUTE_SELF_RECALL = 0,
    FL_ROUTE_ATTENTION_MASS,
    FL_ROUTE_KEY_NORM,
    FL_ROUTE_VALUE_NORM,
    FL_ROUTE_RECENCY,
    FL_ROUTE_RANDOM
} fl_route;

/* Projections that a low-rank adapter may sit on. */
typedef enum fl_lora_target { FL_LORA_QUERY = 0, FL_LORA_KEY, FL_LORA_VALUE, FL_LORA_OUTPUT, FL_LORA_TARGETS } fl_lora_target;

typedef struct fl_variant {
    const fl_rule *rule;
    void *rule_options;     /* rule->options_bytes, filled from rule->options */
    fl_transition transition; /* resolved: a rule's may depend on its options */
    fl_gate_source gate_source;
    fl_gate_form gate_form;
    bool gate_bias_published; /* softplus without a bias given: drawn as the published layers draw dt_bias */
    double gate_value;      /* constant source */
    size_t gate_rank;
    double gate_bias;
    fl_gate_source beta_source;
    bool takes_beta;        /* the rule does, with these options */
    double beta_value, beta_bias;
    double beta_maximum;    /* projected betas are in (0, maximum): 1, or up to 2 for steps that reflect */
    size_t factor_rank;     /* of the rule's own factors where they are wide (attn_variant.h) */
    double scale;           /* of every read: y = scale S q; 1 = none. Known after fl_variant_fit */
    bool scale_by_dim;      /* D^-1/2 */
    bool normaliser;
    size_t window, sinks;
    fl_merge merge;
    size_t conv_kernel;     /* 0 = no short convolution */
    fl_conv_init conv_init;
    size_t cache_budget;    /* 0 = no routed cache */
    fl_route route;
    /* hybrid: which layers stay softmax. `hardest` is measured by the harness before the run and then listed here. */
    size_t *softmax_layers;
    size_t softmax_layer_count;
    size_t softmax_every;   /* 0, or n: layers n-1, 2n-1, ... stay softmax */
    size_t softmax_hardest; /* 0, or how many */
    int softmax_hardest_by; /* 0 key_concentration, 1 projection_residual, 2 nmse */
    /* Low-rank adapters (LoRA, arXiv 2106.09685) on projections of the linearised layers: x W^T + alpha / rank x A B, before
     * q/k norm and RoPE. The one thing that goes beyond the replacement itself: results are of the tier "adapted". */
    size_t lora_rank;       /* 0 = none */
    double lora_alpha;
    bool lora_targets[FL_LORA_TARGETS];
    char *mechanism_path;   /* NULL: initialise */
    uint64_t seed;
} fl_variant;

/* node: the `variant` mapping (NULL = all defaults: rule softmax). Errors carry file:line:column. What makes no sense is
 * refused at its own line: a gate, beta or normaliser for a rule that takes none, a shared normaliser for a kernel that may
 * be negative, a constant gate with a rank or bias. window, sinks, merge, short_conv and cache are accepted for every rule,
 * so that one sweep can hold `softmax` and `none` beside the others (what else its common part may hold: unused_keys.h): `softmax` ignores them, `none` has no linear branch to
 * convolve and forgets what its cache evicts. */
fl_status fl_variant_bind(const fl_node *node, fl_resolved *resolved, fl_variant **out, fl_error *error);
/* The same for a rule that need not be in the registry (node's `rule` key must be absent or name it). */
fl_status fl_variant_bind_rule(const fl_rule *rule, const fl_node *node, fl_resolved *resolved, fl_variant **out,
                               fl_error *error);
/* The keys of `variant` that all rules share, with those of the mappings in it; a rule's own are in its table. */
const fl_option_section *fl_variant_sections(size_t *count);
void fl_variant_destroy(fl_variant *variant);

/* Checks that depend on the model (rule vs shapes, layer numbers) and turns `every` into the list; after this
 * fl_variant_layer_is_softmax may be asked. */
fl_status fl_variant_fit(fl_variant *variant, const fl_attention_shape *shape, size_t layers, fl_error *error);
bool fl_variant_layer_is_softmax(const fl_variant *variant, size_t layer);
/* Replaces the list: how `hardest`, once measured, becomes layers. */
fl_status fl_variant_set_softmax_layers(fl_variant *variant, const size_t *layers, size_t count, fl_error *error);

/* Whether the exact set can ever hold a key, and whether there is a linear branch at all. */
bool fl_variant_has_exact_set(const fl_variant *variant);
bool fl_variant_has_linear(const fl_variant *variant);
/* Whether both keep the same tokens exactly, whatever their linear part: equal sinks, window and cache (budget and route), the
 * same layers softmax, no adapters, which change the keys. Their linear-off baselines are one. */
bool fl_variant_same_exact_set(const fl_variant *variant, const fl_variant *other);
/* Whether, in a layer that is softmax in neither, the softmax over the exact set can be computed once for both: equal sinks and
 * window, and no routed cache, which may ask the state. */
bool fl_variant_shares_exact_set(const fl_variant *variant, const fl_variant *other);
const char *fl_merge_name(fl_merge merge);
const char *fl_route_name(fl_route route);
/* "q", "k", "v", "o" */
const char *fl_lora_target_name(fl_lora_target target);

/* The baseline of every report: the same variant with rule `none` and merge `sum`: the softmax over the exact set alone. */
fl_status fl_variant_linear_off(const fl_variant *variant, fl_variant **out, fl_error *error);

#endif
