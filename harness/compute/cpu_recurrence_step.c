/* The step form: the definition, one token after another. */
#include <math.h>

#include "harness/compute/cpu_recurrence.h"

/* A null write must leave the state alone bit for bit, which adding zeros would not: -0 + 0 = +0. */
static bool is_null_write(const fl_recurrence_head *head, size_t token) {
    if (head->erases && head->erase_strength[token] != 0.0f) return false;
    for (size_t i = 0; i < head->decay_width; i++) {
        if (head->log_decay[token * head->decay_width + i] != 0.0f) return false;
    }
    const float *key = head->key + token * head->key_dim;
    for (size_t i = 0; i < head->key_dim; i++) {
        if (key[i] != 0.0f) return false;
    }
    return true;
}

static const float *decay_factors(const fl_kernels *kernels, const fl_recurrence_head *head, size_t token,
                                  float *decay) {
    if (head->decay_width == 0) return NULL;
    const float *log_decay = head->log_decay + token * head->decay_width;
    kernels->exp(head->decay_width, log_decay, decay);
    for (size_t i = head->decay_width; i < head->key_dim; i++) decay[i] = decay[0];
    return decay;
}

static void read_only(const fl_kernels *kernels, const fl_recurrence_head *head, const float *query,
                      const float *state, float *output) {
    for (size_t v = 0; v < head->value_dim; v++) {
        output[v] = kernels->dot(head->key_dim, state + v * head->key_dim, query);
    }
}

void fl_recurrence_step_tokens(const fl_kernels *kernels, const fl_recurrence_head *head, size_t first,
                               size_t count, float *state, float *output, float *norm, float *decay) {
    size_t key_dim = head->key_dim, value_dim = head->value_dim;
    for (size_t t = first; t < first + count; t++) {
        const float *query = output != NULL ? head->query + t * key_dim : NULL;
        float *y = output != NULL ? output + t * value_dim : NULL;
        if (is_null_write(head, t)) {
            if (y != NULL) read_only(kernels, head, query, state, y);
        } else {
            fl_step_inputs in = {.query = query,
                                 .key = head->key + t * key_dim,
                                 .value = head->value + t * value_dim,
                                 .decay = decay_factors(kernels, head, t, decay),
                                 .write = head->write != NULL ? head->write[t] : 1.0f};
            if (head->erases) {
                in.erase_read = head->erase_read + t * key_dim;
                in.erase_write = head->erase_write + t * key_dim;
                in.erase_strength = head->erase_strength[t];
            }
            kernels->recurrence_step(value_dim, key_dim, &in, state, y);
        }
        if (norm != NULL) norm[t] = (float)sqrt(kernels->sum_of_squares(head->norm_values * key_dim, state));
    }
}
