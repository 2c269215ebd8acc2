/* Run summary: one run file in a handful of numbers, with the full model and the linear-off baseline beside
 * them. */
#ifndef FL_ANALYSIS_RUN_SUMMARY_H
#define FL_ANALYSIS_RUN_SUMMARY_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"

enum { FL_SUMMARY_TEXT_BYTES = 96 };

/* Metrics of one task; NaN where the task has none. */
typedef struct fl_task_summary {
    char *label; /* of the group under /tasks */
    double n, acc, acc_stderr, acc_norm, acc_norm_stderr, perplexity;
    /* the full model's and the linear-off baseline's, and this run minus the baseline on the same items */
    double full_acc, off_acc, off_difference, off_difference_stderr;
} fl_task_summary;

/* NaN where something was not measured. */
typedef struct fl_run_summary {
    char tier[16];
    bool diverged;
    char diverged_at[FL_SUMMARY_TEXT_BYTES];
    double nmse, cosine;    /* teacher forced, mean over layers */
    double propagated_nmse; /* residual stream, mean over layers */
    double perplexity, full_perplexity, kl, agreement;
    double off_nmse, off_perplexity; /* linear part off */
    double state_bytes, exact_bytes, linear_share;
    double training_loss; /* mean of the last tenth of the steps */
    size_t task_count;
    fl_task_summary *tasks; /* in name order */
} fl_run_summary;

fl_status fl_run_summary_read(const char *run_file, fl_run_summary *out, fl_error *error);
void fl_run_summary_release(fl_run_summary *summary);

/* The linear part is there, and perplexity is no better with it than without. */
bool fl_run_summary_no_gain(const fl_run_summary *summary);

#endif
