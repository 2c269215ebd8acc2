#include "attn_variants/mixer_gates.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/compute/vector_math.h"

/* The layer's tensors. */

static fl_mixer_tensor find(const fl_mixer_plan *plan, const char *name, const char *part) {
    char full[sizeof((fl_mechanism_tensor *)0)->name];
    snprintf(full, sizeof full, "%s.%s", name, part);
    return fl_mixer_tensor_find(plan, full);
}

static void find_tensors(const fl_mixer_plan *plan, fl_mixer_projection *projection, const char *name) {
    projection->first = find(plan, name, "w1");
    bool low_rank = projection->first.values != NULL;
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

static void activate(const fl_mixer_projection *projection, float rate, size_t count, float *x) {
    if (projection->rate.values != NULL) { /* log a = -exp(a_log) softplus(x) */
        fl_vector_softplus(count, x, x);
        for (size_t i = 0; i < count; i++) x[i] *= -rate;
    } else if (projection->activation == FL_ACTIVATE_LOG_SIGMOID) {
        fl_vector_log_sigmoid(count, x, x);
    } else if (projection->activation == FL_ACTIVATE_SIGMOID) {
        fl_vector_sigmoid(count, x, x);
        for (size_t i = 0; projection->maximum > 1.0f && i < count; i++) x[i] *= projection->maximum;
    }
}

static float rate_of(const fl_mixer_projection *projection, size_t head) {
    return projection->rate.values == NULL ? 0.0f : expf(projection->rate.values[head]);
}

void fl_mixer_activate(const fl_mixer_plan *plan, size_t index, size_t head, float *x) {
    const fl_mixer_projection *projection = &plan->projections[index];
    if (!projection->projected || index == FL_PROJECT_BETA) return;
    const float *bias = projection->bias.values + head * projection->width;
    for (size_t i = 0; i < projection->width; i++) x[i] += bias[i];
    activate(projection, rate_of(projection, head), projection->width, x);
}

static void multiply(const fl_mixer_plan *plan, size_t tokens, size_t columns, size_t inner,
                     const float *input, const float *weight, float *output) {
    plan->compute->ops->matmul(plan->compute, false, false, tokens, columns, inner, 1.0f, input, inner,
                               weight, columns, 0.0f, output, columns);
}

/* h W, or (h W1) W2 with an optional tanh between. */
static void project(const fl_mixer_block *block, size_t index) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    const fl_mixer_projection *projection = &plan->projections[index];
    size_t columns = plan->shape.query_heads * projection->width, rank = projection->rank;
    float *output = block->scratch->projected[index], *low = block->scratch->low[index];
    if (rank == 0) {
        multiply(plan, block->tokens, columns, plan->shape.model_dim, block->input, projection->weight.values,
                 output);
        return;
    }
    multiply(plan, block->tokens, rank, plan->shape.model_dim, block->input, projection->first.values, low);
    for (size_t i = 0; projection->bounded && i < block->tokens * rank; i++) low[i] = tanhf(low[i]);
    multiply(plan, block->tokens, columns, rank, low, projection->weight.values, output);
}

void fl_mixer_project(const fl_mixer_block *block) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    size_t heads = plan->shape.query_heads;
    for (size_t i = 0; i < plan->projection_count; i++) {
        const fl_mixer_projection *projection = &plan->projections[i];
        float *values = block->scratch->projected[i];
        size_t count = block->tokens * heads * projection->width;
        if (count == 0) continue;
        if (projection->projected) {
            project(block, i);
        } else {
            for (size_t j = 0; j < count; j++) values[j] = projection->constant;
        }
        if (i != FL_PROJECT_BETA || !projection->projected) continue;
        for (size_t token = 0; token < block->tokens; token++) {
            for (size_t head = 0; head < heads; head++)
                values[token * heads + head] += projection->bias.values[head];
        }
        activate(projection, 0.0f, count, values);
    }
}

/* Backward. */

/* gradient [tokens][columns]: with respect to the activated value, in place to the raw one. */
typedef struct fl_activation_work {
    const fl_mixer_projection *projection;
    size_t heads;
    const float *activated;
    float *gradient;
} fl_activation_work;

enum { ACTIVATION_PIECE = 64 };

/* y = 1 - exp(x) for x <= 0, within 1.1e-7 of itself: a series where the difference would cancel. NaN stays.
 * Loops over local arrays of one length, so that they go into vector registers. */
static void one_minus_exp(const float *x, float *y) {
    float series[ACTIVATION_PIECE], power[ACTIVATION_PIECE], at[ACTIVATION_PIECE];
    memcpy(at, x, sizeof at);
    fl_vector_exp(ACTIVATION_PIECE, at, power);
    for (size_t i = 0; i < ACTIVATION_PIECE; i++) {
        float sum = 1.0f + at[i] * (1.0f / 8.0f);
        sum = 1.0f + at[i] * sum * (1.0f / 7.0f);
        sum = 1.0f + at[i] * sum * (1.0f / 6.0f);
        sum = 1.0f + at[i] * sum * (1.0f / 5.0f);
        sum = 1.0f + at[i] * sum * (1.0f / 4.0f);
        sum = 1.0f + at[i] * sum * (1.0f / 3.0f);
        series[i] = -at[i] * (1.0f + at[i] * sum * (1.0f / 2.0f));
    }
    for (size_t i = 0; i < ACTIVATION_PIECE; i++) power[i] = 1.0f - power[i];
    for (size_t i = 0; i < ACTIVATION_PIECE; i++) power[i] = at[i] > -0.5f ? series[i] : power[i];
    memcpy(y, power, sizeof power);
}

/* d log sigmoid(x) / dx = 1 - sigmoid(x) = 1 - exp(y). With y = -r softplus(x):
 * dy / dx = -r sigmoid(x) = -r (1 - exp(-softplus(x))) = -r (1 - exp(y / r)). */
static void decay_backward(float rate, size_t count, const float *activated, float *gradient) {
    float inverse = rate > 0.0f ? 1.0f / rate : 1.0f, factor = rate > 0.0f ? -rate : 1.0f;
    for (size_t done = 0; done < count; done += ACTIVATION_PIECE) {
        size_t part = count - done < ACTIVATION_PIECE ? count - done : ACTIVATION_PIECE;
        float log_value[ACTIVATION_PIECE] = {0}, slope[ACTIVATION_PIECE];
        memcpy(log_value, activated + done, part * sizeof *activated);
        for (size_t i = 0; rate > 0.0f && i < part; i++) log_value[i] *= inverse;
        one_minus_exp(log_value, slope);
        for (size_t i = 0; i < part; i++) gradient[done + i] *= factor * slope[i];
    }
}

static void activation_backward_token(void *context, size_t token, size_t worker) {
    (void)worker;
    const fl_activation_work *work = context;
    const fl_mixer_projection *projection = work->projection;
    size_t width = projection->width, columns = work->heads * width;
    const float *activated = work->activated + token * columns;
    float *gradient = work->gradient + token * columns;
    if (projection->rate.values != NULL) {
        for (size_t head = 0; head < work->heads; head++)
            decay_backward(rate_of(projection, head), width, activated + head * width,
                           gradient + head * width);
    } else if (projection->activation == FL_ACTIVATE_LOG_SIGMOID) {
        decay_backward(0.0f, columns, activated, gradient);
    } else if (projection->activation == FL_ACTIVATE_SIGMOID) {
        float inverse = projection->maximum > 1.0f ? 1.0f / projection->maximum : 1.0f;
        for (size_t i = 0; i < columns; i++) gradient[i] *= activated[i] * (1.0f - activated[i] * inverse);
    }
}

/* y = -exp(a_log) softplus(x): dy / d a_log = y. */
static void rate_backward(const fl_activation_work *work, size_t tokens, float *rates) {
    size_t width = work->projection->width, columns = work->heads * width;
    for (size_t head = 0; head < work->heads; head++) {
        double sum = 0.0;
        for (size_t token = 0; token < tokens; token++) {
            size_t at = token * columns + head * width;
            for (size_t i = 0; i < width; i++)
                sum += (double)work->gradient[at + i] * work->activated[at + i];
        }
        rates[head] += (float)sum;
    }
}

/* x [T][columns] = input [T][inner] W: adds to W's gradient, and to (or over) the input's when wanted. */
static void multiply_backward(const fl_mixer_block *block, size_t columns, size_t inner, const float *input,
                              const float *gradient, const float *weight, float *gradient_weight,
                              float *gradient_input, bool accumulate) {
    fl_compute *compute = block->mixer->plan.compute;
    size_t tokens = block->tokens;
    if (gradient_weight != NULL) {
        compute->ops->matmul(compute, true, false, inner, columns, tokens, 1.0f, input, inner, gradient,
                             columns, 1.0f, gradient_weight, columns);
    }
    if (gradient_input == NULL) return;
    compute->ops->matmul(compute, false, true, tokens, inner, columns, 1.0f, gradient, columns, weight,
                         columns, accumulate ? 1.0f : 0.0f, gradient_input, inner);
}

static void projection_backward(const fl_mixer_block *block, size_t index, float *gradient, float *low,
                                float *parameters, float *gradient_input) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    const fl_mixer_projection *projection = &plan->projections[index];
    size_t heads = plan->shape.query_heads, columns = heads * projection->width, rank = projection->rank;
    fl_activation_work work = {projection, heads, block->scratch->projected[index], gradient};
    float *rates = fl_mixer_tensor_gradient(projection->rate, parameters);
    if (rates != NULL) rate_backward(&work, block->tokens, rates);
    fl_threads_for(plan->compute->threads, block->tokens, activation_backward_token, &work);
    float *bias = fl_mixer_tensor_gradient(projection->bias, parameters);
    for (size_t token = 0; bias != NULL && token < block->tokens; token++) {
        for (size_t i = 0; i < columns; i++) bias[i] += gradient[token * columns + i];
    }
    float *of_weight = fl_mixer_tensor_gradient(projection->weight, parameters);
    if (rank == 0) {
        multiply_backward(block, columns, plan->shape.model_dim, block->input, gradient,
                          projection->weight.values, of_weight, gradient_input, true);
        return;
    }
    const float *kept = block->scratch->low[index];
    multiply_backward(block, columns, rank, kept, gradient, projection->weight.values, of_weight, low, false);
    for (size_t i = 0; projection->bounded && i < block->tokens * rank; i++)
        low[i] *= 1.0f - kept[i] * kept[i];
    multiply_backward(block, rank, plan->shape.model_dim, block->input, low, projection->first.values,
                      fl_mixer_tensor_gradient(projection->first, parameters), gradient_input, true);
}

void fl_mixer_projections_backward(const fl_mixer_block *block, float *const *gradients, float *low,
                                   float *parameters, float *gradient_input) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    for (size_t i = 0; i < plan->projection_count; i++) {
        if (plan->projections[i].width > 0 && plan->projections[i].projected)
            projection_backward(block, i, gradients[i], low, parameters, gradient_input);
    }
}
