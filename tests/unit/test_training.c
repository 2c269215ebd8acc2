/* Training: gradients against finite differences where the pipeline pack has none, the optimiser's
 * arithmetic, data order, overlap, resuming, divergence. */
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
#include "harness/engine/backward.h"
#include "harness/engine/optimiser.h"
#include "harness/engine/training.h"
#include "tests/support/fixture.h"
#include "tests/support/network_fixture.h"

enum { VOCABULARY = 31, TOKENS = 60, SEQUENCES = 5 };

typedef struct {
    const char *directory;
    fl_test_network network;
    fl_sequences sequences;
} fl_bench;

static fl_sequences random_sequences(size_t count, size_t length, uint64_t seed) {
    fl_sequences sequences = {.count = count};
    fl_random random;
    fl_random_seed(&random, seed, 0);
    assert_int_equal(FL_ALLOCATE(&sequences.lengths, count, NULL), FL_OK);
    assert_int_equal(FL_ALLOCATE(&sequences.ids, count, NULL), FL_OK);
    for (size_t s = 0; s < count; s++) {
        sequences.lengths[s] = length;
        assert_int_equal(FL_ALLOCATE(&sequences.ids[s], length, NULL), FL_OK);
        for (size_t t = 0; t < length; t++)
            sequences.ids[s][t] = (int32_t)fl_random_below(&random, VOCABULARY);
    }
    return sequences;
}

static fl_bench set_up(const char *model_type, const char *extra_config) {
    fl_bench bench = {.directory = fl_temporary_directory()};
    fl_tiny_model_options options = {
        .vocabulary = VOCABULARY, .model_type = model_type, .scale = 0.3f, .extra_config = extra_config};
    fl_tiny_model_write(bench.directory, &options);
    bench.network = fl_test_network_open(bench.directory, 2);
    bench.sequences = random_sequences(SEQUENCES, TOKENS, 1);
    return bench;
}

static void tear_down(fl_bench *bench) {
    fl_sequences_release(&bench->sequences);
    fl_test_network_close(&bench->network);
    fl_temporary_remove(bench->directory);
}

static double loss_of(fl_backward *backward, const fl_bench *bench, fl_objective objective,
                      fl_gradient *gradient) {
    const int32_t *ids = bench->sequences.ids[0];
    double loss = 0.0, losses[2];
    fl_error error = {0};
    fl_status status = FL_OK;
    switch (objective) {
    case FL_OBJECTIVE_NEXT_TOKEN:
        status = fl_backward_next_token(backward, ids, TOKENS, 1.0, gradient, &loss, &error);
        break;
    case FL_OBJECTIVE_KL:
        status = fl_backward_divergence(backward, ids, TOKENS, 1.0, gradient, &loss, &error);
        break;
    case FL_OBJECTIVE_LAYER_MSE:
        status = fl_backward_layer_error(backward, ids, TOKENS, 1.0, true, gradient, losses, &error);
        loss = losses[0] + losses[1];
        break;
    case FL_OBJECTIVE_NONE:
        fail();
    }
    if (status != FL_OK) fail_msg("%s", error.message);
    return loss;
}

/* The slope along the gradient and along a random direction. float32 leaves about 1e-3 of a difference
 * quotient. */
static void check_slopes(const fl_bench *bench, const fl_test_mechanism *under_test, fl_objective objective,
                         const char *what) {
    fl_mechanism *mechanism = under_test->mechanism;
    fl_backward *backward = NULL;
    fl_gradient *gradient = NULL, *direction = NULL;
    assert_int_equal(fl_backward_create(bench->network.network, mechanism, &backward, NULL), FL_OK);
    assert_int_equal(fl_gradient_create(mechanism, bench->network.network->compute, &gradient, NULL), FL_OK);
    assert_int_equal(fl_gradient_create(mechanism, bench->network.network->compute, &direction, NULL), FL_OK);
    loss_of(backward, bench, objective, gradient);
    assert_int_equal(fl_gradient_collect(gradient, NULL), FL_OK);
    double norm = fl_gradient_norm(gradient);
    fl_random random;
    fl_random_seed(&random, 5, 0);
    for (size_t trial = 0; trial < 2; trial++) {
        double length = 0.0, slope = 0.0, side[2];
        for (size_t l = 0; l < mechanism->layers; l++) {
            for (size_t i = 0; mechanism->layer[l] != NULL && i < mechanism->layer_floats; i++) {
                double g = (double)gradient->layer[l][i];
                double d = trial == 0 ? g : fl_random_normal(&random) * norm + g * 20.0;
                direction->layer[l][i] = (float)d;
                length += d * d;
                slope += d * g;
            }
        }
        length = sqrt(length);
        const double reach = 2e-2;
        for (size_t s = 0; s < 2; s++) {
            double move = (s == 0 ? reach : -2.0 * reach) / length;
            for (size_t l = 0; l < mechanism->layers; l++) {
                for (size_t i = 0; mechanism->layer[l] != NULL && i < mechanism->layer_floats; i++) {
                    mechanism->layer[l][i] += (float)(move * (double)direction->layer[l][i]);
                }
            }
            side[s] = loss_of(backward, bench, objective, NULL);
        }
        for (size_t l = 0; l < mechanism->layers; l++) {
            for (size_t i = 0; mechanism->layer[l] != NULL && i < mechanism->layer_floats; i++) {
                mechanism->layer[l][i] += (float)(reach / length * (double)direction->layer[l][i]);
            }
        }
        double measured = (side[0] - side[1]) / (2.0 * reach), expected = slope / length;
        if (!(fabs(measured - expected) <= 1e-2 * fabs(expected) + 1e-5)) {
            fail_msg("%s, trial %zu: slope %.6g, difference quotient %.6g", what, trial, expected, measured);
        }
    }
    fl_backward_destroy(backward);
    fl_gradient_destroy(gradient);
    fl_gradient_destroy(direction);
}

static void check_all_slopes(const fl_bench *bench, const char *yaml) {
    static const char *const names[] = {"next_token", "layer_mse", "kl"};
    fl_test_mechanism mechanism = fl_test_mechanism_create(&bench->network, yaml);
    for (int objective = 0; objective < 3; objective++) {
        char what[256];
        snprintf(what, sizeof what, "%s of %s", names[objective], yaml);
        check_slopes(bench, &mechanism, (fl_objective)objective, what);
    }
    fl_test_mechanism_destroy(&mechanism);
}

static void test_gradients_agree_with_difference_quotients(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    check_all_slopes(&bench, "rule: kda\nwindow: 6\nsinks: 2\nshort_conv: {kernel: 4, init: torch}\n");
    check_all_slopes(&bench, "rule: kgla\nwindow: 5\nsinks: 1\nmerge: half\nsoftmax_layers: [0]\n");
    check_all_slopes(
        &bench, "rule: gated_delta\nwindow: 4\ncache: {budget: 3, route: key_norm}\nsoftmax_layers: [1]\n");
    tear_down(&bench);
}

static void test_gradients_pass_through_sliding_windows_and_dynamic_rope(void **state) {
    (void)state;
    fl_bench bench = set_up("mistral", ", \"sliding_window\": 9");
    check_all_slopes(&bench, "rule: delta\nwindow: 6\nsinks: 2\nsoftmax_layers: [1]\n");
    tear_down(&bench);
    bench = set_up(NULL, ", \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 4.0}, "
                         "\"original_max_position_embeddings\": 32");
    check_all_slopes(&bench, "rule: gla\nwindow: 6\nsinks: 2\nsoftmax_layers: [1]\n");
    tear_down(&bench);
}

static void test_a_window_that_covers_the_sequence_has_no_divergence_and_no_gradient(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, "rule: kda\nwindow: 64\n");
    fl_backward *backward = NULL;
    fl_gradient *gradient = NULL;
    assert_int_equal(fl_backward_create(bench.network.network, mechanism.mechanism, &backward, NULL), FL_OK);
    assert_int_equal(fl_gradient_create(mechanism.mechanism, bench.network.network->compute, &gradient, NULL),
                     FL_OK);
    assert_true(fabs(loss_of(backward, &bench, FL_OBJECTIVE_KL, gradient)) < 1e-10);
    assert_true(loss_of(backward, &bench, FL_OBJECTIVE_NEXT_TOKEN, gradient) > 1.0);
    assert_int_equal(fl_gradient_collect(gradient, NULL), FL_OK);
    assert_true(fl_gradient_norm(gradient) < 1e-6);
    assert_true(fl_backward_bytes(backward) > 2 * TOKENS * 32 * sizeof(float));
    fl_backward_destroy(backward);
    fl_gradient_destroy(gradient);
    fl_test_mechanism_destroy(&mechanism);
    tear_down(&bench);
}

/* torch.optim.AdamW(lr 0.1, betas (0.9, 0.99), eps 1e-3, weight_decay 0.5) on one number from 2.0 with
 * gradients 1, -3. */
static void test_adamw_follows_pytorch(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, "rule: delta\nwindow: 4\n");
    fl_gradient *gradient = NULL;
    fl_adamw *adamw = NULL;
    assert_int_equal(fl_gradient_create(mechanism.mechanism, bench.network.network->compute, &gradient, NULL),
                     FL_OK);
    assert_int_equal(fl_adamw_create(mechanism.mechanism, 0.9, 0.99, 1e-3, 0.5, &adamw, NULL), FL_OK);
    mechanism.mechanism->layer[0][0] = 2.0f;
    gradient->layer[0][0] = 1.0f;
    fl_adamw_step(adamw, mechanism.mechanism, gradient, 0.1, 0.2);
    double p = 2.0 * 0.95 - 0.1 * 1.0 / (1.0 + 1e-3);
    assert_true(fabs((double)mechanism.mechanism->layer[0][0] - p) < 1e-6);
    gradient->layer[0][0] = -3.0f;
    fl_adamw_step(adamw, mechanism.mechanism, gradient, 0.1, 0.2);
    double m = 0.9 * 0.1 - 0.1 * 3.0, v = 0.99 * 0.01 + 0.01 * 9.0;
    p = p * 0.95 - 0.1 * (m / (1 - 0.81)) / (sqrt(v / (1 - 0.9801)) + 1e-3);
    assert_true(fabs((double)mechanism.mechanism->layer[0][0] - p) < 1e-6);
    fl_gradient_destroy(gradient);
    fl_adamw_destroy(adamw);
    fl_test_mechanism_destroy(&mechanism);
    tear_down(&bench);
}

static void test_clipping_keeps_the_direction_and_reports_the_norm_before(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, "rule: delta\nwindow: 4\n");
    fl_gradient *gradient = NULL;
    assert_int_equal(fl_gradient_create(mechanism.mechanism, bench.network.network->compute, &gradient, NULL),
                     FL_OK);
    gradient->layer[0][0] = 3.0f;
    gradient->layer[1][1] = 4.0f;
    assert_true(fl_gradient_clip(gradient, 0.0) == 5.0 && gradient->layer[0][0] == 3.0f);
    assert_true(fl_gradient_clip(gradient, 6.0) == 5.0 && gradient->layer[0][0] == 3.0f);
    assert_true(fl_gradient_clip(gradient, 1.0) == 5.0);
    assert_true(fabs((double)gradient->layer[0][0] - 3.0 / (5.0 + 1e-6)) < 1e-7);
    fl_gradient_destroy(gradient);
    fl_test_mechanism_destroy(&mechanism);
    tear_down(&bench);
}

static void test_the_schedule_warms_up_and_falls_to_zero(void **state) {
    (void)state;
    assert_true(fabs(fl_learning_rate(2.0, 4, 12, 0) - 0.5) < 1e-15);
    assert_true(fl_learning_rate(2.0, 4, 12, 3) == 2.0 && fl_learning_rate(2.0, 4, 12, 4) == 2.0);
    assert_true(fabs(fl_learning_rate(2.0, 4, 12, 8) - 1.0) < 1e-15);
    assert_true(fl_learning_rate(2.0, 4, 12, 11) > 0.0);
    assert_true(fl_learning_rate(2.0, 0, 5, 0) == 2.0);
    assert_true(fl_learning_rate(2.0, 10, 5, 4) == 1.0);
}

static fl_train_config recipe(size_t steps) {
    return (fl_train_config){.objective = FL_OBJECTIVE_LAYER_MSE,
                             .steps = steps,
                             .warmup_steps = 2,
                             .learning_rate = 2e-2,
                             .batch = 1,
                             .accumulate = 1,
                             .clip = 1.0,
                             .beta1 = 0.9,
                             .beta2 = 0.999,
                             .epsilon = 1e-8,
                             .seed = 3,
                             .checkpoint_every = 2};
}

static const char KDA[] = "rule: kda\nwindow: 6\nsinks: 2\n";

static void train(const fl_bench *bench, fl_mechanism *mechanism, const fl_training_options *options,
                  fl_training_history *history) {
    fl_error error = {0};
    if (fl_training_run(bench->network.network, mechanism, options, history, &error) != FL_OK) {
        fail_msg("%s", error.message);
    }
}

static void test_every_objective_falls_and_the_backbone_stays(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_hash before, after;
    assert_int_equal(fl_model_hash(bench.network.model, &before, NULL), FL_OK);
    for (int objective = 0; objective < 3; objective++) {
        fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, KDA);
        fl_train_config config = recipe(30);
        config.objective = objective;
        config.batch = SEQUENCES;
        fl_training_options options = {.config = &config, .sequences = &bench.sequences};
        fl_training_history history;
        train(&bench, mechanism.mechanism, &options, &history);
        assert_int_equal(history.steps, 30);
        assert_int_equal(history.tokens_seen, 30 * SEQUENCES * TOKENS);
        assert_true(history.bytes > 0 && history.seconds > 0.0 && !history.diverged);
        if (!(history.loss[29] < history.loss[0] - 1e-3)) {
            fail_msg("objective %d: loss %.6g, at first %.6g", objective, history.loss[29], history.loss[0]);
        }
        fl_training_history_release(&history);
        fl_test_mechanism_destroy(&mechanism);
    }
    assert_int_equal(fl_model_hash(bench.network.model, &after, NULL), FL_OK);
    assert_string_equal(before.text, after.text);
    tear_down(&bench);
}

static void test_accumulation_is_a_larger_batch(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_hash hashes[2];
    for (size_t i = 0; i < 2; i++) {
        fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, KDA);
        fl_train_config config = recipe(3);
        *(i == 0 ? &config.batch : &config.accumulate) = 4;
        fl_training_options options = {.config = &config, .sequences = &bench.sequences};
        fl_training_history history;
        train(&bench, mechanism.mechanism, &options, &history);
        hashes[i] = fl_mechanism_hash(mechanism.mechanism);
        fl_training_history_release(&history);
        fl_test_mechanism_destroy(&mechanism);
    }
    assert_string_equal(hashes[0].text, hashes[1].text);
    tear_down(&bench);
}

typedef struct {
    size_t asked, cancel_after, steps_seen, evaluations;
} fl_watch;

static bool cancel(void *context) {
    fl_watch *watch = context;
    return watch->asked++ >= watch->cancel_after;
}

static void see_step(void *context, const fl_training_history *history) {
    fl_watch *watch = context;
    watch->steps_seen = history->steps;
}

static fl_status evaluate(void *context, double *value, fl_error *error) {
    (void)error;
    fl_watch *watch = context;
    *value = (double)++watch->evaluations;
    return FL_OK;
}

static void test_an_interrupted_training_resumes_bit_for_bit(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_train_config config = recipe(9);
    config.evaluate_every = 2;
    char path[1024];
    snprintf(path, sizeof path, "%s/state.safetensors", bench.directory);
    fl_test_mechanism straight = fl_test_mechanism_create(&bench.network, KDA),
                      resumed = fl_test_mechanism_create(&bench.network, KDA),
                      fresh = fl_test_mechanism_create(&bench.network,
                                                       "rule: kda\nwindow: 6\nsinks: 2\nseed: 9\n");
    fl_watch watch = {.cancel_after = SIZE_MAX};
    const fl_training_hooks hooks = {see_step, evaluate, &watch};
    fl_training_options options = {.config = &config, .sequences = &bench.sequences, .hooks = &hooks};
    fl_training_history whole, part, rest;
    train(&bench, straight.mechanism, &options, &whole);
    assert_int_equal(whole.evaluations, 5); /* after 2, 4, 6, 8 and 9 steps */
    assert_int_equal(watch.steps_seen, 9);

    watch = (fl_watch){.cancel_after = 5};
    const fl_progress progress = {.cancelled = cancel, .context = &watch};
    options.progress = &progress;
    options.checkpoint_path = path;
    options.identity = "run 1";
    fl_error error = {0};
    assert_int_equal(fl_training_run(bench.network.network, resumed.mechanism, &options, &part, &error),
                     FL_ERROR_CANCELLED);
    assert_int_equal(part.steps, 5);
    fl_training_history_release(&part);

    watch.cancel_after =
        SIZE_MAX; /* into a mechanism that starts elsewhere: everything comes from the file */
    train(&bench, fresh.mechanism, &options, &rest);
    assert_string_equal(fl_mechanism_hash(fresh.mechanism).text, fl_mechanism_hash(straight.mechanism).text);
    assert_int_equal(rest.steps, 9);
    assert_memory_equal(rest.loss, whole.loss, 9 * sizeof(double));
    assert_memory_equal(rest.gradient_norm, whole.gradient_norm, 9 * sizeof(double));
    assert_int_equal(rest.evaluations, 5);
    assert_memory_equal(rest.evaluation_step, whole.evaluation_step, 5 * sizeof(size_t));
    assert_int_equal(rest.tokens_seen, whole.tokens_seen);
    fl_training_history_release(&rest);

    train(&bench, resumed.mechanism, &options, &rest); /* a finished one is only read */
    assert_string_equal(fl_mechanism_hash(resumed.mechanism).text,
                        fl_mechanism_hash(straight.mechanism).text);
    fl_training_history_release(&rest);
    fl_training_history_release(&whole);
    fl_test_mechanism_destroy(&straight);
    fl_test_mechanism_destroy(&resumed);
    fl_test_mechanism_destroy(&fresh);
    tear_down(&bench);
}

static void refuse(const fl_bench *bench, const fl_training_options *options, const char *yaml,
                   fl_status expected, const char *part) {
    fl_test_mechanism mechanism = fl_test_mechanism_create(&bench->network, yaml);
    fl_hash before = fl_mechanism_hash(mechanism.mechanism);
    fl_training_history history;
    fl_error error = {0};
    assert_int_equal(fl_training_run(bench->network.network, mechanism.mechanism, options, &history, &error),
                     expected);
    if (strstr(error.message, part) == NULL) fail_msg("message \"%s\" lacks \"%s\"", error.message, part);
    assert_string_equal(fl_mechanism_hash(mechanism.mechanism).text, before.text);
    assert_null(history.loss);
    fl_test_mechanism_destroy(&mechanism);
}

static void test_a_training_whose_steps_all_came_from_a_checkpoint_counts_as_one(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    char path[1024];
    for (int objective = 0; objective < 3; objective++) {
        fl_train_config config = recipe(2);
        config.objective = objective;
        snprintf(path, sizeof path, "%s/%d.safetensors", bench.directory, objective);
        fl_training_options options = {
            .config = &config, .sequences = &bench.sequences, .checkpoint_path = path, .identity = "run 1"};
        for (int turn = 0; turn < 2; turn++) {
            fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, KDA);
            fl_training_history history;
            assert_int_equal(mechanism.mechanism->fit, FL_FIT_NONE);
            train(&bench, mechanism.mechanism, &options, &history);
            assert_int_equal(mechanism.mechanism->fit,
                             objective == FL_OBJECTIVE_LAYER_MSE ? FL_FIT_LAYERS : FL_FIT_NETWORK);
            fl_training_history_release(&history);
            fl_test_mechanism_destroy(&mechanism);
        }
    }
    tear_down(&bench);
}

static void test_a_foreign_or_damaged_checkpoint_is_refused_and_changes_nothing(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_train_config config = recipe(3);
    char path[1024];
    snprintf(path, sizeof path, "%s/state.safetensors", bench.directory);
    fl_training_options options = {
        .config = &config, .sequences = &bench.sequences, .checkpoint_path = path, .identity = "run 1"};
    fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, KDA);
    fl_training_history history;
    train(&bench, mechanism.mechanism, &options, &history);
    fl_training_history_release(&history);
    options.identity = "run 2";
    refuse(&bench, &options, KDA, FL_ERROR_ARGUMENT, "run 1");
    options.identity = "run 1";
    refuse(&bench, &options, "rule: gla\nwindow: 6\nshort_conv: {kernel: 4}\n", FL_ERROR_FORMAT,
           "state.safetensors");
    fl_train_config shorter = recipe(2);
    options.config = &shorter;
    refuse(&bench, &options, KDA, FL_ERROR_FORMAT, "2 steps");
    options.config = &config;
    size_t bytes = 0;
    char *data = fl_read_file(path, &bytes);
    fl_write_file(path, data, bytes - 10);
    refuse(&bench, &options, KDA, FL_ERROR_FORMAT, "state.safetensors");
    fl_write_file(path, "", 0);
    refuse(&bench, &options, KDA, FL_ERROR_FORMAT, "state.safetensors");
    fl_memory_free(data);
    assert_int_equal(fl_mechanism_save(mechanism.mechanism, path, NULL), FL_OK);
    refuse(&bench, &options, KDA, FL_ERROR_FORMAT, "not a training checkpoint");
    fl_test_mechanism_destroy(&mechanism);
    tear_down(&bench);
}

static void test_divergence_stops_with_its_history_kept(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, KDA);
    fl_mechanism_find(mechanism.mechanism, 1, "beta.bias")[0] = NAN;
    fl_hash before = fl_mechanism_hash(mechanism.mechanism);
    fl_train_config config = recipe(5);
    fl_training_options options = {.config = &config, .sequences = &bench.sequences};
    fl_training_history history;
    train(&bench, mechanism.mechanism, &options, &history);
    assert_true(history.diverged && history.steps == 1 && isnan(history.loss[0]));
    assert_string_equal(fl_mechanism_hash(mechanism.mechanism).text, before.text);
    fl_training_history_release(&history);
    fl_test_mechanism_destroy(&mechanism);
    tear_down(&bench);
}

static void test_what_cannot_be_trained_is_refused(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_train_config config = recipe(5);
    fl_training_options options = {.config = &config, .sequences = &bench.sequences};
    refuse(&bench, &options, "rule: none\nwindow: 6\n", FL_ERROR_ARGUMENT, "rule none");
    refuse(&bench, &options, "rule: linear\nwindow: 6\n", FL_ERROR_ARGUMENT, "no parameters");
    bench.sequences.ids[2][4] = VOCABULARY;
    refuse(&bench, &options, KDA, FL_ERROR_ARGUMENT, "training text: sequence 2, token 4");
    bench.sequences.lengths[1] = 1;
    refuse(&bench, &options, KDA, FL_ERROR_ARGUMENT, "sequence 1 has 1 tokens");
    tear_down(&bench);
}

static void test_order_is_a_permutation_of_every_pass_and_known_beforehand(void **state) {
    (void)state;
    fl_train_config config = recipe(1);
    size_t order[21], again[7];
    assert_int_equal(fl_training_order(&config, 7, 0, 21, order, NULL), FL_OK);
    for (size_t pass = 0; pass < 3; pass++) {
        unsigned seen = 0;
        for (size_t i = 0; i < 7; i++) seen |= 1u << order[pass * 7 + i];
        assert_int_equal(seen, 127);
    }
    assert_memory_not_equal(order, order + 7, 7 * sizeof(size_t));
    assert_int_equal(fl_training_order(&config, 7, 10, 7, again, NULL), FL_OK);
    assert_memory_equal(again, order + 10, 7 * sizeof(size_t));
    config.order = FL_ORDER_SEQUENTIAL;
    assert_int_equal(fl_training_order(&config, 7, 5, 4, again, NULL), FL_OK);
    const size_t expected[] = {5, 6, 0, 1};
    assert_memory_equal(again, expected, sizeof expected);
}

static void test_kept_projections_change_nothing_but_memory(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    bench.sequences.lengths[1] = TOKENS / 2;
    for (int objective = 0; objective < 3; objective += 2) {
        fl_hash hashes[2];
        size_t bytes[2];
        for (size_t i = 0; i < 2; i++) {
            fl_test_mechanism mechanism = fl_test_mechanism_create(
                &bench.network, "rule: kda\nwindow: 6\nsinks: 2\nlora: {rank: 2}\nsoftmax_layers: [1]\n");
            fl_train_config config = recipe(4);
            config.objective = objective;
            config.adapter_learning_rate = 1e-2;
            config.activation_budget = i;
            fl_training_options options = {.config = &config, .sequences = &bench.sequences};
            fl_training_history history;
            train(&bench, mechanism.mechanism, &options, &history);
            hashes[i] = fl_mechanism_hash(mechanism.mechanism);
            bytes[i] = history.bytes;
            fl_training_history_release(&history);
            fl_test_mechanism_destroy(&mechanism);
        }
        assert_string_equal(hashes[0].text, hashes[1].text);
        assert_true(bytes[1] > bytes[0] + TOKENS * 2 * 48 * sizeof(float));
    }
    tear_down(&bench);
}

static void test_a_memory_budget_is_kept_or_refused_with_the_figure(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_sequences_release(&bench.sequences);
    bench.sequences = random_sequences(1, 1000, 1);
    for (int objective = 0; objective < 3; objective++) {
        fl_train_config config = recipe(1);
        config.objective = objective;
        config.memory_budget = 1;
        config.activation_budget = 100;
        fl_training_options options = {.config = &config, .sequences = &bench.sequences};
        refuse(&bench, &options, KDA, FL_ERROR_MEMORY, "1000 tokens need ");
        config.memory_budget = 16;
        fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, KDA);
        fl_training_history history;
        train(&bench, mechanism.mechanism, &options, &history);
        assert_true(history.bytes > 1 << 20 && history.bytes <= 16 << 20);
        fl_training_history_release(&history);
        fl_test_mechanism_destroy(&mechanism);
    }
    tear_down(&bench);
}

static void test_a_training_that_never_reaches_the_state_is_refused(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    for (int objective = 0; objective < 3; objective++) {
        fl_train_config config = recipe(1);
        config.objective = objective;
        fl_training_options options = {.config = &config, .sequences = &bench.sequences};
        refuse(&bench, &options, "rule: kda\nwindow: 40\nsinks: 900\n", FL_ERROR_ARGUMENT,
               "no sequence reaches the linear state");
    }
    tear_down(&bench);
}

static void test_overlapping_texts_are_found_and_refused(void **state) {
    (void)state;
    fl_sequences training = random_sequences(3, 400, 1), evaluation = random_sequences(2, 100, 2);
    fl_train_config config = {.allow_overlap = false};
    fl_error error = {0};
    fl_overlap overlap;
    assert_int_equal(fl_training_check_overlap(&config, &training, &evaluation, &error), FL_OK);
    memcpy(evaluation.ids[1] + 17, training.ids[2] + 311, (FL_OVERLAP_TOKENS - 1) * sizeof(int32_t));
    evaluation.ids[1][17 + FL_OVERLAP_TOKENS - 1] = training.ids[2][311 + FL_OVERLAP_TOKENS - 1] == 0;
    assert_int_equal(fl_sequences_overlap(&training, &evaluation, &overlap, NULL), FL_OK);
    assert_int_equal(overlap.tokens, 0);
    evaluation.ids[1][17 + FL_OVERLAP_TOKENS - 1] = training.ids[2][311 + FL_OVERLAP_TOKENS - 1];
    assert_int_equal(fl_training_check_overlap(&config, &training, &evaluation, &error), FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "token 311 of training sequence 2"));
    assert_non_null(strstr(error.message, "sequence 1, token 17"));
    config.allow_overlap = true;
    assert_int_equal(fl_training_check_overlap(&config, &training, &evaluation, &error), FL_OK);
    evaluation.lengths[1] =
        17; /* without the shared passage; sequence 0 becomes a short one inside the training text */
    memcpy(evaluation.ids[0], training.ids[0] + 388, 12 * sizeof(int32_t));
    evaluation.lengths[0] = 12;
    assert_int_equal(fl_sequences_overlap(&training, &evaluation, &overlap, NULL), FL_OK);
    assert_int_equal(overlap.tokens, 12);
    assert_int_equal(overlap.training_token, 388);
    fl_sequences_release(&training);
    fl_sequences_release(&evaluation);
}

static fl_status bind(const char *yaml, fl_train_config *config, fl_error *error) {
    fl_document *document = NULL;
    fl_status status = fl_document_parse_text(yaml, strlen(yaml), "t.yaml", &document, error);
    if (status == FL_OK) status = fl_train_config_bind(fl_document_root(document), NULL, config, error);
    fl_document_destroy(document);
    return status;
}

static void test_the_train_mapping_has_the_papers_defaults_and_refuses_nonsense(void **state) {
    (void)state;
    fl_train_config config;
    fl_error error = {0};
    assert_int_equal(bind("path: a.txt\n", &config, &error), FL_OK);
    assert_true(config.objective == FL_OBJECTIVE_NEXT_TOKEN && config.learning_rate == 2e-3);
    assert_true(config.warmup_steps == 100 && config.clip == 1.0 && config.weight_decay == 0.0);
    assert_true(config.sequence_length == 1024 && config.order == FL_ORDER_SHUFFLED && !config.allow_overlap);
    fl_train_config_release(&config);
    assert_int_equal(bind("ids: a.json\norder: sequential\nobjective: kl\n", &config, &error), FL_OK);
    assert_true(config.sequence_length == 0 && config.objective == FL_OBJECTIVE_KL);
    fl_train_config_release(&config);
    assert_int_equal(bind("objective: none\n", &config, &error), FL_OK);
    assert_int_equal(config.objective, FL_OBJECTIVE_NONE);
    fl_train_config_release(&config);
    static const char *const bad[][2] = {
        {"path: a\nobjective: null\n", "t.yaml:2:12: train.objective: null could mean"},
        {"objective: none\nstep: 5\n", "steps"},
        {"steps: 5\n", "exactly one of path, ids and self_generated"},
        {"path: a\nids: b\n", "exactly one of path, ids and self_generated"},
        {"path: a\nstep: 5\n", "steps"},
        {"path: a\nsteps: 0\n", "t.yaml:2:"},
        {"path: a\nlearning_rate: -1\n", "t.yaml:2:"},
        {"path: a\nlearning_rate: fast\n", "t.yaml:2:"},
        {"path: a\nobjective: mse\n", "layer_mse"},
        {"path: a\nbeta2: 1\n", "below 1"},
        {"path: a\nsequence_length: 1\n", "nothing to predict"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(bind(bad[i][0], &config, &error), FL_ERROR_ARGUMENT);
        if (strstr(error.message, bad[i][1]) == NULL) {
            fail_msg("%s: message \"%s\" lacks \"%s\"", bad[i][0], error.message, bad[i][1]);
        }
        assert_null(config.path);
    }
}

static void test_every_failing_allocation_is_reported_and_leaks_nothing(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL, NULL);
    fl_train_config config = recipe(1);
    char path[1024];
    snprintf(path, sizeof path, "%s/state.safetensors", bench.directory);
    fl_training_options options = {.config = &config, .sequences = &bench.sequences, .checkpoint_path = path};
    size_t failures = 0;
    for (size_t n = 1; n < 3000; n++) {
        fl_test_mechanism mechanism = fl_test_mechanism_create(&bench.network, KDA);
        fl_training_history history;
        fl_error error = {0};
        fl_memory_fail_at(n);
        fl_status status =
            fl_training_run(bench.network.network, mechanism.mechanism, &options, &history, &error);
        fl_memory_fail_at(0);
        fl_training_history_release(&history);
        fl_test_mechanism_destroy(&mechanism);
        if (status == FL_OK) break;
        assert_int_equal(status, FL_ERROR_MEMORY);
        failures++;
    }
    assert_true(failures > 10 && failures < 2999);
    tear_down(&bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_agree_with_difference_quotients),
        cmocka_unit_test(test_gradients_pass_through_sliding_windows_and_dynamic_rope),
        cmocka_unit_test(test_a_window_that_covers_the_sequence_has_no_divergence_and_no_gradient),
        cmocka_unit_test(test_adamw_follows_pytorch),
        cmocka_unit_test(test_clipping_keeps_the_direction_and_reports_the_norm_before),
        cmocka_unit_test(test_the_schedule_warms_up_and_falls_to_zero),
        cmocka_unit_test(test_every_objective_falls_and_the_backbone_stays),
        cmocka_unit_test(test_accumulation_is_a_larger_batch),
        cmocka_unit_test(test_an_interrupted_training_resumes_bit_for_bit),
        cmocka_unit_test(test_a_training_whose_steps_all_came_from_a_checkpoint_counts_as_one),
        cmocka_unit_test(test_a_foreign_or_damaged_checkpoint_is_refused_and_changes_nothing),
        cmocka_unit_test(test_divergence_stops_with_its_history_kept),
        cmocka_unit_test(test_what_cannot_be_trained_is_refused),
        cmocka_unit_test(test_order_is_a_permutation_of_every_pass_and_known_beforehand),
        cmocka_unit_test(test_kept_projections_change_nothing_but_memory),
        cmocka_unit_test(test_a_memory_budget_is_kept_or_refused_with_the_figure),
        cmocka_unit_test(test_a_training_that_never_reaches_the_state_is_refused),
        cmocka_unit_test(test_overlapping_texts_are_found_and_refused),
        cmocka_unit_test(test_the_train_mapping_has_the_papers_defaults_and_refuses_nonsense),
        cmocka_unit_test(test_every_failing_allocation_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
