/* Measuring, in float64: rows beside rows, rows of logits, geometry of keys. Every sum has one order. */
#include "harness/compute/cuda/operations.h"

enum { THREADS = 256, WARPS = THREADS / 32, MOST_BLOCKS = 1024 };

/* A warp a row: squared error and cosine, or without a reference sum and sum of squares. */
FL_KERNEL(THREADS) rows_kernel(size_t rows, size_t columns, const float *reference, const float *x, double *first, double *second) {
    const size_t row = (size_t)fl_block_x * WARPS + fl_thread / 32;
    const int lane = fl_thread % 32;
    if (row >= rows) return; /* the whole warp */
    const float *own = x + row * columns, *other = reference != NULL ? reference + row * columns : NULL;
    double squared = 0.0, dot = 0.0, norm = 0.0, other_norm = 0.0, sum = 0.0;
    for (size_t i = lane; i < columns; i += 32) {
        const double value = (double)own[i], r = other != NULL ? (double)other[i] : 0.0;
        sum += value;
        norm += value * value;
        squared += (value - r) * (value - r);
        dot += value * r;
        other_norm += r * r;
    }
    sum = fl_lanes_sum(sum, 32);
    norm = fl_lanes_sum(norm, 32);
    squared = fl_lanes_sum(squared, 32);
    dot = fl_lanes_sum(dot, 32);
    other_norm = fl_lanes_sum(other_norm, 32);
    if (lane != 0) return;
    const double norms = sqrt(other_norm) * sqrt(norm);
    first[row] = other != NULL ? squared : sum;
    second[row] = other == NULL ? norm : norms == 0.0 ? 0.0 : dot / norms;
}

void fl_cuda_row_errors(fl_cuda *device, size_t rows, size_t columns, const float *reference, const float *other, double *squared,
                        double *cosine) {
    fl_launch(device, "row_errors", rows_kernel, dim3((unsigned)fl_pieces(rows, WARPS)), THREADS, 0, rows, columns, reference, other,
              squared, cosine);
}

void fl_cuda_row_moments(fl_cuda *device, size_t rows, size_t columns, const float *x, double *sum, double *sum_squares) {
    fl_launch(device, "row_moments", rows_kernel, dim3((unsigned)fl_pieces(rows, WARPS)), THREADS, 0, rows, columns,
              (const float *)NULL, x, sum, sum_squares);
}

/* The smallest index of a number that is not finite, a block a stretch; `count` without one. */
FL_KERNEL(THREADS) not_finite_kernel(size_t count, const float *x, int *firsts) {
    FL_SHARED(int, shared);
    const size_t stretch = fl_pieces(count, (size_t)fl_blocks_x), begin = fl_block_x * stretch;
    const size_t end = begin + stretch < count ? begin + stretch : count;
    int first = (int)count;
    for (size_t i = begin + fl_thread; i < end; i += THREADS) {
        if (!isfinite(x[i])) {
            first = (int)i;
            break;
        }
    }
    shared[fl_thread] = first;
    fl_block_sync();
    for (int width = THREADS / 2; width > 0; width /= 2) {
        if (fl_thread < width && shared[fl_thread + width] < shared[fl_thread]) shared[fl_thread] = shared[fl_thread + width];
        fl_block_sync();
    }
    if (fl_thread == 0) firsts[fl_block_x] = shared[0];
}

FL_KERNEL(32) smallest_kernel(int blocks, const int *firsts, int *first) {
    int smallest = INT32_MAX;
    for (int i = fl_thread; i < blocks; i += 32) smallest = firsts[i] < smallest ? firsts[i] : smallest;
    smallest = -fl_lanes_max(-smallest, 32);
    if (fl_thread == 0) *first = smallest;
}

static unsigned stretches(size_t count) {
    const size_t blocks = fl_pieces(count > 0 ? count : 1, 4 * THREADS);
    return blocks < MOST_BLOCKS ? (unsigned)blocks : (unsigned)MOST_BLOCKS;
}

void fl_cuda_first_not_finite(fl_cuda *device, size_t count, const float *x, int32_t *first) {
    const unsigned blocks = stretches(count);
    int *firsts = (int *)fl_cuda_take(device, blocks * sizeof(int), "first_not_finite");
    fl_launch(device, "first_not_finite", not_finite_kernel, dim3(blocks), THREADS, THREADS * sizeof(int), count, x, firsts);
    fl_launch(device, "first_not_finite", smallest_kernel, dim3(1), 32, 0, (int)blocks, (const int *)firsts, first);
    fl_cuda_give(device, firsts);
}

FL_KERNEL(THREADS) subtract_kernel(size_t count, const float *y, float *x, double *squares) {
    FL_SHARED(double, shared);
    double sum = 0.0;
    for (size_t i = (size_t)fl_block_x * THREADS + fl_thread; i < count; i += (size_t)fl_blocks_x * THREADS) {
        const double difference = (double)x[i] - (double)y[i];
        sum += difference * difference;
        x[i] = (float)difference;
    }
    sum = fl_block_sum(sum, shared, THREADS);
    if (fl_thread == 0) squares[fl_block_x] = sum;
}

FL_KERNEL(THREADS) add_up_kernel(int count, const double *parts, double *total) {
    FL_SHARED(double, shared);
    double sum = 0.0;
    for (int i = fl_thread; i < count; i += THREADS) sum += parts[i];
    sum = fl_block_sum(sum, shared, THREADS);
    if (fl_thread == 0) *total = sum;
}

void fl_cuda_subtract_squares(fl_cuda *device, size_t count, const float *y, float *x, double *squares) {
    const unsigned blocks = stretches(count);
    double *parts = (double *)fl_cuda_take(device, blocks * sizeof(double), "subtract_squares");
    fl_launch(device, "subtract_squares", subtract_kernel, dim3(blocks), THREADS, 32 * sizeof(double), count, y, x, parts);
    fl_launch(device, "subtract_squares", add_up_kernel, dim3(1), THREADS, 32 * sizeof(double), (int)blocks, (const double *)parts,
              squares);
    fl_cuda_give(device, parts);
}

FL_KERNEL(THREADS) scale_kernel(size_t count, float factor, float *x) {
    const size_t at = (size_t)fl_block_x * THREADS + fl_thread;
    if (at < count) x[at] *= factor;
}

void fl_cuda_scale(fl_cuda *device, size_t count, float factor, float *x) {
    fl_launch(device, "scale", scale_kernel, dim3((unsigned)fl_pieces(count, THREADS)), THREADS, 0, count, factor, x);
}

/* A block a KV head, token by token: its sum lies in shared memory, its product where it is, each number with one thread. */
FL_KERNEL(THREADS)
key_geometry_kernel(size_t tokens, int kv_heads, int dim, size_t seen, const float *key, double *sums, double *products,
                    double *concentration, double *residual) {
    FL_SHARED(double, shared);
    double *slots = shared, *unit = shared + 32, *sum = unit + dim;
    const int head = fl_block_x;
    double *product = products + (size_t)head * dim * dim;
    for (int i = fl_thread; i < dim; i += THREADS) sum[i] = sums[head * dim + i];
    for (size_t t = 0; t < tokens; t++) {
        const float *k = key + (t * kv_heads + head) * dim;
        double norm = 0.0, dot = 0.0, sum_norm = 0.0, form = 0.0;
        for (int i = fl_thread; i < dim; i += THREADS) norm += (double)k[i] * (double)k[i];
        norm = sqrt(fl_block_sum(norm, slots, THREADS));
        norm = norm > 1e-12 ? norm : 1e-12;
        for (int i = fl_thread; i < dim; i += THREADS) {
            unit[i] = (double)k[i] / norm;
            sum[i] += unit[i];
            dot += unit[i] * sum[i];
            sum_norm += sum[i] * sum[i];
        }
        dot = fl_block_sum(dot, slots, THREADS);
        sum_norm = fl_block_sum(sum_norm, slots, THREADS);
        for (int e = fl_thread; e < dim * dim; e += THREADS) {
            const int i = e / dim, j = e % dim;
            if (j > i) continue;
            const double entry = product[e] + unit[i] * unit[j];
            product[e] = entry;
            form += (j < i ? 2.0 : 1.0) * entry * sum[i] * sum[j];
        }
        form = fl_block_sum(form, slots, THREADS);
        if (fl_thread == 0) {
            const double count = (double)(seen + t + 1);
            const bool alone = seen + t == 0;
            const double mean_square = sum_norm > 0.0 ? form / (sum_norm * count) : 0.0;
            concentration[head * tokens + t] = alone ? 1.0 : sum_norm > 0.0 ? dot / sqrt(sum_norm) : 0.0;
            residual[head * tokens + t] = alone ? 0.0 : mean_square - sum_norm / (count * count);
        }
    }
    fl_block_sync();
    for (int i = fl_thread; i < dim; i += THREADS) sums[head * dim + i] = sum[i];
}

void fl_cuda_key_geometry(fl_cuda *device, const fl_key_geometry_call *call) {
    fl_launch(device, "key_geometry", key_geometry_kernel, dim3((unsigned)call->kv_heads), THREADS,
              (32 + 2 * call->head_dim) * sizeof(double), call->tokens, (int)call->kv_heads, (int)call->head_dim, call->seen,
              floats(call->key), (double *)call->sum.at, (double *)call->product.at, (double *)call->concentration.at,
              (double *)call->residual.at);
}

/* Rows of logits: a block a row. */

struct largest_logit {
    float value;
    int at; /* the lowest of equal ones; 0 when all are NaN, and the value is then NaN */
};

/* slots: room for 32 numbers and 32 indices. */
FL_DEVICE largest_logit block_largest(const float *logits, int count, float *slots) {
    int *places = (int *)(slots + 32);
    float best = -INFINITY;
    int at = INT32_MAX;
    for (int i = fl_thread; i < count; i += THREADS) {
        if (logits[i] > best || (logits[i] == best && i < at)) {
            best = logits[i];
            at = i;
        }
    }
    for (int mask = 16; mask > 0; mask /= 2) {
        const float other = fl_shuffle_xor(best, mask);
        const int place = fl_shuffle_xor(at, mask);
        if (other > best || (other == best && place < at)) {
            best = other;
            at = place;
        }
    }
    fl_block_sync();
    if (fl_thread % 32 == 0) {
        slots[fl_thread / 32] = best;
        places[fl_thread / 32] = at;
    }
    fl_block_sync();
    for (int warp = 0; warp < WARPS; warp++) {
        if (slots[warp] > best || (slots[warp] == best && places[warp] < at)) {
            best = slots[warp];
            at = places[warp];
        }
    }
    if (at == INT32_MAX) at = 0;
    return {logits[at], at};
}

struct logit_rows_call {
    int vocabulary;
    bool float32; /* PyTorch's sums */
    const float *logits;
    double *log_sum_exp, *probabilities;
    int32_t *best;
};

/* exp(logit - largest); 1 at the largest itself, also where it is infinite. */
FL_DEVICE double softmax_term(const float *logits, int i, largest_logit largest) {
    return i == largest.at ? 1.0 : exp((double)logits[i] - (double)largest.value);
}

FL_KERNEL(THREADS) logit_rows_kernel(logit_rows_call c) {
    FL_SHARED(double, shared);
    const size_t row = (size_t)fl_block_x;
    const float *logits = c.logits + row * c.vocabulary;
    const largest_logit largest = block_largest(logits, c.vocabulary, (float *)(shared + 32));
    double log_sum_exp = 0.0;
    if (c.float32) {
        float sum = 0.0f; /* eight running sums, added pairwise */
        if (fl_thread < 8) {
            for (int i = fl_thread; i < c.vocabulary; i += 8) sum += expf(logits[i] - largest.value);
        }
        for (int mask = 4; mask > 0; mask /= 2) sum += fl_shuffle_xor(sum, mask);
        log_sum_exp = (double)largest.value + (double)logf(sum);
    } else {
        double sum = 0.0;
        for (int i = fl_thread; i < c.vocabulary; i += THREADS) sum += softmax_term(logits, i, largest);
        sum = fl_block_sum(sum, shared, THREADS);
        log_sum_exp = (double)largest.value + log(sum);
        for (int i = fl_thread; c.probabilities != NULL && i < c.vocabulary; i += THREADS) {
            c.probabilities[row * c.vocabulary + i] = softmax_term(logits, i, largest) / sum;
        }
    }
    if (fl_thread != 0) return;
    c.log_sum_exp[row] = log_sum_exp;
    if (c.best != NULL) c.best[row] = largest.at;
}

enum { LOGIT_SHARED = 32 * sizeof(double) + 64 * sizeof(float) };

void fl_cuda_logit_rows(fl_cuda *device, const fl_logit_rows_call *call) {
    const logit_rows_call c = {(int)call->vocabulary,          call->precision == FL_LOG_SOFTMAX_FLOAT32, floats(call->logits),
                               (double *)call->log_sum_exp.at, (double *)call->probabilities.at,          (int32_t *)call->best.at};
    fl_launch(device, "logit_rows", logit_rows_kernel, dim3((unsigned)call->rows), THREADS, LOGIT_SHARED, c);
}

FL_KERNEL(THREADS)
logit_divergence_kernel(int vocabulary, const double *probabilities, const float *logits, const double *log_sum_exp, const float *other,
                        const double *other_log_sum_exp, double *divergence) {
    FL_SHARED(double, shared);
    const size_t row = (size_t)fl_block_x, first = row * vocabulary;
    const double shift = other_log_sum_exp[row] - log_sum_exp[row];
    double sum = 0.0;
    for (int i = fl_thread; i < vocabulary; i += THREADS) {
        const double p = probabilities[first + i];
        if (p != 0.0) sum += p * ((double)logits[first + i] - (double)other[first + i] + shift);
    }
    sum = fl_block_sum(sum, shared, THREADS);
    if (fl_thread == 0) divergence[row] = sum;
}

void fl_cuda_logit_divergence(fl_cuda *device, const fl_logit_divergence_call *call) {
    fl_launch(device, "logit_divergence", logit_divergence_kernel, dim3((unsigned)call->rows), THREADS, 32 * sizeof(double),
              (int)call->vocabulary, (const double *)call->probabilities.at, floats(call->logits), (const double *)call->log_sum_exp.at,
              floats(call->other_logits), (const double *)call->other_log_sum_exp.at, (double *)call->divergence.at);
}

struct logit_gradient_call {
    int vocabulary;
    const int32_t *targets;
    const float *target_logits;
    double weight;
    bool gradient;
    float *logits;
    double *loss;
};

FL_DEVICE double block_exponentials(const float *logits, int count, float shift, double *slots) {
    double sum = 0.0;
    for (int i = fl_thread; i < count; i += THREADS) sum += (double)expf(logits[i] - shift);
    return fl_block_sum(sum, slots, THREADS);
}

FL_KERNEL(THREADS) logit_gradient_kernel(logit_gradient_call c) {
    FL_SHARED(double, shared);
    const size_t row = (size_t)fl_block_x;
    float *logits = c.logits + row * c.vocabulary, *slots = (float *)(shared + 32);
    const float largest = block_largest(logits, c.vocabulary, slots).value;
    const double sum = block_exponentials(logits, c.vocabulary, largest, shared);
    if (c.targets != NULL) {
        const int target = c.targets[row];
        const float of_target = logits[target];
        fl_block_sync(); /* before it is overwritten */
        if (fl_thread == 0) c.loss[row] = log(sum) + (double)largest - (double)of_target;
        for (int i = fl_thread; c.gradient && i < c.vocabulary; i += THREADS) {
            const double probability = (double)expf(logits[i] - largest) / sum;
            logits[i] = (float)(c.weight * (i == target ? probability - 1.0 : probability));
        }
        return;
    }
    const float *target = c.target_logits + row * c.vocabulary;
    const float target_largest = block_largest(target, c.vocabulary, slots).value;
    const double target_sum = block_exponentials(target, c.vocabulary, target_largest, shared);
    double along = 0.0;
    for (int i = fl_thread; i < c.vocabulary; i += THREADS) {
        const double p = (double)expf(target[i] - target_largest) / target_sum;
        if (p > 0.0) along += p * ((double)target[i] - (double)logits[i]);
        if (c.gradient) logits[i] = (float)(c.weight * ((double)expf(logits[i] - largest) / sum - p));
    }
    along = fl_block_sum(along, shared, THREADS);
    if (fl_thread == 0) {
        c.loss[row] = along - (log(target_sum) + (double)target_largest - log(sum) - (double)largest);
    }
}

void fl_cuda_logit_gradient(fl_cuda *device, const fl_logit_gradient_call *call) {
    const logit_gradient_call c = {(int)call->vocabulary, (const int32_t *)call->targets.at, floats(call->target_logits),
                                   call->weight,          call->gradient,                    floats(call->logits),
                                   (double *)call->loss.at};
    fl_launch(device, "logit_gradient", logit_gradient_kernel, dim3((unsigned)call->rows), THREADS, LOGIT_SHARED, c);
}
