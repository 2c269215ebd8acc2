/* What the readers share: walking the rows of a JSON file into a list of documents, and answers. Private to
 * the readers. */
#ifndef FL_EVAL_READER_ROWS_H
#define FL_EVAL_READER_ROWS_H

#include "harness/eval/task_data.h"
#include "harness/model/json_rows.h"
#include "harness/eval/readers.h"

/* Where a row goes. */
typedef struct fl_reader_row {
    const fl_json_rows *rows;
    size_t row;
    fl_task_data *set;
    fl_task_document *document; /* index, subject, file and line are filled in */
} fl_reader_row;

typedef fl_status (*fl_row_reader)(const fl_reader_row *row, fl_error *error);

/* One subject "" with every row of the file (and of shots_path, into the pool). */
fl_status fl_reader_read_rows(const fl_reader_request *request, fl_task_data *set, fl_row_reader read,
                              fl_error *error);
/* The same grouped by the rows' member "subject" (in name order; absent: ""). */
fl_status fl_reader_read_subject_rows(const fl_reader_request *request, fl_task_data *set, fl_row_reader read,
                                      fl_error *error);

/* Piece or choice from a string member. */
fl_status fl_reader_piece(const fl_reader_row *row, size_t piece, const char *member, fl_error *error);
fl_status fl_reader_choice(const fl_reader_row *row, const char *member, fl_error *error);
/* All strings of a list member become choices; at least two. */
fl_status fl_reader_choices(const fl_reader_row *row, const char *member, fl_error *error);

/* gold = the answer: an index number, a digit string (minus `base`) or a letter; otherwise a note. */
fl_status fl_reader_gold(const fl_reader_row *row, const char *member, int base, fl_error *error);
/* gold = index when it is one of the choices; otherwise a note naming the place. */
fl_status fl_reader_set_gold(fl_task_data *set, fl_task_document *document, long gold, const char *answer,
                             fl_error *error);

/* A note when the file began with a byte-order mark. */
fl_status fl_reader_note_mark(fl_task_data *set, const char *path, bool mark, fl_error *error);

#endif
