#include "tests/support/tokenizer_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/model/tokenizer_text.h"
#include "tests/support/fixture.h"

enum { PATH_BYTES = 1100 };

static void append(fl_text_buffer *out, const char *text) {
    assert_int_equal(fl_text_append(out, text, strlen(text), NULL), FL_OK);
}

static void append_or(fl_text_buffer *out, const char *name, const char *value, const char *usual) {
    append(out, ", \"");
    append(out, name);
    append(out, "\": ");
    append(out, value != NULL ? value : usual);
}

static void append_byte_vocabulary(fl_text_buffer *out) {
    for (int byte = 0; byte < 256; byte++) {
        char id[16];
        append(out, byte > 0 ? ", \"" : "\"");
        if (byte == '"' || byte == '\\') append(out, "\\");
        fl_text_append_character(out, fl_text_byte_character((uint8_t)byte), NULL);
        snprintf(id, sizeof id, "\": %d", byte);
        append(out, id);
    }
}

char *fl_tokenizer_json(const fl_tokenizer_parts *parts) {
    fl_text_buffer out = {0};
    append(&out, "{\"version\": \"1.0\", \"truncation\": {\"max_length\": 3}, \"padding\": null");
    append_or(&out, "added_tokens", parts->added_tokens, "[]");
    append_or(&out, "normalizer", parts->normalizer, "null");
    append_or(&out, "pre_tokenizer", parts->pre_tokenizer,
              "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}");
    append_or(&out, "post_processor", parts->post_processor, "null");
    append_or(&out, "decoder", parts->decoder, "{\"type\": \"ByteLevel\"}");
    append(&out, ", \"model\": {\"type\": \"BPE\", \"dropout\": null, \"vocab\": {");
    append_byte_vocabulary(&out);
    append(&out, ", \"he\": 256, \"ll\": 257, \"hell\": 258, \"hello\": 259, \"\xC4\xA0hello\": 260");
    append(&out, parts->vocabulary != NULL ? parts->vocabulary : "");
    append(&out, "}");
    append_or(
        &out, "merges", parts->merges,
        "[\"#version: 0.2\", \"h e\", [\"l\", \"l\"], \"he ll\", [\"hell\", \"o\"], \"\xC4\xA0 hello\"]");
    append(&out, parts->model != NULL ? parts->model : "");
    append(&out, "}}");
    return out.bytes;
}

fl_status fl_open_tokenizer_text(const char *text, fl_tokenizer **out, fl_error *error) {
    char path[PATH_BYTES];
    const char *folder = fl_temporary_directory();
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    fl_write_file(path, text, strlen(text));
    fl_status status = fl_tokenizer_open(folder, out, error);
    fl_temporary_remove(folder);
    return status;
}

fl_tokenizer *fl_open_tokenizer_parts(const fl_tokenizer_parts *parts) {
    fl_tokenizer *tokenizer;
    fl_error error;
    char *text = fl_tokenizer_json(parts);
    if (fl_open_tokenizer_text(text, &tokenizer, &error) != FL_OK) fail_msg("%s", error.message);
    fl_memory_free(text);
    return tokenizer;
}

static void show_ids(const char *what, const int32_t *ids, size_t count) {
    print_error("%s", what);
    for (size_t i = 0; i < count && i < 60; i++) print_error(" %d", (int)ids[i]);
    print_error("\n");
}

void fl_assert_encodes(const fl_tokenizer *tokenizer, const char *text, size_t bytes, const int32_t *ids,
                       size_t count, const char *decoded, size_t decoded_bytes) {
    int32_t *found;
    size_t found_count;
    fl_error error;
    if (fl_tokenizer_encode(tokenizer, text, bytes, false, &found, &found_count, &error) != FL_OK)
        fail_msg("%s", error.message);
    if (found_count != count || (count > 0 && memcmp(found, ids, count * sizeof *ids) != 0)) {
        show_ids("expected:", ids, count);
        show_ids("found:   ", found, found_count);
        fail_msg("wrong ids for \"%.*s\"", (int)bytes, text);
    }
    fl_memory_free(found);
    if (decoded == NULL) return;
    char *back;
    size_t back_bytes;
    assert_int_equal(fl_tokenizer_decode(tokenizer, ids, count, false, &back, &back_bytes, NULL), FL_OK);
    assert_int_equal(back_bytes, decoded_bytes);
    if (memcmp(back, decoded, decoded_bytes) != 0)
        fail_msg("\"%.*s\" decodes to \"%s\"", (int)bytes, text, back);
    fl_memory_free(back);
}

cJSON *fl_read_json_lines(const char *path) {
    size_t bytes;
    char *text = fl_read_file(path, &bytes);
    cJSON *list = cJSON_CreateArray();
    for (const char *line = text; line < text + bytes;) {
        const char *end = memchr(line, '\n', (size_t)(text + bytes - line));
        if (end == NULL) end = text + bytes;
        cJSON *item = cJSON_ParseWithLength(line, (size_t)(end - line));
        if (item == NULL) fail_msg("%s: not JSON: %.*s", path, (int)(end - line), line);
        cJSON_AddItemToArray(list, item);
        line = end + 1;
    }
    fl_memory_free(text);
    return list;
}

char *fl_member_bytes(const cJSON *object, const char *key, size_t *bytes) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsString(item)) return NULL;
    *bytes = strlen(item->valuestring) / 2;
    char *out;
    assert_int_equal(FL_ALLOCATE(&out, *bytes + 1, NULL), FL_OK);
    for (size_t i = 0; i < *bytes; i++) {
        char digits[3] = {item->valuestring[2 * i], item->valuestring[2 * i + 1], '\0'};
        out[i] = (char)strtol(digits, NULL, 16);
    }
    return out;
}

int32_t *fl_member_ids(const cJSON *object, const char *key, size_t *count) {
    const cJSON *item, *list = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsArray(list)) fail_msg("no list %s", key);
    int32_t *out;
    assert_int_equal(FL_ALLOCATE(&out, cJSON_GetArraySize(list), NULL), FL_OK);
    *count = 0;
    cJSON_ArrayForEach(item, list) out[(*count)++] = (int32_t)item->valuedouble;
    return out;
}
