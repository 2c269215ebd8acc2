/* Text evaluation on models whose figures are known beforehand, and its laws; the numbers of real variants
 * are checked in test_pipeline_text.c. */
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
#include "harness/engine/session.h"
#include "harness/measure/diagnostics.h"
#include "harness/measure/text_evaluation.h"
#include "tests/support/arrays.h"
#include "tests/support/compare.h"
#include "tests/support/fixture.h"
#include "tests/support/network_fixture.h"

enum { VOCABULARY = 31, E = FL_TINY_MODEL_DIM, LONGEST = 700 };

static const fl_text_evaluation_options EVERYTHING = {true, true, true, true};

static const char KDA[] = "rule: kda\nwindow: 4\nsinks: 1\n";

typedef struct {
    const char *directory;
    fl_test_network network;
    fl_sequences sequences;
} fl_bench;

static void add_sequence(fl_bench *bench, size_t length, uint64_t seed) {
    fl_sequences *sequences = &bench->sequences;
    size_t s = sequences->count;
    assert_int_equal(FL_RESIZE(&sequences->lengths, s, s + 1, NULL), FL_OK);
    assert_int_equal(FL_RESIZE(&sequences->ids, s, s + 1, NULL), FL_OK);
    assert_int_equal(FL_ALLOCATE(&sequences->ids[s], length, NULL), FL_OK);
    sequences->lengths[s] = length;
    sequences->count = s + 1;
    fl_random random;
    fl_random_seed(&random, seed, 0);
    for (size_t t = 0; t < length; t++) sequences->ids[s][t] = (int32_t)fl_random_below(&random, VOCABULARY);
}

static fl_bench set_up(float scale, const float *embedding, const float *head) {
    fl_bench bench = {.directory = fl_temporary_directory()};
    fl_tiny_model_options options = {
        .vocabulary = VOCABULARY, .scale = scale, .embedding = embedding, .head = head};
    fl_tiny_model_write(bench.directory, &options);
    bench.network = fl_test_network_open(bench.directory, 2);
    return bench;
}

static void tear_down(fl_bench *bench) {
    fl_sequences_release(&bench->sequences);
    fl_test_network_close(&bench->network);
    fl_temporary_remove(bench->directory);
}

static void evaluate(const fl_bench *bench, const fl_test_mechanism *mechanisms, size_t count,
                     const fl_text_evaluation_options *options, fl_text_result *results) {
    const fl_mechanism *list[8];
    fl_error error = {0};
    for (size_t i = 0; i < count; i++) list[i] = mechanisms[i].mechanism;
    fl_status status = fl_text_evaluation_run(bench->network.network, &bench->sequences, list, count, options,
                                              NULL, results, NULL, &error);
    if (status != FL_OK) fail_msg("%s", error.message);
}

static void test_uniform_logits_give_a_perplexity_of_the_vocabulary(void **state) {
    (void)state;
    float head[VOCABULARY * E] = {0};
    fl_bench bench = set_up(0.2f, NULL, head);
    add_sequence(&bench, LONGEST, 1);
    add_sequence(&bench, 9, 2);
    fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, KDA);
    fl_text_result result;
    evaluate(&bench, &mechanism, 1, &EVERYTHING, &result);
    assert_true(fabs(result.perplexity - VOCABULARY) < 1e-10);
    assert_true(fabs(result.full_perplexity - VOCABULARY) < 1e-10);
    assert_true(result.kl == 0.0 && result.agreement == 1.0);
    assert_int_equal(result.tokens, LONGEST + 9);
    assert_int_equal(result.scored_tokens, LONGEST + 9 - 2);
    assert_true(isnan(result.position_cross_entropy[LONGEST - 1]));
    assert_true(result.position_count[8] == 2.0 && result.position_count[9] == 1.0);
    fl_text_result_release(&result);
    fl_test_mechanism_destroy(&mechanism);
    tear_down(&bench);
}

/* A model without context: the logits of the next token are a row of a table, chosen by the present one. */
static void test_a_table_model_gets_its_exact_cross_entropy_at_every_position(void **state) {
    (void)state;
    static float embedding[VOCABULARY * E], head[VOCABULARY * E], table[VOCABULARY][VOCABULARY];
    const double gain =
        1.0 / sqrt(1.0 / E + 1e-6); /* what the final norm makes of a row of the unit matrix */
    fl_random random;
    fl_random_seed(&random, 5, 0);
    for (size_t from = 0; from < VOCABULARY; from++) {
        embedding[from * E + from] = 1.0f;
        for (size_t to = 0; to < VOCABULARY; to++) {
            table[from][to] = (float)fl_random_normal(&random);
            head[to * E + from] = (float)((double)table[from][to] / gain);
        }
    }
    fl_bench bench = set_up(0.0f, embedding, head);
    add_sequence(&bench, 600, 1);
    fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, KDA);
    fl_text_result result;
    const fl_text_evaluation_options options = {.language_model = true};
    evaluate(&bench, &mechanism, 1, &options, &result);
    double total = 0.0;
    const int32_t *ids = bench.sequences.ids[0];
    for (size_t t = 0; t + 1 < 600; t++) {
        double sum = 0.0;
        for (size_t v = 0; v < VOCABULARY; v++) sum += exp((double)table[ids[t]][v]);
        double loss = log(sum) - (double)table[ids[t]][ids[t + 1]];
        assert_true(fabs(result.position_cross_entropy[t] - loss) < 1e-5);
        assert_true(fabs(result.full_position_cross_entropy[t] - loss) < 1e-5);
        total += loss;
    }
    assert_true(fabs(result.cross_entropy - total / 599) < 1e-6);
    assert_true(fabs(result.kl) < 1e-12 && result.agreement == 1.0);
    fl_text_result_release(&result);
    fl_test_mechanism_destroy(&mechanism);
    tear_down(&bench);
}

static void test_the_rule_softmax_has_no_error_and_no_state(void **state) {
    (void)state;
    fl_bench bench = set_up(0.2f, NULL, NULL);
    add_sequence(&bench, 90, 1);
    fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, "rule: softmax\n");
    fl_text_result result;
    evaluate(&bench, &mechanism, 1, &EVERYTHING, &result);
    for (size_t l = 0; l < result.layers; l++) {
        assert_true(result.nmse[l] < 1e-10 && result.residual_nmse[l] < 1e-10);
        assert_true(fabs(result.cosine[l] - 1.0) < 1e-6);
    }
    assert_true(fabs(result.kl) < 1e-9 && result.linear_share == 0.0);
    assert_int_equal(result.state_bytes, 0);
    assert_true(result.exact_bytes > 0);
    fl_text_result_release(&result);
    fl_test_mechanism_destroy(&mechanism);
    tear_down(&bench);
}

static void assert_equal_results(const fl_text_result *a, const fl_text_result *b) {
    size_t layers = a->layers, positions = a->positions;
    assert_memory_equal(a->nmse, b->nmse, layers * sizeof(double));
    assert_memory_equal(a->position_nmse, b->position_nmse, layers * positions * sizeof(double));
    assert_memory_equal(a->residual_nmse, b->residual_nmse, layers * sizeof(double));
    assert_memory_equal(a->state_norm, b->state_norm, layers * a->query_heads * positions * sizeof(double));
    assert_memory_equal(a->position_kl, b->position_kl, positions * sizeof(double));
    assert_true(a->cross_entropy == b->cross_entropy && a->kl == b->kl);
}

/* Most of these have their exact set in common with others, in all layers or in one, some not. */
static void test_company_in_a_run_changes_no_number(void **state) {
    (void)state;
    enum { COUNT = 8 };
    static const char *const variants[COUNT] = {
        "rule: none\nwindow: 4\n",
        "rule: gla\nwindow: 4\nsinks: 1\nsoftmax_layers: [0]\nmerge: half\n",
        "rule: none\nwindow: 3\nsinks: 2\nsoftmax_layers: [1]\n",
        "rule: linear\nwindow: 0\nsinks: 0\nsoftmax_layers: [1]\n",
        KDA,
        "rule: hedgehog\nwindow: 4\nsinks: 1\nmerge: lolcats\n",
        "rule: gla\nwindow: 4\nsinks: 1\nlora: {rank: 2}\n",
        "rule: gla\nwindow: 4\nsinks: 1\ncache: {budget: 3, route: value_norm}\n",
    };
    fl_bench bench = set_up(0.2f, NULL, NULL);
    add_sequence(&bench, LONGEST, 1);
    add_sequence(&bench, 33, 2);
    fl_test_mechanism mechanisms[COUNT];
    for (size_t i = 0; i < COUNT; i++) mechanisms[i] = fl_test_mechanism_create(&bench.network, variants[i]);
    fl_text_result alone[COUNT], together[COUNT];
    evaluate(&bench, mechanisms, COUNT, &EVERYTHING, together);
    for (size_t i = 0; i < COUNT; i++) {
        evaluate(&bench, &mechanisms[i], 1, &EVERYTHING, &alone[i]);
        assert_equal_results(&alone[i], &together[i]);
        fl_text_result_release(&alone[i]);
        fl_text_result_release(&together[i]);
        fl_test_mechanism_destroy(&mechanisms[i]);
    }
    tear_down(&bench);
}

static void test_pooling_weighs_sequences_by_their_tokens(void **state) {
    (void)state;
    fl_bench bench = set_up(0.2f, NULL, NULL), first = set_up(0.2f, NULL, NULL),
             second = set_up(0.2f, NULL, NULL);
    add_sequence(&bench, 100, 1);
    add_sequence(&bench, 41, 2);
    add_sequence(&first, 100, 1);
    add_sequence(&second, 41, 2);
    fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, KDA);
    fl_text_result pooled, a, b;
    evaluate(&bench, &mechanism, 1, &EVERYTHING, &pooled);
    fl_test_mechanism one = fl_test_mechanism_create(&first.network, KDA),
                      two = fl_test_mechanism_create(&second.network, KDA);
    evaluate(&first, &one, 1, &EVERYTHING, &a);
    evaluate(&second, &two, 1, &EVERYTHING, &b);
    for (size_t l = 0; l < pooled.layers; l++) {
        double mse = (100 * a.mse[l] + 41 * b.mse[l]) / 141;
        assert_true(fabs(pooled.mse[l] - mse) < 1e-9 * mse);
        double at_40 =
            (a.position_nmse[l * 100 + 40] * a.variance[l] + b.position_nmse[l * 41 + 40] * b.variance[l]) /
            2;
        assert_true(fabs(pooled.position_nmse[l * 100 + 40] * pooled.variance[l] - at_40) < 1e-9 * at_40);
    }
    double loss = (99 * a.cross_entropy + 40 * b.cross_entropy) / 139;
    assert_true(fabs(pooled.cross_entropy - loss) < 1e-9);
    assert_true(fabs(pooled.kl - (100 * a.kl + 41 * b.kl) / 141) < 1e-9);
    fl_text_result_release(&pooled);
    fl_text_result_release(&a);
    fl_text_result_release(&b);
    fl_test_mechanism_destroy(&mechanism);
    fl_test_mechanism_destroy(&one);
    fl_test_mechanism_destroy(&two);
    tear_down(&bench);
    tear_down(&first);
    tear_down(&second);
}

static double sum_of(const double *values, size_t count, size_t stride) {
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) sum += values[i * stride];
    return sum;
}

/* nMSE of a layer from sums of S sequences, arrays [S][L] from that layer on. */
static double nmse_of_sums(const fl_text_result *r, const double *errors, const double *sums,
                           const double *squares) {
    const double n = sum_of(r->sequence_output_count, r->sequences, 1);
    const double mean = sum_of(sums, r->sequences, r->layers) / n;
    return sum_of(errors, r->sequences, r->layers) / n /
           (sum_of(squares, r->sequences, r->layers) / n - mean * mean);
}

#define ASSERT_NEAR(x, y) assert_true(fabs((x) - (y)) <= 1e-11 * (1.0 + fabs(y)))

static void test_sums_of_sequences_give_the_figures_of_the_text(void **state) {
    (void)state;
    fl_bench bench = set_up(0.2f, NULL, NULL);
    add_sequence(&bench, LONGEST, 1);
    add_sequence(&bench, 9, 2);
    add_sequence(&bench, 600, 3); /* more than a block */
    add_sequence(&bench, 9, 2);
    fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, KDA);
    fl_text_result r;
    evaluate(&bench, &mechanism, 1, &EVERYTHING, &r);
    assert_int_equal(r.sequences, 4);
    assert_true(sum_of(r.sequence_tokens, 4, 1) == (double)r.tokens);
    assert_true(sum_of(r.sequence_scored_tokens, 4, 1) == (double)r.scored_tokens);
    ASSERT_NEAR(sum_of(r.sequence_cross_entropy, 4, 1) / (double)r.scored_tokens, r.cross_entropy);
    ASSERT_NEAR(sum_of(r.sequence_full_cross_entropy, 4, 1) / (double)r.scored_tokens, r.full_cross_entropy);
    ASSERT_NEAR(sum_of(r.sequence_kl, 4, 1) / (double)r.tokens, r.kl);
    ASSERT_NEAR(sum_of(r.sequence_agreement, 4, 1) / (double)r.tokens, r.agreement);
    for (size_t l = 0; l < r.layers; l++) {
        ASSERT_NEAR(nmse_of_sums(&r, r.sequence_squared_error + l, r.sequence_output_sum + l,
                                 r.sequence_output_sum_squares + l),
                    r.nmse[l]);
        ASSERT_NEAR(nmse_of_sums(&r, r.sequence_attention_squared_error + l, r.sequence_output_sum + l,
                                 r.sequence_output_sum_squares + l),
                    r.attention_nmse[l]);
        ASSERT_NEAR(nmse_of_sums(&r, r.sequence_residual_squared_error + l, r.sequence_residual_sum + l,
                                 r.sequence_residual_sum_squares + l),
                    r.residual_nmse[l]);
    }
    /* The same text is known again, another is not; equal sequences have equal sums. */
    assert_true(r.sequence_ids_hash[1] == r.sequence_ids_hash[3]);
    assert_true(r.sequence_ids_hash[0] != r.sequence_ids_hash[1]);
    assert_true(r.sequence_kl[1] == r.sequence_kl[3] && r.sequence_kl[1] != r.sequence_kl[0]);
    fl_text_result_release(&r);
    fl_test_mechanism_destroy(&mechanism);
    tear_down(&bench);
}

static void test_what_was_not_asked_for_is_absent(void **state) {
    (void)state;
    fl_bench bench = set_up(0.2f, NULL, NULL);
    add_sequence(&bench, 30, 1);
    fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, KDA);
    fl_text_result result;
    const fl_text_evaluation_options options = {.teacher_forced = true};
    evaluate(&bench, &mechanism, 1, &options, &result);
    assert_non_null(result.nmse);
    assert_null(result.attention_nmse);
    assert_null(result.state_norm);
    assert_null(result.key_concentration);
    assert_null(result.position_kl);
    assert_true(isnan(result.perplexity) && isnan(result.full_perplexity) && isnan(result.kl));
    assert_true(result.state_bytes > 0);
    fl_text_result_release(&result);
    fl_test_mechanism_destroy(&mechanism);
    tear_down(&bench);
}

static void test_linear_share_counts_the_tokens_whose_context_reached_the_state(void **state) {
    (void)state;
    static const char *const variants[] = {
        "rule: kda\nwindow: 4\nsinks: 2\n", "rule: kda\nwindow: 0\nsinks: 3\n", "rule: none\nwindow: 4\n",
        "rule: delta\nwindow: 3\nsinks: 1\ncache: {budget: 5, route: recency}\n"};
    fl_bench bench = set_up(0.2f, NULL, NULL);
    add_sequence(&bench, 40, 1);
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, variants[i]);
        fl_text_result result;
        const fl_text_evaluation_options options = {.propagated = true};
        evaluate(&bench, &mechanism, 1, &options, &result);
        fl_session *session = NULL;
        size_t reached = 0;
        assert_int_equal(fl_session_create(bench.network.network, mechanism.mechanism, &session, NULL),
                         FL_OK);
        for (size_t t = 0; t + 1 < 40; t++) {
            assert_int_equal(fl_session_forward(session, &bench.sequences.ids[0][t], 1, fl_array_none,
                                                fl_array_none, NULL, NULL),
                             FL_OK);
            if (fl_session_tokens_written(session) > 0) reached++;
        }
        assert_true(fabs(result.linear_share - (double)reached / 39.0) < 1e-12);
        fl_session_destroy(session);
        fl_text_result_release(&result);
        fl_test_mechanism_destroy(&mechanism);
    }
    tear_down(&bench);
}

static void test_divergence_is_a_result_with_its_first_place(void **state) {
    (void)state;
    fl_bench bench = set_up(0.2f, NULL, NULL);
    add_sequence(&bench, 30, 1);
    fl_test_mechanism mechanisms[2] = {fl_test_mechanism_create(&bench.network, KDA),
                                       fl_test_mechanism_create(&bench.network, KDA)};
    float *bias = fl_mechanism_find(mechanisms[0].mechanism, 1, "beta.bias");
    assert_non_null(bias);
    bias[2] = NAN;
    fl_text_result results[2];
    evaluate(&bench, mechanisms, 2, &EVERYTHING, results);
    assert_true(results[0].diverged);
    assert_string_equal(results[0].diverged_at, "teacher forced, layer 1, head 2, position 5");
    assert_true(isfinite(results[0].nmse[0]) && isnan(results[0].nmse[1]));
    assert_true(isfinite(results[0].position_nmse[30 + 4]) && isnan(results[0].position_nmse[30 + 5]));
    assert_true(isnan(results[0].perplexity) && isfinite(results[0].full_perplexity));
    assert_true(results[0].agreement < 1.0);
    assert_false(results[1].diverged);
    assert_true(isfinite(results[1].nmse[1]) && isfinite(results[1].perplexity));
    for (size_t i = 0; i < 2; i++) {
        fl_text_result_release(&results[i]);
        fl_test_mechanism_destroy(&mechanisms[i]);
    }
    tear_down(&bench);
}

static void test_long_sequences_are_scored_like_one_pass(void **state) {
    (void)state;
    fl_bench bench = set_up(0.2f, NULL, NULL);
    add_sequence(&bench, LONGEST, 1);
    fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, KDA);
    fl_text_result result;
    evaluate(&bench, &mechanism, 1, &EVERYTHING, &result);
    fl_session *session = NULL;
    float *hidden = NULL, *logits = NULL;
    assert_int_equal(FL_ALLOCATE(&hidden, LONGEST * E, NULL), FL_OK);
    assert_int_equal(FL_ALLOCATE(&logits, LONGEST * VOCABULARY, NULL), FL_OK);
    assert_int_equal(fl_session_create(bench.network.network, mechanism.mechanism, &session, NULL), FL_OK);
    const int32_t *ids = bench.sequences.ids[0];
    assert_int_equal(
        fl_session_forward(session, ids, LONGEST, fl_array_none, fl_test_array(hidden), NULL, NULL), FL_OK);
    fl_network_logits(bench.network.network, LONGEST, fl_test_array(hidden), fl_test_array(logits));
    for (size_t t = 0; t + 1 < LONGEST; t++) {
        double sum = 0.0;
        for (size_t v = 0; v < VOCABULARY; v++) sum += exp((double)logits[t * VOCABULARY + v]);
        double loss = log(sum) - (double)logits[t * VOCABULARY + (size_t)ids[t + 1]];
        assert_true(fabs(result.position_cross_entropy[t] - loss) < 1e-4);
    }
    fl_session_destroy(session);
    fl_memory_free(hidden);
    fl_memory_free(logits);
    fl_text_result_release(&result);
    fl_test_mechanism_destroy(&mechanism);
    tear_down(&bench);
}

/* Two heads' tokens first .. of arrays [2][length]. */
static void append_keys(fl_compute *compute, fl_key_geometry *geometry, size_t first, size_t tokens,
                        const float *key, size_t length, double *concentration, double *residual) {
    fl_array made = fl_array_none;
    assert_int_equal(compute->ops->allocate(compute, 4 * tokens, FL_FLOAT64, &made, NULL), FL_OK);
    fl_key_geometry_append(geometry, tokens, fl_test_array(key), made, fl_array_from(made, 2 * tokens));
    for (size_t h = 0; h < 2; h++) {
        assert_int_equal(compute->ops->download(compute, concentration + h * length + first,
                                                fl_array_from(made, h * tokens), tokens, NULL),
                         FL_OK);
        assert_int_equal(compute->ops->download(compute, residual + h * length + first,
                                                fl_array_from(made, (2 + h) * tokens), tokens, NULL),
                         FL_OK);
    }
    compute->ops->release(compute, made);
}

/* The definitions, with the sum over all earlier keys and the projection written out. */
static void test_key_geometry_follows_its_definitions(void **state) {
    (void)state;
    enum { TOKENS = 37, HEADS = 2, DIM = 8 };
    static float key[TOKENS * HEADS * DIM];
    double concentration[HEADS * TOKENS], residual[HEADS * TOKENS];
    fl_random random;
    fl_random_seed(&random, 11, 0);
    for (size_t i = 0; i < TOKENS * HEADS * DIM; i++) key[i] = 0.5f + (float)fl_random_normal(&random);
    fl_key_geometry *geometry = NULL;
    fl_compute *compute = NULL;
    assert_int_equal(fl_compute_create_cpu(&(fl_compute_options){.threads = 1}, &compute, NULL), FL_OK);
    assert_int_equal(fl_key_geometry_create(compute, HEADS, DIM, &geometry, NULL), FL_OK);
    append_keys(compute, geometry, 0, 10, key, TOKENS, concentration, residual);
    append_keys(compute, geometry, 10, TOKENS - 10, key + 10 * HEADS * DIM, TOKENS, concentration, residual);
    fl_key_geometry_destroy(geometry);
    fl_compute_destroy(compute);
    for (size_t h = 0; h < HEADS; h++) {
        double unit[TOKENS][DIM], mean[DIM];
        for (size_t t = 0; t < TOKENS; t++) {
            double norm = 0.0, mean_norm = 0.0, cosine = 0.0, total = 0.0;
            for (size_t i = 0; i < DIM; i++) norm += pow((double)key[(t * HEADS + h) * DIM + i], 2);
            for (size_t i = 0; i < DIM; i++) unit[t][i] = (double)key[(t * HEADS + h) * DIM + i] / sqrt(norm);
            for (size_t i = 0; i < DIM; i++) {
                mean[i] = 0.0;
                for (size_t j = 0; j <= t; j++) mean[i] += unit[j][i] / (double)(t + 1);
                mean_norm += mean[i] * mean[i];
                cosine += mean[i] * unit[t][i];
            }
            for (size_t j = 0; j <= t; j++) {
                double dot = 0.0;
                for (size_t i = 0; i < DIM; i++) dot += unit[j][i] * mean[i];
                for (size_t i = 0; i < DIM; i++) total += pow(dot / mean_norm * mean[i] - mean[i], 2);
            }
            assert_true(fabs(concentration[h * TOKENS + t] - cosine / sqrt(mean_norm)) < 1e-12);
            assert_true(fabs(residual[h * TOKENS + t] - total / (double)(t + 1)) < 1e-12);
        }
    }
}

static bool always_cancelled(void *context) {
    (void)context;
    return true;
}

static void test_interruption_and_bad_input_leave_nothing_behind(void **state) {
    (void)state;
    fl_bench bench = set_up(0.2f, NULL, NULL);
    add_sequence(&bench, 30, 1);
    fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, KDA);
    const fl_mechanism *list[1] = {mechanism.mechanism};
    fl_text_result result;
    fl_error error = {0};
    const fl_progress progress = {.cancelled = always_cancelled};
    assert_int_equal(fl_text_evaluation_run(bench.network.network, &bench.sequences, list, 1, &EVERYTHING,
                                            &progress, &result, NULL, &error),
                     FL_ERROR_CANCELLED);
    assert_null(result.nmse);
    bench.sequences.ids[0][7] = VOCABULARY;
    assert_int_equal(fl_text_evaluation_run(bench.network.network, &bench.sequences, list, 1, &EVERYTHING,
                                            NULL, &result, NULL, &error),
                     FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "sequence 0, token 7: id 31"));
    bench.sequences.lengths[0] = 0;
    assert_int_equal(fl_text_evaluation_run(bench.network.network, &bench.sequences, list, 1, &EVERYTHING,
                                            NULL, &result, NULL, &error),
                     FL_ERROR_ARGUMENT);
    fl_test_mechanism_destroy(&mechanism);
    tear_down(&bench);
}

static void test_every_failing_allocation_is_reported_and_leaks_nothing(void **state) {
    (void)state;
    fl_bench bench = set_up(0.2f, NULL, NULL);
    add_sequence(&bench, 12, 1);
    fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, KDA);
    const fl_mechanism *list[1] = {mechanism.mechanism};
    size_t failures = 0;
    for (size_t n = 1; n < 2000; n++) {
        fl_text_result result;
        fl_error error = {0};
        fl_memory_fail_at(n);
        fl_status status = fl_text_evaluation_run(bench.network.network, &bench.sequences, list, 1,
                                                  &EVERYTHING, NULL, &result, NULL, &error);
        fl_memory_fail_at(0);
        fl_text_result_release(&result);
        if (status == FL_OK) break;
        assert_int_equal(status, FL_ERROR_MEMORY);
        failures++;
    }
    assert_true(failures > 20 && failures < 1999);
    fl_test_mechanism_destroy(&mechanism);
    tear_down(&bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uniform_logits_give_a_perplexity_of_the_vocabulary),
        cmocka_unit_test(test_a_table_model_gets_its_exact_cross_entropy_at_every_position),
        cmocka_unit_test(test_the_rule_softmax_has_no_error_and_no_state),
        cmocka_unit_test(test_company_in_a_run_changes_no_number),
        cmocka_unit_test(test_pooling_weighs_sequences_by_their_tokens),
        cmocka_unit_test(test_sums_of_sequences_give_the_figures_of_the_text),
        cmocka_unit_test(test_what_was_not_asked_for_is_absent),
        cmocka_unit_test(test_linear_share_counts_the_tokens_whose_context_reached_the_state),
        cmocka_unit_test(test_divergence_is_a_result_with_its_first_place),
        cmocka_unit_test(test_long_sequences_are_scored_like_one_pass),
        cmocka_unit_test(test_key_geometry_follows_its_definitions),
        cmocka_unit_test(test_interruption_and_bad_input_leave_nothing_behind),
        cmocka_unit_test(test_every_failing_allocation_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
