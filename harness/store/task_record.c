#include "harness/store/task_record.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "harness/base/memory.h"

enum { GROUP_BYTES = 256, PATH_BYTES = 384 };

/* One column of the items: [n], or [n][C] when `per_choice`. */
typedef struct column {
    const char *name;
    size_t offset;
    bool is_integer, per_choice;
    const char *units, *description;
} column;

#define INTEGERS(member, per_choice, description)                                                            \
    { #member, offsetof(fl_task_result, member), true, per_choice, "1", description }
#define NUMBERS(member, per_choice, units, description)                                                      \
    { #member, offsetof(fl_task_result, member), false, per_choice, units, description }

static const column columns[] = {
    INTEGERS(document, false, "index of the item's document in its subject's file"),
    INTEGERS(gold, false, "right choice; -100: none"),
    INTEGERS(prediction, false, "choice with the largest log-likelihood"),
    INTEGERS(prediction_norm, false, "choice with the largest log-likelihood per character"),
    INTEGERS(greedy, false, "1: the right continuation was the greedy one"),
    NUMBERS(correct, false, "1", "what acc is the mean of"),
    NUMBERS(correct_norm, false, "1", "what acc_norm is the mean of"),
    NUMBERS(correct_bytes, false, "1", "what acc_bytes is the mean of"),
    NUMBERS(linear_share, false, "1", "share of scored tokens whose context had reached the linear state"),
    NUMBERS(log_likelihood, true, "nat", "natural log; NaN where an item has fewer choices"),
    INTEGERS(choice_tokens, true, "scored tokens of a choice; 0 where there is none"),
    INTEGERS(choice_characters, true, "characters of a choice; 0 where there is none"),
    INTEGERS(context_tokens, false, "tokens of the longest context"),
    INTEGERS(truncated, false, "tokens cut off on the left"),
    INTEGERS(length, false, "tokens asked for when the item was made"),
    NUMBERS(depth, false, "1", "where in the context the answer lies, 0 to 1"),
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static fl_status write_column(fl_run_file *file, const char *group, const fl_task_result *result,
                              const column *c, fl_error *error) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/items/%s", group, c->name);
    size_t shape[2] = {result->count, result->choices};
    size_t rank = c->per_choice ? 2 : 1;
    const void *data = *(void *const *)((const char *)result + c->offset);
    if (c->is_integer)
        return fl_run_file_write_integers(file, path, rank, shape, data, c->units, c->description, error);
    return fl_run_file_write_doubles(file, path, rank, shape, data, c->units, c->description, error);
}

static fl_status write_item_texts(fl_run_file *file, const char *group, const fl_task_result *result,
                                  fl_error *error) {
    char path[PATH_BYTES];
    const char **names = NULL;
    snprintf(path, sizeof path, "%s/items/answer", group);
    FL_TRY(fl_run_file_write_texts(file, path, result->count, (const char *const *)result->answer,
                                   "what was generated", error));
    if (result->subject == NULL) return FL_OK;
    FL_TRY(FL_ALLOCATE(&names, result->count, error));
    for (size_t i = 0; i < result->count; i++) {
        bool known = result->subject[i] >= 0 && (size_t)result->subject[i] < result->subject_count;
        names[i] = known ? result->subjects[result->subject[i]].name : "";
    }
    snprintf(path, sizeof path, "%s/items/subject", group);
    fl_status status =
        fl_run_file_write_texts(file, path, result->count, names, "subject of the item", error);
    fl_memory_free(names);
    return status;
}

static double subject_value(const fl_task_subject_result *subject, size_t column_index) {
    const double values[] = {(double)subject->count, subject->acc, subject->acc_stderr, subject->acc_norm,
                             subject->acc_norm_stderr};
    return values[column_index];
}

static fl_status write_subjects(fl_run_file *file, const char *group, const fl_task_result *result,
                                fl_error *error) {
    static const char *const names[][2] = {{"n", "items of the subject"},
                                           {"acc", "share of right predictions"},
                                           {"acc_stderr", "standard error of acc; NaN for one item"},
                                           {"acc_norm", "share of right predictions per character"},
                                           {"acc_norm_stderr", "standard error of acc_norm"}};
    char path[PATH_BYTES];
    const char **texts = NULL;
    double *values = NULL;
    size_t count = result->subject_count;
    fl_status status = FL_OK;
    if (count == 0) return FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&texts, count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&values, count, error));
    for (size_t s = 0; s < count; s++) texts[s] = result->subjects[s].name;
    snprintf(path, sizeof path, "%s/subjects/name", group);
    FL_TRY_DONE(status, fl_run_file_write_texts(file, path, count, texts, "subject", error));
    for (size_t c = 0; c < COUNT(names); c++) {
        for (size_t s = 0; s < count; s++) values[s] = subject_value(&result->subjects[s], c);
        snprintf(path, sizeof path, "%s/subjects/%s", group, names[c][0]);
        FL_TRY_DONE(status,
                    fl_run_file_write_doubles(file, path, 1, &count, values, "1", names[c][1], error));
    }
done:
    fl_memory_free(values);
    fl_memory_free(texts);
    return status;
}

fl_status fl_task_record_write(fl_run_file *file, const fl_task_result *result, fl_error *error) {
    char group[GROUP_BYTES];
    int bytes = snprintf(group, sizeof group, "/tasks/%s", result->label);
    if (bytes < 0 || bytes >= GROUP_BYTES) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "task label '%.80s...' is too long", result->label);
    }
    FL_TRY(fl_run_file_set_text(file, group, "task", result->name, error));
    for (size_t m = 0; m < result->metric_count; m++) {
        const fl_task_metric *metric = &result->metrics[m];
        FL_TRY(fl_run_file_set_number(file, group, metric->name, metric->value, error));
    }
    for (size_t c = 0; c < COUNT(columns); c++) FL_TRY(write_column(file, group, result, &columns[c], error));
    FL_TRY(write_item_texts(file, group, result, error));
    return write_subjects(file, group, result, error);
}

fl_status fl_task_record_write_training(fl_run_file *file, size_t steps, const double *loss,
                                        const double *gradient_norm, const double *learning_rate,
                                        fl_error *error) {
    const struct {
        const char *path;
        const double *data;
        const char *units, *description;
    } curves[] = {{"/training/loss", loss, "nat", "loss of the step's batch"},
                  {"/training/gradient_norm", gradient_norm, "1", "norm of the gradient before clipping"},
                  {"/training/learning_rate", learning_rate, "1", "learning rate of the step"}};
    for (size_t i = 0; i < COUNT(curves); i++) {
        FL_TRY(fl_run_file_write_doubles(file, curves[i].path, 1, &steps, curves[i].data, curves[i].units,
                                         curves[i].description, error));
    }
    return FL_OK;
}
