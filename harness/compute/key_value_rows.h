/* Key/value rows: keys and values of one layer of one timeline, head by head, in arrays that grow: what the caches of softmax
 * layers, the exact sets of linearised ones and passes over whole sequences keep their rows in. Which rows are in use, and what
 * they mean, is the owner's. */
#ifndef FL_COMPUTE_KEY_VALUE_ROWS_H
#define FL_COMPUTE_KEY_VALUE_ROWS_H

#include <stddef.h>

#include "harness/base/status.h"
#include "harness/compute/compute.h"

typedef struct fl_key_value_rows {
    fl_compute *compute;       /* borrowed */
    size_t kv_heads, head_dim; /* Hkv, D */
    size_t capacity;           /* rows a head */
    fl_array key, value;       /* [Hkv][capacity][D], owned; none at capacity 0 */
} fl_key_value_rows;

void fl_key_value_rows_init(fl_key_value_rows *rows, fl_compute *compute, size_t kv_heads, size_t head_dim);
void fl_key_value_rows_release(fl_key_value_rows *rows); /* back to capacity 0 */

/* Fresh memory for `capacity` rows, to whose front rows first .. first + count - 1 of every head are copied. On failure the rows
 * stay as they are. */
fl_status fl_key_value_rows_resize(fl_key_value_rows *rows, size_t capacity, size_t first, size_t count, fl_error *error);
/* The same at equal capacity, with rows index[0], index[1], ... of each head: index [Hkv][count]. */
fl_status fl_key_value_rows_select(fl_key_value_rows *rows, const int32_t *index, size_t count, fl_error *error);

/* Key and value [tokens][Hkv][D] become rows at, at + 1, ... */
void fl_key_value_rows_put(const fl_key_value_rows *rows, size_t at, size_t tokens, fl_array key, fl_array value);
/* Rows 0, 1, ... of `of`, which lie as key and value do, to x [tokens][Hkv][D]. */
void fl_key_value_rows_take(const fl_key_value_rows *rows, fl_array of, size_t tokens, fl_array x);

/* Rows first .. first + count - 1 of `from` become the first of `rows`, which has room for them. */
void fl_key_value_rows_copy(const fl_key_value_rows *rows, const fl_key_value_rows *from, size_t first, size_t count);

/* From row `at` on: the arrays as an attention call wants them, with fl_key_value_rows_stride. */
static inline fl_array fl_key_value_rows_key(const fl_key_value_rows *rows, size_t at) {
    return fl_array_from(rows->key, at * rows->head_dim);
}
static inline fl_array fl_key_value_rows_value(const fl_key_value_rows *rows, size_t at) {
    return fl_array_from(rows->value, at * rows->head_dim);
}
static inline size_t fl_key_value_rows_stride(const fl_key_value_rows *rows) {
    return rows->capacity * rows->head_dim;
}

/* The numbers 0, 1, 2, ... as int32: positions of keys that lie in order, and, shifted by a window, their expiries. */
typedef struct fl_ascending {
    fl_array values;
    size_t count;
} fl_ascending;

/* At least `count` of them. */
fl_status fl_ascending_reserve(fl_ascending *ascending, fl_compute *compute, size_t count, fl_error *error);

#endif
