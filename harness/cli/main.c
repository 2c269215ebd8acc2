/* frostline COMMAND ...: finds the command and hands over. */
#include <stdio.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdlib.h>
#include <string.h>

#include "harness/base/build_info.h"
#include "harness/cli/command.h"
#include "harness/cli/console.h"
#include "harness/cli/help.h"
#include "harness/config/options.h"
#include "harness/compute/cpu_kernels.h"

enum { MAX_COMMANDS = 64, SUMMARY_COLUMN = 15 };

static void print_commands(FILE *stream) {
    fprintf(stream, "usage: frostline COMMAND [ARGUMENT...]\n\n");
    for (size_t i = 0; fl_commands[i] != NULL; i++) {
        fprintf(stream, "  %-12s ", fl_commands[i]->name);
        fl_help_wrap(stream, SUMMARY_COLUMN, SUMMARY_COLUMN, fl_commands[i]->summary);
    }
    fprintf(stream, "\nfrostline COMMAND --help says more. --version names this build.\n");
}

static int refuse(const char *name) {
    const char *names[MAX_COMMANDS];
    size_t count = 0;
    for (; count < MAX_COMMANDS && fl_commands[count] != NULL; count++)
        names[count] = fl_commands[count]->name;
    const char *near = fl_suggest(name, names, count);
    fprintf(stderr, "frostline: unknown command \"%s\"", name);
    if (near != NULL) fprintf(stderr, "; did you mean %s?", near);
    fprintf(stderr, "\n");
    print_commands(stderr);
    return FL_EXIT_USAGE;
}

int fl_command_fail(const fl_command *command, const fl_error *error) {
    fprintf(stderr, "frostline %s: %s\n", command->name, error->message);
    bool interrupted = error->status == FL_ERROR_CANCELLED && fl_interrupts_seen() > 0;
    return interrupted ? fl_interrupts_exit_status() : FL_EXIT_FAILURE;
}

void fl_command_note(const char *subject, const char *note) {
    if (note != NULL) fprintf(stderr, "%s: note: %s\n", subject, note);
}

/* Output that could not be written (a full disk, a closed pipe) is a failure, whatever the command thought.
 */
static int finish(int code) {
    if (fflush(stdout) == 0 && ferror(stdout) == 0) return code;
    fprintf(stderr, "frostline: standard output could not be written\n");
    return code == FL_EXIT_OK ? FL_EXIT_FAILURE : code;
}

/* Scratch of the same size is asked for again in every layer and step: memory once had is kept, not handed
 * back to the system and faulted in anew. */
static void keep_memory(void) {
#ifdef __GLIBC__
    enum { HEAP_BLOCK = 32 << 20, HEAP_KEPT = 512 << 20 };
    mallopt(M_MMAP_THRESHOLD, HEAP_BLOCK);
    mallopt(M_TRIM_THRESHOLD, HEAP_KEPT);
#endif
}

static int choose_kernels(void) {
    fl_error error = {0};
    const char *name = getenv("FROSTLINE_KERNELS");
    if (name == NULL || name[0] == '\0' || fl_kernels_select(name, &error) == FL_OK) return FL_EXIT_OK;
    fprintf(stderr, "frostline: FROSTLINE_KERNELS: %s\n", error.message);
    return FL_EXIT_USAGE;
}

int main(int argc, char **argv) {
    keep_memory();
    if (choose_kernels() != FL_EXIT_OK) return FL_EXIT_USAGE;
    if (argc < 2) {
        print_commands(stderr);
        return FL_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("frostline %s (%s, %s; vector kernels %s)\n", fl_build_revision(), fl_build_compiler(),
               fl_build_flags(), fl_kernels_current()->name);
        return finish(FL_EXIT_OK);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        const fl_command *asked = argc > 2 ? fl_command_find(argv[2]) : NULL;
        if (argc > 2 && asked == NULL) return refuse(argv[2]);
        if (asked != NULL)
            fl_help_print(stdout, asked);
        else
            print_commands(stdout);
        return finish(FL_EXIT_OK);
    }
    const fl_command *command = fl_command_find(argv[1]);
    if (command == NULL) return refuse(argv[1]);
    return finish(command->run(command, argc - 1, argv + 1));
}
