#include "harness/compute/key_value_rows.h"

#include "harness/base/memory.h"

void fl_key_value_rows_init(fl_key_value_rows *rows, fl_compute *compute, size_t kv_heads, size_t head_dim) {
    *rows = (fl_key_value_rows){.compute = compute, .kv_heads = kv_heads, .head_dim = head_dim};
}

void fl_key_value_rows_release(fl_key_value_rows *rows) {
    fl_compute_release(rows->compute, rows->key);
    fl_compute_release(rows->compute, rows->value);
    fl_key_value_rows_init(rows, rows->compute, rows->kv_heads, rows->head_dim);
}

static fl_status allocate(const fl_key_value_rows *like, size_t capacity, fl_key_value_rows *out,
                          fl_error *error) {
    size_t floats = 0;
    fl_key_value_rows_init(out, like->compute, like->kv_heads, like->head_dim);
    FL_TRY(fl_memory_multiply(capacity, like->kv_heads * like->head_dim, &floats, "keys and values", error));
    FL_TRY(fl_compute_floats(out->compute, floats, &out->key, error));
    fl_status status = fl_compute_floats(out->compute, floats, &out->value, error);
    if (status != FL_OK) fl_key_value_rows_release(out);
    out->capacity = status == FL_OK ? capacity : 0;
    return status;
}

void fl_key_value_rows_copy(const fl_key_value_rows *rows, const fl_key_value_rows *from, size_t first,
                            size_t count) {
    if (count == 0) return;
    fl_compute_copy_rows(rows->compute, rows->key, fl_key_value_rows_stride(rows),
                         fl_key_value_rows_key(from, first), fl_key_value_rows_stride(from), rows->kv_heads,
                         count * rows->head_dim);
    fl_compute_copy_rows(rows->compute, rows->value, fl_key_value_rows_stride(rows),
                         fl_key_value_rows_value(from, first), fl_key_value_rows_stride(from), rows->kv_heads,
                         count * rows->head_dim);
}

fl_status fl_key_value_rows_resize(fl_key_value_rows *rows, size_t capacity, size_t first, size_t count,
                                   fl_error *error) {
    fl_key_value_rows fresh;
    FL_TRY(allocate(rows, capacity, &fresh, error));
    fl_key_value_rows_copy(&fresh, rows, first, count);
    fl_key_value_rows_release(rows);
    *rows = fresh;
    return FL_OK;
}

static void select_head(const fl_key_value_rows *to, const fl_key_value_rows *from, fl_array index,
                        size_t head, size_t count) {
    const size_t dim = to->head_dim, at = head * fl_key_value_rows_stride(to);
    const fl_array chosen = fl_array_from(index, head * count);
    fl_compute_gather_rows(to->compute, fl_array_from(to->key, at), dim, fl_array_from(from->key, at), dim,
                           chosen, count, dim);
    fl_compute_gather_rows(to->compute, fl_array_from(to->value, at), dim, fl_array_from(from->value, at),
                           dim, chosen, count, dim);
}

fl_status fl_key_value_rows_select(fl_key_value_rows *rows, const int32_t *index, size_t count,
                                   fl_error *error) {
    fl_compute *compute = rows->compute;
    fl_key_value_rows fresh = {0};
    fl_array chosen = fl_array_none;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, compute->ops->allocate(compute, rows->kv_heads * count, FL_INT32, &chosen, error));
    FL_TRY_DONE(status, allocate(rows, rows->capacity, &fresh, error));
    compute->ops->upload(compute, chosen, index, rows->kv_heads * count);
    for (size_t head = 0; head < rows->kv_heads; head++) select_head(&fresh, rows, chosen, head, count);
    fl_key_value_rows_release(rows);
    *rows = fresh;
done:
    fl_compute_release(compute, chosen);
    return status;
}

void fl_key_value_rows_put(const fl_key_value_rows *rows, size_t at, size_t tokens, fl_array key,
                           fl_array value) {
    const size_t dim = rows->head_dim, token = rows->kv_heads * dim;
    for (size_t head = 0; head < rows->kv_heads; head++) {
        const size_t row = head * fl_key_value_rows_stride(rows) + at * dim;
        fl_compute_copy_rows(rows->compute, fl_array_from(rows->key, row), dim,
                             fl_array_from(key, head * dim), token, tokens, dim);
        fl_compute_copy_rows(rows->compute, fl_array_from(rows->value, row), dim,
                             fl_array_from(value, head * dim), token, tokens, dim);
    }
}

void fl_key_value_rows_take(const fl_key_value_rows *rows, fl_array of, size_t tokens, fl_array x) {
    const size_t dim = rows->head_dim;
    for (size_t head = 0; head < rows->kv_heads; head++) {
        fl_compute_copy_rows(rows->compute, fl_array_from(x, head * dim), rows->kv_heads * dim,
                             fl_array_from(of, head * fl_key_value_rows_stride(rows)), dim, tokens, dim);
    }
}

fl_status fl_ascending_reserve(fl_ascending *ascending, fl_compute *compute, size_t count, fl_error *error) {
    if (count <= ascending->count) return FL_OK;
    int32_t *numbers = NULL;
    fl_array fresh = fl_array_none;
    fl_status status = FL_OK;
    const size_t larger = 2 * count;
    FL_TRY_DONE(status, FL_ALLOCATE(&numbers, larger, error));
    FL_TRY_DONE(status, compute->ops->allocate(compute, larger, FL_INT32, &fresh, error));
    for (size_t i = 0; i < larger; i++) numbers[i] = (int32_t)i;
    compute->ops->upload(compute, fresh, numbers, larger);
    fl_compute_release(compute, ascending->values);
    *ascending = (fl_ascending){fresh, larger};
done:
    fl_memory_free(numbers);
    return status;
}
