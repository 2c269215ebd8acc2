/* Gradients of the recurrence: what its step form and its chunk form share. */
#ifndef FL_COMPUTE_CPU_RECURRENCE_BACKWARD_H
#define FL_COMPUTE_CPU_RECURRENCE_BACKWARD_H

#include "harness/compute/cpu_recurrence.h"

/* Scratch of one worker, for FL_CHUNK_TOKENS tokens. */
typedef struct fl_backward_scratch {
    fl_chunk chunk;
    float *state;            /* [Dv][Dk] */
    float *decayed;          /* [Dv][Dk] */
    float *gradient_state;   /* [Dv][Dk] */
    float *gradient_base;    /* [2n][Dv] of what readers read from S' */
    float *gradient_raw;     /* [2n][2n] */
    float *gradient_readers; /* [2n][Dk] */
    float *gradient_sources; /* [2n][Dk] */
    float *gradient_amounts; /* [2n][Dv] */
    double *running;         /* [Dk] gradient of the accumulated decay, summed so far */
} fl_backward_scratch;

/* Passes tokens first .. first + n - 1 back in one chunk. scratch->state holds the state on entry to the
 * chunk (and is overwritten); scratch->gradient_state the gradient of the state after it, then of the state
 * before it. gradients and gradient_output are the head's, from its token 0. */
void fl_chunk_backward(const fl_kernels *kernels, const fl_recurrence_head *head, size_t first, size_t n,
                       const float *gradient_output, const fl_recurrence_gradients *gradients,
                       fl_backward_scratch *scratch);

/* The same for one token, by the definition. */
void fl_step_backward(const fl_kernels *kernels, const fl_recurrence_head *head, size_t token,
                      const float *gradient_output, const fl_recurrence_gradients *gradients,
                      fl_backward_scratch *scratch);

#endif
