#include "harness/base/memory_limit.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LINE_BYTES = 4096, NUMBER_BYTES = 64 };

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* A file that holds one number; "max", or no such file: no limit. */
static size_t read_limit(const char *folder, const char *name) {
    char path[2 * LINE_BYTES], text[NUMBER_BYTES] = "";
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r"); /* input-file: the kernel's, of a few bytes */
    if (file == NULL) return SIZE_MAX;
    char *end = NULL, *line = fgets(text, sizeof text, file);
    fclose(file);
    unsigned long long bytes = line == NULL ? 0 : strtoull(text, &end, 10);
    return line == NULL || end == text || bytes > SIZE_MAX ? SIZE_MAX : (size_t)bytes;
}

/* Of the group and of all above it. A container may see its own group as the root: then the path leads
 * nowhere and only the mount itself counts. */
static size_t limit_along(const char *mount, const char *group, const char *name) {
    char path[LINE_BYTES];
    size_t limit = read_limit(mount, name);
    snprintf(path, sizeof path, "%s%s", mount, group);
    for (size_t bytes = strlen(path); bytes > strlen(mount);) {
        limit = smaller(limit, read_limit(path, name));
        while (bytes > 0 && path[--bytes] != '/') continue;
        path[bytes] = '\0';
    }
    return limit;
}

size_t fl_memory_limit_of_groups(const char *root) {
    char path[LINE_BYTES], line[LINE_BYTES], mount[LINE_BYTES];
    size_t limit = SIZE_MAX;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "r"); /* input-file: the kernel's, of a few lines */
    if (file == NULL) return SIZE_MAX;
    while (fgets(line, sizeof line, file) != NULL) { /* hierarchy:controllers:/group */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'),
             *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (group == NULL) continue;
        *controllers++ = *group++ = '\0';
        bool unified = controllers[0] == '\0';
        bool memory = false;
        char *rest = NULL;
        for (char *word = strtok_r(controllers, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest))
            memory = memory || strcmp(word, "memory") == 0;
        if (!unified && !memory) continue;
        snprintf(mount, sizeof mount, "%.3000s/sys/fs/cgroup%s", root, unified ? "" : "/memory");
        limit = smaller(limit, limit_along(mount, group, unified ? "memory.max" : "memory.limit_in_bytes"));
    }
    fclose(file);
    return limit;
}

size_t fl_memory_limit(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    size_t limit = pages > 0 && page_bytes > 0 ? (size_t)pages * (size_t)page_bytes : SIZE_MAX;
    struct rlimit space;
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY && space.rlim_cur < limit)
        limit = (size_t)space.rlim_cur;
    return smaller(limit, fl_memory_limit_of_groups(""));
}
