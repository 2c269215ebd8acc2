#include "harness/base/scratch_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/base/memory.h"

typedef struct {
    void *address;
    size_t bytes;
} fl_scratch_block;

struct fl_scratch_file {
    char *folder;
    int descriptor;
    size_t bytes, count, room;
    fl_scratch_block *blocks;
};

static fl_status open_nameless(fl_scratch_file *file, fl_error *error) {
    static const char name[] = "/frostline-XXXXXX";
    char *path = NULL;
    size_t bytes = strlen(file->folder) + sizeof name;
    FL_TRY(FL_ALLOCATE(&path, bytes, error));
    snprintf(path, bytes, "%s%s", file->folder, name);
    fl_status status = FL_OK;
    file->descriptor = mkstemp(path);
    if (file->descriptor < 0) {
        status = fl_error_set(error, fl_status_of_write(errno), "%s: no scratch file can be made here: %s",
                              file->folder, strerror(errno));
    } else {
        unlink(path);
    }
    fl_memory_free(path);
    return status;
}

fl_status fl_scratch_file_create(const char *folder, fl_scratch_file **out, fl_error *error) {
    *out = NULL;
    fl_scratch_file *file = NULL;
    if (folder == NULL) folder = getenv("TMPDIR");
    if (folder == NULL || folder[0] == '\0') folder = "/tmp";
    FL_TRY(FL_ALLOCATE(&file, 1, error));
    file->descriptor = -1;
    fl_status status = fl_memory_copy_string(&file->folder, folder, error);
    if (status == FL_OK) status = open_nameless(file, error);
    if (status != FL_OK) {
        fl_scratch_file_destroy(file);
        return status;
    }
    *out = file;
    return FL_OK;
}

static fl_status refuse(const fl_scratch_file *file, size_t bytes, int code, fl_error *error) {
    return fl_error_set(error, fl_status_of_write(code),
                        "%s: no room for %zu more bytes of a scratch file of %zu: %s", file->folder, bytes,
                        file->bytes, strerror(code));
}

fl_status fl_scratch_file_add(fl_scratch_file *file, size_t bytes, void **block, fl_error *error) {
    *block = NULL;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes == 0) bytes = 1;
    if (bytes > (size_t)INT64_MAX / 2 - page - file->bytes) return refuse(file, bytes, EFBIG, error);
    bytes = (bytes + page - 1) / page * page;
    if (file->count == file->room) {
        size_t room = file->room == 0 ? 16 : 2 * file->room;
        FL_TRY(FL_RESIZE(&file->blocks, file->room, room, error));
        file->room = room;
    }
    int code = posix_fallocate(file->descriptor, (off_t)file->bytes, (off_t)bytes);
    if (code != 0) return refuse(file, bytes, code, error);
    void *address =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->descriptor, (off_t)file->bytes);
    if (address == MAP_FAILED) return refuse(file, bytes, errno, error);
    file->blocks[file->count++] = (fl_scratch_block){address, bytes};
    file->bytes += bytes;
    *block = address;
    return FL_OK;
}

size_t fl_scratch_file_bytes(const fl_scratch_file *file) {
    return file->bytes;
}

void fl_scratch_file_destroy(fl_scratch_file *file) {
    if (file == NULL) return;
    for (size_t i = 0; i < file->count; i++) munmap(file->blocks[i].address, file->blocks[i].bytes);
    if (file->descriptor >= 0) close(file->descriptor);
    fl_memory_free(file->blocks);
    fl_memory_free(file->folder);
    fl_memory_free(file);
}
