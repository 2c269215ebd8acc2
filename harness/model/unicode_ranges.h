/* Unicode ranges: the reference's pre-tokenizers (tokenizers 0.23, Oniguruma) know the characters of Unicode 16.0, PCRE2 of
 * Debian 12 those of 14.0. Here is the difference, and whole scripts. Internal to tokenizer_pattern.c. */
#ifndef FL_MODEL_UNICODE_RANGES_H
#define FL_MODEL_UNICODE_RANGES_H

#include <stddef.h>
#include <stdint.h>

/* Characters whose general category differs: what it was in 14.0 ("Cn": not assigned) and is in 16.0. In order. */
typedef struct fl_unicode_change {
    uint32_t first, last;
    char before[3], now[3];
} fl_unicode_change;

extern const fl_unicode_change fl_unicode_changes[];
extern const size_t fl_unicode_change_count;

/* The scripts that patterns may name (property Script, not Script_Extensions), in 16.0. */
typedef struct fl_unicode_script {
    const char *name;
    uint32_t first, last;
} fl_unicode_script;

extern const fl_unicode_script fl_unicode_scripts[];
extern const size_t fl_unicode_script_count;

#endif
