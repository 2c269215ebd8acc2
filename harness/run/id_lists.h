/* Id lists: sequences as a JSON list of lists of token ids, what `text: {ids: ...}` reads. */
#ifndef FL_RUN_ID_LISTS_H
#define FL_RUN_ID_LISTS_H

#include <stdio.h>

#include "harness/base/status.h"
#include "harness/engine/sequences.h"

/* One list a line. Write errors are the stream's. */
void fl_id_lists_print(FILE *stream, const fl_sequences *sequences);
/* The same as a file that appears whole or not at all. */
fl_status fl_id_lists_write(const char *path, const fl_sequences *sequences, fl_error *error);

#endif
