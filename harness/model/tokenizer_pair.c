#include "harness/model/tokenizer_pair.h"

#include <string.h>

#include "harness/base/memory.h"
#include "harness/model/tokenizer_text.h"

typedef struct id_block {
    int32_t *ids;
    size_t count;
} id_block;

/* str.isspace of Python: White_Space and the four information separators. */
static bool is_python_space(int32_t character) {
    return fl_text_is_white_space(character) || (character >= 0x1C && character <= 0x1F);
}

static size_t without_trailing_space(const char *text, size_t bytes) {
    for (size_t position = bytes; position > 0; bytes = position)
        if (!is_python_space(fl_text_previous(text, &position))) break;
    return bytes;
}

static bool begins_with_bos(const fl_tokenizer *tokenizer, const char *text, size_t bytes) {
    size_t bos_bytes = 0;
    const char *bos = fl_tokenizer_token(tokenizer, fl_tokenizer_bos(tokenizer), &bos_bytes);
    return bos != NULL && bos_bytes > 0 && bos_bytes <= bytes && memcmp(text, bos, bos_bytes) == 0;
}

static fl_status copy_ids(const int32_t *ids, size_t count, int32_t **out, size_t *out_count,
                          fl_error *error) {
    FL_TRY(FL_ALLOCATE(out, count, error));
    if (count > 0) memcpy(*out, ids, count * sizeof *ids);
    *out_count = count;
    return FL_OK;
}

static fl_status find_prefix(const fl_tokenizer *tokenizer, int32_t *prefix, fl_error *error) {
    if (*prefix < 0) *prefix = fl_tokenizer_bos(tokenizer);
    if (*prefix < 0) *prefix = fl_tokenizer_eos(tokenizer);
    if (*prefix >= 0) return FL_OK;
    return fl_error_set(
        error, FL_ERROR_UNSUPPORTED,
        "an empty context needs a prefix token, and this tokenizer names neither BOS nor EOS");
}

static fl_status no_continuation(fl_error *error) {
    return fl_error_set(error, FL_ERROR_ARGUMENT, "the continuation has no token of its own");
}

static fl_status pair_without_context(const fl_tokenizer *tokenizer, const fl_text_buffer *text,
                                      int32_t prefix, fl_token_pair *out, fl_error *error) {
    id_block whole = {0};
    fl_status status;
    FL_TRY(find_prefix(tokenizer, &prefix, error));
    FL_TRY(fl_tokenizer_encode(tokenizer, text->bytes, text->count, false, &whole.ids, &whole.count, error));
    size_t start = whole.count > 0 && whole.ids[0] == prefix;
    if (start == whole.count) {
        status = no_continuation(error);
        goto done;
    }
    FL_TRY_DONE(status, copy_ids(&prefix, 1, &out->context, &out->context_count, error));
    FL_TRY_DONE(status, copy_ids(whole.ids + start, whole.count - start, &out->continuation,
                                 &out->continuation_count, error));
done:
    fl_memory_free(whole.ids);
    return status;
}

/* The last token of the whole is the continuation; when it is alone the prefix is its context. */
static fl_status pair_merged(const fl_tokenizer *tokenizer, const id_block *whole, int32_t prefix,
                             fl_token_pair *out, fl_error *error) {
    if (whole->count == 0) return no_continuation(error);
    size_t last = whole->count - 1;
    if (last == 0) {
        FL_TRY(find_prefix(tokenizer, &prefix, error));
        FL_TRY(copy_ids(&prefix, 1, &out->context, &out->context_count, error));
    } else {
        FL_TRY(copy_ids(whole->ids, last, &out->context, &out->context_count, error));
    }
    return copy_ids(whole->ids + last, 1, &out->continuation, &out->continuation_count, error);
}

static fl_status pair_with_context(const fl_tokenizer *tokenizer, const fl_text_buffer *text,
                                   size_t context_bytes, int32_t prefix, fl_pair_mode mode,
                                   fl_token_pair *out, fl_error *error) {
    id_block whole = {0}, context = {0};
    fl_status status;
    bool special = !begins_with_bos(tokenizer, text->bytes, context_bytes);
    FL_TRY_DONE(status, fl_tokenizer_encode(tokenizer, text->bytes, text->count,
                                            !begins_with_bos(tokenizer, text->bytes, text->count), &whole.ids,
                                            &whole.count, error));
    FL_TRY_DONE(status, fl_tokenizer_encode(tokenizer, text->bytes, context_bytes, special, &context.ids,
                                            &context.count, error));
    if (whole.count > context.count) {
        FL_TRY_DONE(status, copy_ids(whole.ids + context.count, whole.count - context.count,
                                     &out->continuation, &out->continuation_count, error));
        out->context = context.ids;
        out->context_count = context.count;
        context.ids = NULL;
    } else {
        status = mode == FL_PAIR_MERGED ? pair_merged(tokenizer, &whole, prefix, out, error)
                                        : no_continuation(error);
    }
done:
    fl_memory_free(whole.ids);
    fl_memory_free(context.ids);
    return status;
}

fl_status fl_tokenizer_encode_pair(const fl_tokenizer *tokenizer, const char *context, size_t context_bytes,
                                   const char *continuation, size_t continuation_bytes, int32_t prefix,
                                   fl_pair_mode mode, fl_token_pair *out, fl_error *error) {
    *out = (fl_token_pair){0};
    fl_text_buffer text = {0};
    fl_status status = fl_text_append(&text, context, context_bytes, error);
    if (status == FL_OK) status = fl_text_append(&text, continuation, continuation_bytes, error);
    if (status == FL_OK) {
        size_t kept = without_trailing_space(text.bytes, context_bytes);
        status = kept == 0 ? pair_without_context(tokenizer, &text, prefix, out, error)
                           : pair_with_context(tokenizer, &text, kept, prefix, mode, out, error);
    }
    fl_text_release(&text);
    if (status != FL_OK) fl_token_pair_release(out);
    return status;
}

void fl_token_pair_release(fl_token_pair *pair) {
    fl_memory_free(pair->context);
    fl_memory_free(pair->continuation);
    *pair = (fl_token_pair){0};
}
