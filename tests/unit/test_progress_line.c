/* What a run says of its progress: the line, its width, the time left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "harness/cli/columns.h"
#include "harness/cli/progress_line.h"

static const fl_progress_line training = {.first = 1,
                                          .last = 16,
                                          .cells = 24,
                                          .stage = "training",
                                          .detail = "loss 2.31",
                                          .done = 20,
                                          .total = 200,
                                          .stage_left = 45,
                                          .all_left = 740};

static void assert_line(size_t columns, const char *expected) {
    char line[256];
    fl_progress_line_print(&training, columns, line, sizeof line);
    assert_string_equal(line, expected);
    if (columns > 0) assert_true(fl_columns_of(line) <= columns);
}

static void test_a_line_loses_its_details_first(void **state) {
    (void)state;
    assert_line(0, "cells 1 to 16 of 24: training 20/200: loss 2.31; stage 45 s, all 12 min 20 s left");
    assert_line(81, "cells 1 to 16 of 24: training 20/200: loss 2.31; stage 45 s, all 12 min 20 s left");
    assert_line(80, "cells 1 to 16 of 24: training 20/200; stage 45 s, all 12 min 20 s left");
    assert_line(60, "cells 1 to 16 of 24: training 20/200; all 12 min 20 s left");
    assert_line(20, "cells 1 to 16 of 24\xe2\x80\xa6");
}

static void test_text_is_as_wide_as_a_terminal_shows_it(void **state) {
    (void)state;
    char cut[32];
    assert_int_equal(fl_columns_of("kda"), 3);
    assert_int_equal(fl_columns_of("\xe7\xaa\x97\xe5\x8f\xa3"), 4); /* two Chinese characters */
    assert_int_equal(fl_columns_of("e\xcc\x81"), 1);                /* a combining accent */
    assert_int_equal(fl_columns_of("\xff"), 1);
    fl_columns_cut("\xe7\xaa\x97\xe5\x8f\xa3", 3, cut, sizeof cut);
    assert_string_equal(cut, "\xe7\xaa\x97\xe2\x80\xa6");
    fl_columns_cut("gated_delta", 11, cut, 8);
    assert_string_equal(cut, "gate\xe2\x80\xa6");
}

static void test_the_time_left_is_the_estimate_then_what_was_measured(void **state) {
    (void)state;
    fl_run_clock clock = {.began = 100, .estimate = 60, .cells = 4};
    assert_true(fl_run_clock_left(&clock, 110, -1) == 50);
    assert_true(fl_run_clock_left(&clock, 200, -1) == 0);
    assert_true(fl_run_clock_left(&clock, 200, 7) == 7);
    clock.finished = 1;
    clock.last_finished = 130;
    assert_true(fl_run_clock_left(&clock, 140, -1) == 80);
    clock.finished = 4;
    assert_true(fl_run_clock_left(&clock, 140, -1) == -1);
    clock = (fl_run_clock){.began = 100, .estimate = -1, .cells = 4};
    assert_true(fl_run_clock_left(&clock, 110, 9) == -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_loses_its_details_first),
        cmocka_unit_test(test_text_is_as_wide_as_a_terminal_shows_it),
        cmocka_unit_test(test_the_time_left_is_the_estimate_then_what_was_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
