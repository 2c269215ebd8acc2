/* Backend: how a shared object offers an implementation of the operations (compute.h) to the program.
 *
 * The object has one symbol, fl_backend_entry, and no undefined ones of the program: what it needs of the program comes in
 * fl_backend_services. Both sides are compiled from the same headers, which `hash` proves; so call structures need no version. */
#ifndef FL_COMPUTE_BACKEND_H
#define FL_COMPUTE_BACKEND_H

#include "harness/compute/compute.h"

enum { FL_BACKEND_ABI = 1 };

/* What the program does for a backend. */
typedef struct fl_backend_services {
    fl_status (*set_error)(fl_error *, fl_status, const char *format, ...);
    /* out [count][columns] = rows of a tensor of any stored type, in float32 (tensor.h). */
    void (*widen_rows)(const fl_tensor *, size_t first, size_t count, float *out);
    /* Runs operations that the backend does not have, on copies in the host's memory; owned by the caller, outlives the instance. */
    fl_compute *host;
} fl_backend_services;

typedef struct fl_backend_options {
    int device;           /* which one, from 0 */
    size_t memory_bytes;  /* at most so much of the device's memory; 0 = all but a GiB */
    bool settle_each;     /* wait after each operation, so that an error names it */
} fl_backend_options;

/* Facts for provenance. Texts belong to the instance. */
typedef struct fl_backend_facts {
    const char *device, *driver, *runtime, *products; /* "NVIDIA H200", "13.0", "13.0", "cuBLASLt 13.0.2" */
    const char *algorithms;                           /* a line per shape of a product */
    const char *on_host;                              /* operations that ran on the host, by name; "" when none has */
} fl_backend_facts;

typedef struct fl_backend {
    const char *name; /* "cuda" */
    const char *hash; /* of the headers above, FL_BACKEND_HASH */
    fl_status (*create)(const fl_backend_options *, const fl_backend_services *, fl_compute **out, fl_error *);
    void (*facts)(fl_compute *, fl_backend_facts *out);
} fl_backend;

/* FL_ERROR_UNSUPPORTED when the object knows another abi. */
typedef fl_status (*fl_backend_entry_function)(unsigned abi, const fl_backend **out);

#endif
