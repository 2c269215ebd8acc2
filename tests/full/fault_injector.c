/* Preloaded into frostline by fault_test.sh: calls on files below FAULT_FOLDER fail as on a full or failing
 * disk. FAULT=call:first:errno:count lets `count` calls fail, from the `first` on; call is one of write,
 * fsync, rename, link and close. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static int calls;

static bool is_below(const char *path) {
    const char *folder = getenv("FAULT_FOLDER");
    return folder != NULL && strstr(path, folder) != NULL;
}

static bool descriptor_is_below(int descriptor) {
    char link[64], path[PATH_BYTES];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t bytes = readlink(link, path, sizeof path - 1);
    if (bytes < 0) return false;
    path[bytes] = '\0';
    return is_below(path);
}

static bool fails(const char *call, bool below) {
    const char *fault = getenv("FAULT");
    char wanted[16];
    int first = 0, number = 0, count = 0;
    if (!below || fault == NULL || sscanf(fault, "%15[^:]:%d:%d:%d", wanted, &first, &number, &count) != 4 ||
        strcmp(wanted, call) != 0)
        return false;
    int call_number = __sync_add_and_fetch(&calls, 1);
    if (call_number < first || call_number - first >= count) return false;
    errno = number;
    return true;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int descriptor, const void *data, size_t bytes) {
    return fails("write", descriptor_is_below(descriptor)) ? -1 : NEXT(write)(descriptor, data, bytes);
}

ssize_t pwrite(int descriptor, const void *data, size_t bytes, off_t offset) {
    return fails("write", descriptor_is_below(descriptor)) ? -1
                                                           : NEXT(pwrite)(descriptor, data, bytes, offset);
}

ssize_t pwrite64(int descriptor, const void *data, size_t bytes, off64_t offset) {
    return fails("write", descriptor_is_below(descriptor)) ? -1
                                                           : NEXT(pwrite64)(descriptor, data, bytes, offset);
}

int fsync(int descriptor) {
    return fails("fsync", descriptor_is_below(descriptor)) ? -1 : NEXT(fsync)(descriptor);
}

int rename(const char *from, const char *to) {
    return fails("rename", is_below(to)) ? -1 : NEXT(rename)(from, to);
}

int link(const char *from, const char *to) {
    return fails("link", is_below(to)) ? -1 : NEXT(link)(from, to);
}

int close(int descriptor) {
    bool failed = fails("close", descriptor_is_below(descriptor));
    int number = errno, result = NEXT(close)(descriptor);
    if (failed) errno = number;
    return failed ? -1 : result;
}
