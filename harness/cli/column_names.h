/* Column names: the value of --columns, "a,b,c", apart. */
#ifndef FL_CLI_COLUMN_NAMES_H
#define FL_CLI_COLUMN_NAMES_H

#include <stddef.h>

#include "harness/base/status.h"

typedef struct fl_column_names {
    size_t count;
    const char **names; /* [count] into text */
    char *text;
} fl_column_names;

/* NULL: none. Blanks around a name are dropped; an empty name is FL_ERROR_ARGUMENT. */
fl_status fl_column_names_split(const char *list, fl_column_names *out, fl_error *error);
void fl_column_names_release(fl_column_names *names);

#endif
