/* Merging: pooled runs equal the evaluation of all texts at once, and nothing missing is ever hidden. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/base/random.h"
#include "harness/store/run_merge.h"
#include "harness/store/run_record.h"
#include "harness/store/text_pool.h"
#include "tests/support/fixture.h"

static fl_error problem;

#define OK(call)                                                                                             \
    do {                                                                                                     \
        if ((call) != FL_OK) fail_msg("%s", problem.message);                                                \
    } while (0)

/* A made-up evaluation: outputs [sequence][position][layer][channel] of a frozen layer and of its
 * replacement. */
enum { LAYERS = 2, CHANNELS = 3, POSITIONS = 5, SEQUENCES = 6 };

typedef struct corpus {
    size_t lengths[SEQUENCES];
    double frozen[SEQUENCES][POSITIONS][LAYERS][CHANNELS], replaced[SEQUENCES][POSITIONS][LAYERS][CHANNELS];
    double entropy[SEQUENCES][POSITIONS], divergence[SEQUENCES][POSITIONS];
} corpus;

static void make_corpus(corpus *c) {
    fl_random random;
    fl_random_seed(&random, 3, 0);
    static const size_t lengths[] = {3, 5, 2, 5, 4, 3};
    for (size_t s = 0; s < SEQUENCES; s++) {
        c->lengths[s] = lengths[s];
        for (size_t p = 0; p < POSITIONS; p++) {
            c->entropy[s][p] = 1 + fl_random_uniform(&random);
            c->divergence[s][p] = fl_random_uniform(&random);
            for (size_t l = 0; l < LAYERS; l++) {
                for (size_t i = 0; i < CHANNELS; i++) {
                    c->frozen[s][p][l][i] =
                        fl_random_normal(&random) + (double)s; /* means that differ between texts */
                    c->replaced[s][p][l][i] = c->frozen[s][p][l][i] + 0.3 * fl_random_normal(&random);
                }
            }
        }
    }
}

static double *zeros(size_t count) {
    double *out = NULL;
    OK(FL_ALLOCATE(&out, count, &problem));
    return out;
}

/* The definitions, straight, over sequences first .. last - 1. */
static fl_text_result evaluate(const corpus *c, size_t first, size_t last) {
    fl_text_result r = {.layers = LAYERS, .query_heads = 1, .kv_heads = 1};
    for (size_t s = first; s < last; s++)
        r.positions = c->lengths[s] > r.positions ? c->lengths[s] : r.positions;
    size_t P = r.positions;
    r.mse = zeros(LAYERS), r.variance = zeros(LAYERS), r.mean = zeros(LAYERS), r.nmse = zeros(LAYERS);
    r.cosine = zeros(LAYERS), r.position_nmse = zeros(LAYERS * P), r.position_count = zeros(P);
    r.position_kl = zeros(P), r.position_cross_entropy = zeros(P), r.full_position_cross_entropy = zeros(P);
    for (size_t s = first; s < last; s++) {
        for (size_t p = 0; p < c->lengths[s]; p++) {
            r.position_count[p] += 1;
            r.tokens += 1;
            r.kl += c->divergence[s][p];
            r.position_kl[p] += c->divergence[s][p];
            if (p + 1 == c->lengths[s]) continue;
            r.scored_tokens += 1;
            r.cross_entropy += c->entropy[s][p];
            r.position_cross_entropy[p] += c->entropy[s][p];
        }
    }
    for (size_t l = 0; l < LAYERS; l++) {
        double n = (double)(r.tokens * CHANNELS), squares = 0;
        for (size_t s = first; s < last; s++) {
            for (size_t p = 0; p < c->lengths[s]; p++) {
                for (size_t i = 0; i < CHANNELS; i++) {
                    double x = c->frozen[s][p][l][i], d = c->replaced[s][p][l][i] - x;
                    r.mean[l] += x / n;
                    squares += x * x / n;
                    r.mse[l] += d * d / n;
                    r.position_nmse[l * P + p] += d * d / (CHANNELS * r.position_count[p]);
                }
            }
        }
        r.variance[l] = squares - r.mean[l] * r.mean[l];
        r.nmse[l] = r.mse[l] / r.variance[l];
        r.cosine[l] = 0.5;
        for (size_t p = 0; p < P; p++) r.position_nmse[l * P + p] /= r.variance[l];
    }
    for (size_t p = 0; p < P; p++) {
        r.position_kl[p] /= r.position_count[p];
        r.position_cross_entropy[p] /= p + 1 < P ? r.position_count[p + 1] : 0.0;
        r.full_position_cross_entropy[p] = r.position_cross_entropy[p];
    }
    r.kl /= (double)r.tokens;
    r.agreement = 0.5;
    r.cross_entropy /= (double)r.scored_tokens;
    r.full_cross_entropy = r.cross_entropy;
    r.perplexity = r.full_perplexity = exp(r.cross_entropy);
    r.state_bytes = 100 + first;
    return r;
}

static void assert_same(const double *x, const double *y, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (isnan(x[i]) && isnan(y[i])) continue;
        if (!(fabs(x[i] - y[i]) <= 1e-12 * (1 + fabs(y[i]))))
            fail_msg("entry %zu: %.17g against %.17g", i, x[i], y[i]);
    }
}

static void assert_same_results(const fl_text_result *x, const fl_text_result *y) {
    assert_int_equal(x->tokens, y->tokens);
    assert_int_equal(x->scored_tokens, y->scored_tokens);
    assert_int_equal(x->positions, y->positions);
    size_t P = y->positions;
    assert_same(x->mse, y->mse, LAYERS);
    assert_same(x->mean, y->mean, LAYERS);
    assert_same(x->variance, y->variance, LAYERS);
    assert_same(x->nmse, y->nmse, LAYERS);
    assert_same(x->position_nmse, y->position_nmse, LAYERS * P);
    assert_same(x->position_count, y->position_count, P);
    assert_same(x->position_kl, y->position_kl, P);
    assert_same(x->position_cross_entropy, y->position_cross_entropy, P);
    assert_same(&x->perplexity, &y->perplexity, 1);
    assert_same(&x->kl, &y->kl, 1);
}

static void test_pooled_texts_equal_one_evaluation_of_all(void **state) {
    (void)state;
    corpus c;
    make_corpus(&c);
    fl_text_result parts[] = {evaluate(&c, 0, 1), evaluate(&c, 1, 3), evaluate(&c, 3, 6)},
                   whole = evaluate(&c, 0, 6), pooled;
    static const char *const names[] = {"a", "b", "c"};
    OK(fl_text_pool(parts, names, 3, &pooled, &problem));
    assert_same_results(&pooled, &whole);
    assert_int_equal(pooled.state_bytes, 103);
    for (size_t i = 0; i < 3; i++) fl_text_result_release(&parts[i]);
    fl_text_result_release(&whole);
    fl_text_result_release(&pooled);
}

static void test_results_that_measured_other_things_are_not_pooled(void **state) {
    (void)state;
    corpus c;
    make_corpus(&c);
    fl_text_result parts[] = {evaluate(&c, 0, 1), evaluate(&c, 1, 3)}, pooled;
    static const char *const names[] = {"a", "b"};
    fl_error error = {0};
    fl_memory_free(parts[1].position_kl);
    parts[1].position_kl = NULL;
    assert_int_equal(fl_text_pool(parts, names, 2, &pooled, &error), FL_ERROR_ARGUMENT);
    assert_string_equal(error.message, "a has measured position_kl, b has not");
    parts[1].layers = 7;
    assert_int_equal(fl_text_pool(parts, names, 2, &pooled, &error), FL_ERROR_ARGUMENT);
    parts[1].layers = LAYERS;
    assert_int_equal(fl_text_pool(parts, names, 0, &pooled, &error), FL_ERROR_ARGUMENT);
    for (size_t i = 0; i < 2; i++) fl_text_result_release(&parts[i]);
}

static const char *write_run(const char *directory, const char *id, const fl_text_result *result,
                             const char *rule, const char *text, const char *status) {
    static char paths[8][600];
    static int next;
    char *path = paths[next++ % 8];
    fl_run_file *file = NULL;
    fl_resolved *resolved = NULL;
    fl_run_header header = {id, "test", "", status, "untrained"};
    OK(fl_resolved_create(&resolved, &problem));
    OK(fl_resolved_add(resolved, "variant.rule", rule, false, &problem));
    OK(fl_resolved_add(resolved, "text.path", text, false, &problem));
    OK(fl_run_file_create(directory, id, &file, &problem));
    OK(fl_run_record_write_header(file, &header, &problem));
    OK(fl_run_record_write_config(file, resolved, &problem));
    OK(fl_run_record_write_text_result(file, result, &problem));
    OK(fl_run_file_commit(file, &problem));
    fl_resolved_destroy(resolved);
    snprintf(path, sizeof paths[0], "%s/%s.h5", directory, id);
    return path;
}

static void test_merged_run_files_hold_the_pool_and_every_run(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    corpus c;
    make_corpus(&c);
    fl_text_result parts[] = {evaluate(&c, 0, 2), evaluate(&c, 2, 6)}, whole = evaluate(&c, 0, 6), back;
    const char *paths[] = {write_run(directory, "a", &parts[0], "kda", "one.txt", "complete"),
                           write_run(directory, "b", &parts[1], "kda", "two.txt", "complete")};
    char output[600];
    snprintf(output, sizeof output, "%s/merged.h5", directory);
    OK(fl_merge_runs(paths, 2, output, &problem));
    fl_run_reader *reader = NULL;
    OK(fl_run_reader_open(output, &reader, &problem));
    OK(fl_run_record_read_text_result(reader, &back, &problem));
    assert_same_results(&back, &whole);
    char *text = NULL, **ids = NULL;
    size_t count = 0;
    OK(fl_run_reader_text(reader, "/config", &text, &problem));
    assert_string_equal(text, "variant:\n  rule: kda\n");
    fl_memory_free(text);
    OK(fl_run_reader_attribute_text(reader, "/", "status", &text, &problem));
    assert_string_equal(text, "merged");
    fl_memory_free(text);
    OK(fl_run_reader_texts(reader, "/merged/run_id", &ids, &count, &problem));
    assert_int_equal(count, 2);
    assert_string_equal(ids[1], "b");
    for (size_t i = 0; i < count; i++) fl_memory_free(ids[i]);
    fl_memory_free(ids);
    double *nmse = NULL;
    OK(fl_run_reader_doubles(reader, "/merged/nmse", &nmse, NULL, NULL, &problem));
    assert_same(nmse + LAYERS, parts[1].nmse, LAYERS);
    fl_memory_free(nmse);
    fl_run_reader_close(reader);
    for (size_t i = 0; i < 2; i++) fl_text_result_release(&parts[i]);
    fl_text_result_release(&whole);
    fl_text_result_release(&back);
    fl_temporary_remove(directory);
}

static void assert_merge_refused(const char *directory, const char *const *paths, size_t count,
                                 const char *part) {
    char output[600];
    fl_error error = {0};
    snprintf(output, sizeof output, "%s/merged.h5", directory);
    assert_int_not_equal(fl_merge_runs(paths, count, output, &error), FL_OK);
    if (strstr(error.message, part) == NULL) fail_msg("expected '%s' in '%s'", part, error.message);
    assert_int_equal(access(output, F_OK), -1);
}

static void test_missing_unfinished_and_foreign_runs_are_all_named(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    corpus c;
    make_corpus(&c);
    fl_text_result part = evaluate(&c, 0, 2);
    const char *good = write_run(directory, "a", &part, "kda", "one.txt", "complete");
    const char *other = write_run(directory, "b", &part, "gla", "two.txt", "complete");
    const char *running = write_run(directory, "c", &part, "kda", "two.txt", "running");
    char broken[600];
    snprintf(broken, sizeof broken, "%s/broken.h5", directory);
    fl_write_file(broken, "no run", 6);
    const char *faulty[] = {good, "no/such.h5", broken, running};
    assert_merge_refused(directory, faulty, 4, "3 of 4 runs cannot be merged");
    assert_merge_refused(directory, faulty, 4, "no/such.h5");
    assert_merge_refused(directory, faulty, 4, "broken.h5");
    assert_merge_refused(directory, faulty, 4, "c.h5: its status is running");
    const char *different[] = {good, other};
    assert_merge_refused(directory, different, 2, "variant.rule is kda in");
    const char *twice[] = {good, good};
    assert_merge_refused(directory, twice, 2, "are the same run, a");
    assert_merge_refused(directory, twice, 0, "no runs");
    fl_text_result_release(&part);
    fl_temporary_remove(directory);
}

static void test_a_diverged_run_is_not_averaged_away(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    corpus c;
    make_corpus(&c);
    fl_text_result parts[] = {evaluate(&c, 0, 2), evaluate(&c, 2, 6)}, pooled;
    static const char *const names[] = {"a", "b"};
    parts[1].mse[1] = parts[1].nmse[1] = NAN;
    parts[1].diverged = true;
    snprintf(parts[1].diverged_at, sizeof parts[1].diverged_at, "layer 1");
    OK(fl_text_pool(parts, names, 2, &pooled, &problem));
    assert_true(isnan(pooled.nmse[1]) && isfinite(pooled.nmse[0]) && pooled.diverged);
    assert_string_equal(pooled.diverged_at, "layer 1");
    for (size_t i = 0; i < 2; i++) fl_text_result_release(&parts[i]);
    fl_text_result_release(&pooled);
    fl_temporary_remove(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pooled_texts_equal_one_evaluation_of_all),
        cmocka_unit_test(test_results_that_measured_other_things_are_not_pooled),
        cmocka_unit_test(test_merged_run_files_hold_the_pool_and_every_run),
        cmocka_unit_test(test_missing_unfinished_and_foreign_runs_are_all_named),
        cmocka_unit_test(test_a_diverged_run_is_not_averaged_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
