#include "harness/eval/task_requests.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/eval/generation_task.h"
#include "harness/eval/python_text.h"
#include "harness/eval/recall.h"
#include "harness/eval/wikitext.h"
#include "harness/model/tokenizer_pair.h"

typedef struct build_work {
    const fl_task_config *config;
    const fl_tokenizer *tokenizer;
    fl_task_requests *task;
    fl_text_buffer context, continuation;
} build_work;

void fl_task_requests_destroy(fl_task_requests *requests) {
    if (requests == NULL) return;
    fl_task_data_release(&requests->set);
    for (size_t i = 0; i < requests->block_count; i++) fl_memory_free(requests->blocks[i]);
    fl_memory_free(requests->blocks);
    for (size_t i = 0; i < requests->prompt_count; i++) {
        fl_retrieval_release(requests->prompts[i]);
        fl_memory_free(requests->prompts[i]);
    }
    fl_memory_free(requests->prompts);
    fl_memory_free(requests->items);
    fl_memory_free(requests->requests);
    fl_memory_free(requests->choice_characters);
    fl_memory_free(requests->choice_bytes);
    fl_memory_free(requests);
}

fl_status fl_task_requests_keep(fl_task_requests *requests, int32_t *ids, const int32_t **kept,
                                fl_error *error) {
    if (requests->block_count == requests->block_capacity) {
        const size_t larger = requests->block_capacity == 0 ? 64 : 2 * requests->block_capacity;
        fl_status status = FL_RESIZE(&requests->blocks, requests->block_capacity, larger, error);
        if (status != FL_OK) {
            fl_memory_free(ids);
            return status;
        }
        requests->block_capacity = larger;
    }
    requests->blocks[requests->block_count++] = ids;
    *kept = ids;
    return FL_OK;
}

fl_status fl_task_requests_keep_prompt(fl_task_requests *requests, fl_retrieval_prompt *prompt,
                                       fl_error *error) {
    if (requests->prompt_count == requests->prompt_capacity) {
        const size_t larger = requests->prompt_capacity == 0 ? 16 : 2 * requests->prompt_capacity;
        FL_TRY(FL_RESIZE(&requests->prompts, requests->prompt_capacity, larger, error));
        requests->prompt_capacity = larger;
    }
    requests->prompts[requests->prompt_count++] = prompt;
    return FL_OK;
}

fl_status fl_task_requests_add_item(fl_task_requests *requests, const fl_task_item *item, fl_error *error) {
    if (requests->item_count == requests->item_capacity) {
        const size_t larger = requests->item_capacity == 0 ? 64 : 2 * requests->item_capacity;
        FL_TRY(FL_RESIZE(&requests->items, requests->item_capacity, larger, error));
        requests->item_capacity = larger;
    }
    fl_task_item *added = &requests->items[requests->item_count++];
    *added = *item;
    added->first_request = requests->request_count;
    added->request_count = 0;
    return FL_OK;
}

fl_status fl_task_requests_add(fl_task_requests *requests, const fl_score_request *request, size_t characters,
                               size_t bytes, fl_error *error) {
    if (requests->request_count == requests->request_capacity) {
        const size_t old = requests->request_capacity, larger = old == 0 ? 256 : 2 * old;
        FL_TRY(FL_RESIZE(&requests->requests, old, larger, error));
        FL_TRY(FL_RESIZE(&requests->choice_characters, old, larger, error));
        FL_TRY(FL_RESIZE(&requests->choice_bytes, old, larger, error));
        requests->request_capacity = larger;
    }
    const size_t at = requests->request_count++;
    requests->requests[at] = *request;
    requests->choice_characters[at] = characters;
    requests->choice_bytes[at] = bytes;
    requests->items[requests->item_count - 1].request_count++;
    requests->truncated += request->context_count + request->continuation_count > requests->max_length + 1;
    return FL_OK;
}

static fl_status fault_at(const fl_task_document *document, fl_status status, fl_error *error) {
    return fl_error_prepend(error, status, "%s:%zu", document->file, document->line);
}

/* Takes the pair's ids over; a context equal to the last request's is stored once. */
static fl_status add_pair(build_work *work, fl_token_pair *pair, size_t characters, size_t bytes,
                          fl_error *error) {
    fl_task_requests *task = work->task;
    fl_score_request request = {.context_count = pair->context_count,
                                .continuation_count = pair->continuation_count};
    const fl_score_request *last = task->request_count > 0 ? &task->requests[task->request_count - 1] : NULL;
    int32_t *context = pair->context, *continuation = pair->continuation;
    *pair = (fl_token_pair){0};
    fl_status status = fl_task_requests_keep(task, continuation, &request.continuation, error);
    if (status != FL_OK) {
        fl_memory_free(context);
        return status;
    }
    if (last != NULL && last->context_count == request.context_count &&
        memcmp(last->context, context, request.context_count * sizeof *context) == 0) {
        request.context = last->context;
        fl_memory_free(context);
    } else {
        FL_TRY(fl_task_requests_keep(task, context, &request.context, error));
    }
    return fl_task_requests_add(task, &request, characters, bytes, error);
}

/* The prompt of one choice, with fewer shots where the kind says so and it would not fit. */
static fl_status encode_choice(build_work *work, const char *subject, const fl_task_document *document,
                               size_t choice, const fl_shot_source *shots, fl_token_pair *pair,
                               fl_error *error) {
    const fl_task_config *config = work->config;
    for (size_t count = shots->chosen_count;; count--) {
        FL_TRY(fl_prompt_build(config->kind->template, subject, document, choice, shots->chosen, count,
                               &work->context, &work->continuation, error));
        fl_status status = fl_tokenizer_encode_pair(
            work->tokenizer, work->context.text, work->context.bytes, work->continuation.text,
            work->continuation.bytes, (int32_t)config->prefix, (fl_pair_mode)config->pair_mode, pair, error);
        if (status != FL_OK) {
            fl_error_prepend(error, status, "choice %zu", choice + 1);
            return fault_at(document, status, error);
        }
        const bool fits = pair->context_count + pair->continuation_count <= work->task->max_length;
        work->task->items[work->task->item_count - 1].shots = count;
        if (fits || !config->kind->drop_shots || count == 0) return FL_OK;
        fl_token_pair_release(pair);
    }
}

static fl_status add_choice(build_work *work, const char *subject, const fl_task_document *document,
                            size_t choice, const fl_shot_source *shots, fl_error *error) {
    fl_token_pair pair = {0};
    FL_TRY(encode_choice(work, subject, document, choice, shots, &pair, error));
    const size_t limit = work->task->max_length, total = pair.context_count + pair.continuation_count;
    fl_status status = FL_OK;
    if (pair.continuation_count > limit) {
        status = fl_error_set(error, FL_ERROR_ARGUMENT,
                              "%s:%zu: choice %zu has %zu tokens, more than the %zu the model reads",
                              document->file, document->line, choice + 1, pair.continuation_count, limit);
    } else if (total > limit + 1 && choice == 0) {
        status =
            fl_task_data_note(&work->task->set, error, "%s:%zu: prompt of %zu tokens cut on the left to %zu",
                              document->file, document->line, total, limit + 1);
    }
    const char *delimiter = work->config->kind->template->request_delimiter;
    const size_t skipped = strlen(delimiter != NULL ? delimiter : " ");
    const char *answer = work->continuation.text + skipped;
    const size_t bytes = work->continuation.bytes - skipped;
    if (status == FL_OK) status = add_pair(work, &pair, fl_python_length(answer, bytes), bytes, error);
    fl_token_pair_release(&pair);
    return status;
}

static fl_status add_document(build_work *work, const fl_task_subject *subject,
                              const fl_task_document *document, const fl_shot_source *shots,
                              fl_error *error) {
    fl_task_item item = {.document = document->index,
                         .subject = document->subject,
                         .gold = document->gold,
                         .correct = document->correct,
                         .depth = (double)NAN};
    FL_TRY(fl_task_document_hash(document, &item.hash, error));
    FL_TRY(fl_task_requests_add_item(work->task, &item, error));
    for (size_t i = 0; i < document->choices; i++) {
        FL_TRY(add_choice(work, subject->name, document, i, shots, error));
    }
    return FL_OK;
}

void fl_task_selected_range(const fl_task_config *config, size_t count, size_t *first, size_t *end) {
    size_t limit = count;
    if (config->limit > 0) {
        const double wanted = config->limit < 1 ? ceil(config->limit * (double)count) : config->limit;
        if (wanted < (double)count) limit = (size_t)wanted;
    }
    *first = config->offset < count ? config->offset : count;
    *end = limit < count - *first ? *first + limit : count;
}

static fl_status add_subject(build_work *work, size_t index, fl_error *error) {
    const fl_task_config *config = work->config;
    const fl_task_data *set = &work->task->set;
    const fl_task_subject *subject = &set->subjects[index];
    size_t first, end;
    fl_task_selected_range(config, subject->count, &first, &end);
    fl_shot_source shots;
    FL_TRY(fl_shots_start(&shots, config->kind->shot_rule, config->shots, config->seed, set, index, error));
    fl_status status = FL_OK;
    for (size_t i = 0; status == FL_OK && i < end; i++) {
        const fl_task_document *document = &set->documents.items[subject->first + i];
        status = fl_shots_next(&shots, document, error);
        if (status == FL_OK && i >= first) status = add_document(work, subject, document, &shots, error);
    }
    fl_shots_release(&shots);
    return status;
}

static fl_status prefix_token(const build_work *work, int32_t *prefix, fl_error *error) {
    *prefix = (int32_t)work->config->prefix;
    if (*prefix < 0) *prefix = fl_tokenizer_bos(work->tokenizer);
    if (*prefix < 0) *prefix = fl_tokenizer_eos(work->tokenizer);
    if (*prefix >= 0) return FL_OK;
    return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                        "the tokenizer has neither BOS nor EOS to start a text with; give prefix_token");
}

/* ids: a copy of the context of a window whose first token is replaced. */
static fl_status replaced_context(build_work *work, const int32_t *ids, size_t count, int32_t first,
                                  const int32_t **out, fl_error *error) {
    int32_t *copy = NULL;
    FL_TRY(FL_ALLOCATE(&copy, count, error));
    memcpy(copy, ids, count * sizeof *copy);
    copy[0] = first;
    return fl_task_requests_keep(work->task, copy, out, error);
}

static fl_status add_window(build_work *work, const fl_window *window, const int32_t *ids, int32_t prefix,
                            fl_error *error) {
    fl_score_request request = {.context = ids + window->context_start,
                                .context_count = window->scored_start - window->context_start,
                                .continuation = ids + window->scored_start,
                                .continuation_count = window->scored_end - window->scored_start};
    if (window->prefixed) {
        FL_TRY(replaced_context(work, &prefix, 1, prefix, &request.context, error));
        request.context_count = 1;
    } else if (window->overwritten) {
        FL_TRY(
            replaced_context(work, request.context, request.context_count, prefix, &request.context, error));
    }
    return fl_task_requests_add(work->task, &request, 0, 0, error);
}

/* Tokens of a text, kept by the task. */
static fl_status keep_encoded(build_work *work, const char *text, size_t bytes, const int32_t **ids,
                              size_t *count, fl_error *error) {
    int32_t *encoded = NULL;
    FL_TRY(fl_tokenizer_encode(work->tokenizer, text, bytes, true, &encoded, count, error));
    return fl_task_requests_keep(work->task, encoded, ids, error);
}

static fl_status add_page(build_work *work, const fl_task_document *document, fl_error *error) {
    const char *page = document->piece[0];
    fl_task_item item = {.document = document->index,
                         .gold = FL_GOLD_MISSING,
                         .words = fl_python_split_count(page, strlen(page)),
                         .bytes = strlen(page),
                         .depth = (double)NAN};
    FL_TRY(fl_task_document_hash(document, &item.hash, error));
    FL_TRY(fl_task_requests_add_item(work->task, &item, error));
    fl_text_buffer_clear(&work->context);
    FL_TRY(fl_wikitext_detokenise(page, strlen(page), &work->context, error));
    const int32_t *ids = NULL;
    size_t count = 0, windows = 0;
    int32_t prefix = -1;
    FL_TRY(prefix_token(work, &prefix, error));
    FL_TRY(keep_encoded(work, work->context.text, work->context.bytes, &ids, &count, error));
    const fl_window_options options = {.rule = FL_WINDOWS_ROLLING, .length = work->task->max_length};
    fl_window *made = NULL;
    FL_TRY(fl_windows_make(&options, count, &made, &windows, error));
    fl_status status = FL_OK;
    for (size_t i = 0; status == FL_OK && i < windows; i++)
        status = add_window(work, &made[i], ids, prefix, error);
    fl_memory_free(made);
    return status;
}

static fl_status add_pages(build_work *work, fl_error *error) {
    const fl_task_document_list *documents = &work->task->set.documents;
    size_t first, end;
    fl_task_selected_range(work->config, documents->count, &first, &end);
    for (size_t i = first; i < end; i++) FL_TRY(add_page(work, &documents->items[i], error));
    return FL_OK;
}

static fl_status add_text_windows(build_work *work, const int32_t *ids, size_t count,
                                  const fl_window_options *options, fl_error *error) {
    fl_window *made = NULL;
    size_t windows = 0;
    int32_t prefix = -1;
    if (options->rule == FL_WINDOWS_ROLLING || options->bos) FL_TRY(prefix_token(work, &prefix, error));
    FL_TRY(fl_windows_make(options, count, &made, &windows, error));
    fl_status status = FL_OK;
    size_t first, end;
    fl_task_selected_range(work->config, windows, &first, &end);
    for (size_t i = first; status == FL_OK && i < end; i++) {
        const fl_task_item item = {.document = i, .gold = FL_GOLD_MISSING, .depth = (double)NAN};
        status = fl_task_requests_add_item(work->task, &item, error);
        if (status == FL_OK) status = add_window(work, &made[i], ids, prefix, error);
    }
    fl_memory_free(made);
    return status;
}

static fl_status add_text(build_work *work, fl_error *error) {
    const fl_task_config *config = work->config;
    const fl_task_document *document = &work->task->set.documents.items[0];
    const char *text = document->piece[0];
    size_t bytes = strlen(text), count = 0;
    /* llama.cpp drops exactly one line break at the end; the other definitions are stated on that text as
     * well. */
    if (bytes > 0 && text[bytes - 1] == '\n') bytes--;
    const int32_t *ids = NULL;
    FL_TRY(keep_encoded(work, text, bytes, &ids, &count, error));
    const fl_window_options options = {.rule = (fl_windows_rule)config->window_rule,
                                       .length = config->window,
                                       .stride = config->stride,
                                       .bos = fl_tokenizer_adds_bos(work->tokenizer)};
    if (options.length > work->task->max_length) {
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "a window of %zu tokens is more than the %zu the model reads", options.length,
                            work->task->max_length);
    }
    const size_t least = options.rule == FL_WINDOWS_LLAMA_CPP ? 2 * options.length : 2;
    if (count < least) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: %zu tokens are too few; this definition needs %zu",
                            document->file, count, least);
    }
    return add_text_windows(work, ids, count, &options, error);
}

fl_status fl_task_requests_read(const fl_task_config *config, fl_task_data *set, fl_error *error) {
    const fl_reader_request request = {.path = config->path,
                                       .shots_path = config->shots_path,
                                       .split = config->split,
                                       .subject = config->subject,
                                       .needs_shots = config->shots > 0,
                                       .file_names = config->kind->file_names};
    FL_TRY(config->kind->reader(&request, set, error));
    FL_TRY(fl_task_data_finish(set, error));
    if (set->documents.count > 0) return FL_OK;
    return fl_error_set(error, FL_ERROR_FORMAT, "%s: no documents", config->path);
}

/* The prose needles are hidden in, when a path is given; else one subject without documents. */
static fl_status read_haystack(build_work *work, fl_error *error) {
    const fl_reader_request request = {.path = work->config->path};
    fl_task_data *set = &work->task->set;
    size_t subject = 0;
    FL_TRY(work->config->path != NULL ? fl_read_text(&request, set, error)
                                      : fl_task_data_add_subject(set, "", &subject, error));
    return fl_task_data_finish(set, error);
}

static fl_status build_requests(build_work *work, fl_error *error) {
    const fl_task_form form = work->config->kind->form;
    if (form == FL_TASK_RECALL) return fl_recall_build(work->config, work->task, error);
    if (form == FL_TASK_GENERATION) {
        FL_TRY(read_haystack(work, error));
        return fl_generation_build(work->config, work->tokenizer, work->task, error);
    }
    FL_TRY(fl_task_requests_read(work->config, &work->task->set, error));
    if (form == FL_TASK_PAGES) return add_pages(work, error);
    if (form == FL_TASK_TEXT) return add_text(work, error);
    for (size_t i = 0; i < work->task->set.subject_count; i++) FL_TRY(add_subject(work, i, error));
    return FL_OK;
}

fl_status fl_task_requests_build(const fl_task_config *config, const fl_tokenizer *tokenizer,
                                 size_t model_limit, fl_task_requests **out, fl_error *error) {
    if (tokenizer == NULL && config->kind->form != FL_TASK_RECALL) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "task %s needs a tokenizer", config->name);
    }
    fl_task_requests *task = NULL;
    FL_TRY(FL_ALLOCATE(&task, 1, error));
    const bool own = config->max_length > 0 && config->max_length < model_limit;
    task->max_length = own ? config->max_length : model_limit;
    task->adds_bos = tokenizer != NULL && fl_tokenizer_adds_bos(tokenizer);
    build_work work = {.config = config, .tokenizer = tokenizer, .task = task};
    fl_status status = build_requests(&work, error);
    fl_text_buffer_release(&work.context);
    fl_text_buffer_release(&work.continuation);
    if (status == FL_OK && task->item_count == 0) {
        status = fl_error_set(error, FL_ERROR_ARGUMENT, "task %s: nothing is left to evaluate", config->name);
    }
    if (status != FL_OK) {
        fl_task_requests_destroy(task);
        return status;
    }
    *out = task;
    return FL_OK;
}
