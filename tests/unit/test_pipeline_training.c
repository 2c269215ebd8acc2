/* Gradients and training runs against the `pipeline` pack (float64; its own float32 run differs by up to
 * 4e-6). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/engine/backward.h"
#include "harness/engine/training.h"
#include "tests/support/fixture.h"
#include "tests/support/pipeline_pack.h"

static const double TOLERANCE = 1e-4;
static const double LEARNING_RATE = 2e-3; /* trained parameters: within a twentieth of a step of Adam */

typedef struct {
    double worst;
    char worst_name[160];
    size_t compared, failures;
} fl_verdict;

static void judge(fl_verdict *verdict, const char *config, const char *name, double figure, double bound) {
    verdict->compared++;
    if (!(figure <= verdict->worst)) {
        verdict->worst = figure;
        snprintf(verdict->worst_name, sizeof verdict->worst_name, "%s %s", config, name);
    }
    if (figure <= bound) return;
    printf("differs: %s %s: %.3g passes %.3g\n", config, name, figure, bound);
    verdict->failures++;
}

static void judge_number(fl_verdict *verdict, const fl_pipeline_case *config, const char *name, double x,
                         double expected) {
    judge(verdict, config->name, name, fabs(x - expected) / fabs(expected), TOLERANCE);
}

/* Every tensor <prefix>layers.<i>.<name> against ours, each relative to its own norm. */
static void compare_gradients(fl_verdict *verdict, const fl_pipeline_case *config, const char *prefix,
                              fl_gradient *gradient) {
    assert_int_equal(fl_gradient_collect(gradient, NULL), FL_OK);
    const fl_mechanism *mechanism = config->mechanism;
    for (size_t l = 0; l < mechanism->layers; l++) {
        for (size_t i = 0; mechanism->layer[l] != NULL && i < mechanism->tensor_count; i++) {
            const fl_mechanism_tensor *tensor = &mechanism->tensors[i];
            char name[128];
            snprintf(name, sizeof name, "%slayers.%zu.%s", prefix, l, tensor->name);
            double *expected = fl_fixture_doubles(config->expected, name, NULL, NULL), error = 0.0,
                   norm = 0.0;
            for (size_t e = 0; e < tensor->count; e++) {
                double difference = (double)gradient->layer[l][tensor->offset + e] - expected[e];
                error += difference * difference;
                norm += expected[e] * expected[e];
            }
            judge(verdict, config->name, name, sqrt(error) / sqrt(norm), TOLERANCE);
            fl_memory_free(expected);
        }
    }
}

static double stored_number(const fl_pipeline_case *config, const char *name, size_t index) {
    double *numbers = fl_fixture_doubles(config->expected, name, NULL, NULL);
    double number = numbers[index];
    fl_memory_free(numbers);
    return number;
}

/* The same gradient with the upper layers' projections kept instead of computed again, bit for bit. */
static void check_keeping(const fl_pipeline_pack *pack, const fl_pipeline_case *config, const int32_t *ids,
                          size_t tokens, const fl_gradient *expected) {
    fl_backward *backward = NULL;
    fl_gradient *gradient = NULL;
    double loss = 0.0;
    assert_int_equal(fl_backward_create(pack->under_test.network, config->mechanism, &backward, NULL), FL_OK);
    assert_int_equal(
        fl_gradient_create(config->mechanism, pack->under_test.network->compute, &gradient, NULL), FL_OK);
    fl_backward_keep(backward, (size_t)1 << 28);
    assert_int_equal(fl_backward_next_token(backward, ids, tokens, 1.0, gradient, &loss, NULL), FL_OK);
    assert_int_equal(fl_gradient_collect(gradient, NULL), FL_OK);
    for (size_t l = 0; l < gradient->layers; l++) {
        if (gradient->layer[l] == NULL) continue;
        assert_memory_equal(gradient->layer[l], expected->layer[l], gradient->layer_floats * sizeof(float));
    }
    fl_gradient_destroy(gradient);
    fl_backward_destroy(backward);
}

static void compare_case(fl_verdict *verdict, const fl_pipeline_pack *pack, const fl_pipeline_case *config) {
    fl_sequences sequences = fl_pipeline_sequences(pack, "a");
    fl_backward *backward = NULL;
    fl_gradient *gradient = NULL;
    fl_error error = {0};
    double loss = 0.0, losses[8];
    assert_int_equal(fl_backward_create(pack->under_test.network, config->mechanism, &backward, NULL), FL_OK);
    assert_int_equal(
        fl_gradient_create(config->mechanism, pack->under_test.network->compute, &gradient, NULL), FL_OK);
    const int32_t *ids = sequences.ids[0];
    size_t tokens = sequences.lengths[0];
    if (fl_backward_next_token(backward, ids, tokens, 1.0, gradient, &loss, &error) != FL_OK) {
        fail_msg("%s: %s", config->name, error.message);
    }
    judge_number(verdict, config, "grad_ce.loss", loss, stored_number(config, "grad_ce.loss", 0));
    compare_gradients(verdict, config, "grad_ce.", gradient);
    check_keeping(pack, config, ids, tokens, gradient);
    fl_gradient_clear(gradient);
    if (fl_backward_layer_error(backward, ids, tokens, 1.0, false, gradient, losses, &error) != FL_OK) {
        fail_msg("%s: %s", config->name, error.message);
    }
    for (size_t l = 0; l < config->mechanism->layers; l++) {
        if (config->mechanism->layer[l] == NULL) continue;
        judge_number(verdict, config, "grad_layer.loss", losses[l],
                     stored_number(config, "grad_layer.loss", l));
    }
    compare_gradients(verdict, config, "grad_layer.", gradient);
    fl_gradient_destroy(gradient);
    fl_backward_destroy(backward);
    fl_sequences_release(&sequences);
}

static void compare_pack(const char *test, const char *checkpoint, bool from_pack) {
    fl_pipeline_pack pack;
    if (!fl_pipeline_pack_open(checkpoint, from_pack, &pack))
        fl_fixture_skip(test, "pipeline and reference packs");
    fl_verdict verdict = {0};
    size_t cases = 0;
    for (size_t i = 0; i < pack.count; i++) {
        if (!pack.cases[i].has_gradients) continue;
        compare_case(&verdict, &pack, &pack.cases[i]);
        cases++;
    }
    printf("worst: %s gradients, %zu configurations, %zu figures: %.2g (%s)\n", checkpoint, cases,
           verdict.compared, verdict.worst, verdict.worst_name);
    fl_pipeline_pack_close(&pack);
    assert_true(cases > 0);
    if (verdict.failures > 0) fail_msg("%zu of %zu figures differ", verdict.failures, verdict.compared);
}

static void test_gradients_of_the_fixture_match(void **state) {
    (void)state;
    compare_pack(__func__, "llama_gqa", false);
}

static void test_gradients_of_the_packs_match(void **state) {
    (void)state;
    compare_pack(__func__, "llama_gqa", true);
    compare_pack(__func__, "qwen3", true);
}

static fl_sequences training_sequences(const fl_pipeline_pack *pack) {
    size_t shape[4];
    fl_sequences sequences = {0};
    fl_memory_free(fl_fixture_doubles(pack->common, "train.input_ids", NULL, shape));
    int32_t *ids = fl_fixture_integers(pack->common, "train.input_ids", NULL);
    sequences.count = shape[0];
    assert_int_equal(FL_ALLOCATE(&sequences.lengths, shape[0], NULL), FL_OK);
    assert_int_equal(FL_ALLOCATE(&sequences.ids, shape[0], NULL), FL_OK);
    for (size_t s = 0; s < shape[0]; s++) {
        sequences.lengths[s] = shape[1];
        assert_int_equal(FL_ALLOCATE(&sequences.ids[s], shape[1], NULL), FL_OK);
        memcpy(sequences.ids[s], ids + s * shape[1], shape[1] * sizeof(int32_t));
    }
    fl_memory_free(ids);
    return sequences;
}

static void compare_trained(fl_verdict *verdict, const fl_pipeline_case *config) {
    const fl_mechanism *mechanism = config->mechanism;
    for (size_t l = 0; l < mechanism->layers; l++) {
        for (size_t i = 0; mechanism->layer[l] != NULL && i < mechanism->tensor_count; i++) {
            const fl_mechanism_tensor *tensor = &mechanism->tensors[i];
            char name[128];
            snprintf(name, sizeof name, "train.final.layers.%zu.%s", l, tensor->name);
            double *expected = fl_fixture_doubles(config->expected, name, NULL, NULL), worst = 0.0;
            for (size_t e = 0; e < tensor->count; e++) {
                double difference = fabs((double)mechanism->layer[l][tensor->offset + e] - expected[e]);
                if (!(difference <= worst)) worst = difference;
            }
            judge(verdict, config->name, name, worst, LEARNING_RATE / 20.0);
            fl_memory_free(expected);
        }
    }
}

static void train_case(fl_verdict *numbers, fl_verdict *parameters, const fl_pipeline_pack *pack,
                       const fl_pipeline_case *config) {
    const fl_train_config recipe = {.steps = 6,
                                    .warmup_steps = 3,
                                    .learning_rate = LEARNING_RATE,
                                    .batch = 1,
                                    .accumulate = 1,
                                    .clip = 1.0,
                                    .beta1 = 0.9,
                                    .beta2 = 0.999,
                                    .epsilon = 1e-8,
                                    .order = FL_ORDER_SEQUENTIAL};
    fl_sequences sequences = training_sequences(pack);
    fl_training_options options = {.config = &recipe, .sequences = &sequences};
    fl_training_history history;
    fl_error error = {0};
    if (fl_training_run(pack->under_test.network, config->mechanism, &options, &history, &error) != FL_OK) {
        fail_msg("%s: %s", config->name, error.message);
    }
    assert_int_equal(history.steps, 6);
    for (size_t s = 0; s < 6; s++) {
        judge_number(numbers, config, "train.loss", history.loss[s], stored_number(config, "train.loss", s));
        judge_number(numbers, config, "train.grad_norm", history.gradient_norm[s],
                     stored_number(config, "train.grad_norm", s));
        judge_number(numbers, config, "train.lr", history.learning_rate[s],
                     stored_number(config, "train.lr", s));
    }
    compare_trained(parameters, config);
    fl_training_history_release(&history);
    fl_sequences_release(&sequences);
}

static void train_pack(const char *test, const char *checkpoint, bool from_pack) {
    fl_pipeline_pack pack;
    if (!fl_pipeline_pack_open(checkpoint, from_pack, &pack))
        fl_fixture_skip(test, "pipeline and reference packs");
    fl_verdict numbers = {0}, parameters = {0};
    size_t cases = 0;
    for (size_t i = 0; i < pack.count; i++) {
        if (!pack.cases[i].has_training) continue;
        train_case(&numbers, &parameters, &pack, &pack.cases[i]);
        cases++;
    }
    printf(
        "worst: %s training, %zu configurations: losses and norms %.2g (%s), parameters %.2g absolute (%s)\n",
        checkpoint, cases, numbers.worst, numbers.worst_name, parameters.worst, parameters.worst_name);
    fl_pipeline_pack_close(&pack);
    if (numbers.failures + parameters.failures > 0)
        fail_msg("%zu figures differ", numbers.failures + parameters.failures);
}

static void test_training_run_of_the_fixture_matches(void **state) {
    (void)state;
    train_pack(__func__, "llama_gqa", false);
}

static void test_training_runs_of_the_packs_match(void **state) {
    (void)state;
    train_pack(__func__, "llama_gqa", true);
    train_pack(__func__, "qwen3", true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_of_the_fixture_match),
        cmocka_unit_test(test_gradients_of_the_packs_match),
        cmocka_unit_test(test_training_run_of_the_fixture_matches),
        cmocka_unit_test(test_training_runs_of_the_packs_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
