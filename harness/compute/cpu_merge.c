/* The merge (merge.h). */
#include <math.h>

#include "harness/compute/cpu_backend.h"
#include "harness/compute/vector_math.h"

bool fl_merge_has_gamma(fl_merge merge) {
    return merge == FL_MERGE_LOLCATS || merge == FL_MERGE_LOLCATS_INVARIANT;
}

bool fl_merge_shares_normaliser(fl_merge merge) {
    return merge == FL_MERGE_SHARED_NORMALISER || fl_merge_has_gamma(merge);
}

/* Share of the exact part in a merge with one normaliser. exact_log = L, with what gamma and c make of it. */
static double share_of_exact(double exact_log, double mass) {
    if (mass == 0.0) return 1.0;
    return 1.0 / (1.0 + mass * exp(-exact_log));
}

/* What the merge makes of L: adds log gamma, subtracts c. */
static double exact_log_of(const fl_merge_call *call, size_t token, size_t head) {
    size_t at = token * call->heads + head;
    double exact_log = fl_cpu_floats(call->log_sum_exp)[at];
    if (fl_merge_has_gamma(call->merge))
        exact_log -= log1p(exp(-(double)fl_cpu_floats(call->window_factor)[head]));
    if (call->merge == FL_MERGE_LOLCATS && isfinite(fl_cpu_floats(call->largest)[at]))
        exact_log -= fl_cpu_floats(call->largest)[at];
    return exact_log;
}

typedef struct fl_merge_weights {
    double exact, read;
} fl_merge_weights;

static fl_merge_weights weights_of(const fl_merge_call *call, size_t token, size_t head, const float *read) {
    double mass = call->normaliser && read != NULL ? read[call->head_dim] : 1.0;
    double scale = mass == 0.0 ? 0.0 : 1.0 / mass;
    if (read == NULL) return (fl_merge_weights){call->merge == FL_MERGE_HALF ? 0.5 : 1.0, 0.0};
    if (!fl_array_is(call->exact)) return (fl_merge_weights){0.0, scale};
    if (call->merge == FL_MERGE_SUM) return (fl_merge_weights){1.0, scale};
    if (call->merge == FL_MERGE_HALF) return (fl_merge_weights){0.5, 0.5 * scale};
    double exact_log = exact_log_of(call, token, head);
    double share = share_of_exact(exact_log, mass);
    /* (1 - p) / z without cancellation: p e^-L, or 1 / z when the exact part is negligible. */
    double of_read = share > 0.5 ? share * exp(-exact_log) : (1.0 - share) * scale;
    return (fl_merge_weights){share, mass == 0.0 ? 0.0 : of_read};
}

static void merge_token(void *context, size_t token, size_t worker) {
    (void)worker;
    const fl_merge_call *call = context;
    size_t head_dim = call->head_dim;
    for (size_t head = 0; head < call->heads; head++) {
        size_t at = (token * call->heads + head) * head_dim;
        const float *read = fl_cpu_floats(
            !fl_array_is(call->read)
                ? fl_array_none
                : fl_array_from(call->read, head * call->read_head_stride + token * call->read_stride));
        const float *exact =
            fl_cpu_floats(!fl_array_is(call->exact) ? fl_array_none : fl_array_from(call->exact, at));
        fl_merge_weights weights = weights_of(call, token, head, read);
        float of_exact = (float)weights.exact;
        for (size_t i = 0; i < head_dim; i++) {
            float sum = exact == NULL ? 0.0f : of_exact * exact[i];
            if (read != NULL && weights.read != 0.0) sum += (float)(weights.read * read[i]);
            fl_cpu_floats(call->output)[at + i] = sum;
        }
    }
}

void fl_cpu_merge(fl_compute *compute, const fl_merge_call *call) {
    fl_threads_for(compute->threads, call->tokens, merge_token, (void *)call);
}

typedef struct fl_merge_backward_work {
    const fl_merge_call *call;
    const fl_merge_gradients *gradients;
} fl_merge_backward_work;

/* With y = p a + c R, c = (1 - p) / z and p = 1 / (1 + z e^-E):  dR = c g,  dz = -c g.y,  da = p g,  dE = p
 * (g.a - g.y). */
static void merge_head_backward(const fl_merge_backward_work *work, size_t token, size_t head) {
    const fl_merge_call *call = work->call;
    const fl_merge_gradients *out = work->gradients;
    size_t n = call->head_dim, of_head = token * call->heads + head;
    size_t of_read = head * call->read_head_stride + token * call->read_stride;
    const float *gradient = fl_cpu_floats(out->output) + of_head * n;
    const float *read =
        fl_cpu_floats(!fl_array_is(call->read) ? fl_array_none : fl_array_from(call->read, of_read));
    const float *exact =
        fl_cpu_floats(!fl_array_is(call->exact) ? fl_array_none : fl_array_from(call->exact, of_head * n));
    fl_merge_weights weights = weights_of(call, token, head, read);
    bool shares = fl_merge_shares_normaliser(call->merge) && read != NULL && exact != NULL;
    double along_exact = shares ? fl_vector_dot_float64(n, gradient, exact) : 0.0, along_read = 0.0;
    if (read != NULL && weights.read != 0.0 && (shares || call->normaliser))
        along_read = weights.read * fl_vector_dot_float64(n, gradient, read);
    double along_output = weights.exact * along_exact + along_read;
    for (size_t i = 0; read != NULL && i < n; i++) {
        fl_cpu_floats(out->read)[of_read + i] = (float)(weights.read * gradient[i]);
    }
    for (size_t i = 0; fl_array_is(out->exact) && i < n; i++) {
        fl_cpu_floats(out->exact)[of_head * n + i] = (float)(weights.exact * gradient[i]);
    }
    if (read != NULL && call->normaliser) {
        double mass = read[n];
        /* sum and half divide by the mass alone: there the exact part's share does not move with it. */
        double slope = shares ? weights.read : mass == 0.0 ? 0.0 : 1.0 / mass;
        fl_cpu_floats(out->read)[of_read + n] = (float)(-slope * along_output);
    }
    double of_log = shares && weights.exact > 0.0 ? weights.exact * (along_exact - along_output) : 0.0;
    if (fl_array_is(out->log_sum_exp)) fl_cpu_floats(out->log_sum_exp)[of_head] = (float)of_log;
    if (call->merge == FL_MERGE_LOLCATS && fl_array_is(out->largest))
        fl_cpu_floats(out->largest)[of_head] = (float)-of_log;
    if (shares && fl_array_is(out->window_factor)) {
        fl_cpu_floats(out->window_factor)[head] +=
            (float)(of_log / (1.0 + exp((double)fl_cpu_floats(call->window_factor)[head])));
    }
}

static void merge_backward_head(void *context, size_t head, size_t worker) {
    (void)worker;
    const fl_merge_backward_work *work = context;
    for (size_t token = 0; token < work->call->tokens; token++) merge_head_backward(work, token, head);
}

void fl_cpu_merge_backward(fl_compute *compute, const fl_merge_call *call,
                           const fl_merge_gradients *gradients) {
    fl_merge_backward_work work = {call, gradients};
    fl_threads_for(compute->threads, call->heads, merge_backward_head, &work);
}
