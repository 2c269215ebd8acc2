/* Fuzz target: any bytes as a GGUF file, its metadata read in every way, its configuration understood or
 * refused. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/model/config_gguf.h"
#include "harness/model/gguf.h"
#include "harness/model/gguf_split.h"
#include "harness/model/stored_type.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { KEY_ROOM = 256, MOST_ELEMENTS = 100 };

/* Touches every byte that is handed out. */
static size_t touch(const void *data, size_t bytes) {
    size_t sum = 0;
    for (size_t i = 0; i < bytes; i++) sum += ((const unsigned char *)data)[i];
    return sum;
}

static size_t read_key(const fl_gguf *gguf, const char *key) {
    const char *text;
    size_t bytes, count = 0, sum = 0;
    uint64_t whole;
    int64_t signed_whole;
    double number;
    bool flag;
    if (!fl_gguf_has(gguf, key)) abort();
    if (fl_gguf_find_string(gguf, key, &text, &bytes)) sum += touch(text, bytes);
    if (fl_gguf_find_unsigned(gguf, key, &whole)) sum += (size_t)whole;
    if (fl_gguf_find_number(gguf, key, &number)) sum += touch(&number, sizeof number);
    if (fl_gguf_find_bool(gguf, key, &flag)) sum += flag;
    if (!fl_gguf_array_count(gguf, key, &count)) return sum;
    for (size_t i = 0; i < count && i < MOST_ELEMENTS; i++) {
        size_t at = i % 2 == 0 ? i : count - i;
        if (fl_gguf_array_string(gguf, key, at, &text, &bytes)) sum += touch(text, bytes);
        if (fl_gguf_array_integer(gguf, key, at, &signed_whole)) sum += (size_t)signed_whole;
        if (fl_gguf_array_number(gguf, key, at, &number)) sum += touch(&number, sizeof number);
    }
    return sum;
}

static size_t read_all(const fl_gguf *gguf, const uint8_t *data, size_t size) {
    size_t sum = 0, parts = 0, skipped = 0;
    for (size_t i = 0; i < fl_gguf_key_count(gguf); i++) {
        const char *key;
        size_t bytes;
        char text[KEY_ROOM];
        fl_gguf_key(gguf, i, &key, &bytes);
        if (bytes >= sizeof text) continue;
        snprintf(text, sizeof text, "%.*s", (int)bytes, key);
        sum += read_key(gguf, text);
    }
    for (size_t i = 0; i < fl_gguf_tensor_count(gguf); i++) {
        const fl_gguf_tensor *tensor = fl_gguf_tensor_at(gguf, i);
        if (tensor->bytes < data || tensor->bytes + tensor->byte_count > data + size) abort();
        if (fl_stored_type_of_gguf(tensor->type_id) == NULL) abort();
    }
    fl_model_config config;
    const fl_architecture *architecture = NULL;
    fl_error error;
    fl_config_gguf_read(gguf, &config, &architecture, &skipped, &error);
    fl_memory_free(config.sliding_window);
    fl_gguf_split_check(gguf, 0, 0, &parts, &error);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[] = "fuzz.gguf";
    const fl_mapped_file file = {.path = path, .data = data, .size = size, .descriptor = -1};
    fl_gguf *gguf = NULL;
    fl_error error;
    volatile size_t sum = 0;
    if (fl_gguf_parse(&file, &gguf, &error) == FL_OK) sum = read_all(gguf, data, size);
    fl_gguf_close(gguf);
    (void)sum;
    return 0;
}
