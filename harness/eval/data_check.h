/* Data check: is a folder what its manifest says? Manifests (datasets/manifests/NAME.json, or manifest.json
 * in the folder itself) list a public set's files with rows, bytes and SHA-256 where these are known; the
 * data themselves are never shipped. */
#ifndef FL_EVAL_DATA_CHECK_H
#define FL_EVAL_DATA_CHECK_H

#include <stddef.h>

#include "harness/base/status.h"

typedef enum fl_data_state {
    FL_DATA_SAME = 0,   /* bytes and SHA-256 agree */
    FL_DATA_UNVERIFIED, /* there, with the right number of rows; no SHA-256 is known */
    FL_DATA_MISSING,
    FL_DATA_ALTERED
} fl_data_state;

typedef struct fl_data_file {
    char *file; /* relative to the folder */
    fl_data_state state;
    char *finding; /* one sentence; NULL when there is nothing to say */
} fl_data_file;

typedef struct fl_data_report {
    char *name, *title, *licence, *source; /* of the set */
    size_t count, same, unverified, missing, altered;
    fl_data_file *files;
} fl_data_report;

/* manifest: path of the JSON file. FL_ERROR_FORMAT when it is not a manifest; files that differ are not an
 * error. */
fl_status fl_data_check(const char *manifest, const char *folder, fl_data_report *out, fl_error *error);
void fl_data_report_release(fl_data_report *report);

/* The manifests that speak of this folder: its own manifest.json, else every one of `manifests` (a folder) of
 * whose files at least one is there. *paths [*count]: fl_memory block of fl_memory strings, in name order.
 * None: FL_ERROR_ARGUMENT, naming the sets that are known. */
fl_status fl_data_manifests_for(const char *folder, const char *manifests, char ***paths, size_t *count,
                                fl_error *error);
/* Every manifest in the folder `manifests`, in name order; none is no error. */
fl_status fl_data_manifests_all(const char *manifests, char ***paths, size_t *count, fl_error *error);
void fl_data_manifests_release(char **paths, size_t count);

#endif
