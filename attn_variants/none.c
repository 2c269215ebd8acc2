#include "attn_variants/attn_variant.h"

const fl_rule fl_rule_none = {
    .abi = FL_RULE_ABI,
    .name = "none",
    .summary = "no linear part: softmax over sinks, window and cache only; the baseline of every report",
    .equation = "y_t = 0",
    .source = "Xiao et al. 2023, arXiv 2309.17453 (sinks and window)",
    .stateless = true,
};
