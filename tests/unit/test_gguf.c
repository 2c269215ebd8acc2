/* GGUF: typed metadata, tensors, split files; every kind of broken file is refused with file and place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/model/checkpoint.h"
#include "harness/model/gguf.h"
#include "tests/support/checkpoint_builder.h"
#include "tests/support/fixture.h"

enum { F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q4_K = 12, Q8_K = 15, BF16 = 30 };

static void assert_refused(const char *path, fl_status status, const char *first, const char *second) {
    fl_checkpoint *checkpoint = NULL;
    fl_error error = {FL_OK, ""};
    fl_status found = fl_checkpoint_open(path, &checkpoint, &error);
    if (found == FL_OK) fail_msg("%s was accepted (expected: %s)", path, first);
    assert_null(checkpoint);
    if (found != status) fail_msg("status %s, message: %s", fl_status_name(found), error.message);
    if (strstr(error.message, first) == NULL || strstr(error.message, second) == NULL) {
        fail_msg("\"%s\" or \"%s\" is not in: %s", first, second, error.message);
    }
}

static void begin_array(fl_bytes *out, const char *key, uint32_t element_type, uint64_t count) {
    fl_gguf_add_text(out, key);
    fl_bytes_add_u32(out, 9);
    fl_bytes_add_u32(out, element_type);
    fl_bytes_add_u64(out, count);
}

static void begin_value(fl_bytes *out, const char *key, uint32_t type) {
    fl_gguf_add_text(out, key);
    fl_bytes_add_u32(out, type);
}

/* One pair of every value type, and arrays of strings, integers, floats and booleans. */
static size_t add_every_type(fl_bytes *out) {
    begin_value(out, "u8", 0), fl_bytes_add_u8(out, 200);
    begin_value(out, "i8", 1), fl_bytes_add_u8(out, (uint8_t)-100);
    begin_value(out, "u16", 2), fl_bytes_add_u16(out, 60000);
    begin_value(out, "i16", 3), fl_bytes_add_u16(out, (uint16_t)-30000);
    begin_value(out, "u32", 4), fl_bytes_add_u32(out, 4000000000u);
    begin_value(out, "i32", 5), fl_bytes_add_u32(out, (uint32_t)-2000000000);
    begin_value(out, "f32", 6), fl_bytes_add_f32(out, 0.5f);
    begin_value(out, "bool", 7), fl_bytes_add_u8(out, 1);
    fl_gguf_add_string(out, "string", "caf\xc3\xa9");
    begin_value(out, "u64", 10), fl_bytes_add_u64(out, UINT64_MAX);
    begin_value(out, "i64", 11), fl_bytes_add_u64(out, (uint64_t)INT64_MIN);
    begin_value(out, "f64", 12), fl_bytes_add_f64(out, 1e300);
    begin_array(out, "strings", 8, 3);
    fl_gguf_add_text(out, "one"), fl_gguf_add_text(out, ""), fl_gguf_add_text(out, "three");
    begin_array(out, "integers", 5, 2), fl_bytes_add_u32(out, (uint32_t)-1), fl_bytes_add_u32(out, 7);
    begin_array(out, "floats", 6, 2), fl_bytes_add_f32(out, -1.5f), fl_bytes_add_f32(out, 2.0f);
    begin_array(out, "bools", 7, 2), fl_bytes_add_u8(out, 0), fl_bytes_add_u8(out, 1);
    begin_array(out, "nothing", 8, 0);
    return 17;
}

static fl_gguf *open_pairs(const char *name, const fl_bytes *pairs, size_t count) {
    fl_bytes file = {0};
    fl_gguf *gguf = NULL;
    fl_error error = {FL_OK, ""};
    fl_build_gguf(&file, pairs, count, NULL, 0, 32);
    if (fl_gguf_open(fl_put_file(fl_test_folder(), name, &file), &gguf, &error) != FL_OK)
        fail_msg("%s", error.message);
    fl_bytes_free(&file);
    return gguf;
}

static void test_every_value_type_is_found_as_what_it_is(void **state) {
    (void)state;
    fl_bytes pairs = {0};
    size_t count = add_every_type(&pairs);
    fl_gguf *gguf = open_pairs("values.gguf", &pairs, count);
    fl_bytes_free(&pairs);
    assert_int_equal(fl_gguf_key_count(gguf), count);
    static const struct {
        const char *key;
        double value;
    } numbers[] = {{"u8", 200},
                   {"i8", -100},
                   {"u16", 60000},
                   {"i16", -30000},
                   {"u32", 4e9},
                   {"i32", -2000000000},
                   {"f32", 0.5},
                   {"u64", 18446744073709551615.0},
                   {"i64", -9223372036854775808.0},
                   {"f64", 1e300}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        double number = 0.0;
        uint64_t whole = 0;
        assert_true(fl_gguf_find_number(gguf, numbers[i].key, &number));
        assert_true(number == numbers[i].value);
        bool is_whole = numbers[i].key[0] != 'f' && numbers[i].value >= 0;
        assert_int_equal(fl_gguf_find_unsigned(gguf, numbers[i].key, &whole), is_whole);
    }
    uint64_t largest = 0;
    assert_true(fl_gguf_find_unsigned(gguf, "u64", &largest) && largest == UINT64_MAX);
    const char *text;
    size_t bytes;
    assert_true(fl_gguf_find_string(gguf, "string", &text, &bytes) && bytes == 5 &&
                memcmp(text, "caf\xc3\xa9", 5) == 0);
    bool flag = false;
    assert_true(fl_gguf_find_bool(gguf, "bool", &flag) && flag);
    /* There, but of another kind. */
    assert_true(fl_gguf_has(gguf, "string") && !fl_gguf_has(gguf, "strin") && !fl_gguf_has(gguf, "string2"));
    assert_false(fl_gguf_find_bool(gguf, "u8", &flag));
    assert_false(fl_gguf_find_string(gguf, "u8", &text, &bytes));
    assert_false(fl_gguf_find_unsigned(gguf, "bool", &largest));
    assert_false(fl_gguf_find_number(gguf, "integers", &(double){0}));
    fl_gguf_close(gguf);
}

static void test_arrays_give_their_elements(void **state) {
    (void)state;
    fl_bytes pairs = {0};
    size_t count = add_every_type(&pairs), n = 0;
    fl_gguf *gguf = open_pairs("arrays.gguf", &pairs, count);
    fl_bytes_free(&pairs);
    const char *text;
    size_t bytes;
    int64_t whole;
    double number;
    assert_true(fl_gguf_array_count(gguf, "strings", &n) && n == 3);
    assert_true(fl_gguf_array_string(gguf, "strings", 2, &text, &bytes) && bytes == 5 &&
                memcmp(text, "three", 5) == 0);
    assert_true(fl_gguf_array_string(gguf, "strings", 1, &text, &bytes) && bytes == 0);
    assert_false(fl_gguf_array_string(gguf, "strings", 3, &text, &bytes));
    assert_false(fl_gguf_array_string(gguf, "integers", 0, &text, &bytes));
    assert_true(fl_gguf_array_integer(gguf, "integers", 0, &whole) && whole == -1);
    assert_true(fl_gguf_array_integer(gguf, "integers", 1, &whole) && whole == 7);
    assert_false(fl_gguf_array_integer(gguf, "integers", 2, &whole));
    assert_false(fl_gguf_array_integer(gguf, "strings", 0, &whole));
    assert_false(fl_gguf_array_integer(gguf, "floats", 0, &whole));
    assert_true(fl_gguf_array_number(gguf, "floats", 0, &number) && number == -1.5);
    assert_true(fl_gguf_array_number(gguf, "integers", 0, &number) && number == -1.0);
    assert_true(fl_gguf_array_count(gguf, "nothing", &n) && n == 0);
    assert_false(fl_gguf_array_count(gguf, "u8", &n));
    fl_gguf_close(gguf);
}

/* Two Q8_0 rows, a vector with padding behind it, a listed-only type. */
static void build_small(fl_bytes *out, size_t alignment, uint32_t stated_alignment) {
    fl_bytes pairs = {0};
    static unsigned char rows[2 * 34] = {0x00, 0x3c, 1, 2, 3}, super[292];
    static const float vector[3] = {1.0f, 2.0f, 3.0f};
    const fl_gguf_build_tensor tensors[] = {{"rows", Q8_0, 2, {2, 32}, rows, sizeof rows},
                                            {"vector", F32, 1, {3}, vector, sizeof vector},
                                            {"super", Q8_K, 2, {1, 256}, super, sizeof super},
                                            {"cube", F32, 3, {1, 3, 1}, vector, sizeof vector}};
    fl_gguf_add_string(&pairs, "general.architecture", "llama");
    size_t count = 1;
    if (stated_alignment != 32) {
        fl_gguf_add_u32(&pairs, "general.alignment", stated_alignment);
        count++;
    }
    fl_build_gguf(out, &pairs, count, tensors, 4, alignment);
    fl_bytes_free(&pairs);
}

static void test_tensors_are_listed_with_reversed_dimensions(void **state) {
    (void)state;
    static const uint32_t alignments[] = {32, 8, 64, 4096};
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
        fl_bytes file = {0};
        build_small(&file, alignments[i], alignments[i]);
        fl_checkpoint *checkpoint = NULL;
        fl_error error = {FL_OK, ""};
        if (fl_checkpoint_open(fl_put_file(fl_test_folder(), "small.gguf", &file), &checkpoint, &error) !=
            FL_OK) {
            fail_msg("%s", error.message);
        }
        assert_int_equal(fl_checkpoint_format_of(checkpoint), FL_CHECKPOINT_GGUF);
        assert_non_null(fl_checkpoint_gguf(checkpoint));
        fl_tensor tensor;
        float row[32];
        assert_int_equal(fl_checkpoint_find(checkpoint, "rows", &tensor, NULL), FL_OK);
        assert_true(tensor.rows == 2 && tensor.columns == 32 && tensor.shape[0] == 2 &&
                    tensor.shape[1] == 32);
        fl_tensor_widen_row(&tensor, 0, row);
        assert_true(row[0] == 1.0f && row[1] == 2.0f && row[2] == 3.0f && row[3] == 0.0f);
        assert_int_equal(fl_checkpoint_find(checkpoint, "vector", &tensor, NULL), FL_OK);
        assert_true(tensor.rank == 1 && tensor.rows == 1 && tensor.columns == 3);
        fl_tensor_widen_row(&tensor, 0, row);
        assert_true(row[0] == 1.0f && row[2] == 3.0f);
        assert_int_equal(fl_checkpoint_find(checkpoint, "super", &tensor, &error), FL_ERROR_UNSUPPORTED);
        assert_non_null(strstr(error.message, "tensor super has type Q8_K"));
        const fl_checkpoint_entry *cube = fl_checkpoint_lookup(checkpoint, "cube");
        assert_true(cube->tensor.rank == 3 && cube->tensor.shape[1] == 3 && cube->tensor.rows == 3);
        fl_checkpoint_close(checkpoint);
        fl_bytes_free(&file);
    }
}

/* A file with nothing but a header that says `tensors` and `pairs`, then the given bytes. */
static void build_raw(fl_bytes *out, uint32_t version, uint64_t tensors, uint64_t pairs,
                      const fl_bytes *rest) {
    out->count = 0;
    fl_bytes_add(out, "GGUF", 4);
    fl_bytes_add_u32(out, version);
    fl_bytes_add_u64(out, tensors);
    fl_bytes_add_u64(out, pairs);
    fl_bytes_add(out, rest->data, rest->count);
}

static void test_other_versions_and_byte_orders_are_named(void **state) {
    (void)state;
    static const struct {
        uint32_t version;
        const char *expected;
    } cases[] = {{1, "version 1"},
                 {4, "version 4"},
                 {0, "version 0"},
                 {0x03000000u, "wrong endian"},
                 {0x02000000u, "wrong endian"}};
    fl_bytes file = {0}, none = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build_raw(&file, cases[i].version, 0, 0, &none);
        assert_refused(fl_put_file(fl_test_folder(), "version.gguf", &file), FL_ERROR_UNSUPPORTED,
                       cases[i].expected, "byte 4");
    }
    build_raw(&file, 2, 0, 0, &none);
    fl_gguf *gguf = NULL;
    assert_int_equal(fl_gguf_open(fl_put_file(fl_test_folder(), "version2.gguf", &file), &gguf, NULL), FL_OK);
    fl_gguf_close(gguf);
    file.data[0] = 'X';
    assert_refused(fl_put_file(fl_test_folder(), "magic.gguf", &file), FL_ERROR_FORMAT, "not a GGUF file",
                   "byte 0");
    fl_bytes_free(&file);
}

static void test_counts_and_lengths_are_checked_before_memory_is_taken(void **state) {
    (void)state;
    fl_bytes file = {0}, rest = {0};
    fl_bytes_add_zeros(&rest, 64);
    build_raw(&file, 3, 0, UINT64_MAX, &rest);
    assert_refused(fl_put_file(fl_test_folder(), "pairs.gguf", &file), FL_ERROR_FORMAT, "more keys than",
                   "byte 24");
    build_raw(&file, 3, UINT64_MAX / 33, 0, &rest);
    assert_refused(fl_put_file(fl_test_folder(), "tensors.gguf", &file), FL_ERROR_FORMAT, "more tensors than",
                   "byte 24");
    rest.count = 0;
    fl_bytes_add_u64(&rest, UINT64_MAX);
    fl_bytes_add_zeros(&rest, 64);
    build_raw(&file, 3, 0, 1, &rest);
    assert_refused(fl_put_file(fl_test_folder(), "key.gguf", &file), FL_ERROR_FORMAT,
                   "a string of 18446744073709551615 bytes", "byte 24");
    static const uint64_t counts[] = {1ull << 40, UINT64_MAX, 1ull << 30, 100};
    static const uint32_t types[] = {0, 4, 8, 12};
    for (size_t i = 0; i < 4; i++) {
        for (size_t j = 0; j < 4; j++) {
            rest.count = 0;
            begin_array(&rest, "a", types[j], counts[i]);
            fl_bytes_add_zeros(&rest, 40);
            build_raw(&file, 3, 0, 1, &rest);
            fl_gguf *gguf = NULL;
            fl_error error = {FL_OK, ""};
            assert_int_equal(fl_gguf_open(fl_put_file(fl_test_folder(), "array.gguf", &file), &gguf, &error),
                             FL_ERROR_FORMAT);
            assert_non_null(strstr(error.message, "array.gguf: byte"));
        }
    }
    fl_bytes_free(&file);
    fl_bytes_free(&rest);
}

static void add_long_key(fl_bytes *out) {
    fl_bytes_add_u64(out, 65536);
    for (int i = 0; i < 65536; i++) fl_bytes_add_u8(out, 'k');
    fl_bytes_add_u32(out, 0), fl_bytes_add_u8(out, 1);
}

static void add_duplicate_key(fl_bytes *out) {
    fl_gguf_add_u32(out, "general.twice", 1);
    fl_gguf_add_u32(out, "general.once", 1);
    fl_gguf_add_u32(out, "general.twice", 2);
}

static void add_empty_key(fl_bytes *out) {
    fl_gguf_add_u32(out, "", 1);
}
static void add_control_key(fl_bytes *out) {
    fl_gguf_add_u32(out, "a\nb", 1);
}
static void add_unknown_type(fl_bytes *out) {
    begin_value(out, "a", 13), fl_bytes_add_zeros(out, 64);
}
static void add_bad_bool(fl_bytes *out) {
    begin_value(out, "a", 7), fl_bytes_add_u8(out, 2), fl_bytes_add_zeros(out, 64);
}
static void add_nested_array(fl_bytes *out) {
    begin_array(out, "a", 9, 1), fl_bytes_add_zeros(out, 64);
}
static void add_unknown_element(fl_bytes *out) {
    begin_array(out, "a", 77, 1), fl_bytes_add_zeros(out, 64);
}
static void add_bad_bools(fl_bytes *out) {
    begin_array(out, "a", 7, 2), fl_bytes_add_u8(out, 1), fl_bytes_add_u8(out, 9);
}
static void add_alignment_zero(fl_bytes *out) {
    fl_gguf_add_u32(out, "general.alignment", 0);
}
static void add_alignment_odd(fl_bytes *out) {
    fl_gguf_add_u32(out, "general.alignment", 24);
}
static void add_alignment_text(fl_bytes *out) {
    fl_gguf_add_string(out, "general.alignment", "32");
}
static void add_alignment_huge(fl_bytes *out) {
    begin_value(out, "general.alignment", 10), fl_bytes_add_u64(out, 1ull << 63);
}

static void test_broken_keys_are_refused(void **state) {
    (void)state;
    static const struct {
        void (*add)(fl_bytes *out);
        uint64_t pairs;
        const char *expected, *place;
    } cases[] = {
        {add_long_key, 1, "a string of 65536 bytes", "byte 24"},
        {add_duplicate_key, 3, "key general.twice is given twice", "keys.gguf"},
        {add_empty_key, 1, "a key is empty", "byte 24"},
        {add_control_key, 1, "control byte", "byte 24"},
        {add_unknown_type, 1, "value type 13 is unknown", "byte 33"},
        {add_bad_bool, 1, "boolean", "byte 38"},
        {add_nested_array, 1, "an array of arrays", "byte 41"},
        {add_unknown_element, 1, "value type 77 is unknown", "byte 37"},
        {add_bad_bools, 1, "boolean", "byte"},
        {add_alignment_zero, 1, "general.alignment: 0 is not a power of two", "keys.gguf"},
        {add_alignment_odd, 1, "general.alignment: 24 is not", "keys.gguf"},
        {add_alignment_text, 1, "general.alignment is not a whole number", "keys.gguf"},
        {add_alignment_huge, 1, "is not a power of two up to 2^30", "keys.gguf"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fl_bytes file = {0}, rest = {0};
        cases[i].add(&rest);
        build_raw(&file, 3, 0, cases[i].pairs, &rest);
        assert_refused(fl_put_file(fl_test_folder(), "keys.gguf", &file), FL_ERROR_FORMAT, cases[i].expected,
                       cases[i].place);
        fl_bytes_free(&file);
        fl_bytes_free(&rest);
    }
}

typedef struct info_case {
    const char *name;
    uint32_t dimensions;
    uint64_t sizes[4]; /* fastest first, as in the file */
    uint32_t type;
    uint64_t offset;
    fl_status status;
    const char *expected;
} info_case;

static const info_case infos[] = {
    {"weight", 0, {1}, F32, 0, FL_ERROR_FORMAT, "number of dimensions is not 1 to 4"},
    {"weight", 5, {1, 1, 1, 1}, F32, 0, FL_ERROR_FORMAT, "number of dimensions is not 1 to 4"},
    {"weight", 0xffffffffu, {1, 1, 1, 1}, F32, 0, FL_ERROR_FORMAT, "number of dimensions is not 1 to 4"},
    {"weight", 2, {1ull << 32, 1ull << 32}, F32, 0, FL_ERROR_FORMAT, "overflows"},
    {"weight", 2, {1ull << 31, 1ull << 32}, F32, 0, FL_ERROR_FORMAT, "overflows"},
    {"weight", 1, {UINT64_MAX}, F32, 0, FL_ERROR_FORMAT, "overflows"},
    {"weight", 1, {1ull << 62}, F32, 0, FL_ERROR_FORMAT, "overflows"},
    {"weight", 1, {1ull << 40}, F32, 0, FL_ERROR_FORMAT, "pass the end of the file"},
    {"weight", 1, {65}, F32, 0, FL_ERROR_FORMAT, "pass the end of the file"},
    {"weight", 2, {33, 1}, Q8_0, 0, FL_ERROR_FORMAT, "not whole blocks of Q8_0 (32)"},
    {"weight", 2, {32, 1}, Q4_K, 0, FL_ERROR_FORMAT, "not whole blocks of Q4_K (256)"},
    {"weight", 1, {4}, 4, 0, FL_ERROR_UNSUPPORTED, "type id 4 is unknown or was removed"},
    {"weight", 1, {4}, 31, 0, FL_ERROR_UNSUPPORTED, "type id 31"},
    {"weight", 1, {4}, 0xffffffffu, 0, FL_ERROR_UNSUPPORTED, "type id 4294967295"},
    {"weight", 1, {4}, F32, 32, FL_ERROR_FORMAT, "data offset 32 where 0 was expected"},
    {"weight", 1, {4}, F32, UINT64_MAX - 15, FL_ERROR_FORMAT, "where 0 was expected"},
    {"", 1, {4}, F32, 0, FL_ERROR_FORMAT, "a tensor's name is empty"},
    {"a\tb", 1, {4}, F32, 0, FL_ERROR_FORMAT, "control byte"},
    {"0123456789012345678901234567890123456789012345678901234567890123",
     1,
     {4},
     F32,
     0,
     FL_ERROR_FORMAT,
     "a string of 64 bytes"},
};

static void add_info(fl_bytes *out, const info_case *info) {
    fl_gguf_add_text(out, info->name);
    fl_bytes_add_u32(out, info->dimensions);
    for (uint32_t i = 0; i < info->dimensions && i < 4; i++) fl_bytes_add_u64(out, info->sizes[i]);
    fl_bytes_add_u32(out, info->type);
    fl_bytes_add_u64(out, info->offset);
}

static void test_broken_tensor_infos_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof infos / sizeof infos[0]; i++) {
        fl_bytes file = {0}, rest = {0};
        add_info(&rest, &infos[i]);
        fl_bytes_pad(&rest, 32);
        fl_bytes_add_zeros(&rest, 256 - 24);
        build_raw(&file, 3, 1, 0, &rest);
        const char *place = strcmp(infos[i].name, "weight") == 0 ? "tensor weight" : "byte 24";
        assert_refused(fl_put_file(fl_test_folder(), "info.gguf", &file), infos[i].status, infos[i].expected,
                       place);
        fl_bytes_free(&file);
        fl_bytes_free(&rest);
    }
    fl_bytes file = {0}, rest = {0};
    const info_case first = {"weight", 1, {4}, F32, 0, FL_OK, NULL},
                    second = {"weight", 1, {4}, F32, 32, FL_OK, NULL};
    add_info(&rest, &first);
    add_info(&rest, &second);
    fl_bytes_add_zeros(&rest, 256);
    build_raw(&file, 3, 2, 0, &rest);
    assert_refused(fl_put_file(fl_test_folder(), "twice.gguf", &file), FL_ERROR_FORMAT, "is listed twice",
                   "tensor weight");
    fl_bytes_free(&file);
    fl_bytes_free(&rest);
}

static void test_a_file_cut_anywhere_is_refused(void **state) {
    (void)state;
    fl_bytes pairs = {0}, file = {0};
    static const float data[8] = {1.0f};
    const fl_gguf_build_tensor tensor = {"weight", F32, 2, {2, 4}, data, sizeof data};
    size_t count = add_every_type(&pairs);
    fl_build_gguf(&file, &pairs, count, &tensor, 1, 32);
    size_t whole = file.count;
    for (file.count = 1; file.count < whole; file.count++) {
        fl_checkpoint *checkpoint = NULL;
        fl_error error;
        const char *path = fl_put_file(fl_test_folder(), "cut.gguf", &file);
        if (fl_checkpoint_open(path, &checkpoint, &error) != FL_ERROR_FORMAT)
            fail_msg("accepted at %zu bytes", file.count);
        assert_non_null(strstr(error.message, "cut.gguf"));
    }
    fl_bytes_free(&file);
    fl_bytes_free(&pairs);
}

static void test_no_single_changed_byte_does_harm(void **state) {
    (void)state;
    fl_bytes file = {0};
    build_small(&file, 32, 32);
    for (size_t at = 0; at < 260 && at < file.count; at++) {
        unsigned char original = file.data[at];
        static const unsigned char values[] = {0x00, 0xff, 0x80, 0x01};
        for (size_t i = 0; i < sizeof values; i++) {
            file.data[at] = original ^ values[i];
            fl_checkpoint *checkpoint = NULL;
            fl_error error = {FL_OK, ""};
            fl_status status =
                fl_checkpoint_open(fl_put_file(fl_test_folder(), "flip.gguf", &file), &checkpoint, &error);
            assert_true(status == FL_OK || (checkpoint == NULL && error.message[0] != '\0'));
            fl_checkpoint_close(checkpoint);
        }
        file.data[at] = original;
    }
    fl_bytes_free(&file);
}

static void test_running_out_of_memory_leaves_nothing_behind(void **state) {
    (void)state;
    fl_bytes pairs = {0}, file = {0};
    static const float data[8] = {1.0f};
    const fl_gguf_build_tensor tensor = {"weight", F32, 2, {2, 4}, data, sizeof data};
    size_t count = add_every_type(&pairs);
    fl_build_gguf(&file, &pairs, count, &tensor, 1, 32);
    const char *path = fl_put_file(fl_test_folder(), "memory.gguf", &file);
    for (size_t n = 1;; n++) {
        fl_checkpoint *checkpoint = NULL;
        fl_memory_fail_at(n);
        fl_status status = fl_checkpoint_open(path, &checkpoint, NULL);
        fl_memory_fail_at(0);
        fl_checkpoint_close(checkpoint);
        if (status == FL_OK) {
            assert_true(n > 6);
            break;
        }
        assert_int_equal(status, FL_ERROR_MEMORY);
    }
    fl_bytes_free(&file);
    fl_bytes_free(&pairs);
}

static const char *put_part(const char *name, uint32_t number, uint32_t count, uint32_t total,
                            const char *tensor_name) {
    fl_bytes pairs = {0}, file = {0};
    const float data[1] = {(float)number};
    const fl_gguf_build_tensor tensor = {tensor_name, F32, 1, {1}, data, sizeof data};
    fl_gguf_add_u32(&pairs, "split.no", number);
    fl_gguf_add_u32(&pairs, "split.count", count);
    fl_gguf_add_u32(&pairs, "split.tensors.count", total);
    fl_build_gguf(&file, &pairs, 3, &tensor, 1, 32);
    const char *path = fl_put_file(fl_test_folder(), name, &file);
    fl_bytes_free(&pairs);
    fl_bytes_free(&file);
    return path;
}

static void test_a_split_file_is_one_checkpoint(void **state) {
    (void)state;
    put_part("whole-00002-of-00003.gguf", 1, 3, 3, "b");
    put_part("whole-00003-of-00003.gguf", 2, 3, 3, "c");
    const char *path = put_part("whole-00001-of-00003.gguf", 0, 3, 3, "a");
    fl_checkpoint *checkpoint = NULL;
    fl_error error = {FL_OK, ""};
    if (fl_checkpoint_open(path, &checkpoint, &error) != FL_OK) fail_msg("%s", error.message);
    assert_int_equal(fl_checkpoint_count(checkpoint), 3);
    assert_int_equal(fl_checkpoint_file_count(checkpoint), 3);
    fl_tensor tensor;
    float value = 0.0f;
    assert_int_equal(fl_checkpoint_find(checkpoint, "c", &tensor, NULL), FL_OK);
    fl_tensor_widen_row(&tensor, 0, &value);
    assert_true(value == 2.0f);
    fl_checkpoint_close(checkpoint);
}

static void test_a_split_file_with_a_wrong_part_is_refused(void **state) {
    (void)state;
    const char *path = put_part("lone-00001-of-00002.gguf", 0, 2, 2, "a");
    assert_refused(path, FL_ERROR_IO, "cannot open", "lone-00002-of-00002.gguf");
    put_part("lone-00002-of-00002.gguf", 0, 2, 2, "b");
    assert_refused(path, FL_ERROR_FORMAT, "says it is part 1 of 2, expected part 2",
                   "lone-00002-of-00002.gguf");
    put_part("lone-00002-of-00002.gguf", 1, 2, 2, "a");
    assert_refused(path, FL_ERROR_FORMAT, "tensor a is listed twice", "lone-00001-of-00002.gguf");
    assert_refused(put_part("second-00002-of-00002.gguf", 1, 2, 2, "b"), FL_ERROR_FORMAT,
                   "name the first part", "second-00002-of-00002.gguf");
    assert_refused(put_part("unnumbered.gguf", 0, 2, 2, "a"), FL_ERROR_FORMAT,
                   "must end in -00001-of-00002.gguf", "unnumbered.gguf");
    put_part("total-00002-of-00002.gguf", 1, 2, 5, "b");
    assert_refused(put_part("total-00001-of-00002.gguf", 0, 2, 5, "a"), FL_ERROR_FORMAT,
                   "split.tensors.count says 5", "total-00001-of-00002.gguf");
    assert_refused(put_part("many-00001-of-00002.gguf", 0, 4000000000u, 5, "a"), FL_ERROR_FORMAT,
                   "split.count", "many");
}

static void test_the_default_model_says_what_it_is(void **state) {
    (void)state;
    const char *path = fl_default_model_path();
    if (path == NULL) fl_fixture_skip("test_the_default_model_says_what_it_is", "models/smollm2-135m.gguf");
    fl_gguf *gguf = NULL;
    assert_int_equal(fl_gguf_open(path, &gguf, NULL), FL_OK);
    const char *text;
    size_t bytes, count;
    uint64_t blocks;
    assert_true(fl_gguf_find_string(gguf, "general.architecture", &text, &bytes) && bytes == 5);
    assert_true(fl_gguf_find_unsigned(gguf, "llama.block_count", &blocks) && blocks == 30);
    assert_true(fl_gguf_array_count(gguf, "tokenizer.ggml.tokens", &count) && count == 49152);
    assert_true(fl_gguf_array_string(gguf, "tokenizer.ggml.tokens", 1, &text, &bytes));
    assert_true(bytes == strlen("<|im_start|>") && memcmp(text, "<|im_start|>", bytes) == 0);
    assert_int_equal(fl_gguf_tensor_count(gguf), 272);
    fl_gguf_close(gguf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_value_type_is_found_as_what_it_is),
        cmocka_unit_test(test_arrays_give_their_elements),
        cmocka_unit_test(test_tensors_are_listed_with_reversed_dimensions),
        cmocka_unit_test(test_other_versions_and_byte_orders_are_named),
        cmocka_unit_test(test_counts_and_lengths_are_checked_before_memory_is_taken),
        cmocka_unit_test(test_broken_keys_are_refused),
        cmocka_unit_test(test_broken_tensor_infos_are_refused),
        cmocka_unit_test(test_a_file_cut_anywhere_is_refused),
        cmocka_unit_test(test_no_single_changed_byte_does_harm),
        cmocka_unit_test(test_running_out_of_memory_leaves_nothing_behind),
        cmocka_unit_test(test_a_split_file_is_one_checkpoint),
        cmocka_unit_test(test_a_split_file_with_a_wrong_part_is_refused),
        cmocka_unit_test(test_the_default_model_says_what_it_is),
    };
    return cmocka_run_group_tests(tests, fl_test_folder_make, fl_test_folder_remove);
}
