#include "harness/model/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cjson/cJSON.h>

#include "harness/base/memory.h"
#include "harness/model/checkpoint_entries.h"

enum { PATH_EXTRA_BYTES = 40, TEMPORARY_ATTEMPTS = 100, HEADER_ALIGNMENT = 8 };

static fl_status check_names(const fl_checkpoint_write_tensor *tensors, size_t count, const char *path,
                             fl_error *error) {
    for (size_t i = 0; i < count; i++) {
        const char *name = tensors[i].name;
        if (name[0] == '\0' || strcmp(name, "__metadata__") == 0 ||
            !fl_checkpoint_name_is_clean(name, strlen(name))) {
            return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: tensor %zu cannot be named \"%s\"", path, i,
                                name);
        }
        if (tensors[i].rank > FL_TENSOR_MAX_RANK) {
            return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: tensor %s: rank %zu is above %d", path, name,
                                tensors[i].rank, FL_TENSOR_MAX_RANK);
        }
        for (size_t j = 0; j < i; j++) {
            if (strcmp(tensors[j].name, name) != 0) continue;
            return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: tensor %s is given twice", path, name);
        }
    }
    return FL_OK;
}

static size_t tensor_bytes(const fl_checkpoint_write_tensor *tensor) {
    size_t bytes = sizeof(float);
    for (size_t i = 0; i < tensor->rank; i++) bytes *= tensor->shape[i];
    return bytes;
}

static bool add_pair(cJSON *object, const char *key, size_t begin, size_t end) {
    cJSON *pair = cJSON_AddArrayToObject(object, key);
    return cJSON_AddItemToArray(pair, cJSON_CreateNumber((double)begin)) &&
           cJSON_AddItemToArray(pair, cJSON_CreateNumber((double)end));
}

static bool add_tensor(cJSON *header, const fl_checkpoint_write_tensor *tensor, size_t begin) {
    cJSON *item = cJSON_AddObjectToObject(header, tensor->name);
    if (cJSON_AddStringToObject(item, "dtype", "F32") == NULL) return false;
    cJSON *shape = cJSON_AddArrayToObject(item, "shape");
    for (size_t i = 0; i < tensor->rank; i++) {
        if (!cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor->shape[i]))) return false;
    }
    return shape != NULL && add_pair(item, "data_offsets", begin, begin + tensor_bytes(tensor));
}

/* The header text, or NULL when memory ran out; released with cJSON_free. */
static char *header_text(const fl_checkpoint_write_tensor *tensors, size_t count,
                         const char *const *metadata_keys, const char *const *metadata_values,
                         size_t metadata_count) {
    cJSON *header = cJSON_CreateObject();
    bool complete = header != NULL;
    if (complete && metadata_count > 0) {
        cJSON *metadata = cJSON_AddObjectToObject(header, "__metadata__");
        for (size_t i = 0; i < metadata_count && complete; i++) {
            complete = cJSON_AddStringToObject(metadata, metadata_keys[i], metadata_values[i]) != NULL;
        }
    }
    size_t offset = 0;
    for (size_t i = 0; i < count && complete; i++) {
        complete = add_tensor(header, &tensors[i], offset);
        offset += tensor_bytes(&tensors[i]);
    }
    char *text = complete ? cJSON_PrintUnformatted(header) : NULL;
    cJSON_Delete(header);
    return text;
}

static fl_status write_content(FILE *file, const char *path, const char *header,
                               const fl_checkpoint_write_tensor *tensors, size_t count, fl_error *error) {
    size_t length = strlen(header);
    uint64_t padded = (length + HEADER_ALIGNMENT - 1) / HEADER_ALIGNMENT * HEADER_ALIGNMENT;
    fwrite(&padded, sizeof padded, 1, file);
    fwrite(header, 1, length, file);
    for (size_t i = length; i < padded; i++) fputc(' ', file);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = tensor_bytes(&tensors[i]);
        if (bytes > 0) fwrite(tensors[i].data, 1, bytes, file);
    }
    if (fflush(file) != 0 || ferror(file) || fsync(fileno(file)) != 0) {
        return fl_error_set(error, fl_status_of_write(errno), "%s: cannot write: %s", path, strerror(errno));
    }
    return FL_OK;
}

/* A file beside `path` that did not exist before; its name is left in `temporary`. */
static fl_status create_temporary(const char *path, char *temporary, size_t room, FILE **out,
                                  fl_error *error) {
    int descriptor = -1;
    for (int attempt = 0; attempt < TEMPORARY_ATTEMPTS && descriptor < 0; attempt++) {
        snprintf(temporary, room, "%s.partial-%ld-%d", path, (long)getpid(), attempt);
        descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (descriptor < 0 && errno != EEXIST) break;
    }
    if (descriptor < 0) {
        return fl_error_set(error, fl_status_of_write(errno), "%s: cannot create: %s", temporary,
                            strerror(errno));
    }
    *out = fdopen(descriptor, "wb");
    if (*out == NULL) {
        close(descriptor);
        unlink(temporary);
        return fl_error_set(error, fl_status_of_write(errno), "%s: cannot open: %s", temporary,
                            strerror(errno));
    }
    return FL_OK;
}

/* Makes the new name itself durable. A file system that cannot sync a folder is not an error. */
static void sync_folder(char *path) {
    char *slash = strrchr(path, '/');
    if (slash != NULL) slash[slash == path ? 1 : 0] = '\0';
    int folder = open(slash != NULL ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    fsync(folder);
    close(folder);
}

static fl_status write_and_rename(const char *path, char *temporary, size_t room, const char *header,
                                  const fl_checkpoint_write_tensor *tensors, size_t count, fl_error *error) {
    FILE *file = NULL;
    FL_TRY(create_temporary(path, temporary, room, &file, error));
    fl_status status = write_content(file, path, header, tensors, count, error);
    if (fclose(file) != 0 && status == FL_OK) {
        status =
            fl_error_set(error, fl_status_of_write(errno), "%s: cannot write: %s", path, strerror(errno));
    }
    if (status == FL_OK && rename(temporary, path) != 0) {
        status = fl_error_set(error, fl_status_of_write(errno), "%s: cannot rename into place: %s", path,
                              strerror(errno));
    }
    if (status != FL_OK) {
        unlink(temporary);
        return status;
    }
    sync_folder(temporary);
    return FL_OK;
}

fl_status fl_checkpoint_write_safetensors(const char *path, const fl_checkpoint_write_tensor *tensors,
                                          size_t count, const char *const *metadata_keys,
                                          const char *const *metadata_values, size_t metadata_count,
                                          fl_error *error) {
    FL_TRY(check_names(tensors, count, path, error));
    char *header = header_text(tensors, count, metadata_keys, metadata_values, metadata_count);
    if (header == NULL) return fl_error_set(error, FL_ERROR_MEMORY, "%s: out of memory: header", path);
    char *temporary = NULL;
    size_t room = strlen(path) + PATH_EXTRA_BYTES;
    fl_status status = FL_ALLOCATE(&temporary, room, error);
    if (status == FL_OK) status = write_and_rename(path, temporary, room, header, tensors, count, error);
    fl_memory_free(temporary);
    cJSON_free(header);
    return status;
}
