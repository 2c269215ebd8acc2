#include "harness/cli/evaluation.h"

#include <stdint.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/cli/cell_file.h"
#include "harness/measure/text_evaluation.h"
#include "harness/store/provenance.h"

enum { NO_BASELINE = 2 * FL_EVALUATION_BATCH };

/* Mechanisms 0 .. cells-1 are the cells', the rest baselines. */
typedef struct batch {
    fl_cell_work *cells[FL_EVALUATION_BATCH];
    size_t cell_count, baseline_count;
    fl_linearised baselines[FL_EVALUATION_BATCH];
    size_t baseline_of[FL_EVALUATION_BATCH]; /* index of a mechanism, or NO_BASELINE */
    const fl_mechanism *mechanisms[2 * FL_EVALUATION_BATCH];
    fl_text_result results[2 * FL_EVALUATION_BATCH];
    double frozen_seconds;
    char started[FL_TIME_TEXT_BYTES];
} batch;

static bool is_linear_off(const fl_variant *variant) {
    return strcmp(variant->rule->name, "none") == 0;
}

/* The index of a mechanism already in the batch that keeps `off`'s tokens and has no linear part. */
static size_t find_baseline(const batch *b, const fl_variant *off) {
    for (size_t i = 0; i < b->cell_count; i++) {
        const fl_variant *variant = b->cells[i]->linearised.variant;
        if (is_linear_off(variant) && fl_cell_same_exact_set(variant, off)) return i;
    }
    for (size_t i = 0; i < b->baseline_count; i++) {
        if (fl_cell_same_exact_set(b->baselines[i].variant, off)) return b->cell_count + i;
    }
    return NO_BASELINE;
}

static void add_baseline(batch *b, size_t cell, const fl_workbench *bench) {
    fl_linearised off;
    b->baseline_of[cell] = NO_BASELINE;
    /* A variant that has no "linear part off" (nothing would be left) goes without. */
    if (fl_linearised_linear_off(&b->cells[cell]->linearised, bench, &off, NULL) != FL_OK) return;
    b->baseline_of[cell] = find_baseline(b, off.variant);
    if (b->baseline_of[cell] != NO_BASELINE) {
        fl_linearised_release(&off);
        return;
    }
    b->baseline_of[cell] = b->cell_count + b->baseline_count;
    b->baselines[b->baseline_count++] = off;
}

static void assemble(batch *b, const fl_workbench *bench) {
    for (size_t i = 0; i < b->cell_count; i++) add_baseline(b, i, bench);
    for (size_t i = 0; i < b->cell_count; i++) b->mechanisms[i] = b->cells[i]->linearised.mechanism;
    for (size_t i = 0; i < b->baseline_count; i++)
        b->mechanisms[b->cell_count + i] = b->baselines[i].mechanism;
}

static void release(batch *b) {
    for (size_t i = 0; i < b->cell_count + b->baseline_count; i++) fl_text_result_release(&b->results[i]);
    for (size_t i = 0; i < b->baseline_count; i++) fl_linearised_release(&b->baselines[i]);
    fl_memory_free(b);
}

static fl_status measure(batch *b, const fl_cell_group *group, const fl_measure_config *wanted,
                         const fl_evaluation_options *options, fl_error *error) {
    const fl_text_evaluation_options what = {.teacher_forced = wanted->teacher_forced,
                                             .propagated = wanted->propagated,
                                             .diagnostics = wanted->diagnostics,
                                             .language_model = wanted->language_model};
    return fl_text_evaluation_run(group->bench.network, &group->text.sequences, b->mechanisms,
                                  b->cell_count + b->baseline_count, &what, options->progress, b->results,
                                  &b->frozen_seconds, error);
}

static fl_status check_weights(const fl_cell_group *group, fl_hash *after, fl_error *error) {
    FL_TRY(fl_model_hash(group->bench.model, after, error));
    if (strcmp(after->text, group->weights.text) == 0) return FL_OK;
    return fl_error_set(
        error, FL_ERROR_IO,
        "%s: the frozen weights changed during the run (hash %s before, %s after); nothing was written",
        group->bench.model->path, group->weights.text, after->text);
}

static void write_cells(const batch *b, const fl_cell_list *list, const fl_cell_group *group,
                        const fl_hash *after, const fl_evaluation_options *options) {
    for (size_t i = 0; i < b->cell_count; i++) {
        const fl_cell_file content = {
            .list = list,
            .cell = b->cells[i],
            .group = group,
            .weights_after = *after,
            .result = &b->results[i],
            .linear_off = b->baseline_of[i] != NO_BASELINE ? &b->results[b->baseline_of[i]] : NULL,
            .started = b->started,
            .frozen_seconds = b->frozen_seconds,
            .sharing = b->cell_count,
        };
        fl_error error;
        if (fl_cell_file_write(&content, &error) == FL_OK) {
            b->cells[i]->state = FL_CELL_COMPUTED;
        } else {
            fl_cell_fail(b->cells[i], &error);
        }
        options->listener(options->context, b->cells[i]);
    }
}

static fl_status run_batch(fl_cell_list *list, const fl_cell_group *group, fl_cell_work **cells, size_t count,
                           const fl_evaluation_options *options, fl_error *error) {
    batch *b = NULL;
    FL_TRY(FL_ALLOCATE(&b, 1, error));
    memcpy(b->cells, cells, count * sizeof cells[0]);
    b->cell_count = count;
    fl_provenance_now(b->started);
    assemble(b, &group->bench);
    fl_hash after;
    fl_status status = measure(b, group, &cells[0]->experiment->measure, options, error);
    if (status == FL_OK) status = check_weights(group, &after, error);
    if (status == FL_OK) write_cells(b, list, group, &after, options);
    release(b);
    return status;
}

/* The batch, and when it fails and is more than one cell, each alone. */
static fl_status run_batch_or_cells(fl_cell_list *list, const fl_cell_group *group, fl_cell_work **cells,
                                    size_t count, const fl_evaluation_options *options, fl_error *error) {
    fl_status status = run_batch(list, group, cells, count, options, error);
    if (status == FL_OK || status == FL_ERROR_CANCELLED) return status;
    for (size_t i = 0; i < count; i++) {
        if (count > 1) status = run_batch(list, group, &cells[i], 1, options, error);
        if (status == FL_ERROR_CANCELLED) return status;
        if (status == FL_OK) continue;
        fl_cell_fail(cells[i], error);
        options->listener(options->context, cells[i]);
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
        if (status == FL_ERROR_CANCELLED) return status;
        if (status == FL_OK) {
            cells[kept++] = cells[i];
        } else {
            fl_cell_fail(cells[i], error);
            options->listener(options->context, cells[i]);
        }
    }
    *count = kept;
    return FL_OK;
}

fl_status fl_evaluation_run(fl_cell_list *list, size_t group_index, fl_cell_group *group,
                            const fl_evaluation_options *options, fl_error *error) {
    size_t next = 0;
    for (;;) {
        fl_cell_work *cells[FL_EVALUATION_BATCH];
        size_t count = 0;
        for (; next < list->count && count < FL_EVALUATION_BATCH; next++) {
            fl_cell_work *cell = &list->cells[next];
            if (cell->group == group_index && cell->state == FL_CELL_PENDING) cells[count++] = cell;
        }
        if (count == 0) return FL_OK;
        if (options->interrupts() > 0) return fl_error_set(error, FL_ERROR_CANCELLED, "interrupted");
        FL_TRY(fl_workbench_prepare(&group->bench, options->threads, error));
        FL_TRY(equip_cells(group, cells, &count, options, error));
        if (count > 0) FL_TRY(run_batch_or_cells(list, group, cells, count, options, error));
    }
}
