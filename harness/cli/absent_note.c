#include "harness/cli/absent_note.h"

#include <stdio.h>

int fl_absent_note_print(const fl_command *command, const fl_run_set *set) {
    size_t failed = fl_absent_runs_count(&set->absent, FL_ABSENT_FAILED);
    size_t unfinished = fl_absent_runs_count(&set->absent, FL_ABSENT_UNFINISHED);
    if (failed > 0)
        fprintf(stderr, "frostline %s: %zu failed cells have no run file and are not in it\n", command->name,
                failed);
    if (unfinished > 0)
        fprintf(stderr, "frostline %s: %zu cells are begun and not done\n", command->name, unfinished);
    for (size_t i = 0; i < set->absent.count; i++) {
        const fl_absent_run *run = &set->absent.items[i];
        if (run->absence == FL_ABSENT_UNREADABLE)
            fprintf(stderr, "frostline %s: left out: %s\n", command->name, run->message);
    }
    return fl_absent_runs_count(&set->absent, FL_ABSENT_UNREADABLE) > 0 ? FL_EXIT_LEFT_OUT : FL_EXIT_OK;
}
