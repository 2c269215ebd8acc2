/* Rows of a routed cache (cache_rows.h). */
#include <math.h>
#include <string.h>

#include "harness/compute/cpu_backend.h"

/* Lengths. */

typedef struct fl_lengths_work {
    size_t rows, dim, head_stride;
    const float *x;
    double *lengths;
} fl_lengths_work;

static void lengths_of_head(void *context, size_t head, size_t worker) {
    (void)worker;
    const fl_lengths_work *work = context;
    for (size_t row = 0; row < work->rows; row++) {
        const float *x = work->x + head * work->head_stride + row * work->dim;
        double sum = 0.0;
        for (size_t i = 0; i < work->dim; i++) sum += (double)x[i] * x[i];
        work->lengths[head * work->rows + row] = sqrt(sum);
    }
}

void fl_cpu_row_lengths(fl_compute *compute, size_t heads, size_t rows, size_t dim, fl_array x,
                        size_t head_stride, fl_array lengths) {
    fl_lengths_work work = {rows, dim, head_stride, fl_cpu_floats(x), fl_cpu_doubles(lengths)};
    fl_threads_for(compute->threads, heads, lengths_of_head, &work);
}

/* Attention of a token. */

typedef struct fl_token_attention_work {
    fl_compute *compute;
    const fl_token_attention_call *call;
} fl_token_attention_work;

/* Softmax in place over the living entries of one query; the rest become 0. Returns the log of the sum. */
static float softmax_of_query(const int32_t *expiry, size_t position, size_t count, float *x) {
    float largest = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        if ((size_t)expiry[i] > position && !(x[i] <= largest)) largest = x[i];
    }
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        x[i] = (size_t)expiry[i] > position ? expf(x[i] - largest) : 0.0f;
        sum += x[i];
    }
    if (sum == 0.0) return -INFINITY;
    float scale = (float)(1.0 / sum);
    for (size_t i = 0; i < count; i++) x[i] *= scale;
    return (float)(largest + log(sum));
}

static void attend_group(void *context, size_t kv_head, size_t worker) {
    (void)worker;
    const fl_token_attention_work *work = context;
    const fl_token_attention_call *call = work->call;
    size_t dim = call->shape.head_dim, group = call->shape.query_heads / call->shape.kv_heads;
    size_t first = kv_head * group, of_key = kv_head * call->key_head_stride;
    float *weights = fl_cpu_floats(call->weights) + first * call->keys;
    fl_cpu_matmul(work->compute, false, true, group, call->keys, dim, call->shape.scale,
                  fl_array_from(call->query, first * dim), dim, fl_array_from(call->key, of_key), dim, 0.0f,
                  fl_cpu_array(weights), call->keys);
    for (size_t i = 0; i < group; i++) {
        fl_cpu_floats(call->log_sum_exp)[first + i] =
            softmax_of_query(fl_cpu_integers(call->expiry) + kv_head * call->expiry_head_stride,
                             call->position, call->keys, weights + i * call->keys);
    }
    fl_cpu_matmul(work->compute, false, false, group, dim, call->keys, 1.0f, fl_cpu_array(weights),
                  call->keys, fl_array_from(call->value, of_key), dim, 0.0f,
                  fl_array_from(call->output, first * dim), dim);
}

void fl_cpu_token_attention(fl_compute *compute, const fl_token_attention_call *call) {
    fl_token_attention_work work = {compute, call};
    fl_threads_for(compute->threads, call->shape.kv_heads, attend_group, &work);
}

/* Recall. */

typedef struct fl_recall_work {
    fl_compute *compute;
    const fl_recall_call *call;
} fl_recall_work;

static double residual(const fl_recall_call *call, const float *value, const float *read) {
    double scale = 1.0, sum = 0.0;
    if (call->normaliser) {
        double mass = read[call->layout.value_dim - 1];
        scale = mass == 0.0 ? 0.0 : 1.0 / mass;
    }
    for (size_t i = 0; i < call->rule->head_dim; i++) {
        double difference = value[i] - (scale == 0.0 ? 0.0 : scale * read[i]);
        sum += difference * difference;
    }
    return sqrt(sum);
}

static void find_residuals(const fl_recall_call *call, size_t head, const float *read, double *errors) {
    size_t micro = call->layout.micro_steps, value_dim = call->layout.value_dim,
           group = call->rule->heads / call->kv_heads;
    for (size_t slot = 0; slot < call->candidates; slot++) {
        const float *value =
            fl_cpu_floats(fl_write_row(&call->layout, &call->cached, FL_WRITE_VALUE, head, slot));
        double sum = 0.0;
        for (size_t i = 0; i < micro; i++)
            sum += residual(call, value + i * value_dim, read + (slot * micro + i) * value_dim);
        errors[slot] = sum / (double)(micro * group);
    }
}

static void read_by_rule(const fl_recall_call *call, size_t head, float *read) {
    fl_rule_input input = fl_rule_layer_input(call->rule, head);
    for (size_t slot = 0; slot < call->candidates; slot++) {
        input.query = fl_cpu_floats(fl_write_row(&call->layout, &call->cached, FL_WRITE_KEY, head, slot));
        call->rule->rule.read(&input, fl_cpu_floats(call->state) + head * call->state_floats,
                              read + slot * call->layout.value_dim);
    }
}

static void recall_of_head(void *context, size_t head, size_t worker) {
    (void)worker;
    const fl_recall_work *work = context;
    const fl_recall_call *call = work->call;
    size_t key_dim = call->layout.key_dim, value_dim = call->layout.value_dim;
    size_t reads = call->candidates * call->layout.micro_steps;
    float *read = fl_cpu_floats(call->read) + head * reads * value_dim;
    if (call->own) {
        read_by_rule(call, head, read);
    } else {
        fl_cpu_matmul(work->compute, false, true, reads, value_dim, key_dim, 1.0f,
                      fl_write_row(&call->layout, &call->cached, FL_WRITE_KEY, head, 0), key_dim,
                      fl_array_from(call->state, head * call->state_floats), key_dim, 0.0f,
                      fl_cpu_array(read), value_dim);
    }
    find_residuals(call, head, read, fl_cpu_doubles(call->errors) + head * call->candidates);
}

void fl_cpu_recall_errors(fl_compute *compute, const fl_recall_call *call) {
    fl_recall_work work = {compute, call};
    fl_threads_for(compute->threads, call->rule->heads, recall_of_head, &work);
}

/* Exchange. */

static void swap_rows(const fl_exchange_call *call, size_t head, size_t row, size_t slot) {
    for (int i = 0; i < FL_WRITE_PARTS; i++) {
        enum fl_write_part part = (enum fl_write_part)i;
        float *x = fl_cpu_floats(fl_write_row(&call->layout, &call->stream, part, head, row));
        float *y = fl_cpu_floats(fl_write_row(&call->layout, &call->cached, part, head, slot));
        for (size_t j = 0; x != NULL && j < call->layout.width[i]; j++) {
            float kept = x[j];
            x[j] = y[j];
            y[j] = kept;
        }
    }
}

static void exchange_head(void *context, size_t head, size_t worker) {
    (void)worker;
    const fl_exchange_call *call = context;
    const int32_t *slots =
        fl_cpu_integers(call->slots) + head / (call->layout.heads / call->kv_heads) * call->tokens;
    for (size_t step = call->first_step; step < call->first_step + call->steps; step++) {
        if (slots[step] >= 0) swap_rows(call, head, step, (size_t)slots[step]);
    }
}

void fl_cpu_exchange_rows(fl_compute *compute, const fl_exchange_call *call) {
    fl_threads_for(compute->threads, call->layout.heads, exchange_head, (void *)call);
}
