#include "analysis/gnuplot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 1024, EXIT_NO_PROGRAM = 127 };

/* Only async-signal-safe calls between fork and exec. */
static void become_gnuplot(const char *folder, const char *script, int output) {
    char *const arguments[] = {(char[]){"gnuplot"}, (char *)script, NULL};
    if (chdir(folder) != 0 || dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0) _exit(1);
    execvp(arguments[0], arguments);
    _exit(EXIT_NO_PROGRAM);
}

/* Everything the child says, its first MESSAGE_BYTES - 1 bytes kept. */
static void drain(int input, char message[MESSAGE_BYTES]) {
    size_t used = 0;
    char rest[256];
    for (;;) {
        size_t room = MESSAGE_BYTES - 1 - used;
        ssize_t got = room > 0 ? read(input, message + used, room) : read(input, rest, sizeof rest);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        if (room > 0) used += (size_t)got;
    }
    while (used > 0 && message[used - 1] == '\n') used--;
    message[used] = '\0';
}

fl_status fl_gnuplot_run(const char *folder, const char *script, fl_error *error) {
    int ends[2];
    if (pipe(ends) != 0) return fl_error_set(error, FL_ERROR_IO, "gnuplot: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        become_gnuplot(folder, script, ends[1]);
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return fl_error_set(error, FL_ERROR_IO, "gnuplot: %s", strerror(errno));
    }
    char message[MESSAGE_BYTES];
    drain(ends[0], message);
    close(ends[0]);
    int code = 0;
    while (waitpid(child, &code, 0) < 0) {
        if (errno != EINTR) return fl_error_set(error, FL_ERROR_IO, "gnuplot: %s", strerror(errno));
    }
    if (WIFEXITED(code) && WEXITSTATUS(code) == 0) return FL_OK;
    if (WIFEXITED(code) && WEXITSTATUS(code) == EXIT_NO_PROGRAM) {
        return fl_error_set(error, FL_ERROR_UNSUPPORTED, "gnuplot is not installed: no picture was drawn");
    }
    return fl_error_set(error, FL_ERROR_IO, "gnuplot failed on %s/%s: %s", folder, script, message);
}
