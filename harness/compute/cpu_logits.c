#include <math.h>
#include <stdint.h>

#include "harness/compute/cpu_backend.h"

/* LANES: numbers worked on together, so that they go into vector registers. */
enum { LANES = 8, PIECE = 512 };

/* --- log-softmax --- */

typedef struct {
    double log_sum_exp;
    double sum; /* of exp(logit - the largest) */
    size_t best;
} softmax_row;

typedef struct {
    const fl_kernels *kernels;
    const fl_logit_rows_call *call;
} rows_work;

static size_t largest_of(const fl_kernels *kernels, const float *logits, size_t vocabulary) {
    const float largest = kernels->maximum(vocabulary, logits);
    size_t best = 0;
    while (best < vocabulary && logits[best] != largest) best++;
    return best < vocabulary ? best : 0; /* all are NaN */
}

static double sum_of_wide(size_t count, const double *x) {
    double lanes[LANES] = {0};
    for (size_t i = 0; i < count; i++) lanes[i % LANES] += x[i];
    for (size_t width = LANES / 2; width > 0; width /= 2) {
        for (size_t i = 0; i < width; i++) lanes[i] += lanes[i + width];
    }
    return lanes[0];
}

/* terms [V] = exp(logit - the largest), which over `sum` are the probabilities, or NULL. */
static softmax_row softmax_exact(const fl_kernels *kernels, const float *logits, size_t vocabulary,
                                 double *terms) {
    const size_t best = largest_of(kernels, logits, vocabulary);
    const double largest = (double)logits[best];
    double piece[PIECE], sum = 0.0;
    for (size_t first = 0; first < vocabulary; first += PIECE) {
        const size_t count = vocabulary - first < PIECE ? vocabulary - first : PIECE;
        double *to = terms != NULL ? terms + first : piece;
        kernels->exp_wide(count, logits + first, largest, to);
        if (best >= first && best - first < count) to[best - first] = 1.0; /* also where it is infinite */
        sum += sum_of_wide(count, to);
    }
    return (softmax_row){.log_sum_exp = largest + log(sum), .sum = sum, .best = best};
}

/* Terms far below the largest are lost as PyTorch loses them. */
static softmax_row softmax_float32(const fl_kernels *kernels, const float *logits, size_t vocabulary) {
    const size_t best = largest_of(kernels, logits, vocabulary);
    const float largest = logits[best];
    float lanes[LANES] = {0};
    for (size_t i = 0; i < vocabulary; i++) lanes[i % LANES] += expf(logits[i] - largest);
    for (size_t width = LANES / 2; width > 0; width /= 2) {
        for (size_t i = 0; i < width; i++) lanes[i] += lanes[i + width];
    }
    return (softmax_row){
        .log_sum_exp = (double)largest + (double)logf(lanes[0]), .sum = (double)lanes[0], .best = best};
}

static void logit_row(void *context, size_t row, size_t worker) {
    (void)worker;
    const rows_work *work = context;
    const fl_logit_rows_call *call = work->call;
    const size_t vocabulary = call->vocabulary;
    const float *logits = fl_cpu_floats(call->logits) + row * vocabulary;
    double *terms = fl_array_from(call->probabilities, row * vocabulary).at;
    const softmax_row made = call->precision == FL_LOG_SOFTMAX_FLOAT32
                                 ? softmax_float32(work->kernels, logits, vocabulary)
                                 : softmax_exact(work->kernels, logits, vocabulary, terms);
    for (size_t i = 0; terms != NULL && i < vocabulary; i++) terms[i] /= made.sum;
    ((double *)call->log_sum_exp.at)[row] = made.log_sum_exp;
    if (fl_array_is(call->best)) ((int32_t *)call->best.at)[row] = (int32_t)made.best;
}

void fl_cpu_logit_rows(fl_compute *compute, const fl_logit_rows_call *call) {
    rows_work work = {fl_cpu_of(compute)->kernels, call};
    fl_threads_for(compute->threads, call->rows, logit_row, &work);
}

/* --- divergence of two models --- */

static void divergence_of_row(void *context, size_t row, size_t worker) {
    (void)worker;
    const fl_logit_divergence_call *call = context;
    const double *p = fl_array_from(call->probabilities, row * call->vocabulary).at;
    const float *logits = fl_cpu_floats(call->logits) + row * call->vocabulary;
    const float *other = fl_cpu_floats(call->other_logits) + row * call->vocabulary;
    const double shift =
        ((const double *)call->other_log_sum_exp.at)[row] - ((const double *)call->log_sum_exp.at)[row];
    double sum = 0.0;
    for (size_t i = 0; i < call->vocabulary; i++) {
        if (p[i] == 0.0) continue;
        sum += p[i] * ((double)logits[i] - (double)other[i] + shift);
    }
    ((double *)call->divergence.at)[row] = sum;
}

void fl_cpu_logit_divergence(fl_compute *compute, const fl_logit_divergence_call *call) {
    fl_threads_for(compute->threads, call->rows, divergence_of_row, (void *)(uintptr_t)call);
}

/* --- losses and their gradients --- */

typedef struct {
    const fl_kernels *kernels;
    const fl_logit_gradient_call *call;
} gradient_work;

static double sum_of(size_t count, const float *x) {
    double lane[LANES] = {0.0}, sum = 0.0;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
#pragma GCC unroll 8
        for (size_t j = 0; j < LANES; j++) lane[j] += (double)x[i + j];
    }
    for (; i < count; i++) sum += (double)x[i];
    for (size_t j = 0; j < LANES; j++) sum += lane[j];
    return sum;
}

/* y = exp(x - shift) for a piece of a row. */
static void exponentials(const fl_kernels *kernels, size_t count, const float *x, float shift, float *y) {
    for (size_t i = 0; i < count; i++) y[i] = x[i] - shift;
    kernels->exp(count, y, y);
}

/* Sum of exp(x - shift), which are put in `kept` (may be x) unless it is NULL. */
static double sum_exponentials(const fl_kernels *kernels, size_t count, const float *x, float shift,
                               float *kept) {
    float piece[PIECE] = {0};
    double sum = 0.0;
    for (size_t done = 0; done < count; done += PIECE) {
        size_t part = count - done < PIECE ? count - done : PIECE;
        float *to = kept != NULL ? kept + done : piece;
        exponentials(kernels, part, x + done, shift, to);
        sum += sum_of(part, to);
    }
    return sum;
}

static void next_token_row(void *context, size_t row, size_t worker) {
    (void)worker;
    const gradient_work *work = context;
    const fl_logit_gradient_call *call = work->call;
    float *logits = fl_cpu_floats(call->logits) + row * call->vocabulary;
    const size_t target = (size_t)((const int32_t *)call->targets.at)[row];
    const float largest = work->kernels->maximum(call->vocabulary, logits), of_target = logits[target];
    const double sum = sum_exponentials(work->kernels, call->vocabulary, logits, largest, logits);
    ((double *)call->loss.at)[row] = log(sum) + (double)largest - (double)of_target;
    if (!call->gradient) return;
    const double probability = (double)logits[target] / sum;
    const float scale = (float)(call->weight / sum);
    for (size_t i = 0; i < call->vocabulary; i++) logits[i] *= scale;
    logits[target] = (float)(call->weight * (probability - 1.0));
}

/* One piece of a row: target and own logits, with what takes them to probabilities. */
typedef struct {
    const fl_kernels *kernels;
    float shift, target_shift;
    double scale, target_scale; /* 1 / sum of exponentials */
} divergence_row;

/* Sum of target_p (target - logits); with `gradient`, logits become weight (p - target_p). */
static double divergence_piece(const divergence_row *row, size_t count, const float *target, double weight,
                               bool gradient, float *logits) {
    float target_exponentials[PIECE], own[PIECE];
    double lane[LANES] = {0.0}, sum = 0.0;
    exponentials(row->kernels, count, target, row->target_shift, target_exponentials);
    if (gradient) exponentials(row->kernels, count, logits, row->shift, own);
    for (size_t i = 0; i < count; i++) {
        double probability = (double)target_exponentials[i] * row->target_scale;
        double difference = (double)target[i] - (double)logits[i];
        lane[i % LANES] += probability > 0.0 ? probability * difference : 0.0;
        if (gradient) logits[i] = (float)(weight * ((double)own[i] * row->scale - probability));
    }
    for (size_t j = 0; j < LANES; j++) sum += lane[j];
    return sum;
}

static void towards_target_row(void *context, size_t row, size_t worker) {
    (void)worker;
    const gradient_work *work = context;
    const fl_logit_gradient_call *call = work->call;
    const fl_kernels *kernels = work->kernels;
    const size_t count = call->vocabulary;
    float *logits = fl_cpu_floats(call->logits) + row * count;
    const float *target = fl_cpu_floats(call->target_logits) + row * count;
    divergence_row of = {.kernels = kernels,
                         .shift = kernels->maximum(count, logits),
                         .target_shift = kernels->maximum(count, target)};
    const double own_sum = sum_exponentials(kernels, count, logits, of.shift, NULL);
    const double target_sum = sum_exponentials(kernels, count, target, of.target_shift, NULL);
    double sum = 0.0;
    of.scale = 1.0 / own_sum;
    of.target_scale = 1.0 / target_sum;
    for (size_t done = 0; done < count; done += PIECE) {
        const size_t part = count - done < PIECE ? count - done : PIECE;
        sum += divergence_piece(&of, part, target + done, call->weight, call->gradient, logits + done);
    }
    const double own_log = log(own_sum) + (double)of.shift;
    const double target_log = log(target_sum) + (double)of.target_shift;
    ((double *)call->loss.at)[row] = sum - (target_log - own_log);
}

void fl_cpu_logit_gradient(fl_compute *compute, const fl_logit_gradient_call *call) {
    gradient_work work = {fl_cpu_of(compute)->kernels, call};
    fl_threads_for(compute->threads, call->rows,
                   fl_array_is(call->targets) ? next_token_row : towards_target_row, &work);
}
