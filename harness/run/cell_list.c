#include "harness/run/cell_list.h"

#include <assert.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "attn_variants/unused_keys.h"
#include "harness/base/memory.h"
#include "harness/run/cell_warnings.h"
#include "harness/run/sampled_text.h"
#include "harness/model/identity.h"
#include "harness/store/fingerprint.h"
#include "harness/store/run_file.h"

static bool same_text(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* Whether two cells can share one frozen pass. */
static bool share_pass(const fl_experiment *a, const fl_experiment *b) {
    return same_text(a->model_path, b->model_path) && a->has_text == b->has_text &&
           same_text(a->text.path, b->text.path) && same_text(a->text.ids, b->text.ids) &&
           fl_self_generated_same(&a->text.self_generated, &b->text.self_generated) &&
           a->text.sequence_length == b->text.sequence_length && a->text.sequences == b->text.sequences &&
           a->measure.teacher_forced == b->measure.teacher_forced &&
           a->measure.propagated == b->measure.propagated &&
           a->measure.diagnostics == b->measure.diagnostics &&
           a->measure.language_model == b->measure.language_model;
}

static size_t group_of(fl_cell_list *list, size_t cell) {
    for (size_t i = 0; i < cell; i++) {
        if (share_pass(list->cells[i].experiment, list->cells[cell].experiment)) return list->cells[i].group;
    }
    return list->groups++;
}

fl_status fl_cell_list_load(const char *config, const char *const *overrides, size_t override_count,
                            const char *out, fl_cell_list **list, fl_error *error) {
    fl_cell_list *made = NULL;
    FL_TRY(FL_ALLOCATE(&made, 1, error));
    made->config = config;
    made->out = out;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_experiment_load(config, overrides, override_count, &made->experiments, error));
    FL_TRY_DONE(status, fl_unused_keys_drop(made->experiments, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&made->cells, made->experiments->count, error));
    made->count = made->experiments->count;
    for (size_t i = 0; i < made->count; i++) {
        made->cells[i].experiment = made->experiments->cells[i];
        made->cells[i].label = made->experiments->cells[i]->label;
        made->cells[i].group = group_of(made, i);
    }
    *list = made;
done:
    if (status != FL_OK) fl_cell_list_destroy(made);
    return status;
}

void fl_cell_list_destroy(fl_cell_list *list) {
    if (list == NULL) return;
    for (size_t i = 0; i < list->count; i++) {
        fl_linearised_release(&list->cells[i].linearised);
        fl_cell_parts_release(&list->cells[i].parts);
        fl_training_history_release(&list->cells[i].history);
        fl_journal_close(list->cells[i].journal, true, NULL);
        fl_sweep_claim_release(list->cells[i].claim, NULL);
        fl_memory_free(list->cells[i].path);
        fl_memory_free(list->cells[i].message);
        fl_memory_free(list->cells[i].changed);
        fl_sweep_list_release(list->cells[i].warnings, list->cells[i].warning_count);
    }
    fl_memory_free(list->cells);
    if (list->experiments != NULL) fl_experiment_list_destroy(list->experiments);
    fl_memory_free(list);
}

void fl_cell_fail(fl_cell_work *cell, const fl_error *error) {
    cell->state = FL_CELL_FAILED;
    fl_memory_free(cell->message);
    cell->message = NULL;
    /* Without memory for the message the state alone must do. */
    if (fl_memory_copy_string(&cell->message, error->message, NULL) != FL_OK) cell->message = NULL;
}

void fl_cell_group_fail(fl_cell_list *list, size_t index, const fl_error *error) {
    for (size_t i = 0; i < list->count; i++) {
        fl_cell_work *cell = &list->cells[i];
        if (cell->group == index && cell->state == FL_CELL_PENDING) fl_cell_fail(cell, error);
    }
}

size_t fl_cell_list_count(const fl_cell_list *list, fl_cell_state state) {
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) count += list->cells[i].state == state;
    return count;
}

bool fl_cell_has_training(const fl_cell_work *cell) {
    return cell->parts.has_train && cell->linearised.mechanism != NULL &&
           fl_mechanism_parameter_count(cell->linearised.mechanism) > 0;
}

const char *fl_cell_tier(const fl_cell_work *cell) {
    static const char *const names[] = {"untrained", "calibrated", "trained"};
    const fl_variant *variant = cell->linearised.variant;
    const fl_mechanism *mechanism = cell->linearised.mechanism;
    fl_fit fit = mechanism != NULL ? mechanism->fit : FL_FIT_NONE;
    if (fl_cell_has_training(cell)) fit = fl_train_config_fit(&cell->parts.train, fit);
    return fit != FL_FIT_NONE && variant->lora_rank > 0 ? "adapted" : names[fit];
}

/* A run file that opens and says that it holds results. Notes whether it holds a self check that failed, and
 * whether other code has made it. */
static bool is_complete(fl_cell_work *cell) {
    const fl_source_table sources = fl_fingerprint_sources();
    fl_run_reader *reader = NULL;
    char *status = NULL;
    if (fl_run_reader_open(cell->path, &reader, NULL) != FL_OK) return false;
    bool complete = fl_run_reader_attribute_text(reader, "/", "status", &status, NULL) == FL_OK &&
                    (strcmp(status, "complete") == 0 || strcmp(status, "diverged") == 0);
    double passed = 1;
    if (fl_run_reader_attribute_number(reader, "/self_check", "passed", &passed, NULL) != FL_OK) passed = 1;
    cell->check_failed = passed == 0;
    fl_memory_free(cell->changed);
    complete =
        complete && fl_fingerprint_compare(reader, &sources, cell->rule, &cell->changed, NULL) == FL_OK;
    fl_memory_free(status);
    fl_run_reader_close(reader);
    return complete;
}

static fl_status identify(fl_cell_list *list, fl_cell_work *cell, const fl_cell_group *group,
                          fl_error *error) {
    fl_hash mechanism = {{0}};
    if (cell->linearised.variant->mechanism_path != NULL) {
        FL_TRY(fl_hash_file(cell->linearised.variant->mechanism_path, &mechanism, error));
    }
    const char *hashes[] = {group->identity.text, group->text.rows.text, mechanism.text,
                            cell->parts.train_hash.text, cell->parts.tasks_hash.text};
    FL_TRY(fl_experiment_run_id(cell->experiment, hashes, sizeof hashes / sizeof hashes[0], cell->run_id,
                                error));
    const fl_source_table sources = fl_fingerprint_sources();
    cell->rule = cell->linearised.variant->rule->name;
    FL_TRY(fl_fingerprint_of(&sources, cell->rule, &cell->fingerprint, error));
    size_t bytes = strlen(list->out) + sizeof cell->run_id + 8;
    fl_memory_free(cell->path);
    FL_TRY(FL_ALLOCATE(&cell->path, bytes, error));
    snprintf(cell->path, bytes, "%s/%s.h5", list->out, cell->run_id);
    return FL_OK;
}

static fl_status fail_as_before(const fl_cell_list *list, fl_cell_work *cell, fl_error *error) {
    fl_sweep_note note;
    fl_error before;
    FL_TRY(fl_sweep_read_failure(list->out, cell->run_id, &note, error));
    fl_error_set(&before, FL_ERROR_ARGUMENT,
                 "%s (%s, recorded by an earlier run: --retry-failed tries again)",
                 note.message != NULL ? note.message : "failed", note.time != NULL ? note.time : "no date");
    fl_cell_fail(cell, &before);
    fl_sweep_note_release(&note);
    return FL_OK;
}

fl_status fl_cell_take_state(const fl_cell_list *list, fl_cell_work *cell, fl_sweep_state state,
                             fl_error *error) {
    cell->stale = state == FL_SWEEP_STALE;
    cell->state = state == FL_SWEEP_RUNNING ? FL_CELL_ELSEWHERE : FL_CELL_PENDING;
    if (state == FL_SWEEP_FAILED && !list->policy.retry_failed && !cell->rerun)
        return fail_as_before(list, cell, error);
    if (state != FL_SWEEP_DONE) return FL_OK;
    if (!is_complete(cell)) {
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "%s: not a run file of this version; delete it to have the cell computed again",
                            cell->path);
    }
    cell->state = FL_CELL_DONE;
    return FL_OK;
}

/* A pattern without wildcards may match anywhere in the label. */
static bool is_rerun(const fl_cell_list *list, const fl_cell_work *cell) {
    const char *pattern = list->rerun;
    if (pattern == NULL) return false;
    if (strcmp(pattern, "all") == 0) return true;
    if (strcmp(pattern, "failed") == 0) return false; /* the policy's */
    return strstr(cell->label, pattern) != NULL || fnmatch(pattern, cell->label, 0) == 0 ||
           fnmatch(pattern, cell->run_id, 0) == 0;
}

static fl_status first_state(const fl_cell_list *list, fl_cell_work *cell, fl_error *error) {
    for (const fl_cell_work *other = list->cells; other < cell; other++) {
        if (strcmp(other->run_id, cell->run_id) != 0) continue;
        cell->state = FL_CELL_DUPLICATE;
        return FL_OK;
    }
    const bool first = !cell->looked_at;
    bool there = false;
    fl_sweep_state state = FL_SWEEP_MISSING;
    cell->looked_at = true;
    cell->rerun = first && is_rerun(list, cell);
    if (list->keep_older && !list->outline)
        FL_TRY(fl_sweep_restore(list->out, cell->run_id, &list->policy, error));
    FL_TRY(fl_sweep_stamp_of(list->out, cell->run_id, &cell->stamp, &there, error));
    FL_TRY(fl_sweep_state_of(list->out, cell->run_id, list->policy.stale_seconds, &state, error));
    FL_TRY(fl_cell_take_state(list, cell, state, error));
    cell->again = first && there && cell->state == FL_CELL_DONE &&
                  (cell->rerun || (cell->changed != NULL && !list->keep_older));
    if (cell->again) cell->state = FL_CELL_PENDING;
    return FL_OK;
}

/* The recipe of a self-generated training text stands for its content. */
static fl_status hash_sampled(fl_cell_work *cell, const fl_cell_group *group, fl_error *error) {
    fl_train_config *train = &cell->parts.train;
    fl_sampled_text text;
    if (!cell->parts.has_train || train->self_generated.node == NULL) return FL_OK;
    FL_TRY(fl_sampled_text_describe(&train->self_generated, train->sequence_length, &group->bench,
                                    &group->identity, &text, error));
    cell->parts.train_hash = text.recipe;
    return FL_OK;
}

static void set_up_cell(fl_cell_list *list, fl_cell_work *cell, const fl_cell_group *group) {
    fl_error error;
    if (cell->state != FL_CELL_PENDING && cell->state != FL_CELL_ELSEWHERE) return;
    fl_status status = fl_linearised_bind(cell->experiment, &group->bench, &cell->linearised, &error);
    if (status == FL_OK) status = fl_cell_parts_bind(cell->experiment, &cell->parts, &error);
    if (status == FL_OK) status = hash_sampled(cell, group, &error);
    if (status == FL_OK) status = identify(list, cell, group, &error);
    if (status == FL_OK) status = fl_cell_warnings_collect(list, cell, group, &error);
    if (status == FL_OK) status = first_state(list, cell, &error);
    if (status != FL_OK) fl_cell_fail(cell, &error);
}

static fl_status hash_tokenizer(const char *model_path, fl_hash *out, fl_error *error) {
    fl_tokenizer *tokenizer = NULL;
    FL_TRY(fl_workbench_tokenizer(model_path, &tokenizer, error));
    *out = fl_tokenizer_hash(tokenizer);
    fl_tokenizer_close(tokenizer);
    return FL_OK;
}

/* A text is what cells are measured on; one that only trains or runs tasks needs none. */
static bool works_without_text(const fl_cell_list *list, size_t index) {
    for (size_t i = 0; i < list->count; i++) {
        const fl_experiment *experiment = list->cells[i].experiment;
        bool has_work = (experiment->tasks != NULL && experiment->tasks->count > 0) ||
                        !fl_train_config_is_none(experiment->train);
        if (list->cells[i].group == index && !has_work) return false;
    }
    return true;
}

static fl_status load_text(const fl_cell_list *list, const fl_experiment *experiment, fl_cell_group *out,
                           fl_error *error) {
    const fl_text_config *config = &experiment->text;
    fl_sampled_text text;
    if (config->self_generated.node == NULL) {
        return fl_text_source_load(config, experiment->model_path, out->bench.model->config.vocabulary,
                                   &out->text, error);
    }
    FL_TRY(fl_sampled_text_describe(&config->self_generated, config->sequence_length, &out->bench,
                                    &out->identity, &text, error));
    if (list->outline) return fl_sampled_text_outline(&text, config->sequences, &out->text, error);
    return fl_sampled_text_load(&text, &out->bench, list->out, config->sequences, list->threads,
                                list->progress, &out->text, error);
}

/* Where the config names what a failure lies in. */
static fl_status at_key(const fl_experiment *experiment, const char *key, fl_status status, fl_error *error) {
    return fl_node_place_error(fl_node_find(fl_document_root(experiment->document), key), key, status, error);
}

/* A tokenizer that only the identity asks for may be missing. */
static fl_status identify_model(const fl_experiment *first, fl_cell_group *out, fl_error *error) {
    fl_hash tokenizer = out->tokenizer;
    const bool whole = fl_checkpoint_gguf(out->bench.model->checkpoint) != NULL;
    if (!whole && tokenizer.text[0] == '\0' && hash_tokenizer(first->model_path, &tokenizer, NULL) != FL_OK)
        tokenizer.text[0] = '\0';
    FL_TRY(fl_model_descriptor(out->bench.model, &out->descriptor, error));
    return fl_model_identity(out->bench.model, &out->weights, tokenizer.text, &out->identity, error);
}

fl_status fl_cell_group_open(fl_cell_list *list, size_t index, fl_cell_group *out, fl_error *error) {
    memset(out, 0, sizeof *out);
    const fl_experiment *first = NULL;
    for (size_t i = 0; i < list->count && first == NULL; i++) {
        if (list->cells[i].group == index) first = list->cells[i].experiment;
    }
    assert(first != NULL);
    if (first->model_path == NULL) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: `model: {path: ...}` is missing", list->config);
    }
    if (!first->has_text && !works_without_text(list, index)) {
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "%s: `text: {path: ...}`, `{ids: ...}` or `{self_generated: ...}` is missing",
                            list->config);
    }
    fl_status status = FL_OK;
    status = fl_workbench_open(first->model_path, &out->bench, error);
    FL_TRY_DONE(status, at_key(first, "model.path", status, error));
    out->bench.widen_memory = first->widen_memory;
    out->bench.where = first->compute;
    FL_TRY_DONE(status, fl_model_hash(out->bench.model, &out->weights, error));
    if (first->text.path != NULL) {
        status = hash_tokenizer(first->model_path, &out->tokenizer, error);
        if (status != FL_OK)
            fl_error_prepend(error, status, "a text needs the model's tokenizer (text.ids does without)");
        FL_TRY_DONE(status, at_key(first, "text.path", status, error));
    }
    FL_TRY_DONE(status, identify_model(first, out, error));
    if (first->has_text) status = load_text(list, first, out, error);
    FL_TRY_DONE(status, at_key(first, first->text.path != NULL ? "text.path" : "text.ids", status, error));
    for (size_t i = 0; i < list->count; i++) {
        if (list->cells[i].group == index) set_up_cell(list, &list->cells[i], out);
    }
done:
    if (status != FL_OK) fl_cell_group_close(list, index, out);
    return status;
}

void fl_cell_group_close(fl_cell_list *list, size_t index, fl_cell_group *group) {
    for (size_t i = 0; i < list->count; i++) {
        if (list->cells[i].group != index) continue;
        fl_linearised_release(&list->cells[i].linearised);
        fl_cell_parts_release(&list->cells[i].parts);
    }
    fl_text_source_release(&group->text);
    fl_text_source_release(&group->training);
    fl_workbench_close(&group->bench);
    fl_memory_free(group->descriptor);
    group->descriptor = NULL;
}
