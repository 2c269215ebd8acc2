/* Key/value cache of one softmax layer of one sequence: rows appended token by token, head-major, growing by doubling.
 *
 * With a sliding window w only the last w - 1 rows can still be seen by a later token; older ones are dropped when room is
 * needed, so the capacity stays below 2 (w - 1 + tokens of the largest call). Live rows are start .. count - 1. */
#ifndef FL_ENGINE_KEY_VALUE_CACHE_H
#define FL_ENGINE_KEY_VALUE_CACHE_H

#include <stddef.h>

#include "harness/base/status.h"
#include "harness/compute/key_value_rows.h"

typedef struct fl_key_value_cache {
    fl_key_value_rows rows;
    size_t window; /* 0 = full attention */
    size_t start, count;
} fl_key_value_cache;

void fl_key_value_cache_init(fl_key_value_cache *cache, fl_compute *compute, size_t kv_heads, size_t head_dim,
                             size_t window);
void fl_key_value_cache_release(fl_key_value_cache *cache);
void fl_key_value_cache_clear(fl_key_value_cache *cache); /* no rows; memory is kept */

/* Makes room for `tokens` rows in all, so that appending up to there allocates nothing more. */
fl_status fl_key_value_cache_reserve(fl_key_value_cache *cache, size_t tokens, fl_error *error);

/* Appends key and value [T][Hkv][D]. *past = live rows before these: the rows a query of this call may see are
 * start .. start + *past + tokens - 1, the first of its own at start + *past. */
fl_status fl_key_value_cache_append(fl_key_value_cache *cache, size_t tokens, fl_array key, fl_array value,
                                    size_t *past, fl_error *error);

/* Takes the last `tokens` rows away again, which the latest append added. */
void fl_key_value_cache_take_back(fl_key_value_cache *cache, size_t tokens);

/* Makes *cache hold the live rows of *source (same shape and window), allocating only when it has less capacity. */
fl_status fl_key_value_cache_copy(fl_key_value_cache *cache, const fl_key_value_cache *source, fl_error *error);

#endif
