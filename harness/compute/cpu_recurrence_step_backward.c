/* With M = S_{t-1} diag(a), e = b M r (what is erased), S_t = M - e x^T + w v k^T and G the gradient of S_t:
 *     G += g q^T                dq = S_t^T g
 *     dk = w G^T v              dv = w G k             dw = v . G k
 *     de = -G x                 dx = -G^T e            db = de . M r        dr = b M^T de
 *     dM = G + b de r^T         d log a = sum over Dv of dM M               dS_{t-1} = dM diag(a) */
#include <string.h>

#include "harness/compute/cpu_recurrence_backward.h"

/* M in scratch->decayed, S_t in scratch->state, M r in `read` [Dv]. */
static void step_again(const fl_kernels *kernels, const fl_recurrence_head *head, size_t token,
                       fl_backward_scratch *scratch, float *read) {
    size_t key_dim = head->key_dim, value_dim = head->value_dim;
    float write = head->write != NULL ? head->write[token] : 1.0f;
    fl_chunk_scale_columns(kernels, head->decay_width, scratch->chunk.decay, value_dim, key_dim,
                           scratch->state);
    memcpy(scratch->decayed, scratch->state, value_dim * key_dim * sizeof(float));
    for (size_t v = 0; v < value_dim; v++) {
        float *row = scratch->state + v * key_dim;
        if (head->erases) {
            read[v] =
                kernels->dot(key_dim, scratch->decayed + v * key_dim, head->erase_read + token * key_dim);
            kernels->axpy(key_dim, -head->erase_strength[token] * read[v],
                          head->erase_write + token * key_dim, row);
        }
        kernels->axpy(key_dim, write * head->value[token * value_dim + v], head->key + token * key_dim, row);
    }
}

static void copy_out(float *out, const float *values, size_t token, size_t width) {
    if (out != NULL) memcpy(out + token * width, values, width * sizeof *values);
}

/* Through the write: gradients of key (into `key`, cleared first), value and write weight. */
static void write_backward(const fl_kernels *kernels, const fl_recurrence_head *head, size_t token,
                           const fl_recurrence_gradients *gradients, const float *gradient_state,
                           float *key) {
    size_t key_dim = head->key_dim, value_dim = head->value_dim;
    float write = head->write != NULL ? head->write[token] : 1.0f, gradient_write = 0.0f;
    memset(key, 0, key_dim * sizeof *key);
    for (size_t v = 0; v < value_dim; v++) {
        const float *row = gradient_state + v * key_dim;
        float value = head->value[token * value_dim + v];
        float along = kernels->dot(key_dim, row, head->key + token * key_dim);
        kernels->axpy(key_dim, write * value, row, key);
        if (fl_array_is(gradients->value))
            fl_cpu_floats(gradients->value)[token * value_dim + v] = write * along;
        gradient_write += value * along;
    }
    if (fl_array_is(gradients->write)) fl_cpu_floats(gradients->write)[token] = gradient_write;
}

/* Through the erase: adds the gradients of r and x to the arrays and turns G into dM. */
static void erase_backward(const fl_kernels *kernels, const fl_recurrence_head *head, size_t token,
                           const fl_recurrence_gradients *gradients, const float *read,
                           fl_backward_scratch *scratch, float *gradient_read, float *gradient_removed) {
    size_t key_dim = head->key_dim;
    float strength = head->erase_strength[token], gradient_strength = 0.0f;
    for (size_t v = 0; v < head->value_dim; v++) {
        float *row = scratch->gradient_state + v * key_dim;
        float erased = -kernels->dot(key_dim, row, head->erase_write + token * key_dim);
        gradient_strength += erased * read[v];
        kernels->axpy(key_dim, -strength * read[v], row, gradient_removed);
        kernels->axpy(key_dim, strength * erased, scratch->decayed + v * key_dim, gradient_read);
        kernels->axpy(key_dim, strength * erased, head->erase_read + token * key_dim, row);
    }
    if (fl_array_is(gradients->erase_strength))
        fl_cpu_floats(gradients->erase_strength)[token] = gradient_strength;
}

static void decay_backward(const fl_kernels *kernels, const fl_recurrence_head *head, size_t token,
                           const fl_recurrence_gradients *gradients, fl_backward_scratch *scratch,
                           float *channels) {
    size_t key_dim = head->key_dim, width = head->decay_width;
    memset(channels, 0, key_dim * sizeof *channels);
    for (size_t v = 0; v < head->value_dim; v++) {
        kernels->multiply_add(key_dim, scratch->gradient_state + v * key_dim, scratch->decayed + v * key_dim,
                              channels);
    }
    if (width == 1) {
        double total = 0.0;
        for (size_t i = 0; i < key_dim; i++) total += (double)channels[i];
        if (fl_array_is(gradients->log_decay)) fl_cpu_floats(gradients->log_decay)[token] = (float)total;
    } else {
        copy_out(fl_cpu_floats(gradients->log_decay), channels, token, key_dim);
    }
    fl_chunk_scale_columns(kernels, width, scratch->chunk.decay, head->value_dim, key_dim,
                           scratch->gradient_state);
}

void fl_step_backward(const fl_kernels *kernels, const fl_recurrence_head *head, size_t token,
                      const float *gradient_output, const fl_recurrence_gradients *gradients,
                      fl_backward_scratch *scratch) {
    size_t key_dim = head->key_dim, value_dim = head->value_dim, width = head->decay_width;
    float *query = scratch->gradient_readers, *key = query + key_dim, *gradient_read = key + key_dim,
          *removed = gradient_read + key_dim, *channels = removed + key_dim, *read = scratch->gradient_base;
    if (width > 0) kernels->exp(width, head->log_decay + token * width, scratch->chunk.decay);
    step_again(kernels, head, token, scratch, read);
    memset(query, 0, key_dim * sizeof *query);
    for (size_t v = 0; v < value_dim; v++) {
        float g = gradient_output[token * value_dim + v];
        kernels->axpy(key_dim, g, scratch->state + v * key_dim, query);
        kernels->axpy(key_dim, g, head->query + token * key_dim, scratch->gradient_state + v * key_dim);
    }
    copy_out(fl_cpu_floats(gradients->query), query, token, key_dim);
    write_backward(kernels, head, token, gradients, scratch->gradient_state, key);
    if (head->erases) {
        float *to_read = head->own_directions ? gradient_read : key,
              *to_removed = head->own_directions ? removed : key;
        memset(gradient_read, 0, 2 * key_dim * sizeof *gradient_read);
        erase_backward(kernels, head, token, gradients, read, scratch, to_read, to_removed);
        if (head->own_directions) {
            copy_out(fl_cpu_floats(gradients->erase_read), gradient_read, token, key_dim);
            copy_out(fl_cpu_floats(gradients->erase_write), removed, token, key_dim);
        }
    }
    copy_out(fl_cpu_floats(gradients->key), key, token, key_dim);
    if (width > 0) decay_backward(kernels, head, token, gradients, scratch, channels);
}
