/* Session: one timeline (one sequence) through a network, with the frozen softmax or a variant in each layer.
 *
 * Tokens are appended in calls of any length; caches and states carry over, so any cut gives the same numbers
 * up to rounding. A session can be forked (a few-shot prefix is run once and forked for every question).
 * Softmax layers keep a growing key/value cache; linearised layers a fixed-size mixer.
 *
 * A call is worked off in blocks of at most FL_SESSION_BLOCK tokens, each through all layers, so that the
 * memory for activations does not grow with the call.
 *
 * Dynamic RoPE scaling depends on the length of the sequence: like Hugging Face, a call uses the frequencies
 * of the length reached at its end (or announced with fl_session_expect_length) and leaves keys cached
 * earlier as they are. It is the one case in which a cut changes the numbers. */
#ifndef FL_ENGINE_SESSION_H
#define FL_ENGINE_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "attn_variants/mechanism.h"
#include "attn_variants/mixer.h"
#include "harness/base/status.h"
#include "harness/compute/array.h"
#include "harness/engine/network.h"

enum { FL_SESSION_BLOCK = 512 };

typedef struct fl_session fl_session;

/* Everything one layer computed for the tokens of one block of a call. Valid during the callback only. */
typedef struct fl_layer_view {
    size_t layer, tokens, first_position;
    fl_array attention_input;  /* [T][E]  after the input norm: h */
    fl_array query;            /* [T][H][D]  after q/k norm and RoPE */
    fl_array key, value;      /* [T][Hkv][D] */
    fl_array mix;              /* [T][H][D]  before the output projection */
    fl_array attention_output; /* [T][E]  after the output projection, before the residual */
    fl_array residual;         /* [T][E]  the stream after the whole layer */
    const fl_mixer *mixer;         /* NULL in a softmax layer */
} fl_layer_view;

typedef struct fl_session_observer {
    /* Called once per block and layer, blocks outermost, each in ascending order: a call of more than
     * FL_SESSION_BLOCK tokens comes to a layer several times, with rising first_position. A failure stops the
     * forward pass and is passed on; the session then has to be reset. */
    fl_status (*layer)(void *context, const fl_layer_view *view, fl_error *error);
    void *context;
} fl_session_observer;

/* mechanism NULL: the frozen model itself. Both are borrowed. */
fl_status fl_session_create(const fl_network *network, const fl_mechanism *mechanism, fl_session **out,
                            fl_error *error);
void fl_session_destroy(fl_session *session);
void fl_session_reset(fl_session *session);

/* Appends `tokens` ids. hidden [T][E] = final states after the final norm, or NULL. embedding [T][E] = the
 * stream before layer 0, or NULL. observer may be NULL. Ids outside the vocabulary: FL_ERROR_ARGUMENT.
 * Non-finite numbers are not an error here. */
fl_status fl_session_forward(fl_session *session, const int32_t *ids, size_t tokens, fl_array embedding,
                             fl_array hidden, const fl_session_observer *observer, fl_error *error);

/* The same, but hidden [row_count][E] has the final states of tokens rows[0] < rows[1] < ... of the call
 * only: the last layer is not worked out for the others. */
fl_status fl_session_forward_rows(fl_session *session, const int32_t *ids, size_t tokens, const size_t *rows,
                                  size_t row_count, fl_array hidden, fl_error *error);

/* Continuations of one timeline that are not kept. */
typedef struct fl_session_branches {
    size_t count;
    const size_t *tokens; /* [count], each at least 1, together at most FL_SESSION_BLOCK */
    const int32_t *ids;   /* those of the branches one after the other */
    size_t row_count;
    const size_t *rows; /* [row_count] tokens, counted through all branches, whose final states are wanted;
                           ascending */
    fl_array hidden;      /* [row_count][E] */
    size_t *written;    /* [count] fl_session_tokens_written at the end of each branch */
} fl_session_branches;

/* Each branch goes on from where the session stands and sees nothing of the others; their tokens go through
 * the linear layers together. The session is as before afterwards. Equal, up to rounding, to a fork for each.
 * A failure leaves the session to be reset. */
fl_status fl_session_forward_branches(fl_session *session, const fl_session_branches *branches,
                                      fl_error *error);

/* One further token of each of `count` sessions of one network and mechanism: their rows go through the
 * linear layers together, each mixes over its own past. ids [count], hidden [count][E]. Equal, up to
 * rounding, to `count` calls of fl_session_forward with one token. No session may be in the list twice. A
 * failure leaves all of them to be reset. */
fl_status fl_session_forward_batch(fl_session *const *sessions, size_t count, const int32_t *ids,
                                   fl_array hidden, fl_error *error);

/* Announces that the sequence will be `tokens` long: dynamic RoPE then uses that length from the start, and
 * caches are allocated once. 0 takes it back, as does a reset. */
fl_status fl_session_expect_length(fl_session *session, size_t tokens, fl_error *error);

fl_status fl_session_fork(const fl_session *session, fl_session **out, fl_error *error);
/* Makes *session equal to *source, reusing memory. Same network and mechanism. */
fl_status fl_session_copy(fl_session *session, const fl_session *source, fl_error *error);

size_t fl_session_position(const fl_session *session);
/* Bytes of state and of exact set / cache this sequence holds now. */
size_t fl_session_state_bytes(const fl_session *session);
size_t fl_session_exact_bytes(const fl_session *session);
/* Tokens the linear states (minimum over linearised layers) have received; 0 for the frozen model. */
size_t fl_session_tokens_written(const fl_session *session);

/* One layer's output projection, for measuring: attention_output [T][E] from mix [T][H][D]. */
void fl_session_output_projection(const fl_network *network, size_t layer, size_t tokens, fl_array mix,
                                  fl_array attention_output);

#endif
