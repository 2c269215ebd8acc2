#include "harness/eval/retrieval.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/base/random.h"
#include "harness/eval/retrieval_words.h"
#include "harness/eval/text_buffer.h"

static const char filler[] =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

enum { MOST_NEEDLES = 8, LINE_BYTES = 256, CODED_LETTERS = 6 };

typedef enum haystack { HAYSTACK_FILLER, HAYSTACK_PROSE, HAYSTACK_NEEDLES } haystack;

/* The rows of RULER's needle family. */
typedef struct needle_kind {
    fl_retrieval_kind kind;
    haystack haystack;
    bool uuid_keys, uuid_values; /* else two words, and a number of seven digits */
    size_t needles, asked_keys, values_per_key;
} needle_kind;

static const needle_kind needle_kinds[] = {
    {FL_RETRIEVAL_SINGLE_1, HAYSTACK_FILLER, false, false, 1, 1, 1},
    {FL_RETRIEVAL_SINGLE_2, HAYSTACK_PROSE, false, false, 1, 1, 1},
    {FL_RETRIEVAL_SINGLE_3, HAYSTACK_PROSE, false, true, 1, 1, 1},
    {FL_RETRIEVAL_MULTIKEY_1, HAYSTACK_PROSE, false, false, 4, 1, 1},
    {FL_RETRIEVAL_MULTIKEY_2, HAYSTACK_NEEDLES, false, false, 1, 1, 1},
    {FL_RETRIEVAL_MULTIKEY_3, HAYSTACK_NEEDLES, true, true, 1, 1, 1},
    {FL_RETRIEVAL_MULTIVALUE, HAYSTACK_PROSE, false, false, 4, 1, 4},
    {FL_RETRIEVAL_MULTIQUERY, HAYSTACK_PROSE, false, false, 4, 4, 1},
};

/* One prompt in the making. A make_text appends the prompt with `units` of filler and sets the answers. */
typedef struct maker {
    const fl_retrieval_request *request;
    const fl_tokenizer *tokenizer;
    fl_random random;
    fl_retrieval_prompt *prompt;
    fl_text_buffer *text;
} maker;

typedef fl_status (*make_text)(maker *make, size_t units, fl_error *error);

static void set_answer(fl_retrieval_prompt *prompt, size_t index, const char *answer) {
    snprintf(prompt->answers[index], FL_RETRIEVAL_ANSWER_BYTES, "%s", answer);
    if (index >= prompt->answer_count) prompt->answer_count = index + 1;
}

static fl_status add_filler_characters(fl_text_buffer *text, size_t count, fl_error *error) {
    const size_t period = sizeof filler; /* the text and one space */
    for (size_t i = 0; i < count; i++) {
        const size_t at = i % period;
        FL_TRY(fl_text_buffer_add(text, at + 1 < period ? filler + at : " ", 1, error));
    }
    return FL_OK;
}

static fl_status make_passkey(maker *make, size_t units, fl_error *error) {
    char line[LINE_BYTES], key[16];
    snprintf(key, sizeof key, "%" PRIu64, 1 + fl_random_below(&make->random, 50000));
    snprintf(line, sizeof line, "\nThe pass key is %s. Remember it. %s is the pass key.\n", key, key);
    const size_t before = (size_t)(make->request->depth * (double)units);
    FL_TRY(fl_text_buffer_add_string(make->text,
                                     "There is an important info hidden inside a lot of irrelevant text. "
                                     "Find it and memorize them. I will "
                                     "quiz you about the important information there.\n",
                                     error));
    FL_TRY(add_filler_characters(make->text, before, error));
    FL_TRY(fl_text_buffer_add_string(make->text, line, error));
    FL_TRY(add_filler_characters(make->text, units - before, error));
    set_answer(make->prompt, 0, key);
    make->prompt->first_integer = true;
    make->prompt->new_tokens = 16;
    return fl_text_buffer_add_string(make->text, "\nWhat is the pass key? The pass key is", error);
}

/* End of the sentence that starts at `start`: behind the first ". " (or "! ", "? ") or at a blank line or the
 * end. */
static size_t sentence_end(const char *text, size_t start) {
    size_t at = start;
    while (text[at] != '\0') {
        const bool stop = strchr(".!?", text[at]) != NULL && isspace((unsigned char)text[at + 1]);
        const bool blank = text[at] == '\n' && text[at + 1] == '\n';
        at++;
        if (stop || blank) break;
    }
    return at;
}

/* Appends sentence after sentence, white space runs as single spaces, `count` of them, from the start again
 * when the prose ends; calls for needles in between. */
static fl_status add_sentence(fl_text_buffer *text, const char *prose, size_t *at, fl_error *error) {
    size_t end;
    do {
        while (isspace((unsigned char)prose[*at])) ++*at;
        if (prose[*at] == '\0') *at = 0;
        while (isspace((unsigned char)prose[*at])) ++*at;
        end = sentence_end(prose, *at);
    } while (end == *at);
    for (size_t i = *at; i < end; i++) {
        const bool space = isspace((unsigned char)prose[i]);
        if (space && (i + 1 == end || isspace((unsigned char)prose[i + 1]))) continue;
        FL_TRY(fl_text_buffer_add(text, space ? " " : prose + i, 1, error));
    }
    *at = end;
    return FL_OK;
}

/* Needles [count] among `units` sentences: needle n in front of sentence place[n]; one with place == units at
 * the end. */
static fl_status add_prose(maker *make, size_t units, char needles[][LINE_BYTES], const size_t *place,
                           size_t count, fl_error *error) {
    size_t at = 0;
    bool first = true;
    for (size_t i = 0; i <= units; i++) {
        for (size_t n = 0; n < count; n++) {
            if (place[n] != i) continue;
            FL_TRY(FL_TEXT_ADD(make->text, error, first ? "" : " ", needles[n]));
            first = false;
        }
        if (i == units) break;
        if (!first) FL_TRY(fl_text_buffer_add_string(make->text, " ", error));
        FL_TRY(add_sentence(make->text, make->request->prose, &at, error));
        first = false;
    }
    return FL_OK;
}

static fl_status make_needle(maker *make, size_t units, fl_error *error) {
    static const char answer[] = "eat a sandwich and sit in Dolores Park on a sunny day";
    char needle[1][LINE_BYTES];
    snprintf(needle[0], LINE_BYTES, "The best thing to do in San Francisco is %s.", answer);
    const size_t place = (size_t)(make->request->depth * (double)units);
    FL_TRY(add_prose(make, units, needle, &place, 1, error));
    set_answer(make->prompt, 0, answer);
    make->prompt->new_tokens = 32;
    return fl_text_buffer_add_string(
        make->text,
        "\n\nQuestion: What is the best thing to do in San Francisco?\nAnswer: The best "
        "thing to do in San Francisco is",
        error);
}

static void draw_words(fl_random *random, char *out, size_t bytes) {
    const char *adjective = fl_retrieval_adjectives[fl_random_below(random, FL_RETRIEVAL_ADJECTIVES)];
    snprintf(out, bytes, "%s-%s", adjective, fl_retrieval_nouns[fl_random_below(random, FL_RETRIEVAL_NOUNS)]);
}

static void draw_number(fl_random *random, char *out, size_t bytes) {
    snprintf(out, bytes, "%" PRIu64, 1000000 + fl_random_below(random, 9000000));
}

/* Version 4, variant 1. */
static void draw_uuid(fl_random *random, char *out, size_t bytes) {
    const uint64_t a = fl_random_next(random), b = fl_random_next(random);
    snprintf(out, bytes, "%08x-%04x-4%03x-%04x-%012" PRIx64, (unsigned)(a >> 32),
             (unsigned)(a >> 16 & 0xffff), (unsigned)(a & 0xfff), (unsigned)(0x8000 | (b >> 48 & 0x3fff)),
             b & UINT64_C(0xffffffffffff));
}

typedef struct needle_words {
    char key[MOST_NEEDLES][FL_RETRIEVAL_ANSWER_BYTES], value[MOST_NEEDLES][FL_RETRIEVAL_ANSWER_BYTES];
} needle_words;

static void draw_needle(fl_random *random, const needle_kind *kind, char *key, char *value) {
    (kind->uuid_keys ? draw_uuid : draw_words)(random, key, FL_RETRIEVAL_ANSWER_BYTES);
    (kind->uuid_values ? draw_uuid : draw_number)(random, value, FL_RETRIEVAL_ANSWER_BYTES);
}

static void write_needle(const needle_kind *kind, const char *key, const char *value, char *out) {
    snprintf(out, LINE_BYTES, "One of the special magic %s for %s is: %s.",
             kind->uuid_values ? "uuids" : "numbers", key, value);
}

/* Distinct keys, except that all needles of multivalue share the first. */
static void draw_needles(maker *make, const needle_kind *kind, needle_words *words) {
    for (size_t n = 0; n < kind->needles; n++) {
        bool taken;
        do {
            draw_needle(&make->random, kind, words->key[n], words->value[n]);
            taken = false;
            for (size_t m = 0; m < n; m++) taken = taken || strcmp(words->key[m], words->key[n]) == 0;
        } while (taken);
        if (kind->values_per_key > 1) memcpy(words->key[n], words->key[0], sizeof words->key[n]);
    }
}

/* The lines of filler or of other needles, ours among them: line place[n] is needle n. */
static fl_status add_lines(maker *make, const needle_kind *kind, const needle_words *words, size_t units,
                           char needles[][LINE_BYTES], const size_t *place, fl_error *error) {
    for (size_t i = 0, n; i <= units; i++) {
        char other[LINE_BYTES], key[FL_RETRIEVAL_ANSWER_BYTES], value[FL_RETRIEVAL_ANSWER_BYTES];
        for (n = 0; n < kind->needles; n++) {
            if (place[n] != i) continue;
            FL_TRY(FL_TEXT_ADD(make->text, error, needles[n], i < units ? "\n" : ""));
        }
        if (i == units) break;
        const char *line = filler;
        if (kind->haystack == HAYSTACK_NEEDLES) {
            do {
                draw_needle(&make->random, kind, key, value);
            } while (strcmp(key, words->key[0]) == 0);
            write_needle(kind, key, value, other);
            line = other;
        }
        bool last_line = i + 1 == units;
        for (n = 0; n < kind->needles; n++) last_line = last_line && place[n] != units;
        FL_TRY(FL_TEXT_ADD(make->text, error, line, last_line ? "" : "\n"));
    }
    return FL_OK;
}

static fl_status add_question(maker *make, const needle_kind *kind, const needle_words *words,
                              fl_error *error) {
    const bool one = kind->asked_keys * kind->values_per_key == 1;
    const char *type = kind->uuid_values ? (one ? "uuid" : "uuids") : (one ? "number" : "numbers");
    char query[LINE_BYTES * 2];
    size_t used = 0;
    for (size_t k = 0; k < kind->asked_keys; k++) {
        const char *separator = k == 0 ? "" : k + 1 == kind->asked_keys ? ", and " : ", ";
        used += (size_t)snprintf(query + used, sizeof query - used, "%s%s", separator, words->key[k]);
    }
    FL_TRY(FL_TEXT_ADD(make->text, error, "\nWhat ", one ? "is" : "are all", " the special magic ", type,
                       " for ", query, " mentioned in the provided text? The special magic ", type, " for ",
                       query, " mentioned in the provided text ", one ? "is" : "are"));
    const size_t answers = kind->asked_keys * kind->values_per_key;
    for (size_t a = 0; a < answers; a++) set_answer(make->prompt, a, words->value[a]);
    make->prompt->new_tokens = 128;
    return FL_OK;
}

static const needle_kind *needle_kind_of(fl_retrieval_kind kind) {
    for (size_t i = 0; i < sizeof needle_kinds / sizeof needle_kinds[0]; i++) {
        if (needle_kinds[i].kind == kind) return &needle_kinds[i];
    }
    return NULL;
}

static fl_status make_needles(maker *make, size_t units, fl_error *error) {
    const needle_kind *kind = needle_kind_of(make->request->kind);
    const bool one = kind->asked_keys * kind->values_per_key == 1;
    const char *type = kind->uuid_values ? (one ? "uuid" : "uuids") : (one ? "number" : "numbers");
    needle_words words;
    char needles[MOST_NEEDLES][LINE_BYTES];
    size_t place[MOST_NEEDLES];
    draw_needles(make, kind, &words);
    for (size_t n = 0; n < kind->needles; n++) {
        write_needle(kind, words.key[n], words.value[n], needles[n]);
        const double depth = n == 0 ? make->request->depth : fl_random_uniform(&make->random);
        place[n] = (size_t)(depth * (double)units);
    }
    FL_TRY(
        FL_TEXT_ADD(make->text, error, one ? "A" : "Some", " special magic ", type, one ? " is" : " are",
                    " hidden within the following text. Make sure to memorize it. I will quiz you about the ",
                    type, " afterwards.\n"));
    FL_TRY(kind->haystack == HAYSTACK_PROSE ? add_prose(make, units, needles, place, kind->needles, error)
                                            : add_lines(make, kind, &words, units, needles, place, error));
    return add_question(make, kind, &words, error);
}

static void draw_letters(fl_random *random, char *out, size_t count, char first) {
    for (size_t i = 0; i < count; i++) out[i] = (char)(first + (int)fl_random_below(random, 26));
    out[count] = '\0';
}

static fl_status make_variables(maker *make, size_t units, fl_error *error) {
    enum { HOPS = 4, LETTERS = 5 };
    char names[HOPS + 1][LETTERS + 1], value[16];
    snprintf(value, sizeof value, "%" PRIu64, 10000 + fl_random_below(&make->random, 90000));
    for (size_t n = 0; n <= HOPS; n++) {
        draw_letters(&make->random, names[n], LETTERS, 'A');
        set_answer(make->prompt, n, names[n]);
    }
    FL_TRY(fl_text_buffer_add_string(
        make->text,
        "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n", error));
    for (size_t i = 0, next = 0; i < units || next <= HOPS; i++) {
        /* The chain in order, spread evenly over the lines. */
        while (next <= HOPS && next * units <= i * (HOPS + 1)) {
            FL_TRY(FL_TEXT_ADD(make->text, error, "VAR ", names[next], " = ", next == 0 ? "" : "VAR ",
                               next == 0 ? value : names[next - 1], "\n"));
            next++;
        }
        if (i < units) FL_TRY(FL_TEXT_ADD(make->text, error, filler, "\n"));
    }
    make->prompt->new_tokens = 30;
    return FL_TEXT_ADD(
        make->text, error, "Question: Find all variables that are assigned the value ", value,
        " in the text above. Answer: According to the chain(s) of variable assignment in the text ",
        "above, 5 variables are assigned the value ", value, ", they are:");
}

static void shuffle(fl_random *random, size_t *values, size_t count) {
    for (size_t i = count; i > 1; i--) {
        const size_t j = (size_t)fl_random_below(random, i), held = values[i - 1];
        values[i - 1] = values[j];
        values[j] = held;
    }
}

/* Word number `index` of a shuffled vocabulary of single and hyphenated words. */
static void numbered_word(const size_t *order, size_t index, char *out, size_t bytes) {
    const size_t noun = order[index % FL_RETRIEVAL_NOUNS], round = index / FL_RETRIEVAL_NOUNS;
    if (round == 0) {
        snprintf(out, bytes, "%s", fl_retrieval_nouns[noun]);
    } else {
        snprintf(out, bytes, "%s-%s", fl_retrieval_adjectives[(round - 1) % FL_RETRIEVAL_ADJECTIVES],
                 fl_retrieval_nouns[noun]);
    }
}

static fl_status make_common_words(maker *make, size_t units, fl_error *error) {
    enum { COMMON = 10, COMMON_TIMES = 30, OTHER_TIMES = 3 };
    size_t order[FL_RETRIEVAL_NOUNS], *list = NULL;
    for (size_t i = 0; i < FL_RETRIEVAL_NOUNS; i++) order[i] = i;
    shuffle(&make->random, order, FL_RETRIEVAL_NOUNS);
    const size_t total = COMMON * COMMON_TIMES + units * OTHER_TIMES;
    FL_TRY(FL_ALLOCATE(&list, total, error));
    for (size_t i = 0; i < total; i++) {
        list[i] =
            i < COMMON * COMMON_TIMES ? i / COMMON_TIMES : COMMON + (i - COMMON * COMMON_TIMES) / OTHER_TIMES;
    }
    shuffle(&make->random, list, total);
    fl_status status = fl_text_buffer_add_string(make->text,
                                                 "Below is a numbered list of words. In these words, some "
                                                 "appear more often than others. Memorize the ones "
                                                 "that appear most often.\n",
                                                 error);
    for (size_t i = 0; status == FL_OK && i < total; i++) {
        char word[FL_RETRIEVAL_ANSWER_BYTES], entry[LINE_BYTES];
        numbered_word(order, list[i], word, sizeof word);
        snprintf(entry, sizeof entry, "%s%zu. %s", i == 0 ? "" : " ", i + 1, word);
        status = fl_text_buffer_add_string(make->text, entry, error);
    }
    fl_memory_free(list);
    FL_TRY(status);
    for (size_t i = 0; i < COMMON; i++) set_answer(make->prompt, i, fl_retrieval_nouns[order[i]]);
    make->prompt->new_tokens = 120;
    return fl_text_buffer_add_string(
        make->text,
        "\nQuestion: What are the 10 most common words in the above list? Answer: The top 10 "
        "words that appear most often in the list are:",
        error);
}

static fl_status make_frequent_words(maker *make, size_t units, fl_error *error) {
    enum { CODED = 20 };
    char words[CODED][CODED_LETTERS + 1];
    double weights[CODED], total = 0.0;
    for (size_t w = 0; w < CODED; w++) {
        draw_letters(&make->random, words[w], CODED_LETTERS, 'a');
        total += weights[w] = pow((double)(w + 1), -2.0);
    }
    snprintf(words[0], sizeof words[0], "...");
    size_t *list = NULL, count = 0;
    FL_TRY(FL_ALLOCATE(&list, units + CODED, error));
    for (size_t w = 0; w < CODED; w++) {
        const size_t times = (size_t)(weights[w] / total * (double)units) + (w < 4 ? 1 : 0);
        for (size_t i = 0; i < times && count < units + CODED; i++) list[count++] = w;
    }
    shuffle(&make->random, list, count);
    fl_status status = fl_text_buffer_add_string(make->text,
                                                 "Read the following coded text and track the frequency of "
                                                 "each coded word. Find the three most frequently "
                                                 "appeared coded words.",
                                                 error);
    for (size_t i = 0; status == FL_OK && i < count; i++) {
        status = FL_TEXT_ADD(make->text, error, " ", words[list[i]]);
    }
    fl_memory_free(list);
    FL_TRY(status);
    for (size_t i = 0; i < 3; i++) set_answer(make->prompt, i, words[i + 1]);
    make->prompt->new_tokens = 50;
    return fl_text_buffer_add_string(make->text,
                                     "\nQuestion: Do not provide any explanation. Please ignore the dots "
                                     "'....'. What are the three most frequently "
                                     "appeared words in the above coded text? Answer: According to the coded "
                                     "text above, the three most frequently "
                                     "appeared words are:",
                                     error);
}

static make_text maker_of(fl_retrieval_kind kind) {
    switch (kind) {
    case FL_RETRIEVAL_PASSKEY:
        return make_passkey;
    case FL_RETRIEVAL_NEEDLE:
        return make_needle;
    case FL_RETRIEVAL_VARIABLE_TRACKING:
        return make_variables;
    case FL_RETRIEVAL_COMMON_WORDS:
        return make_common_words;
    case FL_RETRIEVAL_FREQUENT_WORDS:
        return make_frequent_words;
    default:
        return make_needles;
    }
}

bool fl_retrieval_needs_prose(fl_retrieval_kind kind) {
    const needle_kind *needle = needle_kind_of(kind);
    return kind == FL_RETRIEVAL_NEEDLE || (needle != NULL && needle->haystack == HAYSTACK_PROSE);
}

void fl_retrieval_release(fl_retrieval_prompt *prompt) {
    fl_memory_free(prompt->text);
    prompt->text = NULL;
}

/* The text with so much filler, and whether it and its answer fit. The random numbers start anew each time,
 * so that keys and values do not depend on the size. */
static fl_status try_units(maker *make, size_t units, bool *fits, fl_error *error) {
    const fl_retrieval_request *request = make->request;
    fl_random_seed(&make->random, request->seed, request->sample);
    *make->prompt = (fl_retrieval_prompt){0};
    fl_text_buffer_clear(make->text);
    FL_TRY(maker_of(request->kind)(make, units, error));
    int32_t *ids = NULL;
    size_t count = 0;
    FL_TRY(
        fl_tokenizer_encode(make->tokenizer, make->text->text, make->text->bytes, true, &ids, &count, error));
    fl_memory_free(ids);
    *fits = count + make->prompt->new_tokens <= request->length;
    return FL_OK;
}

/* The largest number of units that fits: doubling, then halving the interval. */
static fl_status fit(maker *make, fl_error *error) {
    bool fits = false;
    FL_TRY(try_units(make, 0, &fits, error));
    if (!fits) {
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "a length of %zu tokens is too short for this prompt and %zu new tokens",
                            make->request->length, make->prompt->new_tokens);
    }
    size_t low = 0, high = 1;
    for (;; high *= 2) {
        FL_TRY(try_units(make, high, &fits, error));
        if (!fits) break;
        low = high;
    }
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        FL_TRY(try_units(make, middle, &fits, error));
        *(fits ? &low : &high) = middle;
    }
    return try_units(make, low, &fits, error);
}

static bool is_blank(const char *text) {
    return text == NULL || text[strspn(text, " \t\r\n\f\v")] == '\0';
}

fl_status fl_retrieval_make(const fl_retrieval_request *request, const fl_tokenizer *tokenizer,
                            fl_retrieval_prompt *out, fl_error *error) {
    if (fl_retrieval_needs_prose(request->kind) && is_blank(request->prose)) {
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "this task needs a text to hide its needle in: give a path");
    }
    fl_text_buffer text = {0};
    maker make = {.request = request, .tokenizer = tokenizer, .prompt = out, .text = &text};
    fl_status status = fit(&make, error);
    if (status == FL_OK) status = fl_text_buffer_take(&text, &out->text, error);
    fl_text_buffer_release(&text);
    return status;
}

static bool contains_ignoring_case(const char *text, const char *part) {
    for (; *text != '\0'; text++) {
        size_t i = 0;
        while (part[i] != '\0' && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i])) i++;
        if (part[i] == '\0') return true;
    }
    return false;
}

static bool first_integer_is(const char *text, const char *answer) {
    text += strcspn(text, "0123456789");
    const size_t length = strspn(text, "0123456789");
    return length == strlen(answer) && memcmp(text, answer, length) == 0;
}

double fl_retrieval_score(const fl_retrieval_prompt *prompt, const char *continuation) {
    if (prompt->first_integer) return first_integer_is(continuation, prompt->answers[0]) ? 1.0 : 0.0;
    double found = 0.0;
    for (size_t i = 0; i < prompt->answer_count; i++)
        found += contains_ignoring_case(continuation, prompt->answers[i]);
    return prompt->answer_count == 0 ? 0.0 : found / (double)prompt->answer_count;
}
