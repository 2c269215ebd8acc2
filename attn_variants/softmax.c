#include "attn_variants/attn_variant.h"

const fl_rule fl_rule_softmax = {
    .abi = FL_RULE_ABI,
    .name = "softmax",
    .summary = "the frozen softmax attention itself, in every layer; interventions have no effect on it",
    .equation = "y_t = sum_i softmax_i(q_t.k_i / sqrt(D)) v_i",
    .source = "Vaswani et al. 2017, arXiv 1706.03762",
    .stateless = true,
};
