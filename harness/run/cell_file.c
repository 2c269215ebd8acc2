#include "harness/run/cell_file.h"

#include <stdint.h>
#include <stdio.h>

#include "harness/base/memory.h"
#include "harness/base/build_info.h"
#include "harness/store/axis_record.h"
#include "harness/store/fingerprint.h"
#include "harness/store/provenance.h"
#include "harness/store/run_file.h"
#include "harness/store/run_record.h"
#include "harness/store/task_record.h"

enum { PATH_BYTES = 256 };

static bool has_diverged(const fl_cell_file *content) {
    return content->cell->history.diverged || (content->result != NULL && content->result->diverged);
}

static fl_status write_header(fl_run_file *file, const fl_cell_file *content, fl_error *error) {
    const fl_cell_work *cell = content->cell;
    const fl_run_header header = {.run_id = cell->run_id,
                                  .name = cell->experiment->name,
                                  .cell = cell->experiment->cell_label,
                                  .status = has_diverged(content) ? "diverged" : "complete",
                                  .tier = fl_cell_tier(cell)};
    FL_TRY(fl_run_record_write_header(file, &header, error));
    FL_TRY(fl_run_file_set_text(file, "/", "label", cell->label, error));
    FL_TRY(fl_axis_record_write(file, &cell->experiment->axes, error));
    FL_TRY(fl_run_record_write_config(file, cell->experiment->resolved, error));
    if (cell->experiment->unused_count == 0) return FL_OK;
    return fl_run_file_write_texts(
        file, "/config_unused", cell->experiment->unused_count, (const char *const *)cell->experiment->unused,
        "keys of the sweep's common part that this cell's rule does not take", error);
}

/* The same run without a part. */
static fl_status write_comparisons(fl_run_file *file, const fl_cell_file *content, fl_error *error) {
    if (content->linear_off != NULL)
        FL_TRY(fl_run_record_write_comparison(file, "/baseline/linear_off", content->linear_off, error));
    for (size_t branch = 0; branch < FL_BRANCH_COUNT; branch++) {
        char root[PATH_BYTES];
        if (content->ablations[branch] == NULL) continue;
        snprintf(root, sizeof root, "/ablation/%s_off", fl_branch_names[branch]);
        FL_TRY(fl_run_record_write_comparison(file, root, content->ablations[branch], error));
    }
    return FL_OK;
}

/* Metrics of another variant on the same items, and how this one differs from it. */
static fl_status write_task_baseline(fl_run_file *file, const char *root, const fl_task_result *own,
                                     const fl_task_result *other, fl_error *error) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "/baseline/%s/tasks/%s", root, own->label);
    for (size_t m = 0; m < other->metric_count; m++) {
        FL_TRY(fl_run_file_set_number(file, path, other->metrics[m].name, other->metrics[m].value, error));
    }
    fl_paired_comparison paired;
    if (own->correct == NULL || fl_task_compare(other, own, &paired, NULL) != FL_OK) return FL_OK;
    const struct {
        const char *name;
        double value;
    } attributes[] = {{"difference", paired.difference},
                      {"difference_stderr", paired.difference_stderr},
                      {"only_this_right", (double)paired.only_second},
                      {"only_baseline_right", (double)paired.only_first},
                      {"mcnemar_exact_p", paired.exact_p}};
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        FL_TRY(fl_run_file_set_number(file, path, attributes[i].name, attributes[i].value, error));
    }
    return FL_OK;
}

static fl_status write_tasks(fl_run_file *file, const fl_cell_file *content, fl_error *error) {
    for (size_t t = 0; content->tasks != NULL && t < content->tasks->tasks; t++) {
        const fl_task_result *own = fl_task_table_at(content->tasks, t, content->task_row);
        FL_TRY(fl_task_record_write(file, own, error));
        FL_TRY(write_task_baseline(file, "full", own, fl_task_table_at(content->tasks, t, 0), error));
        if (content->linear_off_row == SIZE_MAX) continue;
        const fl_task_result *off = fl_task_table_at(content->tasks, t, content->linear_off_row);
        FL_TRY(write_task_baseline(file, "linear_off", own, off, error));
    }
    return FL_OK;
}

static fl_status write_training(fl_run_file *file, const fl_cell_work *cell, fl_error *error) {
    const fl_training_history *history = &cell->history;
    if (!fl_cell_has_training(cell)) return FL_OK;
    FL_TRY(fl_task_record_write_training(file, history->steps, history->loss, history->gradient_norm,
                                         history->learning_rate, error));
    if (history->evaluations > 0) {
        int64_t *steps = NULL;
        FL_TRY(FL_ALLOCATE(&steps, history->evaluations, error));
        for (size_t i = 0; i < history->evaluations; i++) steps[i] = (int64_t)history->evaluation_step[i];
        fl_status status =
            fl_run_file_write_integers(file, "/training/evaluation_step", 1, &history->evaluations, steps,
                                       "1", "steps taken before the evaluation", error);
        fl_memory_free(steps);
        FL_TRY(status);
        FL_TRY(fl_run_file_write_doubles(file, "/training/evaluation_perplexity", 1, &history->evaluations,
                                         history->evaluation_value, "1",
                                         "perplexity of the first sequences of the evaluation text", error));
    }
    FL_TRY(fl_run_file_set_integer(file, "/training", "tokens_seen", (int64_t)history->tokens_seen, error));
    FL_TRY(fl_run_file_set_integer(file, "/training", "diverged", history->diverged, error));
    FL_TRY(fl_run_record_write_bytes(file, "training_bytes", (int64_t)history->bytes,
                                     "activations and optimiser of the training", error));
    return fl_run_record_write_seconds(file, "training", history->seconds, "training, evaluations left out",
                                       error);
}

static fl_status write_self_check(fl_run_file *file, const fl_self_check_report *report, fl_error *error) {
    if (report != NULL) FL_TRY(fl_run_file_set_integer(file, "/self_check", "passed", report->passed, error));
    for (size_t i = 0; report != NULL && i < report->count; i++) {
        const fl_self_check_row *row = &report->rows[i];
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "/self_check/%s", row->name);
        FL_TRY(fl_run_file_set_text(file, path, "meaning", row->meaning, error));
        FL_TRY(fl_run_file_set_integer(file, path, "applicable", row->applicable, error));
        FL_TRY(fl_run_file_set_integer(file, path, "passed", row->passed, error));
        FL_TRY(fl_run_file_set_number(file, path, "figure", row->figure, error));
        FL_TRY(fl_run_file_set_number(file, path, "bound", row->bound, error));
        FL_TRY(fl_run_file_set_text(file, path, "place", row->place, error));
    }
    return FL_OK;
}

static const char *text_name(const char *path, const char *ids, const fl_self_generated *own) {
    return own->node != NULL ? "self_generated" : path != NULL ? path : ids;
}

static fl_status fill_provenance(fl_provenance *provenance, const fl_cell_file *content, fl_error *error) {
    const fl_experiment *experiment = content->cell->experiment;
    const fl_cell_group *group = content->group;
    const fl_variant *variant = content->cell->linearised.variant;
    const fl_cell_parts *parts = &content->cell->parts;
    char threads[24], seeds[64], bos[24], now[FL_TIME_TEXT_BYTES];
    snprintf(threads, sizeof threads, "%zu", fl_threads_count(group->bench.compute->threads));
    if (parts->has_train) {
        snprintf(seeds, sizeof seeds, "variant %llu, train %llu", (unsigned long long)variant->seed,
                 (unsigned long long)parts->train.seed);
    } else {
        snprintf(seeds, sizeof seeds, "variant %llu", (unsigned long long)variant->seed);
    }
    fl_provenance_now(now);
    snprintf(bos, sizeof bos, "%ld", (long)group->text.bos);
    if (group->text.bos < 0) snprintf(bos, sizeof bos, "none");
    const struct {
        char **member;
        const char *text;
    } members[] = {
        {&provenance->code_revision, fl_build_revision()},
        {&provenance->config_file, content->list->config},
        {&provenance->started, content->started},
        {&provenance->finished, now},
        {&provenance->threads, threads},
        {&provenance->seeds, seeds},
        {&provenance->model, experiment->model_path},
        {&provenance->model_configuration, group->descriptor},
        {&provenance->weights_hash_before, group->weights.text},
        {&provenance->weights_hash_after, content->weights_after.text},
        {&provenance->tokenizer_hash, group->tokenizer.text[0] != '\0' ? group->tokenizer.text : NULL},
        {&provenance->text,
         text_name(experiment->text.path, experiment->text.ids, &experiment->text.self_generated)},
        {&provenance->text_hash, group->text.rows.text},
        {&provenance->text_bos, experiment->text.path != NULL ? bos : NULL},
        {&provenance->mechanism, variant->mechanism_path},
        {&provenance->train_text,
         text_name(parts->train.path, parts->train.ids, &parts->train.self_generated)},
        {&provenance->train_text_hash, parts->has_train ? parts->train_hash.text : NULL},
        {&provenance->tasks_hash, parts->tasks.count > 0 ? parts->tasks_hash.text : NULL},
    };
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        FL_TRY(fl_provenance_set(members[i].member, members[i].text, error));
    }
    const fl_hash mechanism = fl_mechanism_hash(content->cell->linearised.mechanism);
    return fl_provenance_set(&provenance->mechanism_hash, mechanism.text, error);
}

static fl_status write_provenance(fl_run_file *file, const fl_cell_file *content, fl_error *error) {
    fl_provenance provenance;
    FL_TRY(fl_provenance_collect(&provenance, error));
    fl_status status = fill_provenance(&provenance, content, error);
    if (status == FL_OK) status = fl_provenance_write(file, &provenance, error);
    fl_provenance_release(&provenance);
    const fl_source_table sources = fl_fingerprint_sources();
    if (status == FL_OK)
        status = fl_fingerprint_write(file, &sources, content->cell->linearised.variant->rule->name, error);
    return status;
}

static fl_status write_warnings(fl_run_file *file, const fl_cell_work *cell, fl_error *error) {
    if (cell->warning_count == 0) return FL_OK;
    return fl_run_file_write_texts(file, "/warnings", cell->warning_count,
                                   (const char *const *)cell->warnings,
                                   "what was measured and can hardly be meant", error);
}

static fl_status write_timing(fl_run_file *file, const fl_cell_file *content, fl_error *error) {
    FL_TRY(fl_run_record_write_seconds(
        file, "frozen", content->frozen_seconds,
        "frozen passes over the text, made once for all cells that shared them", error));
    FL_TRY(fl_run_record_write_seconds(file, "cell", content->seconds,
                                       "the cell's share of the time of its batch, and its own training",
                                       error));
    const int64_t sharing = (int64_t)content->sharing;
    return fl_run_file_write_integers(file, "/timing/cells_sharing_frozen", 0, NULL, &sharing, "1",
                                      "cells that shared the frozen passes", error);
}

fl_status fl_cell_file_write(const fl_cell_file *content, fl_error *error) {
    fl_run_file *file = NULL;
    FL_TRY(fl_run_file_create(content->list->out, content->cell->run_id, &file, error));
    fl_status status = FL_OK;
    FL_TRY_DONE(status, write_header(file, content, error));
    if (content->result != NULL) {
        FL_TRY_DONE(status, fl_run_record_write_text_result(file, content->result, error));
    }
    FL_TRY_DONE(status, write_comparisons(file, content, error));
    FL_TRY_DONE(status, write_training(file, content->cell, error));
    FL_TRY_DONE(status, write_tasks(file, content, error));
    FL_TRY_DONE(status, write_self_check(file, content->self_check, error));
    FL_TRY_DONE(status, write_warnings(file, content->cell, error));
    FL_TRY_DONE(status, write_timing(file, content, error));
    FL_TRY_DONE(status, write_provenance(file, content, error));
    status = fl_run_file_commit(file, error);
    file = NULL;
done:
    fl_run_file_discard(file);
    return status;
}
