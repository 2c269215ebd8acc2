#include <assert.h>
#include <math.h>
#include <stdint.h>

#include "harness/compute/cpu_backend.h"

/* LAPACK's symmetric eigenvalue routine, part of OpenBLAS. */
extern void dsyev_(const char *job, const char *triangle, const int *n, double *a, const int *stride,
                   double *eigenvalues, double *work, const int *work_count, int *info);

enum { ROWS_AN_ITEM = 32 };

static const double SMALLEST_NORM = 1e-12;

/* --- rows --- */

typedef struct {
    size_t rows, columns;
    const float *x, *reference; /* reference NULL: moments */
    double *first, *second;     /* squared error and cosine, or sum and sum of squares */
} rows_work;

static void error_of_row(const rows_work *work, size_t row) {
    const float *reference = work->reference + row * work->columns, *other = work->x + row * work->columns;
    double squared = 0.0, dot = 0.0, reference_norm = 0.0, other_norm = 0.0;
    for (size_t i = 0; i < work->columns; i++) {
        double r = (double)reference[i], x = (double)other[i];
        squared += (x - r) * (x - r);
        dot += x * r;
        reference_norm += r * r;
        other_norm += x * x;
    }
    double norms = sqrt(reference_norm) * sqrt(other_norm);
    work->first[row] = squared;
    work->second[row] = norms == 0.0 ? 0.0 : dot / norms;
}

static void moments_of_row(const rows_work *work, size_t row) {
    const float *x = work->x + row * work->columns;
    double sum = 0.0, sum_squares = 0.0;
    for (size_t i = 0; i < work->columns; i++) {
        double value = (double)x[i];
        sum += value;
        sum_squares += value * value;
    }
    work->first[row] = sum;
    work->second[row] = sum_squares;
}

static void rows_item(void *context, size_t item, size_t worker) {
    (void)worker;
    const rows_work *work = context;
    const size_t first = item * ROWS_AN_ITEM;
    const size_t last = first + ROWS_AN_ITEM < work->rows ? first + ROWS_AN_ITEM : work->rows;
    for (size_t row = first; row < last; row++) {
        if (work->reference != NULL) {
            error_of_row(work, row);
        } else {
            moments_of_row(work, row);
        }
    }
}

void fl_cpu_row_errors(fl_compute *compute, size_t rows, size_t columns, fl_array reference, fl_array other,
                       fl_array squared, fl_array cosine) {
    rows_work work = {rows, columns, fl_cpu_floats(other), fl_cpu_floats(reference), squared.at, cosine.at};
    fl_threads_for(compute->threads, (rows + ROWS_AN_ITEM - 1) / ROWS_AN_ITEM, rows_item, &work);
}

void fl_cpu_row_moments(fl_compute *compute, size_t rows, size_t columns, fl_array x, fl_array sum,
                        fl_array sum_squares) {
    rows_work work = {rows, columns, fl_cpu_floats(x), NULL, sum.at, sum_squares.at};
    fl_threads_for(compute->threads, (rows + ROWS_AN_ITEM - 1) / ROWS_AN_ITEM, rows_item, &work);
}

/* --- whole arrays --- */

void fl_cpu_first_not_finite(fl_compute *compute, size_t count, fl_array x, fl_array first) {
    (void)compute;
    size_t i = 0;
    while (i < count && isfinite(fl_cpu_floats(x)[i])) i++;
    *(int32_t *)first.at = (int32_t)i;
}

void fl_cpu_subtract_squares(fl_compute *compute, size_t count, fl_array y, fl_array x, fl_array squares) {
    (void)compute;
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        double difference = (double)fl_cpu_floats(x)[i] - (double)fl_cpu_floats(y)[i];
        sum += difference * difference;
        fl_cpu_floats(x)[i] = (float)difference;
    }
    *(double *)squares.at = sum;
}

void fl_cpu_scale(fl_compute *compute, size_t count, float factor, fl_array x) {
    fl_cpu_of(compute)->kernels->scale(count, factor, fl_cpu_floats(x), fl_cpu_floats(x));
}

/* --- geometry of keys --- */

/* x^T A x from the lower triangle of the symmetric A [n][n]. */
static double quadratic_form(size_t n, const double *a, const double *x) {
    double total = 0.0;
    for (size_t i = 0; i < n; i++) {
        double row = 0.0;
        for (size_t j = 0; j < i; j++) row += a[i * n + j] * x[j];
        total += x[i] * (2.0 * row + a[i * n + i] * x[i]);
    }
    return total;
}

/* unit [D]: scratch. */
static void append_key(size_t dim, const float *key, size_t seen, double *unit, double *sum, double *product,
                       double *concentration, double *residual) {
    double norm = 0.0, dot = 0.0, sum_norm = 0.0;
    for (size_t i = 0; i < dim; i++) norm += (double)key[i] * (double)key[i];
    norm = fmax(sqrt(norm), SMALLEST_NORM);
    for (size_t i = 0; i < dim; i++) {
        unit[i] = (double)key[i] / norm;
        sum[i] += unit[i];
        dot += unit[i] * sum[i];
        sum_norm += sum[i] * sum[i];
        for (size_t j = 0; j <= i; j++) product[i * dim + j] += unit[i] * unit[j];
    }
    double count = (double)(seen + 1);
    *concentration = 1.0;
    *residual = 0.0;
    if (seen == 0) return;
    *concentration = sum_norm > 0.0 ? dot / sqrt(sum_norm) : 0.0;
    double mean_square = sum_norm > 0.0 ? quadratic_form(dim, product, sum) / (sum_norm * count) : 0.0;
    *residual = mean_square - sum_norm / (count * count);
}

typedef struct {
    const fl_cpu *cpu;
    const fl_key_geometry_call *call;
} geometry_work;

static void append_head(void *context, size_t head, size_t worker) {
    const geometry_work *work = context;
    const fl_key_geometry_call *call = work->call;
    const size_t dim = call->head_dim;
    double *unit = (double *)(void *)fl_cpu_scratch(work->cpu, worker);
    double *sum = fl_array_from(call->sum, head * dim).at;
    double *product = fl_array_from(call->product, head * dim * dim).at;
    double *concentration = fl_array_from(call->concentration, head * call->tokens).at;
    double *residual = fl_array_from(call->residual, head * call->tokens).at;
    for (size_t t = 0; t < call->tokens; t++) {
        append_key(dim, fl_cpu_floats(call->key) + (t * call->kv_heads + head) * dim, call->seen + t, unit,
                   sum, product, &concentration[t], &residual[t]);
    }
}

void fl_cpu_key_geometry(fl_compute *compute, const fl_key_geometry_call *call) {
    assert(2 * call->head_dim <= FL_CPU_FIXED_SCRATCH);
    geometry_work work = {fl_cpu_of(compute), call};
    fl_threads_for(compute->threads, call->kv_heads, append_head, &work);
}

/* --- effective rank --- */

typedef struct {
    const fl_cpu *cpu;
    size_t value_dim, key_dim;
    const float *state;
    double *rank;
} rank_work;

/* gram [Dv][Dv] = S S^T; false when it is not finite. */
static bool gram_of(size_t value_dim, size_t key_dim, const float *state, double *gram) {
    for (size_t i = 0; i < value_dim; i++) {
        for (size_t j = 0; j <= i; j++) {
            double sum = 0.0;
            for (size_t c = 0; c < key_dim; c++) {
                sum += (double)state[i * key_dim + c] * (double)state[j * key_dim + c];
            }
            if (!isfinite(sum)) return false;
            gram[i * value_dim + j] = gram[j * value_dim + i] = sum;
        }
    }
    return true;
}

static double effective_rank(size_t value_dim, size_t key_dim, const float *state, double *workspace) {
    double *gram = workspace, *eigenvalues = gram + value_dim * value_dim, *work = eigenvalues + value_dim;
    if (!gram_of(value_dim, key_dim, state, gram)) return NAN;
    int n = (int)value_dim, room = 4 * (int)value_dim, info = 0;
    dsyev_("N", "U", &n, gram, &n, eigenvalues, work, &room, &info);
    if (info != 0) return NAN;
    double total = 0.0, entropy = 0.0;
    for (size_t i = 0; i < value_dim; i++) total += sqrt(fmax(eigenvalues[i], 0.0));
    if (total == 0.0) return 0.0;
    for (size_t i = 0; i < value_dim; i++) {
        double share = sqrt(fmax(eigenvalues[i], 0.0)) / total;
        if (share > 0.0) entropy -= share * log(share);
    }
    return exp(entropy);
}

static void rank_of_head(void *context, size_t head, size_t worker) {
    const rank_work *work = context;
    work->rank[head] =
        effective_rank(work->value_dim, work->key_dim, work->state + head * work->value_dim * work->key_dim,
                       (double *)(void *)fl_cpu_scratch(work->cpu, worker));
}

fl_status fl_cpu_effective_rank(fl_compute *compute, size_t heads, size_t value_dim, size_t key_dim,
                                fl_array state, fl_array rank, fl_error *error) {
    fl_cpu *cpu = fl_cpu_of(compute);
    FL_TRY(fl_cpu_reserve_scratch(cpu, 2 * (value_dim * value_dim + 5 * value_dim), error));
    rank_work work = {cpu, value_dim, key_dim, fl_cpu_floats(state), rank.at};
    fl_threads_for(compute->threads, heads, rank_of_head, &work);
    return FL_OK;
}
