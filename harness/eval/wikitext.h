/* WikiText: pages of a raw file, and the detokeniser lm-evaluation-harness scores them through. */
#ifndef FL_EVAL_WIKITEXT_H
#define FL_EVAL_WIKITEXT_H

#include <stddef.h>

#include "harness/base/status.h"
#include "harness/eval/text_buffer.h"

typedef struct fl_text_span {
    size_t start, bytes;
    size_t line; /* from 1 */
} fl_text_span;

/* *pages [*count] = the pages of text, in order (fl_memory block): a page starts at a level-1 heading line ("
 * = Title = "); it ends before the line break in front of the next one. Blank text before the first heading
 * belongs to no page; other text there is a page, as is a text without any heading. */
fl_status fl_wikitext_pages(const char *text, size_t bytes, fl_text_span **pages, size_t *count,
                            fl_error *error);

/* Appends the detokenised page to out. */
fl_status fl_wikitext_detokenise(const char *page, size_t bytes, fl_text_buffer *out, fl_error *error);

#endif
