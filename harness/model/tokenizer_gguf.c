/* Tokenizer keys of GGUF files. A file names its pre-tokenizer and does not describe it, so the families are
 * a table here; each follows the family's tokenizer.json (NFC included, which llama.cpp leaves out), and a
 * name that is not in the table is refused. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/model/gguf.h"
#include "harness/model/tokenizer_parts.h"

#define KEY(name) "tokenizer.ggml." name

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
    tokenizer->decoder = FL_DECODER_BYTE_LEVEL;
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

static fl_status read_specials(const fl_gguf *gguf, const token_family *family, fl_tokenizer *tokenizer,
                               fl_error *error) {
    bool adds_bos = family->bos, adds_eos = false;
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

static fl_status read_keys(const fl_gguf *gguf, fl_tokenizer *tokenizer, fl_error *error) {
    const char *model;
    size_t bytes;
    const token_family *family = NULL;
    if (!fl_gguf_find_string(gguf, KEY("model"), &model, &bytes))
        return fl_error_set(error, FL_ERROR_FORMAT, "no tokenizer in this file (%s is missing)",
                            KEY("model"));
    if (bytes != 4 || memcmp(model, "gpt2", 4) != 0)
        return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                            "%s \"%.*s\" is not supported (only gpt2, byte-level BPE)", KEY("model"),
                            (int)bytes, model);
    FL_TRY(find_family(gguf, &family, error));
    FL_TRY(add_family(family, tokenizer, error));
    FL_TRY(read_tokens(gguf, tokenizer, error));
    FL_TRY(read_merges(gguf, tokenizer, error));
    return read_specials(gguf, family, tokenizer, error);
}

fl_status fl_tokenizer_read_gguf(const char *path, fl_tokenizer *tokenizer, fl_error *error) {
    fl_gguf *gguf;
    FL_TRY(fl_gguf_open(path, &gguf, error));
    fl_status status = read_keys(gguf, tokenizer, error);
    if (status != FL_OK) fl_error_prepend(error, status, "%s", path);
    fl_gguf_close(gguf);
    return status;
}
