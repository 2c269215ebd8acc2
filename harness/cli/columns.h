/* Columns: how wide text is on a terminal, where a Chinese character takes two columns and an accent none. */
#ifndef FL_CLI_COLUMNS_H
#define FL_CLI_COLUMNS_H

#include <stddef.h>
#include <stdio.h>

/* Columns of a UTF-8 text; a byte that is not part of valid UTF-8 counts one. */
size_t fl_columns_of(const char *text);
/* `text` in at most `columns` columns: whole, or cut with an ellipsis (one column) as its last sign. The buffer always ends in 0;
 * what does not fit it is cut too. */
void fl_columns_cut(const char *text, size_t columns, char *out, size_t bytes);
/* Text, then spaces up to `columns`. */
void fl_columns_print(FILE *stream, const char *text, size_t columns);

/* Columns of the terminal behind a stream; 0: it is no terminal, and lines may be as long as they are. */
size_t fl_columns_of_terminal(FILE *stream);

#endif
