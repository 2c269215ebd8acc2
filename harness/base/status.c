#include "harness/base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

fl_status fl_error_set(fl_error *error, fl_status status, const char *format, ...) {
    if (error == NULL) return status;
    error->status = status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return status;
}

fl_status fl_error_prepend(fl_error *error, fl_status status, const char *format, ...) {
    if (error == NULL) return status;
    char context[FL_ERROR_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(context, sizeof context, format, arguments);
    va_end(arguments);
    size_t used = strlen(context);
    if (used + 2 < sizeof context) {
        snprintf(context + used, sizeof context - used, ": %.*s", (int)(sizeof context - used - 3),
                 error->message);
    }
    memcpy(error->message, context, sizeof error->message);
    error->status = status;
    return status;
}

fl_status fl_status_of_write(int error_number) {
    bool disk = error_number == ENOSPC || error_number == EDQUOT || error_number == EIO;
    return disk ? FL_ERROR_DISK : FL_ERROR_IO;
}

const char *fl_disk_explanation(int error_number) {
    if (error_number == ENOSPC) return ". The disk is full";
    return error_number == EDQUOT ? ". The quota of the disk is used up" : "";
}

const char *fl_status_name(fl_status status) {
    switch (status) {
    case FL_OK:
        return "ok";
    case FL_ERROR_ARGUMENT:
        return "argument";
    case FL_ERROR_IO:
        return "io";
    case FL_ERROR_FORMAT:
        return "format";
    case FL_ERROR_MEMORY:
        return "memory";
    case FL_ERROR_UNSUPPORTED:
        return "unsupported";
    case FL_ERROR_NUMERIC:
        return "numeric";
    case FL_ERROR_CANCELLED:
        return "cancelled";
    case FL_ERROR_DISK:
        return "disk";
    }
    return "unknown";
}
