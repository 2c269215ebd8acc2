#include "harness/eval/wikitext.h"

#include <stdbool.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/eval/python_text.h"

typedef struct replacement {
    const char *from, *to;
} replacement;

static const replacement before_brackets[] = {
    {"s '", "s'"}, {" @-@ ", "-"}, {" @,@ ", ","}, {" @.@ ", "."}, {" : ", ": "},
    {" ; ", "; "}, {" . ", ". "},  {" ! ", "! "},  {" ? ", "? "},  {" , ", ", "},
};
static const replacement after_brackets[] = {
    {"= = = =", "===="}, {"= = =", "==="}, {"= =", "=="},  {" \xC2\xB0 ", "\xC2\xB0"},
    {" \n", "\n"},       {"\n ", "\n"},    {" N ", " 1 "}, {" 's", "'s"},
};
static const char bracket_pairs[][2] = {{'(', ')'}, {'[', ']'}, {'{', '}'}, {'"', '"'}, {'\'', '\''}};

static fl_status replace_all(fl_text_buffer *text, fl_text_buffer *spare, const replacement *replacements,
                             size_t count, fl_error *error) {
    for (size_t i = 0; i < count; i++) {
        fl_text_buffer_clear(spare);
        FL_TRY(fl_python_replace(text->text, text->bytes, replacements[i].from, replacements[i].to, spare,
                                 error));
        const fl_text_buffer swapped = *text;
        *text = *spare;
        *spare = swapped;
    }
    return FL_OK;
}

/* Every shortest open ... close, left to right: whitespace next to the marks goes. */
static fl_status trim_inside(fl_text_buffer *text, fl_text_buffer *spare, const char pair[2],
                             fl_error *error) {
    fl_text_buffer_clear(spare);
    size_t kept = 0;
    while (kept < text->bytes) {
        const char *open = memchr(text->text + kept, pair[0], text->bytes - kept);
        if (open == NULL) break;
        const size_t inside = (size_t)(open - text->text) + 1;
        const char *close = memchr(text->text + inside, pair[1], text->bytes - inside);
        if (close == NULL) break;
        size_t start, length;
        fl_python_strip(text->text + inside, (size_t)(close - text->text) - inside, &start, &length);
        FL_TRY(fl_text_buffer_add(spare, text->text + kept, inside - kept, error));
        FL_TRY(fl_text_buffer_add(spare, text->text + inside + start, length, error));
        FL_TRY(fl_text_buffer_add(spare, close, 1, error));
        kept = (size_t)(close - text->text) + 1;
    }
    FL_TRY(fl_text_buffer_add(spare, text->text + kept, text->bytes - kept, error));
    const fl_text_buffer swapped = *text;
    *text = *spare;
    *spare = swapped;
    return FL_OK;
}

static fl_status detokenise(fl_text_buffer *text, fl_text_buffer *spare, fl_error *error) {
    FL_TRY(
        replace_all(text, spare, before_brackets, sizeof before_brackets / sizeof before_brackets[0], error));
    for (size_t i = 0; i < sizeof bracket_pairs / sizeof bracket_pairs[0]; i++) {
        FL_TRY(trim_inside(text, spare, bracket_pairs[i], error));
    }
    return replace_all(text, spare, after_brackets, sizeof after_brackets / sizeof after_brackets[0], error);
}

fl_status fl_wikitext_detokenise(const char *page, size_t bytes, fl_text_buffer *out, fl_error *error) {
    fl_text_buffer text = {0}, spare = {0};
    fl_status status;
    FL_TRY_DONE(status, fl_text_buffer_add(&text, page, bytes, error));
    FL_TRY_DONE(status, detokenise(&text, &spare, error));
    status = fl_text_buffer_add(out, text.text, text.bytes, error);
done:
    fl_text_buffer_release(&text);
    fl_text_buffer_release(&spare);
    return status;
}

/* After "= = =" -> "===" and "= =" -> "==", does the stripped line start with "= " and end with " ="? */
static fl_status is_heading(const char *line, size_t bytes, fl_text_buffer *first, fl_text_buffer *second,
                            bool *out, fl_error *error) {
    size_t start, length;
    *out = false;
    fl_python_strip(line, bytes, &start, &length);
    if (length < 3 || line[start] != '=') return FL_OK;
    fl_text_buffer_clear(first);
    fl_text_buffer_clear(second);
    FL_TRY(fl_python_replace(line + start, length, "= = =", "===", first, error));
    FL_TRY(fl_python_replace(first->text, first->bytes, "= =", "==", second, error));
    const size_t n = second->bytes;
    *out = n >= 3 && memcmp(second->text, "= ", 2) == 0 && memcmp(second->text + n - 2, " =", 2) == 0;
    return FL_OK;
}

static bool is_blank(const char *text, size_t bytes) {
    size_t start, length;
    fl_python_strip(text, bytes, &start, &length);
    return length == 0;
}

static fl_status split_pages(const char *text, size_t bytes, fl_text_span *pages, size_t *count,
                             fl_text_buffer scratch[2], fl_error *error) {
    size_t page_start = 0, page_line = 1, line = 0;
    for (size_t at = 0; at <= bytes;) {
        const char *end = at < bytes ? memchr(text + at, '\n', bytes - at) : NULL;
        const size_t length = end == NULL ? bytes - at : (size_t)(end - text) - at;
        line++;
        bool heading;
        FL_TRY(is_heading(text + at, length, &scratch[0], &scratch[1], &heading, error));
        if (heading) {
            const size_t page_bytes = at > page_start ? at - 1 - page_start : 0;
            if (!is_blank(text + page_start, page_bytes)) {
                pages[(*count)++] =
                    (fl_text_span){.start = page_start, .bytes = page_bytes, .line = page_line};
            }
            page_start = at;
            page_line = line;
        }
        at += length + 1;
    }
    if (!is_blank(text + page_start, bytes - page_start)) {
        pages[(*count)++] =
            (fl_text_span){.start = page_start, .bytes = bytes - page_start, .line = page_line};
    }
    return FL_OK;
}

fl_status fl_wikitext_pages(const char *text, size_t bytes, fl_text_span **pages, size_t *count,
                            fl_error *error) {
    size_t most = 2;
    for (size_t i = 0; i < bytes; i++) most += text[i] == '\n';
    fl_text_span *found = NULL;
    FL_TRY(FL_ALLOCATE(&found, most, error));
    fl_text_buffer scratch[2] = {{0}, {0}};
    *count = 0;
    fl_status status = split_pages(text, bytes, found, count, scratch, error);
    fl_text_buffer_release(&scratch[0]);
    fl_text_buffer_release(&scratch[1]);
    if (status != FL_OK) {
        fl_memory_free(found);
        return status;
    }
    *pages = found;
    return FL_OK;
}
