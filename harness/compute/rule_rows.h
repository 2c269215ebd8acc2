/* Rule rows: what a rule works out for one token of one query head, as its functions take and give it. A rule itself, with all that
 * is said of it, is attn_variants/attn_variant.h's; operations are handed only its functions, a row at a time, and its name, by
 * which a backend other than the cpu finds its own compiled form of them. */
#ifndef FL_COMPUTE_RULE_ROWS_H
#define FL_COMPUTE_RULE_ROWS_H

#include <stddef.h>

enum {
    FL_RULE_MAX_PARAMETERS = 8,
    FL_RULE_MAX_FACTORS = 4,
    FL_RULE_MAX_MICRO_STEPS = 8,
    FL_RULE_MAX_HEAD_DIM = 512 /* so that `prepare` may keep a head's vectors on the stack */
};

/* Inputs of one token of one query head. */
typedef struct fl_rule_input {
    size_t head_dim;           /* D */
    size_t layer, layers, head, heads; /* layer < layers = L, head < heads = H */
    size_t position;           /* of this token in its sequence */
    const float *query, *key, *value; /* [D], after RoPE and short convolution, not yet normalised */
    const float *gate;         /* [1] or [D] after the declared activation; NULL when the rule takes none */
    float beta;                /* after the declared activation; 0 when the rule takes none */
    const float *factors[FL_RULE_MAX_FACTORS]; /* [width] each, activated, in the order of fl_rule.factors; NULL: not in use */
    const void *options;       /* the rule's own option struct */
    const float *const *parameters; /* this layer's tensors in the order of fl_rule.parameters, whole ([all heads]) */
} fl_rule_input;

/* Outputs of one token of one head: rows of the recurrence's streams. Pointers the transition has no use for are NULL.
 * With micro_steps m > 1 there are m consecutive rows of each, except the query, which is read once, after the last. */
typedef struct fl_rule_output {
    float *query;           /* [Dk] */
    float *key;             /* [Dk] */
    float *value;           /* [Dv] without the normaliser's channel */
    float *log_decay;       /* [1] or [Dk] */
    float *erase_strength;  /* [1] */
    float *erase_read, *erase_write; /* [Dk] */
    float *write;           /* [1] */
    float *bonus;           /* [D] with fl_rule.bonus, else NULL */
    float *factors[FL_RULE_MAX_FACTORS]; /* of rules with a step of their own, which are handed them when they write */
} fl_rule_output;

/* Same members as fl_rule_output, holding dLoss/d(output). */
typedef struct fl_rule_output fl_rule_output_gradient;

/* dLoss/d(input), overwritten; parameters are accumulated (+=) into whole tensors. */
typedef struct fl_rule_input_gradient {
    float *query, *key, *value; /* [D] */
    float *gate;                /* [1] or [D], with respect to the activated gate as handed in; NULL when none */
    float *beta;                /* [1]; NULL when none */
    float *factors[FL_RULE_MAX_FACTORS]; /* [width], with respect to the activated factors; NULL: not in use */
    float *const *parameters;   /* as in fl_rule_input; NULL when not wanted */
} fl_rule_input_gradient;

/* A rule's functions; attn_variant.h says what each does. Those that a rule has no use for are NULL. */
typedef struct fl_rule_functions {
    const char *name;
    void (*prepare)(const fl_rule_input *input, fl_rule_output *output);
    void (*prepare_backward)(const fl_rule_input *input, const fl_rule_output_gradient *gradient, fl_rule_input_gradient *out);
    /* A step of its own. */
    void (*init)(const fl_rule_input *input, float *state);
    void (*write)(const fl_rule_input *token, float *state);
    void (*read)(const fl_rule_input *token, const float *state, float *output);
    void (*write_backward)(const fl_rule_input *token, const float *before, float *gradient_state, fl_rule_input_gradient *out);
    void (*read_backward)(const fl_rule_input *token, const float *state, const float *gradient_output, float *gradient_state,
                          fl_rule_input_gradient *out);
    void (*bonus)(const fl_rule_input *token, float *bonus);
    void (*bonus_backward)(const fl_rule_input *token, const float *gradient_bonus, fl_rule_input_gradient *out);
} fl_rule_functions;

/* What the rows of a layer have in common. */
typedef struct fl_rule_layer {
    fl_rule_functions rule;
    const void *options;     /* the rule's own option struct */
    size_t options_bytes;
    const float *parameters[FL_RULE_MAX_PARAMETERS]; /* the layer's tensors in the rule's order, whole; NULL: not in use */
    size_t parameter_count;
    size_t layer, layers, heads, head_dim; /* layer < layers = L, H, D */
} fl_rule_layer;

/* A rule's input without a token. */
static inline fl_rule_input fl_rule_layer_input(const fl_rule_layer *layer, size_t head) {
    return (fl_rule_input){.head_dim = layer->head_dim,
                           .layer = layer->layer,
                           .layers = layer->layers,
                           .head = head,
                           .heads = layer->heads,
                           .options = layer->options,
                           .parameters = layer->parameters};
}

#endif
