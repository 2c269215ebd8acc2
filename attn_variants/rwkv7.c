#include <math.h>
#include <stddef.h>
#include <string.h>

#include "attn_variants/attn_variant.h"

typedef struct rwkv7_options {
    bool unit;
} rwkv7_options;

static const fl_option options[] = {
    {.key = "unit",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(rwkv7_options, unit),
     .default_text = "true",
     .help = "q and k of unit length: frozen keys are far from the scale the rule is trained with; false: as "
             "published"},
};

enum { REMOVAL = 0, REPLACEMENT, BONUS };

static const fl_rule_parameter parameters[] = {
    {.name = "rwkv7.removal",
     .axes = "HD",
     .init = "0.85",
     .help = "k_k: channel scales of the key that is removed, before unit length"},
    {.name = "rwkv7.replacement",
     .axes = "HD",
     .init = "1",
     .help = "k_a: how much the rate scales each channel of the key that is written"},
    {.name = "rwkv7.bonus",
     .axes = "HD",
     .init = "-0.04",
     .help = "r_k: what a token reads of itself beside the state, with window: 0"},
};

enum { RATE = 0 };

static const fl_rule_factor factors[] = {
    {.name = "rwkv7.rate",
     .axes = "D",
     .activation = FL_ACTIVATE_SIGMOID,
     .bias = -0.19,
     .help = "a: the in-context learning rate of every channel"},
};

static const double DECAY =
    0.60653065971263342; /* exp(-1/2): no channel decays faster than exp(-DECAY) a step */

static bool unit(const fl_rule_input *input) {
    return ((const rwkv7_options *)input->options)->unit;
}

static void removed_key(const fl_rule_input *input, float *removed) {
    const float *scale = input->parameters[REMOVAL] + input->head * input->head_dim;
    for (size_t i = 0; i < input->head_dim; i++) removed[i] = input->key[i] * scale[i];
}

/* S diag(w) - (S x)(a*x)^T = S diag(w) (I - (x/w) (a*x)^T): the source removes along the undecayed state,
 * this recurrence decays first, so the read direction is divided by the decay. */
static void prepare(const fl_rule_input *input, fl_rule_output *output) {
    size_t n = input->head_dim;
    const float *replacement = input->parameters[REPLACEMENT] + input->head * n;
    const float *bonus = input->parameters[BONUS] + input->head * n, *rate = input->factors[RATE];
    float removed[FL_RULE_MAX_HEAD_DIM], direction[FL_RULE_MAX_HEAD_DIM];
    double own = 0.0;
    (unit(input) ? fl_rule_unit_inputs : fl_rule_raw_inputs)(input, output);
    removed_key(input, removed);
    fl_rule_unit(n, removed, direction);
    for (size_t i = 0; i < n; i++) {
        double log_decay = -DECAY * input->gate[i];
        output->log_decay[i] = (float)log_decay;
        output->erase_read[i] = (float)(direction[i] * exp(-log_decay));
        output->erase_write[i] = rate[i] * direction[i];
        output->key[i] *= 1.0f + (rate[i] - 1.0f) * replacement[i];
        own += (double)output->query[i] * output->key[i] * bonus[i];
    }
    for (size_t i = 0; i < n; i++) output->bonus[i] = (float)own;
    output->erase_strength[0] = 1.0f;
}

/* The query and the written key again, and the bonus's share of their gradients. */
typedef struct rwkv7_inner {
    float query[FL_RULE_MAX_HEAD_DIM], key[FL_RULE_MAX_HEAD_DIM]; /* before the replacement */
    float gradient_query[FL_RULE_MAX_HEAD_DIM], gradient_key[FL_RULE_MAX_HEAD_DIM]; /* after it */
} rwkv7_inner;

static void begin_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                           rwkv7_inner *inner, fl_rule_input_gradient *out) {
    size_t n = input->head_dim, at = input->head * n;
    const float *replacement = input->parameters[REPLACEMENT] + at, *bonus = input->parameters[BONUS] + at;
    double own = 0.0;
    memcpy(inner->query, input->query, n * sizeof *inner->query);
    memcpy(inner->key, input->key, n * sizeof *inner->key);
    if (unit(input)) fl_rule_unit(n, input->query, inner->query);
    if (unit(input)) fl_rule_unit(n, input->key, inner->key);
    for (size_t i = 0; i < n; i++) own += gradient->bonus[i];
    for (size_t i = 0; i < n; i++) {
        float key = inner->key[i] * (1.0f + (input->factors[RATE][i] - 1.0f) * replacement[i]);
        inner->gradient_query[i] = gradient->query[i] + (float)own * key * bonus[i];
        inner->gradient_key[i] = gradient->key[i] + (float)own * inner->query[i] * bonus[i];
        if (out->parameters != NULL) out->parameters[BONUS][at + i] += (float)own * inner->query[i] * key;
    }
}

static void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                             fl_rule_input_gradient *out) {
    size_t n = input->head_dim, at = input->head * n;
    const float *removal = input->parameters[REMOVAL] + at,
                *replacement = input->parameters[REPLACEMENT] + at;
    const float *rate = input->factors[RATE];
    rwkv7_inner inner;
    float removed[FL_RULE_MAX_HEAD_DIM], direction[FL_RULE_MAX_HEAD_DIM], of_direction[FL_RULE_MAX_HEAD_DIM];
    begin_backward(input, gradient, &inner, out);
    removed_key(input, removed);
    fl_rule_unit(n, removed, direction);
    for (size_t i = 0; i < n; i++) {
        double growth = exp(DECAY * input->gate[i]), of_read = gradient->erase_read[i];
        float of_key = inner.gradient_key[i];
        out->gate[i] = (float)(DECAY * (of_read * direction[i] * growth - gradient->log_decay[i]));
        of_direction[i] = (float)(gradient->erase_write[i] * rate[i] + of_read * growth);
        out->factors[RATE][i] =
            gradient->erase_write[i] * direction[i] + of_key * inner.key[i] * replacement[i];
        inner.gradient_key[i] = of_key * (1.0f + (rate[i] - 1.0f) * replacement[i]);
        if (out->parameters != NULL)
            out->parameters[REPLACEMENT][at + i] += of_key * inner.key[i] * (rate[i] - 1.0f);
    }
    fl_rule_output_gradient passed = *gradient;
    passed.query = inner.gradient_query;
    passed.key = inner.gradient_key;
    (unit(input) ? fl_rule_unit_inputs_backward : fl_rule_raw_inputs_backward)(input, &passed, out);
    float of_removed[FL_RULE_MAX_HEAD_DIM];
    fl_rule_unit_backward(n, removed, of_direction, of_removed);
    for (size_t i = 0; i < n; i++) {
        out->key[i] += of_removed[i] * removal[i];
        if (out->parameters != NULL) out->parameters[REMOVAL][at + i] += of_removed[i] * input->key[i];
    }
}

const fl_rule fl_rule_rwkv7 = {
    .abi = FL_RULE_ABI,
    .name = "rwkv7",
    .summary =
        "generalised delta rule: a removal key of its own, a decay and a learning rate for every channel",
    .equation =
        "S = S (diag(w) - x (a*x)^T) + v k'^T, x = unit(k * removal), k' = k (1 + (a - 1) replacement), "
        "w = exp(-exp(-1/2) s), a, s = sigmoid(...);  y = S q + (q . (k' * bonus)) v",
    .source = "Peng et al. 2025, arXiv 2503.14456",
    .differs = "left out, being the layer's and not the rule's, or needing other projections than the frozen "
               "ones: token "
               "shift, the value residual of the first layer, group norm and output gate. The bonus is added "
               "where a token "
               "cannot be exact (no window, no cache). unit: false is the published scale of q and k.",
    .gate = FL_GATE_CHANNEL,
    .gate_activation = FL_ACTIVATE_SIGMOID,
    .gate_bounded = true,
    .default_gate_bias = -3.0,
    .transition = {FL_DECAY_CHANNEL, FL_ERASE_DIRECTIONS},
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_bytes = sizeof(rwkv7_options),
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof parameters[0],
    .factors = factors,
    .factor_count = sizeof factors / sizeof factors[0],
    .bonus = true,
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};
