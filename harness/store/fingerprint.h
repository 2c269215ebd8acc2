/* Fingerprint: which code made a run's numbers.
 *
 * The build hashes every source that numbers depend on (harness/setup/source_hashes.sh). The fingerprint of a run is made of
 * those that concern it: the file of its rule, attn_variants/<rule>.c, and all that are not the file of some rule; the files
 * of `none` and `softmax` concern every run, whose baselines they are. A rule without a file of its name is concerned by the
 * files of all rules. Content is hashed as it is: a comment counts. Compiler, flags and libraries are provenance, not
 * fingerprint.
 *
 * A run file holds /provenance/fingerprint and, so that it can be said what has changed, /provenance/sources. */
#ifndef FL_STORE_FINGERPRINT_H
#define FL_STORE_FINGERPRINT_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/hash.h"
#include "harness/base/status.h"
#include "harness/store/run_file.h"

/* A source of the program and the hash of its content. */
typedef struct fl_source {
    const char *path, *hash;
} fl_source;

/* Sources in the order of their paths. */
typedef struct fl_source_table {
    const fl_source *rows;
    size_t count;
} fl_source_table;

/* Those this program was built from. */
fl_source_table fl_fingerprint_sources(void);

/* Whether a source concerns a run of `rule`. */
bool fl_fingerprint_concerns(const fl_source_table *sources, const char *path, const char *rule);

/* Of a run of `rule`, by its sources. */
fl_status fl_fingerprint_of(const fl_source_table *sources, const char *rule, fl_hash *out, fl_error *error);

/* Both datasets. */
fl_status fl_fingerprint_write(fl_run_file *file, const fl_source_table *sources, const char *rule, fl_error *error);

/* Compares a run file with `sources`: *changed = NULL when it was made by this code, else an fl_memory block that names what
 * differs, "kda.c, mixer.h and 3 more", or says that the file tells nothing about the code that made it. */
fl_status fl_fingerprint_compare(fl_run_reader *reader, const fl_source_table *sources, const char *rule, char **changed,
                                 fl_error *error);

#endif
