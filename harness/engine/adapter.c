#include "harness/engine/adapter.h"

#include <stdio.h>

enum { NAME_BYTES = 48 };

static fl_adapter_part part_of(const fl_mechanism *mechanism, size_t layer, fl_lora_target target) {
    char a[NAME_BYTES], b[NAME_BYTES];
    snprintf(a, sizeof a, "lora.%s.a", fl_lora_target_name(target));
    snprintf(b, sizeof b, "lora.%s.b", fl_lora_target_name(target));
    const fl_mechanism_tensor *left = fl_mechanism_find_tensor(mechanism, a);
    const fl_mechanism_tensor *right = fl_mechanism_find_tensor(mechanism, b);
    return (fl_adapter_part){.a = fl_array_of(mechanism->layer[layer] + left->offset),
                             .b = fl_array_of(mechanism->layer[layer] + right->offset),
                             .in = left->shape[0],
                             .out = right->shape[1],
                             .offset_a = left->offset,
                             .offset_b = right->offset};
}

fl_adapter fl_adapter_of(const fl_mechanism *mechanism, size_t layer) {
    fl_adapter adapter = {0};
    if (mechanism == NULL || mechanism->variant->lora_rank == 0 || mechanism->layer[layer] == NULL)
        return adapter;
    adapter.rank = mechanism->variant->lora_rank;
    adapter.scale = (float)(mechanism->variant->lora_alpha / (double)adapter.rank);
    for (size_t i = 0; i < FL_LORA_TARGETS; i++) {
        if (mechanism->variant->lora_targets[i])
            adapter.parts[i] = part_of(mechanism, layer, (fl_lora_target)i);
    }
    return adapter;
}

void fl_adapter_forward(fl_compute *compute, const fl_adapter *adapter, fl_lora_target target, size_t tokens,
                        fl_array input, fl_array low, fl_array output) {
    const fl_adapter_part *part = &adapter->parts[target];
    size_t rank = adapter->rank;
    if (!fl_array_is(part->a)) return;
    compute->ops->matmul(compute, false, false, tokens, rank, part->in, 1.0f, input, part->in, part->a, rank,
                         0.0f, low, rank);
    compute->ops->matmul(compute, false, false, tokens, part->out, rank, adapter->scale, low, rank, part->b,
                         part->out, 1.0f, output, part->out);
}

void fl_adapter_backward(fl_compute *compute, const fl_adapter *adapter, fl_lora_target target, size_t tokens,
                         fl_array input, fl_array gradient_output, fl_array low, fl_array gradient_parameters,
                         fl_array gradient_input) {
    const fl_adapter_part *part = &adapter->parts[target];
    const fl_compute_ops *ops = compute->ops;
    size_t rank = adapter->rank;
    fl_array gradient_low = fl_array_from(low, tokens * rank);
    if (!fl_array_is(part->a)) return;
    ops->matmul(compute, false, false, tokens, rank, part->in, 1.0f, input, part->in, part->a, rank, 0.0f,
                low, rank);
    ops->matmul(compute, true, false, rank, part->out, tokens, adapter->scale, low, rank, gradient_output,
                part->out, 1.0f, fl_array_from(gradient_parameters, part->offset_b), part->out);
    ops->matmul(compute, false, true, tokens, rank, part->out, adapter->scale, gradient_output, part->out,
                part->b, part->out, 0.0f, gradient_low, rank);
    ops->matmul(compute, true, false, part->in, rank, tokens, 1.0f, input, part->in, gradient_low, rank, 1.0f,
                fl_array_from(gradient_parameters, part->offset_a), rank);
    if (!fl_array_is(gradient_input)) return;
    ops->matmul(compute, false, true, tokens, part->in, rank, 1.0f, gradient_low, rank, part->a, rank, 1.0f,
                gradient_input, part->in);
}
