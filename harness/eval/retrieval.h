/* Retrieval: long prompts made here, with something in them to be found again.
 *
 * Passkey (Landmark), needle (Kamradt), and the parts of RULER: niah_*, variable tracking, common and
 * frequent words. Texts are seeded and the same on every machine; sizes are fitted to a number of tokens.
 * Haystacks of prose come from a text file the user names. */
#ifndef FL_EVAL_RETRIEVAL_H
#define FL_EVAL_RETRIEVAL_H

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

#endif
