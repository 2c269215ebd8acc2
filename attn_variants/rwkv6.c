#include "harness/compute/rule_functions.h"

typedef struct rwkv6_options {
    bool unit;
} rwkv6_options;

FL_RULE_FUNCTION bool unit(const fl_rule_input *input) {
    return ((const rwkv6_options *)input->options)->unit;
}

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    size_t n = input->head_dim;
    const float *bonus = input->parameters[0] + input->head * n;
    fl_rule_inputs(unit(input), input, output);
    fl_rule_sum(own, i, n, (double)output->query[i] * bonus[i] * output->key[i]);
    FL_EACH(i, n) {
        output->log_decay[i] = -expf(input->gate[i]);
        output->bonus[i] = (float)own;
    }
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    size_t n = input->head_dim, at = input->head * n;
    const float *bonus = input->parameters[0] + at;
    FL_VECTOR(query);
    FL_VECTOR(key);
    FL_VECTOR(of_query);
    FL_VECTOR(of_key);
    fl_rule_output rows = {0};
    rows.query = query;
    rows.key = key;
    rows.value = of_query; /* overwritten below */
    fl_rule_inputs(unit(input), input, &rows);
    fl_rule_sum(own, i, n, gradient->bonus[i]);
    FL_EACH(i, n) {
        of_query[i] = gradient->query[i] + (float)own * bonus[i] * key[i];
        of_key[i] = gradient->key[i] + (float)own * bonus[i] * query[i];
        out->gate[i] = -expf(input->gate[i]) * gradient->log_decay[i];
        if (out->parameters != NULL) out->parameters[0][at + i] += (float)own * query[i] * key[i];
    }
    FL_JOIN();
    fl_rule_output_gradient passed = *gradient;
    passed.query = of_query;
    passed.key = of_key;
    fl_rule_inputs_backward(unit(input), input, &passed, out);
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

static const fl_option options[] = {
    {.key = "unit",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(rwkv6_options, unit),
     .default_text = "true",
     .help = "q and k of unit length: frozen keys are far from the scale the rule is trained with; false: as "
             "published"},
};

static const fl_rule_parameter parameters[] = {
    {.name = "rwkv6.bonus",
     .axes = "HD",
     .init = "1",
     .help = "u: the weight of a token in its own read, with window: 0"},
};

const fl_rule fl_rule_rwkv6 = {
    .abi = FL_RULE_ABI,
    .name = "rwkv6",
    .summary =
        "a decay for every channel; a token reads the state before it, and itself with a weight of its own",
    .equation = "y = S q + (q . (u*k)) v;  S = S diag(w) + v k^T, w = exp(-exp(x))",
    .source = "Peng et al. 2024, arXiv 2404.05892",
    .differs = "token shift, group norm and output gate are the layer's. With a window the current token is "
               "exact, and a "
               "read sees every write up to its step, as with all rules. unit: false is the published scale.",
    .gate = FL_GATE_CHANNEL,
    .gate_activation = FL_ACTIVATE_RAW,
    .gate_bounded = true,
    .default_gate_bias = -4.0,
    .transition = {FL_DECAY_CHANNEL, FL_ERASE_NONE},
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_bytes = sizeof(rwkv6_options),
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof parameters[0],
    .bonus = true,
    .reads_before = true,
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};

#endif
