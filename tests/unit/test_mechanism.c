/* Mechanism parameters: table, initialisation, files, hash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attn_variants/mechanism.h"
#include "harness/base/memory.h"
#include "tests/support/fixture.h"

static const fl_attention_shape shape = {4, 2, 8, 32, 0.35f};

typedef struct bound {
    fl_document *document;
    fl_variant *variant;
    fl_mechanism *mechanism;
} bound;

static bound create(const char *yaml, size_t layers) {
    bound b;
    fl_error error = {0};
    if (fl_document_parse_text(yaml, strlen(yaml), "m.yaml", &b.document, &error) != FL_OK ||
        fl_variant_bind(fl_document_root(b.document), NULL, &b.variant, &error) != FL_OK ||
        fl_variant_fit(b.variant, &shape, layers, &error) != FL_OK ||
        fl_mechanism_create(b.variant, &shape, layers, &b.mechanism, &error) != FL_OK) {
        fail_msg("%s", error.message);
    }
    return b;
}

static void destroy(bound *b) {
    fl_mechanism_destroy(b->mechanism);
    fl_variant_destroy(b->variant);
    fl_document_destroy(b->document);
}

static void expect_tensor(const bound *b, const char *name, size_t rank, size_t first, size_t second) {
    const fl_mechanism_tensor *tensor = fl_mechanism_find_tensor(b->mechanism, name);
    if (tensor == NULL) fail_msg("no tensor %s", name);
    assert_int_equal(tensor->rank, rank);
    assert_int_equal(tensor->shape[0], first);
    if (rank > 1) assert_int_equal(tensor->shape[1], second);
}

static void test_table_holds_the_pinned_names_and_shapes(void **state) {
    (void)state;
    bound b = create("{rule: kda, gate: {rank: 3}, short_conv: {kernel: 5, init: torch}}", 2);
    expect_tensor(&b, "gate.w1", 2, 32, 3);
    expect_tensor(&b, "gate.w2", 2, 3, 32);
    expect_tensor(&b, "gate.bias", 1, 32, 0);
    expect_tensor(&b, "beta.weight", 2, 32, 4);
    expect_tensor(&b, "beta.bias", 1, 4, 0);
    expect_tensor(&b, "conv.k.weight", 2, 32, 5);
    expect_tensor(&b, "conv.v.bias", 1, 32, 0);
    size_t floats = 32 * 3 + 3 * 32 + 32 + 32 * 4 + 4 + 3 * (32 * 5 + 32);
    assert_int_equal(b.mechanism->layer_floats, floats);
    assert_int_equal(fl_mechanism_parameter_count(b.mechanism), 2 * floats);
    assert_null(fl_mechanism_find(b.mechanism, 0, "gate.weight"));
    destroy(&b);
    b = create("{rule: gated_delta, beta: {source: constant, value: 0.5}}", 1);
    expect_tensor(&b, "gate.weight", 2, 32, 4);
    assert_null(fl_mechanism_find_tensor(b.mechanism, "beta.weight"));
    destroy(&b);
    b = create("{rule: hedgehog, window: 2, merge: lolcats}", 1);
    expect_tensor(&b, "hedgehog.key", 3, 4, 8);
    expect_tensor(&b, "merge.window_factor", 1, 4, 0);
    assert_true(fabsf(fl_mechanism_find(b.mechanism, 0, "merge.window_factor")[2] + 2.197f) < 1e-6f);
    destroy(&b);
    b = create("{rule: none, window: 2}", 1);
    assert_int_equal(fl_mechanism_parameter_count(b.mechanism), 0);
    destroy(&b);
}

static void test_initialisation_is_the_papers_and_torchs(void **state) {
    (void)state;
    bound b = create("{rule: kda, short_conv: {kernel: 4}}", 1);
    const float *w1 = fl_mechanism_find(b.mechanism, 0, "gate.w1");
    float largest = 0.0f, bound_of_w1 = 1.0f / sqrtf(32.0f);
    double mean = 0.0;
    for (size_t i = 0; i < 32 * 16; i++) {
        largest = fmaxf(largest, fabsf(w1[i]));
        mean += w1[i] / (32.0 * 16.0);
    }
    assert_true(largest <= bound_of_w1 && largest > 0.95f * bound_of_w1);
    assert_true(fabs(mean) < 0.02);
    assert_true(fl_mechanism_find(b.mechanism, 0, "gate.bias")[31] == 1.0f);
    assert_true(fl_mechanism_find(b.mechanism, 0, "beta.bias")[3] == -1.0f);
    const float *conv = fl_mechanism_find(b.mechanism, 0, "conv.q.weight");
    for (size_t i = 0; i < 32 * 4; i++) assert_true(conv[i] == (i % 4 == 3 ? 1.0f : 0.0f));
    for (size_t i = 0; i < 32; i++) assert_true(fl_mechanism_find(b.mechanism, 0, "conv.q.bias")[i] == 0.0f);
    destroy(&b);
    b = create("{rule: kda, short_conv: {kernel: 4, init: torch}}", 1);
    conv = fl_mechanism_find(b.mechanism, 0, "conv.v.bias");
    largest = 0.0f;
    for (size_t i = 0; i < 32; i++) largest = fmaxf(largest, fabsf(conv[i]));
    assert_true(largest <= 0.5f && largest > 0.3f);
    destroy(&b);
}

static void test_another_tensor_or_layer_shifts_no_numbers(void **state) {
    (void)state;
    bound few = create("{rule: kda, softmax_layers: [0]}", 2);
    bound more = create("{rule: kda, short_conv: {init: torch}}", 3);
    const char *names[] = {"gate.w1", "gate.w2", "beta.weight"};
    assert_null(fl_mechanism_find(few.mechanism, 0, "gate.w1"));
    for (size_t i = 0; i < 3; i++) {
        size_t count = fl_mechanism_find_tensor(few.mechanism, names[i])->count;
        const float *x = fl_mechanism_find(few.mechanism, 1, names[i]);
        assert_memory_equal(x, fl_mechanism_find(more.mechanism, 1, names[i]), count * sizeof *x);
        assert_memory_not_equal(x, fl_mechanism_find(more.mechanism, 2, names[i]), count * sizeof *x);
    }
    destroy(&few);
    destroy(&more);
    bound one = create("{rule: kda, seed: 1}", 1), two = create("{rule: kda, seed: 2}", 1);
    assert_memory_not_equal(fl_mechanism_find(one.mechanism, 0, "gate.w1"),
                            fl_mechanism_find(two.mechanism, 0, "gate.w1"), 64);
    destroy(&one);
    destroy(&two);
}

static void test_saving_and_loading_keeps_every_bit_and_the_hash(void **state) {
    (void)state;
    fl_error error = {0};
    const char *directory = fl_temporary_directory();
    char path[512], yaml[768];
    snprintf(path, sizeof path, "%s/m.safetensors", directory);
    bound b = create("{rule: hedgehog, window: 2, merge: lolcats, softmax_layers: [1], seed: 5}", 3);
    fl_mechanism_find(b.mechanism, 2, "hedgehog.query")[7] = 0.125f;
    fl_hash before = fl_mechanism_hash(b.mechanism);
    b.mechanism->fit = FL_FIT_LAYERS;
    assert_int_equal(fl_mechanism_save(b.mechanism, path, &error), FL_OK);
    snprintf(yaml, sizeof yaml,
             "{rule: hedgehog, window: 2, merge: lolcats, softmax_layers: [1], mechanism: %s}", path);
    bound loaded = create(yaml, 3);
    assert_string_equal(fl_mechanism_hash(loaded.mechanism).text, before.text);
    assert_int_equal(loaded.mechanism->fit, FL_FIT_LAYERS);
    for (size_t layer = 0; layer < 3; layer += 2) {
        assert_memory_equal(loaded.mechanism->layer[layer], b.mechanism->layer[layer],
                            b.mechanism->layer_floats * sizeof(float));
    }
    fl_mechanism_find(loaded.mechanism, 0, "hedgehog.key")[0] += 1.0f;
    assert_string_not_equal(fl_mechanism_hash(loaded.mechanism).text, before.text);
    destroy(&b);
    destroy(&loaded);
    fl_temporary_remove(directory);
}

static void expect_load_error(const bound *b, const char *path, const char *const *words, size_t count) {
    fl_error error = {0};
    fl_hash before = fl_mechanism_hash(b->mechanism);
    assert_int_not_equal(fl_mechanism_load(b->mechanism, path, &error), FL_OK);
    for (size_t i = 0; i < count; i++) {
        if (strstr(error.message, words[i]) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", error.message, words[i]);
    }
    assert_string_equal(fl_mechanism_hash(b->mechanism).text, before.text);
}

static void test_a_file_that_does_not_fit_is_refused_with_all_its_faults(void **state) {
    (void)state;
    fl_error error = {0};
    const char *directory = fl_temporary_directory();
    char path[512];
    snprintf(path, sizeof path, "%s/m.safetensors", directory);
    bound b = create("{rule: delta}", 1);
    static float values[32 * 5];
    const fl_checkpoint_write_tensor wrong[] = {
        {.name = "layers.0.beta.weight", .data = values, .rank = 2, .shape = {32, 5}},
        {.name = "layers.0.gate.bias", .data = values, .rank = 1, .shape = {4}},
    };
    assert_int_equal(fl_checkpoint_write_safetensors(path, wrong, 2, NULL, NULL, 0, &error), FL_OK);
    expect_load_error(
        &b, path,
        (const char *const[]){"m.safetensors", "layers.0.beta.weight has shape [32][5], expected [32][4]",
                              "layers.0.beta.bias is missing", "layers.0.gate.bias is not a parameter"},
        4);
    static float poisoned[32 * 4];
    poisoned[17] = NAN;
    const fl_checkpoint_write_tensor infinite[] = {
        {.name = "layers.0.beta.weight", .data = poisoned, .rank = 2, .shape = {32, 4}},
        {.name = "layers.0.beta.bias", .data = values, .rank = 1, .shape = {4}},
    };
    assert_int_equal(fl_checkpoint_write_safetensors(path, infinite, 2, NULL, NULL, 0, &error), FL_OK);
    expect_load_error(&b, path,
                      (const char *const[]){"layers.0.beta.weight holds a value that is not finite"}, 1);
    snprintf(path, sizeof path, "%s/absent.safetensors", directory);
    expect_load_error(&b, path, (const char *const[]){"absent.safetensors"}, 1);
    destroy(&b);
    fl_temporary_remove(directory);
}

/* A hand-made file: two tensors stored as BF16 and F64. */
static void test_other_float_types_are_read(void **state) {
    (void)state;
    fl_error error = {0};
    const char *directory = fl_temporary_directory();
    char path[512];
    static unsigned char file[8 + 256 + 32 * 4 * 2 + 4 * 8];
    snprintf(path, sizeof path, "%s/m.safetensors", directory);
    memset(file, ' ', sizeof file);
    char header[256];
    int used =
        snprintf(header, sizeof header,
                 "{\"layers.0.beta.weight\":{\"dtype\":\"BF16\",\"shape\":[32,4],\"data_offsets\":[0,256]},"
                 "\"layers.0.beta.bias\":{\"dtype\":\"F64\",\"shape\":[4],\"data_offsets\":[256,288]}}");
    assert_true(used > 0 && used < 256);
    memcpy(file + 8, header, (size_t)used);
    const uint64_t header_bytes = 256;
    memcpy(file, &header_bytes, sizeof header_bytes);
    unsigned char *data = file + 8 + 256;
    memset(data, 0, 256 + 32);
    data[2 * 5 + 1] = 0x3f; /* bfloat16 1.5 = 0x3fc0 */
    data[2 * 5] = 0xc0;
    const double bias[4] = {0.0, 0.25, -2.0, 0.0};
    memcpy(data + 256, bias, sizeof bias);
    fl_write_file(path, file, sizeof file);
    bound b = create("{rule: delta}", 1);
    if (fl_mechanism_load(b.mechanism, path, &error) != FL_OK) fail_msg("%s", error.message);
    assert_true(fl_mechanism_find(b.mechanism, 0, "beta.weight")[5] == 1.5f);
    assert_true(fl_mechanism_find(b.mechanism, 0, "beta.bias")[2] == -2.0f);
    destroy(&b);
    fl_temporary_remove(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_holds_the_pinned_names_and_shapes),
        cmocka_unit_test(test_initialisation_is_the_papers_and_torchs),
        cmocka_unit_test(test_another_tensor_or_layer_shifts_no_numbers),
        cmocka_unit_test(test_saving_and_loading_keeps_every_bit_and_the_hash),
        cmocka_unit_test(test_a_file_that_does_not_fit_is_refused_with_all_its_faults),
        cmocka_unit_test(test_other_float_types_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
