/* The step form on the device and its gradients, against the definition in float64 and the cpu's step form.
 */
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
#include "tests/support/cuda_device.h"
#include "tests/support/recurrence_reference.h"

static const fl_transition transitions[] = {
    {FL_DECAY_NONE, FL_ERASE_NONE},          {FL_DECAY_SCALAR, FL_ERASE_NONE},
    {FL_DECAY_CHANNEL, FL_ERASE_NONE},       {FL_DECAY_NONE, FL_ERASE_KEY},
    {FL_DECAY_SCALAR, FL_ERASE_KEY},         {FL_DECAY_CHANNEL, FL_ERASE_KEY},
    {FL_DECAY_NONE, FL_ERASE_DIRECTIONS},    {FL_DECAY_SCALAR, FL_ERASE_DIRECTIONS},
    {FL_DECAY_CHANNEL, FL_ERASE_DIRECTIONS},
};
enum { TRANSITIONS = sizeof transitions / sizeof *transitions };

typedef struct {
    size_t steps, key_dim, value_dim;
} case_shape;

/* Ends of tiles (16) and chunks (32), rows that are no multiple of 16 bytes, Dv of one row more than a
 * block's, and every shape of the kernels: to 64, 128, 256 and 1024 channels. */
static const case_shape shapes[] = {{0, 16, 8},   {1, 8, 8},     {15, 60, 33}, {16, 64, 64}, {33, 65, 40},
                                    {70, 128, 9}, {17, 200, 17}, {5, 300, 5},  {3, 1024, 3}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static fl_recurrence_inputs placed_inputs(fl_compute *device, const fl_recurrence_inputs *from,
                                          fl_transition transition, size_t heads, size_t steps,
                                          size_t key_dim, size_t value_dim) {
    const size_t tokens = heads * steps, keys = tokens * key_dim;
    return (fl_recurrence_inputs){
        .query = fl_placed(device, fl_test_floats(from->query), keys),
        .key = fl_placed(device, fl_test_floats(from->key), keys),
        .value = fl_placed(device, fl_test_floats(from->value), tokens * value_dim),
        .log_decay = fl_placed(device, fl_test_floats(from->log_decay),
                               transition.decay == FL_DECAY_CHANNEL ? keys : tokens),
        .erase_strength = fl_placed(device, fl_test_floats(from->erase_strength), tokens),
        .erase_read = fl_placed(device, fl_test_floats(from->erase_read), keys),
        .erase_write = fl_placed(device, fl_test_floats(from->erase_write), keys),
        .write = fl_placed(device, fl_test_floats(from->write), tokens)};
}

static void bring_back(fl_compute *device, float *to, fl_array from, size_t count) {
    float *back = fl_brought_back(device, from, count);
    memcpy(to, back, count * sizeof *back);
    fl_memory_free(back);
}

/* Runs the case on the device and leaves its results in the case's own arrays. */
static void run(fl_compute *device, fl_recurrence_case *c, float *norm) {
    fl_recurrence_call call = c->call;
    fl_error error = {0};
    const size_t states = call.heads * call.value_dim * call.key_dim,
                 outputs = call.heads * call.steps * call.value_dim;
    call.inputs = placed_inputs(device, &c->call.inputs, call.transition, call.heads, call.steps,
                                call.key_dim, call.value_dim);
    call.state = fl_placed(device, fl_test_floats(c->call.state), states);
    call.output = fl_placed_zeros(device, outputs);
    call.state_norm = norm != NULL ? fl_placed_zeros(device, call.heads * call.steps) : fl_array_none;
    if (device->ops->recurrence(device, &call, &error) != FL_OK) fail_msg("%s", error.message);
    bring_back(device, fl_test_floats(c->call.output), call.output, outputs);
    bring_back(device, fl_test_floats(c->call.state), call.state, states);
    if (norm != NULL) bring_back(device, norm, call.state_norm, call.heads * call.steps);
    fl_cuda_device_sweep();
}

static void check(fl_compute *device, fl_recurrence_case *c, double bound, const char *what) {
    const size_t norms = c->call.heads * c->call.steps;
    float *norm = fl_test_block(norms + 1, sizeof *norm);
    fl_case_expect(c);
    fl_case_rewind(c);
    run(device, c, norm);
    fl_assert_close(fl_test_floats(c->call.output), c->output, norms * c->call.value_dim, bound, what);
    fl_assert_close(fl_test_floats(c->call.state), c->state,
                    c->call.heads * c->call.value_dim * c->call.key_dim, bound, what);
    fl_assert_close(norm, c->norm, norms, bound, what);
    fl_memory_free(norm);
}

static void every_transition_is_the_definition(void **state) {
    (void)state;
    fl_compute *device = fl_cuda_device();
    fl_random random;
    fl_random_seed(&random, 21, 0);
    fl_worst_reset();
    for (uint64_t seed = 0; seed < 2; seed++) {
        for (size_t i = 0; i < TRANSITIONS * SHAPES; i++) {
            const fl_transition transition = transitions[i % TRANSITIONS];
            const case_shape *shape = &shapes[(i / TRANSITIONS + i) % SHAPES];
            char what[96];
            fl_recurrence_case c;
            snprintf(what, sizeof what, "decay %d erase %d steps %zu Dk %zu Dv %zu", transition.decay,
                     transition.erase, shape->steps, shape->key_dim, shape->value_dim);
            fl_cuda_device_seed(seed);
            fl_case_create(&c, &random, transition, FL_CASE_BENIGN, 2, shape->steps, shape->key_dim,
                           shape->value_dim);
            check(device, &c, 1e-5, what);
            fl_case_destroy(&c);
        }
    }
    printf("worst: step form on the device %.2e\n", fl_worst_reset());
}

/* Gates of 0 and 1, resets, huge and tiny numbers: as near as the cpu's step form is. */
static void hostile_inputs_are_the_definition(void **state) {
    (void)state;
    fl_compute *device = fl_cuda_device();
    fl_random random;
    fl_random_seed(&random, 22, 0);
    for (size_t k = 0; k < TRANSITIONS; k++) {
        for (int kind = FL_CASE_SHARP; kind < FL_CASE_COUNT; kind++) {
            char what[96];
            fl_recurrence_case c;
            snprintf(what, sizeof what, "decay %d erase %d case %d", transitions[k].decay,
                     transitions[k].erase, kind);
            fl_case_create(&c, &random, transitions[k], (fl_case_kind)kind, 1, 40, 32, 24);
            check(device, &c, 1e-5, what);
            fl_case_destroy(&c);
        }
    }
}

static void null_writes_leave_the_state_bit_for_bit(void **state) {
    (void)state;
    enum { STEPS = 20, DIM = 64 };
    fl_compute *device = fl_cuda_device();
    fl_recurrence_case c;
    fl_random random;
    fl_random_seed(&random, 23, 0);
    fl_case_create(&c, &random, (fl_transition){FL_DECAY_CHANNEL, FL_ERASE_KEY}, FL_CASE_BENIGN, 1, STEPS,
                   DIM, DIM);
    memset(fl_test_floats(c.call.inputs.key), 0, STEPS * DIM * sizeof(float));
    memset(fl_test_floats(c.call.inputs.log_decay), 0, STEPS * DIM * sizeof(float));
    memset(fl_test_floats(c.call.inputs.erase_strength), 0, STEPS * sizeof(float));
    fl_case_rewind(&c);
    fl_test_floats(c.call.state)[5] = c.entry_state[5] = -0.0f;
    run(device, &c, NULL);
    assert_memory_equal(fl_test_floats(c.call.state), c.entry_state, DIM * DIM * sizeof(float));
    fl_case_destroy(&c);
}

enum { GRADIENTS = 9 };

typedef struct {
    fl_array at[GRADIENTS];
    size_t count[GRADIENTS];
} gradient_list;

static const char *const gradient_names[GRADIENTS] = {
    "query",      "key",         "value", "log_decay",    "erase_strength",
    "erase_read", "erase_write", "write", "initial_state"};

static float *host_room(size_t count) {
    return fl_test_block(count + 1, sizeof(float));
}

/* Room for the gradients that the transition has, on the device or (NULL) the host. */
static gradient_list gradients_of(const fl_recurrence_call *c, fl_compute *device) {
    const size_t tokens = c->heads * c->steps, keys = tokens * c->key_dim;
    const bool decays = c->transition.decay != FL_DECAY_NONE, erases = c->transition.erase != FL_ERASE_NONE,
               directions = c->transition.erase == FL_ERASE_DIRECTIONS;
    gradient_list list = {.count = {keys, keys, tokens * c->value_dim,
                                    c->transition.decay == FL_DECAY_CHANNEL ? keys : tokens, tokens, keys,
                                    keys, tokens, c->heads * c->value_dim * c->key_dim}};
    const bool wanted[GRADIENTS] = {true, true, true, decays, erases, directions, directions, true, true};
    for (size_t i = 0; i < GRADIENTS; i++) {
        if (!wanted[i]) continue;
        list.at[i] =
            device != NULL ? fl_placed_zeros(device, list.count[i]) : fl_test_array(host_room(list.count[i]));
    }
    return list;
}

static fl_recurrence_gradients as_gradients(const gradient_list *list) {
    return (fl_recurrence_gradients){list->at[0], list->at[1], list->at[2], list->at[3], list->at[4],
                                     list->at[5], list->at[6], list->at[7], list->at[8]};
}

static float *random_numbers(fl_random *random, size_t count) {
    float *numbers = host_room(count);
    for (size_t i = 0; i < count; i++) numbers[i] = (float)fl_random_normal(random);
    return numbers;
}

static void check_gradients(fl_compute *device, fl_compute *cpu, fl_random *random, fl_transition transition,
                            fl_case_kind kind, const case_shape *shape, double bound) {
    fl_recurrence_case c;
    fl_error error = {0};
    fl_case_create(&c, random, transition, kind, 2, shape->steps, shape->key_dim, shape->value_dim);
    const fl_recurrence_call *call = &c.call;
    const size_t outputs = call->heads * call->steps * call->value_dim,
                 states = call->heads * call->value_dim * call->key_dim;
    float *of_output = random_numbers(random, outputs), *of_state = random_numbers(random, states);
    gradient_list expected = gradients_of(call, NULL), own = gradients_of(call, device);
    fl_recurrence_backward_call backward = {.transition = transition,
                                            .mode = FL_RECURRENCE_STEP,
                                            .heads = call->heads,
                                            .steps = call->steps,
                                            .key_dim = call->key_dim,
                                            .value_dim = call->value_dim,
                                            .inputs = call->inputs,
                                            .initial_state = fl_test_array(c.entry_state),
                                            .gradient_output = fl_test_array(of_output),
                                            .gradient_final_state = fl_test_array(of_state),
                                            .gradients = as_gradients(&expected)};
    if (cpu->ops->recurrence_backward(cpu, &backward, &error) != FL_OK) fail_msg("%s", error.message);
    backward.inputs = placed_inputs(device, &call->inputs, transition, call->heads, call->steps,
                                    call->key_dim, call->value_dim);
    backward.initial_state = fl_placed(device, c.entry_state, states);
    backward.gradient_output = fl_placed(device, of_output, outputs);
    backward.gradient_final_state = fl_placed(device, of_state, states);
    backward.gradients = as_gradients(&own);
    if (device->ops->recurrence_backward(device, &backward, &error) != FL_OK) fail_msg("%s", error.message);
    for (size_t i = 0; i < GRADIENTS; i++) {
        if (!fl_array_is(own.at[i])) continue;
        float *back = fl_brought_back(device, own.at[i], own.count[i]);
        fl_difference difference =
            fl_compare_float_floats(back, fl_test_floats(expected.at[i]), own.count[i]);
        if (difference.not_finite > 0 || difference.relative > bound) {
            fail_msg("decay %d erase %d kind %d steps %zu Dk %zu Dv %zu: gradient of %s is %.3g off at %zu",
                     transition.decay, transition.erase, kind, shape->steps, shape->key_dim, shape->value_dim,
                     gradient_names[i], difference.relative, difference.largest_at);
        }
        fl_memory_free(back);
        fl_memory_free(fl_test_floats(expected.at[i]));
    }
    fl_memory_free(of_output);
    fl_memory_free(of_state);
    fl_cuda_device_sweep();
    fl_case_destroy(&c);
}

static void gradients_are_the_cpus(void **state) {
    (void)state;
    fl_compute *device = fl_cuda_device(), *cpu = fl_cuda_device_host();
    fl_random random;
    fl_random_seed(&random, 24, 0);
    for (size_t i = 0; i < TRANSITIONS * SHAPES; i++) {
        fl_cuda_device_seed(i);
        check_gradients(device, cpu, &random, transitions[i % TRANSITIONS], FL_CASE_BENIGN,
                        &shapes[(i / TRANSITIONS + i) % SHAPES], 1e-5);
    }
    for (size_t i = 0; i < TRANSITIONS; i++) {
        check_gradients(device, cpu, &random, transitions[i], FL_CASE_SHARP, &(case_shape){40, 32, 24}, 2e-5);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_transition_is_the_definition),
        cmocka_unit_test(hostile_inputs_are_the_definition),
        cmocka_unit_test(null_writes_leave_the_state_bit_for_bit),
        cmocka_unit_test(gradients_are_the_cpus),
    };
    return cmocka_run_group_tests(tests, fl_cuda_device_open, fl_cuda_device_close);
}
