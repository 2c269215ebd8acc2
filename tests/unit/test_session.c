/* Sessions: any cut, fork or copy of a timeline gives the same numbers; errors leave a session usable or say
 * why not. */
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
#include "harness/base/random.h"
#include "harness/engine/session.h"
#include "tests/support/arrays.h"
#include "tests/support/compare.h"
#include "tests/support/fixture.h"
#include "tests/support/network_fixture.h"

enum { VOCABULARY = 61, LONG = 1100, E = FL_TINY_MODEL_DIM };

typedef struct {
    const char *directory;
    fl_test_network network;
    int32_t ids[LONG];
    float *whole, *pieces; /* [LONG][E] */
} fl_bench;

static fl_bench set_up(const char *model_type, const char *extra_config) {
    fl_bench bench = {.directory = fl_temporary_directory()};
    fl_tiny_model_options options = {
        .vocabulary = VOCABULARY, .model_type = model_type, .scale = 0.2f, .extra_config = extra_config};
    fl_tiny_model_write(bench.directory, &options);
    bench.network = fl_test_network_open(bench.directory, 2);
    fl_random random;
    fl_random_seed(&random, 3, 0);
    for (size_t t = 0; t < LONG; t++) bench.ids[t] = (int32_t)fl_random_below(&random, VOCABULARY);
    assert_int_equal(FL_ALLOCATE(&bench.whole, LONG * E, NULL), FL_OK);
    assert_int_equal(FL_ALLOCATE(&bench.pieces, LONG * E, NULL), FL_OK);
    return bench;
}

static void tear_down(fl_bench *bench) {
    fl_test_network_close(&bench->network);
    fl_temporary_remove(bench->directory);
    fl_memory_free(bench->whole);
    fl_memory_free(bench->pieces);
}

static fl_session *open_session(const fl_bench *bench, const fl_mechanism *mechanism) {
    fl_session *session = NULL;
    assert_int_equal(fl_session_create(bench->network.network, mechanism, &session, NULL), FL_OK);
    return session;
}

static void append(fl_session *session, const fl_bench *bench, size_t tokens, float *hidden) {
    fl_error error = {0};
    size_t first = fl_session_position(session);
    fl_status status = fl_session_forward(session, bench->ids + first, tokens, fl_array_none,
                                          fl_test_array(hidden + first * E), NULL, &error);
    if (status != FL_OK) fail_msg("%s", error.message);
}

static void assert_same(const float *x, const float *reference, size_t tokens, const char *what) {
    fl_difference difference = fl_compare_float_floats(x, reference, tokens * E);
    if (difference.not_finite > 0 || !(difference.relative < 2e-5)) {
        fail_msg("%s: relative difference %.3g", what, difference.relative);
    }
}

/* The same tokens in pieces of 1, 2, 3, ... up to `most`, starting again at 1. */
static void append_in_pieces(fl_session *session, const fl_bench *bench, size_t tokens, size_t most,
                             float *hidden) {
    size_t piece = 0;
    while (fl_session_position(session) < tokens) {
        size_t left = tokens - fl_session_position(session);
        piece = piece % most + 1;
        append(session, bench, piece < left ? piece : left, hidden);
    }
}

static void check_cuts(fl_bench *bench, const fl_mechanism *mechanism, size_t tokens, const char *what) {
    fl_session *whole = open_session(bench, mechanism), *pieces = open_session(bench, mechanism);
    append(whole, bench, tokens, bench->whole);
    append_in_pieces(pieces, bench, tokens, 70, bench->pieces);
    assert_same(bench->pieces, bench->whole, tokens, what);
    assert_int_equal(fl_session_position(pieces), tokens);
    assert_int_equal(fl_session_exact_bytes(pieces), fl_session_exact_bytes(whole));
    fl_session_destroy(whole);
    fl_session_destroy(pieces);
}

static void test_any_cut_gives_the_same_hidden_states(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    check_cuts(&bench, NULL, LONG, "frozen model");
    tear_down(&bench);
}

static void test_any_cut_gives_the_same_with_a_sliding_window(void **state) {
    (void)state;
    fl_bench bench = set_up("mistral", ", \"sliding_window\": 16");
    check_cuts(&bench, NULL, LONG, "sliding window");
    fl_session *session = open_session(&bench, NULL);
    append(session, &bench, 16, bench.whole);
    size_t bytes = fl_session_exact_bytes(session);
    append(session, &bench, 700, bench.whole);
    assert_int_equal(fl_session_exact_bytes(session), bytes);
    fl_session_destroy(session);
    tear_down(&bench);
}

static void test_a_sliding_window_as_long_as_the_text_is_full_attention(void **state) {
    (void)state;
    fl_bench full = set_up("mistral", ", \"sliding_window\": null"),
             wide = set_up("mistral", ", \"sliding_window\": 300"),
             narrow = set_up("mistral", ", \"sliding_window\": 16");
    fl_session *a = open_session(&full, NULL), *b = open_session(&wide, NULL),
               *c = open_session(&narrow, NULL);
    append(a, &full, 300, full.whole);
    append(b, &wide, 300, wide.whole);
    append(c, &narrow, 300, narrow.whole);
    assert_same(wide.whole, full.whole, 300, "window 300");
    assert_same(narrow.whole, full.whole, 16, "window 16, first 16 tokens");
    assert_true(fl_compare_float_floats(narrow.whole + 16 * E, full.whole + 16 * E, E).relative > 1e-3);
    fl_session_destroy(a);
    fl_session_destroy(b);
    fl_session_destroy(c);
    tear_down(&full);
    tear_down(&wide);
    tear_down(&narrow);
}

static void test_any_cut_gives_the_same_with_every_kind_of_mechanism(void **state) {
    (void)state;
    static const char *const variants[] = {
        "rule: kda\nwindow: 8\nsinks: 2\n",
        "rule: gated_delta\nwindow: 0\nsinks: 0\nshort_conv: {kernel: 4, init: torch}\n",
        "rule: delta\nwindow: 6\nsinks: 2\ncache: {budget: 4, route: recency}\n",
        "rule: gla\nwindow: 8\nsinks: 2\nsoftmax_layers: [1]\n",
    };
    fl_bench bench = set_up(NULL, NULL);
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, variants[i]);
        check_cuts(&bench, mechanism.mechanism, 300, variants[i]);
        fl_test_mechanism_destroy(&mechanism);
    }
    tear_down(&bench);
}

static void check_fork(fl_bench *bench, const fl_mechanism *mechanism, const char *what) {
    enum { PREFIX = 90, QUESTION = 40 };
    fl_session *whole = open_session(bench, mechanism), *session = open_session(bench, mechanism),
               *fork = NULL;
    append(whole, bench, PREFIX + QUESTION, bench->whole);
    append(session, bench, PREFIX, bench->pieces);
    assert_int_equal(fl_session_fork(session, &fork, NULL), FL_OK);
    append(fork, bench, QUESTION, bench->pieces);
    assert_same(bench->pieces, bench->whole, PREFIX + QUESTION, what);
    memset(bench->pieces, 0, LONG * E * sizeof(float));
    append(session, bench, QUESTION, bench->pieces); /* the fork has left its parent alone */
    assert_same(bench->pieces + PREFIX * E, bench->whole + PREFIX * E, QUESTION, what);

    fl_session_reset(session);
    append(session, bench, PREFIX, bench->pieces);
    memset(bench->pieces, 0, LONG * E * sizeof(float));
    assert_int_equal(fl_session_copy(fork, session, NULL), FL_OK); /* over a longer timeline */
    append(fork, bench, QUESTION, bench->pieces);
    assert_same(bench->pieces + PREFIX * E, bench->whole + PREFIX * E, QUESTION, what);
    fl_session_destroy(whole);
    fl_session_destroy(session);
    fl_session_destroy(fork);
}

static void test_a_fork_or_a_copy_continues_like_the_original(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL), sliding = set_up("mistral", ", \"sliding_window\": 16");
    check_fork(&bench, NULL, "frozen model");
    check_fork(&sliding, NULL, "sliding window");
    fl_test_mechanism mechanism =
        fl_test_mechanism_create(&bench.network, "rule: kda\nwindow: 8\nsinks: 2\nsoftmax_layers: [0]\n");
    check_fork(&bench, mechanism.mechanism, "hybrid");
    fl_test_mechanism_destroy(&mechanism);
    tear_down(&bench);
    tear_down(&sliding);
}

static void check_branches(fl_bench *bench, const fl_mechanism *mechanism, size_t prefix, const char *what) {
    enum { COUNT = 4, TOGETHER = 5 + 1 + 90 + 33 };
    static const size_t lengths[COUNT] = {5, 1, 90, 33}, rows[6] = {0, 4, 5, 6, 95, TOGETHER - 1};
    int32_t ids[TOGETHER];
    float hidden[6 * E], *whole = bench->whole;
    size_t written[COUNT], at = 0;
    fl_error error = {0};
    fl_session *session = open_session(bench, mechanism), *fork = NULL;
    append(session, bench, prefix, bench->pieces);
    for (size_t i = 0; i < COUNT; at += lengths[i++])
        memcpy(ids + at, bench->ids + 200 + 100 * i, lengths[i] * sizeof *ids);
    const fl_session_branches branches = {COUNT, lengths, ids, 6, rows, fl_test_array(hidden), written};
    for (size_t again = 0; again < 2; again++) { /* the first time leaves the session as it was */
        if (fl_session_forward_branches(session, &branches, &error) != FL_OK) fail_msg("%s", error.message);
        assert_int_equal(fl_session_position(session), prefix);
        at = 0;
        for (size_t i = 0; i < COUNT; at += lengths[i++]) {
            assert_int_equal(fl_session_fork(session, &fork, NULL), FL_OK);
            assert_int_equal(fl_session_forward(fork, ids + at, lengths[i], fl_array_none,
                                                fl_test_array(whole + at * E), NULL, NULL),
                             FL_OK);
            assert_int_equal(written[i], fl_session_tokens_written(fork));
            fl_session_destroy(fork);
        }
        for (size_t i = 0; i < 6; i++) assert_same(hidden + i * E, whole + rows[i] * E, 1, what);
    }
    fl_session_destroy(session);
}

static void test_branches_are_like_forks_and_leave_no_trace(void **state) {
    (void)state;
    static const char *const variants[] = {
        "rule: kda\nwindow: 8\nsinks: 2\nsoftmax_layers: [0]\n",
        "rule: gated_delta\nwindow: 0\nsinks: 0\nshort_conv: {kernel: 4, init: torch}\n",
        "rule: delta\nwindow: 6\nsinks: 2\ncache: {budget: 4, route: recency}\n",
        "rule: gla\nwindow: 100\nsinks: 4\nlora: {rank: 2}\n",
        "rule: none\nwindow: 16\n",
    };
    fl_bench bench = set_up(NULL, NULL), sliding = set_up("mistral", ", \"sliding_window\": 16"),
             dynamic = set_up(NULL, ", \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 4.0}");
    check_branches(&bench, NULL, 70, "frozen model");
    check_branches(&bench, NULL, 0, "from nothing");
    check_branches(&sliding, NULL, 70, "sliding window");
    check_branches(&dynamic, NULL, 70, "dynamic RoPE");
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, variants[i]);
        check_branches(&bench, mechanism.mechanism, 70, variants[i]);
        check_branches(&bench, mechanism.mechanism, 0, variants[i]);
        fl_test_mechanism_destroy(&mechanism);
    }
    tear_down(&bench);
    tear_down(&sliding);
    tear_down(&dynamic);
}

static void test_chosen_rows_are_those_of_the_whole(void **state) {
    (void)state;
    static const size_t rows[] = {0, 3, 511, 512, 700, LONG - 1};
    float hidden[6 * E];
    fl_bench bench = set_up(NULL, NULL);
    fl_session *whole = open_session(&bench, NULL), *session = open_session(&bench, NULL);
    append(whole, &bench, LONG, bench.whole);
    assert_int_equal(fl_session_forward_rows(session, bench.ids, LONG, rows, 6, fl_test_array(hidden), NULL),
                     FL_OK);
    for (size_t i = 0; i < 6; i++) assert_same(hidden + i * E, bench.whole + rows[i] * E, 1, "chosen rows");
    fl_session_reset(session);
    assert_int_equal(fl_session_forward_rows(session, bench.ids, 600, NULL, 0, fl_array_none, NULL), FL_OK);
    assert_int_equal(
        fl_session_forward(session, bench.ids + 600, 100, fl_array_none, fl_array_none, NULL, NULL), FL_OK);
    append(session, &bench, LONG - 700, bench.pieces);
    assert_same(bench.pieces + 700 * E, bench.whole + 700 * E, LONG - 700, "after rows that nobody wanted");
    fl_session_destroy(whole);
    fl_session_destroy(session);
    tear_down(&bench);
}

static void test_a_window_that_covers_the_prompt_is_full_softmax(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_test_mechanism mechanism =
        fl_test_mechanism_create(&bench.network, "rule: kda\nwindow: 60\nsinks: 4\n");
    fl_session *frozen = open_session(&bench, NULL), *linearised = open_session(&bench, mechanism.mechanism);
    append(frozen, &bench, 64, bench.whole);
    append(linearised, &bench, 64, bench.pieces);
    assert_same(bench.pieces, bench.whole, 64, "window and sinks cover the prompt");
    assert_int_equal(fl_session_tokens_written(linearised), 0);
    append(linearised, &bench, 2, bench.pieces);
    assert_int_equal(fl_session_tokens_written(linearised), 2);
    assert_true(fl_session_state_bytes(linearised) > 0);
    assert_int_equal(fl_session_state_bytes(frozen), 0);
    fl_session_destroy(frozen);
    fl_session_destroy(linearised);
    fl_test_mechanism_destroy(&mechanism);
    tear_down(&bench);
}

static void test_hybrid_with_all_layers_softmax_is_the_model(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_test_mechanism mechanism =
        fl_test_mechanism_create(&bench.network, "rule: kda\nsoftmax_layers: [0, 1]\n");
    fl_session *frozen = open_session(&bench, NULL), *hybrid = open_session(&bench, mechanism.mechanism);
    append(frozen, &bench, 200, bench.whole);
    append(hybrid, &bench, 200, bench.pieces);
    assert_memory_equal(bench.pieces, bench.whole, 200 * E * sizeof(float));
    assert_int_equal(fl_session_exact_bytes(hybrid), fl_session_exact_bytes(frozen));
    fl_session_destroy(frozen);
    fl_session_destroy(hybrid);
    fl_test_mechanism_destroy(&mechanism);
    tear_down(&bench);
}

static void test_dynamic_rope_with_the_length_announced_does_not_depend_on_the_cut(void **state) {
    (void)state;
    static const char config[] = ", \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 4.0}";
    fl_bench bench = set_up(NULL, config);
    fl_session *whole = open_session(&bench, NULL), *announced = open_session(&bench, NULL),
               *unannounced = open_session(&bench, NULL);
    append(whole, &bench, 200, bench.whole);
    assert_int_equal(fl_session_expect_length(announced, 200, NULL), FL_OK);
    append_in_pieces(announced, &bench, 200, 30, bench.pieces);
    assert_same(bench.pieces, bench.whole, 200, "announced");
    append_in_pieces(unannounced, &bench, 200, 30, bench.pieces);
    assert_true(fl_compare_float_floats(bench.pieces, bench.whole, 200 * E).relative > 1e-3);
    fl_session_destroy(whole);
    fl_session_destroy(announced);
    fl_session_destroy(unannounced);
    tear_down(&bench);
}

typedef struct {
    size_t calls, expected_first, fail_at;
} fl_watch;

static fl_status watch(void *context, const fl_layer_view *view, fl_error *error) {
    fl_watch *watching = context;
    assert_int_equal(view->layer, watching->calls % 2);
    assert_int_equal(view->first_position, watching->expected_first);
    assert_true(view->tokens <= FL_SESSION_BLOCK);
    if (++watching->calls == watching->fail_at) return fl_error_set(error, FL_ERROR_NUMERIC, "seen enough");
    if (view->layer == 1) watching->expected_first += view->tokens;
    return FL_OK;
}

static void test_the_observer_sees_every_block_of_a_long_call(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_session *session = open_session(&bench, NULL);
    fl_watch watching = {0};
    fl_session_observer observer = {watch, &watching};
    assert_int_equal(
        fl_session_forward(session, bench.ids, LONG, fl_array_none, fl_array_none, &observer, NULL), FL_OK);
    assert_int_equal(watching.calls, 2 * ((LONG + FL_SESSION_BLOCK - 1) / FL_SESSION_BLOCK));
    assert_int_equal(watching.expected_first, LONG);
    fl_session_destroy(session);
    tear_down(&bench);
}

static void test_a_failing_observer_stops_the_pass_and_the_session_until_reset(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_session *session = open_session(&bench, NULL);
    fl_watch watching = {.fail_at = 2};
    fl_session_observer observer = {watch, &watching};
    fl_error error = {0};
    assert_int_equal(
        fl_session_forward(session, bench.ids, 9, fl_array_none, fl_array_none, &observer, &error),
        FL_ERROR_NUMERIC);
    assert_string_equal(error.message, "seen enough");
    assert_int_equal(fl_session_forward(session, bench.ids, 9, fl_array_none, fl_array_none, NULL, &error),
                     FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "reset"));
    fl_session_reset(session);
    append(session, &bench, 9, bench.whole);
    fl_session_destroy(session);
    tear_down(&bench);
}

static void test_an_id_outside_the_vocabulary_is_named_and_changes_nothing(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_session *session = open_session(&bench, NULL);
    append(session, &bench, 5, bench.whole);
    const int32_t bad[][2] = {{3, VOCABULARY}, {-1, 3}};
    fl_error error = {0};
    assert_int_equal(fl_session_forward(session, bad[0], 2, fl_array_none, fl_array_none, NULL, &error),
                     FL_ERROR_ARGUMENT);
    assert_string_equal(error.message, "token 6: id 61 is outside the vocabulary of 61");
    assert_int_equal(fl_session_forward(session, bad[1], 2, fl_array_none, fl_array_none, NULL, &error),
                     FL_ERROR_ARGUMENT);
    assert_string_equal(error.message, "token 5: id -1 is outside the vocabulary of 61");
    assert_int_equal(fl_session_position(session), 5);
    append(session, &bench, 5, bench.whole);
    fl_session_destroy(session);
    tear_down(&bench);
}

static void test_an_empty_call_changes_nothing(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_session *session = open_session(&bench, NULL);
    append(session, &bench, 0, bench.whole);
    assert_int_equal(fl_session_position(session), 0);
    assert_int_equal(fl_session_exact_bytes(session), 0);
    fl_session_destroy(session);
    tear_down(&bench);
}

static void test_every_failing_allocation_is_reported_and_leaks_nothing(void **state) {
    (void)state;
    static const size_t lengths[2] = {3, 4}, rows[1] = {6};
    fl_bench bench = set_up(NULL, NULL);
    fl_test_mechanism mechanism =
        fl_test_mechanism_create(&bench.network, "rule: kda\nwindow: 8\nsinks: 2\nsoftmax_layers: [0]\n");
    float hidden[E];
    size_t failures = 0, written[2];
    const fl_session_branches branches = {2, lengths, bench.ids, 1, rows, fl_test_array(hidden), written};
    for (size_t n = 1; n < 200; n++) {
        fl_session *session = NULL, *fork = NULL;
        fl_error error = {0};
        fl_memory_fail_at(n);
        fl_status status = fl_session_create(bench.network.network, mechanism.mechanism, &session, &error);
        if (status == FL_OK)
            status = fl_session_forward(session, bench.ids, 20, fl_array_none, fl_array_none, NULL, &error);
        if (status == FL_OK) status = fl_session_fork(session, &fork, &error);
        if (status == FL_OK) status = fl_session_forward_branches(session, &branches, &error);
        fl_memory_fail_at(0);
        fl_session_destroy(session);
        fl_session_destroy(fork);
        if (status == FL_OK) break;
        assert_int_equal(status, FL_ERROR_MEMORY);
        assert_true(error.message[0] != '\0');
        failures++;
    }
    assert_true(failures > 5 && failures < 199);
    fl_test_mechanism_destroy(&mechanism);
    tear_down(&bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_cut_gives_the_same_hidden_states),
        cmocka_unit_test(test_any_cut_gives_the_same_with_a_sliding_window),
        cmocka_unit_test(test_a_sliding_window_as_long_as_the_text_is_full_attention),
        cmocka_unit_test(test_any_cut_gives_the_same_with_every_kind_of_mechanism),
        cmocka_unit_test(test_a_fork_or_a_copy_continues_like_the_original),
        cmocka_unit_test(test_branches_are_like_forks_and_leave_no_trace),
        cmocka_unit_test(test_chosen_rows_are_those_of_the_whole),
        cmocka_unit_test(test_a_window_that_covers_the_prompt_is_full_softmax),
        cmocka_unit_test(test_hybrid_with_all_layers_softmax_is_the_model),
        cmocka_unit_test(test_dynamic_rope_with_the_length_announced_does_not_depend_on_the_cut),
        cmocka_unit_test(test_the_observer_sees_every_block_of_a_long_call),
        cmocka_unit_test(test_a_failing_observer_stops_the_pass_and_the_session_until_reset),
        cmocka_unit_test(test_an_id_outside_the_vocabulary_is_named_and_changes_nothing),
        cmocka_unit_test(test_an_empty_call_changes_nothing),
        cmocka_unit_test(test_every_failing_allocation_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
