/* Windows: which tokens are scored after which context when a long text is cut up, by each published
 * definition.
 *
 *   rolling    lm-evaluation-harness: window 1 scores tokens 0 .. L-1 after the prefix token; each further
 * one scores the next L with one token of context, the last, partial one keeps L inputs llama_cpp  chunks of
 * n tokens, the second half scored (predictions of tokens n/2 + 1 .. n - 1); an incomplete chunk is left out;
 *              with a BOS the first token of every chunk is overwritten by it
 *   chunks     chunks of n tokens, nothing carried over, all but the first token scored; an incomplete chunk
 * is left out strided    Hugging Face: windows of n tokens every `stride`, each scoring what no earlier one
 * scored; the first token never is
 */
#ifndef FL_EVAL_WINDOWS_H
#define FL_EVAL_WINDOWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"

typedef enum fl_windows_rule {
    FL_WINDOWS_ROLLING = 0,
    FL_WINDOWS_LLAMA_CPP,
    FL_WINDOWS_CHUNKS,
    FL_WINDOWS_STRIDED
} fl_windows_rule;

/* Tokens context_start .. scored_start - 1 are the context, scored_start .. scored_end - 1 are scored. */
typedef struct fl_window {
    size_t context_start, scored_start, scored_end;
    bool prefixed;    /* the prefix token stands in front of the context (rolling: it is the context) */
    bool overwritten; /* the context's first token is replaced by the BOS */
} fl_window;

typedef struct fl_window_options {
    fl_windows_rule rule;
    size_t length; /* L or n, at least 2 */
    size_t stride; /* strided: 1 .. length */
    bool bos;      /* llama_cpp: the tokenizer adds a BOS */
} fl_window_options;

/* *windows [*count] (fl_memory block), in order; none for an empty text. */
fl_status fl_windows_make(const fl_window_options *options, size_t tokens, fl_window **windows, size_t *count,
                          fl_error *error);

#endif
