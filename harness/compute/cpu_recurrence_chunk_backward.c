/* In the scaled coordinates of cpu_recurrence.h, with g the gradient of the output, G that of the state after
 * the chunk times exp(G_n - m), B [readers][Dv] the gradient of what each reader reads from S' and M
 * [readers][sources] that of raw: dY = raw_q^T g + Z G^T;   with an erase dU = (I + b raw)^-T dY (its
 * unknowns' part), B_r = -b dU;   B_q = g M = lower(B Y^T);   dR = M Z + B S';   dZ = M^T R + Y G;   dS' = G
 * + B^T R db = -dU . (R_r S'^T + raw_r Y), what the erase reads in full The accumulated decay enters through
 * R, Z and the states only: its gradient at token t is R.dR - Z.dZ there, and that of log a_t is what the
 * state on entry gives, S'.dS', minus the sum over earlier tokens of the chunk. */
#include <string.h>

#include "harness/compute/cpu_recurrence_backward.h"

static void erase_backward(const fl_kernels *kernels, const fl_recurrence_head *head, size_t first,
                           const fl_recurrence_gradients *gradients, fl_backward_scratch *s) {
    const fl_chunk *chunk = &s->chunk;
    size_t n = chunk->tokens, columns = chunk->sources_count, dim = head->value_dim;
    float *unknown = s->gradient_amounts + (head->own_directions ? n * dim : 0);
    kernels->solve_unit_lower_transposed(n, dim, chunk->system, n, unknown, dim);
    for (size_t t = 0; t < n; t++) {
        kernels->scale(dim, -head->erase_strength[first + t], unknown + t * dim, s->gradient_base + t * dim);
    }
    if (fl_array_is(gradients->erase_strength)) {
        fl_chunk_lower_times(kernels, n, columns / n, dim, chunk->raw, chunk->amounts, true, chunk->read);
        for (size_t t = 0; t < n; t++) {
            fl_cpu_floats(gradients->erase_strength)[first + t] =
                -kernels->dot(dim, unknown + t * dim, chunk->read + t * dim);
        }
    }
    if (head->own_directions) {
        fl_chunk_upper_times(kernels, n, 2, 1, dim, chunk->raw, s->gradient_base, true, s->gradient_amounts);
    }
}

static void write_backward(const fl_kernels *kernels, const fl_recurrence_head *head, size_t first, size_t n,
                           const float *gradient_amounts, const fl_recurrence_gradients *gradients) {
    size_t dim = head->value_dim;
    for (size_t t = 0; t < n; t++) {
        const float *gradient = gradient_amounts + t * dim;
        float write = head->write != NULL ? head->write[first + t] : 1.0f;
        if (fl_array_is(gradients->value))
            kernels->scale(dim, write, gradient, fl_cpu_floats(gradients->value) + (first + t) * dim);
        if (fl_array_is(gradients->write)) {
            fl_cpu_floats(gradients->write)[first + t] =
                kernels->dot(dim, gradient, head->value + (first + t) * dim);
        }
    }
}

/* sum += sign x y, per channel or in all. */
static void add_products(const fl_kernels *kernels, size_t width, size_t key_dim, double sign, const float *x,
                         const float *y, double *sum) {
    if (width == 1) {
        *sum += sign * (double)kernels->dot(key_dim, x, y);
    } else {
        kernels->accumulate_products(key_dim, sign, x, y, sum);
    }
}

static void decay_backward(const fl_kernels *kernels, const fl_recurrence_head *head, size_t first,
                           const fl_recurrence_gradients *gradients, fl_backward_scratch *s) {
    const fl_chunk *chunk = &s->chunk;
    size_t n = chunk->tokens, dim = head->key_dim, width = head->decay_width;
    size_t readers = chunk->first_reader_query + n;
    memset(s->running, 0, width * sizeof *s->running);
    for (size_t v = 0; v < head->value_dim; v++) {
        add_products(kernels, width, dim, 1.0, s->state + v * dim, s->gradient_state + v * dim, s->running);
    }
    for (size_t t = 0; t < n; t++) {
        float *out = fl_cpu_floats(gradients->log_decay) + (first + t) * width;
        for (size_t i = 0; i < width; i++) out[i] = (float)s->running[i];
        for (size_t r = t; r < readers; r += n) {
            add_products(kernels, width, dim, -1.0, chunk->readers + r * dim, s->gradient_readers + r * dim,
                         s->running);
        }
        for (size_t r = t; r < chunk->sources_count; r += n) {
            add_products(kernels, width, dim, 1.0, chunk->sources + r * dim, s->gradient_sources + r * dim,
                         s->running);
        }
    }
}

/* rows [n][Dk] times their tokens' factors, added to out or put there. */
static void unscale(const fl_kernels *kernels, const fl_recurrence_head *head, const float *factor, size_t n,
                    const float *rows, bool add, float *out) {
    size_t dim = head->key_dim, width = head->decay_width;
    for (size_t t = 0; t < n; t++) {
        const float *row = rows + t * dim;
        float *to = out + t * dim, one = width == 1 ? factor[t] : 1.0f;
        if (!add) memset(to, 0, dim * sizeof *to);
        if (width > 1) {
            kernels->multiply_add(dim, row, factor + t * dim, to);
        } else {
            kernels->axpy(dim, one, row, to);
        }
    }
}

static void copy_gradients(const fl_kernels *kernels, const fl_recurrence_head *head, size_t first,
                           const fl_recurrence_gradients *gradients, const fl_backward_scratch *s) {
    const fl_chunk *chunk = &s->chunk;
    size_t n = chunk->tokens, dim = head->key_dim, at = first * dim;
    const float *queries = s->gradient_readers + chunk->first_reader_query * dim;
    if (fl_array_is(gradients->query)) {
        unscale(kernels, head, chunk->reader_factor, n, queries, false, fl_cpu_floats(gradients->query) + at);
    }
    if (fl_array_is(gradients->key)) {
        unscale(kernels, head, chunk->source_factor, n, s->gradient_sources, false,
                fl_cpu_floats(gradients->key) + at);
        if (head->erases && !head->own_directions) {
            unscale(kernels, head, chunk->reader_factor, n, s->gradient_readers, true,
                    fl_cpu_floats(gradients->key) + at);
        }
    }
    if (!head->own_directions) return;
    if (fl_array_is(gradients->erase_read)) {
        unscale(kernels, head, chunk->reader_factor, n, s->gradient_readers, false,
                fl_cpu_floats(gradients->erase_read) + at);
    }
    if (fl_array_is(gradients->erase_write)) {
        unscale(kernels, head, chunk->source_factor, n, s->gradient_sources + n * dim, false,
                fl_cpu_floats(gradients->erase_write) + at);
    }
}

void fl_chunk_backward(const fl_kernels *kernels, const fl_recurrence_head *head, size_t first, size_t n,
                       const float *gradient_output, const fl_recurrence_gradients *gradients,
                       fl_backward_scratch *s) {
    fl_chunk *chunk = &s->chunk;
    size_t key_dim = head->key_dim, value_dim = head->value_dim;
    fl_chunk_cut(kernels, head, first, n, chunk);
    fl_chunk_solve(kernels, head, first, n, true, s->state, chunk);
    size_t columns = chunk->sources_count, queries = chunk->first_reader_query, readers = queries + n;
    const float *g = gradient_output + first * value_dim;
    fl_chunk_scale_columns(kernels, head->decay_width, chunk->end_factor, value_dim, key_dim,
                           s->gradient_state);
    fl_chunk_upper_times(kernels, n, columns / n, columns / n, value_dim, chunk->raw + queries * columns, g,
                         false, s->gradient_amounts);
    fl_cpu_block_product(kernels, FL_WHOLE, false, true, columns, value_dim, key_dim, 1.0f, chunk->sources,
                         key_dim, s->gradient_state, key_dim, true, s->gradient_amounts, value_dim);
    if (head->erases) erase_backward(kernels, head, first, gradients, s);
    write_backward(kernels, head, first, n, s->gradient_amounts, gradients);
    memcpy(s->gradient_base + queries * value_dim, g, n * value_dim * sizeof *g);
    fl_chunk_lower_of(kernels, n, readers / n, columns / n, value_dim, s->gradient_base, chunk->amounts,
                      queries, s->gradient_raw);
    for (size_t r = 0; r < readers; r += n) {
        const float *block = s->gradient_raw + r * columns;
        fl_chunk_lower_times(kernels, n, columns / n, key_dim, block, chunk->sources, false,
                             s->gradient_readers + r * key_dim);
        fl_chunk_upper_times(kernels, n, columns / n, columns / n, key_dim, block,
                             chunk->readers + r * key_dim, r > 0, s->gradient_sources);
    }
    fl_cpu_block_product(kernels, FL_WHOLE, false, false, readers, key_dim, value_dim, 1.0f, s->gradient_base,
                         value_dim, s->state, key_dim, true, s->gradient_readers, key_dim);
    fl_cpu_block_product(kernels, FL_WHOLE, false, false, columns, key_dim, value_dim, 1.0f, chunk->amounts,
                         value_dim, s->gradient_state, key_dim, true, s->gradient_sources, key_dim);
    fl_cpu_block_product(kernels, FL_WHOLE, true, false, value_dim, key_dim, readers, 1.0f, s->gradient_base,
                         value_dim, chunk->readers, key_dim, true, s->gradient_state, key_dim);
    if (head->decay_width > 0 && fl_array_is(gradients->log_decay))
        decay_backward(kernels, head, first, gradients, s);
    copy_gradients(kernels, head, first, gradients, s);
    fl_chunk_scale_columns(kernels, head->decay_width, chunk->state_factor, value_dim, key_dim,
                           s->gradient_state);
}
