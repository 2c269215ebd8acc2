/* Generation: text continued by a network, with the frozen softmax or a variant in each layer. */
#ifndef FL_ENGINE_GENERATION_H
#define FL_ENGINE_GENERATION_H

#include <stddef.h>
#include <stdint.h>

#include "attn_variants/mechanism.h"
#include "harness/base/progress.h"
#include "harness/base/status.h"
#include "harness/engine/network.h"
#include "harness/engine/sampling.h"
#include "harness/engine/sequences.h"
#include "harness/engine/session.h"

typedef struct fl_generation {
    int32_t *ids; /* fl_memory block */
    size_t count;
    size_t reached; /* generated tokens whose context had reached the linear state */
} fl_generation;

/* session: empty, for one timeline; it is left behind after the last token read. Among equal logits the
 * lowest id is taken. Stops after `most` tokens or in front of `stop` (-1: none). */
fl_status fl_generate_greedy(fl_session *session, const fl_network *network, const int32_t *prompt,
                             size_t tokens, size_t most, int32_t stop, fl_generation *out, fl_error *error);
void fl_generation_release(fl_generation *generation);

/* So many sequences advance together. */
enum { FL_GENERATION_BATCH = 32 };

/* Text sampled from a network: sequences of documents one after another. Every document starts from the
 * prompt alone and ends with one of `stops`, which is part of the text; then the next one starts. A document
 * that fills the model's longest context is ended there, with the first of them. */
typedef struct fl_generation_options {
    size_t sequences,
        tokens; /* tokens: generated in each sequence, the end of a document included; both >= 1 */
    fl_sampling sampling;
    uint64_t seed;
    const int32_t *prompt; /* [prompt_tokens] >= 1; a beginning-of-text token when there is nothing to say */
    size_t prompt_tokens;
    size_t prompt_shown;  /* so many of its last tokens open every document in the text; they are not counted
                             in `tokens` */
    const int32_t *stops; /* [stop_count] end-of-text tokens; none is fine */
    size_t stop_count;
    const fl_progress *progress; /* or NULL */
} fl_generation_options;

/* mechanism NULL: the frozen model itself. Sequence i draws from stream i of the seed, whatever the others
 * do; the same options, model and thread count give the same text. FL_ERROR_NUMERIC when logits are not
 * finite. */
fl_status fl_generate_sampled(const fl_network *network, const fl_mechanism *mechanism,
                              const fl_generation_options *options, fl_sequences *out, fl_error *error);

#endif
