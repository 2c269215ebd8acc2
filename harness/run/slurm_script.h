/* Slurm script: a job array whose tasks are workers of one sweep.
 *
 * Every task runs the same command in the same directory; claims share the cells out, so a task may be
 * killed, requeued or submitted twice. */
#ifndef FL_RUN_SLURM_SCRIPT_H
#define FL_RUN_SLURM_SCRIPT_H

#include <stddef.h>
#include <stdbool.h>
#include <stdio.h>

typedef struct fl_slurm_script {
    const char *name; /* of the experiment */
    const char *config, *out;
    const char *const *overrides; /* [override_count] "key=value" */
    size_t override_count;
    size_t cells;       /* left to do */
    size_t tasks, cpus; /* of the array, of each task; 0: chosen */
    bool keep_older;    /* passed on to `run` */
} fl_slurm_script;

void fl_slurm_script_write(FILE *stream, const fl_slurm_script *script);

#endif
