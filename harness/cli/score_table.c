#include "harness/cli/score_table.h"

#include <math.h>
#include <string.h>

#include "analysis/run_set.h"
#include "harness/base/memory.h"

enum { CELL_BYTES = 40, METRIC_BYTES = 512 };

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

static double metric(const fl_run_entry *run, const char *place, const char *task, const char *name) {
    char path[METRIC_BYTES];
    snprintf(path, sizeof path, "%s/%s/%s", place, task, name);
    return fl_run_metric_value(run, path);
}

static void print_task(FILE *stream, int width, const char *label, const fl_run_entry *run,
                       const char *task) {
    static const char own[] = "tasks", full[] = "full/tasks", off[] = "linear_off/tasks";
    char cells[5][CELL_BYTES];
    fprintf(
        stream, "%-*s  %-20s %6.0f  %-15s %-15s %8s %8s  %-16s\n", width, label, task,
        metric(run, own, task, "n"),
        figure(metric(run, own, task, "acc"), metric(run, own, task, "acc_stderr"), cells[0]),
        figure(metric(run, own, task, "acc_norm"), metric(run, own, task, "acc_norm_stderr"), cells[1]),
        figure(metric(run, full, task, "acc"), NAN, cells[2]),
        figure(metric(run, off, task, "acc"), NAN, cells[3]),
        figure(metric(run, off, task, "difference"), metric(run, off, task, "difference_stderr"), cells[4]));
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
        fl_run_entry run;
        FL_TRY(fl_run_entry_read(run_files[i], &run, error));
        if (run.task_count > 0 && !started) print_header(stream, width);
        started = started || run.task_count > 0;
        for (size_t t = 0; t < run.task_count; t++) print_task(stream, width, labels[i], &run, run.tasks[t]);
        fl_run_entry_release(&run);
    }
    return FL_OK;
}
