/* Context and continuation to ids, by the rules of EleutherAI's lm-evaluation-harness (its _encode_pair),
 * which decide whether scores can be compared:
 *
 *   1. White space at the end of the context (Python's rstrip) moves to the front of the continuation.
 *   2. whole = ids(context + continuation), context = ids(context), continuation = whole[length of context:].
 * The model sees the context's own ids, even where whole begins with others.
 *   3. An empty context (or one of white space only) is one prefix token, and the continuation is encoded
 * alone; when that begins with the prefix token already, it is taken from there.
 *   4. Special tokens are added by tokenizers that do so, unless the text begins with the BOS token's text.
 */
#ifndef FL_MODEL_TOKENIZER_PAIR_H
#define FL_MODEL_TOKENIZER_PAIR_H

#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"
#include "harness/model/tokenizer.h"

/* What to do when the continuation has no id of its own ("hel" + "lo" where "hello" is one token). */
typedef enum fl_pair_mode {
    FL_PAIR_LM_EVAL, /* refuse, as the harness's assertion does */
    FL_PAIR_MERGED   /* the last token of the whole is the continuation, those before it are the context */
} fl_pair_mode;

typedef struct fl_token_pair {
    int32_t *context; /* fl_memory block */
    size_t context_count;
    int32_t *continuation; /* fl_memory block; at least one id */
    size_t continuation_count;
} fl_token_pair;

/* prefix: the token of rule 3; -1: BOS, else EOS. On failure *out is empty. FL_ERROR_ARGUMENT means that the
 * continuation has no id of its own, and nothing else does; FL_ERROR_UNSUPPORTED that a prefix is needed and
 * there is none. */
fl_status fl_tokenizer_encode_pair(const fl_tokenizer *tokenizer, const char *context, size_t context_bytes,
                                   const char *continuation, size_t continuation_bytes, int32_t prefix,
                                   fl_pair_mode mode, fl_token_pair *out, fl_error *error);
void fl_token_pair_release(fl_token_pair *pair);

#endif
