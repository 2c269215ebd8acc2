/* Every operation of the compute table on every backend, random shapes with edges, against float64 within the
 * bound of its row (harness/bench/operation_list.h). The cpu backend runs with each table of vector kernels.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "harness/bench/operation_list.h"
#include "harness/compute/cpu_kernels.h"
#include "tests/support/cuda_device.h"

enum { CASES = 16 };

static void describe(const fl_operation *operation, const size_t *sizes, char *out, size_t bytes) {
    int used = snprintf(out, bytes, "%s", operation->name);
    for (size_t i = 0; i < FL_OPERATION_SIZES && operation->sizes[i].name != NULL; i++)
        used += snprintf(out + used, bytes - (size_t)used, ", %s %zu", operation->sizes[i].name, sizes[i]);
}

/* Whether the case is within the bound; what is not is printed. */
static bool check_case(fl_compute *compute, const fl_operation *operation, fl_random *random, uint64_t seed,
                       double *worst) {
    size_t sizes[FL_OPERATION_SIZES] = {0};
    char text[256];
    fl_trial trial;
    fl_trial_verdict verdict = {0};
    fl_error error = {0};
    fl_operation_draw(operation, random, sizes);
    describe(operation, sizes, text, sizeof text);
    if (fl_operation_begin(operation, compute, sizes, seed, &trial, &error) != FL_OK ||
        operation->call(&trial, &error) != FL_OK || fl_trial_compare(&trial, &verdict, &error) != FL_OK)
        fail_msg("%s: %s", text, error.message);
    fl_trial_release(&trial);
    assert_non_null(verdict.name);
    if (verdict.error > *worst) *worst = verdict.error;
    if (verdict.error <= operation->bound) return true;
    printf("%s, seed %llu: %s is off by %.3g of its root mean square, more than %.3g\n", text,
           (unsigned long long)seed, verdict.name, verdict.error, operation->bound);
    return false;
}

static void check_backend(fl_compute *compute) {
    const fl_operation *operation;
    size_t failures = 0;
    for (size_t i = 0; (operation = fl_operation_at(i)) != NULL; i++) {
        double worst = 0.0;
        fl_random random;
        fl_random_seed(&random, 2026, 0);
        assert_true(fl_operation_present(operation, compute));
        for (uint64_t seed = 0; seed < CASES; seed++)
            failures += check_case(compute, operation, &random, seed, &worst) ? 0 : 1;
        printf("worst: %s, %s %.2e of %.1e\n", compute->ops->name, operation->name, worst, operation->bound);
    }
    assert_int_equal(failures, 0);
}

static void test_cpu_with_each_table_of_kernels(void **state) {
    (void)state;
    for (size_t i = 0; fl_kernels_at(i) != NULL; i++) {
        fl_compute *compute = NULL;
        printf("kernels: %s\n", fl_kernels_at(i)->name);
        assert_int_equal(fl_kernels_select(fl_kernels_at(i)->name, NULL), FL_OK);
        assert_int_equal(fl_compute_create_cpu(&(fl_compute_options){2, SIZE_MAX}, &compute, NULL), FL_OK);
        check_backend(compute);
        fl_compute_destroy(compute);
    }
    assert_int_equal(fl_kernels_select(NULL, NULL), FL_OK);
}

/* Weights that no memory is left to widen go another way. */
static void test_cpu_without_room_for_widened_weights(void **state) {
    (void)state;
    fl_compute *compute = NULL;
    assert_int_equal(fl_compute_create_cpu(&(fl_compute_options){3, 0}, &compute, NULL), FL_OK);
    check_backend(compute);
    fl_compute_destroy(compute);
}

/* A GPU where FROSTLINE_TEST_CUDA names its object, else the emulation. */
static void test_cuda(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 2; seed++) {
        fl_cuda_device_seed(seed);
        check_backend(fl_cuda_device());
    }
}

/* A slot that is added to the table without a row fails here. */
static void test_every_slot_has_a_row(void **state) {
    (void)state;
    const size_t *used = NULL, used_count = fl_operation_used_by_all(&used);
    size_t missing = 0;
    for (size_t slot = 0; slot < sizeof(fl_compute_ops); slot += sizeof(void (*)(void))) {
        bool found = false;
        const fl_operation *operation;
        for (size_t i = 0; i < used_count; i++) found = found || used[i] == slot;
        for (size_t i = 0; (operation = fl_operation_at(i)) != NULL; i++)
            found = found || operation->slot == slot;
        if (!found) printf("slot %zu of fl_compute_ops has no row\n", slot / sizeof(void (*)(void)));
        missing += !found;
    }
    assert_int_equal(missing, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_slot_has_a_row),
        cmocka_unit_test(test_cpu_with_each_table_of_kernels),
        cmocka_unit_test(test_cpu_without_room_for_widened_weights),
        cmocka_unit_test(test_cuda),
    };
    return cmocka_run_group_tests(tests, fl_cuda_device_open, fl_cuda_device_close);
}
