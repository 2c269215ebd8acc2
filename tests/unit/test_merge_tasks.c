/* Merging of task results: runs over parts of the items give what one run over all of them gives. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/store/run_file.h"
#include "harness/store/sweep.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"

enum { PATH_BYTES = 1024 };

static void write_data(void) {
    FILE *choices = fopen(fl_inside("choices.jsonl"), "w"), *words = fopen(fl_inside("words.jsonl"), "w"),
         *pages = fopen(fl_inside("pages.jsonl"), "w"), *text = fopen(fl_inside("text.txt"), "w");
    for (int i = 0; i < 7; i++) {
        fprintf(
            choices,
            "{\"question\": \"Which is number %d?\", \"choices\": [\"one\", \"the other\"%s], \"answer\": "
            "%d, \"subject\": \"%s\"}\n",
            i, i % 3 == 0 ? ", \"none\"" : "", i % 2, i % 3 == 1 ? "odd" : "even");
        fprintf(words, "{\"text\": \"the %dth of all words is stone%d\"}\n", i, i);
        fprintf(pages, "{\"page\": \" = Page %d = \\n Some words of it .\"}\n", i);
    }
    for (int i = 0; i < 40; i++) fprintf(text, "line %d of a text, %d\n", i, i * i);
    fclose(choices);
    fclose(words);
    fclose(pages);
    fclose(text);
}

/* One cell with a task of every form over documents first .. first + limit - 1 (0: to the end). */
static void write_config(const char *name, const char *model, int first, int limit, const char *more) {
    fl_write_text(
        fl_inside(name),
        "name: %s\nmodel: {path: %s}\nvariant: {rule: gla, window: 8, sinks: 2}\n"
        "tasks:\n"
        "  - {name: multiple_choice, path: %s, label: choices, offset: %d, limit: %d, share: false%s}\n"
        "  - {name: lambada_openai, path: %s, offset: %d, limit: %d, share: false, bootstrap: 100}\n"
        "  - {name: wikitext, path: %s, offset: %d, limit: %d, share: false, prefix_token: 10, max_length: "
        "16}\n"
        "  - {name: perplexity, path: %s, offset: %d, limit: %d, share: false, window: 64, stride: 64}\n"
        "  - {name: associative_recall, pairs: 3, overwrites: 1, vocabulary: 200, seed: %d, share: false}\n"
        "  - {name: passkey, lengths: [500], depths: 2, seed: %d}\n",
        name, model, fl_inside("choices.jsonl"), first > 0 ? first / 2 : 0, limit > 0 ? limit / 2 : 0, more,
        fl_inside("words.jsonl"), first, limit, fl_inside("pages.jsonl"), first, limit, fl_inside("text.txt"),
        first, limit, first, first);
}

/* The run file of the only cell. */
static const char *run_cell(const char *config, const char *out) {
    static char paths[8][PATH_BYTES];
    static int next;
    char *path = paths[next++ % 8], *output = NULL, **ids = NULL;
    size_t count = 0;
    int code = fl_frostline(&output, "run %s --out %s --threads 1", fl_inside(config), fl_inside(out));
    if (code != 0) fail_msg("exit %d:\n%s", code, output);
    fl_memory_free(output);
    assert_int_equal(fl_sweep_list_done(fl_inside(out), &ids, &count, NULL), FL_OK);
    assert_int_equal(count, 1);
    snprintf(path, PATH_BYTES, "%s/%s.h5", fl_inside(out), ids[0]);
    fl_sweep_list_release(ids, count);
    return path;
}

typedef struct comparison {
    fl_run_reader *whole, *merged;
    size_t numbers, texts;
} comparison;

/* Every dataset under /tasks of the one run is in the merged file, with the same bits. */
static fl_status compare_dataset(void *context, const char *path, size_t rank, const size_t *shape,
                                 fl_error *error) {
    comparison *c = context;
    (void)rank;
    (void)shape;
    double *a = NULL, *b = NULL;
    size_t a_rank = 0, b_rank = 0, a_shape[4] = {1, 1, 1, 1}, b_shape[4] = {1, 1, 1, 1};
    if (strncmp(path, "/tasks/", 7) != 0) return FL_OK;
    /* Made items: one run of both seeds does not exist to compare with. */
    if (strstr(path, "passkey") != NULL || strstr(path, "recall") != NULL) return FL_OK;
    if (fl_run_reader_doubles(c->whole, path, &a, &a_rank, a_shape, NULL) != FL_OK) {
        char **x = NULL, **y = NULL;
        size_t x_count = 0, y_count = 0;
        FL_TRY(fl_run_reader_texts(c->whole, path, &x, &x_count, error));
        FL_TRY(fl_run_reader_texts(c->merged, path, &y, &y_count, error));
        assert_int_equal(x_count, y_count);
        for (size_t i = 0; i < x_count; i++) assert_string_equal(x[i], y[i]);
        fl_sweep_list_release(x, x_count);
        fl_sweep_list_release(y, y_count);
        c->texts++;
        return FL_OK;
    }
    FL_TRY(fl_run_reader_doubles(c->merged, path, &b, &b_rank, b_shape, error));
    assert_int_equal(a_rank, b_rank);
    size_t elements = 1;
    for (size_t i = 0; i < a_rank; i++) {
        assert_int_equal(a_shape[i], b_shape[i]);
        elements *= a_shape[i];
    }
    if (memcmp(a, b, elements * sizeof *a) != 0) fail_msg("%s differs", path);
    fl_memory_free(a);
    fl_memory_free(b);
    c->numbers++;
    return FL_OK;
}

static double metric(fl_run_reader *reader, const char *task, const char *name) {
    char group[PATH_BYTES];
    double value = 0;
    snprintf(group, sizeof group, "/tasks/%s", task);
    fl_error error;
    if (fl_run_reader_attribute_number(reader, group, name, &value, &error) != FL_OK)
        fail_msg("%s", error.message);
    return value;
}

static void compare_metrics(const comparison *c, const char *task) {
    char group[PATH_BYTES], **names = NULL;
    size_t count = 0;
    snprintf(group, sizeof group, "/tasks/%s", task);
    assert_int_equal(fl_run_reader_attribute_names(c->whole, group, &names, &count, NULL), FL_OK);
    assert_true(count > 6);
    for (size_t i = 0; i < count; i++) {
        double a = 0, b = 0;
        if (strcmp(names[i], "seconds") == 0) continue;
        if (fl_run_reader_attribute_number(c->whole, group, names[i], &a, NULL) != FL_OK) continue; /* text */
        b = metric(c->merged, task, names[i]);
        if (memcmp(&a, &b, sizeof a) != 0) fail_msg("%s of %s: %.17g, merged %.17g", names[i], task, a, b);
    }
    fl_sweep_list_release(names, count);
}

static double baseline_metric(fl_run_reader *reader, const char *baseline, const char *task,
                              const char *name) {
    char group[PATH_BYTES];
    double value = 0;
    fl_error error;
    snprintf(group, sizeof group, "/baseline/%s/tasks/%s", baseline, task);
    if (fl_run_reader_attribute_number(reader, group, name, &value, &error) != FL_OK)
        fail_msg("%s", error.message);
    return value;
}

/* Accuracies of baselines and the comparison with them come from counts alone. */
static void compare_baselines(const comparison *c, const char *task) {
    static const char *const baselines[] = {"full", "linear_off"};
    static const char *const names[] = {"n",
                                        "acc",
                                        "difference",
                                        "difference_stderr",
                                        "only_this_right",
                                        "only_baseline_right",
                                        "mcnemar_exact_p"};
    for (size_t b = 0; b < 2; b++) {
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            const double x = baseline_metric(c->whole, baselines[b], task, names[i]),
                         y = baseline_metric(c->merged, baselines[b], task, names[i]);
            if (!(fabs(x - y) <= 1e-12))
                fail_msg("%s of %s of %s: %.17g, merged %.17g", names[i], task, baselines[b], x, y);
        }
    }
}

static void test_merged_parts_equal_one_run_over_all_items(void **state) {
    (void)state;
    const char *model = fl_write_byte_model(__func__, fl_test_folder());
    write_data();
    write_config("whole.yaml", model, 0, 0, "");
    write_config("first.yaml", model, 0, 4, "");
    write_config("rest.yaml", model, 4, 0, "");
    const char *whole = run_cell("whole.yaml", "whole"), *first = run_cell("first.yaml", "first"),
               *rest = run_cell("rest.yaml", "rest");
    comparison c = {0};
    /* The order of the arguments does not matter. */
    char arguments[4 * PATH_BYTES];
    snprintf(arguments, sizeof arguments, "merge %s %s --out %s", rest, first, fl_inside("merged.h5"));
    fl_expect(0, arguments, "2 runs pooled", NULL);
    fl_error error = {0};
    assert_int_equal(fl_run_reader_open(whole, &c.whole, NULL), FL_OK);
    assert_int_equal(fl_run_reader_open(fl_inside("merged.h5"), &c.merged, NULL), FL_OK);
    if (fl_run_reader_visit(c.whole, compare_dataset, &c, &error) != FL_OK) fail_msg("%s", error.message);
    assert_true(c.numbers > 40 && c.texts > 8);
    static const char *const tasks[] = {"choices", "lambada_openai", "wikitext", "perplexity"};
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++) compare_metrics(&c, tasks[i]);
    compare_baselines(&c, "choices");
    compare_baselines(&c, "lambada_openai");
    /* Made with another seed in each run: all items of both. */
    assert_true(metric(c.merged, "passkey", "n") == 4);
    assert_true(metric(c.merged, "associative_recall", "n") == 6);
    double *run = NULL, *n = NULL;
    size_t rank = 0, shape[4];
    assert_int_equal(
        fl_run_reader_doubles(c.merged, "/tasks/lambada_openai/items/run", &run, &rank, shape, NULL), FL_OK);
    for (size_t i = 0; i < 7; i++) assert_true(run[i] == (i < 4 ? 1 : 0));
    assert_int_equal(
        fl_run_reader_doubles(c.merged, "/merged/tasks/lambada_openai/n", &n, &rank, shape, NULL), FL_OK);
    assert_true(shape[0] == 2 && n[0] == 3 && n[1] == 4);
    fl_memory_free(run);
    fl_memory_free(n);
    fl_run_reader_close(c.whole);
    fl_run_reader_close(c.merged);
}

/* A cell on sequences first .. last - 1 of six. */
static const char *run_texts(const char *name, const char *model, int first, int last) {
    char config[64], ids[64];
    snprintf(config, sizeof config, "%s.yaml", name);
    snprintf(ids, sizeof ids, "%s.json", name);
    FILE *file = fopen(fl_inside(ids), "w");
    for (int s = first; s < last; s++) {
        fprintf(file, "%s[", s > first ? ", " : "[");
        for (int t = 0; t < 30 + s; t++)
            fprintf(file, "%s%d", t > 0 ? ", " : "", (t * 37 + s * 101 + t * t) % 320);
        fputs("]", file);
    }
    fputs("]\n", file);
    fclose(file);
    fl_write_text(fl_inside(config),
                  "name: %s\nmodel: {path: %s}\ntext: {ids: %s}\nvariant: {rule: gla, window: 8, sinks: 2}\n"
                  "measure: {ablate: [exact]}\n",
                  name, model, fl_inside(ids));
    return run_cell(config, name);
}

typedef struct text_comparison {
    fl_run_reader *whole, *merged;
    size_t baseline, ablation, sequences;
} text_comparison;

static fl_status compare_text(void *context, const char *path, size_t rank, const size_t *shape,
                              fl_error *error) {
    text_comparison *c = context;
    double *a = NULL, *b = NULL;
    size_t a_rank = 0, b_rank = 0, a_shape[4] = {1, 1, 1, 1}, b_shape[4] = {1, 1, 1, 1}, elements = 1;
    const bool baseline = strncmp(path, "/baseline/", 10) == 0,
               ablation = strncmp(path, "/ablation/", 10) == 0,
               sequences = strncmp(path, "/sequences/", 11) == 0;
    if (!baseline && !ablation && !sequences) return FL_OK;
    FL_TRY(fl_run_reader_doubles(c->whole, path, &a, &a_rank, a_shape, error));
    FL_TRY(fl_run_reader_doubles(c->merged, path, &b, &b_rank, b_shape, error));
    assert_true(a_rank == rank && b_rank == rank);
    assert_memory_equal(a_shape, b_shape, rank * sizeof a_shape[0]);
    for (size_t i = 0; i < rank; i++) elements *= shape[i];
    for (size_t i = 0; i < elements; i++) {
        if (!(fabs(a[i] - b[i]) <= 1e-11 * (1 + fabs(a[i]))))
            fail_msg("%s[%zu]: %.17g, merged %.17g", path, i, a[i], b[i]);
    }
    fl_memory_free(a);
    fl_memory_free(b);
    c->baseline += baseline;
    c->ablation += ablation;
    c->sequences += sequences;
    return FL_OK;
}

static void test_merged_texts_keep_baseline_ablation_and_sequences(void **state) {
    (void)state;
    const char *model = fl_write_byte_model(__func__, fl_test_folder());
    const char *whole = run_texts("whole", model, 0, 6), *first = run_texts("first", model, 0, 2),
               *rest = run_texts("rest", model, 2, 6);
    char arguments[4 * PATH_BYTES];
    text_comparison c = {0};
    fl_error error = {0};
    snprintf(arguments, sizeof arguments, "merge %s %s --out %s", first, rest, fl_inside("merged.h5"));
    fl_expect(0, arguments, "2 runs pooled", NULL);
    assert_int_equal(fl_run_reader_open(whole, &c.whole, NULL), FL_OK);
    assert_int_equal(fl_run_reader_open(fl_inside("merged.h5"), &c.merged, NULL), FL_OK);
    if (fl_run_reader_visit(c.whole, compare_text, &c, &error) != FL_OK) fail_msg("%s", error.message);
    assert_true(c.baseline > 8 && c.baseline == c.ablation && c.sequences > 12);
    fl_run_reader_close(c.whole);
    fl_run_reader_close(c.merged);
}

static void refused(const char *a, const char *b, const char *first, const char *second) {
    char arguments[4 * PATH_BYTES];
    snprintf(arguments, sizeof arguments, "merge %s %s --out %s", a, b, fl_inside("refused.h5"));
    fl_expect(1, arguments, first, second, a, b, NULL);
    assert_int_equal(access(fl_inside("refused.h5"), F_OK), -1);
}

static void test_runs_with_the_same_item_or_other_settings_are_refused_by_name(void **state) {
    (void)state;
    const char *model = fl_write_byte_model(__func__, fl_test_folder());
    write_data();
    write_config("first.yaml", model, 0, 4, "");
    write_config("overlap.yaml", model, 2, 4, "");
    write_config("shots.yaml", model, 4, 0, ", shots: 1");
    write_config("letters.yaml", model, 4, 0, "");
    char *text = fl_read_file(fl_inside("letters.yaml"), NULL), *name = strstr(text, "label: choices");
    memcpy(name, "label: letters", strlen("label: letters"));
    fl_write_file(fl_inside("letters.yaml"), text, strlen(text));
    fl_memory_free(text);
    const char *first = run_cell("first.yaml", "first");
    refused(first, run_cell("overlap.yaml", "overlap"), "both hold document 1 of even of task choices", "");
    refused(first, run_cell("shots.yaml", "shots"), "tasks.0.shots is 0 in", "1 in");
    refused(first, run_cell("letters.yaml", "letters"), "tasks.0.label is choices in", "letters in");
    /* The same rows in another file are the same items. */
    fl_write_text(fl_inside("sed"),
                  "s/choices[.]jsonl/copied.jsonl/; s/offset: 0, limit: 4/offset: 4, limit: 0/");
    assert_int_equal(fl_shell(NULL, "(echo; cat %s) > %s; sed -f %s %s > %s", fl_inside("choices.jsonl"),
                              fl_inside("copied.jsonl"), fl_inside("sed"), fl_inside("first.yaml"),
                              fl_inside("copied.yaml")),
                     0);
    refused(first, run_cell("copied.yaml", "copied"), "both hold document 0 of even of task choices", "");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fl_test_folder_make, fl_test_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_merged_parts_equal_one_run_over_all_items),
        TEST(test_merged_texts_keep_baseline_ablation_and_sequences),
        TEST(test_runs_with_the_same_item_or_other_settings_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
