#include "harness/base/hash.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "harness/base/data_path.h"
#include "harness/base/input_file.h"
#include "harness/base/memory.h"

struct fl_hash_stream {
    XXH3_state_t *state;
};

static fl_hash hash_text(XXH128_hash_t value) {
    fl_hash hash;
    snprintf(hash.text, sizeof hash.text, "%016llx%016llx", (unsigned long long)value.high64,
             (unsigned long long)value.low64);
    return hash;
}

fl_hash fl_hash_bytes(const void *data, size_t bytes) {
    return hash_text(XXH3_128bits(data, bytes));
}

fl_status fl_hash_stream_create(fl_hash_stream **out, fl_error *error) {
    *out = NULL;
    fl_hash_stream *stream = NULL;
    FL_TRY(FL_ALLOCATE(&stream, 1, error));
    stream->state = XXH3_createState();
    if (stream->state == NULL) {
        fl_memory_free(stream);
        return fl_error_set(error, FL_ERROR_MEMORY, "out of memory: hash state");
    }
    XXH3_128bits_reset(stream->state);
    *out = stream;
    return FL_OK;
}

void fl_hash_stream_add(fl_hash_stream *stream, const void *data, size_t bytes) {
    XXH3_128bits_update(stream->state, data, bytes);
}

fl_hash fl_hash_stream_value(const fl_hash_stream *stream) {
    return hash_text(XXH3_128bits_digest(stream->state));
}

void fl_hash_stream_destroy(fl_hash_stream *stream) {
    if (stream == NULL) return;
    XXH3_freeState(stream->state);
    fl_memory_free(stream);
}

fl_status fl_hash_file(const char *path, fl_hash *out, fl_error *error) {
    enum { BUFFER_BYTES = 1 << 20 };
    int descriptor;
    size_t size, got = BUFFER_BYTES;
    FL_TRY(fl_input_open(path, &descriptor, &size, error));
    fl_hash_stream *stream = NULL;
    unsigned char *buffer = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_hash_stream_create(&stream, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&buffer, BUFFER_BYTES, error));
    while (got == BUFFER_BYTES) {
        FL_TRY_DONE(status, fl_input_next(descriptor, path, buffer, BUFFER_BYTES, &got, error));
        fl_hash_stream_add(stream, buffer, got);
    }
    *out = fl_hash_stream_value(stream);
done:
    fl_memory_free(buffer);
    fl_hash_stream_destroy(stream);
    close(descriptor);
    return status;
}

enum { PATH_BYTES = 4096 };

static int is_visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static int by_bytes(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* `prefix`: how many bytes of the path are the root's. */
static fl_status add_path(fl_hash_stream *stream, const char *path, size_t prefix, size_t depth,
                          fl_error *error) {
    struct stat status;
    if (stat(path, &status) != 0) return fl_data_path_error(path, "open", errno, error);
    if (!S_ISDIR(status.st_mode)) {
        fl_hash hash;
        FL_TRY(fl_hash_file(path, &hash, error));
        fl_hash_stream_add(stream, path + prefix, strlen(path + prefix) + 1);
        fl_hash_stream_add(stream, hash.text, sizeof hash.text);
        return FL_OK;
    }
    if (depth == 0) return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: folders are nested too deeply", path);
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, is_visible, by_bytes);
    if (count < 0) return fl_error_set(error, FL_ERROR_IO, "%s: %s", path, strerror(errno));
    fl_status result = FL_OK;
    for (int i = 0; i < count; i++) {
        char below[PATH_BYTES];
        int length = snprintf(below, sizeof below, "%s/%s", path, entries[i]->d_name);
        free(entries[i]);
        if (result != FL_OK) continue;
        result = length < PATH_BYTES ? add_path(stream, below, prefix, depth - 1, error)
                                     : fl_error_set(error, FL_ERROR_ARGUMENT, "%s: path too long", path);
    }
    free(entries);
    return result;
}

fl_status fl_hash_path(const char *path, fl_hash *out, fl_error *error) {
    struct stat status;
    if (stat(path, &status) == 0 && !S_ISDIR(status.st_mode)) return fl_hash_file(path, out, error);
    fl_hash_stream *stream = NULL;
    FL_TRY(fl_hash_stream_create(&stream, error));
    fl_status result = add_path(stream, path, strlen(path), FL_HASH_FOLDER_DEPTH, error);
    if (result == FL_OK) *out = fl_hash_stream_value(stream);
    fl_hash_stream_destroy(stream);
    return result;
}
