/* Cell list: the cells of a config, grouped by what they share.
 *
 * Cells with the same model, text and measurements form a group: the model is opened once, and the frozen
 * pass over the text is made once for all of them. A group is opened, worked on and closed before the next. A
 * cell that cannot even be set up (a rule that does not fit the model, say) is marked failed and never stops
 * the others. */
#ifndef FL_RUN_CELL_LIST_H
#define FL_RUN_CELL_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/hash.h"
#include "harness/base/status.h"
#include "harness/run/cell_parts.h"
#include "harness/run/linearised.h"
#include "harness/run/run_log.h"
#include "harness/run/workbench.h"
#include "harness/config/experiment.h"
#include "harness/measure/text_source.h"
#include "harness/store/journal.h"
#include "harness/store/sweep.h"

typedef enum fl_cell_state {
    FL_CELL_PENDING = 0,
    FL_CELL_DONE,      /* its run file was there already */
    FL_CELL_COMPUTED,  /* its run file was written now */
    FL_CELL_DUPLICATE, /* another cell has the same run id */
    FL_CELL_FAILED,    /* message says why */
    FL_CELL_ELSEWHERE  /* another process works on it */
} fl_cell_state;

typedef struct fl_cell_work {
    fl_experiment *experiment; /* borrowed from the list */
    const char *label;         /* the experiment's */
    size_t group;
    fl_cell_state state;
    char run_id[13];             /* "" until its group has been opened */
    char *path;                  /* <out>/<run_id>.h5 */
    char *message;               /* of a failed cell */
    char **warnings;             /* [warning_count] owned (cell_warnings.h) */
    size_t warning_count;
    bool told;                   /* the user knows of it */
    bool stale;                  /* pending, begun before by a process that is gone */
    const char *rule;            /* its name; NULL until its group has been opened */
    fl_hash fingerprint;         /* of the code that measures it here */
    char *changed;               /* its run file was made by other code: what differs, "kda.c"; else NULL */
    bool rerun;                  /* the list's rerun names it */
    bool again;                  /* pending although done: measured anew, in the place of the run file of ... */
    fl_sweep_stamp stamp;
    bool looked_at;              /* its state has been looked up once */
    fl_sweep_claim *claim;       /* while this process works on it */
    fl_journal *journal;         /* likewise */
    bool lost;                   /* another process has taken the claim over */
    bool check_failed;           /* its self check, now or when the file was written */
    double training_seconds;     /* of this process */
    fl_linearised linearised;    /* while its group is open */
    fl_cell_parts parts;         /* likewise */
    fl_training_history history; /* of a trained cell */
} fl_cell_work;

typedef struct fl_cell_list {
    const char *config, *out;
    /* Set before a group is opened: */
    fl_sweep_policy policy;
    bool keep_older;             /* a run file made by other code counts as done */
    const char *rerun;           /* cells measured anew: "all", "failed", or a pattern of label or run id; NULL: none */
    bool outline;                /* a plan: self-generated text is counted, not sampled */
    size_t threads;              /* for sampling it */
    const fl_progress *progress; /* likewise; may be NULL */
    fl_run_log *log;             /* borrowed; may be NULL */
    fl_experiment_list *experiments;
    size_t count, groups;
    fl_cell_work *cells;
} fl_cell_list;

/* The open group. */
typedef struct fl_cell_group {
    fl_workbench bench;
    fl_text_source text;                /* no sequences: the cells only train or run tasks */
    fl_text_source training;            /* the training text loaded last, ... */
    const fl_train_config *training_of; /* ... and whose it is; NULL: none */
    fl_hash weights,
        tokenizer; /* hash of the weights before any computing; tokenizer "" when none was needed */
    fl_hash identity;  /* of the model, part of every run id: model/identity.h */
    char *descriptor;  /* what its configuration says */
} fl_cell_group;

/* config and out are borrowed. */
fl_status fl_cell_list_load(const char *config, const char *const *overrides, size_t override_count,
                            const char *out, fl_cell_list **list, fl_error *error);
void fl_cell_list_destroy(fl_cell_list *list);

/* Opens group `index`: model, text, hashes; then gives every cell of it its variant, run id and state. A
 * failure concerns the whole group; fl_cell_group_fail records it. A group may be opened again: only cells
 * that are pending or elsewhere are then looked at. */
fl_status fl_cell_group_open(fl_cell_list *list, size_t index, fl_cell_group *out, fl_error *error);
void fl_cell_group_close(fl_cell_list *list, size_t index, fl_cell_group *group);

/* The cell's state from what the output directory says: a failure recorded before is one now, unless the
 * policy retries it. A run file that cannot be read is a failure too: it is never overwritten. One that other
 * code has made (store/fingerprint.h) is not done when the cell is looked at first; made meanwhile by another
 * process, of another build, it is, with `changed` saying so: two builds never take turns over a cell. */
fl_status fl_cell_take_state(const fl_cell_list *list, fl_cell_work *cell, fl_sweep_state state,
                             fl_error *error);

void fl_cell_fail(fl_cell_work *cell, const fl_error *error);
/* Marks the cells of a group that are still pending. */
void fl_cell_group_fail(fl_cell_list *list, size_t index, const fl_error *error);
size_t fl_cell_list_count(const fl_cell_list *list, fl_cell_state state);

/* Whether there is something to train: a rule without parameters (none, softmax) is measured as it is. */
bool fl_cell_has_training(const fl_cell_work *cell);

/* "untrained", "calibrated", "trained" or "adapted" (with fitted LoRA): how the cell's mechanism parameters came about. */
const char *fl_cell_tier(const fl_cell_work *cell);

#endif
