/* Axis record: the axes of the sweep that a run file's cell lies on, under /sweep; results/README.md has the schema. */
#ifndef FL_STORE_AXIS_RECORD_H
#define FL_STORE_AXIS_RECORD_H

#include "harness/base/status.h"
#include "harness/config/cell_label.h"
#include "harness/store/run_file.h"

/* Nothing is written for a cell without axes. */
fl_status fl_axis_record_write(fl_run_file *file, const fl_cell_axes *axes, fl_error *error);
/* Empty when the file has no /sweep. */
fl_status fl_axis_record_read(fl_run_reader *reader, fl_cell_axes *out, fl_error *error);

#endif
