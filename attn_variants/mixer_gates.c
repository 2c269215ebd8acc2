#include "attn_variants/mixer_gates.h"

#include <math.h>
#include <stdio.h>

/* The layer's tensors. */

static fl_mixer_tensor find(const fl_mixer_plan *plan, const char *name, const char *part) {
    char full[sizeof((fl_mechanism_tensor *)0)->name];
    snprintf(full, sizeof full, "%s.%s", name, part);
    return fl_mixer_tensor_find(plan, full);
}

static void find_tensors(const fl_mixer_plan *plan, fl_mixer_projection *projection, const char *name) {
    projection->first = find(plan, name, "w1");
    bool low_rank = fl_array_is(projection->first.values);
    projection->weight = find(plan, name, low_rank ? "w2" : "weight");
    projection->bias = find(plan, name, "bias");
    projection->rate = find(plan, name, "a_log");
    projection->rank = low_rank ? projection->first.entry->shape[1] : 0;
}

static float constant_of(fl_gate_activation activation, double value) {
    return (float)(activation == FL_ACTIVATE_LOG_SIGMOID ? log(value) : value);
}

void fl_mixer_projections_find(fl_mixer_plan *plan) {
    const fl_variant *variant = plan->variant;
    const fl_rule *rule = plan->rule;
    size_t dim = plan->shape.head_dim;
    plan->projections[FL_PROJECT_GATE] =
        (fl_mixer_projection){.width = rule->gate == FL_GATE_NONE     ? 0
                                       : rule->gate == FL_GATE_SCALAR ? 1
                                                                      : dim,
                              .activation = rule->gate_activation,
                              .bounded = rule->gate_bounded,
                              .projected = variant->gate_source == FL_GATE_PROJECTED,
                              .constant = constant_of(rule->gate_activation, variant->gate_value)};
    plan->projections[FL_PROJECT_BETA] =
        (fl_mixer_projection){.width = variant->takes_beta ? 1 : 0,
                              .activation = rule->beta_activation,
                              .maximum = (float)variant->beta_maximum,
                              .projected = variant->beta_source == FL_GATE_PROJECTED,
                              .constant = constant_of(rule->beta_activation, variant->beta_value)};
    static const char *const names[FL_PROJECT_FACTORS] = {"gate", "beta"};
    for (size_t i = 0; i < FL_PROJECT_FACTORS; i++) {
        if (plan->projections[i].width > 0 && plan->projections[i].projected)
            find_tensors(plan, &plan->projections[i], names[i]);
    }
    plan->projection_count = FL_PROJECT_FACTORS + rule->factor_count;
    for (size_t i = 0; i < rule->factor_count; i++) {
        fl_mixer_projection *projection = &plan->projections[FL_PROJECT_FACTORS + i];
        *projection =
            (fl_mixer_projection){.width = fl_rule_factor_width(rule, i, dim, variant->rule_options),
                                  .activation = rule->factors[i].activation,
                                  .maximum = 1.0f,
                                  .projected = true};
        if (projection->width > 0) find_tensors(plan, projection, rule->factors[i].name);
    }
}

bool fl_mixer_projects(const fl_mixer_plan *plan) {
    for (size_t i = 0; i < plan->projection_count; i++) {
        if (plan->projections[i].width > 0 && plan->projections[i].projected) return true;
    }
    return false;
}

size_t fl_mixer_largest_rank(const fl_mixer_plan *plan) {
    size_t largest = 0;
    for (size_t i = 0; i < plan->projection_count; i++) {
        if (plan->projections[i].rank > largest) largest = plan->projections[i].rank;
    }
    return largest;
}

/* Forward. */

static fl_gates_call gates_call(const fl_mixer_block *block, size_t index) {
    const fl_mixer_projection *projection = &block->mixer->plan.projections[index];
    return (fl_gates_call){.tokens = block->tokens,
                           .heads = block->mixer->plan.shape.query_heads,
                           .width = projection->width,
                           .activation = projection->activation,
                           .maximum = projection->maximum,
                           .bias = projection->bias.values,
                           .rate = projection->rate.values,
                           .values = block->scratch->projected[index]};
}

/* The tanh between two factors. */
static fl_gates_call low_call(const fl_mixer_block *block, size_t index) {
    return (fl_gates_call){.tokens = block->tokens,
                           .heads = 1,
                           .width = block->mixer->plan.projections[index].rank,
                           .activation = FL_ACTIVATE_TANH,
                           .values = block->scratch->low[index]};
}

static void multiply(const fl_mixer_plan *plan, size_t tokens, size_t columns, size_t inner, fl_array input,
                     fl_array weight, fl_array output) {
    plan->compute->ops->matmul(plan->compute, false, false, tokens, columns, inner, 1.0f, input, inner,
                               weight, columns, 0.0f, output, columns);
}

/* h W, or (h W1) W2 with an optional tanh between. */
static void project(const fl_mixer_block *block, size_t index) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    const fl_mixer_projection *projection = &plan->projections[index];
    size_t columns = plan->shape.query_heads * projection->width, rank = projection->rank;
    fl_array output = block->scratch->projected[index], low = block->scratch->low[index];
    if (rank == 0) {
        multiply(plan, block->tokens, columns, plan->shape.model_dim, block->input, projection->weight.values,
                 output);
        return;
    }
    multiply(plan, block->tokens, rank, plan->shape.model_dim, block->input, projection->first.values, low);
    if (projection->bounded) {
        fl_gates_call bound = low_call(block, index);
        plan->compute->ops->gates(plan->compute, &bound);
    }
    multiply(plan, block->tokens, columns, rank, low, projection->weight.values, output);
}

void fl_mixer_project(const fl_mixer_block *block) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    for (size_t i = 0; i < plan->projection_count; i++) {
        const fl_mixer_projection *projection = &plan->projections[i];
        size_t count = block->tokens * plan->shape.query_heads * projection->width;
        if (count == 0) continue;
        if (!projection->projected) {
            fl_compute_fill(plan->compute, block->scratch->projected[i], count, projection->constant);
            continue;
        }
        project(block, i);
        fl_gates_call gates = gates_call(block, i);
        plan->compute->ops->gates(plan->compute, &gates);
    }
}

/* Backward. */

/* x [T][columns] = input [T][inner] W: adds to W's gradient, and to (or over) the input's when wanted. */
static void multiply_backward(const fl_mixer_block *block, size_t columns, size_t inner, fl_array input,
                              fl_array gradient, fl_array weight, fl_array gradient_weight,
                              fl_array gradient_input, bool accumulate) {
    fl_compute *compute = block->mixer->plan.compute;
    size_t tokens = block->tokens;
    if (fl_array_is(gradient_weight)) {
        compute->ops->matmul(compute, true, false, inner, columns, tokens, 1.0f, input, inner, gradient,
                             columns, 1.0f, gradient_weight, columns);
    }
    if (!fl_array_is(gradient_input)) return;
    compute->ops->matmul(compute, false, true, tokens, inner, columns, 1.0f, gradient, columns, weight,
                         columns, accumulate ? 1.0f : 0.0f, gradient_input, inner);
}

static void projection_backward(const fl_mixer_block *block, size_t index, fl_array gradient, fl_array low,
                                fl_array parameters, fl_array gradient_input) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    const fl_mixer_projection *projection = &plan->projections[index];
    size_t columns = plan->shape.query_heads * projection->width, rank = projection->rank;
    fl_gates_call gates = gates_call(block, index);
    fl_gates_gradients of_gates = {.values = gradient,
                                   .bias = fl_mixer_tensor_gradient(projection->bias, parameters),
                                   .rate = fl_mixer_tensor_gradient(projection->rate, parameters)};
    plan->compute->ops->gates_backward(plan->compute, &gates, &of_gates);
    fl_array of_weight = fl_mixer_tensor_gradient(projection->weight, parameters);
    if (rank == 0) {
        multiply_backward(block, columns, plan->shape.model_dim, block->input, gradient,
                          projection->weight.values, of_weight, gradient_input, true);
        return;
    }
    multiply_backward(block, columns, rank, block->scratch->low[index], gradient, projection->weight.values,
                      of_weight, low, false);
    if (projection->bounded) {
        fl_gates_call bound = low_call(block, index);
        fl_gates_gradients of_bound = {.values = low};
        plan->compute->ops->gates_backward(plan->compute, &bound, &of_bound);
    }
    multiply_backward(block, rank, plan->shape.model_dim, block->input, low, projection->first.values,
                      fl_mixer_tensor_gradient(projection->first, parameters), gradient_input, true);
}

void fl_mixer_projections_backward(const fl_mixer_block *block, const fl_array *gradients, fl_array low,
                                   fl_array parameters, fl_array gradient_input) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    for (size_t i = 0; i < plan->projection_count; i++) {
        if (plan->projections[i].width > 0 && plan->projections[i].projected)
            projection_backward(block, i, gradients[i], low, parameters, gradient_input);
    }
}
