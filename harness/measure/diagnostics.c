#include "harness/measure/diagnostics.h"

#include "harness/base/memory.h"

struct fl_key_geometry {
    fl_compute *compute;
    size_t kv_heads, head_dim, tokens;
    fl_array sum;     /* [Hkv][D] float64 */
    fl_array product; /* [Hkv][D][D] float64 */
};

fl_status fl_key_geometry_create(fl_compute *compute, size_t kv_heads, size_t head_dim, fl_key_geometry **out,
                                 fl_error *error) {
    *out = NULL;
    fl_key_geometry *geometry = NULL;
    const size_t keys = kv_heads * head_dim;
    fl_status status = FL_OK;
    FL_TRY(FL_ALLOCATE(&geometry, 1, error));
    geometry->compute = compute;
    geometry->kv_heads = kv_heads;
    geometry->head_dim = head_dim;
    FL_TRY_DONE(status, compute->ops->allocate(compute, keys, FL_FLOAT64, &geometry->sum, error));
    FL_TRY_DONE(status,
                compute->ops->allocate(compute, keys * head_dim, FL_FLOAT64, &geometry->product, error));
    fl_key_geometry_reset(geometry);
    *out = geometry;
    return FL_OK;
done:
    fl_key_geometry_destroy(geometry);
    return status;
}

void fl_key_geometry_destroy(fl_key_geometry *geometry) {
    if (geometry == NULL) return;
    geometry->compute->ops->release(geometry->compute, geometry->sum);
    geometry->compute->ops->release(geometry->compute, geometry->product);
    fl_memory_free(geometry);
}

void fl_key_geometry_reset(fl_key_geometry *geometry) {
    const size_t keys = geometry->kv_heads * geometry->head_dim;
    geometry->tokens = 0;
    geometry->compute->ops->fill(geometry->compute, geometry->sum, keys, 0.0);
    geometry->compute->ops->fill(geometry->compute, geometry->product, keys * geometry->head_dim, 0.0);
}

void fl_key_geometry_append(fl_key_geometry *geometry, size_t tokens, fl_array key, fl_array concentration,
                            fl_array residual) {
    const fl_key_geometry_call call = {.tokens = tokens,
                                       .kv_heads = geometry->kv_heads,
                                       .head_dim = geometry->head_dim,
                                       .seen = geometry->tokens,
                                       .key = key,
                                       .sum = geometry->sum,
                                       .product = geometry->product,
                                       .concentration = concentration,
                                       .residual = residual};
    geometry->compute->ops->key_geometry(geometry->compute, &call);
    geometry->tokens += tokens;
}
