/* Ids to text: the list of tokens runs through the decoders, one list in, one list out, and is joined at the
 * end. */
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/model/tokenizer_parts.h"

static const char replacement_character[] = "\xEF\xBF\xBD";

/* Texts one behind another. */
typedef struct text_list {
    fl_text_buffer text;
    size_t *ends; /* fl_memory block */
    size_t count, capacity;
} text_list;

/* The text since the last end becomes the next entry. */
static fl_status close_entry(text_list *list, fl_error *error) {
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 64 : 2 * list->capacity;
        FL_TRY(FL_RESIZE(&list->ends, list->capacity, capacity, error));
        list->capacity = capacity;
    }
    list->ends[list->count++] = list->text.count;
    return FL_OK;
}

static fl_status add_entry(text_list *list, const char *text, size_t bytes, fl_error *error) {
    FL_TRY(fl_text_append(&list->text, text, bytes, error));
    return close_entry(list, error);
}

static const char *entry(const text_list *list, size_t index, size_t *bytes) {
    size_t start = index > 0 ? list->ends[index - 1] : 0;
    *bytes = list->ends[index] - start;
    return list->text.bytes + start;
}

static void release_list(text_list *list) {
    fl_text_release(&list->text);
    fl_memory_free(list->ends);
}

static fl_status decode_byte_level(const text_list *in, text_list *out, fl_error *error) {
    fl_text_buffer joined = {0};
    fl_status status = fl_text_reserve(&joined, in->text.count, error);
    for (size_t i = 0; i < in->count && status == FL_OK; i++) {
        size_t bytes;
        const char *text = entry(in, i, &bytes);
        status = fl_text_append_byte_level_undone(text, bytes, &joined, error);
    }
    if (status == FL_OK) status = fl_text_sanitise(joined.bytes, joined.count, &out->text, error);
    fl_text_release(&joined);
    return status == FL_OK ? close_entry(out, error) : status;
}

static fl_status decode_replace(const fl_decoder *decoder, const text_list *in, text_list *out,
                                fl_error *error) {
    for (size_t i = 0; i < in->count; i++) {
        size_t bytes;
        const char *text = entry(in, i, &bytes);
        FL_TRY(fl_text_append_replaced(text, bytes, decoder->from, decoder->to, &out->text, error));
        FL_TRY(close_entry(out, error));
    }
    return FL_OK;
}

static fl_status decode_metaspace(const fl_decoder *decoder, const text_list *in, text_list *out,
                                  fl_error *error) {
    for (size_t i = 0; i < in->count; i++) {
        size_t bytes;
        const char *text = entry(in, i, &bytes);
        const char *space = i == 0 && decoder->start > 0 ? "" : " ";
        FL_TRY(fl_text_append_replaced(text, bytes, decoder->from, space, &out->text, error));
        FL_TRY(close_entry(out, error));
    }
    return FL_OK;
}

/* The byte that <0xAB> names, or -1. */
static int named_byte(const char *text, size_t bytes) {
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    char digits[3] = {text[3], text[4], '\0'};
    if (strspn(digits, "0123456789abcdefABCDEF") != 2) return -1;
    return (int)strtol(digits, NULL, 16);
}

static fl_status flush_bytes(fl_text_buffer *run, text_list *out, fl_error *error) {
    size_t bytes = run->count;
    run->count = 0;
    if (bytes == 0) return FL_OK;
    if (fl_text_valid_prefix(run->bytes, bytes) == bytes) return add_entry(out, run->bytes, bytes, error);
    for (size_t i = 0; i < bytes; i++)
        FL_TRY(add_entry(out, replacement_character, sizeof replacement_character - 1, error));
    return FL_OK;
}

static fl_status decode_byte_fallback(const text_list *in, text_list *out, fl_error *error) {
    fl_text_buffer run = {0};
    fl_status status = FL_OK;
    for (size_t i = 0; i < in->count && status == FL_OK; i++) {
        size_t bytes;
        const char *text = entry(in, i, &bytes);
        int value = named_byte(text, bytes);
        char byte = (char)value;
        if (value >= 0) {
            status = fl_text_append(&run, &byte, 1, error);
            continue;
        }
        status = flush_bytes(&run, out, error);
        if (status == FL_OK) status = add_entry(out, text, bytes, error);
    }
    if (status == FL_OK) status = flush_bytes(&run, out, error);
    fl_text_release(&run);
    return status;
}

static fl_status decode_strip(const fl_decoder *decoder, const text_list *in, text_list *out,
                              fl_error *error) {
    size_t cut = strlen(decoder->from);
    for (size_t i = 0; i < in->count; i++) {
        size_t bytes;
        const char *text = entry(in, i, &bytes);
        for (size_t n = 0; n < decoder->start && bytes >= cut && memcmp(text, decoder->from, cut) == 0; n++) {
            text += cut;
            bytes -= cut;
        }
        for (size_t n = 0;
             n < decoder->stop && bytes >= cut && memcmp(text + bytes - cut, decoder->from, cut) == 0; n++)
            bytes -= cut;
        FL_TRY(add_entry(out, text, bytes, error));
    }
    return FL_OK;
}

static fl_status run_decoder(const fl_decoder *decoder, const text_list *in, text_list *out,
                             fl_error *error) {
    switch (decoder->kind) {
    case FL_DECODE_BYTE_LEVEL:
        return decode_byte_level(in, out, error);
    case FL_DECODE_REPLACE:
        return decode_replace(decoder, in, out, error);
    case FL_DECODE_BYTE_FALLBACK:
        return decode_byte_fallback(in, out, error);
    case FL_DECODE_STRIP:
        return decode_strip(decoder, in, out, error);
    case FL_DECODE_METASPACE:
        return decode_metaspace(decoder, in, out, error);
    case FL_DECODE_FUSE:
        break;
    }
    return add_entry(out, in->text.bytes, in->text.count, error);
}

static fl_status list_tokens(const fl_tokenizer *tokenizer, const int32_t *ids, size_t count,
                             bool skip_special, text_list *out, fl_error *error) {
    FL_TRY(fl_text_reserve(&out->text, 4 * count, error));
    for (size_t i = 0; i < count; i++) {
        size_t bytes;
        if (ids[i] < 0)
            return fl_error_set(error, FL_ERROR_ARGUMENT, "token %zu has the id %d", i, (int)ids[i]);
        const char *text = fl_vocabulary_text(&tokenizer->vocabulary, ids[i], &bytes);
        const fl_added_token *added = fl_added_find(&tokenizer->added, ids[i]);
        if (text == NULL || (skip_special && added != NULL && added->special)) continue;
        if (tokenizer->decoder_count == 0 && out->count > 0)
            FL_TRY(fl_text_append(&out->text, " ", 1, error));
        FL_TRY(add_entry(out, text, bytes, error));
    }
    return FL_OK;
}

fl_status fl_tokenizer_decode(const fl_tokenizer *tokenizer, const int32_t *ids, size_t count,
                              bool skip_special, char **text, size_t *bytes, fl_error *error) {
    text_list tokens = {0}, next = {0};
    fl_status status = list_tokens(tokenizer, ids, count, skip_special, &tokens, error);
    for (size_t i = 0; i < tokenizer->decoder_count && status == FL_OK; i++) {
        status = fl_text_reserve(&next.text, tokens.text.count, error);
        if (status == FL_OK) status = run_decoder(&tokenizer->decoders[i], &tokens, &next, error);
        release_list(&tokens);
        tokens = next;
        next = (text_list){0};
    }
    if (status == FL_OK) {
        *text = tokens.text.bytes;
        *bytes = tokens.text.count;
        tokens.text.bytes = NULL;
    }
    release_list(&tokens);
    return status;
}
