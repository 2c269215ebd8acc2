/* The table of measurements: its rows are whole, and each is allocated, written, read back and pooled. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/measure/measurements.h"
#include "harness/measure/text_result.h"
#include "harness/store/dataset_axes.h"
#include "harness/store/run_record.h"
#include "harness/store/schema_page.h"
#include "harness/store/text_pool.h"
#include "tests/support/fixture.h"

static fl_error problem;

#define OK(call)                                                                                             \
    do {                                                                                                     \
        if ((call) != FL_OK) fail_msg("%s", problem.message);                                                \
    } while (0)

static bool is_array(const fl_measurement *row) {
    return row->kind == FL_MEASUREMENT_ARRAY || row->kind == FL_MEASUREMENT_ALIAS;
}

/* All parts measured; every value differs from every other and is positive. */
static fl_text_result whole_result(double first) {
    static const fl_text_evaluation_options all = {true, true, true, true};
    fl_text_result result = {
        .layers = 2, .query_heads = 4, .kv_heads = 2, .positions = 3, .head_dim = 8, .sequences = 2};
    OK(fl_text_result_create(&all, &result, &problem));
    size_t count = 0, shape[4];
    const fl_measurement *rows = fl_measurements(&count);
    double next = first;
    for (size_t i = 0; i < count; i++) {
        if (rows[i].kind == FL_MEASUREMENT_ALIAS) continue;
        const size_t elements = fl_measurement_shape(&rows[i], &result, shape);
        if (rows[i].kind == FL_MEASUREMENT_COUNT) *fl_measurement_count(&result, &rows[i]) = (size_t)next++;
        if (rows[i].kind == FL_MEASUREMENT_FIGURE) *fl_measurement_figure(&result, &rows[i]) = next++;
        for (size_t k = 0; rows[i].kind == FL_MEASUREMENT_ARRAY && k < elements; k++)
            (*fl_measurement_array(&result, &rows[i]))[k] = next++;
    }
    return result;
}

/* Equal up to a relative `tolerance`, in the rows that `counts` says. */
static void assert_same(const fl_text_result *x, const fl_text_result *y, double tolerance,
                        bool (*counts)(const fl_measurement *)) {
    size_t count = 0, shape[4];
    const fl_measurement *rows = fl_measurements(&count);
    for (size_t i = 0; i < count; i++) {
        const fl_measurement *row = &rows[i];
        if (!counts(row)) continue;
        const size_t elements = fl_measurement_shape(row, y, shape);
        const double single[] = {is_array(row) ? 0.0 : fl_measurement_value(x, row),
                                 is_array(row) ? 0.0 : fl_measurement_value(y, row)};
        const double *a = is_array(row) ? fl_measurement_values(x, row) : &single[0];
        const double *b = is_array(row) ? fl_measurement_values(y, row) : &single[1];
        if (a == NULL || b == NULL) fail_msg("%s is not there", row->member);
        for (size_t k = 0; k < elements; k++) {
            if (!(fabs(a[k] - b[k]) <= tolerance * fabs(b[k])))
                fail_msg("%s[%zu]: %.17g instead of %.17g", row->member, k, a[k], b[k]);
        }
    }
}

static bool every_row(const fl_measurement *row) {
    (void)row;
    return true;
}

static bool row_beside(const fl_measurement *row) {
    return row->beside != NULL;
}

static void test_rows_are_whole(void **state) {
    (void)state;
    size_t count = 0;
    const fl_measurement *rows = fl_measurements(&count);
    for (size_t i = 0; i < count; i++) {
        const fl_measurement *row = &rows[i];
        if (row->units == NULL || row->description == NULL || row->description[0] == '\0')
            fail_msg("%s has no units or no description", row->member);
        if ((row->figure == NULL) != (row->meaning == NULL)) fail_msg("%s: figure and meaning", row->member);
        assert_ptr_equal(fl_measurement_of_path(row->path), row);
        const fl_measurement *owner = fl_measurement_of_member(row->member);
        assert_non_null(owner);
        assert_true(owner == row || row->kind == FL_MEASUREMENT_ALIAS);
        assert_string_equal(owner->axes, row->axes);
        for (const char *axis = row->axes; *axis != '\0'; axis++)
            if (strchr("SLHNPQBE", *axis) == NULL) fail_msg("%s: axis %c", row->member, *axis);
        if (row->partner == NULL) continue;
        const fl_measurement *partner = fl_measurement_of_member(row->partner);
        if (partner == NULL || partner > row) fail_msg("%s: its partner comes first", row->member);
        if (strncmp(partner->axes, row->axes, strlen(partner->axes)) != 0)
            fail_msg("%s: axes of its partner", row->member);
    }
}

static fl_run_reader *written(const char *directory, const fl_text_result *result, const char *root) {
    char path[600];
    fl_run_file *file = NULL;
    fl_run_reader *reader = NULL;
    snprintf(path, sizeof path, "%s/a.h5", directory);
    OK(fl_run_file_create(directory, "a", &file, &problem));
    OK(root == NULL ? fl_run_record_write_text_result(file, result, &problem)
                    : fl_run_record_write_comparison(file, root, result, &problem));
    OK(fl_run_file_commit(file, &problem));
    OK(fl_run_reader_open(path, &reader, &problem));
    return reader;
}

static void test_every_row_is_written_and_read_back(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_text_result result = whole_result(1), back;
    fl_run_reader *reader = written(directory, &result, NULL);
    size_t count = 0, rank = 0, shape[4], expected[4];
    const fl_measurement *rows = fl_measurements(&count);
    for (size_t i = 0; i < count; i++) {
        double *data = NULL;
        char *text = NULL;
        OK(fl_run_reader_doubles(reader, rows[i].path, &data, &rank, shape, &problem));
        fl_memory_free(data);
        fl_measurement_shape(&rows[i], &result, expected);
        assert_int_equal(rank, strlen(rows[i].axes));
        assert_memory_equal(shape, expected, rank * sizeof shape[0]);
        OK(fl_run_reader_attribute_text(reader, rows[i].path, "units", &text, &problem));
        assert_string_equal(text, rows[i].units);
        fl_memory_free(text);
        OK(fl_run_reader_attribute_text(reader, rows[i].path, "description", &text, &problem));
        assert_string_equal(text, rows[i].description);
        fl_memory_free(text);
    }
    OK(fl_run_record_read_text_result(reader, &back, &problem));
    assert_same(&back, &result, 0.0, every_row);
    fl_run_reader_close(reader);
    fl_text_result_release(&back);
    fl_text_result_release(&result);
    fl_temporary_remove(directory);
}

static fl_status count_dataset(void *context, const char *path, size_t rank, const size_t *shape,
                               fl_error *error) {
    (void)rank, (void)shape, (void)error;
    const fl_measurement *row = fl_measurement_of_path(path);
    if (row == NULL || row->beside == NULL) fail_msg("%s: not of the table", path);
    ++*(size_t *)context;
    return FL_OK;
}

static void test_a_comparison_keeps_the_rows_marked_for_it(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_text_result result = whole_result(1);
    fl_run_reader *reader = written(directory, &result, "/baseline/linear_off");
    size_t count = 0, marked = 0, there = 0;
    const fl_measurement *rows = fl_measurements(&count);
    for (size_t i = 0; i < count; i++) marked += row_beside(&rows[i]);
    OK(fl_run_reader_visit(reader, count_dataset, &there, &problem));
    assert_int_equal(there, marked);
    fl_run_reader_close(reader);
    fl_text_result_release(&result);
    fl_temporary_remove(directory);
}

static bool row_pooled(const fl_measurement *row) {
    return row->pooling != FL_POOL_NEVER;
}

/* Whose pool of two equal results is the result itself: not what adds up. */
static bool row_averaged(const fl_measurement *row) {
    return row_pooled(row) && row->pooling != FL_POOL_SUM && row->pooling != FL_POOL_JOIN;
}

/* The exponents are made small; their exponentials would overflow otherwise. */
static fl_text_result poolable_result(void) {
    fl_text_result result = whole_result(1);
    result.cross_entropy = 2.0, result.full_cross_entropy = 1.5;
    result.perplexity = exp(2.0), result.full_perplexity = exp(1.5);
    return result;
}

/* `row_averaged` without what is NaN by design: nothing follows the last position. */
static bool row_averaged_everywhere(const fl_measurement *row) {
    return row_averaged(row) && row->pooling != FL_POOL_BY_SCORED_POSITION;
}

static void test_every_pooled_row_of_equal_results_is_theirs(void **state) {
    (void)state;
    fl_text_result parts[] = {poolable_result(), poolable_result()}, pooled;
    static const char *const names[] = {"a", "b"};
    OK(fl_text_pool(parts, names, 2, &pooled, &problem));
    assert_same(&pooled, &parts[0], 1e-12, row_averaged_everywhere);
    for (size_t p = 0; p + 1 < 3; p++) /* the last position is not scored */
        assert_true(fabs(pooled.position_cross_entropy[p] - parts[0].position_cross_entropy[p]) < 1e-9);
    assert_int_equal(pooled.tokens, 2 * parts[0].tokens);
    assert_true(pooled.position_count[1] == 2 * parts[0].position_count[1]);
    size_t count = 0;
    const fl_measurement *rows = fl_measurements(&count);
    for (size_t i = 0; i < count; i++) {
        if (rows[i].kind == FL_MEASUREMENT_ARRAY && !row_pooled(&rows[i]))
            assert_null(fl_measurement_values(&pooled, &rows[i]));
    }
    for (size_t i = 0; i < 2; i++) fl_text_result_release(&parts[i]);
    fl_text_result_release(&pooled);
}

static void test_axes_of_datasets_have_names(void **state) {
    (void)state;
    static const struct {
        const char *path;
        size_t rank;
        const char *names;
    } known[] = {
        {"/errors/teacher_forced/head_position_mse", 3, "layer head position"},
        {"/baseline/linear_off/errors/teacher_forced/position_nmse", 2, "layer position"},
        {"/ablation/exact_off/errors/teacher_forced/nmse", 1, "layer"},
        {"/diagnostics/gates/gate_quantiles", 3, "layer head quantile"},
        {"/diagnostics/trends/key_concentration/edges", 2, "layer edge"},
        {"/tasks/mmlu/items/log_likelihood", 2, "item choice"},
        {"/tasks/mmlu/subjects/acc", 1, "subject"},
        {"/training/evaluation_step", 1, "evaluation"},
        {"/training/loss", 1, "step"},
        {"/merged/nmse", 2, "run layer"},
        {"/merged/kl", 1, "run"},
        {"/logits", 2, "position token"},
        {"/unheard/of", 2, "axis_0 axis_1"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const char *names[FL_AXES_MOST];
        char text[128] = "";
        fl_dataset_axes(known[i].path, known[i].rank, names);
        for (size_t a = 0; a < known[i].rank; a++) {
            const size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, "%s%s", a > 0 ? " " : "", names[a]);
        }
        assert_string_equal(text, known[i].names);
    }
}

static void test_the_schema_page_is_the_table(void **state) {
    (void)state;
    static const char path[] = "results/README.md";
    char *page = fl_read_file(path, NULL), *table = NULL;
    OK(fl_schema_page_measurements(&table, &problem));
    char *begin = strstr(page, FL_SCHEMA_PAGE_BEGIN), *end = strstr(page, FL_SCHEMA_PAGE_END);
    assert_true(begin != NULL && end != NULL && begin < end);
    begin += strlen(FL_SCHEMA_PAGE_BEGIN);
    const size_t bytes = (size_t)(end - begin);
    const bool same = bytes == strlen(table) && memcmp(begin, table, bytes) == 0;
    if (!same && getenv("FROSTLINE_UPDATE") != NULL) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fprintf(file, "%.*s%s%s", (int)(begin - page), page, table, end);
        fclose(file);
    } else if (!same) {
        fail_msg("%s is not what measurements.inc says: run this test with FROSTLINE_UPDATE=1", path);
    }
    fl_memory_free(table);
    fl_memory_free(page);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_whole),
        cmocka_unit_test(test_every_row_is_written_and_read_back),
        cmocka_unit_test(test_a_comparison_keeps_the_rows_marked_for_it),
        cmocka_unit_test(test_every_pooled_row_of_equal_results_is_theirs),
        cmocka_unit_test(test_axes_of_datasets_have_names),
        cmocka_unit_test(test_the_schema_page_is_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
