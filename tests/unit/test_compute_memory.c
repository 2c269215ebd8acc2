#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/compute/compute.h"
#include "tests/support/arrays.h"

static fl_compute *compute;

static int create(void **state) {
    fl_error error = {0};
    (void)state;
    return fl_compute_create_cpu(&(fl_compute_options){2, SIZE_MAX}, &compute, &error) == FL_OK ? 0 : -1;
}

static int destroy(void **state) {
    (void)state;
    fl_compute_destroy(compute);
    return 0;
}

static fl_array allocate(size_t count, fl_number number) {
    fl_array array = fl_array_none;
    fl_error error = {0};
    if (compute->ops->allocate(compute, count, number, &array, &error) != FL_OK)
        fail_msg("%s", error.message);
    assert_int_equal(array.number, number);
    return array;
}

static fl_array uploaded(size_t count, fl_number number, const void *values) {
    fl_array array = allocate(count, number);
    compute->ops->upload(compute, array, values, count);
    return array;
}

static void download(void *to, fl_array from, size_t count) {
    fl_error error = {0};
    if (compute->ops->download(compute, to, from, count, &error) != FL_OK) fail_msg("%s", error.message);
}

static void what_goes_up_comes_down(void **state) {
    (void)state;
    static const float floats[3] = {1.5f, -0.0f, 3.0f};
    static const int32_t integers[4] = {-1, 0, INT32_MAX, INT32_MIN};
    float floats_back[3];
    int32_t integers_back[2];
    fl_array a = uploaded(3, FL_FLOAT32, floats), b = uploaded(4, FL_INT32, integers);
    download(floats_back, a, 3);
    assert_memory_equal(floats_back, floats, sizeof floats);
    download(integers_back, fl_array_from(b, 2), 2);
    assert_memory_equal(integers_back, integers + 2, sizeof integers_back);
    compute->ops->release(compute, a);
    compute->ops->release(compute, b);
    compute->ops->release(compute, fl_array_none);
}

/* Enough rows for several items, strides wider than the rows, and what lies between rows untouched. */
static void rows_are_copied_and_gathered(void **state) {
    (void)state;
    enum { ROWS = 70000, COUNT = 3, FROM = 4, TO = 5 };
    float *from = fl_test_block(ROWS * FROM, sizeof *from), *back = fl_test_block(ROWS * TO, sizeof *back);
    int32_t *index = fl_test_block(ROWS, sizeof *index);
    for (size_t i = 0; i < ROWS * FROM; i++) from[i] = (float)i;
    for (size_t i = 0; i < ROWS; i++) index[i] = (int32_t)(i * 31 % ROWS);
    fl_array source = uploaded(ROWS * FROM, FL_FLOAT32, from), to = allocate(ROWS * TO, FL_FLOAT32);
    fl_array indices = uploaded(ROWS, FL_INT32, index);
    for (int gather = 0; gather < 2; gather++) {
        compute->ops->fill(compute, to, ROWS * TO, -1.0);
        if (gather) {
            compute->ops->gather_rows(compute, to, TO, source, FROM, indices, ROWS, COUNT);
        } else {
            compute->ops->copy_rows(compute, to, TO, source, FROM, ROWS, COUNT);
        }
        download(back, to, ROWS * TO);
        for (size_t row = 0; row < ROWS; row++) {
            size_t expected = (gather ? (size_t)index[row] : row) * FROM;
            for (size_t i = 0; i < TO; i++) {
                assert_true(back[row * TO + i] == (i < COUNT ? (float)(expected + i) : -1.0f));
            }
        }
    }
    compute->ops->release(compute, source);
    compute->ops->release(compute, to);
    compute->ops->release(compute, indices);
    fl_memory_free(from);
    fl_memory_free(back);
    fl_memory_free(index);
}

static void a_fill_rounds_to_the_type(void **state) {
    (void)state;
    float floats[3];
    double doubles[3];
    int32_t integers[3];
    uint16_t halves[3];
    fl_array arrays[4];
    for (int number = FL_FLOAT32; number <= FL_INT32; number++) {
        arrays[number] = allocate(3, (fl_number)number);
        compute->ops->fill(compute, arrays[number], 3, number == FL_INT32 ? -7.0 : 1.0 / 3.0);
    }
    download(floats, arrays[FL_FLOAT32], 3);
    download(doubles, arrays[FL_FLOAT64], 3);
    download(integers, arrays[FL_INT32], 3);
    download(halves, arrays[FL_BFLOAT16], 3);
    for (size_t i = 0; i < 3; i++) {
        assert_true(floats[i] == 1.0f / 3.0f && doubles[i] == 1.0 / 3.0 && integers[i] == -7);
        assert_int_equal(halves[i], 0x3eab); /* 0.333984375 */
    }
    compute->ops->fill(compute, arrays[FL_FLOAT32], 3, (double)NAN);
    download(floats, arrays[FL_FLOAT32], 3);
    assert_true(isnan(floats[0]) && isnan(floats[2]));
    for (int number = FL_FLOAT32; number <= FL_INT32; number++)
        compute->ops->release(compute, arrays[number]);
}

/* After a change of version what operations read is the new numbers. */
static void borrowed_numbers_follow_their_version(void **state) {
    (void)state;
    float values[2] = {1.0f, 2.0f}, back[2];
    fl_error error = {0};
    fl_array borrowed, copy = allocate(2, FL_FLOAT32);
    for (uint64_t version = 1; version <= 2; version++) {
        assert_int_equal(compute->ops->borrow(compute, values, 2, FL_FLOAT32, version, &borrowed, &error),
                         FL_OK);
        compute->ops->copy_rows(compute, copy, 2, borrowed, 2, 1, 2);
        download(back, copy, 2);
        assert_true(back[0] == (float)version && back[1] == 2.0f);
        values[0] = 2.0f;
    }
    compute->ops->forget(compute, values);
    compute->ops->release(compute, copy);
}

static void parts_and_absence(void **state) {
    (void)state;
    fl_array array = allocate(8, FL_FLOAT64);
    assert_true(fl_array_is(array) && !fl_array_is(fl_array_none));
    assert_false(fl_array_is(fl_array_from(fl_array_none, 5)));
    assert_ptr_equal(fl_array_from(array, 3).at, (unsigned char *)array.at + 24);
    assert_int_equal(fl_array_from(array, 3).number, FL_FLOAT64);
    compute->ops->release(compute, array);
    fl_error error = {0};
    assert_int_equal(compute->ops->allocate(compute, SIZE_MAX / 2, FL_FLOAT64, &array, &error),
                     FL_ERROR_ARGUMENT);
    assert_int_equal(compute->ops->settle(compute, &error), FL_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_up_comes_down),   cmocka_unit_test(rows_are_copied_and_gathered),
        cmocka_unit_test(a_fill_rounds_to_the_type), cmocka_unit_test(borrowed_numbers_follow_their_version),
        cmocka_unit_test(parts_and_absence),
    };
    return cmocka_run_group_tests(tests, create, destroy);
}
