#include "harness/eval/generation_task.h"

#include <string.h>

#include "harness/base/clock.h"
#include "harness/base/memory.h"
#include "harness/engine/generation.h"
#include "harness/eval/retrieval.h"
#include "harness/eval/task_result.h"

/* The depth of grid point `index` of `count`: 0 to 1, the middle when there is one. */
static double depth_of(size_t index, size_t count) {
    return count == 1 ? 0.5 : (double)index / (double)(count - 1);
}

static fl_status add_prompt(const fl_retrieval_request *request, const fl_tokenizer *tokenizer,
                            fl_task_requests *task, fl_error *error) {
    fl_retrieval_prompt *prompt = NULL;
    FL_TRY(FL_ALLOCATE(&prompt, 1, error));
    fl_status status = fl_task_requests_keep_prompt(task, prompt, error);
    if (status != FL_OK) {
        fl_memory_free(prompt);
        return status;
    }
    FL_TRY(fl_retrieval_make(request, tokenizer, prompt, error));
    const fl_task_item item = {.document = task->item_count,
                               .gold = FL_GOLD_MISSING,
                               .length = request->length,
                               .depth = request->depth,
                               .prompt = prompt};
    int32_t *ids = NULL;
    fl_score_request made = {0};
    FL_TRY(fl_task_requests_add_item(task, &item, error));
    FL_TRY(fl_tokenizer_encode(tokenizer, prompt->text, strlen(prompt->text), true, &ids, &made.context_count,
                               error));
    FL_TRY(fl_task_requests_keep(task, ids, &made.context, error));
    return fl_task_requests_add(task, &made, 0, 0, error);
}

fl_status fl_generation_build(const fl_task_config *config, const fl_tokenizer *tokenizer,
                              fl_task_requests *task, fl_error *error) {
    const char *prose = task->set.documents.count > 0 ? task->set.documents.items[0].piece[0] : NULL;
    for (size_t l = 0; l < config->lengths.count; l++) {
        if (config->lengths.values[l] > task->max_length) {
            return fl_error_set(error, FL_ERROR_ARGUMENT,
                                "a length of %zu tokens is more than the %zu the model reads",
                                config->lengths.values[l], task->max_length);
        }
        for (size_t d = 0; d < config->depths; d++) {
            for (size_t s = 0; s < config->samples; s++) {
                const fl_retrieval_request request = {.kind = config->kind->retrieval,
                                                      .length = config->lengths.values[l],
                                                      .depth = depth_of(d, config->depths),
                                                      .seed = config->seed,
                                                      .sample = task->item_count,
                                                      .prose = prose};
                FL_TRY(add_prompt(&request, tokenizer, task, error));
            }
        }
    }
    return FL_OK;
}

static fl_status run_item(const fl_task_requests *task, size_t index, fl_session *session,
                          const fl_network *network, const fl_tokenizer *tokenizer, fl_task_result *result,
                          fl_error *error) {
    const fl_task_item *item = &task->items[index];
    const fl_score_request *request = &task->requests[item->first_request];
    fl_generation generation = {0};
    size_t bytes = 0;
    fl_session_reset(session);
    FL_TRY(fl_session_expect_length(session, request->context_count + item->prompt->new_tokens, error));
    FL_TRY(fl_generate_greedy(session, network, request->context, request->context_count,
                              item->prompt->new_tokens, fl_tokenizer_eos(tokenizer), &generation, error));
    fl_status status = fl_tokenizer_decode(tokenizer, generation.ids, generation.count, true,
                                           &result->answer[index], &bytes, error);
    if (status == FL_OK) {
        result->correct[index] = fl_retrieval_score(item->prompt, result->answer[index]);
        result->greedy[index] = result->correct[index] == 1.0;
        result->context_tokens[index] = (int64_t)request->context_count;
        result->choice_tokens[index] = (int64_t)generation.count;
        result->linear_share[index] =
            generation.count > 0 ? (double)generation.reached / (double)generation.count : 0.0;
        result->counts.asked_tokens += request->context_count + generation.count;
        result->counts.head_rows += generation.count;
    }
    fl_generation_release(&generation);
    return status;
}

fl_status fl_generation_evaluate(const fl_task_config *config, const fl_task_requests *task,
                                 const fl_network *network, const fl_tokenizer *tokenizer,
                                 const fl_mechanism *mechanism, const fl_progress *progress,
                                 fl_task_result *result, fl_error *error) {
    const double start = fl_clock_seconds();
    FL_TRY(fl_task_result_create(config, task, 1, result, error));
    FL_TRY(FL_ALLOCATE(&result->answer, task->item_count, error));
    fl_session *session = NULL;
    FL_TRY(fl_session_create(network, mechanism, &session, error));
    fl_status status = FL_OK;
    for (size_t i = 0; status == FL_OK && i < task->item_count; i++) {
        status = run_item(task, i, session, network, tokenizer, result, error);
        fl_progress_report(progress, config->label, i + 1, task->item_count);
        if (status == FL_OK && fl_progress_cancelled(progress)) {
            status = fl_error_set(error, FL_ERROR_CANCELLED, "interrupted");
        }
    }
    fl_session_destroy(session);
    result->counts.computed_tokens = result->counts.asked_tokens;
    result->counts.seconds = fl_clock_seconds() - start;
    return status;
}
