#include "analysis/run_summary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/run_set.h"
#include "harness/base/memory.h"
#include "harness/store/run_file.h"

enum { GROUP_BYTES = 512 };

static void read_text(fl_run_reader *reader, const char *name, char *out, size_t bytes) {
    char *text = NULL;
    out[0] = '\0';
    if (fl_run_reader_attribute_text(reader, "/", name, &text, NULL) == FL_OK)
        snprintf(out, bytes, "%s", text);
    fl_memory_free(text);
}

static double attribute(fl_run_reader *reader, const char *group, const char *name) {
    double value = NAN;
    if (!fl_run_reader_has(reader, group)) return NAN;
    return fl_run_reader_attribute_number(reader, group, name, &value, NULL) == FL_OK ? value : NAN;
}

static double last_tenth(fl_run_reader *reader, const char *path) {
    double *data = NULL, sum = 0;
    size_t rank = 0, shape[4] = {0};
    if (!fl_run_reader_has(reader, path)) return NAN;
    if (fl_run_reader_doubles(reader, path, &data, &rank, shape, NULL) != FL_OK) return NAN;
    size_t count = rank == 1 ? (shape[0] + 9) / 10 : 0;
    for (size_t i = 0; i < count; i++) sum += data[shape[0] - 1 - i];
    fl_memory_free(data);
    return count > 0 ? sum / (double)count : NAN;
}

static fl_status add_task(fl_run_summary *summary, const char *name, size_t length, fl_error *error) {
    for (size_t i = 0; i < summary->task_count; i++) {
        if (strlen(summary->tasks[i].label) == length && memcmp(summary->tasks[i].label, name, length) == 0)
            return FL_OK;
    }
    char *label = NULL;
    FL_TRY(FL_ALLOCATE(&label, length + 1, error));
    memcpy(label, name, length);
    fl_status status = FL_RESIZE(&summary->tasks, summary->task_count, summary->task_count + 1, error);
    if (status != FL_OK) {
        fl_memory_free(label);
        return status;
    }
    summary->tasks[summary->task_count++].label = label;
    return FL_OK;
}

/* "/tasks/<label>/items/..." */
static fl_status visit_dataset(void *context, const char *path, size_t rank, const size_t *shape,
                               fl_error *error) {
    (void)rank, (void)shape;
    static const char prefix[] = "/tasks/";
    if (strncmp(path, prefix, sizeof prefix - 1) != 0) return FL_OK;
    const char *label = path + sizeof prefix - 1, *end = strchr(label, '/');
    return end != NULL ? add_task(context, label, (size_t)(end - label), error) : FL_OK;
}

static void read_task(fl_run_reader *reader, fl_task_summary *task) {
    char own[GROUP_BYTES], full[GROUP_BYTES], off[GROUP_BYTES];
    snprintf(own, sizeof own, "/tasks/%s", task->label);
    snprintf(full, sizeof full, "/baseline/full/tasks/%s", task->label);
    snprintf(off, sizeof off, "/baseline/linear_off/tasks/%s", task->label);
    task->n = attribute(reader, own, "n");
    task->acc = attribute(reader, own, "acc");
    task->acc_stderr = attribute(reader, own, "acc_stderr");
    task->acc_norm = attribute(reader, own, "acc_norm");
    task->acc_norm_stderr = attribute(reader, own, "acc_norm_stderr");
    task->perplexity = attribute(reader, own, "perplexity");
    task->full_acc = attribute(reader, full, "acc");
    task->off_acc = attribute(reader, off, "acc");
    task->off_difference = attribute(reader, off, "difference");
    task->off_difference_stderr = attribute(reader, off, "difference_stderr");
}

fl_status fl_run_summary_read(const char *run_file, fl_run_summary *out, fl_error *error) {
    memset(out, 0, sizeof *out);
    fl_run_reader *reader = NULL;
    FL_TRY(fl_run_reader_open(run_file, &reader, error));
    read_text(reader, "tier", out->tier, sizeof out->tier);
    read_text(reader, "diverged_at", out->diverged_at, sizeof out->diverged_at);
    out->diverged = out->diverged_at[0] != '\0';
    const struct {
        const char *path;
        double *value;
    } means[] = {
        {"/errors/teacher_forced/nmse", &out->nmse},
        {"/errors/teacher_forced/cosine", &out->cosine},
        {"/errors/propagated/residual_nmse", &out->propagated_nmse},
        {"/language_model/perplexity", &out->perplexity},
        {"/language_model/full_perplexity", &out->full_perplexity},
        {"/language_model/kl", &out->kl},
        {"/language_model/agreement", &out->agreement},
        {"/language_model/linear_share", &out->linear_share},
        {"/baseline/linear_off/errors/teacher_forced/nmse", &out->off_nmse},
        {"/baseline/linear_off/language_model/perplexity", &out->off_perplexity},
        {"/memory/state_bytes", &out->state_bytes},
        {"/memory/exact_bytes", &out->exact_bytes},
    };
    for (size_t i = 0; i < sizeof means / sizeof means[0]; i++)
        *means[i].value = fl_run_mean(reader, means[i].path);
    out->training_loss = last_tenth(reader, "/training/loss");
    fl_status status = fl_run_reader_visit(reader, visit_dataset, out, error);
    for (size_t i = 0; i < out->task_count; i++) read_task(reader, &out->tasks[i]);
    fl_run_reader_close(reader);
    if (status != FL_OK) fl_run_summary_release(out);
    return status;
}

void fl_run_summary_release(fl_run_summary *summary) {
    for (size_t i = 0; i < summary->task_count; i++) fl_memory_free(summary->tasks[i].label);
    fl_memory_free(summary->tasks);
    memset(summary, 0, sizeof *summary);
}

bool fl_run_summary_no_gain(const fl_run_summary *summary) {
    return summary->state_bytes > 0 && summary->off_perplexity <= summary->perplexity;
}
