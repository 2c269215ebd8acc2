/* mix: a layer's token mixing through files: the float64 mixer's numbers, any form, any cut, states handed
 * on, gradients. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attn_variants/mixer_backward.h"
#include "harness/base/memory.h"
#include "harness/engine/mix.h"
#include "tests/support/command_fixture.h"
#include "tests/support/compare.h"
#include "tests/support/fixture.h"
#include "tests/support/mixer_case.h"

enum { H = 4, HKV = 2, D = 8, T = 41, MAX_TENSORS = 16 };

static fl_mixer_case one;
static char names[MAX_TENSORS][80];

static void open_case(const char *yaml) {
    fl_mixer_case_open(&one, NULL, yaml, H, HKV, D, T, 1.0, 5);
}

/* Tokens first .. first + count - 1 of the case, its parameters, and what a test adds. */
static void write_inputs(const char *path, size_t first, size_t count,
                         const fl_checkpoint_write_tensor *extra, size_t extra_count) {
    size_t e = one.shape.model_dim, used = 0;
    fl_checkpoint_write_tensor tensors[MAX_TENSORS] = {
        {"q", one.query + first * H * D, 3, {count, H, D}},
        {"k", one.key + first * HKV * D, 3, {count, HKV, D}},
        {"v", one.value + first * HKV * D, 3, {count, HKV, D}},
        {"h", one.input + first * e, 2, {count, e}},
    };
    used = 4;
    for (size_t i = 0; i < one.mechanism->tensor_count; i++, used++) {
        const fl_mechanism_tensor *tensor = &one.mechanism->tensors[i];
        snprintf(names[used], sizeof names[used], "p.%s", tensor->name);
        tensors[used] =
            (fl_checkpoint_write_tensor){.name = names[used],
                                         .data = one.mechanism->layer[FL_CASE_LAYER] + tensor->offset,
                                         .rank = tensor->rank};
        memcpy(tensors[used].shape, tensor->shape, tensor->rank * sizeof tensor->shape[0]);
    }
    for (size_t i = 0; i < extra_count; i++) tensors[used++] = extra[i];
    fl_error error;
    if (fl_checkpoint_write_safetensors(path, tensors, used, NULL, NULL, 0, &error) != FL_OK)
        fail_msg("%s", error.message);
}

static fl_checkpoint *mix(fl_recurrence_mode mode, size_t cut, const char *inputs) {
    fl_error error;
    fl_mix_request request = {.variant = fl_document_root(one.document),
                              .inputs = inputs,
                              .out = fl_inside("out.safetensors"),
                              .mode = mode,
                              .cut = cut};
    fl_checkpoint *result = NULL;
    if (fl_mix_run(one.compute, &request, NULL, &error) != FL_OK) fail_msg("%s", error.message);
    if (fl_checkpoint_open(request.out, &result, &error) != FL_OK) fail_msg("%s", error.message);
    return result;
}

static void refuse(const char *yaml, const char *inputs, const char *words) {
    fl_error error = {0};
    fl_document *document = NULL;
    assert_int_equal(fl_document_parse_text(yaml, strlen(yaml), "test", &document, NULL), FL_OK);
    fl_mix_request request = {
        .variant = fl_document_root(document), .inputs = inputs, .out = fl_inside("refused.safetensors")};
    assert_int_not_equal(fl_mix_run(one.compute, &request, NULL, &error), FL_OK);
    if (strstr(error.message, words) == NULL) fail_msg("\"%s\" does not say \"%s\"", error.message, words);
    fl_document_destroy(document);
}

static void test_outputs_are_the_float64_mixers(void **state) {
    (void)state;
    static const char *const variants[] = {
        "{rule: kda}",
        "{rule: gated_delta, window: 7, sinks: 2, short_conv: {kernel: 3, init: torch}}",
        "{rule: linear, feature_map: elu1, window: 5, merge: shared_normaliser}",
        "{rule: delta_product, window: 3}",
        "{rule: oja, window: 4, cache: {budget: 6, route: self_recall}}",
    };
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        open_case(variants[i]);
        write_inputs(fl_inside("in.safetensors"), 0, T, NULL, 0);
        fl_case_reference reference = fl_mixer_case_reference(&one);
        const struct {
            fl_recurrence_mode mode;
            size_t cut;
        } ways[] = {{FL_RECURRENCE_AUTO, 0},
                    {FL_RECURRENCE_STEP, 0},
                    {FL_RECURRENCE_CHUNK, 0},
                    {FL_RECURRENCE_AUTO, 17}};
        for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
            fl_checkpoint *result = mix(ways[way].mode, ways[way].cut, fl_inside("in.safetensors"));
            size_t count = 0;
            float *out = fl_fixture_floats(result, "out", &count, NULL);
            assert_int_equal(count, T * H * D);
            fl_assert_close(out, reference.output, count, 1e-5, variants[i]);
            fl_memory_free(out);
            fl_checkpoint_close(result);
        }
        fl_case_reference_free(&reference);
        fl_mixer_case_close(&one);
    }
}

/* Both halves, the second from the first one's state, are the whole: where nothing waits in a window. */
static void test_a_state_can_be_handed_on(void **state) {
    (void)state;
    static const char *const variants[] = {"{rule: kda}",   "{rule: hedgehog}", "{rule: oja}",
                                           "{rule: rwkv7}", "{rule: rwkv6}",    "{rule: mlstm}",
                                           "{rule: s4d}"};
    enum { FIRST = 23 };
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        open_case(variants[i]);
        write_inputs(fl_inside("in.safetensors"), 0, T, NULL, 0);
        fl_checkpoint *whole = mix(FL_RECURRENCE_AUTO, 0, fl_inside("in.safetensors"));
        write_inputs(fl_inside("first.safetensors"), 0, FIRST, NULL, 0);
        fl_checkpoint *first = mix(FL_RECURRENCE_AUTO, 0, fl_inside("first.safetensors"));
        fl_checkpoint_write_tensor extra[2] = {{.name = "state"}, {.name = "normaliser"}};
        size_t count = 0, extras = fl_fixture_has(first, "normaliser") ? 2 : 1;
        for (size_t j = 0; j < extras; j++) {
            const fl_tensor *tensor = &fl_checkpoint_lookup(first, extra[j].name)->tensor;
            extra[j].data = fl_fixture_floats(first, extra[j].name, &count, NULL);
            extra[j].rank = tensor->rank;
            memcpy(extra[j].shape, tensor->shape, sizeof tensor->shape);
        }
        write_inputs(fl_inside("second.safetensors"), FIRST, T - FIRST, extra, extras);
        fl_checkpoint *second = mix(FL_RECURRENCE_AUTO, 0, fl_inside("second.safetensors"));
        double *expected = fl_fixture_doubles(whole, "out", &count, NULL);
        float *out = fl_fixture_floats(second, "out", &count, NULL);
        fl_assert_close(out, expected + FIRST * H * D, count, 1e-5, variants[i]);
        for (size_t j = 0; j < extras; j++) fl_memory_free((void *)extra[j].data);
        fl_memory_free(expected);
        fl_memory_free(out);
        fl_checkpoint_close(whole);
        fl_checkpoint_close(first);
        fl_checkpoint_close(second);
        fl_mixer_case_close(&one);
    }
}

/* d sum(out * grad_out): against central differences of the value, a state given, along the whole of each
 * input. */
static void test_gradients_are_those_of_the_output(void **state) {
    (void)state;
    static const char *const variants[] = {"{rule: kda, gate: {bias: 2}}", "{rule: oja}"};
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        open_case(variants[i]);
        float given[T * H * D], start[H * D * D];
        for (size_t j = 0; j < T * H * D; j++) given[j] = sinf((float)j);
        for (size_t j = 0; j < H * D * D; j++) start[j] = 0.3f * cosf((float)(3 * j));
        bool own = fl_rule_is_own(one.variant->rule, one.variant->rule_options);
        fl_checkpoint_write_tensor extra[2] = {{"grad_out", given, 3, {T, H, D}},
                                               {"state", start, 3, {H, D, D}}};
        if (own) extra[1] = (fl_checkpoint_write_tensor){"state", start, 2, {H, D * D}};
        write_inputs(fl_inside("in.safetensors"), 0, T, extra, 2);
        fl_checkpoint *result = mix(FL_RECURRENCE_AUTO, 0, fl_inside("in.safetensors"));
        float *inputs[4] = {one.query, one.key, one.value, one.input};
        const char *gradients[4] = {"grad.q", "grad.k", "grad.v", "grad.h"};
        for (size_t which = 0; which < 4; which++) {
            size_t count = 0;
            double *gradient = fl_fixture_doubles(result, gradients[which], &count, NULL), along = 0.0,
                   value[2];
            const double step = 1e-3;
            for (size_t j = 0; j < count; j++) along += gradient[j] * sin(0.7 * (double)j);
            for (int side = 0; side < 2; side++) {
                float kept[T * H * D];
                memcpy(kept, inputs[which], count * sizeof(float));
                for (size_t j = 0; j < count; j++)
                    inputs[which][j] += (float)((side == 0 ? step : -step) * sin(0.7 * (double)j));
                write_inputs(fl_inside("moved.safetensors"), 0, T, extra + 1, 1);
                memcpy(inputs[which], kept, count * sizeof(float));
                fl_checkpoint *moved = mix(FL_RECURRENCE_STEP, 0, fl_inside("moved.safetensors"));
                size_t floats = 0;
                double *out = fl_fixture_doubles(moved, "out", &floats, NULL);
                value[side] = 0.0;
                for (size_t j = 0; j < floats; j++) value[side] += out[j] * (double)given[j];
                fl_memory_free(out);
                fl_checkpoint_close(moved);
            }
            double difference = (value[0] - value[1]) / (2.0 * step);
            if (fabs(difference - along) > 2e-3 * (fabs(along) + 0.1))
                fail_msg("%s, %s: %g, by differences %g", variants[i], gradients[which], along, difference);
            fl_memory_free(gradient);
        }
        assert_true(fl_fixture_has(result, "grad.p.beta.weight"));
        fl_checkpoint_close(result);
        fl_mixer_case_close(&one);
    }
}

static void test_bad_inputs_are_named(void **state) {
    (void)state;
    open_case("{rule: kda}");
    float numbers[T * H * D] = {0};
    char in[512];
    snprintf(in, sizeof in, "%s", fl_inside("bad.safetensors"));
    fl_checkpoint_write_tensor extra = {"gate", numbers, 1, {3}};
    write_inputs(in, 0, T, &extra, 1);
    refuse("{rule: kda}", in, "tensor gate is no input");
    extra = (fl_checkpoint_write_tensor){"p.gate.w3", numbers, 1, {3}};
    write_inputs(in, 0, T, &extra, 1);
    refuse("{rule: kda}", in, "p.gate.w3 is not a parameter of rule kda");
    extra = (fl_checkpoint_write_tensor){"state", numbers, 3, {H, D, D - 1}};
    write_inputs(in, 0, T, &extra, 1);
    refuse("{rule: kda}", in, "state has shape [4][8][7], expected [H][Dv][Dk] = [4][8][8]");
    extra = (fl_checkpoint_write_tensor){"grad_out", numbers, 3, {T, HKV, D}};
    write_inputs(in, 0, T, &extra, 1);
    refuse("{rule: kda}", in, "grad_out has shape");
    write_inputs(in, 0, T, NULL, 0);
    refuse("{rule: gla}", in, "p.beta.weight is not a parameter of rule gla");
    refuse("{rule: kda, softmax_layers: [0]}", in, "test:1:29: mix has one layer");
    refuse("{rule: kda, lora: {rank: 2}}", in, "lora adapts projections");
    fl_checkpoint_write_tensor plain[] = {
        {"q", numbers, 3, {T, H, D}}, {"k", numbers, 3, {T, HKV, D}}, {"v", numbers, 3, {T, HKV, D}}};
    assert_int_equal(fl_checkpoint_write_safetensors(in, plain, 3, NULL, NULL, 0, NULL), FL_OK);
    refuse("{rule: kda}", in, "tensor h is missing");
    plain[1].shape[1] = 3;
    plain[2].shape[1] = 3;
    assert_int_equal(fl_checkpoint_write_safetensors(in, plain, 3, NULL, NULL, 0, NULL), FL_OK);
    refuse("{rule: delta, beta: {source: constant, value: 1}}", in, "4 query heads over 3 KV heads");
    fl_mixer_case_close(&one);
}

static void test_the_command_writes_what_it_says(void **state) {
    (void)state;
    open_case("{rule: delta}");
    write_inputs(fl_inside("in.safetensors"), 0, T, NULL, 0);
    char arguments[512];
    snprintf(arguments, sizeof arguments, "mix delta %s --out %s --form chunk --cut 5",
             fl_inside("in.safetensors"), fl_inside("command.safetensors"));
    fl_expect(0, arguments, "T 41, H 4, Hkv 2, D 8", "64 numbers of state a head", NULL);
    snprintf(arguments, sizeof arguments, "mix softmax %s --out %s", fl_inside("in.safetensors"),
             fl_inside("command.safetensors"));
    fl_expect(1, arguments, "p.beta.weight is not a parameter of rule none", NULL);
    snprintf(arguments, sizeof arguments, "mix delta %s --out %s --form fast", fl_inside("in.safetensors"),
             fl_inside("command.safetensors"));
    fl_expect(2, arguments, "--form is auto, step or chunk", NULL);
    fl_mixer_case_close(&one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outputs_are_the_float64_mixers),
        cmocka_unit_test(test_a_state_can_be_handed_on),
        cmocka_unit_test(test_gradients_are_those_of_the_output),
        cmocka_unit_test(test_bad_inputs_are_named),
        cmocka_unit_test(test_the_command_writes_what_it_says),
    };
    return cmocka_run_group_tests(tests, fl_test_folder_make, fl_test_folder_remove);
}
