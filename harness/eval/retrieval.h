/* Retrieval: long prompts made here, with something in them to be found again.
 *
 * Passkey (Landmark attention), needle (Kamradt), and the parts of RULER that need no question set: niah_*,
 * variable tracking, common and frequent words. Texts are seeded and the same on every machine; the filler is
 * as much as fits into a number of tokens. Haystacks of prose come from a text the user names. Prompts end
 * with RULER's answer prefix, as base models need.
 *
 * Differences from RULER: our own word lists, no worked example in front, and the first needle stands at the
 * depth asked for. */
#ifndef FL_EVAL_RETRIEVAL_H
#define FL_EVAL_RETRIEVAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"
#include "harness/model/tokenizer.h"

typedef enum fl_retrieval_kind {
    FL_RETRIEVAL_NONE = 0,
    FL_RETRIEVAL_PASSKEY,
    FL_RETRIEVAL_NEEDLE,
    FL_RETRIEVAL_SINGLE_1,
    FL_RETRIEVAL_SINGLE_2,
    FL_RETRIEVAL_SINGLE_3,
    FL_RETRIEVAL_MULTIKEY_1,
    FL_RETRIEVAL_MULTIKEY_2,
    FL_RETRIEVAL_MULTIKEY_3,
    FL_RETRIEVAL_MULTIVALUE,
    FL_RETRIEVAL_MULTIQUERY,
    FL_RETRIEVAL_VARIABLE_TRACKING,
    FL_RETRIEVAL_COMMON_WORDS,
    FL_RETRIEVAL_FREQUENT_WORDS,
    FL_RETRIEVAL_MQAR,
    FL_RETRIEVAL_OVERWRITE
} fl_retrieval_kind;

enum { FL_RETRIEVAL_MAX_ANSWERS = 10, FL_RETRIEVAL_ANSWER_BYTES = 64 };

typedef struct fl_retrieval_request {
    fl_retrieval_kind kind;
    size_t length; /* tokens of prompt and answer together, at most */
    double depth;  /* 0 = at the start, 1 = at the end */
    uint64_t seed, sample;
    const char *prose; /* haystack of the kinds that need one, else ignored */
} fl_retrieval_request;

typedef struct fl_retrieval_prompt {
    char *text; /* fl_memory block; ends without white space */
    size_t answer_count;
    char answers[FL_RETRIEVAL_MAX_ANSWERS][FL_RETRIEVAL_ANSWER_BYTES];
    bool first_integer; /* scored by the first whole number of the continuation, else by the share of answers
                           in it */
    size_t new_tokens;  /* to generate */
} fl_retrieval_prompt;

bool fl_retrieval_needs_prose(fl_retrieval_kind kind);

/* FL_ERROR_ARGUMENT when not even a prompt without filler fits, or the prose is missing. */
fl_status fl_retrieval_make(const fl_retrieval_request *request, const fl_tokenizer *tokenizer,
                            fl_retrieval_prompt *out, fl_error *error);
void fl_retrieval_release(fl_retrieval_prompt *prompt);

/* 0 .. 1. */
double fl_retrieval_score(const fl_retrieval_prompt *prompt, const char *continuation);

#endif
