#include "tests/support/command_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/config/text_builder.h"
#include "tests/support/fixture.h"

enum { PATH_BYTES = 1024, TEXT_BYTES = 16384 };

const char *fl_inside(const char *name) {
    static char paths[8][PATH_BYTES];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, PATH_BYTES, "%s/%s", fl_test_folder(), name);
    return path;
}

void fl_write_text(const char *path, const char *format, ...) {
    char text[TEXT_BYTES];
    va_list list;
    va_start(list, format);
    int bytes = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    assert_in_range(bytes, 0, TEXT_BYTES - 1);
    fl_write_file(path, text, (size_t)bytes);
}

void fl_write_ids(const char *path, size_t sequences, size_t tokens, size_t factor) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (size_t s = 0; s < sequences; s++) {
        fputs(s == 0 ? "[[1" : ", [1", file);
        for (size_t t = 1; t < tokens; t++) fprintf(file, ", %zu", (t * factor + s * 17 + 5) % 320);
        fputs("]", file);
    }
    fputs("]", file);
    fclose(file);
}

const char *fl_reference_model(const char *test) {
    static char path[PATH_BYTES];
    const char *config = fl_fixture_or_pack("reference/llama_gqa/config.json");
    if (config == NULL) fl_fixture_skip(test, "reference/llama_gqa");
    snprintf(path, sizeof path, "%.*s", (int)(strlen(config) - strlen("/config.json")), config);
    return path;
}

/* The byte-level alphabet: printable bytes stand for themselves, the others for U+0100 onwards. */
static void write_byte_tokenizer(const char *path) {
    fl_text_builder text = {0};
    int next = 0x100;
    assert_int_equal(
        fl_text_builder_add(
            &text,
            "{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null, "
            "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
            "\"trim_offsets\": true, \"use_regex\": true}, \"post_processor\": null, "
            "\"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {",
            NULL),
        FL_OK);
    for (int byte = 0; byte < 256; byte++) {
        bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
        int code = printable ? byte : next++;
        assert_int_equal(
            fl_text_builder_format(&text, NULL, "%s\"\\u%04x\": %d", byte > 0 ? ", " : "", code, byte),
            FL_OK);
    }
    assert_int_equal(fl_text_builder_add(&text, "}, \"merges\": []}}", NULL), FL_OK);
    fl_write_file(path, text.text, text.length);
    fl_text_builder_release(&text);
}

const char *fl_write_byte_model(const char *test, const char *parent) {
    static char path[PATH_BYTES];
    char tokenizer[PATH_BYTES + 32];
    const char *from = fl_reference_model(test);
    snprintf(path, sizeof path, "%s/model", parent);
    assert_int_equal(
        fl_shell(NULL, "mkdir %s && cp %s/config.json %s/model.safetensors %s", path, from, from, path), 0);
    snprintf(tokenizer, sizeof tokenizer, "%s/tokenizer.json", path);
    write_byte_tokenizer(tokenizer);
    return path;
}

int fl_shell(char **output, const char *format, ...) {
    char command[TEXT_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(command, sizeof command, format, list);
    va_end(list);
    return fl_run_command(command, output);
}

int fl_frostline(char **output, const char *format, ...) {
    char arguments[TEXT_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    return fl_shell(output, "%s %s", fl_program_path(), arguments);
}

void fl_expect(int code, const char *arguments, ...) {
    char *output = NULL;
    int got = fl_frostline(&output, "%s", arguments);
    va_list texts;
    va_start(texts, arguments);
    for (const char *text; (text = va_arg(texts, const char *)) != NULL;) {
        if (strstr(output, text) == NULL)
            fail_msg("`%s` does not say \"%s\" but:\n%s", arguments, text, output);
    }
    va_end(texts);
    if (got != code) fail_msg("`%s` exits with %d, not %d:\n%s", arguments, got, code, output);
    fl_memory_free(output);
}
