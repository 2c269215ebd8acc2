/* Write rows: what a token writes to the state, one row a query head: the recurrence's streams without the query.
 *
 * Rows lie in one array a part, [H][rows][width]; width counts a token's micro steps. The same form holds the stream of a
 * call (rows = its steps), the tokens that wait inside the window and the tokens in the routed cache, so a write is delayed
 * by moving a row. A zero row is the null write. For a rule with own hooks the parts hold the rule's inputs instead. */
#ifndef FL_COMPUTE_WRITE_ROWS_H
#define FL_COMPUTE_WRITE_ROWS_H

#include <stddef.h>

#include "harness/compute/array.h"
#include "harness/compute/recurrence.h"
#include "harness/compute/rule_rows.h"

struct fl_compute; /* compute.h, which includes this */

enum fl_write_part {
    FL_WRITE_KEY = 0,
    FL_WRITE_VALUE,
    FL_WRITE_LOG_DECAY,
    FL_WRITE_ERASE_STRENGTH,
    FL_WRITE_ERASE_READ,
    FL_WRITE_ERASE_WRITE,
    FL_WRITE_WEIGHT,
    FL_WRITE_FACTORS, /* of a rule with own hooks, one part each */
    FL_WRITE_PARTS = FL_WRITE_FACTORS + FL_RULE_MAX_FACTORS
};

typedef struct fl_write_layout {
    size_t heads, micro_steps, key_dim, value_dim;
    size_t width[FL_WRITE_PARTS]; /* floats a row; 0 = the transition has no use for this part */
    size_t row_floats;            /* sum of the widths */
} fl_write_layout;

typedef struct fl_write_rows {
    fl_array part[FL_WRITE_PARTS]; /* NULL where the width is 0 */
    size_t rows;                 /* a head */
} fl_write_rows;

/* Floats that `rows` rows of every head take, and rows laid into such a block (which is not cleared). */
size_t fl_write_rows_floats(const fl_write_layout *layout, size_t rows);
fl_write_rows fl_write_rows_in(const fl_write_layout *layout, size_t rows, fl_array block);

fl_array fl_write_row(const fl_write_layout *layout, const fl_write_rows *rows, enum fl_write_part part, size_t head,
                    size_t row);

void fl_write_row_clear(const fl_write_layout *layout, const fl_write_rows *rows, size_t head, size_t row);
/* `count` consecutive rows of every head; the two must not overlap. */
void fl_write_rows_copy(struct fl_compute *compute, const fl_write_layout *layout, const fl_write_rows *to, size_t to_row,
                        const fl_write_rows *from, size_t from_row, size_t count);

/* Where `prepare` puts one token. The query is set by the caller. */
fl_rule_output fl_write_row_output(const fl_write_layout *layout, const fl_write_rows *rows, size_t head, size_t row);

/* The rows from `first` on as the recurrence's inputs; rows->rows steps of micro_steps each from one head to the next. */
fl_recurrence_inputs fl_write_rows_inputs(const fl_write_layout *layout, const fl_write_rows *rows, size_t first,
                                          fl_array query);

#endif
