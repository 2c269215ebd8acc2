/* Patterns of pre-tokenizers: regular expressions read from a tokenizer's file, run by PCRE2.
 *
 * Hugging Face runs them with Oniguruma (Ruby syntax), so a pattern is translated first. What means the same
 * in both is kept; what PCRE2 reads otherwise is rewritten: \s and \S become White_Space exactly, \d is Nd,
 * categories and scripts (not script extensions) are those of Unicode 16.0, ^ and $ are line anchors, capturing groups do not capture.
 * Everything whose meaning differs or is not known to agree (\w, \b, \h, back-references, nested classes, &&,
 * named groups, properties or multi-character folds inside (?i:...), possessive counted repeats, ...) is
 * FL_ERROR_UNSUPPORTED, naming the pattern and the place.
 *
 * A pattern is immutable; a matcher belongs to one thread at a time. */
#ifndef FL_MODEL_TOKENIZER_PATTERN_H
#define FL_MODEL_TOKENIZER_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"

typedef struct fl_pattern fl_pattern;
typedef struct fl_pattern_matcher fl_pattern_matcher;

/* The pre-tokenizer patterns that families of tokenizers share; `name` is gpt-2, llama3, qwen2, qwen35 or
 * tekken. NULL: no such name. */
const char *fl_pattern_known(const char *name);

fl_status fl_pattern_compile(const char *source, fl_pattern **out, fl_error *error);
void fl_pattern_destroy(fl_pattern *pattern);
/* As it was given to fl_pattern_compile. */
const char *fl_pattern_source(const fl_pattern *pattern);

fl_status fl_pattern_matcher_create(fl_pattern_matcher **out, fl_error *error);
void fl_pattern_matcher_destroy(fl_pattern_matcher *matcher);

/* First match in text[from, bytes), which must be valid UTF-8; text before `from` is seen by look-behinds
 * only. *found = false: none. FL_ERROR_NUMERIC: the match needed more steps than PCRE2's limit. */
fl_status fl_pattern_find(const fl_pattern *pattern, fl_pattern_matcher *matcher, const char *text,
                          size_t bytes, size_t from, size_t *start, size_t *end, bool *found,
                          fl_error *error);

#endif
