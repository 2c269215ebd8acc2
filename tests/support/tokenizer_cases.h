/* Tokenizer tests: small tokenizers written on the fly, and cases read from JSON lines. */
#ifndef FL_TESTS_SUPPORT_TOKENIZER_CASES_H
#define FL_TESTS_SUPPORT_TOKENIZER_CASES_H

#include <stddef.h>
#include <stdint.h>
#include <cjson/cJSON.h>

#include "harness/model/tokenizer.h"

/* The parts of a tokenizer.json that a test changes, each a JSON value; NULL: the usual one. The vocabulary
 * is the 256 byte-level characters (id = byte), then he 256, ll 257, hell 258, hello 259, Ġhello 260; merges
 * make each of the five. */
typedef struct fl_tokenizer_parts {
    const char *added_tokens;   /* usually [] */
    const char *normalizer;     /* usually null */
    const char *pre_tokenizer;  /* usually ByteLevel with its pattern */
    const char *post_processor; /* usually null */
    const char *decoder;        /* usually ByteLevel */
    const char *vocabulary;     /* more members: ", \"x\": 261" */
    const char *merges;
    const char *model; /* more members of the model: ", \"fuse_unk\": true" */
} fl_tokenizer_parts;

/* Text of such a file, an fl_memory block. */
char *fl_tokenizer_json(const fl_tokenizer_parts *parts);
/* Opens `text` as a tokenizer.json in a temporary folder; *out = NULL on failure. */
fl_status fl_open_tokenizer_text(const char *text, fl_tokenizer **out, fl_error *error);
/* Opens one that must open. */
fl_tokenizer *fl_open_tokenizer_parts(const fl_tokenizer_parts *parts);

/* The text must encode to ids[count], and what is decoded back must be `decoded` unless that is NULL. */
void fl_assert_encodes(const fl_tokenizer *tokenizer, const char *text, size_t bytes, const int32_t *ids,
                       size_t count, const char *decoded, size_t decoded_bytes);
#define FL_ASSERT_IDS(tokenizer, text, ...)                                                                  \
    do {                                                                                                     \
        const int32_t wanted_ids_[] = {__VA_ARGS__};                                                         \
        fl_assert_encodes((tokenizer), (text), strlen(text), wanted_ids_,                                    \
                          sizeof wanted_ids_ / sizeof *wanted_ids_, NULL, 0);                                \
    } while (0)

/* A list of the objects in a JSON-lines file (cJSON_Delete). */
cJSON *fl_read_json_lines(const char *path);
/* Bytes of a member that is a string of hex digits, an fl_memory block; NULL when there is no such member. */
char *fl_member_bytes(const cJSON *object, const char *key, size_t *bytes);
/* A member that is a list of ids, an fl_memory block. */
int32_t *fl_member_ids(const cJSON *object, const char *key, size_t *count);

#endif
