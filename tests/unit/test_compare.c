/* compare: cells find their partners, differences their intervals, and what cannot be compared is said. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "analysis/item_pairs.h"
#include "analysis/run_compare.h"
#include "harness/base/memory.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"

static fl_error problem;

#define OK(call)                                                                                             \
    do {                                                                                                     \
        if ((call) != FL_OK) fail_msg("%s", problem.message);                                                \
    } while (0)

/* Items of one task: hash and rightness. */
static fl_run_reader *write_items(const char *name, size_t count, const char *const *hashes,
                                  const double *correct) {
    fl_run_file *file = NULL;
    fl_run_reader *reader = NULL;
    char path[1024];
    OK(fl_run_file_create(fl_inside("items"), name, &file, &problem));
    OK(fl_run_file_write_doubles(file, "/tasks/t/items/correct", 1, &count, correct, "1", "x", &problem));
    OK(fl_run_file_write_texts(file, "/tasks/t/items/document_hash", count, hashes, "x", &problem));
    OK(fl_run_file_commit(file, &problem));
    snprintf(path, sizeof path, "%s/%s.h5", fl_inside("items"), name);
    OK(fl_run_reader_open(path, &reader, &problem));
    return reader;
}

static void test_items_are_paired_by_their_hashes(void **state) {
    (void)state;
    static const char *const first[] = {"a", "b", "c", "d", "e", "a", "x"};
    static const char *const second[] = {"y", "e", "d", "a", "c", "b", "a"};
    static const double right[] = {0, 0, 0, 0, 0, 1, 1}, other[] = {1, 1, 1, 1, 1, 1, 1};
    fl_run_reader *a = write_items("a", 7, first, right), *b = write_items("b", 7, second, other);
    fl_interval i;
    OK(fl_item_pairs_accuracy(a, b, "t", "correct", &i, &problem));
    /* Six in common; five right in the second alone, one in both: p = 2 / 2^5. */
    assert_int_equal(i.sequences, 6);
    assert_true(fabs(i.estimate - 5.0 / 6.0) < 1e-15 && i.known && fabs(i.p - 0.0625) < 1e-12);
    OK(fl_item_pairs_accuracy(a, b, "t", "correct_norm", &i, &problem));
    assert_true(!i.known && isnan(i.estimate) && isnan(i.p));
    assert_string_equal(i.why_not, "one of the two has no such items");
    fl_run_reader_close(a);
    fl_run_reader_close(b);
}

/* Pages: log-likelihood and words of each. */
static fl_run_reader *write_pages(const char *name, size_t count, double nats_a_word) {
    static const char *const hashes[] = {"a", "b", "c", "d", "e", "f"};
    double likelihood[6], words[6];
    fl_run_file *file = NULL;
    fl_run_reader *reader = NULL;
    char path[1024];
    for (size_t i = 0; i < count; i++) {
        words[i] = (double)(10 + i);
        likelihood[i] = -words[i] * (nats_a_word + 0.01 * (double)(i % 3));
    }
    OK(fl_run_file_create(fl_inside("pages"), name, &file, &problem));
    OK(fl_run_file_write_doubles(file, "/tasks/w/items/log_likelihood", 2, (size_t[]){count, 1}, likelihood,
                                 "nat", "x", &problem));
    OK(fl_run_file_write_doubles(file, "/tasks/w/items/words", 1, &count, words, "1", "x", &problem));
    OK(fl_run_file_write_texts(file, "/tasks/w/items/document_hash", count, hashes, "x", &problem));
    OK(fl_run_file_commit(file, &problem));
    snprintf(path, sizeof path, "%s/%s.h5", fl_inside("pages"), name);
    OK(fl_run_reader_open(path, &reader, &problem));
    return reader;
}

static void test_perplexities_of_pages_are_paired_and_resampled(void **state) {
    (void)state;
    fl_run_reader *a = write_pages("a", 6, 2.0), *b = write_pages("b", 6, 2.5),
                  *few = write_pages("few", 3, 2.5);
    fl_interval i;
    OK(fl_item_pairs_perplexity(a, b, "w", "words", &i, &problem));
    const double extra = 0.01 * (11 + 14 + 2 * (12 + 15)) / (10 + 11 + 12 + 13 + 14 + 15);
    assert_true(fabs(i.estimate - (exp(2.5 + extra) - exp(2.0 + extra))) < 1e-12);
    assert_true(i.known && i.low > 4.0 && i.p < 0.05 && i.sequences == 6);
    OK(fl_item_pairs_perplexity(a, few, "w", "words", &i, &problem));
    assert_true(!i.known && i.sequences == 3);
    assert_string_equal(i.why_not, "fewer than 5 items");
    OK(fl_item_pairs_perplexity(a, b, "w", "tokens", &i, &problem));
    assert_string_equal(i.why_not, "one of the two has no such items");
    fl_run_reader_close(a);
    fl_run_reader_close(b);
    fl_run_reader_close(few);
}

/* Two sweeps of one grid: B has another window and one rule more, A one rule more of its own. */
static void write_sweep(const char *test, const char *name, int window, const char *rules) {
    static char model[1024];
    if (strcmp(name, "a") == 0)
        snprintf(model, sizeof model, "%s", fl_write_byte_model(test, fl_test_folder()));
    fl_write_ids(fl_inside("ids.json"), 7, 40, 37);
    char path[32];
    snprintf(path, sizeof path, "%s.yaml", name);
    fl_write_text(
        fl_inside(path),
        "name: %s\nmodel: {path: %s}\ntext: {ids: %s}\nvariant: {window: %d, sinks: 2}\n"
        "tasks: [{name: mqar, lengths: [64], pairs: 4, samples: 4, vocabulary: 300, label: recall}]\n"
        "sweep: {grid: {variant.rule: [%s]}}\n",
        name, model, fl_inside("ids.json"), window, rules);
    fl_shell(NULL, "%s run %s --out %s --threads 1", fl_program_path(), fl_inside(path), fl_inside(name));
}

static void make_sweeps(const char *test) {
    write_sweep(test, "a", 8, "kda, gla, delta");
    write_sweep(test, "b", 4, "none, gla, kda");
}

static void load(const char *name, fl_run_set **set) {
    const char *path = fl_inside(name);
    OK(fl_run_set_load(&path, 1, set, &problem));
}

static void test_cells_are_matched_by_what_they_share(void **state) {
    (void)state;
    fl_run_set *a = NULL, *b = NULL;
    fl_run_comparison *c = NULL;
    make_sweeps(__func__);
    load("a", &a);
    load("b", &b);
    OK(fl_run_compare(a, b, &c, &problem));
    assert_int_equal(c->key_count, 1);
    assert_string_equal(c->keys[0].key, "variant.window");
    assert_string_equal(c->keys[0].first, "8");
    assert_string_equal(c->keys[0].second, "4");
    assert_int_equal(c->pair_count, 2);
    for (size_t i = 0; i < c->pair_count; i++) {
        assert_string_equal(fl_run_entry_value(c->pairs[i].first, "variant.rule"),
                            fl_run_entry_value(c->pairs[i].second, "variant.rule"));
    }
    assert_true(c->alone_count == 2 && c->alone_first == 1);
    assert_string_equal(fl_run_entry_value(c->alone[0], "variant.rule"), "delta");
    assert_string_equal(fl_run_entry_value(c->alone[1], "variant.rule"), "none");
    size_t texts = 0, items = 0;
    for (size_t i = 0; i < c->figure_count; i++) {
        const fl_figure_difference *f = &c->figures[i];
        assert_true(f->difference.known);
        assert_true(fabs(f->difference.estimate - (f->second - f->first)) < 1e-9 * (1 + fabs(f->first)));
        assert_true(f->difference.low <= f->difference.high && f->difference.p > 0 && f->difference.p <= 1);
        const bool text = strcmp(f->test, "bootstrap") == 0;
        assert_int_equal(f->difference.sequences, text ? 7 : 16);
        texts += text;
        items += !text;
    }
    assert_true(texts == 2 * 7 && items == 2);
    fl_run_comparison_destroy(c);
    /* A sweep and itself: all cells, by their ids, and no difference. */
    OK(fl_run_compare(a, a, &c, &problem));
    assert_true(c->pair_count == 3 && c->alone_count == 0 && c->key_count == 0);
    for (size_t i = 0; i < c->figure_count; i++)
        assert_true(c->figures[i].difference.estimate == 0.0 && c->figures[i].difference.p == 1.0);
    fl_run_comparison_destroy(c);
    fl_run_set_destroy(a);
    fl_run_set_destroy(b);
}

static void test_the_command_prints_and_writes_the_table(void **state) {
    (void)state;
    char arguments[4096], *csv = NULL, *markdown = NULL;
    make_sweeps(__func__);
    snprintf(arguments, sizeof arguments, "compare %s %s --csv %s --markdown %s", fl_inside("a"),
             fl_inside("b"), fl_inside("c.csv"), fl_inside("c.md"));
    fl_expect(0, arguments, "variant.window: 8 in A, 4 in B", "no partner for delta", "no partner for none",
              "nMSE end to end", "recall, acc", "95 % interval", NULL);
    csv = fl_read_file(fl_inside("c.csv"), NULL);
    markdown = fl_read_file(fl_inside("c.md"), NULL);
    size_t lines = 0;
    for (const char *s = csv; *s != '\0'; s++) lines += *s == '\n';
    assert_int_equal(lines, 1 + 2 * 8);
    assert_non_null(strstr(csv, ",McNemar,16,"));
    assert_non_null(strstr(markdown, "| cell | figure | A | B | B - A | 95 % interval | p | n |\n|---|"));
    fl_memory_free(csv);
    fl_memory_free(markdown);
    snprintf(arguments, sizeof arguments, "compare %s %s", fl_inside("a"), fl_inside("nowhere"));
    fl_expect(1, arguments, "nowhere", NULL);
    fl_expect(2, "compare", "A", NULL);
}

static void test_a_sweep_is_compared_with_its_own_baselines(void **state) {
    (void)state;
    char arguments[2048];
    fl_run_set *a = NULL;
    fl_run_comparison *c = NULL;
    write_sweep(__func__, "a", 8, "none, gla, kda");
    load("a", &a);
    OK(fl_run_compare_baseline(a, FL_SIDE_LINEAR_OFF, &c, &problem));
    assert_int_equal(c->figure_count, 2 * 8); /* `none` has no linear part to be without */
    for (size_t i = 0; i < c->figure_count; i++) {
        const fl_figure_difference *f = &c->figures[i];
        assert_true(f->difference.known && isfinite(f->first) && f->difference.p > 0);
        assert_true(fabs(f->second - f->first - f->difference.estimate) < 1e-9 * (1 + fabs(f->first)));
    }
    fl_run_comparison_destroy(c);
    OK(fl_run_compare_baseline(a, FL_SIDE_FULL, &c, &problem));
    assert_int_equal(c->figure_count, 3 * 3); /* perplexity, cross entropy, accuracy */
    fl_run_comparison_destroy(c);
    fl_run_set_destroy(a);
    snprintf(arguments, sizeof arguments, "compare %s", fl_inside("a"));
    fl_expect(0, arguments, "each against itself with the linear part off", "run - linear off", NULL);
    snprintf(arguments, sizeof arguments, "compare %s --with full", fl_inside("a"));
    fl_expect(0, arguments, "each against the full model", "recall, acc", NULL);
    snprintf(arguments, sizeof arguments, "compare %s %s --with full", fl_inside("a"), fl_inside("a"));
    fl_expect(2, arguments, "--with is for one set of runs", NULL);
}

static void test_one_run_is_compared_with_every_other(void **state) {
    (void)state;
    fl_run_set *a = NULL, *one = NULL;
    fl_run_comparison *c = NULL;
    write_sweep(__func__, "a", 8, "kda, gla, delta");
    load("a", &a);
    const char *path = a->runs[1].path;
    OK(fl_run_set_load(&path, 1, &one, &problem));
    OK(fl_run_compare(one, a, &c, &problem));
    assert_int_equal(c->pair_count, 2);
    assert_ptr_equal(c->pairs[0].second, &a->runs[0]);
    assert_ptr_equal(c->pairs[1].second, &a->runs[2]);
    fl_run_comparison_destroy(c);
    fl_run_set_destroy(one);
    fl_run_set_destroy(a);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fl_test_folder_make, fl_test_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_items_are_paired_by_their_hashes),
        TEST(test_perplexities_of_pages_are_paired_and_resampled),
        TEST(test_cells_are_matched_by_what_they_share),
        TEST(test_the_command_prints_and_writes_the_table),
        TEST(test_a_sweep_is_compared_with_its_own_baselines),
        TEST(test_one_run_is_compared_with_every_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
