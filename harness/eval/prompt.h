/* Prompts: from a document to the exact context and continuation that are scored.
 *
 * context = description + shot_1 + "\n\n" + ... + shot_k + "\n\n" + text;  a shot = text + " " + right
 * answer; continuation = " " + choice. lm-evaluation-harness's assembly, with each task's own texts. */
#ifndef FL_EVAL_PROMPT_H
#define FL_EVAL_PROMPT_H

#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"
#include "harness/eval/task_data.h"
#include "harness/eval/python_random.h"
#include "harness/eval/text_buffer.h"

/* How one kind of task words its documents. */
typedef struct fl_template {
    /* Appends what stands in front of everything; NULL: nothing. `subject` as in the data
     * ("abstract_algebra"). */
    fl_status (*description)(const char *subject, fl_text_buffer *out, fl_error *error);
    /* Appends the text that is asked; it depends on the choice in winogrande only. */
    fl_status (*text)(const fl_task_document *document, size_t choice, fl_text_buffer *out, fl_error *error);
    /* Appends the answer, without a delimiter. */
    fl_status (*answer)(const fl_task_document *document, size_t choice, fl_text_buffer *out,
                        fl_error *error);
    const char *shot_delimiter;    /* between text and answer in a shot; NULL: " " */
    const char *request_delimiter; /* in front of the continuation that is scored; NULL: " " */
} fl_template;

extern const fl_template fl_template_mmlu, fl_template_mmlu_original, fl_template_mmlu_lighteval,
    fl_template_letters, fl_template_mmlu_continuation, fl_template_mmlu_cloze, fl_template_question,
    fl_template_plain, fl_template_winogrande, fl_template_truthfulqa, fl_template_lambada;

/* context and continuation (cleared first) of one choice of a document after `shot_count` shots. A shot
 * without gold is an error naming its place. */
fl_status fl_prompt_build(const fl_template *template, const char *subject, const fl_task_document *document,
                          size_t choice, const fl_task_document *const *shots, size_t shot_count,
                          fl_text_buffer *context, fl_text_buffer *continuation, fl_error *error);

/* Few-shot selection. FIRST: the first k of the pool, in order. SAMPLED: Python's sample() with one generator
 * a subject, seeded once and advanced document after document, so call fl_shots_next for every document in
 * order, skipped ones included. When the pool is the evaluated split itself, k + 1 are drawn and the document
 * is left out. */
typedef enum fl_shot_rule { FL_SHOTS_NONE = 0, FL_SHOTS_FIRST, FL_SHOTS_SAMPLED } fl_shot_rule;

typedef struct fl_shot_source {
    fl_shot_rule rule;
    size_t shots;
    const fl_task_document *pool; /* [pool_count] */
    size_t pool_count;
    bool pool_is_evaluated;
    fl_python_random random;
    size_t *drawn;                   /* [shots + 1] */
    const fl_task_document **chosen; /* [shots] */
    size_t chosen_count;
} fl_shot_source;

/* Starts a subject of the set. FL_ERROR_ARGUMENT when the pool is too small. */
fl_status fl_shots_start(fl_shot_source *source, fl_shot_rule rule, size_t shots, uint64_t seed,
                         const fl_task_data *set, size_t subject, fl_error *error);
/* source->chosen [chosen_count] = the shots of the next document. */
fl_status fl_shots_next(fl_shot_source *source, const fl_task_document *document, fl_error *error);
void fl_shots_release(fl_shot_source *source);

#endif
