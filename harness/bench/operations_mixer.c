/* What a mixer does beside attention and the recurrence: gates, the short convolution, the merge. */
#include <math.h>
#include <string.h>

#include "harness/bench/operation_list.h"

#define SLOT(name_) .name = #name_, .slot = offsetof(fl_compute_ops, name_)

static bool coin(fl_trial *trial) {
    return fl_random_below(&trial->random, 2) == 1;
}

/* --- gates --- */

typedef struct {
    fl_gates_call call;
    fl_gates_gradients gradients;
    fl_trial_input x, bias, rate, gradient, bias_before, rate_before;
    double *given; /* [T][H][width] of the gradient before the call */
} gates_case;

static double log_sigmoid(double x) {
    return x < 0.0 ? x - log1p(exp(x)) : -log1p(exp(-x));
}

static double gate_of(const gates_case *c, size_t at) {
    const size_t columns = c->call.heads * c->call.width, column = at % columns;
    const double x = c->x.wide[at] + (c->bias.wide != NULL ? c->bias.wide[column] : 0.0);
    if (c->rate.wide != NULL) return exp(c->rate.wide[column / c->call.width]) * log_sigmoid(-x);
    switch (c->call.activation) {
    case FL_ACTIVATE_LOG_SIGMOID:
        return log_sigmoid(x);
    case FL_ACTIVATE_SIGMOID:
        return fmax((double)c->call.maximum, 1.0) / (1.0 + exp(-x));
    case FL_ACTIVATE_TANH:
        return tanh(x);
    case FL_ACTIVATE_RAW:
    case FL_ACTIVATE_UNSET:
        break;
    }
    return x;
}

static double gates_loss(const void *context) {
    const gates_case *c = context;
    double loss = 0.0;
    for (size_t i = 0; i < c->x.count; i++) loss += c->given[i] * gate_of(c, i);
    return loss;
}

static fl_status make_gates_case(fl_trial *trial, gates_case **out, fl_error *error) {
    static const fl_gate_activation activations[] = {FL_ACTIVATE_LOG_SIGMOID, FL_ACTIVATE_SIGMOID,
                                                     FL_ACTIVATE_RAW, FL_ACTIVATE_TANH};
    gates_case *c = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = *out = c;
    c->call = (fl_gates_call){.tokens = trial->sizes[0],
                              .heads = trial->sizes[1],
                              .width = trial->sizes[2],
                              .activation = activations[fl_random_below(&trial->random, 4)],
                              .maximum = coin(trial) ? 2.0f : 0.0f};
    const size_t columns = c->call.heads * c->call.width;
    FL_TRY(fl_trial_normals(trial, c->call.tokens * columns, 3.0, &c->x, error));
    if (coin(trial)) FL_TRY(fl_trial_normals(trial, columns, 1.0, &c->bias, error));
    if (c->call.activation == FL_ACTIVATE_LOG_SIGMOID && coin(trial))
        FL_TRY(fl_trial_normals(trial, c->call.heads, 0.5, &c->rate, error));
    c->call.bias = c->bias.array;
    c->call.rate = c->rate.array;
    c->call.values = c->x.array;
    trial->bytes = 2.0 * sizeof(float) * (double)c->x.count;
    return FL_OK;
}

static fl_status make_gates(fl_trial *trial, fl_error *error) {
    gates_case *c = NULL;
    double *expected = NULL;
    FL_TRY(make_gates_case(trial, &c, error));
    FL_TRY(fl_trial_expect(trial, "values", c->x.array, c->x.count, &expected, error));
    for (size_t i = 0; i < c->x.count; i++) expected[i] = gate_of(c, i);
    return FL_OK;
}

static fl_status call_gates(fl_trial *trial, fl_error *error) {
    const gates_case *c = trial->context;
    (void)error;
    trial->compute->ops->gates(trial->compute, &c->call);
    return FL_OK;
}

static fl_status make_gates_backward(fl_trial *trial, fl_error *error) {
    gates_case *c = NULL;
    double *activated = NULL;
    fl_trial_input values;
    FL_TRY(make_gates_case(trial, &c, error));
    FL_TRY(fl_trial_normals(trial, c->x.count, 1.0, &c->gradient, error));
    c->given = c->gradient.wide;
    FL_TRY(fl_trial_block(trial, c->x.count, sizeof *activated, &activated, error));
    for (size_t i = 0; i < c->x.count; i++) activated[i] = gate_of(c, i);
    FL_TRY(fl_trial_upload(trial, c->x.count, activated, &values, error));
    c->call.values = values.array;
    c->gradients.values = c->gradient.array;
    FL_TRY(fl_trial_expect_gradient(trial, "gradient of x", c->gradient.array, c->x.count, c->x.wide,
                                    gates_loss, c, NULL, error));
    if (c->bias.wide != NULL) {
        FL_TRY(fl_trial_normals(trial, c->bias.count, 1.0, &c->bias_before, error));
        c->gradients.bias = c->bias_before.array;
        FL_TRY(fl_trial_expect_gradient(trial, "gradient of bias", c->bias_before.array, c->bias.count,
                                        c->bias.wide, gates_loss, c, c->bias_before.wide, error));
    }
    if (c->rate.wide == NULL) return FL_OK;
    FL_TRY(fl_trial_normals(trial, c->rate.count, 1.0, &c->rate_before, error));
    c->gradients.rate = c->rate_before.array;
    return fl_trial_expect_gradient(trial, "gradient of rate", c->rate_before.array, c->rate.count,
                                    c->rate.wide, gates_loss, c, c->rate_before.wide, error);
}

static fl_status call_gates_backward(fl_trial *trial, fl_error *error) {
    const gates_case *c = trial->context;
    (void)error;
    trial->compute->ops->gates_backward(trial->compute, &c->call, &c->gradients);
    return FL_OK;
}

/* --- short convolution --- */

typedef struct {
    fl_short_conv_call call;
    fl_short_conv_gradients gradients;
    fl_trial_input input, history, weight, bias, given;
    fl_trial_input input_before, weight_before, bias_before;
    fl_array taps, output;
} conv_case;

/* Channel `channel` of a source head's token, from the history before token 0. */
static double source_of(const conv_case *c, long token, size_t source, size_t channel) {
    const size_t width = c->call.source_heads * c->call.head_dim, at = source * c->call.head_dim + channel;
    if (token >= 0) return c->input.wide[(size_t)token * width + at];
    return c->history.wide != NULL ? c->history.wide[(size_t)(token + (long)c->call.kernel - 1) * width + at]
                                   : 0.0;
}

static double convolved(const conv_case *c, size_t token, size_t head, size_t channel) {
    const size_t kernel = c->call.kernel, row = head * c->call.head_dim + channel;
    const size_t source = head / (c->call.heads / c->call.source_heads);
    double sum = c->bias.wide[row];
    for (size_t i = 0; i < kernel; i++) {
        sum += c->weight.wide[row * kernel + i] *
               source_of(c, (long)token - (long)kernel + 1 + (long)i, source, channel);
    }
    return sum;
}

static double conv_loss(const void *context) {
    const conv_case *c = context;
    const size_t heads = c->call.heads, dim = c->call.head_dim;
    double loss = 0.0;
    for (size_t i = 0; i < c->call.tokens * heads * dim; i++)
        loss += c->given.wide[i] * convolved(c, i / (heads * dim), i / dim % heads, i % dim);
    return loss;
}

static fl_status make_conv_case(fl_trial *trial, conv_case **out, fl_error *error) {
    conv_case *c = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = *out = c;
    c->call = (fl_short_conv_call){.tokens = trial->sizes[0],
                                   .heads = trial->sizes[1] * trial->sizes[2],
                                   .source_heads = trial->sizes[1],
                                   .head_dim = trial->sizes[3],
                                   .kernel = trial->sizes[4]};
    const size_t channels = c->call.heads * c->call.head_dim, kernel = c->call.kernel;
    const size_t width = c->call.source_heads * c->call.head_dim;
    FL_TRY(fl_trial_normals(trial, c->call.tokens * width, 1.0, &c->input, error));
    FL_TRY(fl_trial_normals(trial, channels * kernel, 1.0, &c->weight, error));
    FL_TRY(fl_trial_normals(trial, channels, 1.0, &c->bias, error));
    FL_TRY(fl_trial_array(trial, kernel * channels, FL_FLOAT32, &c->taps, error));
    FL_TRY(fl_trial_array(trial, c->call.tokens * channels, FL_FLOAT32, &c->output, error));
    c->call.input = c->input.array;
    c->call.weight = c->weight.array;
    c->call.bias = c->bias.array;
    c->call.taps = c->taps;
    c->call.output = c->output;
    trial->bytes = 2.0 * sizeof(float) * (double)(c->call.tokens * channels);
    return FL_OK;
}

static fl_status draw_history(fl_trial *trial, conv_case *c, fl_error *error) {
    const size_t width = c->call.source_heads * c->call.head_dim;
    FL_TRY(fl_trial_normals(trial, (c->call.kernel - 1) * width, 1.0, &c->history, error));
    c->call.history = c->history.array;
    return FL_OK;
}

static fl_status make_conv(fl_trial *trial, fl_error *error) {
    conv_case *c = NULL;
    double *expected = NULL;
    FL_TRY(make_conv_case(trial, &c, error));
    FL_TRY(draw_history(trial, c, error));
    const size_t heads = c->call.heads, dim = c->call.head_dim, count = c->call.tokens * heads * dim;
    FL_TRY(fl_trial_expect(trial, "output", c->output, count, &expected, error));
    for (size_t i = 0; i < count; i++)
        expected[i] = convolved(c, i / (heads * dim), i / dim % heads, i % dim);
    return FL_OK;
}

static fl_status call_conv(fl_trial *trial, fl_error *error) {
    const conv_case *c = trial->context;
    (void)error;
    trial->compute->ops->short_conv(trial->compute, &c->call);
    return FL_OK;
}

static fl_status make_remember(fl_trial *trial, fl_error *error) {
    conv_case *c = NULL;
    double *expected = NULL;
    FL_TRY(make_conv_case(trial, &c, error));
    FL_TRY(draw_history(trial, c, error));
    const size_t width = c->call.source_heads * c->call.head_dim, kept = c->call.kernel - 1;
    FL_TRY(fl_trial_expect(trial, "history", c->history.array, kept * width, &expected, error));
    for (size_t i = 0; i < kept * width; i++) {
        const long token = (long)c->call.tokens - (long)kept + (long)(i / width);
        const size_t dim = c->call.head_dim;
        expected[i] = source_of(c, token, i % width / dim, i % dim);
    }
    return FL_OK;
}

static fl_status call_remember(fl_trial *trial, fl_error *error) {
    const conv_case *c = trial->context;
    (void)error;
    trial->compute->ops->short_conv_remember(trial->compute, &c->call, c->history.array);
    return FL_OK;
}

static fl_status make_conv_backward(fl_trial *trial, fl_error *error) {
    conv_case *c = NULL;
    FL_TRY(make_conv_case(trial, &c, error));
    FL_TRY(fl_trial_normals(trial, c->call.tokens * c->call.heads * c->call.head_dim, 1.0, &c->given, error));
    FL_TRY(fl_trial_normals(trial, c->input.count, 1.0, &c->input_before, error));
    FL_TRY(fl_trial_normals(trial, c->weight.count, 1.0, &c->weight_before, error));
    FL_TRY(fl_trial_normals(trial, c->bias.count, 1.0, &c->bias_before, error));
    c->gradients = (fl_short_conv_gradients){.output = c->given.array,
                                             .input = c->input_before.array,
                                             .weight = c->weight_before.array,
                                             .bias = c->bias_before.array};
    FL_TRY(fl_trial_expect_gradient(trial, "gradient of input", c->input_before.array, c->input.count,
                                    c->input.wide, conv_loss, c, c->input_before.wide, error));
    FL_TRY(fl_trial_expect_gradient(trial, "gradient of weight", c->weight_before.array, c->weight.count,
                                    c->weight.wide, conv_loss, c, c->weight_before.wide, error));
    return fl_trial_expect_gradient(trial, "gradient of bias", c->bias_before.array, c->bias.count,
                                    c->bias.wide, conv_loss, c, c->bias_before.wide, error);
}

static fl_status call_conv_backward(fl_trial *trial, fl_error *error) {
    const conv_case *c = trial->context;
    (void)error;
    trial->compute->ops->short_conv_backward(trial->compute, &c->call, &c->gradients);
    return FL_OK;
}

/* --- merge --- */

typedef struct {
    fl_merge_call call;
    fl_merge_gradients gradients;
    fl_trial_input read, exact, log_sum_exp, largest, window_factor, given, factor_before;
    fl_array output, gradient_read, gradient_exact, gradient_log_sum_exp, gradient_largest;
} merge_case;

/* Read, value channel `channel` of a token and head. */
static double read_of(const merge_case *c, size_t row, size_t channel) {
    const fl_merge_call *call = &c->call;
    return c->read
        .wide[row / call->heads * call->read_stride + row % call->heads * call->read_head_stride + channel];
}

/* The definitions of merge.h, as they stand there. */
static double merged(const merge_case *c, size_t row, size_t channel) {
    const fl_merge merge = c->call.merge;
    const double a = c->exact.wide[row * c->call.head_dim + channel], y = read_of(c, row, channel);
    const double z = c->call.normaliser ? read_of(c, row, c->call.head_dim) : 1.0;
    if (merge == FL_MERGE_SUM) return a + y / z;
    if (merge == FL_MERGE_HALF) return 0.5 * a + 0.5 * y / z;
    double shift = c->log_sum_exp.wide[row];
    if (merge == FL_MERGE_LOLCATS) shift -= c->largest.wide[row];
    if (fl_merge_has_gamma(merge)) shift -= log1p(exp(-c->window_factor.wide[row % c->call.heads]));
    return (exp(shift) * a + y) / (exp(shift) + z);
}

static double merge_loss(const void *context) {
    const merge_case *c = context;
    const size_t dim = c->call.head_dim;
    double loss = 0.0;
    for (size_t i = 0; i < c->call.tokens * c->call.heads * dim; i++)
        loss += c->given.wide[i] * merged(c, i / dim, i % dim);
    return loss;
}

/* Reads are laid out head by head, with room between; the mass, where there is one, is positive. */
static fl_status draw_reads(fl_trial *trial, merge_case *c, fl_error *error) {
    double *wide = NULL;
    fl_merge_call *call = &c->call;
    call->read_stride = call->value_dim + 1;
    call->read_head_stride = call->read_stride * call->tokens;
    const size_t count = call->heads * call->read_head_stride;
    FL_TRY(fl_trial_block(trial, count, sizeof *wide, &wide, error));
    for (size_t i = 0; i < count; i++) {
        wide[i] = fl_random_normal(&trial->random);
        if (call->normaliser && i % call->read_stride == call->head_dim) wide[i] = 0.5 + fabs(wide[i]);
    }
    return fl_trial_upload(trial, count, wide, &c->read, error);
}

static fl_status make_merge_case(fl_trial *trial, merge_case **out, fl_error *error) {
    merge_case *c = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = *out = c;
    const size_t tokens = trial->sizes[0], heads = trial->sizes[1], dim = trial->sizes[2];
    const fl_merge merge = (fl_merge)(trial->sizes[3] - 1);
    const bool normaliser = fl_merge_shares_normaliser(merge) || coin(trial);
    c->call = (fl_merge_call){.merge = merge,
                              .normaliser = normaliser,
                              .tokens = tokens,
                              .heads = heads,
                              .head_dim = dim,
                              .value_dim = dim + (normaliser ? 1 : 0)};
    FL_TRY(draw_reads(trial, c, error));
    FL_TRY(fl_trial_normals(trial, tokens * heads * dim, 1.0, &c->exact, error));
    FL_TRY(fl_trial_normals(trial, tokens * heads, 2.0, &c->log_sum_exp, error));
    FL_TRY(fl_trial_normals(trial, tokens * heads, 1.0, &c->largest, error));
    FL_TRY(fl_trial_normals(trial, heads, 1.0, &c->window_factor, error));
    FL_TRY(fl_trial_array(trial, tokens * heads * dim, FL_FLOAT32, &c->output, error));
    c->call.read = c->read.array;
    c->call.exact = c->exact.array;
    c->call.log_sum_exp = c->log_sum_exp.array;
    if (merge == FL_MERGE_LOLCATS) c->call.largest = c->largest.array;
    if (fl_merge_has_gamma(merge)) c->call.window_factor = c->window_factor.array;
    c->call.output = c->output;
    trial->bytes = 3.0 * sizeof(float) * (double)(tokens * heads * dim);
    return FL_OK;
}

static fl_status make_merge(fl_trial *trial, fl_error *error) {
    merge_case *c = NULL;
    double *expected = NULL;
    FL_TRY(make_merge_case(trial, &c, error));
    const size_t dim = c->call.head_dim, count = c->exact.count;
    FL_TRY(fl_trial_expect(trial, "output", c->output, count, &expected, error));
    for (size_t i = 0; i < count; i++) expected[i] = merged(c, i / dim, i % dim);
    return FL_OK;
}

static fl_status call_merge(fl_trial *trial, fl_error *error) {
    const merge_case *c = trial->context;
    (void)error;
    trial->compute->ops->merge(trial->compute, &c->call);
    return FL_OK;
}

static fl_status make_merge_backward(fl_trial *trial, fl_error *error) {
    merge_case *c = NULL;
    FL_TRY(make_merge_case(trial, &c, error));
    FL_TRY(fl_trial_normals(trial, c->exact.count, 1.0, &c->given, error));
    FL_TRY(fl_trial_normals(trial, c->call.heads, 1.0, &c->factor_before, error));
    FL_TRY(fl_trial_array(trial, c->read.count, FL_FLOAT32, &c->gradient_read, error));
    trial->compute->ops->fill(trial->compute, c->gradient_read, c->read.count, 0.0);
    FL_TRY(fl_trial_array(trial, c->exact.count, FL_FLOAT32, &c->gradient_exact, error));
    FL_TRY(fl_trial_array(trial, c->log_sum_exp.count, FL_FLOAT32, &c->gradient_log_sum_exp, error));
    c->gradients = (fl_merge_gradients){.output = c->given.array,
                                        .read = c->gradient_read,
                                        .exact = c->gradient_exact,
                                        .log_sum_exp = c->gradient_log_sum_exp};
    FL_TRY(fl_trial_expect_gradient(trial, "gradient of read", c->gradient_read, c->read.count, c->read.wide,
                                    merge_loss, c, NULL, error));
    FL_TRY(fl_trial_expect_gradient(trial, "gradient of exact", c->gradient_exact, c->exact.count,
                                    c->exact.wide, merge_loss, c, NULL, error));
    FL_TRY(fl_trial_expect_gradient(trial, "gradient of log_sum_exp", c->gradient_log_sum_exp,
                                    c->log_sum_exp.count, c->log_sum_exp.wide, merge_loss, c, NULL, error));
    if (c->call.merge == FL_MERGE_LOLCATS) {
        FL_TRY(fl_trial_array(trial, c->largest.count, FL_FLOAT32, &c->gradient_largest, error));
        c->gradients.largest = c->gradient_largest;
        FL_TRY(fl_trial_expect_gradient(trial, "gradient of largest", c->gradient_largest, c->largest.count,
                                        c->largest.wide, merge_loss, c, NULL, error));
    }
    if (!fl_merge_has_gamma(c->call.merge)) return FL_OK;
    c->gradients.window_factor = c->factor_before.array;
    return fl_trial_expect_gradient(trial, "gradient of window_factor", c->factor_before.array, c->call.heads,
                                    c->window_factor.wide, merge_loss, c, c->factor_before.wide, error);
}

static fl_status call_merge_backward(fl_trial *trial, fl_error *error) {
    const merge_case *c = trial->context;
    (void)error;
    trial->compute->ops->merge_backward(trial->compute, &c->call, &c->gradients);
    return FL_OK;
}

#define GATES .sizes = {{"tokens", {1, 2, 33, 70}, 512}, {"heads", {1, 3, 9}, 9}, {"width", {1, 7, 64}, 64}}
#define CONV                                                                                                 \
    .sizes = {{"tokens", {1, 2, 3, 40}, 512},                                                                \
              {"source heads", {1, 3}, 3},                                                                   \
              {"heads a source", {1, 3}, 3},                                                                 \
              {"head_dim", {1, 7, 64}, 64},                                                                  \
              {"kernel", {1, 2, 4}, 4}}
/* `merge`: of fl_merge, from 1. */
#define MERGE                                                                                                \
    .sizes = {{"tokens", {1, 2, 33}, 512},                                                                   \
              {"heads", {1, 3}, 9},                                                                          \
              {"head_dim", {1, 8, 65}, 64},                                                                  \
              {"merge", {1, 2, 3, 4, 5}, 1}}

const fl_operation fl_operations_mixer[] = {
    {SLOT(gates), GATES, .bound = 1e-6, .make = make_gates, .call = call_gates},
    {SLOT(gates_backward), GATES, .bound = 1e-5, .make = make_gates_backward, .call = call_gates_backward},
    {SLOT(short_conv), CONV, .bound = 1e-6, .make = make_conv, .call = call_conv},
    {SLOT(short_conv_remember), CONV, .bound = 0.0, .make = make_remember, .call = call_remember},
    {SLOT(short_conv_backward), CONV, .bound = 1e-5, .make = make_conv_backward, .call = call_conv_backward},
    {SLOT(merge), MERGE, .bound = 2e-6, .make = make_merge, .call = call_merge},
    {SLOT(merge_backward), MERGE, .bound = 1e-5, .make = make_merge_backward, .call = call_merge_backward},
    {0},
};
