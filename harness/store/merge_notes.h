/* Merge notes: what the runs that are pooled say of themselves beside their numbers: which code made them, and their warnings. */
#ifndef FL_STORE_MERGE_NOTES_H
#define FL_STORE_MERGE_NOTES_H

#include <stddef.h>

#include "harness/base/status.h"
#include "harness/store/run_file.h"

/* Writes /merged/fingerprint, one a run ("" where the file names no code); /provenance/fingerprint and sources when all runs
 * are of one code, else a warning; and /warnings, each text once. */
fl_status fl_merge_notes_write(const char *const *paths, size_t count, fl_run_file *file, fl_error *error);

#endif
