/* Merge: several run files of one cell (other texts, other seeds) pooled into one, with every run still to be
 * seen in it.
 *
 * Refused, with all faults named: a file that is missing, unreadable, unfinished or of another schema
 * version; the same run twice; runs that differ in anything but name, text, seeds, mechanism file and the
 * tasks' offset and limit; runs that did not measure the same. Task results are not pooled: runs that have
 * some are refused. */
#ifndef FL_STORE_RUN_MERGE_H
#define FL_STORE_RUN_MERGE_H

#include <stddef.h>

#include "harness/base/status.h"

/* Writes `output` (a path) as a run file of status "merged": the pooled datasets (text_pool.h), /config with
 * the keys all runs agree on, and /merged with one row a run: run_id, cell, config, tokens and the single
 * figures. */
fl_status fl_merge_runs(const char *const *paths, size_t count, const char *output, fl_error *error);

#endif
