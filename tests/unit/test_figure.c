/* What a picture is made of: axes, places of texts, looks of curves, values that cannot be drawn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "analysis/figure.h"
#include "analysis/figure_axis.h"
#include "analysis/figure_dots.h"
#include "analysis/figure_heat.h"
#include "analysis/figure_style.h"
#include "analysis/label_parts.h"
#include "analysis/plot_facets.h"
#include "analysis/text_width.h"
#include "harness/base/memory.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"
#include "tests/support/svg_texts.h"

enum { MANY = 40, KEYS = 3, VALUE_BYTES = 32, LABEL_BYTES = 128 };

static const fl_figure_look svg = {.format = "svg"}, single = {.format = "svg", .width = 84};

static void need_gnuplot(const char *test) {
    if (fl_run_command("gnuplot --version", NULL) != 0) fl_fixture_skip(test, "gnuplot");
}

static fl_axis fit(const double *values, size_t count, fl_axis_wish wish) {
    fl_axis_span span = {0};
    fl_axis axis;
    fl_axis_span_add(&span, values, count);
    fl_axis_fit(&span, &wish, &axis);
    return axis;
}

static bool has_tick(const fl_axis *axis, const char *text) {
    for (size_t i = 0; i < axis->tick_count; i++) {
        if (strcmp(axis->ticks[i].text, text) == 0) return true;
    }
    return false;
}

static void test_an_axis_is_logarithmic_only_when_values_span_enough(void **state) {
    (void)state;
    const double narrow[] = {500, 550, (double)NAN, 510}, wide[] = {0, 1, 30};
    assert_false(fit(narrow, 4, (fl_axis_wish){.log = true, .numbers = 5}).log);
    fl_axis axis = fit(wide, 3, (fl_axis_wish){.log = true, .numbers = 5});
    assert_true(axis.log && axis.low == 1 && axis.high == 50);
    assert_true(has_tick(&axis, "1") && has_tick(&axis, "10") && has_tick(&axis, "50"));
}

static void test_nearly_equal_values_are_drawn_nearly_equal(void **state) {
    (void)state;
    const double nearly[] = {9.88, 10.1}, same[] = {3, 3}, nothing[] = {(double)NAN, INFINITY};
    fl_axis axis = fit(nearly, 2, (fl_axis_wish){.log = true, .numbers = 5});
    assert_true(axis.high - axis.low >= 1 && axis.low <= 9.88 && axis.high >= 10.1);
    axis = fit(same, 2, (fl_axis_wish){.numbers = 5});
    assert_true(axis.low < 3 && axis.high > 3 && axis.tick_count >= 2);
    axis = fit(nothing, 2, (fl_axis_wish){.log = true, .numbers = 5});
    assert_true(axis.low < axis.high && !axis.log);
}

static void test_an_axis_of_any_values_has_ends_and_numbers(void **state) {
    (void)state;
    const double sizes[] = {1e-300, 1e-9, 0.003, 1, 7, 1234, 1e30, 1e300};
    for (size_t a = 0; a < 8; a++) {
        for (size_t b = a; b < 8; b++) {
            for (int log = 0; log < 2; log++) {
                const double ends[] = {sizes[a], sizes[b]};
                fl_axis axis = fit(ends, 2, (fl_axis_wish){.log = log != 0, .numbers = 5});
                double least = axis.log ? fmax(sizes[a], 1e-6 * fmin(sizes[b], 1)) : sizes[a];
                if (!(axis.low <= least * (1 + 1e-9) && axis.high >= sizes[b] && axis.low < axis.high))
                    fail_msg("%g to %g: axis from %.17g to %.17g", sizes[a], sizes[b], axis.low, axis.high);
                if (axis.tick_count < 2 || axis.tick_count > 14)
                    fail_msg("%g to %g: %zu numbers", sizes[a], sizes[b], axis.tick_count);
            }
        }
    }
}

static void test_what_counts_has_whole_numbers(void **state) {
    (void)state;
    const double steps[] = {4, 4}, layers[] = {0, 1, 2};
    fl_axis axis = fit(steps, 2, (fl_axis_wish){.tight = true, .whole = true, .numbers = 5});
    for (size_t i = 0; i < axis.tick_count; i++) assert_true(axis.ticks[i].at == floor(axis.ticks[i].at));
    axis = fit(layers, 3, (fl_axis_wish){.tight = true, .whole = true, .numbers = 5});
    assert_int_equal(axis.tick_count, 3);
}

static void test_lines_are_no_wider_than_asked_and_lose_nothing(void **state) {
    (void)state;
    static const char *const texts[] = {
        "a few words that need several lines, with commas", "oneverylongwordwithoutanyspace",
        "\xC3\xA4\xC3\xB6\xC3\xBC \xE2\x82\xAC \xF0\x9F\x98\x80 broken \xFF\xC3", ""};
    for (size_t i = 0; i < 4; i++) {
        size_t used = 0;
        while (texts[i][used] != '\0') {
            size_t bytes = fl_text_line(texts[i] + used, 10, 60);
            assert_true(bytes > 0);
            size_t shown = bytes;
            while (shown > 0 && texts[i][used + shown - 1] == ' ') shown--;
            assert_true(fl_text_width(texts[i] + used, shown, 10) <= 60);
            used += bytes;
        }
        assert_int_equal(used, strlen(texts[i]));
        assert_true(fl_text_lines(texts[i], 10, 60, NULL) >= 1);
    }
}

static void expect_parts(const char *a, const char *b, const char *common, const char *rest) {
    const char *const labels[] = {a, b};
    char *text = NULL;
    assert_int_equal(fl_label_parts_common(labels, 2, &text, NULL), FL_OK);
    assert_string_equal(text, common);
    fl_memory_free(text);
    assert_int_equal(fl_label_parts_without(a, common, &text, NULL), FL_OK);
    assert_string_equal(text, rest);
    fl_memory_free(text);
}

static void test_labels_have_parts_in_common(void **state) {
    (void)state;
    expect_parts("kda, 8 + 56, conv 4", "kda, pure, conv 4", "kda, conv 4", "8 + 56");
    expect_parts("kda, softmax_layers=[1, 5]", "kda, softmax_layers=[1, 3]", "kda", "softmax_layers=[1, 5]");
    expect_parts("kda", "gla", "", "kda");
    expect_parts("kda", "kda", "kda", "");
}

/* Runs of a grid: rule, window, seed. */
typedef struct grid {
    fl_run_set set;
    fl_run_entry runs[MANY];
    char labels[MANY][LABEL_BYTES], values[MANY][KEYS][VALUE_BYTES];
    char *keys[MANY][KEYS], *texts[MANY][KEYS];
    fl_plot_subject subjects[MANY];
} grid;

static void make_grid(grid *g, size_t rules, size_t windows, size_t seeds) {
    static char names[KEYS][24] = {"variant.rule", "variant.seed", "variant.window"};
    static const char *axes[] = {names[0], names[1], names[2]};
    memset(g, 0, sizeof *g);
    size_t count = 0;
    for (size_t r = 0; r < rules; r++) {
        for (size_t w = 0; w < windows; w++) {
            for (size_t s = 0; s < seeds; s++, count++) {
                snprintf(g->values[count][0], VALUE_BYTES, "rule%zu", r);
                snprintf(g->values[count][1], VALUE_BYTES, "%zu", s + 1);
                snprintf(g->values[count][2], VALUE_BYTES, "%zu", 8 * (w + 1));
                snprintf(g->labels[count], LABEL_BYTES, "rule%zu, 0 + %zu, seed %zu", r, 8 * (w + 1), s + 1);
                for (size_t k = 0; k < KEYS; k++) {
                    g->keys[count][k] = names[k];
                    g->texts[count][k] = g->values[count][k];
                }
                g->runs[count] = (fl_run_entry){.label = g->labels[count],
                                                .key_count = KEYS,
                                                .keys = g->keys[count],
                                                .values = g->texts[count]};
                g->subjects[count] = (fl_plot_subject){.label = g->labels[count], .run = &g->runs[count]};
            }
        }
    }
    g->set = (fl_run_set){.count = count, .runs = g->runs, .axis_count = KEYS, .axes = axes};
}

static void expect_distinct_looks(const fl_plot_facets *f) {
    for (size_t i = 0; i < f->entry_count; i++) {
        for (size_t j = 0; j < i; j++) {
            const fl_figure_entry *a = &f->entries[i], *b = &f->entries[j];
            assert_string_not_equal(a->label, b->label);
            if (a->role == b->role && a->colour == b->colour && a->dash == b->dash)
                fail_msg("\"%s\" and \"%s\" look alike", a->label, b->label);
        }
    }
}

static size_t most_in_a_panel(const fl_plot_facets *f) {
    size_t most = 0;
    for (size_t p = 0; p < f->panel_count; p++) {
        size_t own = 0;
        for (size_t i = 0; i < f->count; i++) own += f->in_panel[i * f->panel_count + p];
        if (own > most) most = own;
    }
    return most;
}

static void test_more_than_eight_curves_become_panels(void **state) {
    (void)state;
    static const size_t grids[][4] = {
        {2, 2, 2, 1}, {4, 4, 1, 4}, {5, 2, 2, 5}, {1, 20, 1, 20}, {10, 1, 4, 10}};
    for (size_t i = 0; i < 5; i++) {
        grid g;
        fl_plot_facets f;
        make_grid(&g, grids[i][0], grids[i][1], grids[i][2]);
        assert_int_equal(fl_plot_facets_make(&g.set, g.subjects, g.set.count, NULL, &f, NULL), FL_OK);
        if (g.set.count <= FL_PLOT_MOST_CURVES)
            assert_int_equal(f.panel_count, 1);
        else
            assert_true(f.panel_count > 1);
        assert_true(f.panel_count <= grids[i][3]);
        assert_true(most_in_a_panel(&f) <= FL_PLOT_MOST_CURVES);
        expect_distinct_looks(&f);
        fl_plot_facets_release(&f);
    }
}

static void test_a_single_axis_of_many_values_is_parted_in_order(void **state) {
    (void)state;
    grid g;
    fl_plot_facets f;
    make_grid(&g, 1, 1, 20);
    g.set.axis_count = 0;
    for (size_t i = 0; i < 20; i++) g.runs[i].key_count = 1;
    assert_int_equal(fl_plot_facets_make(&g.set, g.subjects, 20, NULL, &f, NULL), FL_OK);
    assert_int_equal(f.panel_count, 3);
    assert_string_equal(f.titles[1], "rule0, 0 + 8, seed 9 to rule0, 0 + 8, seed 16");
    assert_true(most_in_a_panel(&f) <= FL_PLOT_MOST_CURVES);
    expect_distinct_looks(&f);
    fl_plot_facets_release(&f);
}

static void test_panels_are_called_by_what_their_curves_share(void **state) {
    (void)state;
    grid g;
    fl_plot_facets f;
    fl_error error;
    make_grid(&g, 2, 3, 1);
    assert_int_equal(fl_plot_facets_make(&g.set, g.subjects, g.set.count, "rule", &f, NULL), FL_OK);
    assert_int_equal(f.panel_count, 2);
    assert_string_equal(f.titles[1], "rule1");
    assert_int_equal(f.entry_count, 3);
    assert_string_equal(f.labels[0], "0 + 8, seed 1");
    fl_plot_facets_release(&f);
    assert_int_equal(fl_plot_facets_make(&g.set, g.subjects, g.set.count, "window", &f, NULL), FL_OK);
    assert_int_equal(f.panel_count, 3);
    assert_string_equal(f.titles[2], "0 + 24");
    fl_plot_facets_release(&f);
    assert_int_equal(fl_plot_facets_make(&g.set, g.subjects, g.set.count, "exact_sett", &f, &error),
                     FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "did you mean exact_set"));
    fl_plot_facets_release(&f);
}

static void test_what_curves_are_compared_with_stands_in_every_panel(void **state) {
    (void)state;
    grid g;
    fl_plot_facets f;
    make_grid(&g, 3, 4, 1);
    for (size_t i = 0; i < 4; i++) snprintf(g.values[i][0], VALUE_BYTES, i == 0 ? "softmax" : "none");
    assert_int_equal(fl_plot_facets_make(&g.set, g.subjects, g.set.count, "rule", &f, NULL), FL_OK);
    assert_int_equal(f.panel_count, 2);
    for (size_t i = 0; i < 8; i++) assert_true(f.in_panel[i]);
    assert_int_equal(f.entries[f.entry_of[0]].role, FL_FIGURE_FULL);
    assert_int_equal(f.entries[f.entry_of[1]].role, FL_FIGURE_BASELINE);
    expect_distinct_looks(&f);
    fl_plot_facets_release(&f);
    assert_int_equal(fl_plot_facets_make(&g.set, g.subjects, g.set.count, "exact_set", &f, NULL), FL_OK);
    assert_int_equal(f.panel_count, 4);
    for (size_t p = 0; p < 4; p++) {
        assert_true(f.in_panel[p]);                             /* softmax has no exact set */
        assert_true(f.in_panel[f.panel_count + p] == (p == 1)); /* none at a window of 16 has */
    }
    fl_plot_facets_release(&f);
}

/* A figure of `count` curves over three points. */
typedef struct drawing {
    double x[3];
    fl_figure_entry entries[8];
    fl_figure_series series[8];
    fl_figure_view view;
    fl_figure figure;
} drawing;

static void make_drawing(drawing *d, size_t count, const char *const *labels, const double (*y)[3]) {
    memset(d, 0, sizeof *d);
    for (size_t i = 0; i < count; i++) {
        d->entries[i] = (fl_figure_entry){.label = labels[i], .colour = i};
        d->series[i] = (fl_figure_series){.name = labels[i], .entry = i, .y = y[i], .length = 3};
    }
    for (size_t p = 0; p < 3; p++) d->x[p] = (double)p;
    d->view = (fl_figure_view){.csv = "f",
                               .x_label = "x",
                               .y_label = "y",
                               .log_y = true,
                               .marks = true,
                               .points = 3,
                               .x = d->x,
                               .series_count = count,
                               .series = d->series};
    d->figure = (fl_figure){.name = "f",
                            .title = "",
                            .panel_count = 1,
                            .entry_count = count,
                            .entries = d->entries,
                            .view_count = 1,
                            .views = &d->view};
}

static void test_any_text_is_drawn_as_it_is(void **state) {
    (void)state;
    need_gnuplot(__func__);
    static const char *const labels[] = {"'it''s' \"quoted\", 100 %g", "$x_1^2$ {/Bold a} \\n ~a@b & <c>",
                                         "line\nbreak \x01 \xFF", "\xCE\xB1 `date` # @"};
    static const char *const drawn[] = {"'it''s' \"quoted\", 100 %g",
                                        "$x_1^2$ {/Bold a} \\n ~a@b &amp; &lt;c>", "line break   ?",
                                        "\xCE\xB1 `date` # @"};
    const double y[4][3] = {{1, 2, 3}, {2, 3, 4}, {3, 4, 5}, {4, 5, 6}};
    drawing d;
    for (size_t i = 0; i < 4; i++) {
        make_drawing(&d, 4, labels, y);
        d.figure.title = d.view.x_label = d.view.y_label = labels[i];
        fl_error error;
        if (fl_figure_write(&d.figure, fl_test_folder(), &svg, &error) != FL_OK)
            fail_msg("%s", error.message);
        for (size_t k = 0; k < 4; k++) {
            if (!fl_svg_texts_have(fl_inside("f.svg"), drawn[k])) fail_msg("%s is not drawn", drawn[k]);
        }
        fl_svg_texts_check(fl_inside("f.svg"));
    }
}

static void test_zero_and_diverged_are_told_apart(void **state) {
    (void)state;
    need_gnuplot(__func__);
    static const char *const labels[] = {"zero", "inf", "nan", "part", "gap"};
    const double none = (double)NAN, y[5][3] = {{0, 0, 0},
                                                {INFINITY, INFINITY, INFINITY},
                                                {none, none, none},
                                                {1, INFINITY, 1e6},
                                                {2, none, 3}};
    drawing d;
    make_drawing(&d, 5, labels, y);
    for (size_t i = 1; i < 4; i++) d.series[i].diverged = true;
    assert_int_equal(fl_figure_write(&d.figure, fl_test_folder(), &svg, NULL), FL_OK);
    const char *path = fl_inside("f.svg");
    static const char *const texts[] = {"zero (zero everywhere)",
                                        "inf (diverged)",
                                        "nan (diverged)",
                                        "part (diverged in part)",
                                        "gap",
                                        "diverged"};
    for (size_t i = 0; i < 6; i++) {
        if (!fl_svg_texts_have(path, texts[i])) fail_msg("\"%s\" is not drawn", texts[i]);
    }
    fl_svg_texts_check(path);
}

static void test_a_figure_of_nothing_finite_is_a_picture(void **state) {
    (void)state;
    need_gnuplot(__func__);
    static const char *const labels[] = {"a"}, *const formats[] = {"svg", "png", "pdf"};
    const double y[1][3] = {{(double)NAN, INFINITY, -INFINITY}},
                 none[3] = {(double)NAN, (double)NAN, (double)NAN};
    drawing d;
    make_drawing(&d, 1, labels, y);
    d.series[0].diverged = true;
    for (size_t i = 0; i < 3; i++) {
        const fl_figure_look look = {.format = formats[i], .width = 84};
        assert_int_equal(fl_figure_write(&d.figure, fl_test_folder(), &look, NULL), FL_OK);
    }
    assert_true(fl_svg_texts_have(fl_inside("f.svg"), "a (diverged)"));
    const fl_dots dots = {.name = "d",
                          .title = "d",
                          .x_label = "x",
                          .bar = "standard error",
                          .rows = 1,
                          .row_names = labels,
                          .value = none,
                          .low = none,
                          .high = none,
                          .linear_off = none,
                          .full = (double)NAN,
                          .chance = (double)NAN};
    assert_int_equal(fl_dots_write(&dots, fl_test_folder(), &svg, NULL), FL_OK);
    assert_true(fl_svg_texts_have(fl_inside("d.svg"), "diverged"));
}

static void test_equal_looks_are_refused(void **state) {
    (void)state;
    static const char *const labels[] = {"a", "b"};
    const double y[2][3] = {{1, 2, 3}, {2, 3, 4}};
    fl_error error;
    drawing d;
    make_drawing(&d, 2, labels, y);
    d.entries[1].colour = FL_FIGURE_COLOURS; /* wraps around to that of the first */
    assert_int_equal(fl_figure_write(&d.figure, fl_test_folder(), &svg, &error), FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "look alike"));
}

static void test_no_text_is_clipped_or_written_over(void **state) {
    (void)state;
    need_gnuplot(__func__);
    static const char *const labels[] = {
        "a",
        "a label of a length that real sweeps do not have, but one never knows, do you?",
        "anotherlabelwithoutasinglespacewhichisverymuchlongerthanthepageiswideandsoneedslinesofitsown",
        "kda, 8 + 56, conv 4",
        "b",
        "c",
        "d",
        "e"};
    static const char *const titles[] = {"one", "two, with a title that is longer than its panel is wide",
                                         "three", "four", "five"};
    static double y[8][3];
    for (size_t i = 0; i < 24; i++) y[i / 3][i % 3] = pow(10, (double)i - 12);
    const fl_figure_look *const looks[] = {&svg, &single};
    for (size_t panels = 1; panels <= 5; panels++) {
        for (size_t views = 1; views <= 2; views++) {
            for (size_t k = 0; k < 2; k++) {
                drawing d;
                make_drawing(&d, 8, labels, (const double(*)[3])y);
                for (size_t i = 6; i < 8; i++)
                    d.entries[i] =
                        (fl_figure_entry){.label = labels[i], .role = FL_FIGURE_BASELINE, .dash = i};
                fl_figure_view both[] = {d.view, d.view};
                both[1].csv = "g";
                both[1].marks = false;
                d.figure.title = labels[1];
                d.figure.note = labels[2];
                d.figure.panel_count = panels;
                d.figure.panel_titles = panels > 1 ? titles : NULL;
                d.figure.view_count = views;
                d.figure.views = both;
                assert_int_equal(fl_figure_write(&d.figure, fl_test_folder(), looks[k], NULL), FL_OK);
                fl_svg_texts_check(fl_inside("f.svg"));
            }
        }
    }
}

static void test_rows_and_maps_with_awkward_names_are_drawn(void **state) {
    (void)state;
    need_gnuplot(__func__);
    static const char *const names[] = {
        "'a'", "a name that is much longer than the column it has, so that it is broken, %s", "c"};
    static const double value[] = {32, INFINITY, 300000}, low[] = {30, (double)NAN, 200000},
                        high[] = {35, (double)NAN, 400000}, off[] = {4, 5, (double)NAN},
                        y[] = {1, (double)NAN, 0};
    const fl_dots dots = {.name = "d",
                          .title = "it's",
                          .x_label = "x",
                          .bar = "standard error",
                          .log_x = true,
                          .rows = 3,
                          .row_names = names,
                          .value = value,
                          .low = low,
                          .high = high,
                          .linear_off = off,
                          .full = 2,
                          .chance = 0.25};
    const fl_heat_panel panels[] = {{names[0], 3, 1, y}, {names[1], 3, 1, y}, {names[2], 3, 1, y}};
    const fl_heat heat = {.name = "h",
                          .title = "h",
                          .x_label = "x",
                          .y_label = "y",
                          .value_label = "v",
                          .note = names[1],
                          .panel_count = 3,
                          .panels = panels,
                          .least = 1,
                          .most = 1};
    const fl_figure_look *const looks[] = {&svg, &single};
    for (size_t k = 0; k < 2; k++) {
        fl_error trouble;
        if (fl_dots_write(&dots, fl_test_folder(), looks[k], &trouble) != FL_OK)
            fail_msg("%s", trouble.message);
        fl_svg_texts_check(fl_inside("d.svg"));
        assert_true(fl_svg_texts_have(fl_inside("d.svg"), "'a'"));
        if (fl_heat_write(&heat, fl_test_folder(), looks[k], &trouble) != FL_OK)
            fail_msg("%s", trouble.message);
        fl_svg_texts_check(fl_inside("h.svg"));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fl_test_folder_make, fl_test_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_an_axis_is_logarithmic_only_when_values_span_enough),
        TEST(test_nearly_equal_values_are_drawn_nearly_equal),
        TEST(test_an_axis_of_any_values_has_ends_and_numbers),
        TEST(test_what_counts_has_whole_numbers),
        TEST(test_lines_are_no_wider_than_asked_and_lose_nothing),
        TEST(test_labels_have_parts_in_common),
        TEST(test_more_than_eight_curves_become_panels),
        TEST(test_a_single_axis_of_many_values_is_parted_in_order),
        TEST(test_panels_are_called_by_what_their_curves_share),
        TEST(test_what_curves_are_compared_with_stands_in_every_panel),
        TEST(test_any_text_is_drawn_as_it_is),
        TEST(test_zero_and_diverged_are_told_apart),
        TEST(test_a_figure_of_nothing_finite_is_a_picture),
        TEST(test_equal_looks_are_refused),
        TEST(test_no_text_is_clipped_or_written_over),
        TEST(test_rows_and_maps_with_awkward_names_are_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
