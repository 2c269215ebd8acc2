#include "harness/base/data_path.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/memory.h"

enum { PATH_BYTES = 4096 };

static bool is_own(const char *path) {
    static const char *const folders[] = {"configs/", "datasets/", "models/"};
    while (strncmp(path, "./", 2) == 0) path += 2;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        if (strncmp(path, folders[i], strlen(folders[i])) == 0) return true;
    }
    return false;
}

/* "/usr/local/bin/frostline" -> "/usr/local/share/frostline"; false when the system does not say where the
 * program is. */
static bool installed_folder(char folder[PATH_BYTES]) {
    char program[PATH_BYTES];
    ssize_t bytes = readlink("/proc/self/exe", program, sizeof program - 1);
    if (bytes <= 0) return false;
    program[bytes] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(program, '/');
        if (slash == NULL) return false;
        *slash = '\0';
    }
    int written = snprintf(folder, PATH_BYTES, "%s/share/frostline", program);
    return written > 0 && written < PATH_BYTES;
}

/* Where `path` would be among the program's own data; false when it cannot be one of them. */
static bool own_place(const char *path, char place[PATH_BYTES]) {
    char folder[PATH_BYTES];
    const char *data = getenv("FROSTLINE_DATA");
    if (!is_own(path)) return false;
    if (data == NULL || data[0] == '\0') {
        if (!installed_folder(folder)) return false;
        data = folder;
    }
    int written = snprintf(place, PATH_BYTES, "%s/%s", data, path);
    return written > 0 && written < PATH_BYTES;
}

fl_status fl_data_path_find(const char *path, char **found, fl_error *error) {
    char place[PATH_BYTES];
    const bool here = path[0] == '/' || access(path, F_OK) == 0;
    const bool own = !here && own_place(path, place) && access(place, F_OK) == 0;
    return fl_memory_copy_string(found, own ? place : path, error);
}

fl_status fl_data_path_resolve(char **path, fl_error *error) {
    char *found = NULL;
    if (*path == NULL) return FL_OK;
    FL_TRY(fl_data_path_find(*path, &found, error));
    fl_memory_free(*path);
    *path = found;
    return FL_OK;
}

fl_status fl_data_path_error(const char *path, const char *action, int cause, fl_error *error) {
    char folder[PATH_BYTES], place[PATH_BYTES];
    const bool missing = cause == ENOENT && path[0] != '/' && getcwd(folder, sizeof folder) != NULL;
    if (!missing) {
        fl_error_set(error, FL_ERROR_IO, "%s: cannot %s: %s", path, action, strerror(cause));
    } else {
        const bool own = own_place(path, place);
        fl_error_set(error, FL_ERROR_IO, "%s: cannot %s: %s (tried %s/%s%s%s)", path, action, strerror(cause),
                     folder, path, own ? " and " : "", own ? place : "");
    }
    errno = cause;
    return FL_ERROR_IO;
}
