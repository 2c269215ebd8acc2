/* LoRA: adapters that are zero change nothing, gradients agree with difference quotients, training moves them
 * and nothing of the backbone, files and configurations are checked. */
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
#include "harness/engine/backward.h"
#include "harness/engine/session.h"
#include "harness/engine/training.h"
#include "harness/measure/text_evaluation.h"
#include "tests/support/arrays.h"
#include "tests/support/fixture.h"
#include "tests/support/network_fixture.h"

enum { VOCABULARY = 31, TOKENS = 40, WIDTH = FL_TINY_MODEL_DIM };

static const char PLAIN[] = "rule: kda\nwindow: 6\nsinks: 2\n";
static const char ADAPTED[] = "rule: kda\nwindow: 6\nsinks: 2\nlora: {rank: 3, alpha: 5}\n";

typedef struct {
    const char *directory;
    fl_test_network network;
    int32_t ids[TOKENS];
} fl_bench;

static fl_bench set_up(const char *model_type) {
    fl_bench bench = {.directory = fl_temporary_directory()};
    fl_tiny_model_options options = {.vocabulary = VOCABULARY, .model_type = model_type, .scale = 0.3f};
    fl_tiny_model_write(bench.directory, &options);
    bench.network = fl_test_network_open(bench.directory, 2);
    fl_random random;
    fl_random_seed(&random, 4, 0);
    for (size_t t = 0; t < TOKENS; t++) bench.ids[t] = (int32_t)fl_random_below(&random, VOCABULARY);
    return bench;
}

static void tear_down(fl_bench *bench) {
    fl_test_network_close(&bench->network);
    fl_temporary_remove(bench->directory);
}

/* B away from its zeros. */
static void disturb(fl_mechanism *mechanism) {
    fl_random random;
    fl_random_seed(&random, 6, 0);
    for (size_t i = 0; i < mechanism->tensor_count; i++) {
        const fl_mechanism_tensor *tensor = &mechanism->tensors[i];
        if (!fl_mechanism_tensor_is_lora(tensor)) continue;
        for (size_t l = 0; l < mechanism->layers; l++) {
            for (size_t j = 0; mechanism->layer[l] != NULL && j < tensor->count; j++) {
                mechanism->layer[l][tensor->offset + j] += (float)(0.1 * fl_random_normal(&random));
            }
        }
    }
}

static void hidden_of(const fl_bench *bench, const fl_mechanism *mechanism, float *hidden) {
    fl_session *session = NULL;
    fl_error error = {0};
    assert_int_equal(fl_session_create(bench->network.network, mechanism, &session, &error), FL_OK);
    for (size_t done = 0, cut = 7; done < TOKENS; done += cut) {
        if (cut > TOKENS - done) cut = TOKENS - done;
        if (fl_session_forward(session, bench->ids + done, cut, fl_array_none,
                               fl_test_array(hidden + done * WIDTH), NULL, &error) != FL_OK) {
            fail_msg("%s", error.message);
        }
    }
    fl_session_destroy(session);
}

static void test_adapters_at_their_initialisation_change_nothing(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL);
    fl_test_mechanism plain = fl_test_mechanism_create(&bench.network, PLAIN),
                      adapted = fl_test_mechanism_create(&bench.network, ADAPTED);
    static float first[TOKENS * WIDTH], second[TOKENS * WIDTH];
    hidden_of(&bench, plain.mechanism, first);
    hidden_of(&bench, adapted.mechanism, second);
    assert_memory_equal(first, second, sizeof first);
    disturb(adapted.mechanism);
    hidden_of(&bench, adapted.mechanism, second);
    double largest = 0.0;
    for (size_t i = 0; i < TOKENS * WIDTH; i++) largest = fmax(largest, fabs((double)(first[i] - second[i])));
    assert_true(largest > 1e-2);
    fl_test_mechanism_destroy(&plain);
    fl_test_mechanism_destroy(&adapted);
    tear_down(&bench);
}

static void test_tables_and_initial_values_are_peft_s(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL);
    fl_test_mechanism adapted =
        fl_test_mechanism_create(&bench.network, "rule: delta\nwindow: 4\nlora: {targets: [o, k]}\n");
    const fl_mechanism *mechanism = adapted.mechanism;
    assert_int_equal(adapted.variant->lora_rank, 8);
    assert_true(adapted.variant->lora_alpha == 16.0);
    assert_null(fl_mechanism_find_tensor(mechanism, "lora.q.a"));
    assert_null(fl_mechanism_find_tensor(mechanism, "lora.v.b"));
    const fl_mechanism_tensor *a = fl_mechanism_find_tensor(mechanism, "lora.k.a"),
                              *b = fl_mechanism_find_tensor(mechanism, "lora.k.b"),
                              *out = fl_mechanism_find_tensor(mechanism, "lora.o.b");
    assert_true(a->shape[0] == WIDTH && a->shape[1] == 8);
    assert_true(b->shape[0] == 8 && b->shape[1] == 16); /* two KV heads of width 8 */
    assert_true(out->shape[0] == 8 && out->shape[1] == WIDTH);
    double bound = 1.0 / sqrt((double)WIDTH), largest = 0.0;
    for (size_t i = 0; i < a->count; i++) {
        double value = fabs((double)fl_mechanism_find(mechanism, 1, "lora.k.a")[i]);
        largest = fmax(largest, value);
    }
    assert_true(largest <= bound && largest > 0.9 * bound);
    for (size_t i = 0; i < b->count; i++) assert_true(fl_mechanism_find(mechanism, 1, "lora.k.b")[i] == 0.0f);
    fl_test_mechanism_destroy(&adapted);
    tear_down(&bench);
}

static double loss_of(const fl_bench *bench, fl_backward *backward, bool divergence, fl_gradient *gradient) {
    double loss = 0.0;
    fl_error error = {0};
    if ((divergence ? fl_backward_divergence : fl_backward_next_token)(backward, bench->ids, TOKENS, 1.0,
                                                                       gradient, &loss, &error) != FL_OK) {
        fail_msg("%s", error.message);
    }
    return loss;
}

/* The loss at a distance along one tensor's gradient in one layer. */
static double moved(const fl_bench *bench, fl_backward *backward, bool divergence, float *values,
                    const float *direction, size_t count, double step) {
    float kept[512];
    assert_true(count <= 512);
    memcpy(kept, values, count * sizeof(float));
    for (size_t i = 0; i < count; i++) values[i] += (float)(step * (double)direction[i]);
    double loss = loss_of(bench, backward, divergence, NULL);
    memcpy(values, kept, count * sizeof(float));
    return loss;
}

/* Every tensor of every adapted layer by itself. */
static double worst_slope(const fl_bench *bench, const char *yaml, bool divergence) {
    fl_test_mechanism under_test = fl_test_mechanism_create(&bench->network, yaml);
    fl_mechanism *mechanism = under_test.mechanism;
    fl_backward *backward = NULL;
    fl_gradient *gradient = NULL;
    double worst = 0.0;
    disturb(mechanism);
    assert_int_equal(fl_backward_create(bench->network.network, mechanism, &backward, NULL), FL_OK);
    assert_int_equal(fl_gradient_create(mechanism, bench->network.network->compute, &gradient, NULL), FL_OK);
    loss_of(bench, backward, divergence, gradient);
    assert_int_equal(fl_gradient_collect(gradient, NULL), FL_OK);
    for (size_t l = 0; l < mechanism->layers; l++) {
        for (size_t i = 0; mechanism->layer[l] != NULL && i < mechanism->tensor_count; i++) {
            const fl_mechanism_tensor *tensor = &mechanism->tensors[i];
            if (!fl_mechanism_tensor_is_lora(tensor)) continue;
            const float *g = gradient->layer[l] + tensor->offset;
            float *values = mechanism->layer[l] + tensor->offset;
            double square = 0.0;
            for (size_t j = 0; j < tensor->count; j++) square += (double)g[j] * (double)g[j];
            double length = sqrt(square), step = 5e-3 / length;
            assert_true(length > 1e-5);
            double slope = (moved(bench, backward, divergence, values, g, tensor->count, step) -
                            moved(bench, backward, divergence, values, g, tensor->count, -step)) /
                           1e-2;
            double error = fabs(slope - length) / (length + 1e-3);
            if (error > worst) worst = error;
            if (error > 2e-2) {
                fail_msg("%s: layer %zu %s: slope %.6g, difference quotient %.6g", yaml, l, tensor->name,
                         length, slope);
            }
        }
    }
    fl_backward_destroy(backward);
    fl_gradient_destroy(gradient);
    fl_test_mechanism_destroy(&under_test);
    return worst;
}

static void test_gradients_agree_with_difference_quotients(void **state) {
    (void)state;
    static const char *const yamls[] = {
        ADAPTED,
        "rule: gla\nwindow: 5\nsinks: 1\nmerge: half\nshort_conv: {kernel: 4}\nlora: {rank: 2}\n"
        "softmax_layers: [1]\n",
        "rule: none\nwindow: 5\nlora: {rank: 2, targets: [q, o]}\nsoftmax_layers: [0]\n"};
    fl_bench bench = set_up(NULL);
    double worst = 0.0;
    for (size_t i = 0; i < sizeof yamls / sizeof yamls[0]; i++) {
        for (int divergence = 0; divergence < 2; divergence++) {
            worst = fmax(worst, worst_slope(&bench, yamls[i], divergence != 0));
        }
    }
    printf("worst: LoRA gradients against difference quotients: %.2g\n", worst);
    tear_down(&bench);
}

static fl_sequences sequence_of(fl_bench *bench, size_t *length, int32_t **ids) {
    *length = TOKENS;
    *ids = bench->ids;
    return (fl_sequences){.count = 1, .lengths = length, .ids = ids};
}

static fl_train_config recipe(int objective) {
    return (fl_train_config){.objective = objective,
                             .steps = 20,
                             .warmup_steps = 2,
                             .adapter_learning_rate = 1e-2,
                             .batch = 1,
                             .accumulate = 1,
                             .clip = 1.0,
                             .beta1 = 0.9,
                             .beta2 = 0.999,
                             .epsilon = 1e-8};
}

static void test_adapters_have_their_own_learning_rate_and_learn(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL);
    size_t length = 0;
    int32_t *ids = NULL;
    fl_sequences sequences = sequence_of(&bench, &length, &ids);
    fl_hash before, after;
    assert_int_equal(fl_model_hash(bench.network.model, &before, NULL), FL_OK);
    fl_train_config config = recipe(FL_OBJECTIVE_NEXT_TOKEN);
    fl_test_mechanism trained = fl_test_mechanism_create(&bench.network, ADAPTED),
                      start = fl_test_mechanism_create(&bench.network, ADAPTED);
    fl_training_options options = {.config = &config, .sequences = &sequences};
    fl_training_history history;
    fl_error error = {0};
    if (fl_training_run(bench.network.network, trained.mechanism, &options, &history, &error) != FL_OK) {
        fail_msg("%s", error.message);
    }
    assert_true(history.loss[19] < history.loss[0] - 1e-2);
    for (size_t i = 0; i < trained.mechanism->tensor_count; i++) { /* learning_rate 0 for all but LoRA */
        const fl_mechanism_tensor *tensor = &trained.mechanism->tensors[i];
        bool same = memcmp(trained.mechanism->layer[0] + tensor->offset,
                           start.mechanism->layer[0] + tensor->offset, tensor->count * sizeof(float)) == 0;
        assert_true(same != fl_mechanism_tensor_is_lora(tensor));
    }
    assert_int_equal(fl_model_hash(bench.network.model, &after, NULL), FL_OK);
    assert_string_equal(before.text, after.text);
    fl_training_history_release(&history);
    fl_test_mechanism_destroy(&trained);
    fl_test_mechanism_destroy(&start);
    tear_down(&bench);
}

static void test_layer_mse_refuses_adapters_by_name(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL);
    size_t length = 0;
    int32_t *ids = NULL;
    fl_sequences sequences = sequence_of(&bench, &length, &ids);
    fl_train_config config = recipe(FL_OBJECTIVE_LAYER_MSE);
    fl_test_mechanism adapted = fl_test_mechanism_create(&bench.network, ADAPTED);
    fl_training_options options = {.config = &config, .sequences = &sequences};
    fl_training_history history;
    fl_error error = {0};
    assert_int_equal(fl_training_run(bench.network.network, adapted.mechanism, &options, &history, &error),
                     FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "variant.lora"));
    assert_null(history.loss);
    fl_test_mechanism_destroy(&adapted);
    tear_down(&bench);
}

/* An adapter on the output projection alone leaves the mix as it is and moves the output; one on q moves
 * both. */
static void test_teacher_forced_errors_see_the_adapted_projections(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL);
    size_t length = 0;
    int32_t *ids = NULL;
    fl_sequences sequences = sequence_of(&bench, &length, &ids);
    fl_test_mechanism plain = fl_test_mechanism_create(&bench.network, "rule: kda\nwindow: 64\n"),
                      output = fl_test_mechanism_create(&bench.network,
                                                        "rule: kda\nwindow: 64\nlora: {targets: [o]}\n"),
                      query = fl_test_mechanism_create(&bench.network,
                                                       "rule: kda\nwindow: 64\nlora: {targets: [q]}\n");
    disturb(output.mechanism);
    disturb(query.mechanism);
    const fl_mechanism *list[] = {plain.mechanism, output.mechanism, query.mechanism};
    const fl_text_evaluation_options options = {.teacher_forced = true};
    fl_text_result results[3];
    fl_error error = {0};
    if (fl_text_evaluation_run(bench.network.network, &sequences, list, 3, &options, NULL, results, NULL,
                               &error) != FL_OK) {
        fail_msg("%s", error.message);
    }
    for (size_t l = 0; l < 2; l++) { /* a window over everything: the frozen attention itself */
        assert_true(results[0].nmse[l] < 1e-9);
        assert_true(results[1].nmse[l] > 1e-4);
        assert_true(results[2].nmse[l] > 1e-6);
    }
    for (size_t i = 0; i < 3; i++) fl_text_result_release(&results[i]);
    fl_test_mechanism_destroy(&plain);
    fl_test_mechanism_destroy(&output);
    fl_test_mechanism_destroy(&query);
    tear_down(&bench);
}

static void test_files_hold_adapters_and_a_file_without_any_starts_them_afresh(void **state) {
    (void)state;
    fl_bench bench = set_up(NULL);
    char path[1024];
    snprintf(path, sizeof path, "%s/m.safetensors", bench.directory);
    fl_test_mechanism plain = fl_test_mechanism_create(&bench.network, PLAIN),
                      adapted = fl_test_mechanism_create(&bench.network, ADAPTED),
                      fresh = fl_test_mechanism_create(&bench.network, ADAPTED);
    fl_error error = {0};
    disturb(adapted.mechanism);
    assert_int_equal(fl_mechanism_save(adapted.mechanism, path, &error), FL_OK);
    assert_int_equal(fl_mechanism_load(fresh.mechanism, path, &error), FL_OK);
    assert_string_equal(fl_mechanism_hash(fresh.mechanism).text, fl_mechanism_hash(adapted.mechanism).text);
    assert_int_equal(fl_mechanism_load(plain.mechanism, path, &error), FL_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "layers.0.lora.q.a"));
    assert_int_equal(fl_mechanism_save(plain.mechanism, path, &error), FL_OK);
    assert_int_equal(fl_mechanism_load(fresh.mechanism, path, &error), FL_OK);
    assert_memory_equal(fl_mechanism_find(fresh.mechanism, 0, "lora.v.b"),
                        fl_mechanism_find(adapted.mechanism, 0, "lora.v.b"), 3 * 16 * sizeof(float));
    fl_test_mechanism_destroy(&plain);
    fl_test_mechanism_destroy(&adapted);
    fl_test_mechanism_destroy(&fresh);
    tear_down(&bench);
}

static void test_nonsense_is_refused_at_its_line(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"rule: kda\nlora: {rank: 0}\n", "t.yaml:2:"},
        {"rule: kda\nlora: {alpha: -1}\n", "t.yaml:2:"},
        {"rule: kda\nlora: {targets: []}\n", "targets"},
        {"rule: kda\nlora: {targets: [q, q]}\n", "listed twice"},
        {"rule: kda\nlora: {targets: [g]}\n", "t.yaml:2:"},
        {"rule: kda\nlora: {target: [q]}\n", "targets"},
        {"rule: kda\nlora: {targets: q}\n", "list"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fl_document *document = NULL;
        fl_variant *variant = NULL;
        fl_error error = {0};
        assert_int_equal(fl_document_parse_text(bad[i][0], strlen(bad[i][0]), "t.yaml", &document, &error),
                         FL_OK);
        assert_int_equal(fl_variant_bind(fl_document_root(document), NULL, &variant, &error),
                         FL_ERROR_ARGUMENT);
        if (strstr(error.message, bad[i][1]) == NULL) {
            fail_msg("%s: message \"%s\" lacks \"%s\"", bad[i][0], error.message, bad[i][1]);
        }
        assert_null(variant);
        fl_document_destroy(document);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adapters_at_their_initialisation_change_nothing),
        cmocka_unit_test(test_tables_and_initial_values_are_peft_s),
        cmocka_unit_test(test_gradients_agree_with_difference_quotients),
        cmocka_unit_test(test_adapters_have_their_own_learning_rate_and_learn),
        cmocka_unit_test(test_layer_mse_refuses_adapters_by_name),
        cmocka_unit_test(test_teacher_forced_errors_see_the_adapted_projections),
        cmocka_unit_test(test_files_hold_adapters_and_a_file_without_any_starts_them_afresh),
        cmocka_unit_test(test_nonsense_is_refused_at_its_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
