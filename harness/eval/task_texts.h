/* Task texts: the documents and prompts behind the items of a task, as texts and without a tokenizer.
 *
 * Read again from the data files: for exports of results whose run files hold none (task_record.h). Whoever
 * uses them compares the data's hash with the recorded one first. */
#ifndef FL_EVAL_TASK_TEXTS_H
#define FL_EVAL_TASK_TEXTS_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/hash.h"
#include "harness/base/status.h"
#include "harness/eval/task_config.h"
#include "harness/eval/task_data.h"

typedef struct fl_task_texts fl_task_texts;

/* Whether the kind has documents: made tasks and the perplexity of a text have none. */
bool fl_task_texts_exist(const fl_task_kind *kind);

/* config is borrowed. Errors are the readers'. */
fl_status fl_task_texts_open(const fl_task_config *config, fl_task_texts **out, fl_error *error);
void fl_task_texts_close(fl_task_texts *texts);
/* Borrowed. */
const fl_task_data *fl_task_texts_data(const fl_task_texts *texts);
/* As fl_task_data_hash. */
fl_hash fl_task_texts_data_hash(const fl_task_texts *texts);

/* One item; all fl_memory blocks. */
typedef struct fl_item_texts {
    /* The document as JSON, on one line and as json.dumps(document, indent=2, ensure_ascii=False). A row of
     * a JSON Lines file is that row (HellaSwag with the fields lm-evaluation-harness adds); MMLU's CSV and
     * raw WikiText get the layout of their data sets on the Hugging Face Hub, and `is_row` is true for these.
     * Any other file has a layout of its own: question, choices, gold. */
    char *document, *document_indented;
    bool is_row;
    fl_hash hash;                   /* fl_task_document_hash */
    size_t count;                   /* of requests: choices, 1 for a page or a last word */
    char **context, **continuation; /* [count]; a page's continuation is NULL */
    char *target;                   /* str(target) of lm-evaluation-harness; NULL: no right choice */
} fl_item_texts;

/* The item of a subject and document index, with `shots` few-shot examples (SIZE_MAX: as configured). Items
 * are asked for in the order of a result. FL_ERROR_ARGUMENT when there is none. On failure *out is empty. */
fl_status fl_task_texts_item(fl_task_texts *texts, const char *subject, size_t document, size_t shots,
                             fl_item_texts *out, fl_error *error);
/* The same with context and continuation alone. */
fl_status fl_task_texts_prompts(fl_task_texts *texts, const char *subject, size_t document,
                                fl_item_texts *out, fl_error *error);
void fl_item_texts_release(fl_item_texts *item);

#endif
