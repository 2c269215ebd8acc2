/* Scoring against models whose answer is known: a table of next tokens, a uniform one; and the laws of
 * sharing prefixes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/base/random.h"
#include "harness/eval/scoring.h"
#include "harness/eval/windows.h"
#include "tests/support/arrays.h"
#include "tests/support/fixture.h"
#include "tests/support/network_fixture.h"

enum { WORDS = 24, WIDTH = FL_TINY_MODEL_DIM };

typedef struct table_model {
    char folder[256];
    fl_test_network network;
    double log_probability[WORDS][WORDS]; /* [current][next] */
} table_model;

/* Attention and MLP are zero, embeddings one-hot: the logits are a row of a table, whatever came before. */
static void open_table(table_model *table, bool uniform) {
    float embedding[WORDS * WIDTH] = {0}, head[WORDS * WIDTH] = {0};
    fl_random random;
    fl_random_seed(&random, 7, 0);
    for (size_t from = 0; from < WORDS; from++) {
        double logits[WORDS], sum = 0.0;
        embedding[from * WIDTH + from] = 100.0f; /* large, so that the norm's epsilon is nothing */
        for (size_t to = 0; to < WORDS; to++) {
            logits[to] = uniform ? 0.0 : 2.0 * fl_random_normal(&random);
            sum += exp(logits[to]);
        }
        for (size_t to = 0; to < WORDS; to++) {
            head[to * WIDTH + from] = (float)(logits[to] / sqrt((double)WIDTH));
            table->log_probability[from][to] = logits[to] - log(sum);
        }
    }
    snprintf(table->folder, sizeof table->folder, "%s", fl_temporary_directory());
    const fl_tiny_model_options options = {
        .vocabulary = WORDS, .scale = 0.0f, .embedding = embedding, .head = head};
    fl_tiny_model_write(table->folder, &options);
    table->network = fl_test_network_open(table->folder, 1);
}

static void close_table(table_model *table) {
    fl_test_network_close(&table->network);
    fl_temporary_remove(table->folder);
}

static void scored(const fl_network *network, const fl_mechanism *mechanism, const fl_score_request *requests,
                   size_t count, const fl_score_options *options, fl_score *scores, fl_score_counts *counts) {
    fl_score_plan *plan = NULL;
    fl_error error = {0};
    if (fl_score_plan_create(requests, count, options, network, &plan, &error) != FL_OK)
        fail_msg("%s", error.message);
    if (fl_score_run(plan, network, mechanism, NULL, "test", scores, counts, &error) != FL_OK)
        fail_msg("%s", error.message);
    fl_score_plan_destroy(plan);
}

static void random_ids(int32_t *ids, size_t count, uint64_t below, uint64_t seed) {
    fl_random random;
    fl_random_seed(&random, seed, 0);
    for (size_t i = 0; i < count; i++) ids[i] = (int32_t)fl_random_below(&random, below);
}

static void test_a_table_model_is_scored_exactly_and_not_one_token_off(void **state) {
    (void)state;
    table_model table;
    open_table(&table, false);
    int32_t ids[40];
    random_ids(ids, 40, WORDS, 3);
    const fl_score_request requests[3] = {
        {ids, ids + 10, 10, 5}, {ids, ids + 1, 1, 39}, {ids + 2, ids + 9, 7, 1}};
    fl_score scores[3];
    const fl_score_options options = {.share = true};
    scored(table.network.network, NULL, requests, 3, &options, scores, NULL);
    for (size_t r = 0; r < 3; r++) {
        const int32_t *start = requests[r].continuation;
        double expected = 0.0, squares = 0.0;
        for (size_t i = 0; i < requests[r].continuation_count; i++) {
            const double value = table.log_probability[start[(ptrdiff_t)i - 1]][start[i]];
            expected += value;
            squares += value * value;
        }
        assert_true(fabs(scores[r].log_likelihood - expected) < 1e-5);
        assert_true(fabs(scores[r].square_sum - squares) < 1e-4);
        assert_int_equal(scores[r].tokens, requests[r].continuation_count);
        assert_int_equal(scores[r].reached, 0);
    }
    close_table(&table);
}

typedef struct {
    double log_sum_exp;
    int32_t best;
} fl_softmax_row;

static fl_softmax_row log_softmax_of(fl_compute *compute, const float *logits, size_t vocabulary,
                                     fl_log_softmax_precision precision) {
    fl_softmax_row row;
    fl_logit_rows_call call = {
        .rows = 1, .vocabulary = vocabulary, .precision = precision, .logits = fl_test_array(logits)};
    assert_int_equal(compute->ops->allocate(compute, 1, FL_FLOAT64, &call.log_sum_exp, NULL), FL_OK);
    assert_int_equal(compute->ops->allocate(compute, 1, FL_INT32, &call.best, NULL), FL_OK);
    compute->ops->logit_rows(compute, &call);
    assert_int_equal(compute->ops->download(compute, &row.log_sum_exp, call.log_sum_exp, 1, NULL), FL_OK);
    assert_int_equal(compute->ops->download(compute, &row.best, call.best, 1, NULL), FL_OK);
    compute->ops->release(compute, call.log_sum_exp);
    compute->ops->release(compute, call.best);
    return row;
}

static void test_log_softmax_in_both_precisions(void **state) {
    (void)state;
    enum { COUNT = 40003 };
    float *logits = NULL;
    fl_compute *compute = NULL;
    assert_int_equal(fl_compute_create_cpu(&(fl_compute_options){.threads = 1}, &compute, NULL), FL_OK);
    assert_int_equal(FL_ALLOCATE(&logits, COUNT, NULL), FL_OK);
    fl_random random;
    fl_random_seed(&random, 3, 0);
    double sum = 0.0;
    for (size_t i = 0; i < COUNT; i++) {
        logits[i] = (float)(3.0 * fl_random_normal(&random));
        sum += exp((double)logits[i]);
    }
    const fl_softmax_row exact = log_softmax_of(compute, logits, COUNT, FL_LOG_SOFTMAX_FLOAT64);
    const fl_softmax_row single = log_softmax_of(compute, logits, COUNT, FL_LOG_SOFTMAX_FLOAT32);
    assert_true(fabs(exact.log_sum_exp - log(sum)) < 1e-12);
    assert_true(fabs(single.log_sum_exp - log(sum)) < 1e-4 && single.log_sum_exp != exact.log_sum_exp);
    assert_int_equal(exact.best, single.best);
    logits[7] = logits[9] = 100.0f;
    assert_int_equal(log_softmax_of(compute, logits, COUNT, FL_LOG_SOFTMAX_FLOAT64).best, 7);
    /* A small term beside a large one is lost in a float32 sum, as it is in PyTorch's. */
    const float pair[9] = {0.0f, -1e4f, -1e4f, -1e4f, -1e4f, -1e4f, -1e4f, -1e4f, -17.5f};
    assert_true(log_softmax_of(compute, pair, 9, FL_LOG_SOFTMAX_FLOAT32).log_sum_exp == 0.0);
    assert_true(log_softmax_of(compute, pair, 9, FL_LOG_SOFTMAX_FLOAT64).log_sum_exp > 2e-8);
    logits[5] = (float)NAN;
    assert_false(isfinite(log_softmax_of(compute, logits, COUNT, FL_LOG_SOFTMAX_FLOAT64).log_sum_exp));
    assert_false(isfinite(log_softmax_of(compute, logits, COUNT, FL_LOG_SOFTMAX_FLOAT32).log_sum_exp));
    fl_memory_free(logits);
    fl_compute_destroy(compute);
}

static void test_greedy_means_that_every_token_is_the_argmax(void **state) {
    (void)state;
    table_model table;
    open_table(&table, false);
    int32_t ids[8] = {5};
    for (size_t i = 1; i < 8; i++) {
        for (int32_t to = 0; to < WORDS; to++) {
            const double *row = table.log_probability[ids[i - 1]];
            if (to == 0 || row[to] > row[ids[i]]) ids[i] = to;
        }
    }
    int32_t other[8];
    memcpy(other, ids, sizeof ids);
    other[7] = (ids[7] + 1) % WORDS;
    const fl_score_request requests[2] = {{ids, ids + 1, 1, 7}, {other, other + 1, 1, 7}};
    fl_score scores[2];
    const fl_score_options options = {.share = true};
    scored(table.network.network, NULL, requests, 2, &options, scores, NULL);
    assert_true(scores[0].greedy);
    assert_false(scores[1].greedy);
    close_table(&table);
}

static void test_a_uniform_model_has_the_perplexity_of_its_vocabulary(void **state) {
    (void)state;
    table_model table;
    open_table(&table, true);
    int32_t ids[30];
    random_ids(ids, 30, WORDS, 4);
    const fl_score_request request = {ids, ids + 1, 1, 29};
    fl_score score;
    const fl_score_options options = {.share = true};
    scored(table.network.network, NULL, &request, 1, &options, &score, NULL);
    assert_true(fabs(exp(-score.log_likelihood / 29) - WORDS) < 1e-9);
    close_table(&table);
}

static void test_rolling_sums_of_a_context_free_model_do_not_depend_on_the_window(void **state) {
    (void)state;
    table_model table;
    open_table(&table, false);
    int32_t ids[51];
    random_ids(ids, 51, WORDS, 5);
    double expected = 0.0;
    for (size_t i = 1; i < 51; i++) expected += table.log_probability[ids[i - 1]][ids[i]];
    for (size_t length = 2; length < 60; length += 7) {
        const fl_window_options cut = {.rule = FL_WINDOWS_ROLLING, .length = length};
        fl_window *windows = NULL;
        size_t count = 0;
        assert_int_equal(fl_windows_make(&cut, 50, &windows, &count, NULL), FL_OK);
        fl_score_request requests[32];
        fl_score scores[32];
        /* Token 0 plays the prefix: the text is ids + 1. */
        for (size_t i = 0; i < count; i++) {
            const fl_window *w = &windows[i];
            const size_t start = w->prefixed ? 0 : w->context_start + 1;
            requests[i] = (fl_score_request){ids + start, ids + 1 + w->scored_start,
                                             w->scored_start + 1 - start, w->scored_end - w->scored_start};
        }
        const fl_score_options options = {.share = true, .max_length = length};
        scored(table.network.network, NULL, requests, count, &options, scores, NULL);
        double sum = 0.0;
        for (size_t i = 0; i < count; i++) {
            sum += scores[i].log_likelihood;
            assert_int_equal(scores[i].truncated, 0);
        }
        assert_true(fabs(sum - expected) < 1e-4);
        fl_memory_free(windows);
    }
    close_table(&table);
}

enum { REQUESTS = 60, LONGEST = 90 };

/* Requests with a common prefix, groups inside it, identical inputs and a few loners. */
static void branching_requests(int32_t *storage, fl_score_request *requests) {
    random_ids(storage, (size_t)REQUESTS * LONGEST, 320, 11);
    for (size_t r = 0; r < REQUESTS; r++) {
        int32_t *ids = storage + r * LONGEST;
        const size_t group = r / 10 * 10 * LONGEST;
        if (r < 50) memcpy(ids, storage, 40 * sizeof *ids);
        if (r < 50) memcpy(ids + 40, storage + group + 40, (r % 10 < 5 ? 30 : 2) * sizeof *ids);
        if (r < 50 && r % 10 < 3) memcpy(ids + 70, storage + group + 70, 6 * sizeof *ids);
        const size_t context = 60 + r % 10 < 3 ? 76 : 62 + r % 7;
        requests[r] = (fl_score_request){ids, ids + context, context, r % 10 < 3 ? 1 : 1 + r % 9};
    }
}

static const char *const mechanisms[] = {NULL, "rule: none\nwindow: 12\nsinks: 4\n",
                                         "rule: kda\nwindow: 12\nsinks: 4\n", "rule: gla\n",
                                         "rule: delta\nwindow: 6\ncache: {budget: 5, route: recency}\n"};

static void compare_sharing(const fl_test_network *network, const char *yaml) {
    static int32_t storage[REQUESTS * LONGEST];
    fl_score_request requests[REQUESTS], reversed[REQUESTS];
    fl_score shared[REQUESTS], alone[REQUESTS], backwards[REQUESTS];
    branching_requests(storage, requests);
    for (size_t r = 0; r < REQUESTS; r++) reversed[r] = requests[REQUESTS - 1 - r];
    fl_test_mechanism mechanism = {0};
    if (yaml != NULL) mechanism = fl_test_mechanism_create(network, yaml);
    fl_score_counts shared_counts, alone_counts;
    const fl_score_options share = {.share = true, .share_minimum = 8}, apart = {.share = false};
    scored(network->network, mechanism.mechanism, requests, REQUESTS, &share, shared, &shared_counts);
    scored(network->network, mechanism.mechanism, requests, REQUESTS, &apart, alone, &alone_counts);
    scored(network->network, mechanism.mechanism, reversed, REQUESTS, &share, backwards, NULL);
    double worst = 0.0;
    for (size_t r = 0; r < REQUESTS; r++) {
        const double difference = fabs(shared[r].log_likelihood - alone[r].log_likelihood);
        worst = fmax(worst, difference / fmax(1.0, fabs(alone[r].log_likelihood)));
        assert_int_equal(shared[r].tokens, alone[r].tokens);
        assert_int_equal(shared[r].reached, alone[r].reached);
        assert_true(shared[r].log_likelihood == backwards[REQUESTS - 1 - r].log_likelihood);
    }
    print_message("sharing, %s: worst relative difference %.1e, tokens %zu of %zu\n",
                  yaml == NULL ? "frozen" : yaml, worst, shared_counts.computed_tokens,
                  shared_counts.asked_tokens);
    assert_true(worst < 1e-5);
    assert_true(alone_counts.computed_tokens == alone_counts.asked_tokens);
    assert_true(shared_counts.asked_tokens == alone_counts.asked_tokens);
    assert_true(shared_counts.computed_tokens * 2 < alone_counts.computed_tokens);
    if (yaml != NULL) fl_test_mechanism_destroy(&mechanism);
}

static void test_sharing_prefixes_and_the_order_of_requests_change_nothing(void **state) {
    (void)state;
    fl_test_network network = fl_test_network_open(fl_fixture_path("reference/llama_gqa"), 1);
    for (size_t i = 0; i < sizeof mechanisms / sizeof mechanisms[0]; i++)
        compare_sharing(&network, mechanisms[i]);
    fl_test_network_close(&network);
}

static void test_threads_change_nothing_but_rounding(void **state) {
    (void)state;
    static int32_t storage[REQUESTS * LONGEST];
    fl_score_request requests[REQUESTS];
    fl_score one[REQUESTS], three[REQUESTS];
    branching_requests(storage, requests);
    const fl_score_options share = {.share = true};
    for (size_t threads = 1; threads <= 3; threads += 2) {
        fl_test_network network = fl_test_network_open(fl_fixture_path("reference/llama_gqa"), threads);
        scored(network.network, NULL, requests, REQUESTS, &share, threads == 1 ? one : three, NULL);
        fl_test_network_close(&network);
    }
    for (size_t r = 0; r < REQUESTS; r++) {
        assert_true(fabs(one[r].log_likelihood - three[r].log_likelihood) < 1e-4);
        assert_int_equal(one[r].greedy, three[r].greedy);
    }
}

static void test_share_of_tokens_whose_context_reached_the_state(void **state) {
    (void)state;
    int32_t ids[60];
    random_ids(ids, 60, 320, 6);
    const fl_score_request request = {ids, ids + 10, 10, 50};
    const fl_score_options options = {.share = true};
    fl_test_network network = fl_test_network_open(fl_fixture_path("reference/llama_gqa"), 1);
    static const struct {
        const char *yaml;
        size_t reached;
    } cases[] = {
        /* Rows 9 .. 58 are scored; the first write is at position sinks + window (+ cache). */
        {"rule: kda\n", 50},
        {"rule: kda\nwindow: 12\nsinks: 4\n", 59 - 16},
        {"rule: kda\nwindow: 12\nsinks: 4\ncache: {budget: 5, route: key_norm}\n", 59 - 21},
        {"rule: kda\nwindow: 100\nsinks: 4\n", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fl_test_mechanism mechanism = fl_test_mechanism_create(&network, cases[i].yaml);
        fl_score score;
        scored(network.network, mechanism.mechanism, &request, 1, &options, &score, NULL);
        assert_int_equal(score.reached, cases[i].reached);
        fl_test_mechanism_destroy(&mechanism);
    }
    fl_test_network_close(&network);
}

static void test_long_contexts_are_cut_on_the_left_and_counted(void **state) {
    (void)state;
    int32_t ids[60];
    random_ids(ids, 60, 320, 8);
    fl_test_network network = fl_test_network_open(fl_fixture_path("reference/llama_gqa"), 1);
    const fl_score_request requests[2] = {{ids, ids + 50, 50, 3}, {ids + 32, ids + 50, 18, 3}};
    fl_score scores[2];
    const fl_score_options options = {.share = true, .max_length = 20};
    scored(network.network, NULL, requests, 2, &options, scores, NULL);
    assert_int_equal(scores[0].truncated, 32);
    assert_int_equal(scores[1].truncated, 0);
    assert_true(scores[0].log_likelihood == scores[1].log_likelihood);
    fl_test_network_close(&network);
}

static void assert_refused(const fl_network *network, const fl_score_request *request, const char *message) {
    fl_score_plan *plan = NULL;
    fl_error error = {0};
    const fl_score_options options = {.share = true, .max_length = 20};
    assert_int_equal(fl_score_plan_create(request, 1, &options, network, &plan, &error), FL_ERROR_ARGUMENT);
    assert_string_equal(error.message, message);
}

static void test_requests_that_make_no_sense_are_refused_by_number(void **state) {
    (void)state;
    fl_test_network network = fl_test_network_open(fl_fixture_path("reference/llama_gqa"), 1);
    int32_t ids[60];
    random_ids(ids, 60, 320, 9);
    assert_refused(network.network, &(fl_score_request){ids, ids, 0, 3}, "request 0 has no context tokens");
    assert_refused(network.network, &(fl_score_request){ids, ids, 3, 0},
                   "request 0 has no continuation tokens");
    assert_refused(network.network, &(fl_score_request){ids, ids + 3, 3, 21},
                   "request 0: a continuation of 21 tokens, longer than the limit of 20");
    ids[4] = 320;
    assert_refused(network.network, &(fl_score_request){ids, ids + 3, 3, 3},
                   "request 0: token id 320 is outside the vocabulary of 320");
    fl_test_network_close(&network);
}

static void assert_windows(const fl_window_options *options, size_t tokens, size_t count,
                           const size_t (*expected)[3]) {
    fl_window *windows = NULL;
    size_t made = 0;
    assert_int_equal(fl_windows_make(options, tokens, &windows, &made, NULL), FL_OK);
    assert_int_equal(made, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(windows[i].context_start, expected[i][0]);
        assert_int_equal(windows[i].scored_start, expected[i][1]);
        assert_int_equal(windows[i].scored_end, expected[i][2]);
    }
    fl_memory_free(windows);
}

static void test_windows_of_every_definition(void **state) {
    (void)state;
    const fl_window_options rolling = {.rule = FL_WINDOWS_ROLLING, .length = 4};
    assert_windows(&rolling, 5, 2, (const size_t[][3]){{0, 0, 4}, {0, 4, 5}});
    assert_windows(&rolling, 9, 3, (const size_t[][3]){{0, 0, 4}, {3, 4, 8}, {4, 8, 9}});
    assert_windows(&rolling, 3, 1, (const size_t[][3]){{0, 0, 3}});
    assert_windows(&rolling, 0, 0, NULL);
    const fl_window_options llama = {.rule = FL_WINDOWS_LLAMA_CPP, .length = 8};
    assert_windows(&llama, 23, 2, (const size_t[][3]){{0, 5, 8}, {8, 13, 16}});
    const fl_window_options chunks = {.rule = FL_WINDOWS_CHUNKS, .length = 8};
    assert_windows(&chunks, 17, 2, (const size_t[][3]){{0, 1, 8}, {8, 9, 16}});
    const fl_window_options strided = {.rule = FL_WINDOWS_STRIDED, .length = 8, .stride = 3};
    assert_windows(&strided, 12, 3, (const size_t[][3]){{0, 1, 8}, {3, 8, 11}, {6, 11, 12}});
    fl_window *windows = NULL;
    size_t made;
    const fl_window_options wrong = {.rule = FL_WINDOWS_STRIDED, .length = 8, .stride = 9};
    assert_int_equal(fl_windows_make(&wrong, 12, &windows, &made, NULL), FL_ERROR_ARGUMENT);
}

static bool stop_at_once(void *context) {
    (void)context;
    return true;
}

static void test_an_interrupted_run_says_so(void **state) {
    (void)state;
    fl_test_network network = fl_test_network_open(fl_fixture_path("reference/llama_gqa"), 1);
    static int32_t storage[REQUESTS * LONGEST];
    fl_score_request requests[REQUESTS];
    fl_score scores[REQUESTS];
    branching_requests(storage, requests);
    const fl_progress progress = {.cancelled = stop_at_once};
    for (int share = 0; share < 2; share++) {
        const fl_score_options options = {.share = share == 1};
        fl_score_plan *plan = NULL;
        assert_int_equal(fl_score_plan_create(requests, REQUESTS, &options, network.network, &plan, NULL),
                         FL_OK);
        assert_int_equal(fl_score_run(plan, network.network, NULL, &progress, "test", scores, NULL, NULL),
                         FL_ERROR_CANCELLED);
        fl_score_plan_destroy(plan);
    }
    fl_test_network_close(&network);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_table_model_is_scored_exactly_and_not_one_token_off),
        cmocka_unit_test(test_log_softmax_in_both_precisions),
        cmocka_unit_test(test_greedy_means_that_every_token_is_the_argmax),
        cmocka_unit_test(test_a_uniform_model_has_the_perplexity_of_its_vocabulary),
        cmocka_unit_test(test_rolling_sums_of_a_context_free_model_do_not_depend_on_the_window),
        cmocka_unit_test(test_sharing_prefixes_and_the_order_of_requests_change_nothing),
        cmocka_unit_test(test_threads_change_nothing_but_rounding),
        cmocka_unit_test(test_share_of_tokens_whose_context_reached_the_state),
        cmocka_unit_test(test_long_contexts_are_cut_on_the_left_and_counted),
        cmocka_unit_test(test_requests_that_make_no_sense_are_refused_by_number),
        cmocka_unit_test(test_windows_of_every_definition),
        cmocka_unit_test(test_an_interrupted_run_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
