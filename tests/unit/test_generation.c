/* Generation: batched decoding equals decoding one by one; sampling follows the distribution it is asked for
 * and is the same every time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/base/random.h"
#include "harness/engine/generation.h"
#include "tests/support/arrays.h"
#include "tests/support/compare.h"
#include "tests/support/fixture.h"
#include "tests/support/network_fixture.h"

enum { VOCABULARY = 61, E = FL_TINY_MODEL_DIM, SESSIONS = 5, STEPS = 20 };

typedef struct {
    const char *directory;
    fl_test_network network;
} fl_bench;

static fl_bench set_up(const char *model_type, const char *extra_config) {
    fl_bench bench = {.directory = fl_temporary_directory()};
    fl_tiny_model_options options = {
        .vocabulary = VOCABULARY, .model_type = model_type, .scale = 0.2f, .extra_config = extra_config};
    fl_tiny_model_write(bench.directory, &options);
    bench.network = fl_test_network_open(bench.directory, 2);
    return bench;
}

static void tear_down(fl_bench *bench) {
    fl_test_network_close(&bench->network);
    fl_temporary_remove(bench->directory);
}

static fl_session *open_session(const fl_bench *bench, const fl_mechanism *mechanism) {
    fl_session *session = NULL;
    assert_int_equal(fl_session_create(bench->network.network, mechanism, &session, NULL), FL_OK);
    return session;
}

/* Sessions with pasts of different lengths, advanced together and each by itself. */
static void check_batch(const fl_bench *bench, const fl_mechanism *mechanism, const char *what) {
    fl_session *together[SESSIONS], *alone[SESSIONS];
    size_t vocabulary = bench->network.model->config.vocabulary,
           width = bench->network.model->config.model_dim;
    float *batch = NULL, *single = NULL;
    assert_int_equal(FL_ALLOCATE(&batch, SESSIONS * width, NULL), FL_OK);
    assert_int_equal(FL_ALLOCATE(&single, SESSIONS * width, NULL), FL_OK);
    fl_random random;
    fl_random_seed(&random, 7, 0);
    for (size_t i = 0; i < SESSIONS; i++) {
        together[i] = open_session(bench, mechanism);
        alone[i] = open_session(bench, mechanism);
        for (size_t t = 0; t < 15 * i; t++) {
            int32_t id = (int32_t)fl_random_below(&random, vocabulary);
            assert_int_equal(
                fl_session_forward(together[i], &id, 1, fl_array_none, fl_array_none, NULL, NULL), FL_OK);
            assert_int_equal(fl_session_forward(alone[i], &id, 1, fl_array_none, fl_array_none, NULL, NULL),
                             FL_OK);
        }
    }
    for (size_t step = 0; step < STEPS; step++) {
        int32_t ids[SESSIONS];
        for (size_t i = 0; i < SESSIONS; i++) ids[i] = (int32_t)fl_random_below(&random, vocabulary);
        assert_int_equal(fl_session_forward_batch(together, SESSIONS, ids, fl_test_array(batch), NULL),
                         FL_OK);
        for (size_t i = 0; i < SESSIONS; i++) {
            assert_int_equal(fl_session_forward(alone[i], ids + i, 1, fl_array_none,
                                                fl_test_array(single + i * width), NULL, NULL),
                             FL_OK);
            assert_int_equal(fl_session_position(together[i]), fl_session_position(alone[i]));
        }
        fl_difference difference = fl_compare_float_floats(batch, single, SESSIONS * width);
        if (difference.not_finite > 0 || !(difference.relative < 2e-5))
            fail_msg("%s, step %zu: relative difference %.3g", what, step, difference.relative);
    }
    for (size_t i = 0; i < SESSIONS; i++) {
        fl_session_destroy(together[i]);
        fl_session_destroy(alone[i]);
    }
    fl_memory_free(batch);
    fl_memory_free(single);
}

static void test_a_batch_of_sessions_equals_one_at_a_time(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    check_batch(&bench, NULL, "frozen model");
    tear_down(&bench);
}

static void test_a_batch_equals_one_at_a_time_with_norms_windows_and_dynamic_rope(void **state) {
    (void)state;
    fl_bench qwen = {.network = fl_test_network_open(fl_fixture_path("reference/qwen3"), 2)};
    check_batch(&qwen, NULL, "q/k norm");
    fl_test_network_close(&qwen.network);
    fl_bench mistral = set_up("mistral", ", \"sliding_window\": 6");
    check_batch(&mistral, NULL, "sliding window");
    tear_down(&mistral);
    fl_bench dynamic = set_up(NULL, ", \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 2.0}");
    check_batch(&dynamic, NULL, "dynamic RoPE");
    tear_down(&dynamic);
}

static void test_a_batch_equals_one_at_a_time_with_linearised_layers(void **state) {
    (void)state;
    static const char *const variants[] = {
        "rule: kda\nwindow: 8\nsinks: 2\n",
        "rule: gated_delta\nwindow: 0\nsinks: 0\nshort_conv: {kernel: 4, init: torch}\n",
        "rule: delta\nwindow: 6\nsinks: 2\ncache: {budget: 4, route: recency}\n",
        "rule: gla\nwindow: 8\nsinks: 2\nsoftmax_layers: [1]\n",
        "rule: gla\nwindow: 4\nlora: {rank: 2}\n",
    };
    fl_bench bench = set_up(NULL, NULL);
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, variants[i]);
        check_batch(&bench, mechanism.mechanism, variants[i]);
        fl_test_mechanism_destroy(&mechanism);
    }
    tear_down(&bench);
}

static void test_a_batch_refuses_an_id_outside_the_vocabulary_and_stays_usable(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_session *sessions[2] = {open_session(&bench, NULL), open_session(&bench, NULL)};
    float hidden[2 * E];
    fl_error error;
    assert_int_equal(
        fl_session_forward_batch(sessions, 2, (int32_t[]){1, VOCABULARY}, fl_test_array(hidden), &error),
        FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "outside the vocabulary"));
    assert_int_equal(fl_session_position(sessions[0]), 0);
    assert_int_equal(fl_session_forward_batch(sessions, 2, (int32_t[]){1, 2}, fl_test_array(hidden), &error),
                     FL_OK);
    fl_session_destroy(sessions[0]);
    fl_session_destroy(sessions[1]);
    tear_down(&bench);
}

/* Sampling of one row. */

static void test_draws_follow_the_softmax_at_the_temperature(void **state) {
    (void)state;
    enum { WORDS = 6, DRAWS = 20000 };
    static const float logits[WORDS] = {0.5f, -1.0f, 2.0f, 0.0f, -INFINITY, 1.0f};
    fl_sampling_candidate scratch[WORDS];
    static const double temperatures[] = {0.5, 1.0, 2.0};
    for (size_t k = 0; k < 3; k++) {
        const fl_sampling sampling = {.temperature = temperatures[k], .top_p = 1.0};
        double expected[WORDS], sum = 0.0;
        size_t seen[WORDS] = {0};
        fl_random random;
        fl_random_seed(&random, 11, k);
        for (size_t i = 0; i < WORDS; i++) sum += expected[i] = exp((double)logits[i] / temperatures[k]);
        for (size_t i = 0; i < DRAWS; i++)
            seen[fl_sample(&sampling, logits, WORDS, fl_random_uniform(&random), scratch)]++;
        for (size_t i = 0; i < WORDS; i++) {
            double p = expected[i] / sum, share = (double)seen[i] / DRAWS;
            assert_true(fabs(share - p) <= 4.0 * sqrt(p * (1.0 - p) / DRAWS) + 1e-12);
        }
    }
}

static void test_every_uniform_number_lands_in_its_own_share(void **state) {
    (void)state;
    /* Probabilities 1/2, 1/4, 1/4 in the order of the ids. */
    const float logits[] = {logf(2.0f), 0.0f, 0.0f};
    fl_sampling_candidate scratch[3];
    const fl_sampling sampling = {.temperature = 1.0, .top_p = 1.0};
    assert_int_equal(fl_sample(&sampling, logits, 3, 0.0, scratch), 0);
    assert_int_equal(fl_sample(&sampling, logits, 3, 0.49, scratch), 0);
    assert_int_equal(fl_sample(&sampling, logits, 3, 0.51, scratch), 1);
    assert_int_equal(fl_sample(&sampling, logits, 3, 0.76, scratch), 2);
    assert_int_equal(fl_sample(&sampling, logits, 3, 1.0, scratch), 2);
}

static void test_top_p_keeps_the_fewest_tokens_that_reach_it(void **state) {
    (void)state;
    /* Probabilities 0.1, 0.4, 0.2, 0.3. */
    const float logits[] = {logf(0.1f), logf(0.4f), logf(0.2f), logf(0.3f)};
    static const struct {
        double top_p;
        int32_t last; /* the least probable token kept */
    } cases[] = {{0.05, 1}, {0.39, 1}, {0.41, 3}, {0.69, 3}, {0.71, 2}, {0.89, 2}, {0.91, 0}};
    fl_sampling_candidate scratch[4];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const fl_sampling sampling = {.temperature = 1.0, .top_p = cases[i].top_p};
        assert_int_equal(fl_sample(&sampling, logits, 4, 0.0, scratch), 1);
        assert_int_equal(fl_sample(&sampling, logits, 4, 0.999999999, scratch), cases[i].last);
    }
}

static void test_top_k_comes_before_top_p_and_ties_go_to_the_lower_id(void **state) {
    (void)state;
    /* Probabilities 0.2, 0.2, 0.2, 0.4; of the two first 2/3 and 1/3. */
    const float logits[] = {logf(0.2f), logf(0.2f), logf(0.2f), logf(0.4f)};
    fl_sampling_candidate scratch[4];
    const fl_sampling two = {.temperature = 1.0, .top_p = 1.0, .top_k = 2};
    assert_int_equal(fl_sample(&two, logits, 4, 0.6, scratch), 3);
    assert_int_equal(fl_sample(&two, logits, 4, 0.7, scratch), 0);
    assert_int_equal(fl_sample(&two, logits, 4, 0.9999, scratch), 0);
    const fl_sampling both = {.temperature = 1.0, .top_p = 0.6, .top_k = 2};
    assert_int_equal(fl_sample(&both, logits, 4, 0.9999, scratch), 3);
}

static void test_temperature_0_takes_the_most_probable_and_bad_logits_are_told(void **state) {
    (void)state;
    fl_sampling_candidate scratch[3];
    const fl_sampling greedy = {.top_p = 1.0}, plain = {.temperature = 1.0, .top_p = 1.0};
    assert_int_equal(fl_sample(&greedy, (float[]){1.0f, 3.0f, 3.0f}, 3, 0.99, scratch), 1);
    assert_int_equal(fl_sample(&plain, (float[]){NAN, 3.0f, NAN}, 3, 0.99, scratch), 1);
    assert_int_equal(fl_sample(&plain, (float[]){NAN, NAN, NAN}, 3, 0.5, scratch), -1);
    assert_int_equal(fl_sample(&plain, (float[]){0.0f, INFINITY, 0.0f}, 3, 0.5, scratch), -1);
}

/* Sampled text. */

static const int32_t start[] = {1, 9, 4};

static fl_generation_options options_of(size_t sequences, size_t tokens) {
    return (fl_generation_options){.sequences = sequences,
                                   .tokens = tokens,
                                   .sampling = {.temperature = 1.0, .top_p = 1.0},
                                   .seed = 5,
                                   .prompt = start,
                                   .prompt_tokens = 1};
}

static fl_sequences sample(const fl_bench *bench, const fl_mechanism *mechanism,
                           const fl_generation_options *options) {
    fl_sequences out;
    fl_error error = {0};
    if (fl_generate_sampled(bench->network.network, mechanism, options, &out, &error) != FL_OK)
        fail_msg("%s", error.message);
    assert_int_equal(out.count, options->sequences);
    return out;
}

static bool equal(const fl_sequences *a, const fl_sequences *b, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (a->lengths[i] != b->lengths[i]) return false;
        if (memcmp(a->ids[i], b->ids[i], a->lengths[i] * sizeof(int32_t)) != 0) return false;
    }
    return true;
}

static void test_the_same_seed_gives_the_same_text_and_another_seed_another(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_generation_options options = options_of(FL_GENERATION_BATCH + 3, 12);
    fl_sequences first = sample(&bench, NULL, &options), again = sample(&bench, NULL, &options);
    assert_true(equal(&first, &again, first.count));
    for (size_t i = 0; i < first.count; i++) {
        assert_int_equal(first.lengths[i], 12);
        for (size_t t = 0; t < 12; t++) assert_in_range(first.ids[i][t], 0, VOCABULARY - 1);
    }
    assert_memory_not_equal(first.ids[0], first.ids[1], 12 * sizeof(int32_t));
    options.seed = 6;
    fl_sequences other = sample(&bench, NULL, &options);
    assert_false(equal(&first, &other, 1));
    /* A sequence does not depend on how many others there are. */
    options.seed = 5;
    options.sequences = 2;
    fl_sequences fewer = sample(&bench, NULL, &options);
    assert_true(equal(&first, &fewer, 2));
    fl_sequences_release(&first);
    fl_sequences_release(&again);
    fl_sequences_release(&other);
    fl_sequences_release(&fewer);
    tear_down(&bench);
}

static void test_temperature_0_gives_the_greedy_continuation(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_test_mechanism variant = fl_test_mechanism_create(&bench.network, "rule: kda\nwindow: 8\nsinks: 2\n");
    const fl_mechanism *mechanisms[] = {NULL, variant.mechanism};
    for (size_t m = 0; m < 2; m++) {
        fl_generation_options options = options_of(2, 30);
        options.sampling.temperature = 0.0;
        options.prompt_tokens = 3;
        fl_sequences sampled = sample(&bench, mechanisms[m], &options);
        fl_session *session = open_session(&bench, mechanisms[m]);
        fl_generation greedy;
        assert_int_equal(fl_generate_greedy(session, bench.network.network, start, 3, 30, -1, &greedy, NULL),
                         FL_OK);
        assert_memory_equal(sampled.ids[0], greedy.ids, 30 * sizeof(int32_t));
        assert_memory_equal(sampled.ids[1], greedy.ids, 30 * sizeof(int32_t));
        fl_generation_release(&greedy);
        fl_session_destroy(session);
        fl_sequences_release(&sampled);
    }
    fl_test_mechanism_destroy(&variant);
    tear_down(&bench);
}

static void test_a_new_document_starts_from_the_prompt_alone(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_generation_options options = options_of(1, 12);
    options.sampling.temperature = 0.0;
    options.prompt_tokens = 3;
    options.prompt_shown = 2;
    fl_sequences whole = sample(&bench, NULL, &options);
    assert_int_equal(whole.lengths[0], 14);
    assert_memory_equal(whole.ids[0], start + 1, 2 * sizeof(int32_t));
    /* The first token that has not come before becomes the end of a document. */
    const int32_t *generated = whole.ids[0] + 2;
    size_t end = 3;
    for (size_t t = 0; t < end; t++) {
        if (generated[t] == generated[end]) end = t;
    }
    options.stops = &generated[end];
    options.stop_count = 1;
    fl_sequences cut = sample(&bench, NULL, &options);
    size_t document = 2 + end + 1;
    assert_memory_equal(cut.ids[0], whole.ids[0], document * sizeof(int32_t));
    assert_memory_equal(cut.ids[0] + document, whole.ids[0], document * sizeof(int32_t));
    size_t ends = 0;
    for (size_t t = 0; t < cut.lengths[0]; t++) ends += cut.ids[0][t] == generated[end];
    assert_int_equal(ends, 12 / (end + 1));
    fl_sequences_release(&whole);
    fl_sequences_release(&cut);
    tear_down(&bench);
}

static void test_a_document_ends_where_the_context_of_the_model_does(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    bench.network.model->config.max_positions = 10;
    fl_generation_options options = options_of(3, 27);
    options.stops = (const int32_t[]){60, 59};
    options.stop_count = 2;
    options.sampling = (fl_sampling){.temperature = 1e-3, .top_p = 1.0};
    fl_sequences text = sample(&bench, NULL, &options);
    for (size_t i = 0; i < 3; i++) {
        size_t run = 0;
        for (size_t t = 0; t < 27; t++) {
            run = text.ids[i][t] >= 59 ? 0 : run + 1;
            assert_true(run < 9);
        }
    }
    fl_sequences_release(&text);
    options.prompt_tokens = 3;
    bench.network.model->config.max_positions = 3;
    fl_error error;
    assert_int_equal(fl_generate_sampled(bench.network.network, NULL, &options, &text, &error),
                     FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "prompt of 3 tokens"));
    tear_down(&bench);
}

static void test_options_without_sense_are_refused(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_generation_options bad[] = {options_of(0, 1), options_of(1, 0), options_of(1, 1), options_of(1, 1),
                                   options_of(1, 1)};
    bad[2].prompt_tokens = 0;
    bad[3].sampling.top_p = 0.0;
    bad[4].sampling.temperature = NAN;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fl_sequences out;
        assert_int_equal(fl_generate_sampled(bench.network.network, NULL, &bad[i], &out, NULL),
                         FL_ERROR_ARGUMENT);
        assert_int_equal(out.count, 0);
    }
    tear_down(&bench);
}

static bool cancel(void *context) {
    size_t *calls = context;
    return ++*calls > 3;
}

static void test_sampling_can_be_interrupted(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    size_t calls = 0;
    const fl_progress progress = {.cancelled = cancel, .context = &calls};
    fl_generation_options options = options_of(2, 50);
    options.progress = &progress;
    fl_sequences out;
    assert_int_equal(fl_generate_sampled(bench.network.network, NULL, &options, &out, NULL),
                     FL_ERROR_CANCELLED);
    assert_int_equal(calls, 4);
    assert_null(out.ids);
    tear_down(&bench);
}

static void test_running_out_of_memory_anywhere_is_an_error_and_leaves_nothing(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_generation_options options = options_of(2, 3);
    fl_status status = FL_ERROR_MEMORY;
    size_t failures = 0;
    for (size_t n = 1; status != FL_OK && n < 500; n++) {
        fl_sequences out;
        fl_memory_fail_at(n);
        status = fl_generate_sampled(bench.network.network, NULL, &options, &out, NULL);
        if (status == FL_ERROR_MEMORY) failures++;
        if (status == FL_OK)
            fl_sequences_release(&out);
        else
            assert_null(out.ids);
    }
    fl_memory_fail_at(0);
    assert_int_equal(status, FL_OK);
    assert_true(failures > 10);
    tear_down(&bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_batch_of_sessions_equals_one_at_a_time),
        cmocka_unit_test(test_a_batch_equals_one_at_a_time_with_norms_windows_and_dynamic_rope),
        cmocka_unit_test(test_a_batch_equals_one_at_a_time_with_linearised_layers),
        cmocka_unit_test(test_a_batch_refuses_an_id_outside_the_vocabulary_and_stays_usable),
        cmocka_unit_test(test_draws_follow_the_softmax_at_the_temperature),
        cmocka_unit_test(test_every_uniform_number_lands_in_its_own_share),
        cmocka_unit_test(test_top_p_keeps_the_fewest_tokens_that_reach_it),
        cmocka_unit_test(test_top_k_comes_before_top_p_and_ties_go_to_the_lower_id),
        cmocka_unit_test(test_temperature_0_takes_the_most_probable_and_bad_logits_are_told),
        cmocka_unit_test(test_the_same_seed_gives_the_same_text_and_another_seed_another),
        cmocka_unit_test(test_temperature_0_gives_the_greedy_continuation),
        cmocka_unit_test(test_a_new_document_starts_from_the_prompt_alone),
        cmocka_unit_test(test_a_document_ends_where_the_context_of_the_model_does),
        cmocka_unit_test(test_options_without_sense_are_refused),
        cmocka_unit_test(test_sampling_can_be_interrupted),
        cmocka_unit_test(test_running_out_of_memory_anywhere_is_an_error_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
