/* Gates, betas and factors (gates.h). */
#include <math.h>
#include <string.h>

#include "harness/compute/cpu_backend.h"
#include "harness/compute/vector_math.h"

enum { GATE_TOKENS = 32 /* of an item */, GATE_PIECE = 64, BIAS_COLUMNS = 256 /* of an item */ };

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Forward. */

static void activate_token(const fl_gates_call *call, float *x) {
    size_t columns = call->heads * call->width;
    for (size_t i = 0; fl_array_is(call->bias) && i < columns; i++) x[i] += fl_cpu_floats(call->bias)[i];
    if (fl_array_is(call->rate)) {
        fl_vector_softplus(columns, x, x);
        for (size_t head = 0; head < call->heads; head++) {
            float rate = expf(fl_cpu_floats(call->rate)[head]);
            for (size_t i = head * call->width; i < (head + 1) * call->width; i++) x[i] *= -rate;
        }
    } else if (call->activation == FL_ACTIVATE_LOG_SIGMOID) {
        fl_vector_log_sigmoid(columns, x, x);
    } else if (call->activation == FL_ACTIVATE_SIGMOID) {
        fl_vector_sigmoid(columns, x, x);
        for (size_t i = 0; call->maximum > 1.0f && i < columns; i++) x[i] *= call->maximum;
    } else if (call->activation == FL_ACTIVATE_TANH) {
        for (size_t i = 0; i < columns; i++) x[i] = tanhf(x[i]);
    }
}

static void activate_item(void *context, size_t item, size_t worker) {
    (void)worker;
    const fl_gates_call *call = context;
    size_t first = item * GATE_TOKENS, end = smaller(first + GATE_TOKENS, call->tokens);
    for (size_t token = first; token < end; token++)
        activate_token(call, fl_cpu_floats(call->values) + token * call->heads * call->width);
}

void fl_cpu_gates(fl_compute *compute, const fl_gates_call *call) {
    size_t items = (call->tokens + GATE_TOKENS - 1) / GATE_TOKENS;
    fl_threads_for(compute->threads, items, activate_item, (void *)call);
}

/* Backward. */

typedef struct fl_gates_backward_work {
    const fl_gates_call *call;
    const fl_gates_gradients *gradients;
} fl_gates_backward_work;

/* y = 1 - exp(x) for x <= 0, within 1.1e-7 of itself: a series where the difference would cancel. NaN stays.
 * Loops over local arrays of one length, so that they go into vector registers. */
static void one_minus_exp(const float *x, float *y) {
    float series[GATE_PIECE], power[GATE_PIECE], at[GATE_PIECE];
    memcpy(at, x, sizeof at);
    fl_vector_exp(GATE_PIECE, at, power);
    for (size_t i = 0; i < GATE_PIECE; i++) {
        float sum = 1.0f + at[i] * (1.0f / 8.0f);
        sum = 1.0f + at[i] * sum * (1.0f / 7.0f);
        sum = 1.0f + at[i] * sum * (1.0f / 6.0f);
        sum = 1.0f + at[i] * sum * (1.0f / 5.0f);
        sum = 1.0f + at[i] * sum * (1.0f / 4.0f);
        sum = 1.0f + at[i] * sum * (1.0f / 3.0f);
        series[i] = -at[i] * (1.0f + at[i] * sum * (1.0f / 2.0f));
    }
    for (size_t i = 0; i < GATE_PIECE; i++) power[i] = 1.0f - power[i];
    for (size_t i = 0; i < GATE_PIECE; i++) power[i] = at[i] > -0.5f ? series[i] : power[i];
    memcpy(y, power, sizeof power);
}

/* d log sigmoid(x) / dx = 1 - sigmoid(x) = 1 - exp(y). With y = -r softplus(x):
 * dy / dx = -r sigmoid(x) = -r (1 - exp(-softplus(x))) = -r (1 - exp(y / r)). */
static void decay_backward(float rate, size_t count, const float *activated, float *gradient) {
    float inverse = rate > 0.0f ? 1.0f / rate : 1.0f, factor = rate > 0.0f ? -rate : 1.0f;
    for (size_t done = 0; done < count; done += GATE_PIECE) {
        size_t part = smaller(count - done, GATE_PIECE);
        float log_value[GATE_PIECE] = {0}, slope[GATE_PIECE];
        memcpy(log_value, activated + done, part * sizeof *activated);
        for (size_t i = 0; rate > 0.0f && i < part; i++) log_value[i] *= inverse;
        one_minus_exp(log_value, slope);
        for (size_t i = 0; i < part; i++) gradient[done + i] *= factor * slope[i];
    }
}

static void token_backward(const fl_gates_call *call, const float *activated, float *gradient) {
    size_t width = call->width, columns = call->heads * width;
    if (fl_array_is(call->rate)) {
        for (size_t head = 0; head < call->heads; head++)
            decay_backward(expf(fl_cpu_floats(call->rate)[head]), width, activated + head * width,
                           gradient + head * width);
    } else if (call->activation == FL_ACTIVATE_LOG_SIGMOID) {
        decay_backward(0.0f, columns, activated, gradient);
    } else if (call->activation == FL_ACTIVATE_SIGMOID) {
        float inverse = call->maximum > 1.0f ? 1.0f / call->maximum : 1.0f;
        for (size_t i = 0; i < columns; i++) gradient[i] *= activated[i] * (1.0f - activated[i] * inverse);
    } else if (call->activation == FL_ACTIVATE_TANH) {
        for (size_t i = 0; i < columns; i++) gradient[i] *= 1.0f - activated[i] * activated[i];
    }
}

static void backward_item(void *context, size_t item, size_t worker) {
    (void)worker;
    const fl_gates_backward_work *work = context;
    size_t columns = work->call->heads * work->call->width;
    size_t first = item * GATE_TOKENS, end = smaller(first + GATE_TOKENS, work->call->tokens);
    for (size_t token = first; token < end; token++) {
        token_backward(work->call, fl_cpu_floats(work->call->values) + token * columns,
                       fl_cpu_floats(work->gradients->values) + token * columns);
    }
}

/* y = -exp(rate) softplus(x): dy / d rate = y. */
static void rate_backward(void *context, size_t head, size_t worker) {
    (void)worker;
    const fl_gates_backward_work *work = context;
    size_t width = work->call->width, columns = work->call->heads * width;
    double sum = 0.0;
    for (size_t token = 0; token < work->call->tokens; token++) {
        size_t at = token * columns + head * width;
        for (size_t i = 0; i < width; i++)
            sum += (double)fl_cpu_floats(work->gradients->values)[at + i] *
                   fl_cpu_floats(work->call->values)[at + i];
    }
    fl_cpu_floats(work->gradients->rate)[head] += (float)sum;
}

static void bias_backward(void *context, size_t item, size_t worker) {
    (void)worker;
    const fl_gates_backward_work *work = context;
    size_t columns = work->call->heads * work->call->width, first = item * BIAS_COLUMNS;
    size_t end = smaller(first + BIAS_COLUMNS, columns);
    for (size_t token = 0; token < work->call->tokens; token++) {
        const float *gradient = fl_cpu_floats(work->gradients->values) + token * columns;
        for (size_t i = first; i < end; i++) fl_cpu_floats(work->gradients->bias)[i] += gradient[i];
    }
}

void fl_cpu_gates_backward(fl_compute *compute, const fl_gates_call *call,
                           const fl_gates_gradients *gradients) {
    fl_gates_backward_work work = {call, gradients};
    size_t columns = call->heads * call->width;
    if (fl_array_is(gradients->rate)) fl_threads_for(compute->threads, call->heads, rate_backward, &work);
    fl_threads_for(compute->threads, (call->tokens + GATE_TOKENS - 1) / GATE_TOKENS, backward_item, &work);
    if (!fl_array_is(gradients->bias)) return;
    fl_threads_for(compute->threads, (columns + BIAS_COLUMNS - 1) / BIAS_COLUMNS, bias_backward, &work);
}
