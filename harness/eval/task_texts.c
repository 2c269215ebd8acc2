#include "harness/eval/task_texts.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/model/json_rows.h"
#include "harness/eval/python_json.h"
#include "harness/eval/task_requests.h"
#include "harness/eval/wikitext.h"

struct fl_task_texts {
    const fl_task_config *config;
    fl_task_data set;
    fl_shot_source shots; /* of `subject` */
    bool started;
    size_t subject, next; /* document of the subject whose shots come next */
    fl_json_rows *rows;   /* of the file read last */
    fl_text_buffer context, continuation;
};

bool fl_task_texts_exist(const fl_task_kind *kind) {
    return kind->reader != NULL && kind->form != FL_TASK_TEXT;
}

fl_status fl_task_texts_open(const fl_task_config *config, fl_task_texts **out, fl_error *error) {
    fl_task_texts *texts = NULL;
    FL_TRY(FL_ALLOCATE(&texts, 1, error));
    texts->config = config;
    fl_status status = fl_task_requests_read(config, &texts->set, error);
    if (status == FL_OK) {
        *out = texts;
        return FL_OK;
    }
    fl_task_texts_close(texts);
    return status;
}

void fl_task_texts_close(fl_task_texts *texts) {
    if (texts == NULL) return;
    if (texts->started) fl_shots_release(&texts->shots);
    fl_json_rows_destroy(texts->rows);
    fl_task_data_release(&texts->set);
    fl_text_buffer_release(&texts->context);
    fl_text_buffer_release(&texts->continuation);
    fl_memory_free(texts);
}

const fl_task_data *fl_task_texts_data(const fl_task_texts *texts) {
    return &texts->set;
}

fl_hash fl_task_texts_data_hash(const fl_task_texts *texts) {
    return texts->set.hash;
}

void fl_item_texts_release(fl_item_texts *item) {
    for (size_t i = 0; i < item->count; i++) {
        if (item->context != NULL) fl_memory_free(item->context[i]);
        if (item->continuation != NULL) fl_memory_free(item->continuation[i]);
    }
    fl_memory_free(item->context);
    fl_memory_free(item->continuation);
    fl_memory_free(item->document);
    fl_memory_free(item->document_indented);
    fl_memory_free(item->target);
    *item = (fl_item_texts){0};
}

/* Moves to the document; the shots of those passed over are drawn, as the evaluation did. */
static fl_status find_document(fl_task_texts *texts, const char *subject, size_t index,
                               const fl_task_document **out, fl_error *error) {
    const fl_task_data *set = &texts->set;
    const fl_task_config *config = texts->config;
    size_t s = 0;
    while (s < set->subject_count && strcmp(set->subjects[s].name, subject) != 0) s++;
    const bool there = s < set->subject_count && index < set->subjects[s].count;
    const bool passed = texts->started && texts->subject == s && index + 1 < texts->next;
    if (!there || passed)
        return fl_error_set(error, FL_ERROR_ARGUMENT, "task %s: no document %zu%s%s", config->label, index,
                            subject[0] != '\0' ? " of " : "", subject);
    if (!texts->started || texts->subject != s) {
        if (texts->started) fl_shots_release(&texts->shots);
        texts->started = false;
        FL_TRY(fl_shots_start(&texts->shots, config->kind->shot_rule, config->shots, config->seed, set, s,
                              error));
        texts->started = true;
        texts->subject = s;
        texts->next = 0;
    }
    *out = &set->documents.items[set->subjects[s].first + index];
    for (; texts->next <= index; texts->next++)
        FL_TRY(
            fl_shots_next(&texts->shots, &set->documents.items[set->subjects[s].first + texts->next], error));
    return FL_OK;
}

static bool ends_with(const char *text, const char *ending) {
    const size_t bytes = strlen(text), tail = strlen(ending);
    return bytes >= tail && strcmp(text + bytes - tail, ending) == 0;
}

/* The row of a JSON file the document was read from, borrowed; NULL: not of such a file. */
static fl_status source_row(fl_task_texts *texts, const fl_task_document *document, const cJSON **out,
                            fl_error *error) {
    const bool raw_pages = texts->config->kind->form == FL_TASK_PAGES && !ends_with(document->file, ".jsonl");
    *out = NULL;
    if (ends_with(document->file, ".csv") || raw_pages) return FL_OK;
    if (texts->rows == NULL || strcmp(texts->rows->path, document->file) != 0) {
        fl_json_rows_destroy(texts->rows);
        texts->rows = NULL;
        FL_TRY(fl_json_rows_read(document->file, &texts->rows, error));
    }
    size_t low = 0, high = texts->rows->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (texts->rows->rows[middle].line < document->line)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < texts->rows->count && texts->rows->rows[low].line == document->line)
        *out = texts->rows->rows[low].object;
    return FL_OK;
}

static bool add_choices(cJSON *object, const fl_task_document *document) {
    cJSON *choices = cJSON_AddArrayToObject(object, "choices");
    bool ok = choices != NULL;
    for (size_t i = 0; ok && i < document->choices; i++) {
        cJSON *choice = cJSON_CreateString(document->choice[i]);
        ok = choice != NULL && cJSON_AddItemToArray(choices, choice);
        if (!ok) cJSON_Delete(choice);
    }
    return ok;
}

static bool add_text(cJSON *object, const char *name, const char *text) {
    return cJSON_AddStringToObject(object, name, text != NULL ? text : "") != NULL;
}

/* The document without a source row. Members in the order of the data set's. */
static bool add_document(cJSON *object, const fl_task_config *config, const fl_task_document *document,
                         const char *subject, bool *is_row) {
    const bool mmlu = config->kind->reader == fl_read_hendrycks;
    *is_row = mmlu || config->kind->form == FL_TASK_PAGES;
    if (config->kind->form == FL_TASK_PAGES) return add_text(object, "page", document->piece[0]);
    if (!add_text(object, "question", document->piece[0])) return false;
    if (mmlu && !add_text(object, "subject", subject)) return false;
    return add_choices(object, document) &&
           cJSON_AddNumberToObject(object, mmlu ? "answer" : "gold", document->gold) != NULL;
}

/* What lm-evaluation-harness's process_docs puts behind the columns of a HellaSwag row. */
static bool add_processed(cJSON *object, const fl_task_config *config, const fl_task_document *document) {
    if (config->kind->reader != fl_read_hellaswag) return true;
    return add_text(object, "query", document->piece[0]) && add_choices(object, document) &&
           cJSON_AddNumberToObject(object, "gold", document->gold) != NULL;
}

static fl_status print_document(const cJSON *object, fl_item_texts *out, fl_error *error) {
    fl_text_buffer text = {0};
    fl_status status = fl_python_json(object, 0, &text, error);
    if (status == FL_OK) status = fl_text_buffer_take(&text, &out->document, error);
    if (status == FL_OK) status = fl_python_json(object, 2, &text, error);
    if (status == FL_OK) status = fl_text_buffer_take(&text, &out->document_indented, error);
    fl_text_buffer_release(&text);
    return status;
}

static fl_status describe(fl_task_texts *texts, const fl_task_document *document, const char *subject,
                          fl_item_texts *out, fl_error *error) {
    const cJSON *row = NULL;
    FL_TRY(source_row(texts, document, &row, error));
    cJSON *object = row != NULL ? cJSON_Duplicate(row, true) : cJSON_CreateObject();
    out->is_row = row != NULL;
    bool ok = object != NULL;
    if (ok && row != NULL) ok = add_processed(object, texts->config, document);
    if (ok && row == NULL) ok = add_document(object, texts->config, document, subject, &out->is_row);
    fl_status status =
        ok ? print_document(object, out, error) : fl_error_set(error, FL_ERROR_MEMORY, "out of memory");
    cJSON_Delete(object);
    return status;
}

static fl_status add_page(fl_task_texts *texts, const fl_task_document *document, fl_item_texts *out,
                          fl_error *error) {
    fl_text_buffer_clear(&texts->context);
    FL_TRY(fl_wikitext_detokenise(document->piece[0], strlen(document->piece[0]), &texts->context, error));
    const char *page = texts->context.text != NULL ? texts->context.text : "";
    FL_TRY(fl_memory_copy_string(&out->context[0], page, error));
    return fl_memory_copy_string(&out->target, page, error);
}

static fl_status add_requests(fl_task_texts *texts, const fl_task_document *document, const char *subject,
                              size_t shots, fl_item_texts *out, fl_error *error) {
    const fl_template *template = texts->config->kind->template;
    for (size_t i = 0; i < out->count; i++) {
        FL_TRY(fl_prompt_build(template, subject, document, i, texts->shots.chosen, shots, &texts->context,
                               &texts->continuation, error));
        FL_TRY(fl_memory_copy_string(&out->context[i], texts->context.text, error));
        FL_TRY(fl_memory_copy_string(&out->continuation[i], texts->continuation.text, error));
    }
    const fl_task_kind *kind = texts->config->kind;
    if (kind->text_target) {
        const char *delimiter = template->request_delimiter != NULL ? template->request_delimiter : " ";
        return fl_memory_copy_string(&out->target, out->continuation[0] + strlen(delimiter), error);
    }
    const int gold = kind->form == FL_TASK_TRUE_MASS ? 0 : document->gold;
    if (gold < 0) return FL_OK;
    char number[16];
    snprintf(number, sizeof number, "%d", gold);
    return fl_memory_copy_string(&out->target, number, error);
}

static fl_status make_prompts(fl_task_texts *texts, const fl_task_document *document, const char *subject,
                              size_t shots, fl_item_texts *out, fl_error *error) {
    const bool page = texts->config->kind->form == FL_TASK_PAGES;
    const size_t count = page ? 1 : document->choices, most = texts->shots.chosen_count;
    FL_TRY(FL_ALLOCATE(&out->context, count, error));
    FL_TRY(FL_ALLOCATE(&out->continuation, count, error));
    out->count = count;
    if (page) return add_page(texts, document, out, error);
    return add_requests(texts, document, subject, shots < most ? shots : most, out, error);
}

fl_status fl_task_texts_prompts(fl_task_texts *texts, const char *subject, size_t document,
                                fl_item_texts *out, fl_error *error) {
    const fl_task_document *found = NULL;
    *out = (fl_item_texts){0};
    FL_TRY(find_document(texts, subject, document, &found, error));
    fl_status status = make_prompts(texts, found, subject, SIZE_MAX, out, error);
    if (status != FL_OK) fl_item_texts_release(out);
    return status;
}

fl_status fl_task_texts_item(fl_task_texts *texts, const char *subject, size_t document, size_t shots,
                             fl_item_texts *out, fl_error *error) {
    const fl_task_document *found = NULL;
    *out = (fl_item_texts){0};
    FL_TRY(find_document(texts, subject, document, &found, error));
    fl_status status = fl_task_document_hash(found, &out->hash, error);
    if (status == FL_OK) status = describe(texts, found, subject, out, error);
    if (status == FL_OK) status = make_prompts(texts, found, subject, shots, out, error);
    if (status != FL_OK) fl_item_texts_release(out);
    return status;
}
