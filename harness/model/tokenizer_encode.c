/* Text to ids: added tokens, normalisers, pre-tokenizer steps, merging. Pieces flow from one step into the
 * next, so that nothing is stored between them. */
#include <string.h>

#include "harness/base/memory.h"
#include "harness/model/tokenizer_parts.h"

typedef struct fl_encoder {
    const fl_tokenizer *tokenizer;
    fl_pattern_matcher *matcher;
    fl_bpe_scratch scratch;
    fl_id_list ids;
    size_t growth_left; /* bytes that the steps may still make */
    bool begins_text;   /* the piece that enters the steps is where the whole text begins */
} fl_encoder;

static fl_status run_steps(fl_encoder *encoder, size_t step, const char *text, size_t bytes, fl_error *error);

/* Turns matches and the text between them into pieces, as the behaviour says. At most one piece is held back.
 */
typedef struct fl_splitter {
    fl_encoder *encoder;
    size_t next_step;
    const fl_pre_step *rule;
    const char *text;
    bool holds, previous_match;
    size_t start, end;
    fl_error *error;
} fl_splitter;

static fl_status pass_on(fl_splitter *splitter, size_t start, size_t end) {
    if (start == end) return FL_OK;
    return run_steps(splitter->encoder, splitter->next_step, splitter->text + start, end - start,
                     splitter->error);
}

static fl_status release_held(fl_splitter *splitter) {
    bool held = splitter->holds;
    splitter->holds = false;
    return held ? pass_on(splitter, splitter->start, splitter->end) : FL_OK;
}

static fl_status take_part(fl_splitter *splitter, size_t start, size_t end, bool match) {
    if (splitter->rule->invert) match = !match;
    fl_split_behaviour behaviour = splitter->rule->behaviour;
    if (behaviour == FL_SPLIT_ISOLATED) return pass_on(splitter, start, end);
    if (behaviour == FL_SPLIT_REMOVED) return match ? FL_OK : pass_on(splitter, start, end);
    bool previous_match = splitter->previous_match, joins = false;
    splitter->previous_match = match;
    if (behaviour == FL_SPLIT_CONTIGUOUS) joins = match == previous_match;
    if (behaviour == FL_SPLIT_MERGED_WITH_PREVIOUS) joins = match && !previous_match;
    if (behaviour == FL_SPLIT_MERGED_WITH_NEXT) joins = !match && previous_match;
    if (joins && splitter->holds) {
        splitter->end = end;
        return FL_OK;
    }
    FL_TRY(release_held(splitter));
    splitter->holds = true;
    splitter->start = start;
    splitter->end = end;
    return FL_OK;
}

static fl_status take_match(fl_splitter *splitter, size_t *done, size_t start, size_t end) {
    if (*done != start) FL_TRY(take_part(splitter, *done, start, false));
    *done = end;
    return take_part(splitter, start, end, true);
}

static fl_status split_by_pattern(fl_splitter *splitter, size_t bytes, size_t *done) {
    size_t from = 0, last_end = SIZE_MAX;
    while (from <= bytes) {
        size_t start, end;
        bool found;
        FL_TRY(fl_pattern_find(splitter->rule->pattern, splitter->encoder->matcher, splitter->text, bytes,
                               from, &start, &end, &found, splitter->error));
        if (!found) break;
        if (start == end && last_end == end) { /* an empty match right behind a match is none */
            if (from >= bytes) break;
            fl_text_next(splitter->text, bytes, &from);
            continue;
        }
        from = last_end = end;
        FL_TRY(take_match(splitter, done, start, end));
    }
    return FL_OK;
}

static fl_status split_by_text(fl_splitter *splitter, size_t bytes, size_t *done) {
    const char *wanted = splitter->rule->text;
    size_t wanted_bytes = strlen(wanted);
    for (size_t at = 0; at + wanted_bytes <= bytes;) {
        if (memcmp(splitter->text + at, wanted, wanted_bytes) != 0) {
            at++;
            continue;
        }
        FL_TRY(take_match(splitter, done, at, at + wanted_bytes));
        at += wanted_bytes;
    }
    return FL_OK;
}

static fl_status split_by_class(fl_splitter *splitter, size_t bytes, size_t *done) {
    for (size_t position = 0; position < bytes;) {
        size_t start = position;
        int32_t character = fl_text_next(splitter->text, bytes, &position);
        bool match = splitter->rule->by == FL_SPLIT_BY_NUMBER ? fl_text_is_number(character)
                                                              : fl_text_is_punctuation(character);
        if (match) FL_TRY(take_match(splitter, done, start, position));
    }
    return FL_OK;
}

static fl_status split(fl_encoder *encoder, size_t step, const char *text, size_t bytes, fl_error *error) {
    const fl_pre_step *rule = &encoder->tokenizer->steps[step];
    fl_splitter splitter = {encoder, step + 1, rule, text, false, false, 0, 0, error};
    size_t done = 0;
    if (rule->by == FL_SPLIT_BY_PATTERN)
        FL_TRY(split_by_pattern(&splitter, bytes, &done));
    else if (rule->by == FL_SPLIT_BY_TEXT)
        FL_TRY(split_by_text(&splitter, bytes, &done));
    else
        FL_TRY(split_by_class(&splitter, bytes, &done));
    if (done != bytes) FL_TRY(take_part(&splitter, done, bytes, false));
    return release_held(&splitter);
}

/* A buffer for what a step makes; the steps of a text share one budget. */
static fl_text_buffer limited(const fl_encoder *encoder) {
    return (fl_text_buffer){.limit = encoder->growth_left > 0 ? encoder->growth_left : 1};
}

/* Hands what a step has made to the next one. */
static fl_status hand_on(fl_encoder *encoder, size_t step, const fl_text_buffer *made, fl_error *error) {
    encoder->growth_left -= made->count < encoder->growth_left ? made->count : encoder->growth_left;
    return run_steps(encoder, step + 1, made->bytes, made->count, error);
}

static fl_status prefix_space(fl_encoder *encoder, size_t step, const char *text, size_t bytes,
                              fl_error *error) {
    if (text[0] == ' ') return run_steps(encoder, step + 1, text, bytes, error);
    fl_text_buffer changed = limited(encoder);
    fl_status status = fl_text_append(&changed, " ", 1, error);
    if (status == FL_OK) status = fl_text_append(&changed, text, bytes, error);
    if (status == FL_OK) status = hand_on(encoder, step, &changed, error);
    fl_text_release(&changed);
    return status;
}

static fl_status byte_level(fl_encoder *encoder, size_t step, const char *text, size_t bytes,
                            fl_error *error) {
    const fl_tokenizer *tokenizer = encoder->tokenizer;
    if (step + 1 == tokenizer->step_count && fl_bpe_takes_bytes(&tokenizer->bpe))
        return fl_bpe_encode(&tokenizer->bpe, &tokenizer->vocabulary, &encoder->scratch, text, bytes, true,
                             &encoder->ids, error);
    fl_text_buffer changed = limited(encoder);
    fl_status status = fl_text_append_byte_level(&changed, text, bytes, error);
    if (status == FL_OK) status = hand_on(encoder, step, &changed, error);
    fl_text_release(&changed);
    return status;
}

static fl_status metaspace(fl_encoder *encoder, size_t step, const char *text, size_t bytes,
                           fl_error *error) {
    const fl_pre_step *rule = &encoder->tokenizer->steps[step];
    size_t mark = strlen(rule->text);
    bool marked = text[0] == ' ' || (bytes >= mark && memcmp(text, rule->text, mark) == 0);
    bool wanted =
        rule->prefix == FL_PREFIX_ALWAYS || (rule->prefix == FL_PREFIX_FIRST && encoder->begins_text);
    fl_text_buffer changed = limited(encoder);
    fl_status status = fl_text_append(&changed, rule->text, wanted && !marked ? mark : 0, error);
    if (status == FL_OK) status = fl_text_append_replaced(text, bytes, " ", rule->text, &changed, error);
    if (status == FL_OK) status = hand_on(encoder, step, &changed, error);
    fl_text_release(&changed);
    return status;
}

/* Its depth is the number of steps, at most FL_TOKEN_STEPS_MAX. */
static fl_status run_steps(fl_encoder *encoder, size_t step, const char *text, size_t bytes,
                           fl_error *error) {
    const fl_tokenizer *tokenizer = encoder->tokenizer;
    if (bytes == 0) return FL_OK;
    if (step == tokenizer->step_count)
        return fl_bpe_encode(&tokenizer->bpe, &tokenizer->vocabulary, &encoder->scratch, text, bytes, false,
                             &encoder->ids, error);
    switch (tokenizer->steps[step].kind) {
    case FL_STEP_PREFIX_SPACE:
        return prefix_space(encoder, step, text, bytes, error);
    case FL_STEP_BYTE_LEVEL:
        return byte_level(encoder, step, text, bytes, error);
    case FL_STEP_METASPACE:
        return metaspace(encoder, step, text, bytes, error);
    case FL_STEP_SPLIT:
        break;
    }
    return split(encoder, step, text, bytes, error);
}

static fl_status strip(const fl_normaliser *rule, const char *text, size_t bytes, fl_text_buffer *out,
                       fl_error *error) {
    size_t start = 0, end = bytes;
    for (size_t position = 0; rule->left && position < bytes; start = position)
        if (!fl_text_is_white_space(fl_text_next(text, bytes, &position))) break;
    for (size_t position = end; rule->right && position > start; end = position)
        if (!fl_text_is_white_space(fl_text_previous(text, &position))) break;
    return fl_text_append(out, text + start, end - start, error);
}

static fl_status apply_normaliser(const fl_normaliser *rule, const char *text, size_t bytes,
                                  fl_text_buffer *out, fl_error *error) {
    switch (rule->kind) {
    case FL_NORMALISE_FORM:
        return fl_text_normalise(rule->form, text, bytes, out, error);
    case FL_NORMALISE_LOWER_CASE:
        return fl_text_lower_case(text, bytes, out, error);
    case FL_NORMALISE_STRIP:
        return strip(rule, text, bytes, out, error);
    case FL_NORMALISE_REPLACE:
        return fl_text_append_replaced(text, bytes, rule->from, rule->to, out, error);
    case FL_NORMALISE_PREPEND:
        break;
    }
    if (bytes > 0) FL_TRY(fl_text_append(out, rule->to, strlen(rule->to), error));
    return fl_text_append(out, text, bytes, error);
}

fl_status fl_tokenizer_normalise(const fl_tokenizer *tokenizer, const char *text, size_t bytes,
                                 fl_text_buffer *out, fl_error *error) {
    const size_t limit = FL_TOKEN_GROWTH * bytes + FL_TOKEN_GROWTH_MORE;
    fl_text_buffer before = {.limit = limit};
    out->limit = limit;
    out->count = 0;
    fl_status status = fl_text_append(out, text, bytes, error);
    for (size_t i = 0; i < tokenizer->normaliser_count && status == FL_OK; i++) {
        fl_text_buffer swap = before;
        before = *out;
        *out = swap;
        out->count = 0;
        status = fl_text_reserve(out, 0, error);
        if (status == FL_OK)
            status = apply_normaliser(&tokenizer->normalisers[i], before.bytes, before.count, out, error);
    }
    fl_text_release(&before);
    return status;
}

static fl_status take_normalised_piece(void *context, const fl_added_token *token, const char *text,
                                       size_t bytes, fl_error *error) {
    fl_encoder *encoder = context;
    fl_status status = token != NULL ? fl_id_list_append(&encoder->ids, token->id, error)
                                     : run_steps(encoder, 0, text, bytes, error);
    encoder->begins_text = false;
    return status;
}

static fl_status take_raw_piece(void *context, const fl_added_token *token, const char *text, size_t bytes,
                                fl_error *error) {
    fl_encoder *encoder = context;
    const fl_tokenizer *tokenizer = encoder->tokenizer;
    if (token != NULL) {
        encoder->begins_text = false;
        return fl_id_list_append(&encoder->ids, token->id, error);
    }
    fl_text_buffer normalised = {0};
    fl_status status = FL_OK;
    if (tokenizer->normaliser_count > 0) {
        status = fl_tokenizer_normalise(tokenizer, text, bytes, &normalised, error);
        text = normalised.bytes;
        bytes = normalised.count;
    }
    if (status == FL_OK)
        status = fl_added_split(&tokenizer->added, &tokenizer->added.normalised, text, bytes,
                                take_normalised_piece, encoder, error);
    encoder->begins_text = false;
    fl_text_release(&normalised);
    return status;
}

static fl_status append_ids(fl_id_list *list, const int32_t *ids, size_t count, fl_error *error) {
    for (size_t i = 0; i < count; i++) FL_TRY(fl_id_list_append(list, ids[i], error));
    return FL_OK;
}

fl_status fl_tokenizer_encode(const fl_tokenizer *tokenizer, const char *text, size_t bytes, bool add_special,
                              int32_t **ids, size_t *count, fl_error *error) {
    fl_encoder encoder = {.tokenizer = tokenizer, .begins_text = true};
    fl_text_buffer sound = {0};
    fl_status status;
    encoder.growth_left = FL_TOKEN_GROWTH * bytes + FL_TOKEN_GROWTH_MORE;
    FL_TRY_DONE(status, fl_pattern_matcher_create(&encoder.matcher, error));
    if (bytes > 0 && fl_text_valid_prefix(text, bytes) < bytes) {
        FL_TRY_DONE(status, fl_text_sanitise(text, bytes, &sound, error));
        text = sound.bytes;
        bytes = sound.count;
    }
    if (add_special)
        FL_TRY_DONE(status, append_ids(&encoder.ids, tokenizer->before, tokenizer->before_count, error));
    FL_TRY_DONE(status, fl_added_split(&tokenizer->added, &tokenizer->added.raw, text, bytes, take_raw_piece,
                                       &encoder, error));
    if (add_special)
        FL_TRY_DONE(status, append_ids(&encoder.ids, tokenizer->after, tokenizer->after_count, error));
    if (encoder.ids.ids == NULL) FL_TRY_DONE(status, FL_ALLOCATE(&encoder.ids.ids, 1, error));
    *ids = encoder.ids.ids;
    *count = encoder.ids.count;
    encoder.ids.ids = NULL;
done:
    fl_memory_free(encoder.ids.ids);
    fl_pattern_matcher_destroy(encoder.matcher);
    fl_bpe_scratch_release(&encoder.scratch);
    fl_text_release(&sound);
    return status;
}
