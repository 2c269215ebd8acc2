#include "harness/measure/diagnostics.h"

#include <math.h>
#include <string.h>

#include "harness/base/memory.h"

struct fl_key_geometry {
    size_t kv_heads, head_dim, tokens;
    double *unit;    /* [Hkv][D] the newest unit key */
    double *sum;     /* [Hkv][D] sum of unit keys */
    double *product; /* [Hkv][D][D] sum of k~ k~^T, lower triangle */
};

typedef struct {
    fl_key_geometry *geometry;
    size_t tokens, stride;
    const float *key;
    double *concentration, *residual;
} fl_key_job;

static const double SMALLEST_NORM = 1e-12;

fl_status fl_key_geometry_create(size_t kv_heads, size_t head_dim, fl_key_geometry **out, fl_error *error) {
    *out = NULL;
    fl_key_geometry *geometry = NULL;
    fl_status status = FL_OK;
    FL_TRY(FL_ALLOCATE(&geometry, 1, error));
    geometry->kv_heads = kv_heads;
    geometry->head_dim = head_dim;
    FL_TRY_DONE(status, FL_ALLOCATE(&geometry->unit, kv_heads * head_dim, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&geometry->sum, kv_heads * head_dim, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&geometry->product, kv_heads * head_dim * head_dim, error));
    *out = geometry;
    return FL_OK;
done:
    fl_key_geometry_destroy(geometry);
    return status;
}

void fl_key_geometry_destroy(fl_key_geometry *geometry) {
    if (geometry == NULL) return;
    fl_memory_free(geometry->unit);
    fl_memory_free(geometry->sum);
    fl_memory_free(geometry->product);
    fl_memory_free(geometry);
}

void fl_key_geometry_reset(fl_key_geometry *geometry) {
    size_t keys = geometry->kv_heads * geometry->head_dim;
    geometry->tokens = 0;
    memset(geometry->sum, 0, keys * sizeof(double));
    memset(geometry->product, 0, keys * geometry->head_dim * sizeof(double));
}

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
    if (seen == 0) {
        *concentration += 1.0;
        return;
    }
    *concentration += sum_norm > 0.0 ? dot / sqrt(sum_norm) : 0.0;
    double mean_square = sum_norm > 0.0 ? quadratic_form(dim, product, sum) / (sum_norm * count) : 0.0;
    *residual += mean_square - sum_norm / (count * count);
}

static void append_head(void *context, size_t head, size_t worker) {
    (void)worker;
    const fl_key_job *job = context;
    fl_key_geometry *geometry = job->geometry;
    size_t dim = geometry->head_dim;
    for (size_t t = 0; t < job->tokens; t++) {
        append_key(dim, job->key + (t * geometry->kv_heads + head) * dim, geometry->tokens + t,
                   geometry->unit + head * dim, geometry->sum + head * dim,
                   geometry->product + head * dim * dim, &job->concentration[head * job->stride + t],
                   &job->residual[head * job->stride + t]);
    }
}

void fl_key_geometry_append(fl_key_geometry *geometry, fl_threads *threads, size_t tokens, const float *key,
                            size_t stride, double *concentration, double *residual) {
    fl_key_job job = {geometry, tokens, stride, key, concentration, residual};
    fl_threads_for(threads, geometry->kv_heads, append_head, &job);
    geometry->tokens += tokens;
}
