#include "harness/store/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/base/memory.h"

static fl_status make_one(const char *path, fl_error *error) {
    struct stat status;
    if (mkdir(path, 0777) == 0) return FL_OK;
    int cause = errno;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) return FL_OK;
    return fl_error_set(error, fl_status_of_write(cause), "%s: cannot make the directory: %s", path,
                        strerror(cause));
}

fl_status fl_folder_create(const char *path, fl_error *error) {
    char *part = NULL;
    FL_TRY(fl_memory_copy_string(&part, path, error));
    fl_status status = FL_OK;
    for (char *slash = strchr(part + 1, '/'); slash != NULL && status == FL_OK;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        status = make_one(part, error);
        *slash = '/';
    }
    if (status == FL_OK) status = make_one(part, error);
    fl_memory_free(part);
    return status;
}

fl_status fl_folder_check_writable(const char *path, fl_error *error) {
    char *name = NULL;
    FL_TRY(fl_folder_format(&name, error, "%s/.writable-XXXXXX", path));
    int descriptor = mkstemp(name), cause = errno;
    bool written = descriptor >= 0 && write(descriptor, "", 1) == 1;
    if (descriptor >= 0 && !written) cause = errno;
    /* Some file systems say only now that there is no room. */
    if (descriptor >= 0 && close(descriptor) != 0 && written) {
        cause = errno;
        written = false;
    }
    if (descriptor >= 0) unlink(name);
    fl_memory_free(name);
    if (written) return FL_OK;
    return fl_error_set(error, fl_status_of_write(cause), "%s: cannot be written to: %s%s", path,
                        strerror(cause), fl_disk_explanation(cause));
}

fl_status fl_folder_of(const char *path, char **out, fl_error *error) {
    const char *slash = strrchr(path, '/');
    FL_TRY(fl_memory_copy_string(out, slash == NULL ? "." : path, error));
    if (slash != NULL) (*out)[slash == path ? 1 : slash - path] = '\0';
    return FL_OK;
}

fl_status fl_folder_format(char **out, fl_error *error, const char *format, ...) {
    *out = NULL;
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (bytes < 0) return fl_error_set(error, FL_ERROR_ARGUMENT, "text cannot be formatted");
    FL_TRY(FL_ALLOCATE(out, (size_t)bytes + 1, error));
    va_start(arguments, format);
    vsnprintf(*out, (size_t)bytes + 1, format, arguments);
    va_end(arguments);
    return FL_OK;
}

fl_status fl_folder_sync(const char *path, fl_error *error) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* what we wrote */
    if (descriptor < 0) return fl_error_set(error, FL_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    int failed =
        fsync(descriptor) != 0 && errno != EINVAL; /* EINVAL: a file system without sync for directories */
    int cause = errno;
    close(descriptor);
    if (failed)
        return fl_error_set(error, fl_status_of_write(cause), "%s: cannot sync: %s%s", path, strerror(cause),
                            fl_disk_explanation(cause));
    return FL_OK;
}

fl_status fl_folder_publish(const char *temporary, const char *final, fl_error *error) {
    FL_TRY(fl_folder_sync(temporary, error));
    if (rename(temporary, final) != 0) {
        return fl_error_set(error, fl_status_of_write(errno), "%s: cannot rename to %s: %s", temporary, final,
                            strerror(errno));
    }
    char *directory = NULL;
    FL_TRY(fl_folder_of(final, &directory, error));
    fl_status status = fl_folder_sync(directory, error);
    fl_memory_free(directory);
    return status;
}
