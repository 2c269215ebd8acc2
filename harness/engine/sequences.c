#include "harness/engine/sequences.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"

enum { SHORTEST_OVERLAP = 8 };

/* One stretch of the evaluation text. */
typedef struct {
    uint64_t hash;
    size_t sequence, token;
} fl_stretch;

typedef struct {
    fl_stretch *stretches; /* sorted by hash */
    size_t count, tokens;  /* all of the same length in tokens */
} fl_stretches;

static const uint64_t MULTIPLIER = 0x9e3779b97f4a7c15u;

void fl_sequences_release(fl_sequences *sequences) {
    for (size_t s = 0; sequences->ids != NULL && s < sequences->count; s++) fl_memory_free(sequences->ids[s]);
    fl_memory_free(sequences->ids);
    fl_memory_free(sequences->lengths);
    *sequences = (fl_sequences){0};
}

fl_status fl_sequences_check(const fl_sequences *sequences, size_t vocabulary, size_t shortest,
                             const char *what, fl_error *error) {
    for (size_t s = 0; s < sequences->count; s++) {
        if (sequences->lengths[s] < shortest) {
            return fl_error_set(error, FL_ERROR_ARGUMENT,
                                "%s: sequence %zu has %zu tokens; at least %zu are needed", what, s,
                                sequences->lengths[s], shortest);
        }
        for (size_t t = 0; t < sequences->lengths[s]; t++) {
            int32_t id = sequences->ids[s][t];
            if (id >= 0 && (size_t)id < vocabulary) continue;
            return fl_error_set(error, FL_ERROR_ARGUMENT,
                                "%s: sequence %zu, token %zu: id %ld is outside the vocabulary of %zu", what,
                                s, t, (long)id, vocabulary);
        }
    }
    if (sequences->count > 0) return FL_OK;
    return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: there is no sequence", what);
}

/* Calls visit for every stretch of `tokens` ids with its hash, until it returns true. */
static bool roll(const int32_t *ids, size_t length, size_t tokens, size_t sequence,
                 bool (*visit)(void *context, const fl_stretch *stretch), void *context) {
    if (length < tokens) return false;
    uint64_t hash = 0, leaving = 1;
    for (size_t t = 1; t < tokens; t++) leaving *= MULTIPLIER;
    for (size_t t = 0; t < length; t++) {
        if (t >= tokens) hash -= leaving * ((uint64_t)ids[t - tokens] + 1);
        hash = hash * MULTIPLIER + (uint64_t)ids[t] + 1;
        if (t + 1 < tokens) continue;
        fl_stretch stretch = {hash, sequence, t + 1 - tokens};
        if (visit(context, &stretch)) return true;
    }
    return false;
}

static bool collect(void *context, const fl_stretch *stretch) {
    fl_stretches *stretches = context;
    stretches->stretches[stretches->count++] = *stretch;
    return false;
}

static int by_hash(const void *a, const void *b) {
    uint64_t x = ((const fl_stretch *)a)->hash, y = ((const fl_stretch *)b)->hash;
    return (x > y) - (x < y);
}

typedef struct {
    const fl_stretches *stretches;
    const fl_sequences *training, *evaluation;
    fl_overlap *out;
} fl_search;

static bool compare(void *context, const fl_stretch *here) {
    fl_search *search = context;
    const fl_stretches *stretches = search->stretches;
    size_t low = 0, high = stretches->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (stretches->stretches[middle].hash < here->hash)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < stretches->count && stretches->stretches[low].hash == here->hash; low++) {
        const fl_stretch *there = &stretches->stretches[low];
        if (memcmp(search->training->ids[here->sequence] + here->token,
                   search->evaluation->ids[there->sequence] + there->token,
                   stretches->tokens * sizeof(int32_t)) != 0) {
            continue;
        }
        *search->out =
            (fl_overlap){stretches->tokens, here->sequence, here->token, there->sequence, there->token};
        return true;
    }
    return false;
}

/* Looks for stretches of exactly `tokens` tokens of the sequences whose own stretch length that is. */
static size_t stretch_tokens(size_t length) {
    return length < FL_OVERLAP_TOKENS ? length : FL_OVERLAP_TOKENS;
}

static fl_status search_length(const fl_sequences *training, const fl_sequences *evaluation, size_t tokens,
                               fl_overlap *out, fl_error *error) {
    size_t room = 0;
    for (size_t s = 0; s < evaluation->count; s++) {
        if (stretch_tokens(evaluation->lengths[s]) == tokens) room += evaluation->lengths[s] - tokens + 1;
    }
    if (room == 0) return FL_OK;
    fl_stretches stretches = {.tokens = tokens};
    FL_TRY(FL_ALLOCATE(&stretches.stretches, room, error));
    for (size_t s = 0; s < evaluation->count; s++) {
        if (stretch_tokens(evaluation->lengths[s]) != tokens) continue;
        roll(evaluation->ids[s], evaluation->lengths[s], tokens, s, collect, &stretches);
    }
    qsort(stretches.stretches, stretches.count, sizeof *stretches.stretches, by_hash);
    fl_search search = {&stretches, training, evaluation, out};
    for (size_t s = 0; s < training->count; s++) {
        if (roll(training->ids[s], training->lengths[s], tokens, s, compare, &search)) break;
    }
    fl_memory_free(stretches.stretches);
    return FL_OK;
}

fl_status fl_sequences_overlap(const fl_sequences *training, const fl_sequences *evaluation, fl_overlap *out,
                               fl_error *error) {
    *out = (fl_overlap){0};
    for (size_t tokens = FL_OVERLAP_TOKENS; tokens >= SHORTEST_OVERLAP && out->tokens == 0; tokens--) {
        FL_TRY(search_length(training, evaluation, tokens, out, error));
    }
    return FL_OK;
}
