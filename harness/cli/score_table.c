#include "harness/cli/score_table.h"

#include <math.h>
#include <string.h>

#include "analysis/run_summary.h"
#include "harness/base/memory.h"

enum { CELL_BYTES = 40 };

/* "0.5300 +-0.0158", or "-" where it was not measured. */
static const char *figure(double value, double error, char out[CELL_BYTES]) {
    if (isnan(value))
        snprintf(out, CELL_BYTES, "-");
    else if (isnan(error))
        snprintf(out, CELL_BYTES, "%.4f", value);
    else
        snprintf(out, CELL_BYTES, "%.4f +-%.4f", value, error);
    return out;
}

static void print_task(FILE *stream, int width, const char *label, const fl_task_summary *task) {
    char cells[5][CELL_BYTES];
    fprintf(stream, "%-*s  %-20s %6.0f  %-15s %-15s %8s %8s  %-16s\n", width, label, task->label, task->n,
            figure(task->acc, task->acc_stderr, cells[0]),
            figure(task->acc_norm, task->acc_norm_stderr, cells[1]), figure(task->full_acc, NAN, cells[2]),
            figure(task->off_acc, NAN, cells[3]),
            figure(task->off_difference, task->off_difference_stderr, cells[4]));
}

static void print_header(FILE *stream, int width) {
    fprintf(stream, "\n%-*s  %-20s %6s  %-15s %-15s %8s %8s  %-16s\n", width, "cell", "task", "items", "acc",
            "acc_norm", "full", "lin. off", "acc - lin. off");
}

fl_status fl_score_table_print(FILE *stream, const char *const *labels, const char *const *run_files,
                              size_t count, fl_error *error) {
    int width = 4;
    for (size_t i = 0; i < count; i++) {
        if ((int)strlen(labels[i]) > width) width = (int)strlen(labels[i]);
    }
    bool started = false;
    for (size_t i = 0; i < count; i++) {
        fl_run_summary summary;
        FL_TRY(fl_run_summary_read(run_files[i], &summary, error));
        if (summary.task_count > 0 && !started) print_header(stream, width);
        started = started || summary.task_count > 0;
        for (size_t t = 0; t < summary.task_count; t++)
            print_task(stream, width, labels[i], &summary.tasks[t]);
        fl_run_summary_release(&summary);
    }
    return FL_OK;
}
