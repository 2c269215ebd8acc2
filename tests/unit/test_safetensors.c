/* safetensors: what is legal is read, what is not is refused with file and place; shards; writing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/model/checkpoint.h"
#include "tests/support/checkpoint_builder.h"
#include "tests/support/fixture.h"

static const char *put(const char *name, const char *header, size_t data) {
    fl_bytes bytes = {0};
    fl_build_safetensors(&bytes, header, data);
    const char *path = fl_put_file(fl_test_folder(), name, &bytes);
    fl_bytes_free(&bytes);
    return path;
}

static fl_checkpoint *open_good(const char *path) {
    fl_checkpoint *checkpoint = NULL;
    fl_error error = {FL_OK, ""};
    if (fl_checkpoint_open(path, &checkpoint, &error) != FL_OK) fail_msg("%s", error.message);
    return checkpoint;
}

/* Fails the test unless opening gives `status` and a message with each of the texts (NULL: not asked). */
static void assert_refused(const char *path, fl_status status, const char *first, const char *second) {
    fl_checkpoint *checkpoint = NULL;
    fl_error error = {FL_OK, ""};
    fl_status found = fl_checkpoint_open(path, &checkpoint, &error);
    if (found == FL_OK) fail_msg("%s was accepted (expected: %s)", path, first);
    assert_null(checkpoint);
    if (found != status) fail_msg("status %s, message: %s", fl_status_name(found), error.message);
    if (strstr(error.message, first) == NULL || (second != NULL && strstr(error.message, second) == NULL)) {
        fail_msg("\"%s\" or \"%s\" is not in: %s", first, second, error.message);
    }
}

static void test_legal_oddities_are_read(void **state) {
    (void)state;
    static const char header[] =
        "{\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
        "\"empty\":{\"dtype\":\"F16\",\"shape\":[3,0,2],\"data_offsets\":[4,4]},"
        "\"later\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[25,33]},"
        "\"odd\":{\"dtype\":\"F4\",\"shape\":[2,5],\"data_offsets\":[33,38]},"
        "\"unknown\":{\"dtype\":\"F3_NEW\",\"shape\":[7],\"data_offsets\":[4,13]},"
        "\"high\":{\"dtype\":\"F16\",\"shape\":[1,2,1,3,1],\"data_offsets\":[13,25]},"
        "\"__metadata__\":{\"format\":\"pt\",\"empty\":\"\"}}   ";
    fl_checkpoint *checkpoint = open_good(put("odd.safetensors", header, 38));
    assert_int_equal(fl_checkpoint_count(checkpoint), 6);
    static const char *const order[] = {"scalar", "empty", "unknown", "high", "later", "odd"};
    for (size_t i = 0; i < 6; i++) {
        const fl_checkpoint_entry *entry = fl_checkpoint_entry_at(checkpoint, i);
        if (strcmp(order[i], "empty") != 0) assert_string_equal(entry->tensor.name, order[i]);
        assert_ptr_equal(fl_checkpoint_lookup(checkpoint, entry->tensor.name), entry);
    }
    const fl_checkpoint_entry *scalar = fl_checkpoint_lookup(checkpoint, "scalar");
    assert_true(scalar->readable && scalar->tensor.rank == 0 && scalar->tensor.rows == 1 &&
                scalar->tensor.columns == 1);
    const fl_checkpoint_entry *unknown = fl_checkpoint_lookup(checkpoint, "unknown");
    assert_false(unknown->readable);
    assert_string_equal(unknown->type_name, "F3_NEW");
    assert_int_equal(unknown->byte_count, 9);
    const fl_checkpoint_entry *high = fl_checkpoint_lookup(checkpoint, "high");
    assert_false(high->readable);
    assert_int_equal(high->tensor.rank, 4);
    assert_int_equal(high->tensor.shape[0], 2);
    assert_string_equal(fl_checkpoint_metadata(checkpoint, "format"), "pt");
    assert_string_equal(fl_checkpoint_metadata(checkpoint, "empty"), "");
    assert_null(fl_checkpoint_metadata(checkpoint, "missing"));
    fl_checkpoint_close(checkpoint);

    checkpoint = open_good(put("metadata.safetensors", "{\"__metadata__\":{}}", 0));
    assert_int_equal(fl_checkpoint_count(checkpoint), 0);
    assert_null(fl_checkpoint_lookup(checkpoint, "anything"));
    fl_checkpoint_close(checkpoint);
}

static void test_types_that_cannot_be_widened_are_refused_when_used(void **state) {
    (void)state;
    const char *path = put("types.safetensors",
                           "{\"ids\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
                           "\"conv\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1],\"data_offsets\":[8,12]}}",
                           12);
    fl_checkpoint *checkpoint = open_good(path);
    fl_tensor tensor;
    fl_error error;
    assert_int_equal(fl_checkpoint_find(checkpoint, "ids", &tensor, &error), FL_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "tensor ids has type I64"));
    assert_int_equal(fl_checkpoint_find(checkpoint, "conv", &tensor, &error), FL_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "tensor conv has more than 4 dimensions"));
    assert_int_equal(fl_checkpoint_find(checkpoint, "weight", &tensor, &error), FL_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "tensor weight is missing"));
    assert_non_null(strstr(error.message, "types.safetensors"));
    fl_checkpoint_close(checkpoint);
}

#define T(fields) "{\"weight\":{" fields "}}"
#define TWO(first, second)                                                                                   \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" first "},"                                    \
    "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" second "}}"

typedef struct hostile_header {
    const char *header;
    size_t data;
    const char *expected, *place;
} hostile_header;

static const hostile_header hostile[] = {
    {"[1]", 0, "does not begin with", "byte 8"},
    {" {}", 0, "does not begin with", "byte 8"},
    {"{", 0, "does not begin with", "byte 8"},
    {"{\"a\":", 0, "syntax error", "byte 1"},
    {"{}{}", 0, "text after the end", "byte 10"},
    {"{}\0", 1, "1 bytes follow the last tensor", "byte 10"},
    {"{\"a\":1}", 0, "its entry is not an object", "tensor a"},
    {"{\"\":{}}", 0, "the name is empty", NULL},
    {"{\"a\\u0000b\":{}}", 0, "NUL in a string", "byte 11"},
    {"{\"a\\tb\":{}}", 0, "control byte", "header"},
    {"{\"a\x01\":{}}", 0, "control byte", "byte 11"},
    {"{\"a\xff\":{}}", 0, "invalid UTF-8", "byte 11"},
    {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]") "x", 4, "text after the end", NULL},
    {T("\"shape\":[1],\"data_offsets\":[0,4]"), 4, "dtype is missing", "tensor weight"},
    {T("\"dtype\":5,\"shape\":[1],\"data_offsets\":[0,4]"), 4, "dtype is missing or not text",
     "tensor weight"},
    {T("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4, "shape is not a list", "tensor weight"},
    {T("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), 4, "shape holds", "tensor weight"},
    {T("\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]"), 4, "shape holds", "tensor weight"},
    {T("\"dtype\":\"F32\",\"shape\":[9007199254740992],\"data_offsets\":[0,4]"), 4, "shape holds",
     "tensor weight"},
    {T("\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]"), 4, "shape holds", "tensor weight"},
    {T("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]"), 4, "overflows",
     "tensor weight"},
    {T("\"dtype\":\"F64\",\"shape\":[4503599627370496,1024],\"data_offsets\":[0,4]"), 4, "overflows",
     "tensor weight"},
    {T("\"dtype\":\"F32\",\"shape\":[1]"), 4, "data_offsets is not a pair", "tensor weight"},
    {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]"), 4, "not a pair", "tensor weight"},
    {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]"), 4, "not a pair", "tensor weight"},
    {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]"), 4, "whole numbers", "tensor weight"},
    {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]"), 4, "reversed", "tensor weight"},
    {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]"), 4, "pass the end of the data",
     "tensor weight"},
    {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,1e300]"), 4, "whole numbers", "tensor weight"},
    {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,3]"), 3, "need 4 bytes, data_offsets give 3",
     "tensor weight"},
    {T("\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, "need 2 bytes", "tensor weight"},
    {T("\"dtype\":\"F6_E2M3\",\"shape\":[3],\"data_offsets\":[0,3]"), 3, "whole bytes", "tensor weight"},
    {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"extra\":1"), 4, "unknown key \"extra\"",
     "tensor weight"},
    {T("\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"), 4,
     "duplicate key \"dtype\"", NULL},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
     "\"data_offsets\":[1,2]}}",
     2, "duplicate key \"a\"", NULL},
    {TWO("[0,4]", "[5,9]"), 9, "there is a hole", "tensor b"},
    {TWO("[0,4]", "[3,7]"), 7, "tensors overlap", "tensor b"},
    {TWO("[0,4]", "[0,4]"), 4, "tensors overlap", "tensor b"},
    {TWO("[1,5]", "[5,9]"), 9, "expected: there is a hole", "tensor a"},
    {TWO("[0,4]", "[4,8]"), 9, "1 bytes follow", NULL},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object", NULL},
    {"{\"__metadata__\":{\"format\":1}}", 0, "the value of \"format\" is not text", "__metadata__"},
    {"{\"__metadata__\":{\"format\":null}}", 0, "the value of \"format\" is not text", "__metadata__"},
    {"{\"__metadata__\":{\"a\":\"x\",\"a\":\"y\"}}", 0, "duplicate key \"a\"", NULL},
};

static void test_every_kind_of_broken_header_is_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        const char *path = put("bad.safetensors", hostile[i].header, hostile[i].data);
        assert_refused(path, FL_ERROR_FORMAT, hostile[i].expected, "bad.safetensors");
        if (hostile[i].place != NULL)
            assert_refused(path, FL_ERROR_FORMAT, hostile[i].expected, hostile[i].place);
    }
}

static void test_header_length_is_checked_before_it_is_believed(void **state) {
    (void)state;
    static const uint64_t lengths[] = {3, 100000001, UINT64_MAX, UINT64_MAX - 7, 1ull << 63};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        fl_bytes bytes = {0};
        fl_bytes_add_u64(&bytes, lengths[i]);
        fl_bytes_add(&bytes, "{}", 2);
        const char *path = fl_put_file(fl_test_folder(), "length.safetensors", &bytes);
        assert_refused(path, FL_ERROR_FORMAT, "header length", "byte 0");
        fl_bytes_free(&bytes);
    }
    fl_bytes bytes = {0};
    fl_bytes_add(&bytes, "1234567", 7);
    assert_refused(fl_put_file(fl_test_folder(), "short.safetensors", &bytes), FL_ERROR_FORMAT, "too few",
                   "short.safetensors");
    bytes.count = 0;
    assert_refused(fl_put_file(fl_test_folder(), "empty.safetensors", &bytes), FL_ERROR_FORMAT, "empty",
                   "empty.safetensors");
    fl_bytes_free(&bytes);
}

static void test_deep_json_is_refused_without_recursion(void **state) {
    (void)state;
    fl_bytes header = {0};
    fl_bytes_add(&header, "{\"a\":", 5);
    for (int i = 0; i < 200000; i++) fl_bytes_add(&header, "[", 1);
    fl_bytes_add_u8(&header, 0);
    assert_refused(put("deep.safetensors", (const char *)header.data, 0), FL_ERROR_FORMAT,
                   "nested too deeply", "byte 7");
    fl_bytes_free(&header);
}

static void test_what_is_not_a_file_is_said_so(void **state) {
    (void)state;
    char path[1024];
    assert_refused(fl_test_folder(), FL_ERROR_ARGUMENT, "is a directory", NULL);
    snprintf(path, sizeof path, "%s/none.safetensors", fl_test_folder());
    assert_refused(path, FL_ERROR_IO, "cannot open", "none.safetensors");
    snprintf(path, sizeof path, "%s/pipe.safetensors", fl_test_folder());
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(path, FL_ERROR_ARGUMENT, "not a regular file", "pipe.safetensors");
}

static const char small_header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                                   "\"b\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[24,29]}}";

static void test_a_file_cut_anywhere_is_refused(void **state) {
    (void)state;
    fl_bytes bytes = {0};
    fl_build_safetensors(&bytes, small_header, 29);
    size_t whole = bytes.count;
    for (bytes.count = 0; bytes.count < whole; bytes.count++) {
        fl_checkpoint *checkpoint = NULL;
        fl_error error;
        const char *path = fl_put_file(fl_test_folder(), "cut.safetensors", &bytes);
        if (fl_checkpoint_open(path, &checkpoint, &error) != FL_ERROR_FORMAT)
            fail_msg("accepted at %zu bytes", bytes.count);
        assert_non_null(strstr(error.message, "cut.safetensors"));
    }
    fl_bytes_free(&bytes);
}

static void test_no_single_changed_byte_of_the_header_does_harm(void **state) {
    (void)state;
    fl_bytes bytes = {0};
    fl_build_safetensors(&bytes, small_header, 29);
    for (size_t at = 0; at < bytes.count - 29; at++) {
        unsigned char original = bytes.data[at];
        for (int flip = 0; flip < 4; flip++) {
            bytes.data[at] = (unsigned char)(original ^ (1 << (2 * flip)));
            fl_checkpoint *checkpoint = NULL;
            fl_error error = {FL_OK, ""};
            fl_status status = fl_checkpoint_open(fl_put_file(fl_test_folder(), "flip.safetensors", &bytes),
                                                  &checkpoint, &error);
            assert_true(status == FL_OK || (checkpoint == NULL && error.message[0] != '\0'));
            fl_checkpoint_close(checkpoint);
        }
        bytes.data[at] = original;
    }
    fl_bytes_free(&bytes);
}

static void test_running_out_of_memory_leaves_nothing_behind(void **state) {
    (void)state;
    const char *path = put("memory.safetensors", small_header, 29);
    for (size_t n = 1;; n++) {
        fl_checkpoint *checkpoint = NULL;
        fl_memory_fail_at(n);
        fl_status status = fl_checkpoint_open(path, &checkpoint, NULL);
        fl_memory_fail_at(0);
        fl_checkpoint_close(checkpoint);
        if (status == FL_OK) {
            assert_true(n > 5);
            break;
        }
        assert_int_equal(status, FL_ERROR_MEMORY);
        assert_null(checkpoint);
    }
}

static void test_written_tensors_read_back_to_the_bit(void **state) {
    (void)state;
    float data[6] = {1.0f, -0.0f, 1e-42f, 3.4e38f, 0.0f, -7.25f};
    uint32_t payload = 0x7fc12345u;
    memcpy(&data[4], &payload, sizeof payload);
    const fl_checkpoint_write_tensor tensors[] = {{"layers.0.gate.w1", data, 2, {2, 3}},
                                                  {"quote\"back\\slash \xc3\xa4", data, 1, {6}},
                                                  {"scalar", data + 3, 0, {0}},
                                                  {"none", NULL, 2, {0, 9}}};
    const char *const keys[] = {"rule", "note"}, *const values[] = {"kda", "line\nand \"quote\""};
    char path[1024];
    snprintf(path, sizeof path, "%s/written.safetensors", fl_test_folder());
    assert_int_equal(fl_checkpoint_write_safetensors(path, tensors, 4, keys, values, 2, NULL), FL_OK);
    fl_checkpoint *checkpoint = open_good(path);
    assert_int_equal(fl_checkpoint_count(checkpoint), 4);
    for (size_t i = 0; i < 4; i++) {
        const fl_checkpoint_entry *entry = fl_checkpoint_lookup(checkpoint, tensors[i].name);
        assert_non_null(entry);
        assert_int_equal(entry->tensor.rank, tensors[i].rank);
        assert_memory_equal(entry->tensor.shape, tensors[i].shape, tensors[i].rank * sizeof(size_t));
        if (tensors[i].data != NULL) assert_memory_equal(entry->bytes, tensors[i].data, entry->byte_count);
        assert_int_equal((uintptr_t)entry->bytes % sizeof(float), 0);
    }
    assert_string_equal(fl_checkpoint_metadata(checkpoint, "note"), values[1]);
    fl_checkpoint_close(checkpoint);
    /* Again over the old file: replaced whole, no temporary left. */
    assert_int_equal(fl_checkpoint_write_safetensors(path, tensors, 1, NULL, NULL, 0, NULL), FL_OK);
    char *listing = NULL, command[1100];
    snprintf(command, sizeof command, "ls %s | grep -c partial", fl_test_folder());
    fl_run_command(command, &listing);
    assert_string_equal(listing, "0\n");
    fl_memory_free(listing);
}

static void test_what_cannot_be_written_leaves_no_file(void **state) {
    (void)state;
    float data[1] = {1.0f};
    char path[1024];
    fl_error error;
    const fl_checkpoint_write_tensor twice[] = {{"a", data, 1, {1}}, {"a", data, 1, {1}}};
    const fl_checkpoint_write_tensor reserved = {"__metadata__", data, 1, {1}},
                                     control = {"a\n", data, 1, {1}};
    snprintf(path, sizeof path, "%s/refused.safetensors", fl_test_folder());
    assert_int_equal(fl_checkpoint_write_safetensors(path, twice, 2, NULL, NULL, 0, &error),
                     FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "tensor a is given twice"));
    assert_int_equal(fl_checkpoint_write_safetensors(path, &reserved, 1, NULL, NULL, 0, &error),
                     FL_ERROR_ARGUMENT);
    assert_int_equal(fl_checkpoint_write_safetensors(path, &control, 1, NULL, NULL, 0, &error),
                     FL_ERROR_ARGUMENT);
    assert_int_equal(access(path, F_OK), -1);
    snprintf(path, sizeof path, "%s/no such folder/x.safetensors", fl_test_folder());
    assert_int_equal(fl_checkpoint_write_safetensors(path, twice, 1, NULL, NULL, 0, &error), FL_ERROR_IO);
    assert_non_null(strstr(error.message, "no such folder"));
    /* A folder is in the way: the rename fails and the temporary file goes. */
    snprintf(path, sizeof path, "%s/taken.safetensors", fl_test_folder());
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(fl_checkpoint_write_safetensors(path, twice, 1, NULL, NULL, 0, &error), FL_ERROR_IO);
    char *listing = NULL, command[1100];
    snprintf(command, sizeof command, "ls %s | grep -c partial", fl_test_folder());
    fl_run_command(command, &listing);
    assert_string_equal(listing, "0\n");
    fl_memory_free(listing);
}

static void test_hash_follows_the_bytes_and_notices_a_shorter_file(void **state) {
    (void)state;
    fl_bytes bytes = {0};
    fl_build_safetensors(&bytes, small_header, 29);
    fl_checkpoint *first = open_good(fl_put_file(fl_test_folder(), "hash1.safetensors", &bytes));
    bytes.data[bytes.count - 1] ^= 1;
    fl_checkpoint *second = open_good(fl_put_file(fl_test_folder(), "hash2.safetensors", &bytes));
    fl_hash one, again, two;
    fl_error error;
    assert_int_equal(fl_checkpoint_hash(first, &one, NULL), FL_OK);
    assert_int_equal(fl_checkpoint_hash(first, &again, NULL), FL_OK);
    assert_int_equal(fl_checkpoint_hash(second, &two, NULL), FL_OK);
    assert_string_equal(one.text, again.text);
    assert_string_not_equal(one.text, two.text);
    assert_int_equal(truncate(fl_checkpoint_file_path(first, 0), 10), 0);
    assert_int_equal(fl_checkpoint_hash(first, &one, &error), FL_ERROR_IO);
    assert_non_null(strstr(error.message, "size changed"));
    fl_checkpoint_close(first);
    fl_checkpoint_close(second);
    fl_bytes_free(&bytes);
}

#define U8_TENSOR(name) "{\"" name "\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}"
#define U8_PAIR(first, second)                                                                               \
    "{\"" first "\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"                                \
    "\"" second "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}"

static void test_shards_are_read_as_the_index_assigns_them(void **state) {
    (void)state;
    put("s1.safetensors", U8_PAIR("a", "b"), 3);
    put("s2.safetensors", U8_PAIR("c", "b"), 3);
    put("stray.safetensors", U8_TENSOR("a"), 1); /* broken, and not in the index: never opened */
    const char *path =
        fl_put_text(fl_test_folder(), "model.safetensors.index.json",
                    "{\"metadata\":{\"total_size\":12345},\"weight_map\":{\"c\":\"s2.safetensors\","
                    "\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\"}}");
    fl_checkpoint *checkpoint = open_good(path);
    assert_int_equal(fl_checkpoint_count(checkpoint), 3);
    assert_int_equal(fl_checkpoint_file_count(checkpoint), 2);
    /* b is in both shards; the index says the second. */
    const fl_checkpoint_entry *b = fl_checkpoint_lookup(checkpoint, "b"),
                              *c = fl_checkpoint_lookup(checkpoint, "c");
    assert_ptr_equal(b->bytes, c->bytes + 2);
    assert_false(b->readable);
    assert_string_equal(b->type_name, "U8");
    fl_checkpoint_close(checkpoint);
}

static void test_a_shard_may_be_a_symbolic_link(void **state) {
    (void)state;
    char blob[1024], link[1024];
    put("0123abcd", U8_TENSOR("a"), 2);
    snprintf(blob, sizeof blob, "%s/0123abcd", fl_test_folder());
    snprintf(link, sizeof link, "%s/linked.safetensors", fl_test_folder());
    assert_int_equal(symlink(blob, link), 0);
    const char *path =
        fl_put_text(fl_test_folder(), "link.index.json", "{\"weight_map\":{\"a\":\"linked.safetensors\"}}");
    fl_checkpoint *checkpoint = open_good(path);
    assert_int_equal(fl_checkpoint_count(checkpoint), 1);
    fl_checkpoint_close(checkpoint);
}

static void test_shard_names_that_leave_the_folder_are_refused(void **state) {
    (void)state;
    static const char *const names[] = {
        "/etc/passwd",        "../s1.safetensors", "..", ".", "", "a/b.safetensors",
        "a\\\\b.safetensors", "a\\nb.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char index[256];
        snprintf(index, sizeof index, "{\"weight_map\":{\"weight\":\"%s\"}}", names[i]);
        const char *path = fl_put_text(fl_test_folder(), "traversal.index.json", index);
        assert_refused(path, FL_ERROR_FORMAT, "not a plain file name", "tensor weight");
    }
}

static void test_a_broken_index_is_refused_with_its_place(void **state) {
    (void)state;
    static const struct {
        const char *text;
        fl_status status;
        const char *expected;
    } cases[] = {
        {"{\"weight_map\":{\"a\":\"pytorch_model.bin\"}}", FL_ERROR_UNSUPPORTED, "pytorch_model.bin"},
        {"{\"weight_map\":{\"a\":1}}", FL_ERROR_FORMAT, "the shard of tensor a is not text"},
        {"{\"weight_map\":{}}", FL_ERROR_FORMAT, "weight_map is missing, empty"},
        {"{}", FL_ERROR_FORMAT, "weight_map is missing"},
        {"[]", FL_ERROR_FORMAT, "weight_map is missing"},
        {"{\"weight_map\":\n {\"a\":\"x.safetensors\",,}}", FL_ERROR_FORMAT, "bad.index.json:2:"},
        {"{\"weight_map\":{\"a\":\"x.safetensors\",\"a\":\"y.safetensors\"}}", FL_ERROR_FORMAT,
         "duplicate key \"a\""},
        {"{\"weight_map\":{\"\":\"x.safetensors\"}}", FL_ERROR_FORMAT, "name is empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_refused(fl_put_text(fl_test_folder(), "bad.index.json", cases[i].text), cases[i].status,
                       cases[i].expected, "bad.index.json");
    }
}

static void test_all_missing_shards_and_tensors_are_named_at_once(void **state) {
    (void)state;
    put("here.safetensors", U8_TENSOR("a"), 2);
    const char *path = fl_put_text(fl_test_folder(), "missing.index.json",
                                   "{\"weight_map\":{\"a\":\"here.safetensors\",\"b\":\"gone1.safetensors\","
                                   "\"c\":\"gone2.safetensors\"}}");
    assert_refused(path, FL_ERROR_IO, "gone1.safetensors", "gone2.safetensors");
    path = fl_put_text(fl_test_folder(), "missing.index.json",
                       "{\"weight_map\":{\"a\":\"here.safetensors\",\"b\":\"here.safetensors\","
                       "\"c\":\"here.safetensors\"}}");
    assert_refused(path, FL_ERROR_FORMAT, "tensor b is not in its shard", "tensor c is not in its shard");
    /* More than fit into one message: counted. */
    fl_bytes index = {0};
    fl_bytes_add(&index, "{\"weight_map\":{\"a\":\"here.safetensors\"", 37);
    for (int i = 0; i < 100; i++) {
        char item[80];
        snprintf(item, sizeof item, ",\"missing.%d\":\"here.safetensors\"", i);
        fl_bytes_add(&index, item, strlen(item));
    }
    fl_bytes_add(&index, "}}", 2);
    assert_refused(fl_put_file(fl_test_folder(), "many.index.json", &index), FL_ERROR_FORMAT, "missing.0 ",
                   "more");
    fl_bytes_free(&index);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_legal_oddities_are_read),
        cmocka_unit_test(test_types_that_cannot_be_widened_are_refused_when_used),
        cmocka_unit_test(test_every_kind_of_broken_header_is_refused_by_name),
        cmocka_unit_test(test_header_length_is_checked_before_it_is_believed),
        cmocka_unit_test(test_deep_json_is_refused_without_recursion),
        cmocka_unit_test(test_what_is_not_a_file_is_said_so),
        cmocka_unit_test(test_a_file_cut_anywhere_is_refused),
        cmocka_unit_test(test_no_single_changed_byte_of_the_header_does_harm),
        cmocka_unit_test(test_running_out_of_memory_leaves_nothing_behind),
        cmocka_unit_test(test_written_tensors_read_back_to_the_bit),
        cmocka_unit_test(test_what_cannot_be_written_leaves_no_file),
        cmocka_unit_test(test_hash_follows_the_bytes_and_notices_a_shorter_file),
        cmocka_unit_test(test_shards_are_read_as_the_index_assigns_them),
        cmocka_unit_test(test_a_shard_may_be_a_symbolic_link),
        cmocka_unit_test(test_shard_names_that_leave_the_folder_are_refused),
        cmocka_unit_test(test_a_broken_index_is_refused_with_its_place),
        cmocka_unit_test(test_all_missing_shards_and_tensors_are_named_at_once),
    };
    return cmocka_run_group_tests(tests, fl_test_folder_make, fl_test_folder_remove);
}
