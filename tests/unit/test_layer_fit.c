/* Layer fit: several mechanisms fitted against one frozen pass come out as each alone would. */
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
#include "harness/engine/layer_fit.h"
#include "tests/support/fixture.h"
#include "tests/support/network_fixture.h"

enum { VOCABULARY = 31, SEQUENCES = 3, MEMBERS = 3, STEPS = 7 };

static const char *const variants[MEMBERS] = {
    "rule: kda\nwindow: 6\nsinks: 2\nshort_conv: {kernel: 4, init: torch}\n",
    "rule: gla\nwindow: 6\nsinks: 2\nmerge: half\nsoftmax_layers: [1]\n",
    "rule: hedgehog\nwindow: 4\n",
};

typedef struct {
    const char *directory;
    fl_test_network network;
    fl_sequences sequences;
} fl_bench;

static fl_bench set_up(void) {
    fl_bench bench = {.directory = fl_temporary_directory()};
    fl_tiny_model_options options = {.vocabulary = VOCABULARY, .scale = 0.3f};
    fl_tiny_model_write(bench.directory, &options);
    bench.network = fl_test_network_open(bench.directory, 2);
    fl_random random;
    fl_random_seed(&random, 1, 0);
    bench.sequences.count = SEQUENCES;
    assert_int_equal(FL_ALLOCATE(&bench.sequences.lengths, SEQUENCES, NULL), FL_OK);
    assert_int_equal(FL_ALLOCATE(&bench.sequences.ids, SEQUENCES, NULL), FL_OK);
    for (size_t s = 0; s < SEQUENCES; s++) {
        bench.sequences.lengths[s] = 30 + 10 * s;
        assert_int_equal(FL_ALLOCATE(&bench.sequences.ids[s], bench.sequences.lengths[s], NULL), FL_OK);
        for (size_t t = 0; t < bench.sequences.lengths[s]; t++)
            bench.sequences.ids[s][t] = (int32_t)fl_random_below(&random, VOCABULARY);
    }
    return bench;
}

static void tear_down(fl_bench *bench) {
    fl_sequences_release(&bench->sequences);
    fl_test_network_close(&bench->network);
    fl_temporary_remove(bench->directory);
}

static fl_train_config recipe(size_t member) {
    return (fl_train_config){.objective = FL_OBJECTIVE_LAYER_MSE,
                             .steps = STEPS - member,
                             .warmup_steps = 2,
                             .learning_rate = 1e-2 * (double)(member + 1),
                             .batch = 2,
                             .accumulate = 1,
                             .clip = 1.0,
                             .beta1 = 0.9,
                             .beta2 = 0.999,
                             .epsilon = 1e-8,
                             .seed = 3,
                             .activation_budget = 1};
}

/* The mechanisms of one fit and what becomes of them. */
typedef struct {
    fl_train_config configs[MEMBERS];
    fl_test_mechanism mechanisms[MEMBERS];
    fl_training_history histories[MEMBERS];
    fl_training_job jobs[MEMBERS];
    char paths[MEMBERS][1024];
} fl_party;

static void gather(fl_party *party, const fl_bench *bench, bool checkpoints) {
    memset(party, 0, sizeof *party);
    for (size_t i = 0; i < MEMBERS; i++) {
        party->configs[i] = recipe(i);
        party->mechanisms[i] = fl_test_mechanism_create(&bench->network, variants[i]);
        snprintf(party->paths[i], sizeof party->paths[i], "%s/%zu.safetensors", bench->directory, i);
        party->jobs[i] = (fl_training_job){.config = &party->configs[i],
                                           .mechanism = party->mechanisms[i].mechanism,
                                           .checkpoint_path = checkpoints ? party->paths[i] : NULL,
                                           .identity = variants[i],
                                           .history = &party->histories[i]};
    }
}

static void dismiss(fl_party *party) {
    for (size_t i = 0; i < MEMBERS; i++) {
        fl_training_history_release(&party->histories[i]);
        fl_test_mechanism_destroy(&party->mechanisms[i]);
    }
}

static void fit(const fl_bench *bench, const fl_training_job *jobs, size_t count) {
    fl_error error = {0};
    if (fl_layer_fit_run(bench->network.network, jobs, count, &bench->sequences, NULL, &error) != FL_OK) {
        fail_msg("%s", error.message);
    }
}

static void fit_each_alone(fl_party *party, const fl_bench *bench) {
    for (size_t i = 0; i < MEMBERS; i++) {
        const fl_training_options options = {.config = &party->configs[i], .sequences = &bench->sequences};
        fl_error error = {0};
        if (fl_training_run(bench->network.network, party->mechanisms[i].mechanism, &options,
                            &party->histories[i], &error) != FL_OK) {
            fail_msg("%s", error.message);
        }
    }
}

static void assert_same(const fl_party *a, const fl_party *b) {
    for (size_t i = 0; i < MEMBERS; i++) {
        const fl_training_history *x = &a->histories[i], *y = &b->histories[i];
        assert_string_equal(fl_mechanism_hash(a->mechanisms[i].mechanism).text,
                            fl_mechanism_hash(b->mechanisms[i].mechanism).text);
        assert_int_equal(x->steps, STEPS - i);
        assert_int_equal(y->steps, STEPS - i);
        assert_memory_equal(x->loss, y->loss, x->steps * sizeof(double));
        assert_memory_equal(x->gradient_norm, y->gradient_norm, x->steps * sizeof(double));
        assert_int_equal(x->tokens_seen, y->tokens_seen);
    }
}

static void test_mechanisms_fitted_together_are_those_fitted_alone(void **state) {
    (void)state;
    fl_bench bench = set_up();
    fl_party together, alone;
    gather(&together, &bench, false);
    gather(&alone, &bench, false);
    fit(&bench, together.jobs, MEMBERS);
    fit_each_alone(&alone, &bench);
    assert_same(&together, &alone);
    for (size_t i = 0; i < MEMBERS; i++) {
        assert_true(together.histories[i].loss[STEPS - 1 - i] < together.histories[i].loss[0]);
        assert_true(together.histories[i].seconds > 0.0);
    }
    dismiss(&together);
    dismiss(&alone);
    tear_down(&bench);
}

static void test_keeping_activations_changes_nothing_but_memory(void **state) {
    (void)state;
    fl_bench bench = set_up();
    fl_party kept, recomputed;
    gather(&kept, &bench, false);
    gather(&recomputed, &bench, false);
    for (size_t i = 0; i < MEMBERS; i++) recomputed.configs[i].activation_budget = 0;
    fit(&bench, kept.jobs, MEMBERS);
    fit(&bench, recomputed.jobs, MEMBERS);
    assert_same(&kept, &recomputed);
    size_t tokens = 30 + 40 + 50, bytes = 2 * 2 * tokens * FL_TINY_MODEL_DIM * sizeof(float);
    assert_int_equal(kept.histories[0].bytes, recomputed.histories[0].bytes + bytes);
    dismiss(&kept);
    dismiss(&recomputed);
    tear_down(&bench);
}

static void test_activations_in_a_scratch_file_change_nothing_and_take_no_memory(void **state) {
    (void)state;
    fl_bench bench = set_up();
    fl_party filed, recomputed;
    gather(&filed, &bench, false);
    gather(&recomputed, &bench, false);
    for (size_t i = 0; i < MEMBERS; i++) {
        recomputed.configs[i].activation_budget = filed.configs[i].activation_budget = 0;
        filed.configs[i].scratch_budget = 1;
        filed.configs[i].scratch_folder = (char *)(uintptr_t)bench.directory;
    }
    fit(&bench, filed.jobs, MEMBERS);
    fit(&bench, recomputed.jobs, MEMBERS);
    assert_same(&filed, &recomputed);
    assert_int_equal(filed.histories[0].bytes, recomputed.histories[0].bytes);
    dismiss(&filed);
    dismiss(&recomputed);
    tear_down(&bench);
}

static void test_a_scratch_folder_that_is_not_there_is_named(void **state) {
    (void)state;
    fl_bench bench = set_up();
    fl_party party;
    gather(&party, &bench, false);
    party.configs[1].scratch_budget = 1;
    party.configs[1].scratch_folder = (char *)(uintptr_t) "no/such/folder";
    fl_error error = {0};
    assert_int_equal(
        fl_layer_fit_run(bench.network.network, party.jobs, MEMBERS, &bench.sequences, NULL, &error),
        FL_ERROR_IO);
    assert_non_null(strstr(error.message, "no/such/folder"));
    dismiss(&party);
    tear_down(&bench);
}

typedef struct {
    size_t asked, cancel_after;
} fl_watch;

static bool cancel(void *context) {
    fl_watch *watch = context;
    return watch->asked++ >= watch->cancel_after;
}

static void test_an_interrupted_fit_resumes_bit_for_bit_also_from_different_steps(void **state) {
    (void)state;
    fl_bench bench = set_up();
    fl_party straight, part, rest;
    gather(&straight, &bench, false);
    fit(&bench, straight.jobs, MEMBERS);
    gather(&part, &bench, true);
    fl_watch watch = {.cancel_after = 2};
    const fl_progress progress = {.cancelled = cancel, .context = &watch};
    fl_error error = {0};
    assert_int_equal(
        fl_layer_fit_run(bench.network.network, part.jobs, MEMBERS, &bench.sequences, &progress, &error),
        FL_ERROR_CANCELLED);
    assert_int_equal(part.histories[2].steps, 2);
    dismiss(&part);
    gather(&part, &bench, true); /* two of the three go on a little */
    watch = (fl_watch){.cancel_after = 3};
    assert_int_equal(
        fl_layer_fit_run(bench.network.network, part.jobs, 2, &bench.sequences, &progress, &error),
        FL_ERROR_CANCELLED);
    assert_int_equal(part.histories[1].steps, 5);
    dismiss(&part);
    gather(&rest, &bench, true);
    fit(&bench, rest.jobs, MEMBERS);
    assert_same(&rest, &straight);
    dismiss(&rest);
    dismiss(&straight);
    tear_down(&bench);
}

static void test_one_that_diverges_leaves_the_others_alone(void **state) {
    (void)state;
    fl_bench bench = set_up();
    fl_party together, alone;
    gather(&together, &bench, false);
    gather(&alone, &bench, false);
    fl_mechanism_find(together.mechanisms[1].mechanism, 0, "gate.bias")[0] = NAN;
    fit(&bench, together.jobs, MEMBERS);
    fit_each_alone(&alone, &bench);
    assert_true(together.histories[1].diverged && together.histories[1].steps == 1);
    for (size_t i = 0; i < MEMBERS; i += 2) {
        assert_string_equal(fl_mechanism_hash(together.mechanisms[i].mechanism).text,
                            fl_mechanism_hash(alone.mechanisms[i].mechanism).text);
    }
    dismiss(&together);
    dismiss(&alone);
    tear_down(&bench);
}

static void test_configurations_that_draw_differently_are_refused(void **state) {
    (void)state;
    fl_bench bench = set_up();
    fl_party party;
    for (size_t fault = 0; fault < 3; fault++) {
        gather(&party, &bench, false);
        if (fault == 0) party.configs[1].seed = 4;
        if (fault == 1) party.configs[1].batch = 3;
        if (fault == 2) party.configs[1].objective = FL_OBJECTIVE_KL;
        fl_error error = {0};
        assert_int_equal(
            fl_layer_fit_run(bench.network.network, party.jobs, MEMBERS, &bench.sequences, NULL, &error),
            FL_ERROR_ARGUMENT);
        assert_non_null(strstr(error.message, "job 1"));
        assert_null(party.histories[0].loss);
        dismiss(&party);
    }
    tear_down(&bench);
}

static void test_every_failing_allocation_is_reported_and_leaks_nothing(void **state) {
    (void)state;
    fl_bench bench = set_up();
    size_t failures = 0;
    for (size_t n = 1; n < 5000; n += 7) {
        fl_party party;
        gather(&party, &bench, false);
        for (size_t i = 0; i < MEMBERS; i++) party.configs[i].steps = 2;
        fl_error error = {0};
        fl_memory_fail_at(n);
        fl_status status =
            fl_layer_fit_run(bench.network.network, party.jobs, MEMBERS, &bench.sequences, NULL, &error);
        fl_memory_fail_at(0);
        dismiss(&party);
        if (status == FL_OK) break;
        assert_int_equal(status, FL_ERROR_MEMORY);
        failures++;
    }
    assert_true(failures > 10 && failures < 700);
    tear_down(&bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mechanisms_fitted_together_are_those_fitted_alone),
        cmocka_unit_test(test_keeping_activations_changes_nothing_but_memory),
        cmocka_unit_test(test_activations_in_a_scratch_file_change_nothing_and_take_no_memory),
        cmocka_unit_test(test_a_scratch_folder_that_is_not_there_is_named),
        cmocka_unit_test(test_an_interrupted_fit_resumes_bit_for_bit_also_from_different_steps),
        cmocka_unit_test(test_one_that_diverges_leaves_the_others_alone),
        cmocka_unit_test(test_configurations_that_draw_differently_are_refused),
        cmocka_unit_test(test_every_failing_allocation_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
