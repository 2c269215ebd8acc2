#include "harness/run/slurm_script.h"

#include <string.h>
#include <unistd.h>

#include "harness/run/evaluation.h"

enum { PATH_BYTES = 4096, DEFAULT_TASKS = 8, DEFAULT_CPUS = 4 };

/* For the shell: in single quotes, in which only the quote itself needs care. */
static void write_word(FILE *stream, const char *text) {
    fputc('\'', stream);
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            fputs("'\\''", stream);
        else
            fputc(*text, stream);
    }
    fputc('\'', stream);
}

/* For a job's name: letters, digits and a few signs; others become "_". */
static void write_name(FILE *stream, const char *text) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    for (; *text != '\0'; text++) fputc(strchr(allowed, *text) != NULL ? *text : '_', stream);
}

static size_t at_least_one(size_t number) {
    return number > 0 ? number : 1;
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Two batches a worker and more: one that is slower than the others then takes fewer cells. */
static size_t batch_of(size_t cells, size_t tasks) {
    return at_least_one(smaller(cells / (2 * tasks), FL_EVALUATION_BATCH));
}

static void write_command(FILE *stream, const fl_slurm_script *script, size_t batch) {
    char program[PATH_BYTES] = "frostline";
    ssize_t bytes = readlink("/proc/self/exe", program, sizeof program - 1);
    if (bytes > 0) program[bytes] = '\0';
    fputs("exec ", stream);
    write_word(stream, program);
    fputs(" run ", stream);
    write_word(stream, script->config);
    for (size_t i = 0; i < script->override_count; i++) {
        fputc(' ', stream);
        write_word(stream, script->overrides[i]);
    }
    fputs(" --out ", stream);
    write_word(stream, script->out);
    if (script->keep_older) fputs(" --keep-older", stream);
    fprintf(stream, " \\\n    --threads \"${SLURM_CPUS_PER_TASK:-1}\" --batch %zu --wait \"$wait\"\n", batch);
}

void fl_slurm_script_write(FILE *stream, const fl_slurm_script *script) {
    size_t tasks = script->tasks > 0 ? script->tasks : at_least_one(smaller(script->cells, DEFAULT_TASKS));
    fputs("#!/bin/bash\n#SBATCH --job-name=frostline-", stream);
    write_name(stream, script->name);
    fprintf(stream, "\n#SBATCH --array=0-%zu\n#SBATCH --cpus-per-task=%zu\n", tasks - 1,
            script->cpus > 0 ? script->cpus : (size_t)DEFAULT_CPUS);
    fputs("#SBATCH --requeue\n#SBATCH --open-mode=append\n#SBATCH --output=%x-%A_%a.log\n"
          "#SBATCH --signal=B:TERM@120\n\n",
          stream);
    fprintf(stream,
            "# %zu cells to do. Every task of the array is a worker that takes cells which nobody has.\n",
            script->cells);
    fputs("# Memory, time, partition: add them here or on sbatch's command line. Two minutes before its time "
          "is "
          "over\n# a worker begins nothing new; submitting this again resumes.\n"
          "# A worker that ends while others still work exits with 75: a job that depends on all of them "
          "takes\n"
          "# afterany and begins with the same command (docs/running.md).\n"
          "\n"
          "# Requeued after a node was lost: the node's claims become stale after ten minutes.\nwait=0\n"
          "if [ \"${SLURM_RESTART_COUNT:-0}\" -gt 0 ]; then wait=660; fi\n",
          stream);
    char folder[PATH_BYTES];
    if (getcwd(folder, sizeof folder) != NULL) {
        fputs("cd ", stream);
        write_word(stream, folder);
        fputs(" || exit\n", stream);
    }
    write_command(stream, script, batch_of(script->cells, tasks));
}
