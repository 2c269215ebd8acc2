/* Sequences of token ids: what a text is measured on and a mechanism trained on. */
#ifndef FL_ENGINE_SEQUENCES_H
#define FL_ENGINE_SEQUENCES_H

#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"

typedef struct fl_sequences {
    size_t count;
    size_t *lengths;  /* [count] */
    int32_t **ids;    /* [count][length] */
} fl_sequences;

void fl_sequences_release(fl_sequences *sequences);

/* FL_ERROR_ARGUMENT when there is no sequence, one is shorter than `shortest`, or an id is outside the vocabulary; messages
 * begin with `what` ("training text") and name sequence and token. */
fl_status fl_sequences_check(const fl_sequences *sequences, size_t vocabulary, size_t shortest, const char *what,
                             fl_error *error);

enum { FL_OVERLAP_TOKENS = 32 };

/* Where two texts share FL_OVERLAP_TOKENS consecutive tokens (a whole sequence of `evaluation`, when that is shorter, but
 * at least 8). Rolling hashes, verified token by token: no false alarm, nothing missed. */
typedef struct fl_overlap {
    size_t tokens; /* compared; 0 = nothing shared */
    size_t training_sequence, training_token, evaluation_sequence, evaluation_token;
} fl_overlap;

fl_status fl_sequences_overlap(const fl_sequences *training, const fl_sequences *evaluation, fl_overlap *out,
                               fl_error *error);

#endif
