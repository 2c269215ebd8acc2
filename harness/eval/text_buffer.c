#include "harness/eval/text_buffer.h"

#include <stdint.h>
#include <string.h>

#include "harness/base/memory.h"

fl_status fl_text_buffer_add(fl_text_buffer *buffer, const char *text, size_t bytes, fl_error *error) {
    if (bytes > SIZE_MAX / 4 - buffer->bytes) {
        return fl_error_set(error, FL_ERROR_MEMORY, "a text of %zu bytes is too long", bytes);
    }
    const size_t needed = buffer->bytes + bytes + 1;
    if (needed > buffer->capacity) {
        size_t capacity = buffer->capacity < 64 ? 64 : buffer->capacity;
        while (capacity < needed) capacity *= 2;
        FL_TRY(FL_RESIZE(&buffer->text, buffer->bytes, capacity, error));
        buffer->capacity = capacity;
    }
    if (bytes > 0) memcpy(buffer->text + buffer->bytes, text, bytes);
    buffer->bytes += bytes;
    buffer->text[buffer->bytes] = '\0';
    return FL_OK;
}

fl_status fl_text_buffer_add_string(fl_text_buffer *buffer, const char *text, fl_error *error) {
    return fl_text_buffer_add(buffer, text, strlen(text), error);
}

fl_status fl_text_buffer_add_strings(fl_text_buffer *buffer, fl_error *error, size_t count,
                                     const char *const *strings) {
    for (size_t i = 0; i < count; i++) FL_TRY(fl_text_buffer_add_string(buffer, strings[i], error));
    return FL_OK;
}

void fl_text_buffer_clear(fl_text_buffer *buffer) {
    buffer->bytes = 0;
    if (buffer->text != NULL) buffer->text[0] = '\0';
}

void fl_text_buffer_release(fl_text_buffer *buffer) {
    fl_memory_free(buffer->text);
    *buffer = (fl_text_buffer){0};
}

fl_status fl_text_buffer_take(fl_text_buffer *buffer, char **text, fl_error *error) {
    if (buffer->text == NULL) FL_TRY(fl_text_buffer_add(buffer, "", 0, error));
    *text = buffer->text;
    *buffer = (fl_text_buffer){0};
    return FL_OK;
}
