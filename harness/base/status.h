/* Status and error: how every fallible function of frostline reports.
 *
 * A fallible function returns fl_status and takes `fl_error *error` last. On failure it has filled *error (status and a
 * message that names the place: file:line:column for user input; tensor, layer, head or run for the rest), has released
 * what it acquired and left its outputs untouched or destroyed. `error` may be NULL: the status alone is then reported.
 * The library never prints and never exits. Asserts are for our own bugs only.
 *
 * FL_ERROR_UNSUPPORTED: this build or rule cannot do what was asked. FL_ERROR_NUMERIC: it was done and diverged; that is
 * a result to be recorded, not a crash. */
#ifndef FL_BASE_STATUS_H
#define FL_BASE_STATUS_H

typedef enum fl_status {
    FL_OK = 0,
    FL_ERROR_ARGUMENT,    /* the caller or the user asked for something that makes no sense */
    FL_ERROR_IO,          /* the operating system refused: open, read, write, rename, map */
    FL_ERROR_FORMAT,      /* a file's content breaks its format's rules */
    FL_ERROR_MEMORY,      /* an allocation failed, or a stated budget would be passed */
    FL_ERROR_UNSUPPORTED, /* well-formed, but not understood or not implemented: named, never guessed */
    FL_ERROR_NUMERIC,     /* NaN or infinity where the run cannot go on */
    FL_ERROR_CANCELLED,   /* the user interrupted */
    FL_ERROR_DISK         /* the disk or its quota is full, or it fails: nothing can be written until that is mended */
} fl_status;

enum { FL_ERROR_MESSAGE_BYTES = 2048 };

typedef struct fl_error {
    fl_status status;
    char message[FL_ERROR_MESSAGE_BYTES]; /* one line or a few, UTF-8, no trailing newline; cut when too long */
} fl_error;

/* Fills *error (when not NULL) and returns `status`, so that `return fl_error_set(error, FL_ERROR_IO, "%s: ...", path);`
 * is one line. */
fl_status fl_error_set(fl_error *error, fl_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts context in front of the message ("context: message") and returns the status already there. */
fl_status fl_error_prepend(fl_error *error, fl_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Of a failed write: FL_ERROR_DISK for ENOSPC, EDQUOT and EIO, else FL_ERROR_IO. */
fl_status fl_status_of_write(int error_number);
/* What stands behind strerror's words: ". The disk is full", ". The quota of the disk is used up", or nothing. */
const char *fl_disk_explanation(int error_number);

/* "ok", "argument", "io", ... for logs and run files. */
const char *fl_status_name(fl_status status);

/* Returns from the enclosing function when `call` fails. */
#define FL_TRY(call)                                                                                                   \
    do {                                                                                                               \
        fl_status fl_try_status_ = (call);                                                                             \
        if (fl_try_status_ != FL_OK) return fl_try_status_;                                                            \
    } while (0)

/* For functions with one `done:` label: stores the status and jumps there when `call` fails. */
#define FL_TRY_DONE(status, call)                                                                                      \
    do {                                                                                                               \
        (status) = (call);                                                                                             \
        if ((status) != FL_OK) goto done;                                                                              \
    } while (0)

#endif
