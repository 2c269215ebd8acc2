/* Provenance: where numbers come from. A run file carries all of it under /provenance, one text dataset a
 * member.
 *
 * Every member is an fl_memory block or NULL (then the file has no such dataset: unknown is not written as a
 * guess). */
#ifndef FL_STORE_PROVENANCE_H
#define FL_STORE_PROVENANCE_H

#include "harness/base/status.h"
#include "harness/store/run_file.h"

enum { FL_TIME_TEXT_BYTES = 24 };

typedef struct fl_provenance {
    /* the program */
    char *code_revision, *compiler, *build_configuration, *compiler_flags;
    /* the libraries, as they say themselves at run time */
    char *openblas, *hdf5, *libyaml, *cjson, *pcre2, *utf8proc, *xxhash;
    /* the machine */
    char *host, *processor, *operating_system, *vector_kernels, *environment;
    /* the run */
    char *command_line, *working_directory, *config_file, *started, *finished, *threads, *seeds;
    /* what it worked on: paths as given, hashes of the content */
    char *model, *model_configuration, *weights_hash_before, *weights_hash_after, *tokenizer_hash, *text, *text_hash, *text_bos, *train_text,
        *train_text_hash, *tasks_hash, *mechanism, *mechanism_hash;
} fl_provenance;

/* Fills what the process can see for itself: compiler and flags, libraries, machine, environment variables
 * that change results or speed (OpenBLAS, OpenMP, HDF5, Slurm, FROSTLINE_*). Other members become NULL. */
fl_status fl_provenance_collect(fl_provenance *out, fl_error *error);
void fl_provenance_release(fl_provenance *provenance);

/* Replaces a member by a copy of `text` (NULL: none). */
fl_status fl_provenance_set(char **member, const char *text, fl_error *error);

/* The time now, "2026-01-31T23:59:59Z". */
void fl_provenance_now(char out[FL_TIME_TEXT_BYTES]);

fl_status fl_provenance_write(fl_run_file *file, const fl_provenance *provenance, fl_error *error);

#endif
