/* Task configuration: one entry of the `tasks:` list of a config. */
#ifndef FL_EVAL_TASK_CONFIG_H
#define FL_EVAL_TASK_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"
#include "harness/config/node.h"
#include "harness/config/options.h"
#include "harness/compute/logits.h"
#include "harness/eval/task_table.h"
#include "harness/eval/windows.h"

/* auto: float32, as PyTorch computes it, for the tasks lm-evaluation-harness defines; float64 for the rest.
 */
typedef enum fl_task_log_softmax {
    FL_TASK_LOG_SOFTMAX_AUTO = 0,
    FL_TASK_LOG_SOFTMAX_FLOAT32,
    FL_TASK_LOG_SOFTMAX_FLOAT64
} fl_task_log_softmax;

typedef struct fl_task_config {
    const fl_task_kind *kind;
    char *name;       /* a row of the task table */
    char *label;      /* what results are stored under; the name when not given, unique in a list */
    char *path;       /* file or folder; NULL for tasks that make their own text */
    char *shots_path; /* few-shot pool; NULL: the data's own, else the evaluated split */
    char *split, *subject;
    size_t shots, offset;
    double limit; /* documents of each subject: 0 = all, below 1 = that share of them rounded up, else a whole
                     number */
    uint64_t seed;
    int pair_mode;     /* fl_pair_mode */
    size_t max_length; /* 0: the model's own limit */
    int64_t prefix;    /* token id in front of an empty context; -1: BOS, else EOS */
    size_t bootstrap;  /* resamples behind the standard error of a perplexity; 0: none */
    bool share;        /* run common prefixes once */
    int log_softmax;   /* fl_task_log_softmax */
    int window_rule;   /* fl_windows_rule: perplexity only */
    size_t window, stride;
    fl_size_list lengths;                              /* made tasks: prompt lengths in tokens */
    size_t depths;                                     /* made tasks: needle depths from 0 to 100 % */
    size_t samples;                                    /* made tasks: prompts for each length and depth */
    size_t pairs, overwrites, first_token, vocabulary; /* recall */
} fl_task_config;

enum { FL_TASKS_MOST = 256 }; /* of one config */

typedef struct fl_task_config_list {
    size_t count;
    fl_task_config *items;
} fl_task_config_list;

/* node: the `tasks` sequence (NULL: no tasks). Errors carry file:line:column. */
fl_status fl_task_config_bind(const fl_node *node, fl_resolved *resolved, fl_task_config_list *out,
                              fl_error *error);
void fl_task_config_release(fl_task_config_list *list);

/* One task with every option at its default, for code that has no YAML. path may be NULL. */
fl_status fl_task_config_default(const char *name, const char *path, fl_task_config *out, fl_error *error);
/* What the setting means for this task. */
fl_log_softmax_precision fl_task_config_precision(const fl_task_config *config);
void fl_task_config_clear(fl_task_config *config);

/* The keys of an element of `tasks`. */
const fl_option_section *fl_task_sections(size_t *count);

#endif
