#include "harness/config/text_builder.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"

static fl_status make_room(fl_text_builder *buffer, size_t more, fl_error *error) {
    if (more < buffer->room - buffer->length) return FL_OK;
    size_t room = buffer->room < 64 ? 64 : buffer->room;
    while (room - buffer->length <= more) {
        size_t doubled = 0;
        FL_TRY(fl_memory_multiply(room, 2, &doubled, "text", error));
        room = doubled;
    }
    FL_TRY(FL_RESIZE(&buffer->text, buffer->room, room, error));
    buffer->room = room;
    return FL_OK;
}

fl_status fl_text_builder_add_bytes(fl_text_builder *buffer, const char *bytes, size_t count,
                                    fl_error *error) {
    FL_TRY(make_room(buffer, count, error));
    if (count > 0) memcpy(buffer->text + buffer->length, bytes, count);
    buffer->length += count;
    buffer->text[buffer->length] = '\0';
    return FL_OK;
}

fl_status fl_text_builder_add(fl_text_builder *buffer, const char *text, fl_error *error) {
    return fl_text_builder_add_bytes(buffer, text, strlen(text), error);
}

fl_status fl_text_builder_format(fl_text_builder *buffer, fl_error *error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int needed = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (needed < 0) return fl_error_set(error, FL_ERROR_ARGUMENT, "text cannot be formatted");
    FL_TRY(make_room(buffer, (size_t)needed, error));
    va_start(arguments, format);
    vsnprintf(buffer->text + buffer->length, (size_t)needed + 1, format, arguments);
    va_end(arguments);
    buffer->length += (size_t)needed;
    return FL_OK;
}

void fl_text_builder_release(fl_text_builder *buffer) {
    fl_memory_free(buffer->text);
    *buffer = (fl_text_builder){0};
}
