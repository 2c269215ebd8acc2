/* The parts of a tokenizer, shared by its readers and its encoder; nothing outside tokenizer*.c includes
 * this.
 *
 * Text runs through: added tokens not to be normalised -> normalisers -> added tokens to be normalised ->
 * pre-tokenizer steps -> byte-level BPE -> the ids that the post-processor puts around. Decoding joins the
 * tokens' bytes. The order, and every oddity kept, is that of Hugging Face `tokenizers` 0.23. */
#ifndef FL_MODEL_TOKENIZER_PARTS_H
#define FL_MODEL_TOKENIZER_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"
#include "harness/model/tokenizer.h"
#include "harness/model/tokenizer_pattern.h"
#include "harness/model/tokenizer_text.h"

/* Ids beyond this are taken for a damaged file: no vocabulary comes near. Of a tokenizer.json that goes for ids beyond twice
 * the number of its tokens and some more, too. */
enum { FL_TOKEN_ID_LIMIT = 1 << 22, FL_TOKEN_STEPS_MAX = 32, FL_TOKEN_TEMPLATE_MAX = 16 };

typedef struct fl_id_list {
    int32_t *ids; /* fl_memory block */
    size_t count;
    size_t capacity;
} fl_id_list;

fl_status fl_id_list_append(fl_id_list *list, int32_t id, fl_error *error);

/* Tokens as they are written in the file (byte-level form), by id and by text. */
typedef struct fl_vocabulary_token {
    size_t offset; /* in text.bytes */
    size_t bytes;
    bool present;
    bool indexed; /* found by its text */
} fl_vocabulary_token;

typedef struct fl_vocabulary {
    fl_text_buffer text;
    fl_vocabulary_token *tokens;
    size_t count; /* 1 + largest id */
    size_t capacity;
    uint64_t *slots; /* open addressing: 0 = free, else the text's hash (upper half) and id + 1 */
    size_t slot_count;
    size_t indexed_count;
    size_t id_limit; /* ids from here on are refused; 0: FL_TOKEN_ID_LIMIT */
} fl_vocabulary;

/* indexed = false: the token has a text but is never found by it (padding). FL_ERROR_FORMAT: an id twice or
 * out of range, or two ids for one text. */
fl_status fl_vocabulary_add(fl_vocabulary *vocabulary, int64_t id, const char *text, size_t bytes,
                            bool indexed, fl_error *error);
/* -1: no such token. */
int32_t fl_vocabulary_find(const fl_vocabulary *vocabulary, const char *text, size_t bytes);
/* NULL: a gap. */
const char *fl_vocabulary_text(const fl_vocabulary *vocabulary, int32_t id, size_t *bytes);
void fl_vocabulary_release(fl_vocabulary *vocabulary);

/* BPE: merges keyed by the ids of their parts. */
typedef struct fl_bpe_merge {
    int32_t left;
    int32_t right;
    int32_t rank; /* -1: a free slot */
    int32_t result;
} fl_bpe_merge;

typedef struct fl_bpe {
    fl_bpe_merge *merges; /* open addressing */
    size_t merge_slots;
    size_t merge_count;
    int32_t byte_ids[256]; /* the token of each byte's stand-in, -1: none */
    bool ignore_merges;    /* a pre-token that is a token is taken whole */
    bool byte_fallback;
    bool fuse_unknown;
    int32_t unknown;         /* -1: unknown characters vanish */
    char *continuing_prefix; /* NULL or "": none */
    char *word_suffix;
} fl_bpe;

/* Expects a vocabulary that is complete. FL_ERROR_FORMAT: a part or the product is not a token. */
fl_status fl_bpe_add_merge(fl_bpe *bpe, const fl_vocabulary *vocabulary, size_t rank, const char *left,
                           size_t left_bytes, const char *right, size_t right_bytes, fl_error *error);
/* The same with ids, which must be tokens. */
fl_status fl_bpe_add_merge_ids(fl_bpe *bpe, size_t rank, int32_t left, int32_t right, int32_t result,
                               fl_error *error);
/* Fills byte_ids. */
void fl_bpe_finish(fl_bpe *bpe, const fl_vocabulary *vocabulary);
/* True when raw bytes can be encoded by byte_ids alone, with no unknown token, fallback or affix. */
bool fl_bpe_takes_bytes(const fl_bpe *bpe);
void fl_bpe_release(fl_bpe *bpe);

/* Working memory of one encoding. */
typedef struct fl_bpe_scratch {
    struct fl_bpe_symbol *symbols;
    size_t symbol_count, symbol_capacity;
    uint64_t *heap; /* candidates: rank (upper half) and position of the left part */
    size_t heap_count, heap_capacity;
    fl_text_buffer text;
} fl_bpe_scratch;

/* Appends the ids of one pre-token. `raw`: text is raw bytes, to be read through the byte-level alphabet. */
fl_status fl_bpe_encode(const fl_bpe *bpe, const fl_vocabulary *vocabulary, fl_bpe_scratch *scratch,
                        const char *text, size_t bytes, bool raw, fl_id_list *ids, fl_error *error);
void fl_bpe_scratch_release(fl_bpe_scratch *scratch);

/* Added tokens: found in the text before anything else happens to it. */
typedef struct fl_added_token {
    int32_t id;
    bool special;     /* left out of decoded text on request */
    bool normalized;  /* looked for in normalised text */
    bool single_word; /* only where no word character touches it */
    bool lstrip;      /* takes the white space before it along */
    bool rstrip;
} fl_added_token;

/* One pass over the text: the tokens of one kind, sorted by what is looked for. */
typedef struct fl_added_pass {
    struct fl_added_entry *entries;
    size_t count;
    bool first_byte[256];
} fl_added_pass;

typedef struct fl_added_list {
    fl_added_token *tokens;
    size_t count, capacity;
    uint32_t *by_id; /* 1 + index in tokens; 0: not an added token */
    size_t by_id_count;
    bool split_special; /* special tokens written in a text are text */
    fl_added_pass raw, normalised;
} fl_added_list;

/* A token that is there already is left as it was. */
fl_status fl_added_append(fl_added_list *list, fl_added_token token, fl_error *error);
/* A token that is there already takes the flags given now, as when `tokenizers` adds it anew; once special it stays
 * special. */
fl_status fl_added_put(fl_added_list *list, fl_added_token token, fl_error *error);
/* NULL: no added token has this id. */
const fl_added_token *fl_added_find(const fl_added_list *list, int32_t id);
/* Prepares both passes; call once, after the last fl_added_append and when the normalisers are known. */
fl_status fl_added_finish(fl_added_list *list, const fl_tokenizer *tokenizer, fl_error *error);
void fl_added_release(fl_added_list *list);

/* A piece of a text between two matches, or a match (token not NULL). */
typedef fl_status (*fl_added_sink)(void *context, const fl_added_token *token, const char *text, size_t bytes,
                                   fl_error *error);
fl_status fl_added_split(const fl_added_list *list, const fl_added_pass *pass, const char *text, size_t bytes,
                         fl_added_sink sink, void *context, fl_error *error);

typedef enum fl_normaliser_kind {
    FL_NORMALISE_FORM,
    FL_NORMALISE_LOWER_CASE,
    FL_NORMALISE_STRIP,
    FL_NORMALISE_PREPEND,
    FL_NORMALISE_REPLACE
} fl_normaliser_kind;

typedef struct fl_normaliser {
    fl_normaliser_kind kind;
    fl_text_form form;
    bool left, right; /* strip */
    char *from;       /* replace */
    char *to;         /* replace, prepend */
} fl_normaliser;

typedef enum fl_step_kind {
    FL_STEP_PREFIX_SPACE, /* a space in front of what does not begin with one */
    FL_STEP_SPLIT,
    FL_STEP_BYTE_LEVEL, /* every byte becomes its stand-in */
    FL_STEP_METASPACE   /* spaces become `text`, which is also put in front as `prefix` says */
} fl_step_kind;

typedef enum fl_metaspace_prefix {
    FL_PREFIX_NEVER,
    FL_PREFIX_FIRST, /* only where the whole text begins */
    FL_PREFIX_ALWAYS
} fl_metaspace_prefix;

typedef enum fl_split_by {
    FL_SPLIT_BY_PATTERN,
    FL_SPLIT_BY_TEXT,
    FL_SPLIT_BY_NUMBER,
    FL_SPLIT_BY_PUNCTUATION
} fl_split_by;

typedef enum fl_split_behaviour {
    FL_SPLIT_ISOLATED,
    FL_SPLIT_REMOVED,
    FL_SPLIT_CONTIGUOUS,
    FL_SPLIT_MERGED_WITH_PREVIOUS,
    FL_SPLIT_MERGED_WITH_NEXT
} fl_split_behaviour;

typedef struct fl_pre_step {
    fl_step_kind kind;
    fl_split_by by;
    fl_split_behaviour behaviour;
    bool invert;
    fl_metaspace_prefix prefix;
    fl_pattern *pattern;
    char *text;
} fl_pre_step;

typedef enum fl_decoder_kind {
    FL_DECODE_BYTE_LEVEL,    /* all tokens to bytes, then to one text */
    FL_DECODE_REPLACE,       /* `from` by `to` in every token */
    FL_DECODE_BYTE_FALLBACK, /* runs of <0xAB> to the text they spell, or to one U+FFFD each */
    FL_DECODE_FUSE,          /* all tokens to one */
    FL_DECODE_STRIP,         /* up to `start` and `stop` characters `from` off the ends of every token */
    FL_DECODE_METASPACE /* `from` to a space; left out of the first token when it was put there (start = 1) */
} fl_decoder_kind;

typedef struct fl_decoder {
    fl_decoder_kind kind;
    char *from, *to;
    size_t start, stop;
} fl_decoder;

struct fl_tokenizer {
    fl_vocabulary vocabulary;
    fl_bpe bpe;
    fl_added_list added;
    fl_normaliser normalisers[FL_TOKEN_STEPS_MAX];
    size_t normaliser_count;
    fl_pre_step steps[FL_TOKEN_STEPS_MAX];
    size_t step_count;
    fl_decoder decoders[FL_TOKEN_STEPS_MAX]; /* none: tokens as written, joined by spaces */
    size_t decoder_count;
    int32_t before[FL_TOKEN_TEMPLATE_MAX], after[FL_TOKEN_TEMPLATE_MAX]; /* what add_special puts around */
    size_t before_count, after_count;
    int32_t bos, eos;
    fl_text_buffer decoded; /* tokens' bytes, byte-level form undone, one after another */
    size_t *decoded_at;     /* [count + 1] */
    fl_hash hash;
};

/* source: a pattern, or the text to look for; NULL for classes of characters. */
fl_status fl_tokenizer_add_split(fl_tokenizer *tokenizer, fl_split_by by, const char *source,
                                 fl_split_behaviour behaviour, bool invert, fl_error *error);
fl_status fl_tokenizer_add_byte_level(fl_tokenizer *tokenizer, bool prefix_space, bool use_pattern,
                                      fl_error *error);
fl_status fl_tokenizer_add_metaspace(fl_tokenizer *tokenizer, const char *replacement,
                                     fl_metaspace_prefix prefix, fl_error *error);
/* These two copy the texts. */
fl_status fl_tokenizer_add_decoder(fl_tokenizer *tokenizer, fl_decoder decoder, fl_error *error);
fl_status fl_tokenizer_add_normaliser(fl_tokenizer *tokenizer, fl_normaliser normaliser, fl_error *error);
/* Puts ids around those that are put around already. */
fl_status fl_tokenizer_add_template(fl_tokenizer *tokenizer, const int32_t *before, size_t before_count,
                                    const int32_t *after, size_t after_count, fl_error *error);

/* What is made of a text on its way, by a normaliser or by all steps together, is at most so many bytes for each of its own,
 * and some more: steps that multiply a text would fill the memory. Unicode's forms need 11. */
enum { FL_TOKEN_GROWTH = 64, FL_TOKEN_GROWTH_MORE = 4096 };

/* Replaces *out. */
fl_status fl_tokenizer_normalise(const fl_tokenizer *tokenizer, const char *text, size_t bytes,
                                 fl_text_buffer *out, fl_error *error);

/* The two readers: fill an empty tokenizer. */
fl_status fl_tokenizer_read_json(const char *path, const char *folder, fl_tokenizer *tokenizer,
                                 fl_error *error);
fl_status fl_tokenizer_read_gguf(const char *path, fl_tokenizer *tokenizer, fl_error *error);

#endif
