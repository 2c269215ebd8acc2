#include "harness/compute/rule_functions.h"

typedef struct rwkv7_options {
    bool unit;
} rwkv7_options;

enum { REMOVAL = 0, REPLACEMENT, BONUS };

enum { RATE = 0 };

static const double DECAY =
    0.60653065971263342; /* exp(-1/2): no channel decays faster than exp(-DECAY) a step */

FL_RULE_FUNCTION bool unit(const fl_rule_input *input) {
    return ((const rwkv7_options *)input->options)->unit;
}

FL_RULE_FUNCTION void removed_key(const fl_rule_input *input, float *removed) {
    const float *scale = input->parameters[REMOVAL] + input->head * input->head_dim;
    FL_EACH(i, input->head_dim) removed[i] = input->key[i] * scale[i];
    FL_JOIN();
}

/* S diag(w) - (S x)(a*x)^T = S diag(w) (I - (x/w) (a*x)^T): the source removes along the undecayed state,
 * this recurrence decays first, so the read direction is divided by the decay. */
FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    size_t n = input->head_dim;
    const float *replacement = input->parameters[REPLACEMENT] + input->head * n;
    const float *bonus = input->parameters[BONUS] + input->head * n, *rate = input->factors[RATE];
    FL_VECTOR(removed);
    FL_VECTOR(direction);
    fl_rule_inputs(unit(input), input, output);
    removed_key(input, removed);
    fl_rule_unit(n, removed, direction);
    FL_EACH(i, n) {
        double log_decay = -DECAY * input->gate[i];
        output->log_decay[i] = (float)log_decay;
        output->erase_read[i] = (float)(direction[i] * exp(-log_decay));
        output->erase_write[i] = rate[i] * direction[i];
        output->key[i] *= 1.0f + (rate[i] - 1.0f) * replacement[i];
    }
    FL_JOIN();
    fl_rule_sum(own, i, n, (double)output->query[i] * output->key[i] * bonus[i]);
    FL_EACH(i, n) output->bonus[i] = (float)own;
    FL_ONCE output->erase_strength[0] = 1.0f;
}

/* query and key again, the key before the replacement, and their gradients after it with the bonus's share.
 */
FL_RULE_FUNCTION void begin_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                     float *query, float *key, float *of_query, float *of_key,
                                     fl_rule_input_gradient *out) {
    size_t n = input->head_dim, at = input->head * n;
    const float *replacement = input->parameters[REPLACEMENT] + at, *bonus = input->parameters[BONUS] + at;
    fl_rule_copy(n, input->query, query);
    fl_rule_copy(n, input->key, key);
    if (unit(input)) fl_rule_unit(n, input->query, query);
    if (unit(input)) fl_rule_unit(n, input->key, key);
    fl_rule_sum(own, i, n, gradient->bonus[i]);
    FL_EACH(i, n) {
        float replaced = key[i] * (1.0f + (input->factors[RATE][i] - 1.0f) * replacement[i]);
        of_query[i] = gradient->query[i] + (float)own * replaced * bonus[i];
        of_key[i] = gradient->key[i] + (float)own * query[i] * bonus[i];
        if (out->parameters != NULL) out->parameters[BONUS][at + i] += (float)own * query[i] * replaced;
    }
    FL_JOIN();
}

/* Through decay, directions, rate and replacement; of_key becomes that of the key before the replacement. */
FL_RULE_FUNCTION void channels_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                        const float *key, const float *direction, float *of_direction,
                                        float *of_key, fl_rule_input_gradient *out) {
    size_t at = input->head * input->head_dim;
    const float *replacement = input->parameters[REPLACEMENT] + at, *rate = input->factors[RATE];
    FL_EACH(i, input->head_dim) {
        double growth = exp(DECAY * input->gate[i]), of_read = gradient->erase_read[i];
        float of_replaced = of_key[i];
        out->gate[i] = (float)(DECAY * (of_read * direction[i] * growth - gradient->log_decay[i]));
        of_direction[i] = (float)(gradient->erase_write[i] * rate[i] + of_read * growth);
        out->factors[RATE][i] =
            gradient->erase_write[i] * direction[i] + of_replaced * key[i] * replacement[i];
        of_key[i] = of_replaced * (1.0f + (rate[i] - 1.0f) * replacement[i]);
        if (out->parameters != NULL)
            out->parameters[REPLACEMENT][at + i] += of_replaced * key[i] * (rate[i] - 1.0f);
    }
    FL_JOIN();
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    size_t n = input->head_dim, at = input->head * n;
    const float *removal = input->parameters[REMOVAL] + at;
    FL_VECTOR(query);
    FL_VECTOR(key);
    FL_VECTOR(of_query);
    FL_VECTOR(of_key);
    FL_VECTOR(removed);
    FL_VECTOR(direction);
    begin_backward(input, gradient, query, key, of_query, of_key, out);
    removed_key(input, removed);
    fl_rule_unit(n, removed, direction);
    channels_backward(input, gradient, key, direction, query /* not needed any more */, of_key, out);
    fl_rule_output_gradient passed = *gradient;
    passed.query = of_query;
    passed.key = of_key;
    fl_rule_inputs_backward(unit(input), input, &passed, out);
    fl_rule_unit_backward(n, removed, query, direction);
    FL_EACH(i, n) {
        out->key[i] += direction[i] * removal[i];
        if (out->parameters != NULL) out->parameters[REMOVAL][at + i] += direction[i] * input->key[i];
    }
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

static const fl_option options[] = {
    {.key = "unit",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(rwkv7_options, unit),
     .default_text = "true",
     .help = "q and k of unit length: frozen keys are far from the scale the rule is trained with; false: as "
             "published"},
};

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

static const fl_rule_factor factors[] = {
    {.name = "rwkv7.rate",
     .axes = "D",
     .activation = FL_ACTIVATE_SIGMOID,
     .bias = -0.19,
     .help = "a: the in-context learning rate of every channel"},
};

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

#endif
