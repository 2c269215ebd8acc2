/* Task requests: a task's documents read, worded and tokenised once, ready to be scored by any number of
 * variants. */
#ifndef FL_EVAL_TASK_REQUESTS_H
#define FL_EVAL_TASK_REQUESTS_H

#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"
#include "harness/eval/task_data.h"
#include "harness/eval/retrieval.h"
#include "harness/eval/scoring.h"
#include "harness/eval/task_config.h"
#include "harness/model/tokenizer.h"

/* One row of the results. */
typedef struct fl_task_item {
    fl_hash hash;    /* of the document; "": not of a file, the tokens of its requests stand for it */
    size_t document; /* its index in the subject's file; of a text: the window's number */
    size_t subject;
    int gold;
    size_t first_request, request_count; /* one request a choice; windows of a page */
    const unsigned char *correct;        /* [request_count] truthfulqa_mc2, or NULL */
    size_t words, bytes;                 /* of the original page */
    size_t shots;                        /* few-shot examples in the prompt of the last choice */
    size_t stale_first, stale_count;     /* recall: choices that are older values of the asked key */
    size_t length;                       /* made tasks: prompt length asked for */
    double depth;                        /* made tasks: 0 .. 1, NaN where it has no meaning */
    const fl_retrieval_prompt *prompt;   /* generation, or NULL */
} fl_task_item;

typedef struct fl_task_requests {
    fl_task_data set;
    size_t item_count, item_capacity;
    fl_task_item *items;
    size_t request_count, request_capacity;
    fl_score_request *requests;
    size_t *choice_characters, *choice_bytes; /* [request_count] of the answer without its delimiter */
    size_t block_count, block_capacity;
    int32_t **blocks; /* storage behind the requests' ids */
    size_t prompt_count, prompt_capacity;
    fl_retrieval_prompt **prompts; /* storage behind the items' prompts */
    size_t max_length;
    bool adds_bos;    /* the tokenizer put a BOS in front of contexts */
    size_t truncated; /* requests whose context was cut on the left */
} fl_task_requests;

/* model_limit: most tokens the model can read (config->max_length, when given, is capped by it). */
fl_status fl_task_requests_build(const fl_task_config *config, const fl_tokenizer *tokenizer,
                                 size_t model_limit, fl_task_requests **out, fl_error *error);
void fl_task_requests_destroy(fl_task_requests *requests);

/* The documents alone, of a task that has some; *set is released by the caller whatever happens. */
fl_status fl_task_requests_read(const fl_task_config *config, fl_task_data *set, fl_error *error);

/* Documents *first .. *end - 1 of a subject with `count` are evaluated (offset, limit). */
void fl_task_selected_range(const fl_task_config *config, size_t count, size_t *first, size_t *end);

/* For generators of token sequences. *kept = the task's own block (ids is taken over whatever happens). */
fl_status fl_task_requests_keep(fl_task_requests *requests, int32_t *ids, const int32_t **kept,
                                fl_error *error);
/* The task owns *prompt from now on, if this succeeds. */
fl_status fl_task_requests_keep_prompt(fl_task_requests *requests, fl_retrieval_prompt *prompt,
                                       fl_error *error);
fl_status fl_task_requests_add_item(fl_task_requests *requests, const fl_task_item *item, fl_error *error);
/* Belongs to the last item. */
fl_status fl_task_requests_add(fl_task_requests *requests, const fl_score_request *request, size_t characters,
                               size_t bytes, fl_error *error);

#endif
