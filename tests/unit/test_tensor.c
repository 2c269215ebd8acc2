/* Stored types widened to float32: every code of every type against the format's formula in float64. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/model/checkpoint.h"
#include "harness/model/stored_type.h"
#include "harness/model/tensor.h"
#include "tests/support/fixture.h"

/* IEEE half precision by its definition. */
static double half_value(uint16_t code) {
    int exponent = (code >> 10) & 31, mantissa = code & 1023;
    double magnitude = exponent == 31  ? (mantissa == 0 ? INFINITY : NAN)
                       : exponent == 0 ? ldexp(mantissa, -24)
                                       : ldexp(1024 + mantissa, exponent - 25);
    return code & 0x8000 ? -magnitude : magnitude;
}

static void assert_same_value(float value, double expected, const char *what, size_t at) {
    float rounded = (float)expected;
    if (isnan(value) && isnan(rounded)) return;
    if (memcmp(&value, &rounded, sizeof value) == 0) return;
    fail_msg("%s, element %zu: %.9g, expected %.9g", what, at, (double)value, (double)rounded);
}

static fl_tensor matrix(const void *data, fl_dtype type, size_t rows, size_t columns) {
    return (fl_tensor){
        .data = data, .type = type, .rank = 2, .shape = {rows, columns}, .rows = rows, .columns = columns};
}

static void test_every_half_precision_code_is_exact(void **state) {
    (void)state;
    enum { CODES = 65536 };
    static uint16_t codes[CODES];
    static float out[CODES];
    for (size_t i = 0; i < CODES; i++) codes[i] = (uint16_t)i;
    fl_tensor tensor = matrix(codes, FL_DTYPE_F16, 1, CODES);
    fl_tensor_widen_row(&tensor, 0, out);
    for (size_t i = 0; i < CODES; i++) assert_same_value(out[i], half_value(codes[i]), "F16", i);
    tensor.type = FL_DTYPE_BF16;
    fl_tensor_widen_row(&tensor, 0, out);
    for (size_t i = 0; i < CODES; i++) {
        uint32_t bits = (uint32_t)i << 16;
        assert_memory_equal(&out[i], &bits, sizeof bits);
    }
}

static const uint16_t scales[] = {
    0x3c00,                 /* 1 */
    0x2e66,                 /* about 0.1 */
    0xae66,                 /* negative */
    0x0001,                 /* smallest subnormal */
    0x83ff,                 /* largest subnormal, negative */
    0x0400,                 /* smallest normal */
    0x7bff,                 /* 65504 */
    0x0000, 0x8000, 0x7c00, /* infinity */
    0xfc00, 0x7e00,
};
enum { SCALES = sizeof scales / sizeof scales[0] };

typedef struct block_format {
    fl_dtype type;
    size_t bytes, codes_at, high_at; /* high_at 0: no fifth bits */
    int offset;
    bool has_minimum;
} block_format;

static const block_format formats[] = {
    {FL_DTYPE_Q4_0, 18, 2, 0, 8, false},
    {FL_DTYPE_Q4_1, 20, 4, 0, 0, true},
    {FL_DTYPE_Q5_0, 22, 6, 2, 16, false},
    {FL_DTYPE_Q5_1, 24, 8, 4, 0, true},
};

/* Element j has code codes[j]. */
static void pack(const block_format *format, uint16_t scale, uint16_t minimum, const int *codes,
                 unsigned char *block) {
    memset(block, 0, format->bytes);
    memcpy(block, &scale, 2);
    if (format->has_minimum) memcpy(block + 2, &minimum, 2);
    for (int j = 0; j < 32; j++) {
        int nibble = codes[j] & 15;
        block[format->codes_at + (size_t)(j % 16)] |= (unsigned char)(j < 16 ? nibble : nibble << 4);
        if (format->high_at > 0 && codes[j] >= 16) {
            block[format->high_at + (size_t)(j / 8)] |= (unsigned char)(1 << (j % 8));
        }
    }
}

static void check_blocks(const block_format *format, uint16_t scale, uint16_t minimum) {
    int levels = format->high_at > 0 ? 32 : 16;
    /* Rotating the codes puts every code at every place. */
    for (int turn = 0; turn < levels; turn++) {
        int codes[32];
        unsigned char block[24];
        float out[32];
        for (int j = 0; j < 32; j++) codes[j] = (j + turn) % levels;
        pack(format, scale, minimum, codes, block);
        fl_tensor tensor = matrix(block, format->type, 1, 32);
        fl_tensor_widen_row(&tensor, 0, out);
        for (size_t j = 0; j < 32; j++) {
            double expected = half_value(scale) * (codes[j] - format->offset);
            if (format->has_minimum) expected += half_value(minimum);
            assert_same_value(out[j], expected, fl_dtype_name(format->type), j);
        }
    }
}

static void test_every_code_of_the_small_block_types_at_every_place(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        for (size_t s = 0; s < SCALES; s++) {
            for (size_t m = 0; m < (formats[i].has_minimum ? (size_t)SCALES : 1); m++) {
                check_blocks(&formats[i], scales[s], scales[m]);
            }
        }
    }
}

static void test_every_code_of_q8_0(void **state) {
    (void)state;
    for (size_t s = 0; s < SCALES; s++) {
        unsigned char blocks[8][34];
        float out[256];
        for (size_t i = 0; i < 8; i++) {
            memcpy(blocks[i], &scales[s], 2);
            for (size_t j = 0; j < 32; j++) blocks[i][2 + j] = (unsigned char)(32 * i + j);
        }
        fl_tensor tensor = matrix(blocks, FL_DTYPE_Q8_0, 1, 256);
        fl_tensor_widen_row(&tensor, 0, out);
        for (size_t j = 0; j < 256; j++) {
            double code = j < 128 ? (double)j : (double)j - 256.0;
            assert_same_value(out[j], half_value(scales[s]) * code, "Q8_0", j);
        }
    }
}

static void test_rows_begin_where_the_type_says(void **state) {
    (void)state;
    enum { ROWS = 5, COLUMNS = 256 };
    for (int type = 0; type < FL_DTYPE_COUNT; type++) {
        size_t row_bytes = fl_dtype_row_bytes((fl_dtype)type, COLUMNS);
        assert_int_equal(row_bytes, COLUMNS / fl_dtype_block_elements((fl_dtype)type) *
                                        fl_dtype_block_bytes((fl_dtype)type));
        unsigned char storage[ROWS * COLUMNS * 4 + 1];
        for (size_t i = 0; i < sizeof storage; i++) storage[i] = (unsigned char)(37 * i % 113);
        /* One byte off: nothing may rely on alignment. */
        fl_tensor tensor = matrix(storage + 1, (fl_dtype)type, ROWS, COLUMNS);
        float together[ROWS][COLUMNS], alone[COLUMNS];
        fl_tensor_widen_rows(&tensor, 1, ROWS - 1, together[1]);
        assert_int_equal(fl_tensor_bytes(&tensor), ROWS * row_bytes);
        for (size_t row = 1; row < ROWS; row++) {
            fl_tensor single = matrix(storage + 1 + row * row_bytes, (fl_dtype)type, 1, COLUMNS);
            fl_tensor_widen_row(&single, 0, alone);
            assert_memory_equal(alone, together[row], sizeof alone);
        }
    }
}

/* What the GGUF converter does to query and key rows: [heads][2][half][...] -> [heads][half][2][...]. */
static void interleave(const unsigned char *from, unsigned char *to, size_t heads, size_t half, size_t unit) {
    for (size_t head = 0; head < heads; head++) {
        for (size_t side = 0; side < 2; side++) {
            for (size_t i = 0; i < half; i++) {
                size_t source = (head * 2 + side) * half + i, target = (head * half + i) * 2 + side;
                memcpy(to + target * unit, from + source * unit, unit);
            }
        }
    }
}

static void test_interleaved_rows_come_back_in_their_order(void **state) {
    (void)state;
    enum { HEADS = 3, HALF = 5, ROWS = HEADS * 2 * HALF, COLUMNS = 256 };
    for (int type = 0; type < FL_DTYPE_COUNT; type++) {
        size_t unit = fl_dtype_row_bytes((fl_dtype)type, COLUMNS);
        unsigned char plain[ROWS * COLUMNS * 4], stored[sizeof plain];
        for (size_t i = 0; i < sizeof plain; i++) plain[i] = (unsigned char)(41 * i % 109);
        interleave(plain, stored, HEADS, HALF, unit);
        fl_tensor first = matrix(plain, (fl_dtype)type, ROWS, COLUMNS),
                  second = matrix(stored, (fl_dtype)type, ROWS, COLUMNS);
        second.permuted_heads = HEADS;
        float expected[ROWS * COLUMNS], found[ROWS * COLUMNS];
        fl_tensor_widen_rows(&first, 0, ROWS, expected);
        fl_tensor_widen_rows(&second, 0, ROWS, found);
        assert_memory_equal(expected, found, sizeof expected);
        second.permuted_heads = 0;
        fl_tensor_widen_rows(&second, 0, ROWS, found);
        assert_memory_not_equal(expected, found, sizeof expected);
    }
}

static void test_interleaved_biases_come_back_in_their_order(void **state) {
    (void)state;
    enum { HEADS = 4, HALF = 8, LENGTH = HEADS * 2 * HALF };
    float plain[LENGTH], stored[LENGTH], found[LENGTH];
    for (size_t i = 0; i < LENGTH; i++) plain[i] = (float)i;
    interleave((const unsigned char *)plain, (unsigned char *)stored, HEADS, HALF, sizeof(float));
    fl_tensor tensor = {.data = stored,
                        .type = FL_DTYPE_F32,
                        .rank = 1,
                        .shape = {LENGTH},
                        .rows = 1,
                        .columns = LENGTH,
                        .permuted_heads = HEADS};
    fl_tensor_widen_row(&tensor, 0, found);
    assert_memory_equal(found, plain, sizeof plain);

    /* A quantised bias: two blocks, element i of the stored vector has the value i - 32. */
    unsigned char blocks[2][34] = {{0x00, 0x3c}, {0x00, 0x3c}};
    for (size_t i = 0; i < LENGTH; i++) blocks[i / 32][2 + i % 32] = (unsigned char)((int)i - 32);
    float numbered[LENGTH], expected[LENGTH];
    for (size_t i = 0; i < LENGTH; i++) numbered[i] = (float)i;
    interleave((const unsigned char *)numbered, (unsigned char *)stored, HEADS, HALF, sizeof(float));
    for (size_t i = 0; i < LENGTH; i++) expected[(size_t)stored[i]] = (float)((int)i - 32);
    tensor.data = blocks;
    tensor.type = FL_DTYPE_Q8_0;
    fl_tensor_widen_row(&tensor, 0, found);
    assert_memory_equal(found, expected, sizeof expected);
}

static void test_the_type_table_holds_the_published_sizes(void **state) {
    (void)state;
    static const struct {
        uint32_t id;
        const char *name;
        size_t elements, bytes;
    } published[] = {
        {0, "F32", 1, 4},       {1, "F16", 1, 2},       {2, "Q4_0", 32, 18},    {3, "Q4_1", 32, 20},
        {6, "Q5_0", 32, 22},    {7, "Q5_1", 32, 24},    {8, "Q8_0", 32, 34},    {10, "Q2_K", 256, 84},
        {11, "Q3_K", 256, 110}, {12, "Q4_K", 256, 144}, {13, "Q5_K", 256, 176}, {14, "Q6_K", 256, 210},
        {15, "Q8_K", 256, 292}, {24, "I8", 1, 1},       {28, "F64", 1, 8},      {30, "BF16", 1, 2}};
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        const fl_stored_type *type = fl_stored_type_of_gguf(published[i].id);
        assert_non_null(type);
        assert_string_equal(type->name, published[i].name);
        assert_int_equal(type->block_elements, published[i].elements);
        assert_int_equal(type->block_bytes, published[i].bytes);
    }
    static const uint32_t removed[] = {4, 5, 31, 32, 33, 36, 37, 38, 1000};
    for (size_t i = 0; i < sizeof removed / sizeof removed[0]; i++)
        assert_null(fl_stored_type_of_gguf(removed[i]));
    assert_int_equal(fl_stored_type_dtype(fl_stored_type_of_safetensors("BF16")), FL_DTYPE_BF16);
    assert_int_equal(fl_stored_type_dtype(fl_stored_type_of_safetensors("F64")), FL_DTYPE_COUNT);
    assert_null(fl_stored_type_of_safetensors("Q4_0"));
    assert_null(fl_stored_type_of_safetensors("F7"));
}

/* ggml's own values, bit for bit: usual rows, edge cases (zeros, a constant, 1e-8, all negative ...), a
 * tensor of rank 3. */
static void test_k_quants_widen_to_the_published_values(void **state) {
    (void)state;
    static const char *const kinds[] = {"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"};
    static const char *const names[] = {"usual.weight", "edges.weight", "stack.weight"};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        char path[96];
        fl_checkpoint *stored = NULL, *expected = NULL;
        snprintf(path, sizeof path, "reference2/gguf/types/%s.gguf", kinds[k]);
        assert_int_equal(fl_checkpoint_open(fl_fixture_path(path), &stored, NULL), FL_OK);
        snprintf(path, sizeof path, "reference2/gguf/types/%s.safetensors", kinds[k]);
        assert_int_equal(fl_checkpoint_open(fl_fixture_path(path), &expected, NULL), FL_OK);
        for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
            fl_tensor tensor, reference;
            float found[512], wanted[512];
            assert_int_equal(fl_checkpoint_find(stored, names[n], &tensor, NULL), FL_OK);
            assert_int_equal(fl_checkpoint_find(expected, names[n], &reference, NULL), FL_OK);
            assert_string_equal(fl_dtype_name(tensor.type), kinds[k]);
            assert_true(tensor.rows == reference.rows && tensor.columns == reference.columns &&
                        tensor.columns <= 512);
            for (size_t row = 0; row < tensor.rows; row++) {
                fl_tensor_widen_row(&tensor, row, found);
                fl_tensor_widen_row(&reference, row, wanted);
                assert_memory_equal(found, wanted, tensor.columns * sizeof(float));
            }
        }
        fl_checkpoint_close(stored);
        fl_checkpoint_close(expected);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_half_precision_code_is_exact),
        cmocka_unit_test(test_every_code_of_the_small_block_types_at_every_place),
        cmocka_unit_test(test_every_code_of_q8_0),
        cmocka_unit_test(test_rows_begin_where_the_type_says),
        cmocka_unit_test(test_interleaved_rows_come_back_in_their_order),
        cmocka_unit_test(test_interleaved_biases_come_back_in_their_order),
        cmocka_unit_test(test_the_type_table_holds_the_published_sizes),
        cmocka_unit_test(test_k_quants_widen_to_the_published_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
