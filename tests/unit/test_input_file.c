/* Input files and JSON text: what is opened at all, and how other things are called by their names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/base/hash.h"
#include "harness/base/input_file.h"
#include "harness/base/memory.h"
#include "harness/base/sha256.h"
#include "harness/base/text_file.h"
#include "harness/config/node.h"
#include "harness/model/json_text.h"
#include "harness/model/mapped_file.h"
#include "harness/model/model.h"
#include "harness/model/tokenizer.h"
#include "tests/support/fixture.h"

enum { PATH_BYTES = 512 };

static const char *in_folder(const char *name) {
    static char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", fl_test_folder(), name);
    return path;
}

static const char *put(const char *name, const char *text) {
    const char *path = in_folder(name);
    fl_write_file(path, text, strlen(text));
    return path;
}

/* Every reader of files refuses the path alike. */
static void assert_refused_everywhere(const char *path, const char *message) {
    fl_error errors[7] = {0};
    char *text = NULL, digest[FL_SHA256_TEXT_BYTES];
    size_t bytes;
    fl_hash hash;
    cJSON *json;
    fl_document *document;
    fl_mapped_file mapped;
    fl_tokenizer *tokenizer;
    assert_int_not_equal(fl_input_read(path, 100, &text, &bytes, &errors[0]), FL_OK);
    assert_int_not_equal(fl_text_file_read(path, &text, &bytes, &errors[1]), FL_OK);
    assert_int_not_equal(fl_json_read_file(path, &json, &errors[2]), FL_OK);
    assert_int_not_equal(fl_document_parse_file(path, &document, &errors[3]), FL_OK);
    assert_int_not_equal(fl_mapped_file_open(path, &mapped, &errors[4]), FL_OK);
    assert_int_not_equal(fl_sha256_file(path, digest, &errors[5]), FL_OK);
    assert_int_not_equal(fl_hash_file(path, &hash, &errors[6]), FL_OK);
    assert_null(text);
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (strstr(errors[i].message, message) == NULL || strstr(errors[i].message, path) == NULL)
            fail_msg("reader %zu: \"%s\" lacks \"%s\"", i, errors[i].message, message);
    if (fl_path_is_folder(path)) return;
    assert_int_not_equal(fl_tokenizer_open(path, &tokenizer, &errors[0]), FL_OK);
    assert_non_null(strstr(errors[0].message, message));
}

static void test_only_regular_files_are_read(void **state) {
    (void)state;
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_refused_everywhere(in_folder("pipe"), "is not a regular file");
    assert_refused_everywhere("/dev/zero", "is not a regular file");
    assert_refused_everywhere(fl_test_folder(), "is a directory");
    assert_refused_everywhere(in_folder("nothing"), "No such file");
    assert_int_equal(symlink("loop", in_folder("loop")), 0);
    assert_refused_everywhere(in_folder("loop"), "cannot open");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int made = snprintf(address.sun_path, sizeof address.sun_path, "%s", in_folder("socket"));
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (listener >= 0 && made < (int)sizeof address.sun_path &&
        bind(listener, (struct sockaddr *)&address, sizeof address) == 0)
        assert_refused_everywhere(in_folder("socket"), "cannot open");
    close(listener);
}

static void test_a_pointer_of_git_lfs_is_called_one_by_every_reader(void **state) {
    (void)state;
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 684808\n";
    assert_refused_everywhere(put("model.safetensors", pointer), "is a Git LFS pointer");
    assert_refused_everywhere(put("model.gguf", pointer), "is a Git LFS pointer");
    assert_refused_everywhere(put("text.txt", pointer), "is a Git LFS pointer");
}

static void test_whole_files_are_read_up_to_a_limit(void **state) {
    (void)state;
    char *text = NULL;
    size_t bytes = 0;
    fl_error error = {0};
    const char *path = put("text", "0123456789");
    for (size_t most = 9; most <= 11; most++) {
        fl_status status = fl_input_read(path, most, &text, &bytes, &error);
        assert_int_equal(status, most < 10 ? FL_ERROR_FORMAT : FL_OK);
        if (status != FL_OK) continue;
        assert_int_equal(bytes, 10);
        assert_string_equal(text, "0123456789");
        fl_memory_free(text);
    }
    assert_non_null(strstr(error.message, "more than 9 bytes"));
    assert_int_equal(fl_input_read(put("empty", ""), 10, &text, &bytes, &error), FL_OK);
    assert_int_equal(bytes, 0);
    fl_memory_free(text);
    /* The kernel states no size for what it makes up. */
    assert_int_equal(fl_input_read("/proc/self/status", 1 << 20, &text, &bytes, &error), FL_OK);
    assert_true(bytes > 100);
    fl_memory_free(text);
    assert_int_equal(fl_input_read("/proc/self/status", 100, &text, &bytes, &error), FL_ERROR_FORMAT);
}

static void assert_message(fl_status status, const fl_error *error, const char *message) {
    assert_int_not_equal(status, FL_OK);
    if (strstr(error->message, message) == NULL) fail_msg("\"%s\" lacks \"%s\"", error->message, message);
}

static void test_other_kinds_of_files_are_named(void **state) {
    (void)state;
    static const struct {
        const char *text, *kind;
    } cases[] = {{"<!DOCTYPE html>\n<html><head><title>Sign in</title>", "an HTML or XML page"},
                 {"\n  <html lang=\"en\">", "an HTML or XML page"},
                 {"PK\x03\x04 archive", "a zip archive"},
                 {"\x1f\x8b\x08 compressed", "a gzip archive"},
                 {"\x89HDF\r\n\x1a\n and more", "an HDF5 file"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fl_error error = {0};
        fl_tokenizer *tokenizer;
        fl_checkpoint *checkpoint;
        fl_status status = fl_tokenizer_open(put("tokenizer.json", cases[i].text), &tokenizer, &error);
        assert_message(status, &error, cases[i].kind);
        status = fl_checkpoint_open(put("m.safetensors", cases[i].text), &checkpoint, &error);
        assert_message(status, &error, cases[i].kind);
        status = fl_checkpoint_open(put("m.gguf", cases[i].text), &checkpoint, &error);
        assert_message(status, &error, cases[i].kind);
    }
    assert_null(fl_input_foreign_kind("{\"a\": 1}", 8));
    assert_null(fl_input_foreign_kind("", 0));
}

static cJSON *parsed(const char *text) {
    cJSON *json = NULL;
    fl_error error = {0};
    if (fl_json_parse(text, strlen(text), "a.json", 0, &json, &error) != FL_OK) fail_msg("%s", error.message);
    return json;
}

static double number(const cJSON *json, const char *key) {
    const cJSON *item = fl_json_member(json, key);
    assert_true(cJSON_IsNumber(item));
    return item->valuedouble;
}

static void test_literals_of_python_are_numbers(void **state) {
    (void)state;
    cJSON *json =
        parsed("{\"a\": 1, \"b\": NaN, \"text\": \"NaN -Infinity\", \"c\": [Infinity, 2, -Infinity],"
               " \"d\": -3.5e2, \"e\":NaN}");
    assert_true(isnan(number(json, "b")) && isnan(number(json, "e")));
    assert_true(number(json, "a") == 1.0 && number(json, "d") == -350.0);
    const cJSON *list = fl_json_member(json, "c");
    assert_true(cJSON_GetArrayItem(list, 0)->valuedouble == INFINITY);
    assert_true(cJSON_GetArrayItem(list, 1)->valuedouble == 2.0);
    assert_true(cJSON_GetArrayItem(list, 2)->valuedouble == -INFINITY);
    assert_string_equal(fl_json_member(json, "text")->valuestring, "NaN -Infinity");
    cJSON_Delete(json);
    json = parsed("\xEF\xBB\xBF NaN ");
    assert_true(isnan(json->valuedouble));
    cJSON_Delete(json);
}

static void test_what_is_not_json_is_refused_with_its_place(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"[01]", "a.json:1:2: JSON: this number"},
        {"[1.]", "a.json:1:2: JSON: this number"},
        {"[\n -.5]", "a.json:2:2: JSON: this number"},
        {"[1e]", "a.json:1:2: JSON: this number"},
        {"[1.2.3]", "JSON: this number"},
        {"[--1]", "JSON: this number"},
        {"[+1]", "JSON: syntax error"},
        {"[nan]", "JSON: syntax error"},
        {"[NaNs]", "JSON: syntax error"},
        {"[Infinity1]", "JSON: syntax error"},
        {"[-NaN]", "JSON: this number"},
        {"[1,]", "JSON: syntax error"},
        {"{\"a\": 1,}", "JSON: syntax error"},
        {"{\"a\": 1}{}", "a.json:1:9: JSON: text after"},
        {"\"a", "a.json:1:1: JSON: a string without its end"},
        {"\"a\tb\"", "a.json:1:3: JSON: NUL or control byte"},
        {"{\"a\": NaN, \"a\": 1}", "a.json:1: JSON: duplicate key \"a\""},
        {"[\"\\ud800\"]", "JSON: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cJSON *json;
        fl_error error = {0};
        fl_status status = fl_json_parse(cases[i].text, strlen(cases[i].text), "a.json", 0, &json, &error);
        assert_int_equal(status, FL_ERROR_FORMAT);
        if (strstr(error.message, cases[i].message) == NULL)
            fail_msg("%s: \"%s\" lacks \"%s\"", cases[i].text, error.message, cases[i].message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_only_regular_files_are_read, fl_test_folder_make,
                                        fl_test_folder_remove),
        cmocka_unit_test_setup_teardown(test_a_pointer_of_git_lfs_is_called_one_by_every_reader,
                                        fl_test_folder_make, fl_test_folder_remove),
        cmocka_unit_test_setup_teardown(test_whole_files_are_read_up_to_a_limit, fl_test_folder_make,
                                        fl_test_folder_remove),
        cmocka_unit_test_setup_teardown(test_other_kinds_of_files_are_named, fl_test_folder_make,
                                        fl_test_folder_remove),
        cmocka_unit_test(test_literals_of_python_are_numbers),
        cmocka_unit_test(test_what_is_not_json_is_refused_with_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
