/* Readers: the layouts task data come in, as users already have them.
 *
 *   hendrycks   MMLU folder with dev/, val/, test/ (or the same under data/): <subject>_<split>.csv without a
 * header, six cells (question, four choices, letter); or a JSON Lines export (question, subject, choices,
 * answer) arc         upstream JSON Lines (question.stem, question.choices[].text/label, answerKey), the
 * Hugging Face export (question or question_stem, choices.text, choices.label, answerKey), or a JSON array of
 * instructions ("... Answer1: ..."); also OpenBookQA piqa        JSON Lines (goal, sol1, sol2) with label in
 * the row or in NAME-labels.lst beside it winogrande  JSON Lines: sentence, option1, option2, answer (1 or
 * 2); or context_options, continuation, gold hellaswag   JSON Lines: ctx_a, ctx_b, activity_label, endings,
 * label truthfulqa  mc_task.json (mc1_targets, mc2_targets as {answer: label} or {choices, labels}), or
 * TruthfulQA.csv: Best Answer (mc1) or Correct Answers (mc2) against Incorrect Answers, which is not
 * guaranteed to be the official list lambada     JSON Lines: text, or context and continuation wikitext    a
 * raw WikiText file, split into pages; or JSON Lines: page text        any UTF-8 text file: one document
 *   choices     JSON Lines: question, choices, answer (index from 0, or letter), and optionally subject
 *
 * Rows that break their layout are errors naming file and line. An answer that is missing or out of range is
 * a note and leaves the document without gold. */
#ifndef FL_EVAL_READERS_H
#define FL_EVAL_READERS_H

#include "harness/base/status.h"
#include "harness/eval/task_data.h"

typedef struct fl_reader_request {
    const char *path;              /* file or folder as the user gave it */
    const char *shots_path;        /* file of the few-shot pool, or NULL */
    const char *split;             /* "test", "val": hendrycks folders */
    const char *subject;           /* only this subject, or NULL: all */
    bool needs_shots;              /* few-shot examples will be asked for */
    const char *const *file_names; /* NULL-terminated: looked for, in order, when path is a folder */
} fl_reader_request;

typedef fl_status (*fl_reader)(const fl_reader_request *request, fl_task_data *set, fl_error *error);

fl_status fl_read_hendrycks(const fl_reader_request *request, fl_task_data *set, fl_error *error);
fl_status fl_read_arc(const fl_reader_request *request, fl_task_data *set, fl_error *error);
fl_status fl_read_piqa(const fl_reader_request *request, fl_task_data *set, fl_error *error);
fl_status fl_read_winogrande(const fl_reader_request *request, fl_task_data *set, fl_error *error);
fl_status fl_read_hellaswag(const fl_reader_request *request, fl_task_data *set, fl_error *error);
fl_status fl_read_truthfulqa_mc1(const fl_reader_request *request, fl_task_data *set, fl_error *error);
fl_status fl_read_truthfulqa_mc2(const fl_reader_request *request, fl_task_data *set, fl_error *error);
fl_status fl_read_lambada(const fl_reader_request *request, fl_task_data *set, fl_error *error);
fl_status fl_read_wikitext(const fl_reader_request *request, fl_task_data *set, fl_error *error);
fl_status fl_read_text(const fl_reader_request *request, fl_task_data *set, fl_error *error);
fl_status fl_read_choices(const fl_reader_request *request, fl_task_data *set, fl_error *error);

/* *file = path itself, or the first of request->file_names that a folder holds (fl_memory block). */
fl_status fl_reader_resolve(const fl_reader_request *request, char **file, fl_error *error);

#endif
