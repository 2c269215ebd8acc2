#include "harness/base/child.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the parent does on a signal is not the child's to do. */
static void forget_handlers(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGALRM, SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) signal(numbers[i], SIG_DFL);
}

int fl_child_signal(void (*work)(void *context), void *context, unsigned seconds) {
    pid_t child = fork();
    if (child < 0) return 0;
    if (child == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        forget_handlers();
        alarm(seconds);
        work(context);
        _exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) return 0;
    }
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}
