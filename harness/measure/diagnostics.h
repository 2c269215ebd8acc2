/* Diagnostics of keys (method.md section 5), per KV head, on unit keys k~ after RoPE, kbar_t = mean of k~_0 .. k~_t:
 *   key concentration    C_t = cos(k~_t, kbar_t)
 *   projection residual  R_t = mean_{i <= t} || P_t k~_i - kbar_t ||^2,  P_t = orthogonal projection on kbar_t
 * R_t = u.M_t u - |kbar_t|^2 with u = kbar_t / |kbar_t| and M_t = mean k~ k~^T: running sums, O(D^2) a token. Float64. */
#ifndef FL_MEASURE_DIAGNOSTICS_H
#define FL_MEASURE_DIAGNOSTICS_H

#include <stddef.h>

#include "harness/base/status.h"
#include "harness/compute/compute.h"

typedef struct fl_key_geometry fl_key_geometry; /* one sequence of one layer */

fl_status fl_key_geometry_create(fl_compute *compute, size_t kv_heads, size_t head_dim, fl_key_geometry **out,
                                 fl_error *error);
void fl_key_geometry_destroy(fl_key_geometry *geometry);
void fl_key_geometry_reset(fl_key_geometry *geometry); /* a new sequence */

/* Appends key [T][Hkv][D]. concentration and residual [Hkv][T] float64: C and R of each of these tokens. */
void fl_key_geometry_append(fl_key_geometry *geometry, size_t tokens, fl_array key, fl_array concentration,
                            fl_array residual);

#endif
