#define PCRE2_CODE_UNIT_WIDTH 8
#include "harness/model/tokenizer_pattern.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/model/tokenizer_text.h"
#include "harness/model/unicode_ranges.h"

struct fl_pattern {
    char *source;
    pcre2_code *code;
};

struct fl_pattern_matcher {
    pcre2_match_data *data;
};

enum { GROUP_DEPTH = 64, NEGATED_MOST = 8 };

/* White_Space and everything else, as the inside of a class. */
static const char white_space[] =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";
static const char not_white_space[] =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-"
    "\\x{2027}"
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}";

static const char *const categories[] = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P",  "Pc", "Pd",
    "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp", "Cc", "Cf",
};
static const char *const scripts[] = {
    "Arabic", "Cyrillic", "Devanagari", "Greek", "Han",  "Hangul",
    "Hebrew", "Hiragana", "Katakana",   "Latin", "Thai",
};

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define NOT_LETTER "[^\\r\\n\\p{L}\\p{N}]"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

static const struct {
    const char *name;
    const char *source;
} known[] = {
    {"gpt-2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {"llama3", CONTRACTION "|" NOT_LETTER "?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES},
    {"qwen2", CONTRACTION "|" NOT_LETTER "?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES},
    {"qwen35",
     CONTRACTION "|" NOT_LETTER "?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES},
    {"tekken", NOT_LETTER "?" UPPER "*" LOWER "+|" NOT_LETTER "?" UPPER "+" LOWER
                          "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES},
};

const char *fl_pattern_known(const char *name) {
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, name) == 0) return known[i].source;
    return NULL;
}

typedef struct translation {
    const char *source;
    size_t bytes;
    size_t position;
    fl_text_buffer out;
    bool caseless[GROUP_DEPTH];
    size_t depth;
    char literal; /* the ASCII letter just copied inside (?i:...), 0: something else */
    fl_text_buffer
        negated[NEGATED_MOST]; /* of the class being read: each \P{...} in it, as the inside of \p{...} */
    size_t negated_count;
    fl_error *error;
} translation;

static fl_status refuse(const translation *t, const char *what) {
    return fl_error_set(t->error, FL_ERROR_UNSUPPORTED, "pattern %s: at byte %zu: %s is not understood",
                        t->source, t->position, what);
}

static fl_status emit(translation *t, const char *text) {
    return fl_text_append(&t->out, text, strlen(text), t->error);
}

static bool in_list(const char *name, size_t bytes, const char *const *list, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i]) == bytes && memcmp(list[i], name, bytes) == 0) return true;
    return false;
}

static fl_status append_range(fl_text_buffer *out, uint32_t first, uint32_t last, fl_error *error) {
    char text[32];
    int length = snprintf(text, sizeof text, "\\x{%x}-\\x{%x}", (unsigned)first, (unsigned)last);
    return fl_text_append(out, text, (size_t)length, error);
}

/* A category of Unicode 16 as the inside of a class: PCRE2's own, and the characters that came to it since.
 * One character that left a category (U+1171E, from Mn to Mc) stays in both. */
static fl_status append_category(fl_text_buffer *out, const char *name, size_t bytes, fl_error *error) {
    FL_TRY(fl_text_append(out, "\\p{", 3, error));
    FL_TRY(fl_text_append(out, name, bytes, error));
    FL_TRY(fl_text_append(out, "}", 1, error));
    for (size_t i = 0; i < fl_unicode_change_count; i++) {
        const fl_unicode_change *change = &fl_unicode_changes[i];
        if (memcmp(change->now, name, bytes) == 0 && memcmp(change->before, name, bytes) != 0)
            FL_TRY(append_range(out, change->first, change->last, error));
    }
    return FL_OK;
}

static fl_status append_script(fl_text_buffer *out, const char *name, size_t bytes, fl_error *error) {
    for (size_t i = 0; i < fl_unicode_script_count; i++) {
        const fl_unicode_script *script = &fl_unicode_scripts[i];
        if (strlen(script->name) == bytes && memcmp(script->name, name, bytes) == 0)
            FL_TRY(append_range(out, script->first, script->last, error));
    }
    return FL_OK;
}

/* A category or a script, known by now to be one. Inside a class a negated one is kept for the class's end.
 */
static fl_status translate_set(translation *t, const char *name, size_t bytes, bool negated,
                               bool inside_class) {
    fl_text_buffer *out = &t->out;
    if (inside_class && negated) {
        if (t->negated_count == NEGATED_MOST) return refuse(t, "a class with so many negated properties");
        out = &t->negated[t->negated_count++];
        out->count = 0;
    }
    if (!inside_class) FL_TRY(emit(t, negated ? "[^" : "["));
    FL_TRY(in_list(name, bytes, scripts, sizeof scripts / sizeof scripts[0])
               ? append_script(out, name, bytes, t->error)
               : append_category(out, name, bytes, t->error));
    return inside_class ? FL_OK : emit(t, "]");
}

/* \p{...} or \P{...}; position is at the brace, or where it should be. */
static fl_status translate_property(translation *t, bool negated, bool inside_class) {
    if (t->caseless[t->depth]) return refuse(t, "a property inside (?i:...)");
    const char *open = t->source + t->position;
    const char *close = *open == '{' ? strchr(open, '}') : NULL;
    if (close == NULL) return refuse(t, "a property without braces");
    const char *name = open + 1;
    if (*name == '^') {
        negated = !negated;
        name++;
    }
    size_t bytes = (size_t)(close - name);
    if (!in_list(name, bytes, categories, sizeof categories / sizeof categories[0]) &&
        !in_list(name, bytes, scripts, sizeof scripts / sizeof scripts[0]))
        return refuse(t, "this property");
    FL_TRY(translate_set(t, name, bytes, negated, inside_class));
    t->position = (size_t)(close - t->source) + 1;
    return FL_OK;
}

/* \xHH, \x{H...} and \uHHHH; position is behind the letter. */
static fl_status translate_code_point(translation *t, char letter) {
    const char *digits = t->source + t->position;
    bool braces = letter == 'x' && *digits == '{';
    if (braces) digits++;
    size_t wanted = braces ? strspn(digits, "0123456789abcdefABCDEF") : letter == 'x' ? 2 : 4;
    unsigned long value = 0;
    for (size_t i = 0; i < wanted; i++) {
        if (!isxdigit((unsigned char)digits[i])) return refuse(t, "this code point");
        int lower = tolower((unsigned char)digits[i]);
        value = value * 16 + (unsigned long)(lower <= '9' ? lower - '0' : lower - 'a' + 10);
        if (value > 0x10FFFF) return refuse(t, "this code point");
    }
    bool raw_byte = letter == 'x' && !braces && value >= 0x80;
    if (wanted == 0 || raw_byte || (braces && digits[wanted] != '}') || (value >= 0xD800 && value <= 0xDFFF))
        return refuse(t, "this code point");
    if (t->caseless[t->depth] && value >= 0x80) return refuse(t, "a character beyond ASCII inside (?i:...)");
    t->position = (size_t)(digits - t->source) + wanted + (braces ? 1 : 0);
    static const char hexadecimal[] = "0123456789abcdef";
    char text[16] = "\\x{";
    size_t count = 3;
    for (int shift = 20; shift >= 0; shift -= 4) text[count++] = hexadecimal[value >> shift & 15];
    text[count] = '}';
    return emit(t, text);
}

/* An escape; position is at the backslash. *set: it stands for many characters. */
static fl_status translate_escape(translation *t, bool inside_class, bool *set) {
    char c = t->source[t->position + 1];
    *set = strchr("sSdDpP", c) != NULL && c != '\0';
    static const char *const single[][2] = {{"t", "\\x{9}"}, {"n", "\\x{a}"}, {"v", "\\x{b}"},
                                            {"f", "\\x{c}"}, {"r", "\\x{d}"}, {"a", "\\x{7}"},
                                            {"e", "\\x{1b}"}};
    for (size_t i = 0; i < sizeof single / sizeof single[0]; i++) {
        if (c != single[i][0][0]) continue;
        t->position += 2;
        return emit(t, single[i][1]);
    }
    if (c == 's' || c == 'S') {
        t->position += 2;
        if (!inside_class) FL_TRY(emit(t, c == 's' ? "[" : "[^"));
        FL_TRY(emit(t, inside_class && c == 'S' ? not_white_space : white_space));
        return inside_class ? FL_OK : emit(t, "]");
    }
    if (c == 'd' || c == 'D') {
        t->position += 2;
        return translate_set(t, "Nd", 2, c == 'D', inside_class);
    }
    if (c == 'p' || c == 'P') {
        t->position += 2;
        return translate_property(t, c == 'P', inside_class);
    }
    if (c == 'x' || c == 'u') {
        t->position += 2;
        return translate_code_point(t, c);
    }
    if ((unsigned char)c >= 0x80 || !ispunct((unsigned char)c)) {
        char what[] = "\\?";
        what[1] = c != '\0' && (unsigned char)c < 0x80 ? c : '?';
        return refuse(t, what);
    }
    t->position += 2;
    char text[] = "\\?";
    text[1] = c;
    return emit(t, text);
}

/* A literal character, escaped when it is ASCII punctuation. */
static fl_status translate_literal(translation *t) {
    char c = t->source[t->position];
    bool letter = isalpha((unsigned char)c) && (unsigned char)c < 0x80;
    if (t->caseless[t->depth]) {
        if ((unsigned char)c >= 0x80) return refuse(t, "a character beyond ASCII inside (?i:...)");
        /* Oniguruma folds ss, ff, fi, fl and st together with the letters that stand for the pair. */
        static const char pairs[][3] = {"ss", "ff", "fi", "fl", "st"};
        for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
            if (letter && tolower((unsigned char)t->literal) == pairs[i][0] &&
                tolower((unsigned char)c) == pairs[i][1])
                return refuse(t, "a pair of letters that has a ligature inside (?i:...)");
    }
    t->literal = letter ? c : '\0';
    if ((unsigned char)c < 0x80 && ispunct((unsigned char)c)) FL_TRY(emit(t, "\\"));
    t->position++;
    return fl_text_append(&t->out, &c, 1, t->error);
}

/* A class with negated properties in it is the alternation of its parts, or for [^...] what is in none of
 * them: PCRE2's classes can add characters to a property and cannot take any away. start: where the class
 * begins in `out`. */
static fl_status split_class(translation *t, size_t start, bool inverted) {
    const size_t body = start + (inverted ? 2 : 1);
    const bool empty = t->out.count == body;
    fl_text_buffer plain = {0};
    fl_status status = fl_text_append(&plain, t->out.bytes + body, t->out.count - body, t->error);
    t->out.count = start;
    if (status == FL_OK) status = emit(t, "(?:");
    if (!empty) {
        if (status == FL_OK) status = emit(t, inverted ? "(?![" : "[");
        if (status == FL_OK) status = fl_text_append(&t->out, plain.bytes, plain.count, t->error);
        if (status == FL_OK) status = emit(t, inverted ? "])" : "]|");
    }
    for (size_t i = 0; i < t->negated_count && status == FL_OK; i++) {
        const bool last = i + 1 == t->negated_count;
        status = emit(t, !inverted ? "[^" : last ? "[" : "(?=[");
        if (status == FL_OK)
            status = fl_text_append(&t->out, t->negated[i].bytes, t->negated[i].count, t->error);
        if (status == FL_OK) status = emit(t, last ? "]" : inverted ? "])" : "]|");
    }
    fl_text_release(&plain);
    return status == FL_OK ? emit(t, ")") : status;
}

static fl_status translate_class(translation *t) {
    const size_t start = t->out.count;
    t->position++;
    t->negated_count = 0;
    FL_TRY(emit(t, "["));
    const bool inverted = t->source[t->position] == '^';
    if (inverted) {
        FL_TRY(emit(t, "^"));
        t->position++;
    }
    if (t->source[t->position] == ']') return refuse(t, "] at the start of a class");
    bool after_set = false, after_dash = false, first = true;
    while (t->position < t->bytes && t->source[t->position] != ']') {
        const char *here = t->source + t->position;
        bool set = false, dash = false;
        t->literal = '\0';
        if (here[0] == '[' || (here[0] == '&' && here[1] == '&')) return refuse(t, "a class inside a class");
        if (here[0] == '\\') {
            FL_TRY(translate_escape(t, true, &set));
        } else if (here[0] == '-' && !first && here[1] != ']') {
            if (after_set || after_dash) return refuse(t, "this range");
            dash = true;
            t->position++;
            FL_TRY(emit(t, "-"));
        } else {
            FL_TRY(translate_literal(t));
        }
        if (set && after_dash) return refuse(t, "this range");
        after_set = set || after_dash; /* behind a finished range a dash would be doubtful too */
        after_dash = dash;
        first = false;
    }
    if (t->position >= t->bytes) return refuse(t, "a class without its end");
    t->position++;
    t->literal = '\0';
    return t->negated_count > 0 ? split_class(t, start, inverted) : emit(t, "]");
}

static fl_status translate_group(translation *t) {
    static const char *const openings[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    const char *here = t->source + t->position;
    const char *opening = here[1] == '?' ? NULL : "(?:";
    size_t taken = 1;
    for (size_t i = 0; i < sizeof openings / sizeof openings[0] && opening == NULL; i++) {
        size_t bytes = strlen(openings[i]);
        if (strncmp(here, openings[i], bytes) != 0) continue;
        opening = openings[i];
        taken = bytes;
    }
    if (opening == NULL) return refuse(t, "this kind of group");
    if (t->depth + 1 >= GROUP_DEPTH) return refuse(t, "such a deep nesting of groups");
    t->depth++;
    t->caseless[t->depth] = t->caseless[t->depth - 1] || strcmp(opening, "(?i:") == 0;
    t->position += taken;
    return emit(t, opening);
}

/* { is a repeat only when it is written as one. */
static fl_status translate_brace(translation *t) {
    const char *here = t->source + t->position;
    size_t low = strspn(here + 1, "0123456789");
    bool comma = here[1 + low] == ',';
    size_t high = comma ? strspn(here + 2 + low, "0123456789") : 0;
    size_t length = 1 + low + (comma ? 1 + high : 0) + 1;
    if (here[length - 1] != '}' || (low == 0 && high == 0)) return translate_literal(t);
    if (low == 0) return refuse(t, "a repeat without its lower bound");
    if (here[length] == '+' || (here[length] == '?' && !comma)) return refuse(t, "this suffix of a repeat");
    FL_TRY(fl_text_append(&t->out, here, length, t->error));
    t->position += length;
    return FL_OK;
}

static fl_status translate_one(translation *t) {
    char c = t->source[t->position];
    bool set;
    char previous_literal = t->literal;
    t->literal = '\0';
    switch (c) {
    case '\\':
        return translate_escape(t, false, &set);
    case '[':
        return translate_class(t);
    case '(':
        return translate_group(t);
    case ')':
        if (t->depth == 0) return refuse(t, ") without its (");
        t->depth--;
        t->position++;
        return emit(t, ")");
    case '{':
        return translate_brace(t);
    case '^':
    case '$':
        t->position++;
        return emit(t, c == '^' ? "(?m:^)" : "(?m:$)");
    case '|':
    case '*':
    case '+':
    case '?':
        t->position++;
        return fl_text_append(&t->out, &c, 1, t->error);
    case '.':
        t->position++;
        return fl_text_append(&t->out, &c, 1, t->error);
    default:
        t->literal = previous_literal;
        return translate_literal(t);
    }
}

static fl_status translate(translation *t) {
    size_t valid = fl_text_valid_prefix(t->source, t->bytes);
    t->position = valid;
    if (valid < t->bytes) return refuse(t, "ill-formed UTF-8");
    t->position = 0;
    FL_TRY(fl_text_reserve(&t->out, t->bytes, t->error));
    while (t->position < t->bytes) FL_TRY(translate_one(t));
    return t->depth == 0 ? FL_OK : refuse(t, "a group without its end");
}

static void *regex_allocate(size_t bytes, void *unused) {
    (void)unused;
    void *block;
    return fl_memory_allocate(&block, bytes, 1, NULL) == FL_OK ? block : NULL;
}

static void regex_free(void *block, void *unused) {
    (void)unused;
    fl_memory_free(block);
}

static fl_status compile(fl_pattern *pattern, const fl_text_buffer *translated, fl_error *error) {
    int code = PCRE2_ERROR_NOMEMORY;
    PCRE2_SIZE offset = 0;
    pcre2_general_context *general = pcre2_general_context_create(regex_allocate, regex_free, NULL);
    pcre2_compile_context *context = general != NULL ? pcre2_compile_context_create(general) : NULL;
    if (context != NULL) {
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        pattern->code = pcre2_compile((PCRE2_SPTR)translated->bytes, translated->count, PCRE2_UTF | PCRE2_UCP,
                                      &code, &offset, context);
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    if (pattern->code == NULL) {
        PCRE2_UCHAR message[128];
        if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
            return fl_error_set(error, FL_ERROR_MEMORY, "no memory for a pattern");
        pcre2_get_error_message(code, message, sizeof message);
        return fl_error_set(error, FL_ERROR_UNSUPPORTED, "pattern %s: %s (at byte %zu of %s)",
                            pattern->source, (const char *)message, (size_t)offset, translated->bytes);
    }
    /* Where there is no just-in-time compiler the interpreter does the same work. */
    pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE);
    return FL_OK;
}

fl_status fl_pattern_compile(const char *source, fl_pattern **out, fl_error *error) {
    *out = NULL;
    fl_pattern *pattern;
    FL_TRY(FL_ALLOCATE(&pattern, 1, error));
    translation t = {.source = source, .bytes = strlen(source), .error = error};
    fl_status status;
    FL_TRY_DONE(status, fl_memory_copy_string(&pattern->source, source, error));
    FL_TRY_DONE(status, translate(&t));
    FL_TRY_DONE(status, compile(pattern, &t.out, error));
    *out = pattern;
    pattern = NULL;
done:
    fl_text_release(&t.out);
    for (size_t i = 0; i < NEGATED_MOST; i++) fl_text_release(&t.negated[i]);
    fl_pattern_destroy(pattern);
    return status;
}

void fl_pattern_destroy(fl_pattern *pattern) {
    if (pattern == NULL) return;
    pcre2_code_free(pattern->code);
    fl_memory_free(pattern->source);
    fl_memory_free(pattern);
}

const char *fl_pattern_source(const fl_pattern *pattern) {
    return pattern->source;
}

fl_status fl_pattern_matcher_create(fl_pattern_matcher **out, fl_error *error) {
    *out = NULL;
    fl_pattern_matcher *matcher;
    FL_TRY(FL_ALLOCATE(&matcher, 1, error));
    pcre2_general_context *general = pcre2_general_context_create(regex_allocate, regex_free, NULL);
    if (general != NULL) matcher->data = pcre2_match_data_create(1, general);
    pcre2_general_context_free(general);
    if (matcher->data == NULL) {
        fl_memory_free(matcher);
        return fl_error_set(error, FL_ERROR_MEMORY, "no memory for a pattern's matches");
    }
    *out = matcher;
    return FL_OK;
}

void fl_pattern_matcher_destroy(fl_pattern_matcher *matcher) {
    if (matcher == NULL) return;
    pcre2_match_data_free(matcher->data);
    fl_memory_free(matcher);
}

fl_status fl_pattern_find(const fl_pattern *pattern, fl_pattern_matcher *matcher, const char *text,
                          size_t bytes, size_t from, size_t *start, size_t *end, bool *found,
                          fl_error *error) {
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int result = pcre2_match(pattern->code, subject, bytes, from, PCRE2_NO_UTF_CHECK, matcher->data, NULL);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT)
        result = pcre2_match(pattern->code, subject, bytes, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                             matcher->data, NULL);
    *found = result >= 0;
    if (result == PCRE2_ERROR_NOMATCH) return FL_OK;
    if (result == PCRE2_ERROR_NOMEMORY)
        return fl_error_set(error, FL_ERROR_MEMORY, "no memory to match a pattern");
    if (result < 0) {
        PCRE2_UCHAR message[128];
        pcre2_get_error_message(result, message, sizeof message);
        return fl_error_set(error, FL_ERROR_NUMERIC, "pattern %s: at byte %zu of a text: %s", pattern->source,
                            from, (const char *)message);
    }
    const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(matcher->data);
    *start = bounds[0];
    *end = bounds[1];
    return FL_OK;
}
