/* Document tokens: what a model's documents begin and end with. */
#ifndef FL_RUN_DOCUMENT_TOKENS_H
#define FL_RUN_DOCUMENT_TOKENS_H

#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"
#include "harness/model/model.h"

typedef struct fl_document_tokens {
    int32_t start;    /* what a document is read after */
    int32_t stops[1 + FL_MODEL_EOS_MAX]; /* end-of-text tokens */
    size_t stop_count;
} fl_document_tokens;

/* <|endoftext|> where the tokenizer has it, as between the documents of a text, and every end-of-text token that
 * the model's configuration names (else the tokenizer's); started from the first of these or from the beginning-of-text token. A tokenizer that cannot be
 * opened is done without. FL_ERROR_UNSUPPORTED when there is no start. */
fl_status fl_document_tokens_of(const fl_model *model, fl_document_tokens *out, fl_error *error);

#endif
