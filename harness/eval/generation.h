/* Generation: greedy continuation of a prompt. */
#ifndef FL_EVAL_GENERATION_H
#define FL_EVAL_GENERATION_H

#include <stddef.h>
#include <stdint.h>

#include "attn_variants/mechanism.h"
#include "harness/base/status.h"
#include "harness/engine/network.h"
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

#endif
