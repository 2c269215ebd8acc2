/* Loading a backend: the shared objects that offer the operations on a device (backend.h), opened when a configuration asks for
 * one. A program without them works as ever. */
#ifndef FL_COMPUTE_LOAD_BACKEND_H
#define FL_COMPUTE_LOAD_BACKEND_H

#include "harness/compute/backend.h"

/* The object libfrostline_NAME.so: the file that FROSTLINE_NAME names (FROSTLINE_CUDA), else beside the executable, else where the
 * system's loader looks. FL_ERROR_UNSUPPORTED, in one sentence: not found, cannot be opened, or of another build. It stays open
 * until the program ends. */
fl_status fl_backend_load(const char *name, const fl_backend **out, fl_error *error);

/* The same for a file given by its path. */
fl_status fl_backend_load_file(const char *path, const fl_backend **out, fl_error *error);

/* An instance. `host` runs what the backend does not have, and outlives it. */
fl_status fl_backend_create(const fl_backend *backend, const fl_backend_options *options, fl_compute *host, fl_compute **out,
                            fl_error *error);

#endif
