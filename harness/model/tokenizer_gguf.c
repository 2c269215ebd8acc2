/* Tokenizer keys of GGUF files. A file names its pre-tokenizer and does not describe it, so the families are
 * a table here; each follows the family's tokenizer.json (NFC included, which llama.cpp leaves out), and a
 * name that is not in the table is refused. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/model/gguf.h"
#include "harness/model/tokenizer_parts.h"

#define KEY(name) "tokenizer.ggml." name

enum { SCORED_TOKEN_BYTES = 1024 };

typedef enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE
} token_type;

typedef struct token_family {
    const char *name;
    const char *pattern; /* fl_pattern_known */
    bool nfc;
    bool digits;      /* every digit alone before the pattern runs */
    bool punctuation; /* Falcon: runs of punctuation first; then numbers, at most three ASCII digits together
                       */
    bool ignore_merges;
    bool bos; /* added when the file does not say */
} token_family;

static const token_family families[] = {
    {.name = "gpt-2", .pattern = "gpt-2"},
    {.name = "smollm", .pattern = "gpt-2", .digits = true},
    {.name = "starcoder", .pattern = "gpt-2", .digits = true},
    {.name = "mpt", .pattern = "gpt-2", .nfc = true},
    {.name = "falcon", .pattern = "gpt-2", .punctuation = true},
    {.name = "llama-bpe", .pattern = "llama3", .ignore_merges = true, .bos = true},
    {.name = "llama3", .pattern = "llama3", .ignore_merges = true, .bos = true},
    {.name = "llama-v3", .pattern = "llama3", .ignore_merges = true, .bos = true},
    {.name = "falcon3", .pattern = "llama3", .ignore_merges = true, .bos = true},
    {.name = "tekken", .pattern = "tekken", .ignore_merges = true, .bos = true},
    {.name = "qwen2", .pattern = "qwen2", .nfc = true},
    {.name = "deepseek-r1-qwen", .pattern = "qwen2", .nfc = true},
    {.name = "qwen35", .pattern = "qwen35", .nfc = true},
};

static fl_status find_family(const fl_gguf *gguf, const token_family **out, fl_error *error) {
    const char *name;
    size_t bytes;
    *out = NULL;
    if (!fl_gguf_find_string(gguf, KEY("pre"), &name, &bytes))
        return fl_error_set(
            error, FL_ERROR_FORMAT,
            "no %s: files without it split words and digits in an unknown way; convert the model again",
            KEY("pre"));
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        *out = &families[i];
        if (strlen(families[i].name) == bytes && memcmp(families[i].name, name, bytes) == 0) return FL_OK;
    }
    return fl_error_set(error, FL_ERROR_UNSUPPORTED, "%s \"%.*s\" is not supported", KEY("pre"), (int)bytes,
                        name);
}

static fl_status add_family(const token_family *family, fl_tokenizer *tokenizer, fl_error *error) {
    FL_TRY(fl_tokenizer_add_decoder(tokenizer, (fl_decoder){.kind = FL_DECODE_BYTE_LEVEL}, error));
    tokenizer->bpe.ignore_merges = family->ignore_merges;
    if (family->nfc)
        FL_TRY(fl_tokenizer_add_normaliser(
            tokenizer, (fl_normaliser){.kind = FL_NORMALISE_FORM, .form = FL_TEXT_NFC}, error));
    if (family->digits)
        FL_TRY(fl_tokenizer_add_split(tokenizer, FL_SPLIT_BY_NUMBER, NULL, FL_SPLIT_ISOLATED, false, error));
    if (family->punctuation)
        FL_TRY(fl_tokenizer_add_split(tokenizer, FL_SPLIT_BY_PUNCTUATION, NULL, FL_SPLIT_CONTIGUOUS, false,
                                      error));
    FL_TRY(fl_tokenizer_add_split(tokenizer, FL_SPLIT_BY_PATTERN, fl_pattern_known(family->pattern),
                                  FL_SPLIT_ISOLATED, false, error));
    FL_TRY(fl_tokenizer_add_byte_level(tokenizer, false, false, error));
    if (!family->punctuation) return FL_OK;
    /* In Falcon's file these two see the byte-level text. */
    FL_TRY(fl_tokenizer_add_split(tokenizer, FL_SPLIT_BY_NUMBER, NULL, FL_SPLIT_CONTIGUOUS, false, error));
    return fl_tokenizer_add_split(tokenizer, FL_SPLIT_BY_PATTERN, "[0-9][0-9][0-9]", FL_SPLIT_ISOLATED, false,
                                  error);
}

/* "[PAD<id>]": what converters write where the vocabulary has gaps, whatever type they give it. */
static bool is_padding(size_t id, const char *text, size_t bytes) {
    char padding[32];
    int length = snprintf(padding, sizeof padding, "[PAD%zu]", id);
    return (size_t)length == bytes && memcmp(padding, text, bytes) == 0;
}

static fl_status read_tokens(const fl_gguf *gguf, fl_tokenizer *tokenizer, fl_error *error) {
    size_t count, types = 0;
    if (!fl_gguf_array_count(gguf, KEY("tokens"), &count))
        return fl_error_set(error, FL_ERROR_FORMAT, "no %s", KEY("tokens"));
    if (fl_gguf_has(gguf, KEY("token_type")) &&
        (!fl_gguf_array_count(gguf, KEY("token_type"), &types) || types != count))
        return fl_error_set(error, FL_ERROR_FORMAT, "%s is not a list of %zu numbers", KEY("token_type"),
                            count);
    for (size_t id = 0; id < count; id++) {
        const char *text;
        size_t bytes;
        int64_t type = TOKEN_NORMAL;
        if (!fl_gguf_array_string(gguf, KEY("tokens"), id, &text, &bytes))
            return fl_error_set(error, FL_ERROR_FORMAT, "%s: element %zu is not a string", KEY("tokens"), id);
        if (types > 0 && !fl_gguf_array_integer(gguf, KEY("token_type"), id, &type))
            return fl_error_set(error, FL_ERROR_FORMAT, "%s: element %zu is not an integer",
                                KEY("token_type"), id);
        if (fl_text_valid_prefix(text, bytes) < bytes)
            return fl_error_set(error, FL_ERROR_FORMAT, "%s: element %zu is not UTF-8", KEY("tokens"), id);
        bool added = type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED;
        bool unused = type == TOKEN_UNUSED || is_padding(id, text, bytes);
        FL_TRY(fl_vocabulary_add(&tokenizer->vocabulary, (int64_t)id, text, bytes, !unused, error));
        if (!added || unused || bytes == 0) continue;
        fl_added_token token = {.id = (int32_t)id, .special = type == TOKEN_CONTROL};
        FL_TRY(fl_added_append(&tokenizer->added, token, error));
    }
    return FL_OK;
}

static fl_status read_merges(const fl_gguf *gguf, fl_tokenizer *tokenizer, fl_error *error) {
    size_t count;
    if (!fl_gguf_array_count(gguf, KEY("merges"), &count))
        return fl_error_set(error, FL_ERROR_FORMAT, "no %s", KEY("merges"));
    for (size_t rank = 0; rank < count; rank++) {
        const char *text;
        size_t bytes;
        if (!fl_gguf_array_string(gguf, KEY("merges"), rank, &text, &bytes))
            return fl_error_set(error, FL_ERROR_FORMAT, "%s: element %zu is not a string", KEY("merges"),
                                rank);
        const char *space = bytes > 1 ? memchr(text + 1, ' ', bytes - 1) : NULL;
        if (space == NULL)
            return fl_error_set(error, FL_ERROR_FORMAT, "%s: element %zu is not two tokens and a space",
                                KEY("merges"), rank);
        size_t left = (size_t)(space - text);
        FL_TRY(fl_bpe_add_merge(&tokenizer->bpe, &tokenizer->vocabulary, rank, text, left, space + 1,
                                bytes - left - 1, error));
    }
    return FL_OK;
}

/* Two tokens that make a third. */
typedef struct scored_merge {
    double score; /* of the result */
    int32_t result, left, right;
} scored_merge;

typedef struct scored_merges {
    scored_merge *items; /* fl_memory block */
    size_t count, capacity;
} scored_merges;

/* The order in which Hugging Face writes the merges of a SentencePiece model into tokenizer.json. */
static int compare_merges(const void *left, const void *right) {
    const scored_merge *a = left, *b = right;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    if (a->result != b->result) return a->result < b->result ? -1 : 1;
    if (a->left != b->left) return a->left < b->left ? -1 : 1;
    return a->right < b->right ? -1 : a->right > b->right;
}

static fl_status collect_splits(const fl_tokenizer *tokenizer, int32_t id, double score,
                                scored_merges *merges, fl_error *error) {
    size_t bytes = 0, cut = 0;
    const fl_vocabulary *vocabulary = &tokenizer->vocabulary;
    const char *text = fl_vocabulary_text(vocabulary, id, &bytes);
    if (bytes > SCORED_TOKEN_BYTES)
        return fl_error_set(error, FL_ERROR_FORMAT, "token %d has %zu bytes (at most %d)", (int)id, bytes,
                            SCORED_TOKEN_BYTES);
    if (bytes == 0) return FL_OK;
    for (fl_text_next(text, bytes, &cut); cut < bytes; fl_text_next(text, bytes, &cut)) {
        int32_t left = fl_vocabulary_find(vocabulary, text, cut);
        int32_t right = left >= 0 ? fl_vocabulary_find(vocabulary, text + cut, bytes - cut) : -1;
        if (right < 0) continue;
        if (merges->count == merges->capacity) {
            size_t capacity = merges->capacity == 0 ? 1024 : 2 * merges->capacity;
            FL_TRY(FL_RESIZE(&merges->items, merges->capacity, capacity, error));
            merges->capacity = capacity;
        }
        merges->items[merges->count++] = (scored_merge){score, id, left, right};
    }
    return FL_OK;
}

static fl_status collect_merges(const fl_gguf *gguf, const fl_tokenizer *tokenizer, scored_merges *merges,
                                fl_error *error) {
    size_t count = tokenizer->vocabulary.count, scores;
    if (!fl_gguf_array_count(gguf, KEY("scores"), &scores) || scores != count)
        return fl_error_set(error, FL_ERROR_FORMAT, "%s is not a list of %zu numbers", KEY("scores"), count);
    for (size_t id = 0; id < count; id++) {
        double score;
        int64_t type = TOKEN_NORMAL;
        if (!fl_gguf_array_number(gguf, KEY("scores"), id, &score) || isnan(score))
            return fl_error_set(error, FL_ERROR_FORMAT, "%s: element %zu is not a number", KEY("scores"), id);
        fl_gguf_array_integer(gguf, KEY("token_type"), id, &type);
        if (type == TOKEN_NORMAL && tokenizer->vocabulary.tokens[id].indexed)
            FL_TRY(collect_splits(tokenizer, (int32_t)id, score, merges, error));
    }
    return FL_OK;
}

/* A SentencePiece model has no merges: two neighbours merge when the vocabulary has the result, best score
 * first. */
static fl_status read_scores(const fl_gguf *gguf, fl_tokenizer *tokenizer, fl_error *error) {
    scored_merges merges = {0};
    fl_status status = collect_merges(gguf, tokenizer, &merges, error);
    if (status == FL_OK && merges.count > 0)
        qsort(merges.items, merges.count, sizeof *merges.items, compare_merges);
    for (size_t rank = 0; rank < merges.count && status == FL_OK; rank++) {
        const scored_merge *merge = &merges.items[rank];
        status = fl_bpe_add_merge_ids(&tokenizer->bpe, rank, merge->left, merge->right, merge->result, error);
    }
    fl_memory_free(merges.items);
    return status;
}

static fl_status read_special_id(const fl_gguf *gguf, const char *key, const fl_tokenizer *tokenizer,
                                 int32_t *id, fl_error *error) {
    uint64_t value;
    if (!fl_gguf_has(gguf, key)) return FL_OK;
    if (!fl_gguf_find_unsigned(gguf, key, &value) || value >= tokenizer->vocabulary.count)
        return fl_error_set(error, FL_ERROR_FORMAT, "%s is not a token's id", key);
    *id = (int32_t)value;
    return FL_OK;
}

static fl_status read_switch(const fl_gguf *gguf, const char *key, bool *on, fl_error *error) {
    if (fl_gguf_has(gguf, key) && !fl_gguf_find_bool(gguf, key, on))
        return fl_error_set(error, FL_ERROR_FORMAT, "%s is not a boolean", key);
    return FL_OK;
}

static fl_status read_specials(const fl_gguf *gguf, bool adds_bos, fl_tokenizer *tokenizer, fl_error *error) {
    bool adds_eos = false;
    FL_TRY(read_special_id(gguf, KEY("bos_token_id"), tokenizer, &tokenizer->bos, error));
    FL_TRY(read_special_id(gguf, KEY("eos_token_id"), tokenizer, &tokenizer->eos, error));
    FL_TRY(read_switch(gguf, KEY("add_bos_token"), &adds_bos, error));
    FL_TRY(read_switch(gguf, KEY("add_eos_token"), &adds_eos, error));
    if (adds_bos && tokenizer->bos < 0)
        return fl_error_set(error, FL_ERROR_FORMAT, "a BOS token is to be added and %s is missing",
                            KEY("bos_token_id"));
    if (adds_eos && tokenizer->eos < 0)
        return fl_error_set(error, FL_ERROR_FORMAT, "an EOS token is to be added and %s is missing",
                            KEY("eos_token_id"));
    return fl_tokenizer_add_template(tokenizer, &tokenizer->bos, adds_bos, &tokenizer->eos, adds_eos, error);
}

static fl_status read_byte_level(const fl_gguf *gguf, fl_tokenizer *tokenizer, fl_error *error) {
    const token_family *family = NULL;
    FL_TRY(find_family(gguf, &family, error));
    FL_TRY(add_family(family, tokenizer, error));
    FL_TRY(read_tokens(gguf, tokenizer, error));
    FL_TRY(read_merges(gguf, tokenizer, error));
    return read_specials(gguf, family->bos, tokenizer, error);
}

/* Llama's steps: a mark in front of every piece of text unless the file says otherwise, and for every space.
 */
static fl_status add_marks(bool prefix, fl_tokenizer *tokenizer, fl_error *error) {
    static char mark[] = "\xE2\x96\x81", space[] = " ";
    if (prefix)
        FL_TRY(fl_tokenizer_add_normaliser(tokenizer,
                                           (fl_normaliser){.kind = FL_NORMALISE_PREPEND, .to = mark}, error));
    FL_TRY(fl_tokenizer_add_normaliser(
        tokenizer, (fl_normaliser){.kind = FL_NORMALISE_REPLACE, .from = space, .to = mark}, error));
    FL_TRY(fl_tokenizer_add_decoder(
        tokenizer, (fl_decoder){.kind = FL_DECODE_REPLACE, .from = mark, .to = space}, error));
    FL_TRY(fl_tokenizer_add_decoder(tokenizer, (fl_decoder){.kind = FL_DECODE_BYTE_FALLBACK}, error));
    FL_TRY(fl_tokenizer_add_decoder(tokenizer, (fl_decoder){.kind = FL_DECODE_FUSE}, error));
    if (!prefix) return FL_OK;
    return fl_tokenizer_add_decoder(tokenizer,
                                    (fl_decoder){.kind = FL_DECODE_STRIP, .from = space, .start = 1}, error);
}

static fl_status read_sentencepiece(const fl_gguf *gguf, fl_tokenizer *tokenizer, fl_error *error) {
    bool prefix = true, squeezes = false;
    FL_TRY(read_switch(gguf, KEY("add_space_prefix"), &prefix, error));
    FL_TRY(read_switch(gguf, KEY("remove_extra_whitespaces"), &squeezes, error));
    if (squeezes || fl_gguf_has(gguf, KEY("precompiled_charsmap")))
        return fl_error_set(error, FL_ERROR_UNSUPPORTED, "SentencePiece normalisation (%s) is not supported",
                            squeezes ? KEY("remove_extra_whitespaces") : KEY("precompiled_charsmap"));
    FL_TRY(add_marks(prefix, tokenizer, error));
    FL_TRY(read_tokens(gguf, tokenizer, error));
    FL_TRY(read_scores(gguf, tokenizer, error));
    /* The ids that SentencePiece gives when a file does not say. */
    tokenizer->bpe.unknown = 0;
    tokenizer->bos = tokenizer->vocabulary.count > 1 ? 1 : -1;
    tokenizer->eos = tokenizer->vocabulary.count > 2 ? 2 : -1;
    tokenizer->bpe.byte_fallback = tokenizer->bpe.fuse_unknown = true;
    FL_TRY(read_special_id(gguf, KEY("unknown_token_id"), tokenizer, &tokenizer->bpe.unknown, error));
    return read_specials(gguf, true, tokenizer, error);
}

static fl_status read_keys(const fl_gguf *gguf, fl_tokenizer *tokenizer, fl_error *error) {
    const char *model;
    size_t bytes;
    if (!fl_gguf_find_string(gguf, KEY("model"), &model, &bytes))
        return fl_error_set(error, FL_ERROR_FORMAT, "no tokenizer in this file (%s is missing)",
                            KEY("model"));
    if (bytes == 4 && memcmp(model, "gpt2", 4) == 0) return read_byte_level(gguf, tokenizer, error);
    if (bytes == 5 && memcmp(model, "llama", 5) == 0) return read_sentencepiece(gguf, tokenizer, error);
    return fl_error_set(
        error, FL_ERROR_UNSUPPORTED,
        "%s \"%.*s\" is not supported (gpt2, byte-level BPE, and llama, SentencePiece BPE, are)",
        KEY("model"), (int)bytes, model);
}

fl_status fl_tokenizer_read_gguf(const char *path, fl_tokenizer *tokenizer, fl_error *error) {
    fl_gguf *gguf;
    FL_TRY(fl_gguf_open(path, &gguf, error));
    fl_status status = read_keys(gguf, tokenizer, error);
    if (status != FL_OK) fl_error_prepend(error, status, "%s", path);
    fl_gguf_close(gguf);
    return status;
}
