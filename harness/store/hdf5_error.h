/* HDF5's error stack as an fl_error: what the run file's writer and reader share. */
#ifndef FL_STORE_HDF5_ERROR_H
#define FL_STORE_HDF5_ERROR_H

#include <hdf5.h>

#include "harness/base/status.h"

/* HDF5 prints its error stack by itself unless told not to. */
void fl_hdf5_be_silent(void);

/* "FILE: PATH: cannot VERB: <HDF5's innermost message>"; path may be NULL. Explains locks and full disks. */
fl_status fl_hdf5_error(fl_error *error, fl_status status, const char *file, const char *path,
                        const char *verb);

/* Closes an identifier of any kind; an invalid one is fine. */
void fl_hdf5_close(hid_t id);

/* A variable-length UTF-8 string type, or an invalid identifier. */
hid_t fl_hdf5_text_type(void);

#endif
