#include "harness/measure/text_source.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/base/text_file.h"
#include "harness/measure/text_documents.h"
#include "harness/model/json_text.h"

/* Rows that `tokens` tokens give, `step` of them each; 0: one row. */
static size_t rows_of(size_t tokens, size_t step) {
    if (step == 0 || tokens <= step) return 1;
    return tokens / step + (tokens % step >= 2 ? 1 : 0);
}

/* Cuts `tokens` ids into rows behind those already there, up to `limit` rows in all. bos, when not -1, is put
 * before each. */
static fl_status add_rows(fl_sequences *sequences, const int32_t *ids, size_t tokens, size_t step,
                          size_t limit, int32_t bos, fl_error *error) {
    size_t rows = rows_of(tokens, step), before = bos >= 0 ? 1 : 0;
    for (size_t row = 0; row < rows && sequences->count < limit; row++) {
        size_t first = row * step;
        size_t length = step == 0 || tokens - first < step ? tokens - first : step;
        int32_t *copy = NULL;
        FL_TRY(FL_ALLOCATE(&copy, before + length, error));
        if (before > 0) copy[0] = bos;
        memcpy(copy + before, ids + first, length * sizeof *copy);
        sequences->ids[sequences->count] = copy;
        sequences->lengths[sequences->count++] = before + length;
    }
    return FL_OK;
}

static fl_status allocate_rows(fl_sequences *sequences, size_t rows, fl_error *error) {
    FL_TRY(FL_ALLOCATE(&sequences->lengths, rows, error));
    return FL_ALLOCATE(&sequences->ids, rows, error);
}

static fl_status finish(fl_text_source *source, fl_error *error) {
    fl_hash_stream *stream = NULL;
    FL_TRY(fl_hash_stream_create(&stream, error));
    source->tokens = 0;
    for (size_t s = 0; s < source->sequences.count; s++) {
        uint64_t length = source->sequences.lengths[s];
        fl_hash_stream_add(stream, &length, sizeof length);
        fl_hash_stream_add(stream, source->sequences.ids[s], length * sizeof(int32_t));
        source->tokens += length;
    }
    source->rows = fl_hash_stream_value(stream);
    fl_hash_stream_destroy(stream);
    return FL_OK;
}

fl_status fl_text_source_keep_whole_rows(fl_text_source *source, size_t sequence_length, fl_error *error) {
    fl_sequences *sequences = &source->sequences;
    const size_t before = sequences->count;
    while (sequences->count > 1 && sequences->lengths[sequences->count - 1] < sequence_length) {
        fl_memory_free(sequences->ids[--sequences->count]);
    }
    return sequences->count == before ? FL_OK : finish(source, error);
}

static fl_status read_list(const char *path, size_t index, const cJSON *list, size_t vocabulary, int32_t *ids,
                           size_t *count, fl_error *error) {
    *count = 0;
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, list) {
        double value = item->valuedouble;
        if (!cJSON_IsNumber(item) || value != floor(value) || value < 0.0 || value >= (double)vocabulary) {
            return fl_error_set(error, FL_ERROR_FORMAT,
                                "%s: list %zu, entry %zu: not a token id from 0 to %zu", path, index, *count,
                                vocabulary - 1);
        }
        ids[(*count)++] = (int32_t)value;
    }
    if (*count > 0) return FL_OK;
    return fl_error_set(error, FL_ERROR_FORMAT, "%s: list %zu is empty", path, index);
}

/* Checks the outer form and finds how many rows and how many ids in one list there are at most. */
static fl_status measure_lists(const char *path, const cJSON *root, size_t sequence_length, size_t *rows,
                               size_t *longest, fl_error *error) {
    *rows = *longest = 0;
    if (!cJSON_IsArray(root) || cJSON_GetArraySize(root) == 0) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: not a list of lists of token ids", path);
    }
    size_t index = 0;
    const cJSON *list = NULL;
    cJSON_ArrayForEach(list, root) {
        if (!cJSON_IsArray(list)) {
            return fl_error_set(error, FL_ERROR_FORMAT, "%s: entry %zu is not a list of token ids", path,
                                index);
        }
        size_t tokens = (size_t)cJSON_GetArraySize(list);
        if (tokens > *longest) *longest = tokens;
        *rows += rows_of(tokens, sequence_length);
        index++;
    }
    return FL_OK;
}

static fl_status cut_lists(const char *path, const cJSON *root, size_t vocabulary, size_t sequence_length,
                           size_t limit, fl_sequences *sequences, fl_error *error) {
    size_t rows = 0, longest = 0, index = 0;
    FL_TRY(measure_lists(path, root, sequence_length, &rows, &longest, error));
    FL_TRY(allocate_rows(sequences, rows, error));
    int32_t *ids = NULL;
    FL_TRY(FL_ALLOCATE(&ids, longest, error));
    fl_status status = FL_OK;
    const cJSON *list = NULL;
    cJSON_ArrayForEach(list, root) {
        size_t count = 0;
        FL_TRY_DONE(status, read_list(path, index++, list, vocabulary, ids, &count, error));
        FL_TRY_DONE(status, add_rows(sequences, ids, count, sequence_length, limit, -1, error));
    }
done:
    fl_memory_free(ids);
    return status;
}

fl_status fl_text_source_from_ids(const char *path, size_t vocabulary, size_t sequence_length,
                                  size_t sequences, fl_text_source *out, fl_error *error) {
    *out = (fl_text_source){.bos = -1};
    char *text = NULL;
    size_t bytes = 0;
    FL_TRY(fl_text_file_read(path, &text, &bytes, error));
    fl_status status = FL_OK;
    cJSON *root = NULL;
    FL_TRY_DONE(status, fl_json_parse_piece(text, bytes, path, 1, SIZE_MAX, &root, error));
    size_t limit = sequences == 0 ? SIZE_MAX : sequences;
    FL_TRY_DONE(status, cut_lists(path, root, vocabulary, sequence_length, limit, &out->sequences, error));
    out->content = fl_hash_bytes(text, bytes);
    FL_TRY_DONE(status, finish(out, error));
done:
    cJSON_Delete(root);
    fl_memory_free(text);
    if (status != FL_OK) fl_text_source_release(out);
    return status;
}

/* The stream of tokens of all documents. */
typedef struct {
    const fl_tokenizer *tokenizer;
    size_t vocabulary;
    size_t enough;     /* tokens after which no further document is wanted */
    int32_t separator; /* -1: none */
    int32_t *ids;
    size_t count, room, documents;
} fl_token_stream;

static fl_status append_ids(fl_token_stream *stream, const int32_t *ids, size_t count, fl_error *error) {
    if (stream->count + count > stream->room) {
        size_t room = 2 * (stream->count + count);
        FL_TRY(FL_RESIZE(&stream->ids, stream->room, room, error));
        stream->room = room;
    }
    for (size_t t = 0; t < count; t++) {
        if (ids[t] < 0 || (size_t)ids[t] >= stream->vocabulary) {
            return fl_error_set(
                error, FL_ERROR_ARGUMENT,
                "document %zu: the tokenizer's id %ld is outside the model's vocabulary of %zu",
                stream->documents, (long)ids[t], stream->vocabulary);
        }
        stream->ids[stream->count++] = ids[t];
    }
    return FL_OK;
}

static fl_status append_document(void *context, const char *text, size_t bytes, bool *wanted,
                                 fl_error *error) {
    fl_token_stream *stream = context;
    int32_t *ids = NULL;
    size_t count = 0;
    FL_TRY(fl_tokenizer_encode(stream->tokenizer, text, bytes, false, &ids, &count, error));
    fl_status status = FL_OK;
    if (stream->documents > 0 && stream->separator >= 0) {
        FL_TRY_DONE(status, append_ids(stream, &stream->separator, 1, error));
    }
    FL_TRY_DONE(status, append_ids(stream, ids, count, error));
    stream->documents++;
    *wanted = stream->count < stream->enough;
done:
    fl_memory_free(ids);
    return status;
}

static fl_status find_separator(const fl_tokenizer *tokenizer, int32_t *separator, fl_error *error) {
    static const char name[] = "<|endoftext|>";
    int32_t *ids = NULL;
    size_t count = 0;
    *separator = fl_tokenizer_added(tokenizer, name);
    if (*separator >= 0) return FL_OK;
    FL_TRY(fl_tokenizer_encode(tokenizer, name, sizeof name - 1, false, &ids, &count, error));
    *separator = count == 1 ? ids[0] : fl_tokenizer_eos(tokenizer);
    fl_memory_free(ids);
    return FL_OK;
}

fl_status fl_text_source_from_text(const char *path, const fl_tokenizer *tokenizer, size_t vocabulary,
                                   size_t sequence_length, size_t sequences, fl_text_source *out,
                                   fl_error *error) {
    return fl_text_source_from_text_after(path, tokenizer, vocabulary, sequence_length, sequences, -1, out,
                                          error);
}

fl_status fl_text_source_from_text_after(const char *path, const fl_tokenizer *tokenizer, size_t vocabulary,
                                         size_t sequence_length, size_t sequences, int32_t bos,
                                         fl_text_source *out, fl_error *error) {
    *out = (fl_text_source){.bos = bos};
    assert(bos < 0 || sequence_length != 1);
    size_t limit = sequences == 0 ? SIZE_MAX : sequences;
    size_t step = bos >= 0 && sequence_length > 0 ? sequence_length - 1 : sequence_length;
    bool bounded = sequences != 0 && step != 0 && sequences < SIZE_MAX / step;
    fl_token_stream stream = {
        .tokenizer = tokenizer, .vocabulary = vocabulary, .enough = bounded ? sequences * step : SIZE_MAX};
    const fl_document_visitor visitor = {append_document, &stream};
    fl_status status = FL_OK;
    FL_TRY_DONE(status, find_separator(tokenizer, &stream.separator, error));
    FL_TRY_DONE(status, fl_text_documents_read(path, &visitor, &out->content, error));
    if (stream.count < 2) {
        status = fl_error_set(error, FL_ERROR_ARGUMENT, "%s: the text has %zu tokens; at least 2 are needed",
                              path, stream.count);
        goto done;
    }
    out->documents = stream.documents;
    FL_TRY_DONE(status, allocate_rows(&out->sequences, rows_of(stream.count, step), error));
    FL_TRY_DONE(status, add_rows(&out->sequences, stream.ids, stream.count, step, limit, bos, error));
    FL_TRY_DONE(status, finish(out, error));
done:
    fl_memory_free(stream.ids);
    if (status != FL_OK) fl_text_source_release(out);
    return status;
}

/* *bos = what the config wants before every row; -1: nothing. */
static fl_status find_bos(const fl_text_config *config, const fl_tokenizer *tokenizer, size_t vocabulary,
                          int32_t *bos, fl_error *error) {
    const int32_t id = fl_tokenizer_bos(tokenizer);
    *bos = -1;
    if (config->bos == FL_TEXT_BOS_FALSE) return FL_OK;
    if (config->bos == FL_TEXT_BOS_AUTO && (!fl_tokenizer_adds_bos(tokenizer) || id < 0)) return FL_OK;
    if (id < 0)
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "text.bos: the tokenizer names no beginning-of-sequence token");
    if ((size_t)id >= vocabulary)
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "text.bos: the tokenizer's %ld is outside the model's vocabulary of %zu",
                            (long)id, vocabulary);
    *bos = id;
    return FL_OK;
}

fl_status fl_text_source_tokenizer_path(const char *model_path, char **out, fl_error *error) {
    static const char suffix[] = ".safetensors";
    size_t length = strlen(model_path), suffix_length = sizeof suffix - 1;
    if (length < suffix_length || strcmp(model_path + length - suffix_length, suffix) != 0) {
        return fl_memory_copy_string(out, model_path, error);
    }
    const char *slash = strrchr(model_path, '/');
    FL_TRY(fl_memory_copy_string(out, slash == NULL ? "." : model_path, error));
    if (slash != NULL) (*out)[slash == model_path ? 1 : slash - model_path] = '\0';
    return FL_OK;
}

fl_status fl_text_source_load(const fl_text_config *config, const char *model_path, size_t vocabulary,
                              fl_text_source *out, fl_error *error) {
    *out = (fl_text_source){0};
    assert(config->ids != NULL || config->path != NULL);
    if (config->ids != NULL) {
        return fl_text_source_from_ids(config->ids, vocabulary, config->sequence_length, config->sequences,
                                       out, error);
    }
    char *path = NULL;
    fl_tokenizer *tokenizer = NULL;
    FL_TRY(fl_text_source_tokenizer_path(model_path, &path, error));
    fl_status status = fl_tokenizer_open(path, &tokenizer, error);
    int32_t bos = -1;
    if (status == FL_OK) status = find_bos(config, tokenizer, vocabulary, &bos, error);
    if (status == FL_OK)
        status = fl_text_source_from_text_after(config->path, tokenizer, vocabulary, config->sequence_length,
                                                config->sequences, bos, out, error);
    fl_tokenizer_close(tokenizer);
    fl_memory_free(path);
    return status;
}

void fl_text_source_release(fl_text_source *source) {
    fl_sequences_release(&source->sequences);
    *source = (fl_text_source){0};
}
