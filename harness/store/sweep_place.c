#include "harness/store/sweep_place.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "harness/base/input_file.h"

static void read_line(const char *path, char *out, size_t bytes) {
    size_t got = 0;
    if (fl_input_start(path, out, bytes - 1, &got, NULL) != FL_OK) got = 0;
    out[got] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

/* Field 22 of /proc/<pid>/stat. The name in field 2 may hold anything, so counting starts behind its last
 * bracket. */
static unsigned long long start_of(long process) {
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", process);
    read_line(path, line, sizeof line);
    const char *at = strrchr(line, ')');
    unsigned long long start = 0;
    if (at == NULL ||
        sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &start) != 1) {
        return 0;
    }
    return start;
}

void fl_sweep_place_here(fl_sweep_place *out) {
    char boot[64], space[64] = "";
    if (gethostname(out->host, sizeof out->host) != 0) out->host[0] = '\0';
    out->host[sizeof out->host - 1] = '\0';
    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    ssize_t bytes = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    space[bytes > 0 ? bytes : 0] = '\0';
    snprintf(out->machine, sizeof out->machine, "%.120s %s %s", out->host, boot, space);
    out->process = (long)getpid();
    out->process_start = start_of(out->process);
}

bool fl_sweep_place_lives(const fl_sweep_place *place) {
    if (kill((pid_t)place->process, 0) != 0 && errno == ESRCH) return false;
    unsigned long long start = start_of(place->process);
    return place->process_start == 0 || start == 0 || start == place->process_start;
}
