#include "harness/model/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/base/memory.h"

/* Both formats are little-endian and are read in place. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "weights are mapped: a little-endian machine is needed");

static fl_status map_descriptor(const char *path, int descriptor, fl_mapped_file *file, fl_error *error) {
    struct stat status;
    if (fstat(descriptor, &status) != 0) {
        return fl_error_set(error, FL_ERROR_IO, "%s: cannot examine: %s", path, strerror(errno));
    }
    if (S_ISDIR(status.st_mode)) return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: is a directory", path);
    if (!S_ISREG(status.st_mode)) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: is not a regular file", path);
    }
    if (status.st_size == 0) return fl_error_set(error, FL_ERROR_FORMAT, "%s: the file is empty", path);
    if ((uintmax_t)status.st_size > SIZE_MAX) {
        return fl_error_set(error, FL_ERROR_MEMORY, "%s: too large to map", path);
    }
    void *data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED) {
        return fl_error_set(error, FL_ERROR_IO, "%s: cannot map: %s", path, strerror(errno));
    }
    file->data = data;
    file->size = (size_t)status.st_size;
    return FL_OK;
}

fl_status fl_mapped_file_open(const char *path, fl_mapped_file *out, fl_error *error) {
    memset(out, 0, sizeof *out);
    /* O_NONBLOCK: a named pipe must be refused, not waited for. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        return fl_error_set(error, FL_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    }
    fl_mapped_file file = {.descriptor = descriptor};
    fl_status status = map_descriptor(path, descriptor, &file, error);
    if (status == FL_OK) {
        status = fl_memory_copy_string(&file.path, path, error);
        if (status != FL_OK) munmap((void *)(uintptr_t)file.data, file.size);
    }
    if (status != FL_OK) {
        close(descriptor);
        return status;
    }
    *out = file;
    return FL_OK;
}

void fl_mapped_file_close(fl_mapped_file *file) {
    if (file->data == NULL) return;
    munmap((void *)(uintptr_t)file->data, file->size);
    close(file->descriptor);
    fl_memory_free(file->path);
    memset(file, 0, sizeof *file);
}

fl_status fl_mapped_file_check(const fl_mapped_file *file, fl_error *error) {
    struct stat status;
    if (fstat(file->descriptor, &status) != 0) {
        return fl_error_set(error, FL_ERROR_IO, "%s: cannot examine: %s", file->path, strerror(errno));
    }
    if ((uintmax_t)status.st_size != file->size) {
        return fl_error_set(error, FL_ERROR_IO, "%s: size changed from %zu to %lld bytes while it was in use",
                            file->path, file->size, (long long)status.st_size);
    }
    return FL_OK;
}
