/* NPZ: arrays for numpy.load, one .npy member an array in an uncompressed ZIP archive.
 *
 * Written here because it is two small headers, and so that the bytes depend on nothing but the data: members
 * carry no time of day. The classic ZIP form is used, which holds 4 GiB and 65535 members; more is
 * FL_ERROR_UNSUPPORTED. */
#ifndef FL_ANALYSIS_NPZ_H
#define FL_ANALYSIS_NPZ_H

#include <stddef.h>

#include "harness/base/status.h"

typedef struct fl_npz fl_npz;

fl_status fl_npz_open(const char *path, fl_npz **out, fl_error *error);
/* Names are what numpy will show; they must differ. C order, little-endian float64. */
fl_status fl_npz_add_doubles(fl_npz *npz, const char *name, size_t rank, const size_t *shape,
                             const double *data, fl_error *error);
/* Unicode text [count]; NULL is "". */
fl_status fl_npz_add_texts(fl_npz *npz, const char *name, size_t count, const char *const *texts,
                           fl_error *error);
/* The file appears whole or not at all; *npz is gone whatever happens. */
fl_status fl_npz_close(fl_npz *npz, fl_error *error);
void fl_npz_discard(fl_npz *npz);

#endif
