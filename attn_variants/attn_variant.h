/* The interface of an attention rule. One rule = one file in this folder + one line in registry.c.
 *
 * A rule is an instance of the one recurrence (harness/compute/recurrence.h)
 *     S_t = S_{t-1} diag(a_t) (I - b_t r_t x_t^T) + w_t v_t k_t^T,      y_t = S_t q_t
 * and consists of a transition kind and one elementwise `prepare` that turns the model's q, k, v and this layer's gate and
 * beta into the recurrence's q', k', v', log a, b, (r, x), w, with its derivative. No loops over time, no state, no memory.
 * Step, chunk, backward, window, sinks, cache routing, short convolution, normaliser, merge, snapshots and every backend are
 * written once, for the recurrence.
 *
 * The harness does, before `prepare`: repeat KV heads, short convolution, gate = h W (+ bias) with the activation the rule
 * declares, beta likewise; after the recurrence: the normaliser's division (when the rule has `normaliser`, the harness
 * carries one more value channel holding 1) and the merge with the exact set.
 *
 * A rule whose state is not a matrix under this recurrence leaves `prepare` NULL and fills the `own` hooks.
 *
 * A rule is checked where it is bound, and the whole registry by `frostline variants` and the suite: abi, required slots, unique
 * names, defaults inside their ranges. */
#ifndef FL_ATTN_VARIANTS_ATTN_VARIANT_H
#define FL_ATTN_VARIANTS_ATTN_VARIANT_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/shapes.h"
#include "harness/base/status.h"
#include "harness/compute/gates.h"
#include "harness/compute/recurrence.h"
#include "harness/compute/rule_functions.h"
#include "harness/compute/rule_rows.h"
#include "harness/config/options.h"

enum { FL_RULE_ABI = 1 };

typedef enum fl_gate_kind { FL_GATE_NONE = 0, FL_GATE_SCALAR, FL_GATE_CHANNEL } fl_gate_kind;

/* A trainable tensor of the rule's own, per layer. An axis is written as one of the letters: 'H' query heads, 'D' head
 * dimension, 'K' Dk, 'M' micro steps, or '1'. The first is always 'H': the harness prepares heads at the same time, each
 * touching its own slice, also of the gradient. */
typedef struct fl_rule_parameter {
    const char *name;  /* in the file: layers.<i>.<name> */
    const char *axes;  /* e.g. "HDD" */
    const char *init;  /* "uniform_fan_in", "normal", "identity" (last two axes), "log_counting" (log 1, log 2, ... along the last
                        * axis), "pi_counting" (0, pi, 2 pi, ...), "log_step" (logs, drawn evenly between those of 0.001 and
                        * 0.1), or a decimal number */
    const char *help;
    bool (*used)(const void *options); /* NULL: always. Where it is not, prepare is handed NULL */
} fl_rule_parameter;

/* A number, or several, that every token projects from the block's input as it does gates and betas, per query head:
 * activation(h W + bias), or activation((h W1) W2 + bias) where it is wide. Trainable tensors <name>.weight [E][H*width], or
 * <name>.w1 [E][rank] and <name>.w2 [rank][H*width], and <name>.bias [H*width]; rank is `variant.factors.rank`. */
typedef struct fl_rule_factor {
    const char *name;
    const char *axes;  /* of a head: "1", "D", "M", "MD" or "S" (M micro steps, D head dimension, S slots) */
    fl_gate_activation activation;
    double bias;       /* initial */
    const char *help;
    bool (*used)(const void *options); /* NULL: always */
} fl_rule_factor;

typedef struct fl_rule {
    int abi;              /* FL_RULE_ABI */
    const char *name;     /* YAML: variant.rule */
    const char *summary;  /* one line */
    const char *equation; /* plain text, in the letters of recurrence.h */
    const char *source;   /* paper, arXiv id */
    const char *differs;  /* from the published code, and why; NULL: nothing but what the frozen backbone makes of every rule */

    fl_gate_kind gate;
    fl_gate_activation gate_activation;
    bool gate_bounded;    /* a channel gate has tanh between its two factors */
    bool beta;
    fl_gate_activation beta_activation;
    bool beta_may_reflect; /* variant.beta.maximum up to 2 makes sense: an erase along a unit key */
    double default_gate_bias, default_beta_bias; /* the paper's 1 and -1 unless the rule's source says otherwise */
    fl_transition transition;
    bool has_write;         /* `prepare` fills write weights (else all 1) */
    bool normaliser;        /* may divide by z.q'; variant.normaliser switches it (default: whether the kernel is positive) */
    bool shared_normaliser; /* merges with one normaliser make sense: the kernel q'.k' is never negative */
    bool stateless;         /* `none` and `softmax`: no recurrence at all */

    const fl_option *options; /* keys that live directly under `variant:` */
    size_t option_count, options_bytes;
    const fl_rule_parameter *parameters;
    size_t parameter_count;
    const fl_rule_factor *factors;
    size_t factor_count;
    /* What a token's read gets of the token itself beside the state: bonus * v, channel by channel. `prepare` fills bonus, or
     * own.bonus. With a window or a cache, and among the sinks, the current token is or may be exact, and no bonus is added. */
    bool bonus;
    bool reads_before; /* without window and cache: a token's read comes before its own decay and write, which then wait one token */

    /* All optional. key_dim: Dk from D (default D). micro_steps: default 1. check: refuse shapes or options by name.
     * resolve: the transition when it depends on options. */
    size_t (*key_dim)(size_t head_dim, const void *options);
    size_t (*micro_steps)(const void *options);
    size_t (*slots)(const void *options); /* S of a factor's axes */
    fl_status (*check)(const fl_attention_shape *shape, const void *options, fl_error *error);
    fl_transition (*resolve)(const void *options);
    /* shared_normaliser when it depends on options (a feature map). */
    bool (*positive)(const void *options);
    /* Whether a beta is taken, when that depends on options; `beta` is then true. */
    bool (*takes_beta)(const void *options);
    /* Whether reads are scaled by D^-1/2 unless variant.scale says otherwise: forms that are as published. NULL: not. */
    bool (*scaled)(const void *options);

    /* Required unless stateless or `own`: */
    void (*prepare)(const fl_rule_input *input, fl_rule_output *output);
    void (*prepare_backward)(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                             fl_rule_input_gradient *out);

    /* A rule that does not fit the recurrence: flat state per head, one step = the definition. A write has no query; a
     * read has the query only, and reads 0 from the initial state. Such rules run a token at a time. A rule may have both this
     * and `prepare`: `used` then says which one its options choose. */
    struct {
        bool (*used)(const void *options); /* NULL: always, when there are hooks */
        size_t (*state_floats)(size_t head_dim, const void *options);
        void (*init)(const fl_rule_input *input, float *state); /* NULL: zeros */
        /* write and read are separate so that the window can delay the write; a null write is no call at all */
        void (*write)(const fl_rule_input *token, float *state);
        void (*read)(const fl_rule_input *token, const float *state, float *output /* [D] */);
        /* Both or neither; without them the rule cannot be trained. `before` is the state a write found. gradient_state:
         * dLoss/d(state after it), made dLoss/d(before) in place; a read adds to it. In *out a write fills key, value, gate
         * and beta, a read the query; parameters as in fl_rule_input_gradient. What init makes is taken as constant. */
        void (*write_backward)(const fl_rule_input *token, const float *before, float *gradient_state,
                               fl_rule_input_gradient *out);
        void (*read_backward)(const fl_rule_input *token, const float *state, const float *gradient_output /* [D] */,
                              float *gradient_state, fl_rule_input_gradient *out);
        /* With fl_rule.bonus: the token's own, and what it adds to *out (whose members are filled already). */
        void (*bonus)(const fl_rule_input *token, float *bonus /* [D] */);
        void (*bonus_backward)(const fl_rule_input *token, const float *gradient_bonus, fl_rule_input_gradient *out);
    } own;
} fl_rule;

/* NULL-terminated. Order = order of `frostline variants`. */
extern const fl_rule *const fl_rule_registry[];

const fl_rule *fl_rule_find(const char *name); /* NULL when unknown */
/* Every rule of a NULL-terminated list, and that no name comes twice. */
fl_status fl_rule_list_check(const fl_rule *const *rules, fl_error *error);
fl_status fl_rule_registry_check(fl_error *error);

/* What the optional hooks say, with their defaults. */
size_t fl_rule_key_dim(const fl_rule *rule, size_t head_dim, const void *options);
size_t fl_rule_micro_steps(const fl_rule *rule, const void *options);
bool fl_rule_positive(const fl_rule *rule, const void *options);
/* Numbers of a head's state without the normaliser's channel; 0 of a stateless rule. */
size_t fl_rule_state_floats(const fl_rule *rule, size_t head_dim, const void *options);
bool fl_rule_is_own(const fl_rule *rule, const void *options);
bool fl_rule_takes_beta(const fl_rule *rule, const void *options);
/* Floats a head of factor `index`; 0 where it is not in use. */
size_t fl_rule_factor_width(const fl_rule *rule, size_t index, size_t head_dim, const void *options);
/* Such factors are of low rank: wider than a number a head or micro step. */
bool fl_rule_factor_is_wide(const fl_rule_factor *factor);
bool fl_rule_parameter_used(const fl_rule *rule, size_t index, const void *options);

#endif
