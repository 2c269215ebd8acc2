/* Text documents: files of a path read one after another and split into documents. Internal to text_source. */
#ifndef FL_MEASURE_TEXT_DOCUMENTS_H
#define FL_MEASURE_TEXT_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/hash.h"
#include "harness/base/status.h"

/* Called for every document in order; `wanted` false from then on stops the calls (files are still hashed). */
typedef struct fl_document_visitor {
    fl_status (*document)(void *context, const char *text, size_t bytes, bool *wanted, fl_error *error);
    void *context;
} fl_document_visitor;

/* path: a file, or a folder with .txt and .jsonl files. UTF-8 without NUL bytes, else FL_ERROR_FORMAT naming file, line and
 * byte; a byte-order mark is no part of a text. Lines of a .jsonl file: json_rows.h. */
fl_status fl_text_documents_read(const char *path, const fl_document_visitor *visitor, fl_hash *content,
                                 fl_error *error);

#endif
