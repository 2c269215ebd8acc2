/* Run records: a result lands in the pinned datasets, and the schema's description has them all. */
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
#include "harness/compute/cpu_kernels.h"
#include "harness/store/provenance.h"
#include "harness/store/run_record.h"
#include "harness/store/task_record.h"
#include "tests/support/fixture.h"

static fl_error problem;

#define OK(call)                                                                                             \
    do {                                                                                                     \
        if ((call) != FL_OK) fail_msg("%s", problem.message);                                                \
    } while (0)

enum { L = 2, H = 4, N = 2, P = 3 };

/* One block stands for every array: each starts elsewhere in it. */
static double block[256];

static fl_text_result sample(bool all) {
    for (size_t i = 0; i < 256; i++) block[i] = (double)i;
    fl_text_result r = {.layers = L, .query_heads = H, .kv_heads = N, .positions = P, .head_dim = 8};
    r.mse = block, r.variance = block + 2, r.mean = block + 4, r.nmse = block + 6, r.cosine = block + 8;
    r.head_nmse = block + 10, r.head_mean = block + 18, r.head_variance = block + 26;
    r.position_nmse = block + 34, r.position_count = block + 40, r.head_position_mse = block + 43;
    r.tokens = 100, r.scored_tokens = 97, r.state_bytes = 1 << 20, r.exact_bytes = 1 << 10;
    r.perplexity = r.cross_entropy = r.full_perplexity = r.full_cross_entropy = r.kl = r.agreement = NAN;
    if (!all) return r;
    r.attention_nmse = block + 70, r.residual_nmse = block + 72, r.attention_mse = block + 74,
    r.residual_mse = block + 76;
    r.attention_mean = block + 78, r.residual_mean = block + 80, r.attention_variance = block + 82;
    r.residual_variance = block + 84, r.attention_position_nmse = block + 86,
    r.residual_position_nmse = block + 92;
    r.position_kl = block + 98, r.position_cross_entropy = block + 101,
    r.full_position_cross_entropy = block + 104;
    r.key_concentration = block + 107, r.projection_residual = block + 119, r.state_norm = block + 131;
    r.perplexity = 20.5, r.cross_entropy = 3.02, r.full_perplexity = 12.5, r.full_cross_entropy = 2.52,
    r.kl = 0.5;
    r.agreement = 0.75, r.linear_share = 0.9;
    r.diverged = true;
    snprintf(r.diverged_at, sizeof r.diverged_at, "propagated, layer 1, position 2");
    return r;
}

static fl_resolved *resolved_sample(void) {
    fl_resolved *resolved = NULL;
    OK(fl_resolved_create(&resolved, &problem));
    OK(fl_resolved_add(resolved, "variant.rule", "kda", false, &problem));
    OK(fl_resolved_add(resolved, "variant.window", "56", true, &problem));
    return resolved;
}

static const char *write_record(const char *directory, const fl_text_result *result) {
    static char path[600];
    snprintf(path, sizeof path, "%s/a.h5", directory);
    fl_run_file *file = NULL;
    fl_resolved *resolved = resolved_sample();
    fl_provenance provenance;
    fl_run_header header = {"a", "quickstart", "variant.rule=kda", "complete", "untrained"};
    OK(fl_run_file_create(directory, "a", &file, &problem));
    OK(fl_run_record_write_header(file, &header, &problem));
    OK(fl_run_record_write_config(file, resolved, &problem));
    OK(fl_run_record_write_text_result(file, result, &problem));
    OK(fl_provenance_collect(&provenance, &problem));
    OK(fl_provenance_set(&provenance.weights_hash_before, "0123", &problem));
    OK(fl_provenance_write(file, &provenance, &problem));
    OK(fl_run_record_write_seconds(file, "frozen", 1.5, "shared frozen pass", &problem));
    OK(fl_run_record_write_bytes(file, "peak_resident", 1 << 30, "largest resident set", &problem));
    OK(fl_run_file_commit(file, &problem));
    fl_provenance_release(&provenance);
    fl_resolved_destroy(resolved);
    return path;
}

static void assert_array(fl_run_reader *reader, const char *path, size_t rank, const size_t *shape,
                         double first) {
    double *data = NULL;
    size_t got_rank = 0, got_shape[4];
    OK(fl_run_reader_doubles(reader, path, &data, &got_rank, got_shape, &problem));
    size_t count = 1;
    assert_int_equal(got_rank, rank);
    for (size_t i = 0; i < rank; i++) {
        assert_int_equal(got_shape[i], shape[i]);
        count *= shape[i];
    }
    for (size_t i = 0; i < count; i++) assert_true(data[i] == first + (double)i);
    fl_memory_free(data);
}

static void test_every_array_lands_in_its_pinned_dataset(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_text_result result = sample(true);
    fl_run_reader *reader = NULL;
    OK(fl_run_reader_open(write_record(directory, &result), &reader, &problem));
    static const struct {
        const char *path;
        size_t rank, shape[3];
        double first;
    } pinned[] = {{"/errors/teacher_forced/mse", 1, {L}, 0},
                  {"/errors/teacher_forced/variance", 1, {L}, 2},
                  {"/errors/teacher_forced/nmse", 1, {L}, 6},
                  {"/errors/teacher_forced/cosine", 1, {L}, 8},
                  {"/errors/teacher_forced/head_nmse", 2, {L, H}, 10},
                  {"/errors/teacher_forced/position_nmse", 2, {L, P}, 34},
                  {"/errors/teacher_forced/position_count", 1, {P}, 40},
                  {"/errors/propagated/attention_nmse", 1, {L}, 70},
                  {"/errors/propagated/residual_nmse", 1, {L}, 72},
                  {"/language_model/position_kl", 1, {P}, 98},
                  {"/language_model/position_cross_entropy", 1, {P}, 101},
                  {"/diagnostics/key_concentration", 3, {L, N, P}, 107},
                  {"/diagnostics/projection_residual", 3, {L, N, P}, 119},
                  {"/diagnostics/state_norm", 3, {L, H, P}, 131},
                  {"/language_model/perplexity", 0, {0}, 20.5},
                  {"/language_model/cross_entropy", 0, {0}, 3.02},
                  {"/language_model/full_perplexity", 0, {0}, 12.5},
                  {"/language_model/full_cross_entropy", 0, {0}, 2.52},
                  {"/language_model/kl", 0, {0}, 0.5},
                  {"/language_model/agreement", 0, {0}, 0.75},
                  {"/language_model/linear_share", 0, {0}, 0.9},
                  {"/text/tokens", 0, {0}, 100},
                  {"/text/scored_tokens", 0, {0}, 97},
                  {"/memory/state_bytes", 0, {0}, 1 << 20},
                  {"/memory/exact_bytes", 0, {0}, 1 << 10},
                  {"/memory/peak_resident", 0, {0}, 1 << 30},
                  {"/timing/frozen", 0, {0}, 1.5}};
    for (size_t i = 0; i < sizeof pinned / sizeof pinned[0]; i++) {
        assert_array(reader, pinned[i].path, pinned[i].rank, pinned[i].shape, pinned[i].first);
    }
    double diverged = 0;
    char *text = NULL;
    OK(fl_run_reader_attribute_number(reader, "/", "diverged", &diverged, &problem));
    assert_true(diverged == 1);
    OK(fl_run_reader_attribute_text(reader, "/", "diverged_at", &text, &problem));
    assert_string_equal(text, "propagated, layer 1, position 2");
    fl_memory_free(text);
    OK(fl_run_reader_attribute_text(reader, "/errors/teacher_forced/nmse", "units", &text, &problem));
    assert_string_equal(text, "1");
    fl_memory_free(text);
    fl_run_reader_close(reader);
    fl_temporary_remove(directory);
}

static void test_what_was_not_measured_is_not_there(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_text_result result = sample(false);
    fl_run_reader *reader = NULL;
    OK(fl_run_reader_open(write_record(directory, &result), &reader, &problem));
    assert_true(fl_run_reader_has(reader, "/errors/teacher_forced/nmse"));
    static const char *const absent[] = {"/errors/propagated", "/language_model", "/diagnostics",
                                         "/timing/propagated"};
    for (size_t i = 0; i < 4; i++) assert_false(fl_run_reader_has(reader, absent[i]));
    fl_run_reader_close(reader);
    fl_temporary_remove(directory);
}

static void test_config_header_and_provenance_are_there(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_text_result result = sample(true);
    fl_run_reader *reader = NULL;
    OK(fl_run_reader_open(write_record(directory, &result), &reader, &problem));
    char *text = NULL, **texts = NULL;
    size_t count = 0;
    OK(fl_run_reader_text(reader, "/config", &text, &problem));
    assert_string_equal(text, "variant:\n  rule: kda\n  window: 56\n");
    fl_memory_free(text);
    OK(fl_run_reader_texts(reader, "/config_defaults", &texts, &count, &problem));
    assert_int_equal(count, 1);
    assert_string_equal(texts[0], "variant.window");
    fl_memory_free(texts[0]);
    fl_memory_free(texts);
    static const char *const attributes[][2] = {{"format", "frostline run"}, {"run_id", "a"},
                                                {"name", "quickstart"},      {"cell", "variant.rule=kda"},
                                                {"status", "complete"},      {"tier", "untrained"}};
    for (size_t i = 0; i < 6; i++) {
        OK(fl_run_reader_attribute_text(reader, "/", attributes[i][0], &text, &problem));
        assert_string_equal(text, attributes[i][1]);
        fl_memory_free(text);
    }
    static const char *const known[] = {
        "compiler",      "compiler_flags", "openblas", "hdf5", "libyaml",     "cjson",
        "pcre2",         "utf8proc",       "xxhash",   "host", "environment", "weights_hash_before",
        "vector_kernels"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char path[64];
        snprintf(path, sizeof path, "/provenance/%s", known[i]);
        if (!fl_run_reader_has(reader, path)) fail_msg("%s is missing", path);
    }
    assert_false(fl_run_reader_has(reader, "/provenance/weights_hash_after"));
    fl_run_reader_close(reader);
    fl_temporary_remove(directory);
}

static fl_status find_in_description(void *context, const char *path, size_t rank, const size_t *shape,
                                     fl_error *error) {
    (void)rank, (void)shape;
    char quoted[256];
    snprintf(quoted, sizeof quoted, "`%s`", path);
    bool described_as_group = strncmp(path, "/provenance/", 12) == 0 || strcmp(path, "/timing/frozen") == 0 ||
                              strcmp(path, "/memory/peak_resident") == 0;
    if (described_as_group || strstr(context, quoted) != NULL) return FL_OK;
    return fl_error_set(error, FL_ERROR_ARGUMENT, "results/README.md does not describe %s", path);
}

static void test_the_schema_description_has_every_dataset(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_text_result result = sample(true);
    fl_run_reader *reader = NULL;
    char *description = fl_read_file("results/README.md", NULL);
    OK(fl_run_reader_open(write_record(directory, &result), &reader, &problem));
    OK(fl_run_reader_visit(reader, find_in_description, description, &problem));
    fl_run_reader_close(reader);
    fl_memory_free(description);
    fl_temporary_remove(directory);
}

static void test_task_items_subjects_and_metrics_are_written(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    int64_t document[] = {0, 1, 0}, subject[] = {0, 0, 1}, gold[] = {2, 0, 1}, prediction[] = {2, 1, 1};
    double share[] = {0, 0.5, 1}, likelihood[] = {-1, -2, -0.5, -3, -4, NAN, -7, -8, -9};
    char algebra[] = "algebra", law[] = "law", name[] = "mmlu", label[] = "mmlu_5";
    fl_task_subject_result subjects[] = {{algebra, NULL, 2, 0.5, 0.5, NAN, NAN},
                                         {law, NULL, 1, 1, NAN, NAN, NAN}};
    fl_task_result task = {.name = name,
                           .label = label,
                           .count = 3,
                           .choices = 3,
                           .document = document,
                           .subject = subject,
                           .gold = gold,
                           .prediction = prediction,
                           .linear_share = share,
                           .log_likelihood = likelihood,
                           .metric_count = 2,
                           .metrics = {{"acc", 2.0 / 3.0}, {"n", 3}},
                           .subject_count = 2,
                           .subjects = subjects};
    fl_run_file *file = NULL;
    fl_run_reader *reader = NULL;
    double loss[] = {3, 2, 1};
    char path[600], *text = NULL, **texts = NULL;
    size_t count = 0;
    double value = 0;
    OK(fl_run_file_create(directory, "t", &file, &problem));
    OK(fl_task_record_write(file, &task, &problem));
    OK(fl_task_record_write_training(file, 3, loss, NULL, loss, &problem));
    OK(fl_run_file_commit(file, &problem));
    snprintf(path, sizeof path, "%s/t.h5", directory);
    OK(fl_run_reader_open(path, &reader, &problem));
    OK(fl_run_reader_attribute_number(reader, "/tasks/mmlu_5", "acc", &value, &problem));
    assert_true(value == 2.0 / 3.0);
    OK(fl_run_reader_attribute_text(reader, "/tasks/mmlu_5", "task", &text, &problem));
    assert_string_equal(text, "mmlu");
    fl_memory_free(text);
    OK(fl_run_reader_texts(reader, "/tasks/mmlu_5/items/subject", &texts, &count, &problem));
    assert_int_equal(count, 3);
    assert_string_equal(texts[1], "algebra");
    assert_string_equal(texts[2], "law");
    for (size_t i = 0; i < count; i++) fl_memory_free(texts[i]);
    fl_memory_free(texts);
    double *data = NULL;
    size_t rank = 0, shape[4];
    OK(fl_run_reader_doubles(reader, "/tasks/mmlu_5/items/log_likelihood", &data, &rank, shape, &problem));
    assert_true(rank == 2 && shape[0] == 3 && shape[1] == 3 && data[3] == -3 && isnan(data[5]));
    fl_memory_free(data);
    assert_false(fl_run_reader_has(reader, "/tasks/mmlu_5/items/greedy"));
    assert_true(fl_run_reader_has(reader, "/tasks/mmlu_5/subjects/acc_stderr"));
    assert_true(fl_run_reader_has(reader, "/training/learning_rate") &&
                !fl_run_reader_has(reader, "/training/gradient_norm"));
    fl_run_reader_close(reader);
    fl_temporary_remove(directory);
}

static void test_environment_is_sorted_and_only_what_matters(void **state) {
    (void)state;
    setenv("OPENBLAS_TEST_B", "2", 1);
    setenv("FROSTLINE_TEST_A", "1", 1);
    setenv("SECRET_TOKEN", "never", 1);
    fl_provenance provenance;
    OK(fl_provenance_collect(&provenance, &problem));
    const char *first = strstr(provenance.environment, "FROSTLINE_TEST_A=1\n");
    const char *second = strstr(provenance.environment, "OPENBLAS_TEST_B=2\n");
    assert_true(first != NULL && second != NULL && first < second);
    assert_null(strstr(provenance.environment, "SECRET"));
    assert_non_null(strstr(provenance.openblas, "OpenBLAS"));
    assert_string_equal(provenance.vector_kernels, fl_kernels_current()->name);
    fl_provenance_release(&provenance);
    assert_null(provenance.environment);
    char now[FL_TIME_TEXT_BYTES];
    fl_provenance_now(now);
    assert_int_equal(strlen(now), 20);
    assert_true(now[10] == 'T' && now[19] == 'Z');
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_array_lands_in_its_pinned_dataset),
        cmocka_unit_test(test_what_was_not_measured_is_not_there),
        cmocka_unit_test(test_config_header_and_provenance_are_there),
        cmocka_unit_test(test_the_schema_description_has_every_dataset),
        cmocka_unit_test(test_task_items_subjects_and_metrics_are_written),
        cmocka_unit_test(test_environment_is_sorted_and_only_what_matters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
