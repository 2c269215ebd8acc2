/* Experiment: the top level of a config file, and the cells a sweep makes of it.
 *
 * The pinned keys are in the house plan. `variant`, `train` and `tasks` are left as nodes: the floors above bind them with
 * their own tables (attn_variants/variant.h, engine, eval), all through options.h. */
#ifndef FL_CONFIG_EXPERIMENT_H
#define FL_CONFIG_EXPERIMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"
#include "harness/config/cell_label.h"
#include "harness/config/node.h"
#include "harness/config/options.h"
#include "harness/config/self_generated.h"

/* Whether rows of a text begin with the tokenizer's beginning-of-sequence token; auto: when its own template says so. */
typedef enum fl_text_bos { FL_TEXT_BOS_AUTO = 0, FL_TEXT_BOS_TRUE, FL_TEXT_BOS_FALSE } fl_text_bos;

typedef struct fl_text_config {
    char *path;             /* a text file, or NULL */
    char *ids;              /* a JSON file: list of lists of token ids, or NULL */
    fl_self_generated self_generated; /* exactly one of path, ids and this */
    size_t sequence_length; /* tokens; with ids: 0 = as they are */
    size_t sequences;       /* at most so many; 0 = all there are */
    int bos;                /* fl_text_bos; of a path only */
} fl_text_config;

typedef struct fl_measure_config {
    bool teacher_forced, propagated, diagnostics, language_model;
    bool self_check;
    const fl_node *ablate;  /* into the cell's document, or NULL */
} fl_measure_config;

typedef enum fl_device { FL_DEVICE_CPU = 0, FL_DEVICE_CUDA } fl_device;
typedef enum fl_precision { FL_PRECISION_EXACT = 0, FL_PRECISION_FAST } fl_precision;

/* Where it is computed. Not part of the run id: `exact` is the same experiment on every device. */
typedef struct fl_compute_config {
    int device;    /* fl_device */
    int precision; /* fl_precision */
    double memory; /* MiB of a device's memory at most; 0 = all but a little */
} fl_compute_config;

typedef struct fl_experiment {
    char *name;
    char *model_path;       /* NULL when the file has no `model` */
    double widen_memory;    /* MiB of weights widened to float32; 0 = fl_compute_widen_budget */
    fl_compute_config compute;
    bool has_text;
    fl_text_config text;
    fl_measure_config measure;
    const fl_node *variant, *train, *tasks; /* into document; NULL when absent, or (train) when a floor above has set it aside */
    fl_document *document;                  /* this cell's own tree, sweep removed, overrides applied; owned */
    fl_resolved *resolved;                  /* owned; grows as the floors above bind their parts */
    char *cell_label;                       /* "variant.rule=kda train.seed=2": the axes of the sweep; "" without one */
    char **own_keys;                        /* [own_key_count] owned: what sweep.list or sweep.zip sets for this very cell */
    size_t own_key_count;
    char **unused;                          /* [unused_count] owned: keys left out of this cell (attn_variants/unused_keys.h) */
    size_t unused_count;
    char *label;                            /* what it is called in tables, unique in its list: cell_label.h */
    fl_cell_axes axes;                      /* the axes that vary, with the names of their values */
} fl_experiment;

typedef struct fl_experiment_list {
    size_t count;
    fl_experiment **cells;
    size_t duplicates; /* cells dropped because an earlier one has the same document */
    size_t excluded;   /* cells dropped by sweep.exclude */
} fl_experiment_list;

/* Reads `path`, applies overrides in order, expands `sweep` and binds the top level of every cell. Relative paths inside the
 * file are relative to the working directory, then to the program's own data (harness/base/data_path.h), as `path` itself is.
 *
 * sweep.grid: {dotted.key: [values], ...}      every combination
 * sweep.zip:  {dotted.key: [values], ...}      lists of one length, walked together; one axis
 * sweep.list: [{dotted.key: value, ...}, ...]  cells written out; one axis
 * sweep.exclude: [{dotted.key: value, ...}]    cells in which all of these hold are dropped; an entry that drops
 *                                              none is an error, unless there are overrides
 * What is outside `sweep`, and what sweep.grid sets, is common to all cells: a key of it that a cell's rule does not take is
 * left out of that cell when another cell takes it (attn_variants/unused_keys.h).
 * What is outside `sweep`, and what sweep.grid sets, is common to all cells: a key of it that a cell's rule does not take is
 * left out of that cell when another cell takes it (attn_variants/unused_keys.h).
 * The axes are multiplied in file order, the last one fastest. An override beats the sweep: its key is no axis any more. */
fl_status fl_experiment_load(const char *path, const char *const *overrides, size_t override_count,
                             fl_experiment_list **out, fl_error *error);
fl_status fl_experiment_parse(const char *text, const char *file_name, const char *const *overrides,
                              size_t override_count, fl_experiment_list **out, fl_error *error);
/* The keys of the top level, of model, text and measure. */
const fl_option_section *fl_experiment_sections(size_t *count);
/* For who has changed the documents of cells: drops those whose document is that of one before them; makes the labels anew. */
fl_status fl_experiment_list_drop_equal(fl_experiment_list *list, fl_error *error);
fl_status fl_experiment_list_label(fl_experiment_list *list, fl_error *error);
void fl_experiment_list_destroy(fl_experiment_list *list);

/* Run id: 12 hex digits of the hash of the canonical resolved config and of the content hashes given (model, text, training
 * text, tasks, mechanism file, ..., always in one order), so the same work has the same id wherever its files lie. Left out:
 * `name`, `output`, `threads`, `compute`, and every key whose last name is path, ids or mechanism, whose content hash the caller gives.
 * Call it after every floor has bound its part; what no floor has bound is taken as it was written. */
fl_status fl_experiment_run_id(const fl_experiment *experiment, const char *const *content_hashes, size_t count,
                               char out[13], fl_error *error);

#endif
