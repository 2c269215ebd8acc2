/* Calls that measure activations where they lie. All sums are float64, each in one fixed order, so that no figure depends on the
 * number of threads. */
#ifndef FL_COMPUTE_STATISTICS_H
#define FL_COMPUTE_STATISTICS_H

#include <stddef.h>

#include "harness/compute/array.h"

/* A stretch of keys appended to a sequence (method.md section 5), per KV head, on unit keys k~:
 *   sum      += k~,   product += k~ k~^T,   n: keys so far, this one included
 *   concentration_t = k~ . sum / |sum|                                  (cosine of k~ and the mean of the keys so far)
 *   residual_t      = u . product . u / n - |sum|^2 / n^2,  u = sum / |sum|
 *                                                   (mean squared distance from that mean, along it); 0 for the first key */
typedef struct fl_key_geometry_call {
    size_t tokens, kv_heads, head_dim;
    size_t seen;            /* keys of the sequence before these */
    fl_array key;       /* [T][Hkv][D] */
    fl_array sum;           /* [Hkv][D] float64, in and out */
    fl_array product;       /* [Hkv][D][D] float64, in and out; the lower triangle, diagonal included */
    fl_array concentration; /* [Hkv][T] float64 */
    fl_array residual;      /* [Hkv][T] float64 */
} fl_key_geometry_call;

#endif
