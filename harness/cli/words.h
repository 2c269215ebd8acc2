/* The words that arguments can be, from the tables that know them (fl_words in arguments.h). */
#ifndef FL_CLI_WORDS_H
#define FL_CLI_WORDS_H

#include <stddef.h>

const char *fl_words_rules(size_t index);
const char *fl_words_pictures(size_t index);
const char *fl_words_picture_formats(size_t index);
const char *fl_words_tasks(size_t index);
const char *fl_words_keys(size_t index);
/* "variant.window=": valid until the next call. */
const char *fl_words_assignments(size_t index);
const char *fl_words_export_formats(size_t index);

#endif
