/* Run set: the run files of a sweep (or of several), with their configurations, ready to be compared.
 *
 * Runs are sorted by the values of the axes: the configuration keys in which at least two of them differ.
 * Numbers sort as numbers. The order, and so everything made from a set, depends on the runs alone. */
#ifndef FL_ANALYSIS_RUN_SET_H
#define FL_ANALYSIS_RUN_SET_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"
#include "harness/store/run_file.h"

typedef struct fl_run_entry {
    char *path; /* of the file */
    char *run_id, *name, *status, *tier;
    char *label; /* the axes and this run's values, "rule=kda window=56"; a single run: its rule */
    size_t key_count;
    char **keys, **values; /* dotted keys of /config, sorted, with canonical value texts */
} fl_run_entry;

typedef struct fl_run_set {
    size_t count;
    fl_run_entry *runs;
    size_t axis_count;
    char **axes; /* dotted keys, sorted; without `name` */
} fl_run_set;

/* Each path is a run file or a folder of them (*.h5, not its subfolders). A file that is no run file is an
 * error; a folder without any is too. The same run id twice (from two folders) is kept once. */
fl_status fl_run_set_load(const char *const *paths, size_t count, fl_run_set **out, fl_error *error);
void fl_run_set_destroy(fl_run_set *set);

/* This run's value of a key, or NULL. */
const char *fl_run_entry_value(const fl_run_entry *run, const char *key);
/* How a key is called in tables: without a leading "variant.". */
const char *fl_run_set_short_key(const char *key);

/* Mean of a dataset's finite and non-finite values alike; NaN when it is not there. */
double fl_run_mean(fl_run_reader *reader, const char *path);

#endif
