#include "harness/compute/load_backend.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generated/backend_hash.h"

enum { PATH_BYTES = 4096 };

fl_status fl_backend_load_file(const char *path, const fl_backend **out, fl_error *error) {
    *out = NULL;
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) {
        const char *why = dlerror();
        return fl_error_set(error, FL_ERROR_UNSUPPORTED, "%s", why != NULL ? why : path);
    }
    fl_backend_entry_function entry = NULL;
    void *symbol = dlsym(object, "fl_backend_entry");
    memcpy(&entry, &symbol, sizeof entry); /* ISO C has no conversion from an object's address */
    fl_status status = FL_OK;
    if (entry == NULL) {
        status = fl_error_set(error, FL_ERROR_UNSUPPORTED,
                              "%s is no backend of frostline: it has no fl_backend_entry", path);
    } else if (entry(FL_BACKEND_ABI, out) != FL_OK || strcmp((*out)->hash, FL_BACKEND_HASH) != 0) {
        *out = NULL;
        status = fl_error_set(
            error, FL_ERROR_UNSUPPORTED,
            "%s was built from other sources than this program: build both again (make; make cuda)", path);
    }
    if (status != FL_OK) dlclose(object);
    return status;
}

/* The executable's folder and `file`; false when it cannot be told. */
static bool beside_executable(const char *file, char path[PATH_BYTES]) {
    const ssize_t length = readlink("/proc/self/exe", path, PATH_BYTES - 1);
    if (length <= 0) return false;
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    if (slash == NULL) return false;
    const size_t room = (size_t)(path + PATH_BYTES - slash - 1);
    return (size_t)snprintf(slash + 1, room, "%s", file) < room && access(path, R_OK) == 0;
}

fl_status fl_backend_load(const char *name, const fl_backend **out, fl_error *error) {
    char variable[64] = "FROSTLINE_", file[128], path[PATH_BYTES];
    const size_t prefix = strlen(variable);
    snprintf(variable + prefix, sizeof variable - prefix, "%s", name);
    for (char *c = variable + prefix; *c != '\0'; c++) *c = (char)toupper((unsigned char)*c);
    snprintf(file, sizeof file, "libfrostline_%s.so", name);
    const char *named = getenv(variable);
    if (named != NULL && *named != '\0') {
        const fl_status status = fl_backend_load_file(named, out, error);
        return status == FL_OK ? FL_OK : fl_error_prepend(error, status, "%s", variable);
    }
    if (beside_executable(file, path)) return fl_backend_load_file(path, out, error);
    fl_error why = {0};
    if (fl_backend_load_file(file, out, &why) == FL_OK) return FL_OK;
    return fl_error_set(
        error, FL_ERROR_UNSUPPORTED,
        "%s is not found (%s, beside the program, the system's libraries): build it with make %s, or set "
        "compute.device to cpu",
        file, variable, name);
}

fl_status fl_backend_create(const fl_backend *backend, const fl_backend_options *options, fl_compute *host,
                            fl_compute **out, fl_error *error) {
    const fl_backend_services services = {
        .set_error = fl_error_set, .widen_rows = fl_tensor_widen_rows, .host = host};
    return backend->create(options, &services, out, error);
}
