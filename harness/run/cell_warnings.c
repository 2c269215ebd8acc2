#include "harness/run/cell_warnings.h"

#include <stdarg.h>
#include <string.h>

#include "analysis/run_warnings.h"
#include "harness/base/memory.h"
#include "harness/eval/task_requests.h"
#include "harness/eval/task_texts.h"

enum { TEXT_BYTES = 512 };

static bool has(const fl_cell_work *cell, const char *text) {
    for (size_t i = 0; i < cell->warning_count; i++) {
        if (strcmp(cell->warnings[i], text) == 0) return true;
    }
    return false;
}

/* A warning once. */
__attribute__((format(printf, 3, 4))) static fl_status warn(fl_cell_work *cell, fl_error *error,
                                                            const char *format, ...) {
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (has(cell, text)) return FL_OK;
    FL_TRY(FL_RESIZE(&cell->warnings, cell->warning_count, cell->warning_count + 1, error));
    FL_TRY(fl_memory_copy_string(&cell->warnings[cell->warning_count], text, error));
    cell->warning_count++;
    return FL_OK;
}

static size_t longest_of(const fl_sequences *sequences) {
    size_t longest = 0;
    for (size_t i = 0; i < sequences->count; i++) {
        if (sequences->lengths[i] > longest) longest = sequences->lengths[i];
    }
    return longest;
}

static bool is_softmax(const fl_variant *variant) {
    return strcmp(variant->rule->name, "softmax") == 0;
}

/* `key`: text or train. */
static fl_status check_rows(fl_cell_work *cell, const char *key, const fl_sequences *rows, size_t wanted,
                            size_t length, fl_error *error) {
    const size_t longest = longest_of(rows);
    if (wanted > rows->count)
        FL_TRY(warn(cell, error, "%s: %zu sequence%s of the %zu asked for: there is no more text", key,
                    rows->count, rows->count == 1 ? "" : "s", wanted));
    if (length > longest)
        FL_TRY(warn(cell, error, "%s: the longest sequence has %zu tokens, fewer than sequence_length %zu",
                    key, longest, length));
    return FL_OK;
}

static fl_status check_context(fl_cell_work *cell, const char *key, const fl_cell_group *group,
                               size_t longest, fl_error *error) {
    const size_t context = group->bench.model->config.max_positions;
    if (context == 0 || longest <= context) return FL_OK;
    return warn(cell, error, "%s: sequences of %zu tokens, longer than the model's context of %zu", key,
                longest, context);
}

static fl_status check_text(fl_cell_work *cell, const fl_cell_group *group, fl_error *error) {
    const fl_experiment *experiment = cell->experiment;
    const fl_sequences *rows = &group->text.sequences;
    if (!experiment->has_text) return FL_OK;
    FL_TRY(
        check_rows(cell, "text", rows, experiment->text.sequences, experiment->text.sequence_length, error));
    return check_context(cell, "text", group, longest_of(rows), error);
}

/* The exact set holds the whole of every sequence. */
static fl_status check_exact_set(fl_cell_work *cell, const fl_cell_group *group, fl_error *error) {
    const fl_variant *variant = cell->linearised.variant;
    const size_t longest = longest_of(&group->text.sequences),
                 exact = variant->window + variant->sinks + variant->cache_budget;
    if (longest == 0 || is_softmax(variant) || exact < longest) return FL_OK;
    char cache[64] = "";
    if (variant->cache_budget > 0) snprintf(cache, sizeof cache, ", cache %zu", variant->cache_budget);
    return warn(
        cell, error,
        "window %zu, sinks %zu%s hold all of the longest sequence (%zu tokens): everything is exact%s",
        variant->window, variant->sinks, cache, longest,
        fl_variant_has_linear(variant) ? ", the state is never read" : "");
}

static fl_status check_layers(fl_cell_work *cell, const fl_cell_group *group, fl_error *error) {
    const fl_variant *variant = cell->linearised.variant;
    const size_t layers = group->bench.model->config.layers, kept = variant->softmax_hardest > 0
                                                                        ? variant->softmax_hardest
                                                                        : variant->softmax_layer_count;
    if (is_softmax(variant) || kept < layers) return FL_OK;
    return warn(cell, error, "softmax_layers: all %zu layers stay as they are: nothing is linearised",
                layers);
}

/* Parts that begin as if they were not there, and are not fitted. */
static fl_status check_untrained(fl_cell_work *cell, fl_error *error) {
    const fl_variant *variant = cell->linearised.variant;
    if (cell->parts.has_train || variant->mechanism_path != NULL || is_softmax(variant)) return FL_OK;
    if (variant->conv_kernel > 0 && variant->conv_init == FL_CONV_IDENTITY && fl_variant_has_linear(variant))
        FL_TRY(warn(
            cell, error,
            "short_conv: an identity convolution that is not fitted changes nothing: the same as without"));
    if (variant->lora_rank > 0)
        FL_TRY(warn(cell, error, "lora: adapters that are not fitted change nothing: the same as without"));
    return FL_OK;
}

static fl_status check_training(fl_cell_work *cell, const fl_cell_group *group, fl_error *error) {
    const fl_variant *variant = cell->linearised.variant;
    const fl_train_config *train = &cell->parts.train;
    if (!cell->parts.has_train) return FL_OK;
    if (is_softmax(variant) || (!fl_variant_has_linear(variant) && variant->lora_rank == 0))
        return warn(cell, error, "train: rule %s has nothing to fit: measured as it is", variant->rule->name);
    FL_TRY(check_context(cell, "train", group, train->sequence_length, error));
    if (train->warmup_steps < train->steps) return FL_OK;
    return warn(cell, error, "train: warmup_steps %zu of %zu steps: the learning rate %s",
                train->warmup_steps, train->steps,
                train->warmup_steps == train->steps ? "never falls" : "never reaches learning_rate");
}

/* Subjects with fewer documents than `limit`. */
static fl_status check_documents(fl_cell_work *cell, const fl_task_config *task, const fl_task_data *data,
                                 fl_error *error) {
    size_t fewer = 0, fewest = 0;
    for (size_t s = 0; s < data->subject_count; s++) {
        size_t first = 0, end = 0;
        fl_task_selected_range(task, data->subjects[s].count, &first, &end);
        if ((double)(end - first) >= task->limit) continue;
        if (fewer++ == 0 || end - first < fewest) fewest = end - first;
    }
    if (fewer == 0) return FL_OK;
    if (data->subject_count == 1)
        return warn(cell, error, "task %s: %zu documents, fewer than limit %.0f", task->label, fewest,
                    task->limit);
    return warn(cell, error,
                "task %s: %zu of %zu subjects have fewer documents than limit %.0f (fewest: %zu)",
                task->label, fewer, data->subject_count, task->limit, fewest);
}

/* Data that cannot be read is the evaluation's to refuse. */
static fl_status check_limit(fl_cell_work *cell, const fl_task_config *task, fl_error *error) {
    fl_task_texts *texts = NULL;
    if (task->kind->reader == NULL || task->kind->form == FL_TASK_TEXT || task->limit < 1) return FL_OK;
    if (fl_task_texts_open(task, &texts, NULL) != FL_OK) return FL_OK;
    fl_status status = check_documents(cell, task, fl_task_texts_data(texts), error);
    fl_task_texts_close(texts);
    return status;
}

static fl_status check_lengths(fl_cell_work *cell, const fl_cell_group *group, const fl_task_config *task,
                               fl_error *error) {
    size_t longest = 0;
    for (size_t i = 0; i < task->lengths.count; i++) {
        if (task->lengths.values[i] > longest) longest = task->lengths.values[i];
    }
    char key[TEXT_BYTES / 2];
    snprintf(key, sizeof key, "task %s", task->label);
    return check_context(cell, key, group, longest, error);
}

/* Of the cell's tasks; of those that an earlier cell has as well, what that one says. */
static fl_status check_tasks(const fl_cell_list *list, fl_cell_work *cell, const fl_cell_group *group,
                             fl_error *error) {
    static const char prefix[] = "task ";
    for (const fl_cell_work *other = list->cells; other < cell; other++) {
        if (other->group != cell->group || cell->parts.tasks.count == 0 ||
            strcmp(other->parts.tasks_key.text, cell->parts.tasks_key.text) != 0)
            continue;
        for (size_t i = 0; i < other->warning_count; i++) {
            if (strncmp(other->warnings[i], prefix, sizeof prefix - 1) == 0)
                FL_TRY(warn(cell, error, "%s", other->warnings[i]));
        }
        return FL_OK;
    }
    for (size_t i = 0; i < cell->parts.tasks.count; i++) {
        FL_TRY(check_lengths(cell, group, &cell->parts.tasks.items[i], error));
        FL_TRY(check_limit(cell, &cell->parts.tasks.items[i], error));
    }
    return FL_OK;
}

static fl_status check_measurements(const fl_cell_work *cell, fl_error *error) {
    const fl_measure_config *measure = &cell->experiment->measure;
    if (measure->teacher_forced || measure->propagated || measure->diagnostics || measure->language_model ||
        measure->self_check || cell->parts.tasks.count > 0 || cell->parts.has_train)
        return FL_OK;
    return fl_error_set(
        error, FL_ERROR_ARGUMENT,
        "measure: every measurement is off, and there are neither tasks nor a training: nothing "
        "would be measured");
}

fl_status fl_cell_warnings_collect(const fl_cell_list *list, fl_cell_work *cell, const fl_cell_group *group,
                                   fl_error *error) {
    FL_TRY(check_measurements(cell, error));
    FL_TRY(check_text(cell, group, error));
    FL_TRY(check_exact_set(cell, group, error));
    FL_TRY(check_layers(cell, group, error));
    FL_TRY(check_untrained(cell, error));
    FL_TRY(check_training(cell, group, error));
    return check_tasks(list, cell, group, error);
}

fl_status fl_cell_warnings_of_training(fl_cell_work *cell, const fl_cell_group *group, fl_error *error) {
    const fl_train_config *train = &cell->parts.train;
    const fl_sequences *rows = &group->training.sequences;
    const double draws = (double)train->steps * (double)train->batch * (double)train->accumulate;
    FL_TRY(check_rows(cell, "train", rows, train->sequences, train->sequence_length, error));
    FL_TRY(check_context(cell, "train", group, longest_of(rows), error));
    if (draws <= (double)rows->count) return FL_OK;
    return warn(cell, error, "train: %.0f sequences are drawn from %zu: each is seen %.3g times", draws,
                rows->count, draws / (double)rows->count);
}

fl_status fl_cell_warnings_print(FILE *stream, const fl_cell_list *list, fl_error *error) {
    fl_warned *rows = NULL;
    FL_TRY(FL_ALLOCATE(&rows, list->count, error));
    for (size_t i = 0; i < list->count; i++) {
        const fl_cell_work *cell = &list->cells[i];
        const bool counts = cell->state != FL_CELL_DUPLICATE;
        rows[i] = (fl_warned){cell->label, cell->warnings, counts ? cell->warning_count : 0};
    }
    fl_status status = fl_run_warnings_print(stream, rows, list->count, error);
    fl_memory_free(rows);
    return status;
}
