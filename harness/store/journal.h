/* Journal: what a run has finished so far, `<directory>/<run-id>.journal.jsonl`, beside the run file it
 * precedes.
 *
 * One JSON object a line, {"event": ..., <fields>}; a line is written whole and synced before append returns,
 * so after a crash at any moment all lines but perhaps the last are intact. A torn last line is dropped by
 * whoever opens or reads the file. Only one process may write a journal (the sweep's claim sees to that). NaN
 * and infinities, which JSON lacks, are the strings "nan", "inf" and "-inf". */
#ifndef FL_STORE_JOURNAL_H
#define FL_STORE_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"

typedef struct fl_journal fl_journal;

/* One field of a line: the first of text, numbers that is not NULL; else number. */
typedef struct fl_journal_field {
    const char *name;
    const char *text;
    const double *numbers; /* [count] */
    size_t count;
    double number;
} fl_journal_field;

/* Opens for appending, after what an interrupted run has left; the directory is made when it is not there. */
fl_status fl_journal_open(const char *directory, const char *run_id, fl_journal **out, fl_error *error);
fl_status fl_journal_append(fl_journal *journal, const char *event, const fl_journal_field *fields,
                            size_t field_count, fl_error *error);
/* Closes; `keep` false also deletes the file (the run file holds everything). NULL is fine. */
fl_status fl_journal_close(fl_journal *journal, bool keep, fl_error *error);

/* Reading. A file that is not there is an empty journal. */
typedef struct fl_journal_lines fl_journal_lines;
fl_status fl_journal_read(const char *directory, const char *run_id, fl_journal_lines **out, fl_error *error);
void fl_journal_lines_destroy(fl_journal_lines *lines);
size_t fl_journal_line_count(const fl_journal_lines *lines);
/* Whether the file ended in the middle of a line: the run was cut off while writing it. */
bool fl_journal_was_torn(const fl_journal_lines *lines);
const char *fl_journal_event(const fl_journal_lines *lines, size_t line);
/* Text of a field, NULL when it is absent or no text; owned by the lines. */
const char *fl_journal_text(const fl_journal_lines *lines, size_t line, const char *name);
/* *out is untouched when the field is absent or no number. */
bool fl_journal_number(const fl_journal_lines *lines, size_t line, const char *name, double *out);
/* *values = fl_memory block [*count]; FL_ERROR_FORMAT when the field is absent or no list of numbers. */
fl_status fl_journal_numbers(const fl_journal_lines *lines, size_t line, const char *name, double **values,
                             size_t *count, fl_error *error);

#endif
