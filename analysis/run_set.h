/* Run set: the run files of a sweep (or of several), with everything about them that is a single value.
 *
 * Tables, pictures and reports are made from this: identity, resolved configuration, metrics. Larger datasets
 * are read from the run files when they are needed. Runs are sorted by rule (`softmax`, `none`, then by
 * name), then by the values of the axes, numbers as numbers; the order, and so everything made from a set,
 * depends on the runs alone. */
#ifndef FL_ANALYSIS_RUN_SET_H
#define FL_ANALYSIS_RUN_SET_H

#include <stdbool.h>
#include <stddef.h>

#include "analysis/absent_runs.h"
#include "harness/base/status.h"
#include "harness/config/cell_label.h"
#include "harness/store/run_file.h"

/* A figure of a run. Names: `nmse`, `perplexity`, `linear_off/perplexity`, ... (fl_run_scalar_at lists them),
 * and of a task `tasks/<label>/<metric>`, `full/tasks/<label>/<metric>`, `linear_off/tasks/<label>/<metric>`.
 */
typedef struct fl_run_metric {
    char *name;
    double value; /* may be NaN or infinite: a diverged run */
} fl_run_metric;

typedef struct fl_run_entry {
    char *path;                                 /* of the file */
    char *run_id, *name, *cell, *status, *tier; /* root attributes; "" where the file has none */
    char *label;                                /* short, unique within the set: "kda, 8 + 56" (cell_label.h) */
    fl_cell_axes axes; /* of its sweep, from /sweep; in a set every run has a setting for every axis of the set's sweeps */
    bool diverged;
    bool older;    /* made by other code than this program's (store/fingerprint.h) ... */
    char *changed; /* ... which differs in these sources; NULL: not older */
    size_t warning_count;
    char **warnings; /* /warnings: what was measured and can hardly be meant */
    size_t key_count;
    char **keys,
        **values; /* leaves of /config: dotted keys, sorted, with their values as text (a list as [a, b]) */
    size_t metric_count;
    fl_run_metric *metrics;
    size_t task_count;
    char **tasks; /* labels of the tasks, in name order */
} fl_run_entry;

typedef struct fl_run_set {
    size_t count;
    fl_run_entry *runs;
    size_t left_out; /* runs behind those that a filter took out (run_filter.h): axes may be theirs */
    size_t axis_count;
    const char **axes; /* the swept keys in the order of the config ("train" where a mapping was swept as a whole), then
                          keys in which runs differ that are equal in those; files without /sweep: keys that differ */
    fl_absent_runs absent; /* cells that failed or are not done, and files of folders that cannot be read: in no table */
} fl_run_set;

/* Each path is a run file or a folder of them (*.h5, not its subfolders). A file named here that cannot be
 * read is an error, one found in a folder is listed in `absent`; a folder without any is FL_ERROR_ARGUMENT. The
 * same run id of the same experiment (from two folders) is kept once. A file without /config (what `forward` writes) has no keys. */
fl_status fl_run_set_load(const char *const *paths, size_t count, fl_run_set **out, fl_error *error);
/* NULL is fine. */
void fl_run_set_destroy(fl_run_set *set);

/* One run file, with `label` left NULL: that needs the others. On failure *out is empty. */
fl_status fl_run_entry_read(const char *path, fl_run_entry *out, fl_error *error);
/* Empty is fine. */
void fl_run_entry_release(fl_run_entry *run);

/* This run's value of a key, or NULL. Of a mapping that is an axis: its name, "none" when it is off. */
const char *fl_run_entry_value(const fl_run_entry *run, const char *key);
/* Whether any run was made by other code than this program's. */
bool fl_run_set_has_older(const fl_run_set *set);
/* How a key is called in tables: without a leading "variant.". */
const char *fl_run_set_short_key(const char *key);

/* NaN when the run has no such metric; fl_run_has_metric tells that from a value that is NaN. */
double fl_run_metric_value(const fl_run_entry *run, const char *name);
bool fl_run_has_metric(const fl_run_entry *run, const char *name);

/* What single values are called, where they lie and what they mean, from the table of measurements
 * (measurements.h): the run's own, then those kept of the same run with the linear part off. False past the end. */
typedef struct fl_run_scalar {
    char name[64], dataset[128];
    size_t rank; /* of the dataset: with axes, it is averaged */
    const char *units, *meaning;
} fl_run_scalar;
bool fl_run_scalar_at(size_t index, fl_run_scalar *out);

/* The rule is neither `softmax` nor `none`. */
bool fl_run_has_linear_part(const fl_run_entry *run);

/* The linear part is there, and perplexity is no better with it than without. */
bool fl_run_no_gain(const fl_run_entry *run);

#endif
