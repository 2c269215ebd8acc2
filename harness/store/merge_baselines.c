#include "harness/store/merge_baselines.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "attn_variants/ablation.h"
#include "harness/base/memory.h"
#include "harness/base/whole_number.h"
#include "harness/eval/metrics.h"
#include "harness/store/run_record.h"
#include "harness/store/text_pool.h"

enum { PATH_BYTES = 384 };

/* How many of the files have this group; results [count] (or NULL) are read from those that do. */
static fl_status read_comparisons(const char *const *paths, size_t count, const char *root,
                                  fl_text_result *results, size_t *having, fl_error *error) {
    for (size_t i = 0; i < count; i++) {
        fl_run_reader *reader = NULL;
        FL_TRY(fl_run_reader_open(paths[i], &reader, error));
        fl_status status = FL_OK;
        if (fl_run_reader_has(reader, root)) {
            ++*having;
            status = fl_run_record_read_comparison(reader, root, &results[i], error);
        }
        fl_run_reader_close(reader);
        FL_TRY(status);
    }
    return FL_OK;
}

static fl_status merge_comparison(const char *const *paths, size_t count, const char *root, fl_run_file *file,
                                  fl_error *error) {
    fl_text_result *results = NULL, pooled = {0};
    size_t having = 0;
    fl_status status = FL_OK;
    FL_TRY(FL_ALLOCATE(&results, count, error));
    FL_TRY_DONE(status, read_comparisons(paths, count, root, results, &having, error));
    if (having == 0) goto done;
    if (having < count) {
        status = fl_error_set(error, FL_ERROR_ARGUMENT, "%zu of %zu runs have %s", having, count, root);
        goto done;
    }
    FL_TRY_DONE(status, fl_text_pool(results, paths, count, &pooled, error));
    status = fl_run_record_write_comparison(file, root, &pooled, error);
done:
    for (size_t i = 0; i < count; i++) fl_text_result_release(&results[i]);
    fl_text_result_release(&pooled);
    fl_memory_free(results);
    return status;
}

fl_status fl_merge_baseline_texts(const char *const *paths, size_t count, fl_run_file *file,
                                  fl_error *error) {
    FL_TRY(merge_comparison(paths, count, "/baseline/linear_off", file, error));
    for (size_t branch = 0; branch < FL_BRANCH_COUNT; branch++) {
        char root[PATH_BYTES];
        snprintf(root, sizeof root, "/ablation/%s_off", fl_branch_names[branch]);
        FL_TRY(merge_comparison(paths, count, root, file, error));
    }
    return FL_OK;
}

/* What one run says of a baseline of a task. */
typedef struct task_figures {
    double n;
    double acc[3], acc_stderr[3];                /* by the rows below; NaN: the task has none */
    double difference, only_this, only_baseline; /* NaN: not compared */
} task_figures;

static const char *const accuracies[3] = {"acc", "acc_norm", "acc_bytes"};

/* NaN: there is none. */
static fl_status read_figure(fl_run_reader *reader, const char *group, const char *name, double *out,
                             fl_error *error) {
    *out = (double)NAN;
    if (!fl_run_reader_has_attribute(reader, group, name)) return FL_OK;
    return fl_run_reader_attribute_number(reader, group, name, out, error);
}

static fl_status read_figures(fl_run_reader *reader, const char *group, task_figures *out, fl_error *error) {
    FL_TRY(read_figure(reader, group, "n", &out->n, error));
    FL_TRY(read_figure(reader, group, "difference", &out->difference, error));
    FL_TRY(read_figure(reader, group, "only_this_right", &out->only_this, error));
    FL_TRY(read_figure(reader, group, "only_baseline_right", &out->only_baseline, error));
    for (size_t a = 0; a < 3; a++) FL_TRY(read_figure(reader, group, accuracies[a], &out->acc[a], error));
    return FL_OK;
}

static fl_status write_accuracy(const task_figures *runs, size_t count, size_t which, double n,
                                fl_run_file *file, const char *group, fl_error *error) {
    double right = 0.0;
    for (size_t r = 0; r < count; r++) right += runs[r].acc[which] * runs[r].n;
    return isnan(right) ? FL_OK : fl_run_file_set_number(file, group, accuracies[which], right / n, error);
}

/* The comparison of the pooled items: `only_this` of them speak for the run, `only_baseline` for the other.
 */
static fl_status compare_counts(size_t n, size_t only_this, size_t only_baseline, fl_paired_comparison *out,
                                fl_error *error) {
    double *baseline = NULL, *own = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&baseline, n, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&own, n, error));
    for (size_t i = 0; i < only_baseline; i++) baseline[i] = 1.0;
    for (size_t i = 0; i < only_this; i++) own[only_baseline + i] = 1.0;
    status = fl_metric_compare(baseline, own, n, out, error);
done:
    fl_memory_free(baseline);
    fl_memory_free(own);
    return status;
}

static fl_status write_comparison(const task_figures *runs, size_t count, double n, fl_run_file *file,
                                  const char *group, fl_error *error) {
    double only_this = 0.0, only_baseline = 0.0, difference = 0.0;
    for (size_t r = 0; r < count; r++) {
        only_this += runs[r].only_this;
        only_baseline += runs[r].only_baseline;
        difference += runs[r].difference * runs[r].n / n;
    }
    /* Not compared; or items that are not right or wrong, whose spread the counts do not tell. */
    size_t items = 0, this_right = 0, other_right = 0;
    const bool counts = fl_size_of_number(n, &items) && fl_size_of_number(only_this, &this_right) &&
                        fl_size_of_number(only_baseline, &other_right) && this_right + other_right <= items;
    if (!counts || !(fabs(difference - (only_this - only_baseline) / n) <= 1e-9)) return FL_OK;
    fl_paired_comparison paired;
    FL_TRY(compare_counts(items, this_right, other_right, &paired, error));
    FL_TRY(fl_run_file_set_number(file, group, "difference", difference, error));
    FL_TRY(fl_run_file_set_number(file, group, "difference_stderr", paired.difference_stderr, error));
    FL_TRY(fl_run_file_set_number(file, group, "only_this_right", only_this, error));
    FL_TRY(fl_run_file_set_number(file, group, "only_baseline_right", only_baseline, error));
    return fl_run_file_set_number(file, group, "mcnemar_exact_p", paired.exact_p, error);
}

static fl_status write_figures(const task_figures *runs, size_t count, fl_run_file *file, const char *group,
                               fl_error *error) {
    double n = 0.0;
    for (size_t r = 0; r < count; r++) n += runs[r].n;
    if (!(n >= 1.0 && n < 1e9)) return FL_OK; /* a run says nothing of this baseline */
    FL_TRY(fl_run_file_set_number(file, group, "n", n, error));
    for (size_t a = 0; a < 3; a++) FL_TRY(write_accuracy(runs, count, a, n, file, group, error));
    return write_comparison(runs, count, n, file, group, error);
}

static fl_status merge_task(const char *const *paths, size_t count, const char *group, fl_run_file *file,
                            fl_error *error) {
    task_figures *runs = NULL;
    fl_status status = FL_OK;
    FL_TRY(FL_ALLOCATE(&runs, count, error));
    for (size_t r = 0; r < count; r++) {
        fl_run_reader *reader = NULL;
        FL_TRY_DONE(status, fl_run_reader_open(paths[r], &reader, error));
        status = read_figures(reader, group, &runs[r], error);
        fl_run_reader_close(reader);
        if (status != FL_OK) goto done;
    }
    status = write_figures(runs, count, file, group, error);
done:
    fl_memory_free(runs);
    return status;
}

fl_status fl_merge_baseline_task(const char *const *paths, size_t count, const char *task, fl_run_file *file,
                                 fl_error *error) {
    static const char *const baselines[] = {"full", "linear_off"};
    for (size_t b = 0; b < sizeof baselines / sizeof baselines[0]; b++) {
        char group[PATH_BYTES];
        snprintf(group, sizeof group, "/baseline/%s/tasks/%.256s", baselines[b], task);
        FL_TRY(merge_task(paths, count, group, file, error));
    }
    return FL_OK;
}
