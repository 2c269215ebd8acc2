#include "harness/model/tokenizer.h"

#include <string.h>

#include "harness/base/input_file.h"
#include "harness/base/memory.h"
#include "harness/base/text_file.h"
#include "harness/model/tokenizer_parts.h"

static fl_pre_step *add_step(fl_tokenizer *tokenizer, fl_step_kind kind, fl_error *error) {
    if (tokenizer->step_count == FL_TOKEN_STEPS_MAX) {
        fl_error_set(error, FL_ERROR_UNSUPPORTED, "more than %d pre-tokenizer steps", FL_TOKEN_STEPS_MAX);
        return NULL;
    }
    fl_pre_step *step = &tokenizer->steps[tokenizer->step_count++];
    step->kind = kind;
    return step;
}

fl_status fl_tokenizer_add_split(fl_tokenizer *tokenizer, fl_split_by by, const char *source,
                                 fl_split_behaviour behaviour, bool invert, fl_error *error) {
    fl_pre_step *step = add_step(tokenizer, FL_STEP_SPLIT, error);
    if (step == NULL) return FL_ERROR_UNSUPPORTED;
    step->by = by;
    step->behaviour = behaviour;
    step->invert = invert;
    if (source == NULL) return FL_OK;
    FL_TRY(fl_memory_copy_string(&step->text, source, error));
    return by == FL_SPLIT_BY_PATTERN ? fl_pattern_compile(source, &step->pattern, error) : FL_OK;
}

fl_status fl_tokenizer_add_byte_level(fl_tokenizer *tokenizer, bool prefix_space, bool use_pattern,
                                      fl_error *error) {
    if (prefix_space && add_step(tokenizer, FL_STEP_PREFIX_SPACE, error) == NULL) return FL_ERROR_UNSUPPORTED;
    if (use_pattern)
        FL_TRY(fl_tokenizer_add_split(tokenizer, FL_SPLIT_BY_PATTERN, fl_pattern_known("gpt-2"),
                                      FL_SPLIT_ISOLATED, false, error));
    return add_step(tokenizer, FL_STEP_BYTE_LEVEL, error) != NULL ? FL_OK : FL_ERROR_UNSUPPORTED;
}

fl_status fl_tokenizer_add_metaspace(fl_tokenizer *tokenizer, const char *replacement,
                                     fl_metaspace_prefix prefix, fl_error *error) {
    fl_pre_step *step = add_step(tokenizer, FL_STEP_METASPACE, error);
    if (step == NULL) return FL_ERROR_UNSUPPORTED;
    step->prefix = prefix;
    return fl_memory_copy_string(&step->text, replacement, error);
}

static fl_status copy_texts(const char *from, const char *to, char **from_copy, char **to_copy,
                            fl_error *error) {
    *from_copy = *to_copy = NULL;
    if (from != NULL) FL_TRY(fl_memory_copy_string(from_copy, from, error));
    return to != NULL ? fl_memory_copy_string(to_copy, to, error) : FL_OK;
}

fl_status fl_tokenizer_add_decoder(fl_tokenizer *tokenizer, fl_decoder decoder, fl_error *error) {
    if (tokenizer->decoder_count == FL_TOKEN_STEPS_MAX)
        return fl_error_set(error, FL_ERROR_UNSUPPORTED, "more than %d decoders", FL_TOKEN_STEPS_MAX);
    fl_decoder *slot = &tokenizer->decoders[tokenizer->decoder_count++];
    *slot = decoder;
    return copy_texts(decoder.from, decoder.to, &slot->from, &slot->to, error);
}

fl_status fl_tokenizer_add_normaliser(fl_tokenizer *tokenizer, fl_normaliser normaliser, fl_error *error) {
    if (tokenizer->normaliser_count == FL_TOKEN_STEPS_MAX)
        return fl_error_set(error, FL_ERROR_UNSUPPORTED, "more than %d normalizers", FL_TOKEN_STEPS_MAX);
    fl_normaliser *slot = &tokenizer->normalisers[tokenizer->normaliser_count++];
    *slot = normaliser;
    return copy_texts(normaliser.from, normaliser.to, &slot->from, &slot->to, error);
}

fl_status fl_tokenizer_add_template(fl_tokenizer *tokenizer, const int32_t *before, size_t before_count,
                                    const int32_t *after, size_t after_count, fl_error *error) {
    if (tokenizer->before_count + before_count > FL_TOKEN_TEMPLATE_MAX ||
        tokenizer->after_count + after_count > FL_TOKEN_TEMPLATE_MAX)
        return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                            "a template with more than %d special tokens on a side", FL_TOKEN_TEMPLATE_MAX);
    memmove(tokenizer->before + before_count, tokenizer->before, tokenizer->before_count * sizeof(int32_t));
    memcpy(tokenizer->before, before, before_count * sizeof(int32_t));
    memcpy(tokenizer->after + tokenizer->after_count, after, after_count * sizeof(int32_t));
    tokenizer->before_count += before_count;
    tokenizer->after_count += after_count;
    return FL_OK;
}

static bool is_byte_level(const fl_tokenizer *tokenizer) {
    bool found = false;
    for (size_t i = 0; i < tokenizer->decoder_count; i++)
        found = found || tokenizer->decoders[i].kind == FL_DECODE_BYTE_LEVEL;
    for (size_t i = 0; i < tokenizer->step_count; i++)
        found = found || tokenizer->steps[i].kind == FL_STEP_BYTE_LEVEL;
    return found;
}

static fl_status decode_vocabulary(fl_tokenizer *tokenizer, fl_error *error) {
    bool byte_level = is_byte_level(tokenizer);
    size_t count = tokenizer->vocabulary.count, bytes = 0;
    FL_TRY(FL_ALLOCATE(&tokenizer->decoded_at, count + 1, error));
    FL_TRY(fl_text_reserve(&tokenizer->decoded, tokenizer->vocabulary.text.count, error));
    for (size_t id = 0; id < count; id++) {
        const char *text = fl_vocabulary_text(&tokenizer->vocabulary, (int32_t)id, &bytes);
        if (text != NULL && byte_level)
            FL_TRY(fl_text_append_byte_level_undone(text, bytes, &tokenizer->decoded, error));
        if (text != NULL && !byte_level) FL_TRY(fl_text_append(&tokenizer->decoded, text, bytes, error));
        tokenizer->decoded_at[id + 1] = tokenizer->decoded.count;
    }
    return FL_OK;
}

static void hash_number(fl_hash_stream *stream, int64_t number) {
    fl_hash_stream_add(stream, &number, sizeof number);
}

static void hash_text(fl_hash_stream *stream, const char *text) {
    size_t bytes = text != NULL ? strlen(text) : 0;
    hash_number(stream, text != NULL ? (int64_t)bytes : -1);
    if (bytes > 0) fl_hash_stream_add(stream, text, bytes);
}

static void hash_vocabulary(fl_hash_stream *stream, const fl_tokenizer *tokenizer) {
    const fl_vocabulary *vocabulary = &tokenizer->vocabulary;
    for (size_t id = 0; id < vocabulary->count; id++) {
        size_t bytes = 0;
        const char *text = fl_vocabulary_text(vocabulary, (int32_t)id, &bytes);
        hash_number(stream, text != NULL ? (int64_t)bytes : -1);
        if (text != NULL) fl_hash_stream_add(stream, text, bytes);
    }
    const fl_bpe *bpe = &tokenizer->bpe;
    for (size_t i = 0; i < bpe->merge_slots; i++)
        if (bpe->merges[i].rank >= 0) fl_hash_stream_add(stream, &bpe->merges[i], sizeof bpe->merges[i]);
    hash_number(stream, bpe->ignore_merges | bpe->byte_fallback << 1 | bpe->fuse_unknown << 2);
    hash_number(stream, bpe->unknown);
    hash_text(stream, bpe->continuing_prefix);
    hash_text(stream, bpe->word_suffix);
    for (size_t i = 0; i < tokenizer->added.count; i++) {
        const fl_added_token *token = &tokenizer->added.tokens[i];
        hash_number(stream, token->id);
        hash_number(stream, token->special | token->normalized << 1 | token->single_word << 2 |
                                token->lstrip << 3 | token->rstrip << 4);
    }
}

static fl_status hash_tokenizer(fl_tokenizer *tokenizer, fl_error *error) {
    fl_hash_stream *stream;
    FL_TRY(fl_hash_stream_create(&stream, error));
    hash_vocabulary(stream, tokenizer);
    for (size_t i = 0; i < tokenizer->normaliser_count; i++) {
        const fl_normaliser *normaliser = &tokenizer->normalisers[i];
        hash_number(stream, normaliser->kind);
        hash_number(stream, normaliser->form << 2 | normaliser->left << 1 | normaliser->right);
        hash_text(stream, normaliser->from);
        hash_text(stream, normaliser->to);
    }
    for (size_t i = 0; i < tokenizer->step_count; i++) {
        const fl_pre_step *step = &tokenizer->steps[i];
        hash_number(stream, step->kind | step->by << 4 | step->behaviour << 8 | step->invert << 12 |
                                step->prefix << 13);
        hash_text(stream, step->text);
    }
    for (size_t i = 0; i < tokenizer->decoder_count; i++) {
        const fl_decoder *decoder = &tokenizer->decoders[i];
        hash_number(stream, decoder->kind);
        hash_number(stream, (int64_t)decoder->start);
        hash_number(stream, (int64_t)decoder->stop);
        hash_text(stream, decoder->from);
        hash_text(stream, decoder->to);
    }
    if (tokenizer->added.split_special) hash_text(stream, "split_special_tokens");
    fl_hash_stream_add(stream, tokenizer->before, sizeof tokenizer->before);
    fl_hash_stream_add(stream, tokenizer->after, sizeof tokenizer->after);
    tokenizer->hash = fl_hash_stream_value(stream);
    fl_hash_stream_destroy(stream);
    return FL_OK;
}

static fl_status finish(fl_tokenizer *tokenizer, fl_error *error) {
    fl_bpe_finish(&tokenizer->bpe, &tokenizer->vocabulary);
    FL_TRY(fl_added_finish(&tokenizer->added, tokenizer, error));
    FL_TRY(decode_vocabulary(tokenizer, error));
    return hash_tokenizer(tokenizer, error);
}

static fl_status read_folder(const char *path, fl_tokenizer *tokenizer, fl_error *error) {
    fl_text_buffer file = {0};
    fl_status status = fl_text_append(&file, path, strlen(path), error);
    if (status == FL_OK) status = fl_text_append(&file, "/tokenizer.json", 15, error);
    if (status == FL_OK) status = fl_tokenizer_read_json(file.bytes, path, tokenizer, error);
    fl_text_release(&file);
    return status;
}

static fl_status read_json_file(const char *path, fl_tokenizer *tokenizer, fl_error *error) {
    /* Beside a tokenizer.json, and only there, lies the configuration that belongs to it. */
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    if (strcmp(name, "tokenizer.json") != 0) return fl_tokenizer_read_json(path, NULL, tokenizer, error);
    fl_text_buffer folder = {0};
    fl_status status = slash != NULL ? fl_text_append(&folder, path, (size_t)(slash - path) + 1, error)
                                     : fl_text_append(&folder, ".", 1, error);
    if (status == FL_OK) status = fl_tokenizer_read_json(path, folder.bytes, tokenizer, error);
    fl_text_release(&folder);
    return status;
}

/* What the file holds counts, not its name: GGUF, safetensors (whose tokenizer lies beside it), or JSON. */
static fl_status read_file(const char *path, fl_tokenizer *tokenizer, fl_error *error) {
    unsigned char start[9];
    size_t got;
    FL_TRY(fl_input_start(path, start, sizeof start, &got, error));
    if (got >= 4 && memcmp(start, "GGUF", 4) == 0) return fl_tokenizer_read_gguf(path, tokenizer, error);
    if (got < sizeof start || memchr(start, '\0', 8) == NULL || start[8] != '{')
        return read_json_file(path, tokenizer, error);
    fl_text_buffer folder = {0};
    const char *slash = strrchr(path, '/');
    fl_status status = slash != NULL ? fl_text_append(&folder, path, (size_t)(slash - path) + 1, error)
                                     : fl_text_append(&folder, ".", 1, error);
    if (status == FL_OK) status = read_folder(folder.bytes, tokenizer, error);
    fl_text_release(&folder);
    return status;
}

fl_status fl_tokenizer_open(const char *path, fl_tokenizer **out, fl_error *error) {
    *out = NULL;
    fl_tokenizer *tokenizer;
    FL_TRY(FL_ALLOCATE(&tokenizer, 1, error));
    tokenizer->bos = tokenizer->eos = tokenizer->bpe.unknown = -1;
    fl_status status =
        fl_path_is_folder(path) ? read_folder(path, tokenizer, error) : read_file(path, tokenizer, error);
    if (status == FL_OK && (status = finish(tokenizer, error)) != FL_OK)
        fl_error_prepend(error, status, "%s", path);
    if (status == FL_OK)
        *out = tokenizer;
    else
        fl_tokenizer_close(tokenizer);
    return status;
}

void fl_tokenizer_close(fl_tokenizer *tokenizer) {
    if (tokenizer == NULL) return;
    for (size_t i = 0; i < tokenizer->step_count; i++) {
        fl_pattern_destroy(tokenizer->steps[i].pattern);
        fl_memory_free(tokenizer->steps[i].text);
    }
    for (size_t i = 0; i < tokenizer->normaliser_count; i++) {
        fl_memory_free(tokenizer->normalisers[i].from);
        fl_memory_free(tokenizer->normalisers[i].to);
    }
    for (size_t i = 0; i < tokenizer->decoder_count; i++) {
        fl_memory_free(tokenizer->decoders[i].from);
        fl_memory_free(tokenizer->decoders[i].to);
    }
    fl_added_release(&tokenizer->added);
    fl_bpe_release(&tokenizer->bpe);
    fl_vocabulary_release(&tokenizer->vocabulary);
    fl_text_release(&tokenizer->decoded);
    fl_memory_free(tokenizer->decoded_at);
    fl_memory_free(tokenizer);
}

size_t fl_tokenizer_vocabulary(const fl_tokenizer *tokenizer) {
    return tokenizer->vocabulary.count;
}

int32_t fl_tokenizer_bos(const fl_tokenizer *tokenizer) {
    return tokenizer->bos;
}

int32_t fl_tokenizer_eos(const fl_tokenizer *tokenizer) {
    return tokenizer->eos;
}

int32_t fl_tokenizer_added(const fl_tokenizer *tokenizer, const char *text) {
    const size_t wanted = strlen(text);
    for (size_t i = 0; i < tokenizer->added.count; i++) {
        size_t bytes = 0;
        const int32_t id = tokenizer->added.tokens[i].id;
        const char *written = fl_vocabulary_text(&tokenizer->vocabulary, id, &bytes);
        if (bytes == wanted && memcmp(written, text, bytes) == 0) return id;
    }
    return -1;
}

bool fl_tokenizer_adds_bos(const fl_tokenizer *tokenizer) {
    return tokenizer->before_count > 0;
}

const char *fl_tokenizer_token(const fl_tokenizer *tokenizer, int32_t id, size_t *bytes) {
    const fl_vocabulary *vocabulary = &tokenizer->vocabulary;
    if (id < 0 || (size_t)id >= vocabulary->count || !vocabulary->tokens[id].present) return NULL;
    *bytes = tokenizer->decoded_at[id + 1] - tokenizer->decoded_at[id];
    return tokenizer->decoded.bytes + tokenizer->decoded_at[id];
}

fl_hash fl_tokenizer_hash(const fl_tokenizer *tokenizer) {
    return tokenizer->hash;
}
