/* Task table: every task is a row. A new multiple-choice task needs a reader (often an existing one), a
 * template and a row. */
#ifndef FL_EVAL_TASK_TABLE_H
#define FL_EVAL_TASK_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/eval/prompt.h"
#include "harness/eval/readers.h"
#include "harness/eval/retrieval.h"

typedef enum fl_task_form {
    FL_TASK_CHOICES = 0, /* argmax over the choices' log-likelihoods */
    FL_TASK_TRUE_MASS,   /* share of probability on the true choices */
    FL_TASK_LAST_WORD,   /* greedy match and perplexity of one continuation */
    FL_TASK_PAGES,       /* rolling log-likelihood of every document */
    FL_TASK_TEXT,        /* perplexity of one text by a stated definition */
    FL_TASK_RECALL,      /* token sequences made here; argmax over the values seen */
    FL_TASK_GENERATION   /* greedy continuation of prompts made here */
} fl_task_form;

typedef struct fl_task_kind {
    const char *name, *summary;
    fl_task_form form;
    fl_reader reader;
    const char *const *file_names; /* looked for when `path` is a folder */
    const fl_template *template;
    fl_shot_rule shot_rule;
    bool length_normalised; /* acc_norm and acc_bytes are reported */
    bool text_target;       /* the target is the answer's text, not a choice's number */
    bool drop_shots;        /* a prompt that is too long loses shots instead of its beginning */
    fl_retrieval_kind retrieval;
} fl_task_kind;

size_t fl_task_kind_count(void);
const fl_task_kind *fl_task_kind_at(size_t index);
const fl_task_kind *fl_task_kind_find(const char *name); /* NULL when unknown */

/* "stem", "humanities", "social_sciences" or "other" for the 57 subjects of MMLU, else NULL. */
const char *fl_mmlu_category(const char *subject);

#endif
