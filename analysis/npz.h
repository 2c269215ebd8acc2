/* NPZ: NumPy's archive of arrays, stored uncompressed and without time stamps. */
#ifndef FL_ANALYSIS_NPZ_H
#define FL_ANALYSIS_NPZ_H

#include <stddef.h>
#include <stdio.h>

#include "harness/base/status.h"

typedef struct fl_npz_array {
    const char *name; /* without ".npy" */
    size_t rank;      /* 0 to 4 */
    size_t shape[4];
    const double *data;
} fl_npz_array;

/* Archives of up to 65535 arrays and 4 GiB; more is FL_ERROR_UNSUPPORTED. Write errors show in the stream. */
fl_status fl_npz_write(FILE *stream, const fl_npz_array *arrays, size_t count, fl_error *error);

#endif
