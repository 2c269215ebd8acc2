#include "harness/base/input_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/base/data_path.h"
#include "harness/base/memory.h"

enum { FIRST_ROOM = 1 << 16, KIND_BYTES = 256 };

static const char lfs_pointer[] = "version https://git-lfs.github.com/spec/v1";

static bool begins_with(const void *start, size_t bytes, const void *wanted, size_t wanted_bytes) {
    return bytes >= wanted_bytes && memcmp(start, wanted, wanted_bytes) == 0;
}

static fl_status check_kind(const char *path, const struct stat *status, fl_error *error) {
    if (S_ISREG(status->st_mode)) return FL_OK;
    if (S_ISDIR(status->st_mode)) return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: is a directory", path);
    return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: is not a regular file", path);
}

static fl_status refuse_pointer(int descriptor, const char *path, fl_error *error) {
    char start[sizeof lfs_pointer - 1];
    ssize_t got = pread(descriptor, start, sizeof start, 0);
    if (got < 0 || !begins_with(start, (size_t)got, lfs_pointer, sizeof start)) return FL_OK;
    return fl_error_set(error, FL_ERROR_FORMAT,
                        "%s: is a Git LFS pointer, not the file itself: fetch it with `git lfs pull`, or "
                        "download it anew",
                        path);
}

fl_status fl_input_open(const char *path, int *descriptor, size_t *size, fl_error *error) {
    /* O_NONBLOCK: a named pipe must be refused, not waited for. */
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (opened < 0) {
        return fl_data_path_error(path, "open", errno, error);
    }
    struct stat status;
    fl_status result = FL_OK;
    if (fstat(opened, &status) != 0)
        result = fl_error_set(error, FL_ERROR_IO, "%s: cannot examine: %s", path, strerror(errno));
    else if ((result = check_kind(path, &status, error)) == FL_OK)
        result = refuse_pointer(opened, path, error);
    if (result == FL_OK && (uintmax_t)status.st_size > SIZE_MAX)
        result = fl_error_set(error, FL_ERROR_MEMORY, "%s: too large", path);
    if (result != FL_OK) {
        close(opened);
        return result;
    }
    *descriptor = opened;
    *size = (size_t)status.st_size;
    return FL_OK;
}

fl_status fl_input_next(int descriptor, const char *path, void *buffer, size_t bytes, size_t *got,
                        fl_error *error) {
    *got = 0;
    while (*got < bytes) {
        ssize_t part = read(descriptor, (char *)buffer + *got, bytes - *got);
        if (part < 0 && errno == EINTR) continue;
        if (part < 0) return fl_error_set(error, FL_ERROR_IO, "%s: cannot read: %s", path, strerror(errno));
        if (part == 0) break;
        *got += (size_t)part;
    }
    return FL_OK;
}

fl_status fl_input_start(const char *path, void *buffer, size_t bytes, size_t *got, fl_error *error) {
    int descriptor;
    size_t size;
    *got = 0;
    FL_TRY(fl_input_open(path, &descriptor, &size, error));
    fl_status status = fl_input_next(descriptor, path, buffer, bytes, got, error);
    close(descriptor);
    return status;
}

static fl_status too_large(const char *path, size_t most, fl_error *error) {
    return fl_error_set(error, FL_ERROR_FORMAT, "%s: has more than %zu bytes, the most that is read at once",
                        path, most);
}

/* Until the file ends: the size that the system states may be older than the file. */
static fl_status read_all(int descriptor, const char *path, size_t size, size_t most, char **text,
                          size_t *bytes, fl_error *error) {
    size_t room = size < most ? size + 2 : most + 2, got;
    if (room < FIRST_ROOM && size == 0) room = FIRST_ROOM;
    FL_TRY(FL_ALLOCATE(text, room, error));
    for (*bytes = 0;;) {
        FL_TRY(fl_input_next(descriptor, path, *text + *bytes, room - 1 - *bytes, &got, error));
        *bytes += got;
        if (*bytes > most) return too_large(path, most, error);
        if (*bytes < room - 1) break;
        FL_TRY(FL_RESIZE(text, room, 2 * room, error));
        room *= 2;
    }
    (*text)[*bytes] = '\0';
    return FL_OK;
}

fl_status fl_input_read(const char *path, size_t most, char **text, size_t *bytes, fl_error *error) {
    int descriptor;
    size_t size, used = 0;
    char *data = NULL;
    FL_TRY(fl_input_open(path, &descriptor, &size, error));
    fl_status status = size > most ? too_large(path, most, error)
                                   : read_all(descriptor, path, size, most, &data, &used, error);
    close(descriptor);
    if (status != FL_OK) {
        fl_memory_free(data);
        return status;
    }
    *text = data;
    *bytes = used;
    return FL_OK;
}

static bool is_html(const char *start, size_t bytes) {
    size_t first = 0;
    if (begins_with(start, bytes, "\xEF\xBB\xBF", 3)) first = 3;
    while (first < bytes && strchr(" \t\r\n", start[first]) != NULL && start[first] != '\0') first++;
    static const char *const openings[] = {"<!doctype html", "<html", "<head", "<?xml"};
    for (size_t i = 0; i < sizeof openings / sizeof openings[0]; i++) {
        size_t length = strlen(openings[i]);
        if (bytes - first >= length && strncasecmp(start + first, openings[i], length) == 0) return true;
    }
    return false;
}

const char *fl_input_foreign_kind(const void *start, size_t bytes) {
    static const struct {
        const char *magic;
        size_t bytes;
        const char *kind;
    } kinds[] = {
        {"\x1F\x8B", 2, "a gzip archive"},
        {"PK\x03\x04", 4, "a zip archive (or a PyTorch .bin or .pt file, which is one)"},
        {"\x28\xB5\x2F\xFD", 4, "a Zstandard archive"},
        {"\xFD"
         "7zXZ",
         5, "an xz archive"},
        {"BZh", 3, "a bzip2 archive"},
        {"\x89HDF\r\n\x1A\n", 8, "an HDF5 file"},
        {"GGUF", 4, "a GGUF file"},
        {"ggjt", 4, "an old GGML file"},
        {"tjgg", 4, "an old GGML file"},
        {"lmgg", 4, "an old GGML file"},
        {"\x80\x02", 2, "a Python pickle"},
        {"%PDF-", 5, "a PDF file"},
    };
    if (bytes > KIND_BYTES) bytes = KIND_BYTES;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (begins_with(start, bytes, kinds[i].magic, kinds[i].bytes)) return kinds[i].kind;
    if (begins_with(start, bytes, lfs_pointer, sizeof lfs_pointer - 1)) return "a Git LFS pointer";
    return is_html(start, bytes) ? "an HTML or XML page" : NULL;
}
