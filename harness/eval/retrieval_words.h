/* Words the made prompts draw their keys from. */
#ifndef FL_EVAL_RETRIEVAL_WORDS_H
#define FL_EVAL_RETRIEVAL_WORDS_H

#include <stddef.h>

enum { FL_RETRIEVAL_ADJECTIVES = 48, FL_RETRIEVAL_NOUNS = 96 };

extern const char *const fl_retrieval_adjectives[FL_RETRIEVAL_ADJECTIVES];
extern const char *const fl_retrieval_nouns[FL_RETRIEVAL_NOUNS];

#endif
