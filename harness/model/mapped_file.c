#include "harness/model/mapped_file.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/base/input_file.h"
#include "harness/base/memory.h"

/* Both formats are little-endian and are read in place. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "weights are mapped: a little-endian machine is needed");

static fl_status map_descriptor(const char *path, fl_mapped_file *file, fl_error *error) {
    if (file->size == 0) return fl_error_set(error, FL_ERROR_FORMAT, "%s: the file is empty", path);
    FL_TRY(fl_memory_copy_string(&file->path, path, error));
    void *data = mmap(NULL, file->size, PROT_READ, MAP_PRIVATE, file->descriptor, 0);
    if (data == MAP_FAILED) {
        fl_memory_free(file->path);
        return fl_error_set(error, FL_ERROR_IO, "%s: cannot map: %s", path, strerror(errno));
    }
    file->data = data;
    return FL_OK;
}

fl_status fl_mapped_file_open(const char *path, fl_mapped_file *out, fl_error *error) {
    memset(out, 0, sizeof *out);
    fl_mapped_file file = {0};
    FL_TRY(fl_input_open(path, &file.descriptor, &file.size, error));
    fl_status status = map_descriptor(path, &file, error);
    if (status != FL_OK) {
        close(file.descriptor);
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
