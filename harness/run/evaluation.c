#include "harness/run/evaluation.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/clock.h"
#include "harness/base/memory.h"
#include "harness/run/cell_claim.h"
#include "harness/run/cell_file.h"
#include "harness/run/cell_tasks.h"
#include "harness/run/cell_training.h"
#include "harness/run/finished_stage.h"
#include "harness/measure/self_check.h"
#include "harness/measure/text_evaluation.h"
#include "harness/store/provenance.h"

_Static_assert((int)FL_EVALUATION_BATCH <= (int)FL_CELL_TRAINING_MOST, "a batch may train together");

enum { MOST_MECHANISMS = FL_EVALUATION_BATCH * (2 + FL_BRANCH_COUNT), NONE = MOST_MECHANISMS };

/* A variant made for the comparison: a baseline or an ablation. */
typedef struct derived {
    fl_variant *variant;
    fl_mechanism *mechanism;
} derived;

/* Mechanisms 0 .. cells-1 are the cells', the rest are derived. */
typedef struct batch {
    fl_cell_work *cells[FL_EVALUATION_BATCH];
    size_t cell_count, derived_count;
    derived derived[FL_EVALUATION_BATCH * (1 + FL_BRANCH_COUNT)];
    size_t baseline_of[FL_EVALUATION_BATCH];                  /* index of a mechanism, or NONE */
    size_t ablation_of[FL_EVALUATION_BATCH][FL_BRANCH_COUNT]; /* likewise, by branch */
    const fl_mechanism *mechanisms[MOST_MECHANISMS];
    fl_text_result results[MOST_MECHANISMS];
    bool measured[MOST_MECHANISMS];                         /* results that are there */
    fl_hash keys[FL_EVALUATION_BATCH];                      /* of finished_stage.h */
    bool shelved[FL_EVALUATION_BATCH][2 + FL_BRANCH_COUNT]; /* texts that the cell has a file of */
    fl_self_check_report checks[FL_EVALUATION_BATCH];
    fl_task_table tables[FL_EVALUATION_BATCH];
    size_t table_of[FL_EVALUATION_BATCH]; /* index of a table, or NONE */
    double frozen_seconds, began;         /* began: monotonic */
    char started[FL_TIME_TEXT_BYTES];
} batch;

static bool is_linear_off(const fl_variant *variant) {
    return strcmp(variant->rule->name, "none") == 0;
}

static size_t mechanism_count(const batch *b) {
    return b->cell_count + b->derived_count;
}

/* The index of a mechanism already in the batch that keeps `off`'s tokens and has no linear part. */
static size_t find_linear_off(const batch *b, const fl_variant *off) {
    for (size_t i = 0; i < mechanism_count(b); i++) {
        const fl_variant *variant = b->mechanisms[i]->variant;
        if (is_linear_off(variant) && fl_variant_same_exact_set(variant, off)) return i;
    }
    return NONE;
}

/* Takes over `variant`; *index = NONE when it is NULL (the cell has no such part). */
static fl_status add_derived(batch *b, size_t cell, fl_variant *variant, size_t *index, fl_error *error) {
    *index = NONE;
    if (variant == NULL) return FL_OK;
    if (is_linear_off(variant)) {
        *index = find_linear_off(b, variant);
        if (*index != NONE) {
            fl_variant_destroy(variant);
            return FL_OK;
        }
    }
    fl_mechanism *mechanism = NULL;
    fl_status status = fl_mechanism_derive(b->cells[cell]->linearised.mechanism, variant, &mechanism, error);
    if (status != FL_OK) {
        fl_variant_destroy(variant);
        return status;
    }
    *index = mechanism_count(b);
    b->mechanisms[*index] = mechanism;
    b->derived[b->derived_count++] = (derived){variant, mechanism};
    return FL_OK;
}

static fl_status add_ablation(batch *b, size_t cell, fl_branch branch, size_t *index, fl_error *error) {
    fl_variant *variant = NULL;
    *index = NONE;
    FL_TRY(fl_variant_ablate(b->cells[cell]->linearised.variant, branch, &variant, error));
    return add_derived(b, cell, variant, index, error);
}

static fl_status assemble(batch *b, fl_error *error) {
    for (size_t i = 0; i < b->cell_count; i++) b->mechanisms[i] = b->cells[i]->linearised.mechanism;
    for (size_t i = 0; i < b->cell_count; i++) {
        const fl_cell_parts *parts = &b->cells[i]->parts;
        for (size_t branch = 0; branch < FL_BRANCH_COUNT; branch++) b->ablation_of[i][branch] = NONE;
        FL_TRY(add_ablation(b, i, FL_BRANCH_LINEAR, &b->baseline_of[i], error));
        for (size_t a = 0; a < parts->ablation_count; a++) {
            fl_branch branch = parts->ablations[a];
            FL_TRY(add_ablation(b, i, branch, &b->ablation_of[i][branch], error));
        }
    }
    return FL_OK;
}

static void release(batch *b) {
    for (size_t i = 0; i < mechanism_count(b); i++) fl_text_result_release(&b->results[i]);
    for (size_t i = 0; i < b->cell_count; i++) fl_task_table_release(&b->tables[i]);
    for (size_t i = 0; i < b->derived_count; i++) {
        fl_mechanism_destroy(b->derived[i].mechanism);
        fl_variant_destroy(b->derived[i].variant);
    }
    fl_memory_free(b);
}

/* Neither an interrupt nor a full disk is the cell's fault: it stays as it is, to be measured later. */
static bool is_of_the_cell(fl_status status) {
    return status != FL_ERROR_CANCELLED && status != FL_ERROR_DISK;
}

/* The cell's part in the run is over: failed. */
static void fail_cell(fl_cell_work *cell, const fl_error *cause, const fl_evaluation_options *options) {
    fl_cell_fail(cell, cause);
    fl_cell_give_back(cell, cause);
    options->listener(options->context, cell);
}

/* Cell `first` and those after it that can be fitted with it; marks them in `seen`. */
static size_t training_group(const batch *b, size_t first, bool *seen, fl_cell_work **together) {
    size_t count = 0;
    if (seen[first] || !fl_cell_has_training(b->cells[first])) return 0;
    for (size_t i = first; i < b->cell_count; i++) {
        fl_cell_work *cell = b->cells[i];
        if (seen[i] || !fl_cell_has_training(cell)) continue;
        if (i > first && !fl_cell_trains_with(b->cells[first], cell)) continue;
        together[count++] = cell;
        seen[i] = true;
    }
    return count;
}

static fl_status train_together(const fl_cell_list *list, fl_cell_group *group, fl_cell_work **cells,
                                size_t count, const fl_evaluation_options *options, fl_error *error) {
    double began = fl_clock_seconds();
    fl_status status = fl_cells_train(list, group, cells, count, options->progress, error);
    if (status != FL_OK) return fl_error_prepend(error, status, "%s", cells[0]->label);
    for (size_t i = 0; i < count; i++) {
        cells[i]->training_seconds = (fl_clock_seconds() - began) / (double)count;
        fl_cell_journal(cells[i], "training", cells[i]->training_seconds);
    }
    return FL_OK;
}

/* Cells that can be fitted together are. */
static fl_status train_cells(batch *b, const fl_cell_list *list, fl_cell_group *group,
                             const fl_evaluation_options *options, fl_error *error) {
    bool seen[FL_EVALUATION_BATCH] = {false};
    for (size_t i = 0; i < b->cell_count; i++) {
        fl_cell_work *together[FL_EVALUATION_BATCH];
        size_t count = training_group(b, i, seen, together);
        if (count > 0) FL_TRY(train_together(list, group, together, count, options, error));
    }
    return FL_OK;
}

static void journal_all(const batch *b, const char *event, double began) {
    for (size_t i = 0; i < b->cell_count; i++)
        fl_cell_journal(b->cells[i], event, fl_clock_seconds() - began);
}

/* A result of the text that a cell's run file needs: slot 0 is its own, 1 the baseline's, then by branch. */
enum { TEXT_SLOTS = 2 + FL_BRANCH_COUNT };

static size_t text_of(const batch *b, size_t cell, size_t slot) {
    if (slot == 0) return cell;
    return slot == 1 ? b->baseline_of[cell] : b->ablation_of[cell][slot - 2];
}

static const char *text_name(size_t slot, char name[32]) {
    if (slot >= 2) snprintf(name, 32, "%s_ablated", fl_branch_names[slot - 2]);
    return slot == 0 ? "own" : slot == 1 ? "linear_off" : name;
}

static void read_texts_back(batch *b, const fl_cell_list *list) {
    char name[32];
    for (size_t i = 0; i < b->cell_count; i++) {
        for (size_t slot = 0; slot < TEXT_SLOTS; slot++) {
            const size_t m = text_of(b, i, slot);
            if (m == NONE || b->measured[m]) continue;
            b->shelved[i][slot] = fl_finished_text_load(list, b->cells[i], &b->keys[i], text_name(slot, name),
                                                        &b->results[m], &b->frozen_seconds);
            b->measured[m] = b->shelved[i][slot];
        }
    }
}

/* Only tasks make it worth while: without them the run files come next. */
static void keep_texts(batch *b, const fl_cell_list *list) {
    char name[32];
    bool more = false;
    for (size_t i = 0; i < b->cell_count; i++) more = more || b->cells[i]->parts.tasks.count > 0;
    for (size_t i = 0; more && i < b->cell_count; i++) {
        for (size_t slot = 0; slot < TEXT_SLOTS; slot++) {
            const size_t m = text_of(b, i, slot);
            if (m == NONE || b->shelved[i][slot]) continue;
            fl_finished_text_save(list, b->cells[i], &b->keys[i], text_name(slot, name), &b->results[m],
                                  b->frozen_seconds);
        }
    }
}

/* The mechanisms that were not read back, measured together. */
static fl_status measure_missing(batch *b, const fl_cell_group *group, const fl_evaluation_options *options,
                                 fl_error *error) {
    const fl_measure_config *wanted = &b->cells[0]->experiment->measure;
    const fl_text_evaluation_options what = {.teacher_forced = wanted->teacher_forced,
                                             .propagated = wanted->propagated,
                                             .diagnostics = wanted->diagnostics,
                                             .language_model = wanted->language_model};
    const fl_mechanism *mechanisms[MOST_MECHANISMS];
    size_t places[MOST_MECHANISMS], count = 0;
    for (size_t m = 0; m < mechanism_count(b); m++) {
        if (b->measured[m]) continue;
        mechanisms[count] = b->mechanisms[m];
        places[count++] = m;
    }
    if (count == 0) return FL_OK;
    fl_text_result *results = NULL;
    double began = fl_clock_seconds();
    FL_TRY(FL_ALLOCATE(&results, count, error));
    fl_status status = fl_text_evaluation_run(group->bench.network, &group->text.sequences, mechanisms, count,
                                              &what, options->progress, results, &b->frozen_seconds, error);
    for (size_t i = 0; status == FL_OK && i < count; i++) {
        b->results[places[i]] = results[i];
        b->measured[places[i]] = true;
    }
    fl_memory_free(results);
    if (status == FL_OK) journal_all(b, "text", began);
    return status;
}

static fl_status measure_text(batch *b, const fl_cell_list *list, const fl_cell_group *group,
                              const fl_evaluation_options *options, fl_error *error) {
    for (size_t i = 0; i < b->cell_count; i++) {
        FL_TRY(fl_finished_key(b->cells[i], fl_threads_count(group->bench.compute->threads), &b->keys[i],
                               error));
    }
    if (group->text.sequences.count == 0) return FL_OK;
    read_texts_back(b, list);
    FL_TRY(measure_missing(b, group, options, error));
    keep_texts(b, list);
    return FL_OK;
}

/* The shelf of one table: the cells' own files. */
typedef struct table_shelf {
    batch *b;
    const fl_cell_list *list;
    size_t first; /* cell that the table is of */
} table_shelf;

/* What a row of a table is to a cell that shares it; NULL: nothing. */
static const char *row_name(const table_shelf *shelf, size_t cell, size_t row) {
    const batch *b = shelf->b;
    if (b->table_of[cell] != shelf->first) return NULL;
    if (row == 0) return "full";
    if (row == 1 + cell) return "own";
    return b->baseline_of[cell] != NONE && row == 1 + b->baseline_of[cell] ? "linear_off" : NULL;
}

static bool load_row(void *context, size_t task, size_t row, fl_task_result *out) {
    const table_shelf *shelf = context;
    for (size_t i = shelf->first; i < shelf->b->cell_count; i++) {
        const char *name = row_name(shelf, i, row);
        if (name != NULL &&
            fl_finished_task_load(shelf->list, shelf->b->cells[i], &shelf->b->keys[i], task, name, out))
            return true;
    }
    return false;
}

static void save_row(void *context, size_t task, size_t row, const fl_task_result *result) {
    const table_shelf *shelf = context;
    for (size_t i = shelf->first; i < shelf->b->cell_count; i++) {
        const char *name = row_name(shelf, i, row);
        if (name == NULL) continue;
        fl_finished_task_save(shelf->list, shelf->b->cells[i], &shelf->b->keys[i], task, name, result);
    }
}

static void finish_task(void *context, size_t task, double seconds) {
    const table_shelf *shelf = context;
    char event[FL_PROGRESS_DETAIL_BYTES];
    for (size_t i = shelf->first; i < shelf->b->cell_count; i++) {
        fl_cell_work *cell = shelf->b->cells[i];
        if (shelf->b->table_of[i] != shelf->first) continue;
        snprintf(event, sizeof event, "task %s", cell->parts.tasks.items[task].label);
        fl_cell_journal(cell, event, seconds);
    }
}

/* Cells with the same tasks share a table, in which rows of other cells stay empty. */
static fl_status run_table(batch *b, size_t first, const fl_cell_list *list, const fl_cell_group *group,
                           const fl_tokenizer *tokenizer, const fl_evaluation_options *options,
                           fl_error *error) {
    const fl_mechanism *wanted[MOST_MECHANISMS] = {NULL};
    const fl_cell_parts *parts = &b->cells[first]->parts;
    table_shelf rows = {.b = b, .list = list, .first = first};
    const fl_task_shelf shelf = {
        .load = load_row, .save = save_row, .finished = finish_task, .context = &rows};
    for (size_t i = first; i < b->cell_count; i++) {
        if (strcmp(b->cells[i]->parts.tasks_key.text, parts->tasks_key.text) != 0) continue;
        b->table_of[i] = first;
        wanted[i] = b->mechanisms[i];
        if (b->baseline_of[i] != NONE) wanted[b->baseline_of[i]] = b->mechanisms[b->baseline_of[i]];
    }
    return fl_task_table_run(group->bench.network, tokenizer, &parts->tasks, wanted, mechanism_count(b),
                             &shelf, options->progress, &b->tables[first], error);
}

static fl_status run_tasks(batch *b, const fl_cell_list *list, const fl_cell_group *group,
                           const fl_evaluation_options *options, fl_error *error) {
    fl_tokenizer *tokenizer = NULL;
    fl_status status = FL_OK;
    for (size_t i = 0; i < b->cell_count; i++) b->table_of[i] = NONE;
    for (size_t i = 0; i < b->cell_count && status == FL_OK; i++) {
        if (b->cells[i]->parts.tasks.count == 0 || b->table_of[i] != NONE) continue;
        if (tokenizer == NULL) {
            status = fl_workbench_tokenizer(b->cells[i]->experiment->model_path, &tokenizer, error);
        }
        if (status == FL_OK) status = run_table(b, i, list, group, tokenizer, options, error);
    }
    fl_tokenizer_close(tokenizer);
    return status;
}

static fl_status self_check(batch *b, const fl_cell_group *group, const fl_evaluation_options *options,
                            fl_error *error) {
    for (size_t i = 0; i < b->cell_count; i++) {
        if (!b->cells[i]->experiment->measure.self_check) continue;
        if (group->text.sequences.count == 0) {
            return fl_error_set(error, FL_ERROR_ARGUMENT, "self check: a text is needed");
        }
        FL_TRY(fl_self_check_run(group->bench.network, b->mechanisms[i], group->text.sequences.ids[0],
                                 group->text.sequences.lengths[0], 0, &group->weights, &b->checks[i], error));
        b->cells[i]->check_failed = !b->checks[i].passed;
        if (options->checked != NULL) options->checked(options->context, b->cells[i], &b->checks[i]);
    }
    return FL_OK;
}

static fl_status check_weights(const fl_cell_group *group, fl_hash *after, fl_error *error) {
    FL_TRY(fl_model_hash(group->bench.model, after, error));
    if (strcmp(after->text, group->weights.text) == 0) return FL_OK;
    return fl_error_set(
        error, FL_ERROR_IO,
        "%s: the frozen weights changed during the run (hash %s before, %s after); nothing was written",
        group->bench.model->path, group->weights.text, after->text);
}

static const fl_text_result *result_of(const batch *b, const fl_cell_group *group, size_t mechanism) {
    return mechanism != NONE && group->text.sequences.count > 0 ? &b->results[mechanism] : NULL;
}

/* A cell's share of the batch's time, and its own training. */
static double seconds_of(const batch *b, size_t cell) {
    double all = fl_clock_seconds() - b->began;
    for (size_t i = 0; i < b->cell_count; i++) all -= b->cells[i]->training_seconds;
    return (all > 0 ? all / (double)b->cell_count : 0) + b->cells[cell]->training_seconds;
}

static fl_cell_file content_of(const batch *b, size_t i, const fl_cell_list *list, const fl_cell_group *group,
                               const fl_hash *after) {
    fl_cell_file content = {
        .list = list,
        .cell = b->cells[i],
        .group = group,
        .weights_after = *after,
        .result = result_of(b, group, i),
        .linear_off = result_of(b, group, b->baseline_of[i]),
        .self_check = b->checks[i].count > 0 ? &b->checks[i] : NULL,
        .started = b->started,
        .seconds = seconds_of(b, i),
        .frozen_seconds = b->frozen_seconds,
        .sharing = b->cell_count,
    };
    for (size_t branch = 0; branch < FL_BRANCH_COUNT; branch++) {
        content.ablations[branch] = result_of(b, group, b->ablation_of[i][branch]);
    }
    if (b->table_of[i] != NONE) {
        content.tasks = &b->tables[b->table_of[i]];
        content.task_row = 1 + i;
        content.linear_off_row = b->baseline_of[i] != NONE ? 1 + b->baseline_of[i] : SIZE_MAX;
    }
    return content;
}

/* Stops where the disk is full: the cells that are left stay pending. */
static fl_status write_cells(const batch *b, const fl_cell_list *list, const fl_cell_group *group,
                             const fl_hash *after, const fl_evaluation_options *options, fl_error *error) {
    for (size_t i = 0; i < b->cell_count; i++) {
        fl_cell_work *cell = b->cells[i];
        const fl_cell_file content = content_of(b, i, list, group, after);
        fl_status status = fl_cell_keeps(cell) ? fl_cell_file_write(&content, error) : FL_OK;
        if (status == FL_ERROR_DISK) return status;
        if (status != FL_OK) {
            fail_cell(cell, error, options);
            continue;
        }
        if (!cell->lost) cell->state = FL_CELL_COMPUTED;
        fl_cell_give_back(cell, NULL);
        options->listener(options->context, cell);
    }
    return FL_OK;
}

/* What is measured is written, also when an interrupt comes now. */
static fl_status finish_batch(const batch *b, const fl_cell_list *list, const fl_cell_group *group,
                              const fl_evaluation_options *options, fl_error *error) {
    fl_hash after;
    fl_progress_hold(options->progress, true);
    fl_status status = check_weights(group, &after, error);
    if (status == FL_OK) status = write_cells(b, list, group, &after, options, error);
    fl_progress_hold(options->progress, false);
    return status;
}

static fl_status run_batch(fl_cell_list *list, fl_cell_group *group, fl_cell_work **cells, size_t count,
                           const fl_evaluation_options *options, fl_error *error) {
    batch *b = NULL;
    FL_TRY(FL_ALLOCATE(&b, 1, error));
    memcpy(b->cells, cells, count * sizeof cells[0]);
    b->cell_count = count;
    b->began = fl_clock_seconds();
    fl_provenance_now(b->started);
    fl_status status = FL_OK;
    FL_TRY_DONE(status, train_cells(b, list, group, options, error));
    FL_TRY_DONE(status, assemble(b, error));
    FL_TRY_DONE(status, self_check(b, group, options, error));
    FL_TRY_DONE(status, measure_text(b, list, group, options, error));
    FL_TRY_DONE(status, run_tasks(b, list, group, options, error));
    FL_TRY_DONE(status, finish_batch(b, list, group, options, error));
done:
    release(b);
    return status;
}

/* The batch, and when it fails and is more than one cell, each alone. */
static fl_status run_batch_or_cells(fl_cell_list *list, fl_cell_group *group, fl_cell_work **cells,
                                    size_t count, const fl_evaluation_options *options, fl_error *error) {
    fl_status status = run_batch(list, group, cells, count, options, error);
    if (status == FL_OK || !is_of_the_cell(status)) return status;
    for (size_t i = 0; i < count; i++) {
        if (cells[i]->claim == NULL) continue;
        if (count > 1) status = run_batch(list, group, &cells[i], 1, options, error);
        if (!is_of_the_cell(status)) return status;
        if (status != FL_OK) fail_cell(cells[i], error, options);
    }
    return FL_OK;
}

/* Keeps in `cells` those that can be run. */
static fl_status equip_cells(const fl_cell_group *group, fl_cell_work **cells, size_t *count,
                             const fl_evaluation_options *options, fl_error *error) {
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        fl_status status = fl_linearised_equip(&cells[i]->linearised, &group->bench, &group->text.sequences,
                                               options->progress, error);
        if (!is_of_the_cell(status)) return status;
        if (status == FL_OK) {
            cells[kept++] = cells[i];
        } else {
            fail_cell(cells[i], error, options);
        }
    }
    *count = kept;
    return FL_OK;
}

/* Claims the next pending cells of the group, as many as may share a pass. */
static fl_status claim_cells(fl_cell_list *list, size_t group, const fl_evaluation_options *options,
                             fl_cell_work **cells, size_t *count, fl_error *error) {
    size_t most =
        options->batch > 0 && options->batch < FL_EVALUATION_BATCH ? options->batch : FL_EVALUATION_BATCH;
    *count = 0;
    for (size_t i = 0; i < list->count && *count < most; i++) {
        fl_cell_work *cell = &list->cells[i];
        if (cell->group != group || cell->state != FL_CELL_PENDING) continue;
        fl_status status = fl_cell_claim(list, cell, error);
        if (status == FL_ERROR_DISK) return status;
        if (status != FL_OK) fl_cell_fail(cell, error);
        if (cell->claim != NULL) {
            cells[(*count)++] = cell;
        } else {
            options->listener(options->context, cell);
        }
    }
    return FL_OK;
}

/* Whatever is still held: an interrupt or a failure of the whole group came between. */
static void give_back_all(fl_cell_work **cells, size_t count) {
    for (size_t i = 0; i < count; i++) fl_cell_give_back(cells[i], NULL);
}

static fl_status run_claimed(fl_cell_list *list, fl_cell_group *group, fl_cell_work **cells, size_t count,
                             const fl_evaluation_options *options, fl_error *error) {
    if (options->begun != NULL) options->begun(options->context, cells, count);
    FL_TRY(fl_workbench_prepare(&group->bench, options->threads, error));
    group->bench.network->stop = options->progress;
    FL_TRY(equip_cells(group, cells, &count, options, error));
    return count > 0 ? run_batch_or_cells(list, group, cells, count, options, error) : FL_OK;
}

/* *more: there was something to do. */
static fl_status run_next(fl_cell_list *list, size_t group_index, fl_cell_group *group,
                          const fl_evaluation_options *options, bool *more, fl_error *error) {
    fl_cell_work *cells[FL_EVALUATION_BATCH], *claimed[FL_EVALUATION_BATCH];
    size_t count = 0;
    fl_status status = claim_cells(list, group_index, options, cells, &count, error);
    *more = count > 0;
    memcpy(claimed, cells, sizeof claimed);
    if (status == FL_OK && count > 0) status = run_claimed(list, group, cells, count, options, error);
    if (group->bench.network != NULL) group->bench.network->stop = NULL;
    give_back_all(claimed, count);
    return status;
}

fl_status fl_evaluation_run(fl_cell_list *list, size_t group_index, fl_cell_group *group,
                            const fl_evaluation_options *options, fl_error *error) {
    fl_cell_beat beat = {.list = list, .outer = options->progress};
    const fl_progress progress = fl_cell_beat_progress(&beat);
    fl_evaluation_options beating = *options;
    beating.progress = &progress;
    for (bool more = true; more;) {
        if (options->interrupts() > 0) return fl_error_set(error, FL_ERROR_CANCELLED, "interrupted");
        fl_status status = run_next(list, group_index, group, &beating, &more, error);
        bool lost_claims = status == FL_ERROR_CANCELLED && options->interrupts() == 0;
        if (status != FL_OK && !lost_claims) return status;
    }
    return FL_OK;
}
