/* The recurrence by its definition, in float64: what the kernels are measured against. */
#ifndef FL_TESTS_SUPPORT_RECURRENCE_REFERENCE_H
#define FL_TESTS_SUPPORT_RECURRENCE_REFERENCE_H

#include "harness/base/random.h"
#include "harness/compute/recurrence.h"

/* One head, one array a member, float64; absent members are NULL. */
typedef struct fl_reference_stream {
    fl_transition transition;
    size_t steps, key_dim, value_dim;
    double *query, *key, *value, *log_decay, *erase_strength, *erase_read, *erase_write, *write;
} fl_reference_stream;

/* state [Dv][Dk] in and out; output [T][Dv] and norm [T] or NULL. */
void fl_reference_recurrence(const fl_reference_stream *stream, double *state, double *output, double *norm);

/* What the numbers of a random case look like. */
typedef enum fl_case_kind {
    FL_CASE_BENIGN = 0, /* unit keys, gates near sigmoid(1), strengths in (0, 1) */
    FL_CASE_SHARP,      /* gates 0, 1, 1e-6 and 1e-30 mixed per channel, strengths 0 and 1 */
    FL_CASE_RESETS,     /* gates of 0 (log -inf) at a few tokens, 1 elsewhere */
    FL_CASE_NULL_RUNS,  /* long runs of null writes */
    FL_CASE_HUGE,       /* keys and values of 1e4 without erase, unit keys with it */
    FL_CASE_TINY,       /* keys and values of 1e-6 */
    FL_CASE_COUNT
} fl_case_kind;

/* A random call over `heads` heads with every array filled (float32), and the same numbers as float64
 * streams. All memory belongs to the case. `call.state` holds the state on entry (random, or 0). */
typedef struct fl_recurrence_case {
    fl_recurrence_call call;
    fl_reference_stream *streams; /* [heads] */
    double *state;                /* [H][Dv][Dk] on entry, then what fl_case_expect leaves */
    double *output;               /* [H][T][Dv] */
    double *norm;                 /* [H][T] */
    float *entry_state;           /* [H][Dv][Dk] float32 copy of the state on entry */
} fl_recurrence_case;

void fl_case_create(fl_recurrence_case *c, fl_random *random, fl_transition transition, fl_case_kind kind,
                    size_t heads, size_t steps, size_t key_dim, size_t value_dim);
/* Runs the definition: fills state, output and norm. */
void fl_case_expect(fl_recurrence_case *c);
/* Puts the state on entry back into call.state. */
void fl_case_rewind(fl_recurrence_case *c);
void fl_case_destroy(fl_recurrence_case *c);

#endif
