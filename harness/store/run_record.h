/* Run record: an evaluation in a run file (results/README.md), written and read back by the table of measurements. */
#ifndef FL_STORE_RUN_RECORD_H
#define FL_STORE_RUN_RECORD_H

#include <stdint.h>

#include "harness/base/status.h"
#include "harness/config/experiment.h"
#include "harness/measure/text_evaluation.h"
#include "harness/store/run_file.h"

/* Attribute `format` of every run file, and the version of the schema: raised when a dataset changes its
 * meaning. */
#define FL_RUN_FORMAT "frostline run"
enum { FL_RUN_VERSION = 1 };

typedef struct fl_run_header {
    const char *run_id;
    const char *name;   /* of the experiment */
    const char *cell;   /* the sweep's axes and their values here; "" without a sweep */
    const char *status; /* "complete", "diverged" (a result: some entries are not finite), "merged" */
    const char *tier;   /* "untrained", "calibrated", "trained", "adapted" */
} fl_run_header;

/* Root attributes. */
fl_status fl_run_record_write_header(fl_run_file *file, const fl_run_header *header, fl_error *error);

/* /config: the resolved YAML; /config_defaults: the keys that were not written by the user. */
fl_status fl_run_record_write_config(fl_run_file *file, const fl_resolved *resolved, fl_error *error);

/* /errors, /language_model, /diagnostics, /text, /memory and /timing of one evaluation. What was not asked
 * for is not there. */
fl_status fl_run_record_write_text_result(fl_run_file *file, const fl_text_result *result, fl_error *error);

/* The same run without a part: of each measurement what is kept beside another run's, under `root` ("/baseline/linear_off"). */
fl_status fl_run_record_write_comparison(fl_run_file *file, const char *root, const fl_text_result *result,
                                         fl_error *error);

/* Reads the whole result back: what is not in the file is NULL (single values NaN); head_dim is 0. The shapes of all
 * datasets must fit together. */
fl_status fl_run_record_read_text_result(fl_run_reader *reader, fl_text_result *out, fl_error *error);

/* What a file keeps of the same run without a part, with what belongs to the frozen model and the text from the file's own
 * result: enough to pool it. */
fl_status fl_run_record_read_comparison(fl_run_reader *reader, const char *root, fl_text_result *out, fl_error *error);

/* Of a result that lies under `root` ("" for the file's own, "/baseline/linear_off") what it has by sequence; all else in *out
 * is left as it is. Sizes that *out holds already must be the file's. */
fl_status fl_run_record_read_sequences(fl_run_reader *reader, const char *root, fl_text_result *out, fl_error *error);

/* One figure more under /timing and /memory. */
fl_status fl_run_record_write_seconds(fl_run_file *file, const char *name, double seconds,
                                      const char *description, fl_error *error);
fl_status fl_run_record_write_bytes(fl_run_file *file, const char *name, int64_t bytes,
                                    const char *description, fl_error *error);

#endif
