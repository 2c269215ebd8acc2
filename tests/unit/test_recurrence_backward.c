#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/compute/compute.h"
#include "tests/support/arrays.h"
#include "tests/support/compare.h"
#include "tests/support/every_table.h"
#include "tests/support/recurrence_reference.h"

static fl_compute *backend(size_t threads) {
    fl_error error = {0};
    fl_compute *compute = NULL;
    if (fl_compute_create_cpu(&(fl_compute_options){threads, SIZE_MAX}, &compute, &error) != FL_OK) {
        fail_msg("%s", error.message);
    }
    return compute;
}

/* A backward call over a random case, with room for every gradient. */
typedef struct {
    fl_recurrence_case forward;
    fl_recurrence_backward_call call;
    size_t outputs, states;
} backward_case;

enum { MEMBERS = 9 };

/* The gradients as a list, with how many numbers each has; NULL where the transition has no such input. */
static void members(const backward_case *b, float *lists[MEMBERS], size_t counts[MEMBERS]) {
    const fl_recurrence_call *c = &b->forward.call;
    const fl_recurrence_gradients *g = &b->call.gradients;
    size_t tokens = c->heads * c->steps, keys = tokens * c->key_dim;
    float *const all[MEMBERS] = {fl_test_floats(g->query),          fl_test_floats(g->key),
                                 fl_test_floats(g->value),          fl_test_floats(g->log_decay),
                                 fl_test_floats(g->erase_strength), fl_test_floats(g->erase_read),
                                 fl_test_floats(g->erase_write),    fl_test_floats(g->write),
                                 fl_test_floats(g->initial_state)};
    size_t width = c->transition.decay == FL_DECAY_CHANNEL ? c->key_dim : 1;
    const size_t sizes[MEMBERS] = {
        keys, keys, tokens * c->value_dim, tokens * width, tokens, keys, keys, tokens, b->states};
    memcpy(lists, all, sizeof all);
    memcpy(counts, sizes, sizeof sizes);
}

static const char *const member_names[MEMBERS] = {"query",          "key",        "value",       "log_decay",
                                                  "erase_strength", "erase_read", "erase_write", "write",
                                                  "initial_state"};

static void case_create(backward_case *b, fl_random *random, fl_transition transition, fl_case_kind kind,
                        size_t heads, size_t steps, size_t key_dim, size_t value_dim) {
    memset(b, 0, sizeof *b);
    fl_case_create(&b->forward, random, transition, kind, heads, steps, key_dim, value_dim);
    b->outputs = heads * steps * value_dim;
    b->states = heads * value_dim * key_dim;
    float *gradient_output = fl_test_block(b->outputs, sizeof(float)),
          *gradient_state = fl_test_block(b->states, sizeof(float));
    for (size_t i = 0; i < b->outputs; i++) gradient_output[i] = (float)fl_random_normal(random);
    for (size_t i = 0; i < b->states; i++) gradient_state[i] = (float)fl_random_normal(random);
    b->call = (fl_recurrence_backward_call){.transition = transition,
                                            .heads = heads,
                                            .steps = steps,
                                            .key_dim = key_dim,
                                            .value_dim = value_dim,
                                            .inputs = b->forward.call.inputs,
                                            .initial_state = fl_test_array(b->forward.entry_state),
                                            .gradient_output = fl_test_array(gradient_output),
                                            .gradient_final_state = fl_test_array(gradient_state)};
    size_t keys = heads * steps * key_dim, tokens = heads * steps;
    fl_recurrence_gradients *g = &b->call.gradients;
    g->query = fl_test_array(fl_test_block(keys, sizeof(float)));
    g->key = fl_test_array(fl_test_block(keys, sizeof(float)));
    g->value = fl_test_array(fl_test_block(tokens * value_dim, sizeof(float)));
    g->write = fl_test_array(fl_test_block(tokens, sizeof(float)));
    g->initial_state = fl_test_array(fl_test_block(b->states, sizeof(float)));
    if (transition.decay != FL_DECAY_NONE) {
        g->log_decay =
            fl_test_array(fl_test_block(transition.decay == FL_DECAY_CHANNEL ? keys : tokens, sizeof(float)));
    }
    if (transition.erase != FL_ERASE_NONE)
        g->erase_strength = fl_test_array(fl_test_block(tokens, sizeof(float)));
    if (transition.erase == FL_ERASE_DIRECTIONS) {
        g->erase_read = fl_test_array(fl_test_block(keys, sizeof(float)));
        g->erase_write = fl_test_array(fl_test_block(keys, sizeof(float)));
    }
}

static void case_destroy(backward_case *b) {
    float *lists[MEMBERS];
    size_t counts[MEMBERS];
    members(b, lists, counts);
    for (size_t i = 0; i < MEMBERS; i++) fl_memory_free(lists[i]);
    fl_memory_free((void *)(uintptr_t)fl_test_floats(b->call.gradient_output));
    fl_memory_free((void *)(uintptr_t)fl_test_floats(b->call.gradient_final_state));
    fl_case_destroy(&b->forward);
}

static void run(fl_compute *compute, backward_case *b, fl_recurrence_mode mode) {
    fl_error error = {0};
    b->call.mode = mode;
    if (compute->ops->recurrence_backward(compute, &b->call, &error) != FL_OK) fail_msg("%s", error.message);
}

/* What the gradients are gradients of, in float64; one head. */
static double loss(const backward_case *b, const double *entry, double *state, double *output) {
    memcpy(state, entry, b->states * sizeof *state);
    fl_reference_recurrence(&b->forward.streams[0], state, output, NULL);
    double sum = 0.0;
    for (size_t i = 0; i < b->outputs; i++)
        sum += (double)fl_test_floats(b->call.gradient_output)[i] * output[i];
    for (size_t i = 0; i < b->states; i++)
        sum += (double)fl_test_floats(b->call.gradient_final_state)[i] * state[i];
    return sum;
}

static double difference_quotient(const backward_case *b, const double *entry, double *x, double *state,
                                  double *output) {
    double kept = *x, step = 1e-4;
    if (!isfinite(kept)) return 0.0; /* the logarithm of a gate of 0 */
    *x = kept + step;
    double up = loss(b, entry, state, output);
    *x = kept - step;
    double down = loss(b, entry, state, output);
    *x = kept;
    return (up - down) / (2.0 * step);
}

static double check_against_quotients(fl_compute *compute, backward_case *b, double bound, const char *what) {
    fl_reference_stream *s = &b->forward.streams[0];
    double *entry = b->forward.state,
           *const inputs[MEMBERS] = {s->query,      s->key,         s->value, s->log_decay, s->erase_strength,
                                     s->erase_read, s->erase_write, s->write, entry};
    float *lists[MEMBERS];
    size_t counts[MEMBERS];
    members(b, lists, counts);
    double *state = fl_test_block(b->states, sizeof *state),
           *output = fl_test_block(b->outputs, sizeof *output), worst = 0.0;
    double *expected[MEMBERS] = {0};
    for (size_t m = 0; m < MEMBERS; m++) {
        if (lists[m] == NULL) continue;
        expected[m] = fl_test_block(counts[m], sizeof(double));
        for (size_t i = 0; i < counts[m]; i++) {
            expected[m][i] = difference_quotient(b, entry, &inputs[m][i], state, output);
        }
    }
    for (int mode = FL_RECURRENCE_STEP; mode <= FL_RECURRENCE_CHUNK; mode++) {
        run(compute, b, (fl_recurrence_mode)mode);
        for (size_t m = 0; m < MEMBERS; m++) {
            if (lists[m] == NULL) continue;
            char name[128];
            snprintf(name, sizeof name, "%s, mode %d, gradient of %s", what, mode, member_names[m]);
            fl_worst_reset();
            fl_assert_close(lists[m], expected[m], counts[m], bound, name);
            worst = fmax(worst, fl_worst_reset());
        }
    }
    for (size_t m = 0; m < MEMBERS; m++) fl_memory_free(expected[m]);
    fl_memory_free(state);
    fl_memory_free(output);
    return worst;
}

static void test_gradients_equal_difference_quotients_for_every_transition(void **unused) {
    (void)unused;
    static const fl_case_kind kinds[] = {FL_CASE_BENIGN, FL_CASE_RESETS, FL_CASE_SHARP, FL_CASE_NULL_RUNS};
    /* With sharp gates some gradients nearly vanish, and the quotients carry rounding of the whole loss. */
    static const double bounds[] = {5e-6, 5e-6, 4e-5, 5e-6};
    fl_compute *compute = backend(2);
    fl_random random;
    fl_random_seed(&random, 41, 0);
    double worst[4] = {0.0};
    for (int decay = FL_DECAY_NONE; decay <= FL_DECAY_CHANNEL; decay++) {
        for (int erase = FL_ERASE_NONE; erase <= FL_ERASE_DIRECTIONS; erase++) {
            for (size_t k = 0; k < 4; k++) {
                backward_case b;
                char what[64];
                snprintf(what, sizeof what, "decay %d erase %d case %d", decay, erase, kinds[k]);
                case_create(&b, &random, (fl_transition){(fl_decay_kind)decay, (fl_erase_kind)erase},
                            kinds[k], 1, 71, 7, 5);
                worst[k] = fmax(worst[k], check_against_quotients(compute, &b, bounds[k], what));
                case_destroy(&b);
            }
        }
    }
    printf("worst: recurrence gradients, benign %.2e, resets %.2e, sharp gates %.2e, null runs %.2e\n",
           worst[0], worst[1], worst[2], worst[3]);
    fl_compute_destroy(compute);
}

static void test_step_and_chunk_gradients_agree_on_long_sequences(void **unused) {
    (void)unused;
    fl_compute *compute = backend(2);
    fl_random random;
    fl_random_seed(&random, 42, 0);
    double worst = 0.0;
    for (int decay = FL_DECAY_NONE; decay <= FL_DECAY_CHANNEL; decay++) {
        for (int erase = FL_ERASE_NONE; erase <= FL_ERASE_DIRECTIONS; erase++) {
            backward_case b;
            case_create(&b, &random, (fl_transition){(fl_decay_kind)decay, (fl_erase_kind)erase},
                        FL_CASE_BENIGN, 3, 200, 64, 65);
            float *lists[MEMBERS], *kept[MEMBERS] = {0};
            size_t counts[MEMBERS];
            members(&b, lists, counts);
            run(compute, &b, FL_RECURRENCE_STEP);
            for (size_t m = 0; m < MEMBERS; m++) {
                if (lists[m] == NULL) continue;
                kept[m] = fl_test_block(counts[m], sizeof(float));
                memcpy(kept[m], lists[m], counts[m] * sizeof(float));
            }
            run(compute, &b, FL_RECURRENCE_CHUNK);
            for (size_t m = 0; m < MEMBERS; m++) {
                if (lists[m] == NULL) continue;
                fl_difference d = fl_compare_float_floats(lists[m], kept[m], counts[m]);
                if (d.not_finite > 0 || !(d.relative <= 1e-5)) {
                    fail_msg("decay %d erase %d: %s differs by %.3g", decay, erase, member_names[m],
                             d.relative);
                }
                worst = fmax(worst, d.relative);
                fl_memory_free(kept[m]);
            }
            case_destroy(&b);
        }
    }
    printf("worst: step and chunk gradients apart %.2e\n", worst);
    fl_compute_destroy(compute);
}

static void test_gradients_that_are_not_wanted_and_empty_sequences(void **unused) {
    (void)unused;
    fl_compute *compute = backend(1);
    fl_random random;
    fl_random_seed(&random, 43, 0);
    backward_case b;
    case_create(&b, &random, (fl_transition){FL_DECAY_CHANNEL, FL_ERASE_DIRECTIONS}, FL_CASE_BENIGN, 2, 90,
                16, 8);
    run(compute, &b, FL_RECURRENCE_AUTO);
    float *value = fl_test_block(2 * 90 * 8, sizeof *value);
    fl_recurrence_backward_call call = b.call;
    call.gradients = (fl_recurrence_gradients){.value = fl_test_array(value)};
    for (int mode = FL_RECURRENCE_AUTO; mode <= FL_RECURRENCE_CHUNK; mode++) {
        call.mode = (fl_recurrence_mode)mode;
        assert_int_equal(compute->ops->recurrence_backward(compute, &call, NULL), FL_OK);
        fl_difference d = fl_compare_float_floats(value, fl_test_floats(b.call.gradients.value), 2 * 90 * 8);
        assert_true(d.relative < 1e-5);
    }
    call = b.call;
    call.steps = 0;
    call.gradients = (fl_recurrence_gradients){.initial_state = b.call.gradients.initial_state};
    assert_int_equal(compute->ops->recurrence_backward(compute, &call, NULL), FL_OK);
    assert_memory_equal(fl_test_floats(b.call.gradients.initial_state),
                        fl_test_floats(b.call.gradient_final_state), b.states * sizeof(float));
    fl_memory_free(value);
    case_destroy(&b);
    fl_compute_destroy(compute);
}

static void test_failures_are_reported(void **unused) {
    (void)unused;
    fl_compute *compute = backend(1);
    fl_random random;
    fl_random_seed(&random, 44, 0);
    backward_case b;
    case_create(&b, &random, (fl_transition){FL_DECAY_NONE, FL_ERASE_KEY}, FL_CASE_BENIGN, 1, 20, 8, 8);
    fl_error error = {0};
    fl_recurrence_backward_call call = b.call;
    call.gradient_output = fl_array_none;
    assert_int_equal(compute->ops->recurrence_backward(compute, &call, &error), FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "gradient_output"));
    call = b.call;
    call.inputs.erase_strength = fl_array_none;
    assert_int_equal(compute->ops->recurrence_backward(compute, &call, &error), FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "erase_strength"));
    fl_memory_fail_at(1);
    assert_int_equal(compute->ops->recurrence_backward(compute, &b.call, &error), FL_ERROR_MEMORY);
    fl_memory_fail_at(0);
    case_destroy(&b);
    fl_compute_destroy(compute);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_equal_difference_quotients_for_every_transition),
        cmocka_unit_test(test_step_and_chunk_gradients_agree_on_long_sequences),
        cmocka_unit_test(test_gradients_that_are_not_wanted_and_empty_sequences),
        cmocka_unit_test(test_failures_are_reported),
    };
    return FL_RUN_WITH_EVERY_TABLE(tests);
}
