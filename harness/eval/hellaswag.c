#include "harness/eval/hellaswag.h"

#include <string.h>

#include "harness/eval/python_text.h"

static fl_status without_brackets(const fl_text_buffer *text, fl_text_buffer *out, fl_error *error) {
    size_t kept = 0;
    for (size_t at = 0; at < text->bytes; at++) {
        if (text->text[at] != '[') continue;
        const size_t length = strcspn(text->text + at, "]\n");
        if (text->text[at + length] != ']') continue;
        FL_TRY(fl_text_buffer_add(out, text->text + kept, at - kept, error));
        at += length;
        kept = at + 1;
    }
    return fl_text_buffer_add(out, text->text + kept, text->bytes - kept, error);
}

fl_status fl_hellaswag_preprocess(const char *text, size_t bytes, fl_text_buffer *out, fl_error *error) {
    size_t start, length;
    fl_python_strip(text, bytes, &start, &length);
    fl_text_buffer titled = {0}, plain = {0};
    fl_status status;
    FL_TRY_DONE(status, fl_python_replace(text + start, length, " [title]", ". ", &titled, error));
    FL_TRY_DONE(status, without_brackets(&titled, &plain, error));
    status = fl_python_replace(plain.text, plain.bytes, "  ", " ", out, error);
done:
    fl_text_buffer_release(&titled);
    fl_text_buffer_release(&plain);
    return status;
}

fl_status fl_hellaswag_query(const char *activity_label, const char *first, const char *second,
                             fl_text_buffer *out, fl_error *error) {
    fl_text_buffer text = {0};
    fl_status status;
    FL_TRY_DONE(status, FL_TEXT_ADD(&text, error, activity_label, ": ", first, " "));
    FL_TRY_DONE(status, fl_python_capitalize(second, strlen(second), &text, error));
    status = fl_hellaswag_preprocess(text.text, text.bytes, out, error);
done:
    fl_text_buffer_release(&text);
    return status;
}
