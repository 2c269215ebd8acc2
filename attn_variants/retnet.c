#include "harness/compute/rule_functions.h"

typedef struct retnet_options {
    bool unit;
} retnet_options;

FL_RULE_FUNCTION bool is_published(const void *chosen) {
    return !((const retnet_options *)chosen)->unit;
}

FL_RULE_FUNCTION bool unit(const fl_rule_input *input) {
    return !is_published(input->options);
}

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_inputs(unit(input), input, output);
    FL_ONCE output->log_decay[0] = (float)log1p(-exp2(-5.0 - (double)input->head));
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    fl_rule_inputs_backward(unit(input), input, gradient, out);
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

static const fl_option options[] = {
    {.key = "unit",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(retnet_options, unit),
     .default_text = "true",
     .help = "q and k of unit length: frozen keys are far from the scale the rule is trained with; false: as "
             "published, with scale: sqrt_dim"},
};

const fl_rule fl_rule_retnet = {
    .abi = FL_RULE_ABI,
    .name = "retnet",
    .summary = "retention: a fixed decay for every head, slower from head to head",
    .equation = "S = g S + v k^T, g = 1 - 2^(-5 - head);  y = S q",
    .source = "Sun et al. 2023, arXiv 2307.08621",
    .transition = {FL_DECAY_SCALAR, FL_ERASE_NONE},
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_bytes = sizeof(retnet_options),
    .scaled = is_published,
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};

#endif
