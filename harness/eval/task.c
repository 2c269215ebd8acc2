#include "harness/eval/task.h"

#include <string.h>

#include "harness/base/memory.h"
#include "harness/eval/generation_task.h"
#include "harness/eval/task_requests.h"
#include "harness/eval/task_result.h"

struct fl_task {
    fl_task_config config; /* shallow: strings belong to the caller except name and label */
    char *name, *label;
    const fl_network *network;
    const fl_tokenizer *tokenizer;
    fl_task_requests *requests;
    fl_score_plan *plan;
};

static fl_status open_task(fl_task *task, fl_error *error) {
    const fl_task_config *config = &task->config;
    FL_TRY(fl_memory_copy_string(&task->name, config->name, error));
    FL_TRY(fl_memory_copy_string(&task->label, config->label, error));
    FL_TRY(fl_task_requests_build(config, task->tokenizer, task->network->model->config.max_positions,
                                  &task->requests, error));
    task->config.name = task->name;
    task->config.label = task->label;
    if (config->kind->form == FL_TASK_GENERATION) return FL_OK;
    const fl_score_options options = {.max_length = task->requests->max_length,
                                      .share = config->share,
                                      .precision = fl_task_config_precision(config)};
    return fl_score_plan_create(task->requests->requests, task->requests->request_count, &options,
                                task->network, &task->plan, error);
}

fl_status fl_task_open(const fl_task_config *config, const fl_network *network, const fl_tokenizer *tokenizer,
                       fl_task **out, fl_error *error) {
    fl_task *task = NULL;
    FL_TRY(FL_ALLOCATE(&task, 1, error));
    task->config = *config;
    task->network = network;
    task->tokenizer = tokenizer;
    fl_status status = open_task(task, error);
    if (status != FL_OK) {
        fl_task_close(task);
        return status;
    }
    *out = task;
    return FL_OK;
}

void fl_task_close(fl_task *task) {
    if (task == NULL) return;
    fl_score_plan_destroy(task->plan);
    fl_task_requests_destroy(task->requests);
    fl_memory_free(task->name);
    fl_memory_free(task->label);
    fl_memory_free(task);
}

size_t fl_task_item_count(const fl_task *task) {
    return task->requests->item_count;
}

fl_hash fl_task_data_hash(const fl_task *task) {
    return task->requests->set.hash;
}

size_t fl_task_note_count(const fl_task *task) {
    return task->requests->set.note_count;
}

const char *fl_task_note(const fl_task *task, size_t index) {
    return task->requests->set.notes[index];
}

fl_status fl_task_request_texts(const fl_task *task, size_t item, size_t choice, char **context,
                                char **continuation, fl_error *error) {
    *context = *continuation = NULL;
    const fl_task_item *of = &task->requests->items[item];
    if (task->tokenizer == NULL || choice >= of->request_count) return FL_OK;
    const fl_score_request *request = &task->requests->requests[of->first_request + choice];
    size_t bytes = 0;
    FL_TRY(fl_tokenizer_decode(task->tokenizer, request->context, request->context_count, false, context,
                               &bytes, error));
    fl_status status = fl_tokenizer_decode(task->tokenizer, request->continuation,
                                           request->continuation_count, false, continuation, &bytes, error);
    if (status == FL_OK) return FL_OK;
    fl_memory_free(*context);
    *context = NULL;
    return status;
}

static fl_status evaluate(const fl_task *task, const fl_mechanism *mechanism, const fl_progress *progress,
                          fl_score *scores, fl_task_result *result, fl_error *error) {
    fl_score_counts counts;
    if (task->config.kind->form == FL_TASK_GENERATION) {
        FL_TRY(fl_generation_evaluate(&task->config, task->requests, task->network, task->tokenizer,
                                      mechanism, progress, result, error));
        return fl_task_result_summarise(&task->config, result, error);
    }
    FL_TRY(fl_score_run(task->plan, task->network, mechanism, progress, task->config.label, scores, &counts,
                        error));
    result->counts = counts;
    FL_TRY(fl_task_result_fill(&task->config, task->requests, scores, result, error));
    return fl_task_result_summarise(&task->config, result, error);
}

fl_status fl_task_evaluate(const fl_task *task, const fl_mechanism *mechanism, const fl_progress *progress,
                           fl_task_result *result, fl_error *error) {
    *result = (fl_task_result){0};
    fl_score *scores = NULL;
    FL_TRY(FL_ALLOCATE(&scores, task->requests->request_count, error));
    fl_status status = evaluate(task, mechanism, progress, scores, result, error);
    fl_memory_free(scores);
    if (status != FL_OK) fl_task_result_release(result);
    return status;
}

fl_status fl_task_run(const fl_network *network, const fl_tokenizer *tokenizer,
                      const fl_mechanism *const *mechanisms, size_t count, const fl_task_config *config,
                      const fl_progress *progress, fl_task_result *results, fl_error *error) {
    memset(results, 0, count * sizeof *results);
    fl_task *task = NULL;
    FL_TRY(fl_task_open(config, network, tokenizer, &task, error));
    fl_status status = FL_OK;
    for (size_t i = 0; status == FL_OK && i < count; i++) {
        status = fl_task_evaluate(task, mechanisms[i], progress, &results[i], error);
    }
    fl_task_close(task);
    for (size_t i = 0; status != FL_OK && i < count; i++) fl_task_result_release(&results[i]);
    return status;
}

fl_status fl_task_compare(const fl_task_result *first, const fl_task_result *second,
                          fl_paired_comparison *out, fl_error *error) {
    bool same = first->count == second->count && first->correct != NULL && second->correct != NULL &&
                strcmp(first->name, second->name) == 0;
    for (size_t i = 0; same && i < first->count; i++) {
        same = first->document[i] == second->document[i] && first->subject[i] == second->subject[i];
    }
    if (!same) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "%s and %s are not results on the same scored items",
                            first->label, second->label);
    }
    return fl_metric_compare(first->correct, second->correct, first->count, out, error);
}
