#include "harness/compute/rule_functions.h"

typedef struct lightning_options {
    bool unit;
} lightning_options;

FL_RULE_FUNCTION bool is_published(const void *chosen) {
    return !((const lightning_options *)chosen)->unit;
}

FL_RULE_FUNCTION bool unit(const fl_rule_input *input) {
    return !is_published(input->options);
}

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    double depth = (double)input->layer / (double)input->layers;
    fl_rule_inputs(unit(input), input, output);
    FL_ONCE output->log_decay[0] = (float)(-8.0 / (double)input->heads * (1.0 - depth) * (double)input->head);
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
     .offset = offsetof(lightning_options, unit),
     .default_text = "true",
     .help = "q and k of unit length: frozen keys are far from the scale the rule is trained with; false: as "
             "published, with scale: sqrt_dim"},
};

const fl_rule fl_rule_lightning = {
    .abi = FL_RULE_ABI,
    .name = "lightning",
    .summary = "linear attention with a fixed slope for every head and layer: deeper layers forget less",
    .equation = "S = g S + v k^T, g = exp(-8 head / H (1 - layer / L));  y = S q",
    .source = "Qin et al. 2024, arXiv 2401.04658",
    .transition = {FL_DECAY_SCALAR, FL_ERASE_NONE},
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_bytes = sizeof(lightning_options),
    .scaled = is_published,
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};

#endif
