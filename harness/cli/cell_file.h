/* Cell file: the run file of one cell, from its results. */
#ifndef FL_CLI_CELL_FILE_H
#define FL_CLI_CELL_FILE_H

#include "harness/base/status.h"
#include "harness/cli/cell_list.h"

typedef struct fl_cell_file {
    const fl_cell_list *list;
    const fl_cell_work *cell;
    const fl_cell_group *group;
    fl_hash weights_after;
    const fl_text_result *result, *linear_off; /* linear_off NULL: there is none */
    const char *started;                       /* of its batch, as fl_provenance_now writes it */
    double frozen_seconds;                     /* of the frozen passes that `sharing` cells shared */
    size_t sharing;
} fl_cell_file;

/* Writes <out>/<run id>.h5, whole or not at all. */
fl_status fl_cell_file_write(const fl_cell_file *content, fl_error *error);

#endif
