#include "harness/model/model_paths.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/base/data_path.h"
#include "harness/base/input_file.h"
#include "harness/base/memory.h"
#include "harness/model/checkpoint_entries.h"

/* folder_bytes: how much of `folder` counts, its last slash included or not. */
static fl_status join(const char *folder, size_t folder_bytes, const char *name, char **out,
                      fl_error *error) {
    bool slash = folder_bytes > 0 && folder[folder_bytes - 1] != '/';
    size_t bytes = folder_bytes + strlen(name) + 2;
    FL_TRY(FL_ALLOCATE(out, bytes, error));
    snprintf(*out, bytes, "%.*s%s%s", (int)folder_bytes, folder, slash ? "/" : "", name);
    return FL_OK;
}

/* Hugging Face's order: the single file, then the index. */
static fl_status find_weights(const char *folder, char **out, fl_error *error) {
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        FL_TRY(join(folder, strlen(folder), names[i], out, error));
        if (access(*out, F_OK) == 0) return FL_OK;
        fl_memory_free(*out);
        *out = NULL;
    }
    return fl_error_set(error, FL_ERROR_IO,
                        "%s: neither model.safetensors nor model.safetensors.index.json is there", folder);
}

/* What a file holds counts, not what it is called: a GGUF file under its content's hash is one. */
static fl_status is_gguf(const char *path, bool *out, fl_error *error) {
    char magic[4];
    size_t got;
    FL_TRY(fl_input_start(path, magic, sizeof magic, &got, error));
    *out =
        fl_checkpoint_name_ends_with(path, ".gguf") || (got == sizeof magic && memcmp(magic, "GGUF", 4) == 0);
    return FL_OK;
}

static fl_status find_file(const char *path, fl_model_paths *out, fl_error *error) {
    const char *slash = strrchr(path, '/');
    size_t folder_bytes = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    bool gguf;
    FL_TRY(is_gguf(path, &gguf, error));
    FL_TRY(fl_memory_copy_string(&out->weights, path, error));
    return gguf ? FL_OK : join(path, folder_bytes, "config.json", &out->config, error);
}

static fl_status find_folder(const char *path, fl_model_paths *out, fl_error *error) {
    FL_TRY(join(path, strlen(path), "config.json", &out->config, error));
    return find_weights(path, &out->weights, error);
}

fl_status fl_model_paths_find(const char *path, fl_model_paths *out, fl_error *error) {
    memset(out, 0, sizeof *out);
    struct stat kind;
    if (stat(path, &kind) != 0) {
        return fl_data_path_error(path, "open", errno, error);
    }
    if (!S_ISDIR(kind.st_mode) && !S_ISREG(kind.st_mode)) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: is not a regular file", path);
    }
    fl_status status = S_ISDIR(kind.st_mode) ? find_folder(path, out, error) : find_file(path, out, error);
    if (status != FL_OK) fl_model_paths_free(out);
    return status;
}

void fl_model_paths_free(fl_model_paths *paths) {
    fl_memory_free(paths->weights);
    fl_memory_free(paths->config);
    memset(paths, 0, sizeof *paths);
}
