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
#include "harness/compute/compute.h"
#include "tests/support/arrays.h"
#include "tests/support/compare.h"
#include "tests/support/every_table.h"
#include "tests/support/fixture.h"
#include "tests/support/recurrence_reference.h"

static const fl_transition transitions[] = {
    {FL_DECAY_NONE, FL_ERASE_NONE},          {FL_DECAY_SCALAR, FL_ERASE_NONE},
    {FL_DECAY_CHANNEL, FL_ERASE_NONE},       {FL_DECAY_NONE, FL_ERASE_KEY},
    {FL_DECAY_SCALAR, FL_ERASE_KEY},         {FL_DECAY_CHANNEL, FL_ERASE_KEY},
    {FL_DECAY_NONE, FL_ERASE_DIRECTIONS},    {FL_DECAY_SCALAR, FL_ERASE_DIRECTIONS},
    {FL_DECAY_CHANNEL, FL_ERASE_DIRECTIONS},
};
enum { TRANSITIONS = sizeof transitions / sizeof *transitions };

static fl_compute *backend(size_t threads) {
    fl_error error = {0};
    fl_compute *compute = NULL;
    if (fl_compute_create_cpu(&(fl_compute_options){threads, SIZE_MAX}, &compute, &error) != FL_OK) {
        fail_msg("%s", error.message);
    }
    return compute;
}

static void run(fl_compute *compute, const fl_recurrence_call *call) {
    fl_error error = {0};
    if (compute->ops->recurrence(compute, call, &error) != FL_OK) fail_msg("%s", error.message);
}

static void check_case(fl_compute *compute, fl_recurrence_case *c, double bound, const char *what) {
    size_t state = c->call.heads * c->call.value_dim * c->call.key_dim;
    fl_case_rewind(c);
    run(compute, &c->call);
    fl_assert_close(fl_test_floats(c->call.output), c->output,
                    c->call.heads * c->call.steps * c->call.value_dim, bound, what);
    fl_assert_close(fl_test_floats(c->call.state), c->state, state, bound, what);
}

static void test_both_forms_equal_the_definition_for_every_transition(void **unused) {
    (void)unused;
    static const size_t steps[] = {0, 1, 2, 15, 16, 17, 63, 64, 65, 130, 500};
    static const size_t dims[] = {8, 32, 60, 64, 80, 100, 128};
    fl_compute *compute = backend(2);
    fl_random random;
    fl_random_seed(&random, 11, 0);
    double worst[2] = {0.0, 0.0};
    for (size_t k = 0; k < TRANSITIONS; k++) {
        for (size_t i = 0; i < 11; i++) {
            size_t dim = dims[(i + k) % 7], value_dim = i % 3 == 0 ? dims[(i + k + 3) % 7] : dim + i % 2;
            fl_recurrence_case c;
            fl_case_create(&c, &random, transitions[k], FL_CASE_BENIGN, 2, steps[i], dim, value_dim);
            fl_case_expect(&c);
            for (size_t mode = 0; mode < 2; mode++) {
                char what[96];
                c.call.mode = mode == 0 ? FL_RECURRENCE_STEP : FL_RECURRENCE_CHUNK;
                snprintf(what, sizeof what, "decay %d erase %d steps %zu dims %zux%zu mode %zu",
                         transitions[k].decay, transitions[k].erase, steps[i], value_dim, dim, mode);
                fl_worst_reset();
                check_case(compute, &c, 1e-5, what);
                worst[mode] = fmax(worst[mode], fl_worst_reset());
            }
            fl_case_destroy(&c);
        }
    }
    printf("worst: step form, benign %.2e\nworst: chunk form, benign %.2e\n", worst[0], worst[1]);
    fl_compute_destroy(compute);
}

/* Relative difference of output and state from the definition, whichever is larger. */
static double distance(fl_compute *compute, fl_recurrence_case *c, fl_recurrence_mode mode) {
    c->call.mode = mode;
    fl_case_rewind(c);
    run(compute, &c->call);
    fl_difference output = fl_compare_floats(fl_test_floats(c->call.output), c->output,
                                             c->call.heads * c->call.steps * c->call.value_dim);
    fl_difference state = fl_compare_floats(fl_test_floats(c->call.state), c->state,
                                            c->call.heads * c->call.value_dim * c->call.key_dim);
    assert_int_equal(output.not_finite + state.not_finite, 0);
    return fmax(output.relative, state.relative);
}

static void test_chunks_are_as_accurate_as_steps_for_hostile_inputs(void **unused) {
    (void)unused;
    fl_compute *compute = backend(2);
    fl_random random;
    fl_random_seed(&random, 12, 0);
    double worst = 0.0, worst_ratio = 0.0;
    for (size_t k = 0; k < TRANSITIONS; k++) {
        for (int kind = FL_CASE_SHARP; kind < FL_CASE_COUNT; kind++) {
            fl_recurrence_case c;
            fl_case_create(&c, &random, transitions[k], (fl_case_kind)kind, 2, 200, 32, 24);
            fl_case_expect(&c);
            double step = distance(compute, &c, FL_RECURRENCE_STEP),
                   chunk = distance(compute, &c, FL_RECURRENCE_CHUNK);
            if (!(chunk <= 1e-5 || chunk <= 10.0 * step)) {
                fail_msg("decay %d erase %d case %d: chunk %.3g, step %.3g", transitions[k].decay,
                         transitions[k].erase, kind, chunk, step);
            }
            worst = fmax(worst, chunk);
            worst_ratio = fmax(worst_ratio, chunk / step);
            fl_case_destroy(&c);
        }
    }
    printf("worst: chunk form, hostile %.2e (at most %.1f times the step form)\n", worst, worst_ratio);
    fl_compute_destroy(compute);
}

/* The tokens [from, to) of a call, as an own call with contiguous arrays. */
static float *slice(const float *array, size_t heads, size_t steps, size_t width, size_t from, size_t to) {
    if (array == NULL) return NULL;
    float *part = NULL;
    assert_int_equal(FL_ALLOCATE(&part, heads * (to - from) * width, NULL), FL_OK);
    for (size_t h = 0; h < heads; h++) {
        memcpy(part + h * (to - from) * width, array + (h * steps + from) * width,
               (to - from) * width * sizeof *part);
    }
    return part;
}

static void run_part(fl_compute *compute, const fl_recurrence_case *c, size_t from, size_t to,
                     float *output) {
    const fl_recurrence_call *call = &c->call;
    const fl_recurrence_inputs *in = &call->inputs;
    size_t h = call->heads, t = call->steps, dk = call->key_dim, dv = call->value_dim, n = to - from;
    float *parts[] = {slice(fl_test_floats(in->query), h, t, dk, from, to),
                      slice(fl_test_floats(in->key), h, t, dk, from, to),
                      slice(fl_test_floats(in->value), h, t, dv, from, to),
                      slice(fl_test_floats(in->log_decay), h, t,
                            call->transition.decay == FL_DECAY_CHANNEL ? dk : 1, from, to),
                      slice(fl_test_floats(in->erase_strength), h, t, 1, from, to),
                      slice(fl_test_floats(in->erase_read), h, t, dk, from, to),
                      slice(fl_test_floats(in->erase_write), h, t, dk, from, to),
                      slice(fl_test_floats(in->write), h, t, 1, from, to)};
    fl_recurrence_call part = *call;
    part.steps = n;
    part.inputs = (fl_recurrence_inputs){
        fl_test_array(parts[0]), fl_test_array(parts[1]), fl_test_array(parts[2]), fl_test_array(parts[3]),
        fl_test_array(parts[4]), fl_test_array(parts[5]), fl_test_array(parts[6]), fl_test_array(parts[7])};
    float *own = NULL;
    assert_int_equal(FL_ALLOCATE(&own, h * n * dv, NULL), FL_OK);
    part.output = fl_test_array(own);
    run(compute, &part);
    for (size_t i = 0; i < h; i++)
        memcpy(output + (i * t + from) * dv, own + i * n * dv, n * dv * sizeof *own);
    fl_memory_free(own);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) fl_memory_free(parts[i]);
}

static void test_a_sequence_cut_anywhere_gives_the_same_result(void **unused) {
    (void)unused;
    fl_compute *compute = backend(2);
    fl_random random;
    fl_random_seed(&random, 13, 0);
    for (size_t k = 0; k < TRANSITIONS; k++) {
        fl_recurrence_case c;
        fl_case_create(&c, &random, transitions[k], FL_CASE_BENIGN, 2, 150, 32, 33);
        fl_case_expect(&c);
        size_t count = 2 * 150 * 33,
               cuts[5] = {0, fl_random_below(&random, 60), 60 + fl_random_below(&random, 40),
                          100 + fl_random_below(&random, 50), 150};
        float *output = NULL;
        assert_int_equal(FL_ALLOCATE(&output, count, NULL), FL_OK);
        for (int mode = FL_RECURRENCE_AUTO; mode <= FL_RECURRENCE_CHUNK; mode++) {
            c.call.mode = (fl_recurrence_mode)mode;
            fl_case_rewind(&c);
            for (size_t i = 0; i < 4; i++) run_part(compute, &c, cuts[i], cuts[i + 1], output);
            fl_assert_close(output, c.output, count, 1e-5, "cut sequence");
            fl_assert_close(fl_test_floats(c.call.state), c.state, 2 * 32 * 33, 1e-5,
                            "state after a cut sequence");
        }
        fl_memory_free(output);
        fl_case_destroy(&c);
    }
    fl_compute_destroy(compute);
}

static void test_a_null_write_leaves_the_state_bit_for_bit(void **unused) {
    (void)unused;
    fl_compute *compute = backend(1);
    fl_random random;
    fl_random_seed(&random, 14, 0);
    for (size_t k = 0; k < TRANSITIONS; k++) {
        fl_recurrence_case c;
        fl_case_create(&c, &random, transitions[k], FL_CASE_NULL_RUNS, 2, 200, 32, 20);
        size_t size = 2 * 20 * 32;
        c.entry_state[5] = -0.0f;
        c.entry_state[6] = 1e-40f;
        c.call.mode = FL_RECURRENCE_STEP;
        fl_case_rewind(&c);
        float *output = NULL;
        assert_int_equal(FL_ALLOCATE(&output, 2 * 200 * 20, NULL), FL_OK);
        run_part(compute, &c, 10, 60, output);
        assert_memory_equal(fl_test_floats(c.call.state), c.entry_state, size * sizeof(float));
        c.call.mode = FL_RECURRENCE_CHUNK;
        run_part(compute, &c, 10, 60, output);
        fl_difference d = fl_compare_float_floats(fl_test_floats(c.call.state), c.entry_state, size);
        assert_true(d.relative < 1e-6);
        fl_memory_free(output);
        fl_case_destroy(&c);
    }
    fl_compute_destroy(compute);
}

static void test_state_norms_are_the_norms_of_the_states(void **unused) {
    (void)unused;
    fl_compute *compute = backend(2);
    fl_random random;
    fl_random_seed(&random, 15, 0);
    fl_recurrence_case c;
    fl_case_create(&c, &random, transitions[5], FL_CASE_BENIGN, 3, 70, 32, 24);
    fl_case_expect(&c);
    float norm[3 * 70];
    c.call.state_norm = fl_test_array(norm);
    c.call.mode = FL_RECURRENCE_CHUNK;
    check_case(compute, &c, 1e-5, "with norms");
    fl_assert_close(norm, c.norm, 3 * 70, 1e-6, "state norms");
    fl_case_destroy(&c);
    fl_compute_destroy(compute);
}

static void test_only_the_state_may_be_wanted(void **unused) {
    (void)unused;
    fl_compute *compute = backend(2);
    fl_random random;
    fl_random_seed(&random, 16, 0);
    for (size_t k = 0; k < TRANSITIONS; k++) {
        fl_recurrence_case c;
        fl_case_create(&c, &random, transitions[k], FL_CASE_BENIGN, 2, 100, 40, 24);
        fl_case_expect(&c);
        fl_recurrence_call call = c.call;
        call.output = fl_array_none;
        call.inputs.query = fl_array_none;
        for (int mode = FL_RECURRENCE_STEP; mode <= FL_RECURRENCE_CHUNK; mode++) {
            call.mode = (fl_recurrence_mode)mode;
            fl_case_rewind(&c);
            run(compute, &call);
            fl_assert_close(fl_test_floats(call.state), c.state, 2 * 24 * 40, 1e-5, "state alone");
        }
        fl_case_destroy(&c);
    }
    fl_compute_destroy(compute);
}

static void test_thread_counts_agree_and_equal_counts_are_bit_identical(void **unused) {
    (void)unused;
    fl_random random;
    fl_random_seed(&random, 17, 0);
    fl_recurrence_case c;
    fl_case_create(&c, &random, transitions[5], FL_CASE_BENIGN, 5, 200, 64, 64);
    size_t count = 5 * 200 * 64;
    float *first = NULL;
    assert_int_equal(FL_ALLOCATE(&first, count, NULL), FL_OK);
    for (size_t threads = 1; threads <= 3; threads++) {
        fl_compute *compute = backend(threads);
        for (size_t repeat = 0; repeat < 2; repeat++) {
            fl_case_rewind(&c);
            run(compute, &c.call);
            fl_difference d = fl_compare_float_floats(fl_test_floats(c.call.output), first, count);
            if (threads == 1 && repeat == 0)
                memcpy(first, fl_test_floats(c.call.output), count * sizeof *first);
            if (threads > 1 || repeat > 0) assert_true(d.relative <= 1e-5);
            if (repeat == 1 && threads == 1)
                assert_memory_equal(fl_test_floats(c.call.output), first, count * sizeof *first);
        }
        float *again = NULL;
        assert_int_equal(FL_ALLOCATE(&again, count, NULL), FL_OK);
        memcpy(again, fl_test_floats(c.call.output), count * sizeof *again);
        fl_case_rewind(&c);
        run(compute, &c.call);
        assert_memory_equal(fl_test_floats(c.call.output), again, count * sizeof *again);
        fl_memory_free(again);
        fl_compute_destroy(compute);
    }
    fl_memory_free(first);
    fl_case_destroy(&c);
}

static void test_a_missing_input_is_named(void **unused) {
    (void)unused;
    fl_compute *compute = backend(1);
    fl_random random;
    fl_random_seed(&random, 18, 0);
    fl_recurrence_case c;
    fl_case_create(&c, &random, transitions[8], FL_CASE_BENIGN, 1, 4, 8, 8);
    fl_error error = {0};
    fl_recurrence_call call = c.call;
    call.inputs.erase_read = fl_array_none;
    assert_int_equal(compute->ops->recurrence(compute, &call, &error), FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "erase_read"));
    call = c.call;
    call.inputs.log_decay = fl_array_none;
    assert_int_equal(compute->ops->recurrence(compute, &call, &error), FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "log_decay"));
    call = c.call;
    call.inputs.query = fl_array_none;
    assert_int_equal(compute->ops->recurrence(compute, &call, &error), FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "query"));
    fl_case_destroy(&c);
    fl_compute_destroy(compute);
}

typedef struct {
    const char *rule;
    fl_transition transition;
    const char *decay;    /* tensor of the gate itself */
    bool strength, write; /* b = beta; w = beta */
} pack_rule;

static const float *pack_floats(const fl_checkpoint *pack, const char *name, size_t *count) {
    return fl_fixture_floats(pack, name, count, NULL);
}

static void check_pack_rule(fl_compute *compute, const fl_checkpoint *pack, const pack_rule *rule) {
    size_t count = 0, states = 0, outputs = 0;
    char name[64];
    const float *query = pack_floats(pack, "q", &count), *key = pack_floats(pack, "k", &count);
    const float *value = pack_floats(pack, "v", &count), *beta = pack_floats(pack, "beta", &count);
    float *decay = NULL, *write = NULL;
    if (rule->decay != NULL) {
        double *gates = fl_fixture_doubles(pack, rule->decay, &count, NULL);
        assert_int_equal(FL_ALLOCATE(&decay, count, NULL), FL_OK);
        for (size_t i = 0; i < count; i++) decay[i] = (float)log(gates[i]);
        fl_memory_free(gates);
    }
    if (strcmp(rule->rule, "ema") == 0) {
        double *gates = fl_fixture_doubles(pack, "g", &count, NULL);
        assert_int_equal(FL_ALLOCATE(&write, count, NULL), FL_OK);
        for (size_t i = 0; i < count; i++) write[i] = (float)(1.0 - gates[i]);
        fl_memory_free(gates);
    }
    snprintf(name, sizeof name, "%s.S", rule->rule);
    double *state = fl_fixture_doubles(pack, name, &states, NULL);
    snprintf(name, sizeof name, "%s.o", rule->rule);
    double *output = fl_fixture_doubles(pack, name, &outputs, NULL);
    fl_recurrence_call call = {
        .transition = rule->transition, .heads = 3, .steps = 150, .key_dim = 32, .value_dim = 48};
    call.inputs = (fl_recurrence_inputs){.query = fl_test_array(query),
                                         .key = fl_test_array(key),
                                         .value = fl_test_array(value),
                                         .log_decay = fl_test_array(decay),
                                         .erase_strength = fl_test_array(rule->strength ? beta : NULL),
                                         .write = fl_test_array(rule->write ? beta : write)};
    assert_int_equal(states, 3 * 48 * 32);
    assert_int_equal(outputs, 3 * 150 * 48);
    call.state = fl_test_array(fl_test_block(states, sizeof(float)));
    call.output = fl_test_array(fl_test_block(outputs, sizeof(float)));
    for (int mode = FL_RECURRENCE_STEP; mode <= FL_RECURRENCE_CHUNK; mode++) {
        memset(fl_test_floats(call.state), 0, states * sizeof(float));
        call.mode = (fl_recurrence_mode)mode;
        run(compute, &call);
        fl_assert_close(fl_test_floats(call.output), output, outputs, 1e-5, rule->rule);
        fl_assert_close(fl_test_floats(call.state), state, states, 1e-5, rule->rule);
    }
    void *const blocks[] = {(void *)(uintptr_t)query,
                            (void *)(uintptr_t)key,
                            (void *)(uintptr_t)value,
                            (void *)(uintptr_t)beta,
                            decay,
                            write,
                            state,
                            output,
                            fl_test_floats(call.state),
                            fl_test_floats(call.output)};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fl_memory_free(blocks[i]);
}

static void test_reference_pack_of_rules(void **unused) {
    (void)unused;
    static const pack_rule rules[] = {
        {"linear", {FL_DECAY_NONE, FL_ERASE_NONE}, NULL, false, false},
        {"ema", {FL_DECAY_SCALAR, FL_ERASE_NONE}, "g", false, false},
        {"decay", {FL_DECAY_SCALAR, FL_ERASE_NONE}, "g", false, false},
        {"gla", {FL_DECAY_CHANNEL, FL_ERASE_NONE}, "a", false, false},
        {"delta", {FL_DECAY_NONE, FL_ERASE_KEY}, NULL, true, true},
        {"gated_delta", {FL_DECAY_SCALAR, FL_ERASE_KEY}, "g", true, true},
        {"kda", {FL_DECAY_CHANNEL, FL_ERASE_KEY}, "a", true, true},
    };
    const char *path = fl_pack_path("reference/rules/rules_f64.safetensors");
    if (path == NULL) fl_fixture_skip("test_reference_pack_of_rules", "pack reference/rules");
    fl_error error = {0};
    fl_checkpoint *pack = NULL;
    if (fl_checkpoint_open(path, &pack, &error) != FL_OK) fail_msg("%s", error.message);
    fl_compute *compute = backend(2);
    fl_worst_reset();
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) check_pack_rule(compute, pack, &rules[i]);
    printf("worst: reference pack of rules %.2e\n", fl_worst_reset());
    fl_compute_destroy(compute);
    fl_checkpoint_close(pack);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_forms_equal_the_definition_for_every_transition),
        cmocka_unit_test(test_chunks_are_as_accurate_as_steps_for_hostile_inputs),
        cmocka_unit_test(test_a_sequence_cut_anywhere_gives_the_same_result),
        cmocka_unit_test(test_a_null_write_leaves_the_state_bit_for_bit),
        cmocka_unit_test(test_state_norms_are_the_norms_of_the_states),
        cmocka_unit_test(test_only_the_state_may_be_wanted),
        cmocka_unit_test(test_thread_counts_agree_and_equal_counts_are_bit_identical),
        cmocka_unit_test(test_a_missing_input_is_named),
        cmocka_unit_test(test_reference_pack_of_rules),
    };
    return FL_RUN_WITH_EVERY_TABLE(tests);
}
