/* The recurrence on the cpu: what the step form, the chunk form and their backward passes share.
 *
 * A chunk in scaled coordinates. With G_t the decay accumulated from the chunk's start to its token t
 * (inclusive) and m a reference in the middle of its range, per channel, let readers R = [r; q] exp(G - m) [n
 * or 2n][Dk]   (what reads the state: erase directions, queries) sources Z = [k; x] exp(m - G)   [n or
 * 2n][Dk]   (what was put into it: keys, removed directions) S' = S exp(m) In these the decay is gone. With
 * raw = lower(R Z^T) (strictly for erase rows), the amounts Y [n or 2n][Dv] that belong to the sources are w
 * v for keys that do not erase, and otherwise solve a unit lower triangular system: erase along the key:  Y =
 * U,        (I + b raw) U = w v - b R_r S'^T own directions:       Y = [w v; N], (I + b raw_x) N = -b (R_r
 * S'^T + raw_k (w v)) Then output = R_q S'^T + raw_q Y and the new state is (S' + Y^T Z) exp(G_n - m).
 *
 * A chunk ends early, before a token whose decay would take the range of G in some channel beyond what
 * float32 holds on both sides of m; the decay of a chunk's first token touches S' only and does not count.
 * Pieces too short to pay go through the step form. So gates of 0 cost time, never accuracy. */
#ifndef FL_COMPUTE_CPU_RECURRENCE_H
#define FL_COMPUTE_CPU_RECURRENCE_H

#include "harness/compute/cpu_backend.h"

enum { FL_CHUNK_TOKENS = 48, FL_CHUNK_SHORTEST = 8 };

/* One head's streams from its first token on. */
typedef struct fl_recurrence_head {
    size_t key_dim, value_dim;
    size_t norm_values; /* rows of the state that its norm counts */
    size_t decay_width; /* 0: none, 1: a number a token, Dk: one a channel */
    bool erases, own_directions;
    const float *query, *key, *value, *log_decay, *erase_strength, *write;
    const float *erase_read, *erase_write; /* the key when the erase is along the key; NULL without erase */
} fl_recurrence_head;

fl_recurrence_head fl_recurrence_head_at(fl_transition transition, const fl_recurrence_inputs *inputs,
                                         fl_recurrence_rows rows, size_t head, size_t key_dim,
                                         size_t value_dim);

/* The call's rows with none left 0. */
static inline fl_recurrence_rows fl_recurrence_rows_of(fl_recurrence_rows rows, size_t steps) {
    return (fl_recurrence_rows){rows.read == 0 ? steps : rows.read, rows.write == 0 ? steps : rows.write};
}

/* FL_ERROR_ARGUMENT naming the input when one that the transition needs is missing. */
fl_status fl_recurrence_check(fl_transition transition, const fl_recurrence_inputs *inputs, size_t heads,
                              size_t steps, fl_error *error);

/* Step form of tokens first .. first + count - 1. output and norm are the head's (token 0), or NULL; decay is
 * scratch [Dk]. */
void fl_recurrence_step_tokens(const fl_kernels *kernels, const fl_recurrence_head *head, size_t first,
                               size_t count, float *state, float *output, float *norm, float *decay);

/* Scratch of one worker for a chunk; all for FL_CHUNK_TOKENS tokens. */
typedef struct fl_chunk {
    size_t tokens, sources_count; /* n; n or 2n */
    size_t first_reader_query;    /* row of the first query among the readers: n with an erase, else 0 */
    double *accumulated;          /* [n][width] log2 of G */
    double *middle;               /* [width] log2 of exp(m) */
    float *reader_factor;         /* [n][width] */
    float *source_factor;         /* [n][width] */
    float *state_factor;          /* [width] exp(m) */
    float *end_factor;            /* [width] exp(G_n - m) */
    float *readers;               /* [2n][Dk] */
    float *sources;               /* [2n][Dk] */
    float *raw;                   /* [2n][sources_count] */
    float *system;                /* [n][n] b raw, strictly lower */
    float *read;                  /* [n][Dv] R_r S'^T */
    float *amounts;               /* [2n][Dv] Y */
    float *decay;                 /* [Dk] for the step form */
} fl_chunk;

/* Floats of scratch; and the pointers into it, returning its end. */
size_t fl_chunk_floats(size_t key_dim, size_t value_dim);
float *fl_chunk_carve(fl_chunk *chunk, float *scratch, size_t key_dim, size_t value_dim);

/* Fills chunk->accumulated from token `first` on and returns how many of at most `limit` tokens the piece
 * holds: >= 1, and 1 when it is too short for the chunk form. */
size_t fl_chunk_cut(const fl_kernels *kernels, const fl_recurrence_head *head, size_t first, size_t limit,
                    fl_chunk *chunk);

/* From the inputs and the state on entry: scales the state in place (to S'), fills readers, sources, raw,
 * system, read and amounts. Queries are left out when `queries` is false. */
void fl_chunk_solve(const fl_kernels *kernels, const fl_recurrence_head *head, size_t first, size_t tokens,
                    bool queries, float *state, fl_chunk *chunk);

/* S' to the state after the chunk. */
void fl_chunk_finish_state(const fl_kernels *kernels, const fl_recurrence_head *head, const fl_chunk *chunk,
                           float *state);

/* Multiplies the columns of matrix [rows][key_dim] by factor [width]; width 0 leaves it. */
void fl_chunk_scale_columns(const fl_kernels *kernels, size_t width, const float *factor, size_t rows,
                            size_t key_dim, float *matrix);

/* Products with matrices of lower triangular n x n blocks, [row_blocks n][column_blocks n].
 * lower = lower(left right^T), left [row_blocks n][dim], right [column_blocks n][dim]; the diagonal belongs
 * to it in the blocks' rows from row `with_diagonal` on. */
void fl_chunk_lower_of(const fl_kernels *kernels, size_t n, size_t row_blocks, size_t column_blocks,
                       size_t dim, const float *left, const float *right, size_t with_diagonal, float *lower);
/* out [n][dim] (+)= lower [n][column_blocks n] x [column_blocks n][dim]. */
void fl_chunk_lower_times(const fl_kernels *kernels, size_t n, size_t column_blocks, size_t dim,
                          const float *lower, const float *x, bool accumulate, float *out);
/* out [blocks n][dim] (+)= lower^T x for the first `blocks` of lower's column blocks. */
void fl_chunk_upper_times(const fl_kernels *kernels, size_t n, size_t column_blocks, size_t blocks,
                          size_t dim, const float *lower, const float *x, bool accumulate, float *out);

/* Chunk form of tokens first .. first + count - 1, as many chunks as it takes. */
void fl_recurrence_chunk_tokens(const fl_kernels *kernels, const fl_recurrence_head *head, size_t first,
                                size_t count, float *state, float *output, fl_chunk *chunk);

#endif
