/* Run file: one HDF5 file per cell, `<directory>/<run-id>.h5`.
 *
 * Built in memory, then written to a temporary name in the same directory, synced and renamed: a file with the
 * final name is complete, and a full or failing disk is an error of the commit, not HDF5's to handle. Every dataset carries units and a description, is chunked, shuffled, deflated and checksummed
 * (single values excepted). Strings are UTF-8: of fixed width in datasets, variable in
 * attributes. h5py, h5dump and pandas read it without help. The
 * schema is described in results/README.md. */
#ifndef FL_STORE_RUN_FILE_H
#define FL_STORE_RUN_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"

enum { FL_RUN_FILE_ATTRIBUTE_BYTES = 32768 };

typedef struct fl_run_file fl_run_file;

/* HDF5 is not thread-safe: one thread at a time may be in any function of this header. HDF5's own printing of
 * errors is switched off for the process; its most telling message becomes part of the fl_error.
 *
 * The directory is made when it is not there. */
fl_status fl_run_file_create(const char *directory, const char *run_id, fl_run_file **out, fl_error *error);
/* Any HDF5 path with the same conventions (what `forward` writes). */
fl_status fl_run_file_create_at(const char *path, fl_run_file **out, fl_error *error);

/* `path` is absolute inside the file; groups on the way are made. Rank 0 to 4. A NULL `data` writes nothing.
 * A path that is there already is FL_ERROR_ARGUMENT. NaN and infinity are values like any other. */
fl_status fl_run_file_write_doubles(fl_run_file *file, const char *path, size_t rank, const size_t *shape,
                                    const double *data, const char *units, const char *description,
                                    fl_error *error);
fl_status fl_run_file_write_floats(fl_run_file *file, const char *path, size_t rank, const size_t *shape,
                                   const float *data, const char *units, const char *description,
                                   fl_error *error);
fl_status fl_run_file_write_integers(fl_run_file *file, const char *path, size_t rank, const size_t *shape,
                                     const int64_t *data, const char *units, const char *description,
                                     fl_error *error);
fl_status fl_run_file_write_text(fl_run_file *file, const char *path, const char *text,
                                 const char *description, fl_error *error);
fl_status fl_run_file_write_texts(fl_run_file *file, const char *path, size_t count, const char *const *texts,
                                  const char *description, fl_error *error);
/* Attributes of the object at `path` ("/" for the root; the group is made when absent); an attribute that is
 * there is replaced. Text is at most FL_RUN_FILE_ATTRIBUTE_BYTES long: more belongs into a dataset. Bytes
 * that are not UTF-8 become U+FFFD. */
fl_status fl_run_file_set_text(fl_run_file *file, const char *path, const char *name, const char *value,
                               fl_error *error);
fl_status fl_run_file_set_number(fl_run_file *file, const char *path, const char *name, double value,
                                 fl_error *error);
fl_status fl_run_file_set_integer(fl_run_file *file, const char *path, const char *name, int64_t value,
                                  fl_error *error);

/* Writes, syncs and renames; *file is gone whatever happens. */
fl_status fl_run_file_commit(fl_run_file *file, fl_error *error);
/* Closes and deletes the temporary file. NULL is fine. */
void fl_run_file_discard(fl_run_file *file);

/* Reading back (plots, exports, inspect, resume). */
typedef struct fl_run_reader fl_run_reader;
/* FORMAT also for a file on which HDF5 itself crashes: a child process reads it first, once a process and version of the file. */
fl_status fl_run_reader_open(const char *path, fl_run_reader **out, fl_error *error);
void fl_run_reader_close(fl_run_reader *reader);
/* *data = fl_memory block of float64 whatever the stored number type, of `rank` axes (0: a single value). shape [rank] holds the
 * lengths that the caller relies on, 0 for one that it learns here, which is then at least 1. FL_ERROR_ARGUMENT if absent;
 * another rank, length or type is FL_ERROR_FORMAT and names file, dataset and what was expected. */
fl_status fl_run_reader_array(fl_run_reader *reader, const char *path, size_t rank, size_t *shape, double **data,
                              fl_error *error);
fl_status fl_run_reader_number(fl_run_reader *reader, const char *path, double *value, fl_error *error);
/* For those who show whatever is there: at most 4 axes of any length, 0 too; shape has room for 4. */
fl_status fl_run_reader_doubles(fl_run_reader *reader, const char *path, double **data, size_t *rank,
                                size_t shape[4], fl_error *error);
/* FL_ERROR_FORMAT "FILE: PATH: what": for those who find a fault in what they have read. */
fl_status fl_run_reader_refuse(const fl_run_reader *reader, const char *path, const char *what, fl_error *error);
/* *text = fl_memory block: a string dataset's or attribute's value. */
fl_status fl_run_reader_text(fl_run_reader *reader, const char *path, char **text, fl_error *error);
fl_status fl_run_reader_attribute_text(fl_run_reader *reader, const char *path, const char *name, char **text,
                                       fl_error *error);
fl_status fl_run_reader_attribute_number(fl_run_reader *reader, const char *path, const char *name,
                                         double *value, fl_error *error);
/* *texts = fl_memory block of `count` fl_memory blocks: a string dataset of rank 0 or 1. */
fl_status fl_run_reader_texts(fl_run_reader *reader, const char *path, char ***texts, size_t *count,
                              fl_error *error);
/* The same for a column of `count` texts: another number of them is FL_ERROR_FORMAT. */
fl_status fl_run_reader_column(fl_run_reader *reader, const char *path, size_t count, char ***texts,
                               fl_error *error);
/* *names = fl_memory block of `count` fl_memory blocks, in name order: the attributes of the object at `path`. */
fl_status fl_run_reader_attribute_names(fl_run_reader *reader, const char *path, char ***names, size_t *count,
                                        fl_error *error);
/* Whether a group or dataset is there; whether it has this attribute. */
int fl_run_reader_has(fl_run_reader *reader, const char *path);
int fl_run_reader_has_attribute(fl_run_reader *reader, const char *path, const char *name);
/* Calls `visit` for every dataset path in name order; stops at the first status that is not FL_OK and returns
 * it. */
fl_status fl_run_reader_visit(fl_run_reader *reader,
                              fl_status (*visit)(void *context, const char *path, size_t rank,
                                                 const size_t *shape, fl_error *error),
                              void *context, fl_error *error);

#endif
