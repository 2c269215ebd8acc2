#include <math.h>
#include <stddef.h>

#include "attn_variants/attn_variant.h"

typedef struct retnet_options {
    bool unit;
} retnet_options;

static const fl_option options[] = {
    {.key = "unit",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(retnet_options, unit),
     .default_text = "true",
     .help = "q and k of unit length: frozen keys are far from the scale the rule is trained with; false: as "
             "published, with scale: sqrt_dim"},
};

static bool is_published(const void *chosen) {
    return !((const retnet_options *)chosen)->unit;
}

static bool unit(const fl_rule_input *input) {
    return !is_published(input->options);
}

static void prepare(const fl_rule_input *input, fl_rule_output *output) {
    (unit(input) ? fl_rule_unit_inputs : fl_rule_raw_inputs)(input, output);
    output->log_decay[0] = (float)log1p(-exp2(-5.0 - (double)input->head));
}

static void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                             fl_rule_input_gradient *out) {
    (unit(input) ? fl_rule_unit_inputs_backward : fl_rule_raw_inputs_backward)(input, gradient, out);
}

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
