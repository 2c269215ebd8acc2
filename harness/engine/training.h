/* Training: fits a mechanism's parameters through the frozen network. The backbone is mapped read-only and never changes.
 *
 * A step runs batch * accumulate sequences one after another, averages their gradients, clips and takes one AdamW step. The same
 * seed, data and thread count give the same parameters bit for bit, also when the run was interrupted and resumed. */
#ifndef FL_ENGINE_TRAINING_H
#define FL_ENGINE_TRAINING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn_variants/mechanism.h"
#include "harness/base/progress.h"
#include "harness/base/status.h"
#include "harness/config/node.h"
#include "harness/config/options.h"
#include "harness/config/self_generated.h"
#include "harness/engine/network.h"
#include "harness/engine/sequences.h"

typedef enum fl_objective {
    FL_OBJECTIVE_NEXT_TOKEN = 0, /* mean next-token cross-entropy */
    FL_OBJECTIVE_LAYER_MSE,      /* mean over linearised layers of the layer's nMSE on the frozen model's inputs */
    FL_OBJECTIVE_KL,             /* mean KL(frozen || linearised) */
    FL_OBJECTIVE_NONE            /* no training: the cell is the one without a `train` mapping */
} fl_objective;

typedef enum fl_train_order { FL_ORDER_SHUFFLED = 0, FL_ORDER_SEQUENTIAL } fl_train_order;

#define FL_MEBIBYTE ((size_t)1 << 20) /* what budgets are counted in */

/* The `train:` mapping. */
typedef struct fl_train_config {
    int objective; /* fl_objective */
    size_t steps, warmup_steps, batch, accumulate;
    double learning_rate, adapter_learning_rate, clip, weight_decay, beta1, beta2, epsilon;
    char *path, *ids;       /* exactly one of these and self_generated */
    fl_self_generated self_generated;
    size_t sequence_length; /* resolved: 1024 for a text when not given; 0 = lists as they are */
    size_t sequences;       /* at most so many of the data's; 0 = all */
    int order;              /* fl_train_order */
    bool allow_overlap;
    uint64_t seed;
    size_t evaluate_every, checkpoint_every; /* steps; 0 = never */
    size_t activation_budget; /* MiB of activations kept where they would else be computed again */
    size_t scratch_budget;    /* MiB of the same in a scratch file, once that is full (layer_mse) */
    char *scratch_folder;     /* where the file without a name lies; NULL: $TMPDIR, else /tmp */
    size_t memory_budget;     /* MiB of activations and optimiser together; 0 = no limit */
} fl_train_config;

/* node: the `train` mapping. Errors carry file:line:column. An objective that is written must say which: null is refused. */
fl_status fl_train_config_bind(const fl_node *node, fl_resolved *resolved, fl_train_config *out, fl_error *error);
/* The keys of `train`. */
const fl_option_section *fl_train_sections(size_t *count);
void fl_train_config_release(fl_train_config *config);
/* Whether there is nothing to fit: no mapping, an empty one, or one whose objective is none. */
bool fl_train_config_is_none(const fl_node *node);
/* How far a training of this objective fits a mechanism that came as `before`. */
fl_fit fl_train_config_fit(const fl_train_config *config, fl_fit before);

/* FL_ERROR_ARGUMENT, naming the places, when the texts share FL_OVERLAP_TOKENS tokens and config does not allow it. */
fl_status fl_training_check_overlap(const fl_train_config *config, const fl_sequences *training,
                                    const fl_sequences *evaluation, fl_error *error);

/* What happened, one entry a step. */
typedef struct fl_training_history {
    size_t steps;   /* entries below; fewer than planned when it diverged */
    double *loss, *gradient_norm, *learning_rate; /* [planned]; before the step, norm before clipping */
    size_t evaluations;
    size_t *evaluation_step;  /* [evaluations] steps taken before it */
    double *evaluation_value; /* what the caller's evaluate gave */
    size_t tokens_seen;
    size_t bytes;             /* memory of activations and optimiser */
    double seconds;           /* over all sessions of a resumed training, evaluations left out */
    bool diverged;            /* the last entry is not finite; parameters are those before it */
} fl_training_history;

void fl_training_history_release(fl_training_history *history);

/* Called by a run; every member may be NULL. */
typedef struct fl_training_hooks {
    void (*step)(void *context, const fl_training_history *history); /* after each step */
    fl_status (*evaluate)(void *context, double *value, fl_error *error); /* every evaluate_every steps and at the end */
    void *context;
} fl_training_hooks;

typedef struct fl_training_options {
    const fl_train_config *config;
    const fl_sequences *sequences;
    const char *checkpoint_path; /* NULL: none. Resumed from when it is there; written every checkpoint_every steps, when the
                                    run is cancelled, and at the end */
    const char *identity;        /* of the whole run (its id): a checkpoint of another one is refused */
    const fl_progress *progress;
    const fl_training_hooks *hooks; /* or NULL */
} fl_training_options;

/* Trains *mechanism in place. Divergence is not an error: history->diverged. On FL_ERROR_CANCELLED the checkpoint holds
 * everything so far, and history is kept. */
fl_status fl_training_run(const fl_network *network, fl_mechanism *mechanism, const fl_training_options *options,
                          fl_training_history *history, fl_error *error);

/* Deletes a checkpoint that was saved under another identity, so that the training starts afresh; one that cannot be read
 * stays, for fl_training_run to refuse. */
fl_status fl_training_discard_other(const char *checkpoint_path, const char *identity, fl_error *error);

/* Index of the data's sequence that the n-th draw of a training uses, n from 0. Shuffled: every pass over the data in another
 * order, from seed and pass alone. */
fl_status fl_training_order(const fl_train_config *config, size_t sequences, size_t first, size_t count, size_t *out,
                            fl_error *error);

#endif
