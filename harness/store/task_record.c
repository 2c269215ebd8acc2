#include "harness/store/task_record.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/base/whole_number.h"
#include "harness/eval/task_columns.h"

enum { GROUP_BYTES = 256, PATH_BYTES = 384 };

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static fl_status write_column(fl_run_file *file, const char *group, const fl_task_result *result,
                              const fl_task_column *column, fl_error *error) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/items/%s", group, column->name);
    const size_t shape[2] = {result->count, result->choices};
    const size_t rank = column->per_choice ? 2 : 1;
    const void *data = fl_task_column_data(column, result);
    if (column->is_integer)
        return fl_run_file_write_integers(file, path, rank, shape, data, column->units, column->description,
                                          error);
    return fl_run_file_write_doubles(file, path, rank, shape, data, column->units, column->description,
                                     error);
}

static const char *subject_of(const fl_task_result *result, size_t item) {
    const int64_t subject = result->subject[item];
    return subject >= 0 && (size_t)subject < result->subject_count ? result->subjects[subject].name : "";
}

static fl_status write_item_texts(fl_run_file *file, const char *group, const fl_task_result *result,
                                  fl_error *error) {
    char path[PATH_BYTES];
    const char **texts = NULL;
    fl_status status = FL_OK;
    snprintf(path, sizeof path, "%s/items/answer", group);
    FL_TRY(fl_run_file_write_texts(file, path, result->count, (const char *const *)result->answer,
                                   "what was generated", error));
    FL_TRY(FL_ALLOCATE(&texts, result->count, error));
    if (result->subject != NULL) {
        for (size_t i = 0; i < result->count; i++) texts[i] = subject_of(result, i);
        snprintf(path, sizeof path, "%s/items/subject", group);
        FL_TRY_DONE(status,
                    fl_run_file_write_texts(file, path, result->count, texts, "subject of the item", error));
    }
    if (result->document_hash != NULL) {
        for (size_t i = 0; i < result->count; i++) texts[i] = result->document_hash[i].text;
        snprintf(path, sizeof path, "%s/items/document_hash", group);
        status = fl_run_file_write_texts(file, path, result->count, texts,
                                         "XXH3-128 of the document as read; of made items, of their tokens",
                                         error);
    }
done:
    fl_memory_free(texts);
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
    if (result->data_hash.text[0] != '\0')
        FL_TRY(fl_run_file_set_text(file, group, "data_hash", result->data_hash.text, error));
    size_t columns = 0;
    const fl_task_column *table = fl_task_columns(&columns);
    for (size_t c = 0; c < columns; c++) FL_TRY(write_column(file, group, result, &table[c], error));
    FL_TRY(write_item_texts(file, group, result, error));
    return write_subjects(file, group, result, error);
}

/* The metrics of these forms are made of columns that others do not have. */
static fl_status check_columns(const fl_run_reader *reader, const fl_task_config *config,
                               const fl_task_result *result, fl_error *error) {
    const fl_task_form form = config->kind->form;
    const bool scored = form != FL_TASK_PAGES && form != FL_TASK_TEXT;
    const struct {
        const char *name;
        const void *data;
        bool needed;
    } columns[] = {
        {"document", result->document, true},
        {"document_hash", result->document_hash, true},
        {"subject", result->subject, true},
        {"log_likelihood", result->log_likelihood, true},
        {"choice_tokens", result->choice_tokens, true},
        {"linear_share", result->linear_share, true},
        {"truncated", result->truncated, true},
        {"correct", result->correct, scored},
        {"correct_norm", result->correct_norm, config->kind->length_normalised},
        {"correct_bytes", result->correct_bytes, config->kind->length_normalised},
        {"stale", result->stale, form == FL_TASK_RECALL},
        {"length", result->length, form == FL_TASK_RECALL || form == FL_TASK_GENERATION},
        {"square_sum", result->square_sum, form == FL_TASK_TEXT},
        {"words", result->words, form == FL_TASK_PAGES},
        {"bytes", result->bytes, form == FL_TASK_PAGES},
        {"answer", result->answer, form == FL_TASK_GENERATION},
    };
    for (size_t i = 0; i < COUNT(columns); i++) {
        if (!columns[i].needed || columns[i].data != NULL) continue;
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "/tasks/%s/items/%s", config->label, columns[i].name);
        return fl_run_reader_refuse(reader, path, "is not there: it cannot be pooled without", error);
    }
    return FL_OK;
}

static fl_status as_integers(fl_run_reader *reader, const double *values, size_t count, const char *path,
                             int64_t **out, fl_error *error) {
    FL_TRY(FL_ALLOCATE(out, count, error));
    for (size_t i = 0; i < count; i++) {
        if (!fl_integer_of_number(values[i], &(*out)[i]))
            return fl_run_reader_refuse(reader, path, "holds what is no whole number", error);
    }
    return FL_OK;
}

/* The first column says how many items there are, the first of choices how many choices. */
static fl_status read_column(fl_run_reader *reader, const char *group, const fl_task_column *column,
                             fl_task_result *out, fl_error *error) {
    char path[PATH_BYTES];
    size_t shape[2] = {out->count, out->choices};
    double *values = NULL;
    snprintf(path, sizeof path, "%s/items/%s", group, column->name);
    if (!fl_run_reader_has(reader, path)) return FL_OK;
    FL_TRY(fl_run_reader_array(reader, path, column->per_choice ? 2 : 1, shape, &values, error));
    out->count = shape[0];
    out->choices = shape[1];
    if (!column->is_integer) {
        fl_task_column_set(column, out, values);
        return FL_OK;
    }
    int64_t *integers = NULL;
    const size_t count = out->count * (column->per_choice ? out->choices : 1);
    fl_status status = as_integers(reader, values, count, path, &integers, error);
    fl_task_column_set(column, out, integers);
    fl_memory_free(values);
    return status;
}

/* *texts stays NULL when there are none of this name. */
static fl_status read_texts(fl_run_reader *reader, const char *group, const char *name, size_t count,
                            char ***texts, fl_error *error) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", group, name);
    return fl_run_reader_has(reader, path) ? fl_run_reader_column(reader, path, count, texts, error) : FL_OK;
}

static void free_texts(char **texts, size_t count) {
    for (size_t i = 0; texts != NULL && i < count; i++) fl_memory_free(texts[i]);
    fl_memory_free(texts);
}

static fl_status read_subjects(fl_run_reader *reader, const char *group, fl_task_result *out,
                               fl_error *error) {
    char path[PATH_BYTES], **names = NULL;
    size_t count = 0;
    snprintf(path, sizeof path, "%s/subjects/name", group);
    if (!fl_run_reader_has(reader, path)) return FL_OK;
    FL_TRY(fl_run_reader_texts(reader, path, &names, &count, error));
    fl_status status = FL_ALLOCATE(&out->subjects, count, error);
    for (size_t s = 0; status == FL_OK && s < count; s++) {
        out->subjects[s].name = names[s];
        names[s] = NULL;
        out->subject_count = s + 1;
    }
    free_texts(names, count);
    return status;
}

/* Items come subject by subject, so the one of the item before is looked at first. */
static fl_status find_subject(const fl_run_reader *reader, const char *group, const char *name, size_t item,
                              fl_task_result *out, fl_error *error) {
    const size_t start = item > 0 ? (size_t)out->subject[item - 1] : 0;
    for (size_t i = 0; i < out->subject_count; i++) {
        const size_t subject = (start + i) % out->subject_count;
        if (strcmp(out->subjects[subject].name, name) != 0) continue;
        out->subject[item] = (int64_t)subject;
        return FL_OK;
    }
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/items/subject", group);
    return fl_run_reader_refuse(reader, path, "an item's subject is not in /subjects/name", error);
}

static fl_status read_item_texts(fl_run_reader *reader, const char *group, fl_task_result *out,
                                 fl_error *error) {
    char **names = NULL, **hashes = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, read_texts(reader, group, "items/subject", out->count, &names, error));
    if (names != NULL) FL_TRY_DONE(status, FL_ALLOCATE(&out->subject, out->count, error));
    for (size_t i = 0; names != NULL && i < out->count; i++)
        FL_TRY_DONE(status, find_subject(reader, group, names[i], i, out, error));
    FL_TRY_DONE(status, read_texts(reader, group, "items/document_hash", out->count, &hashes, error));
    if (hashes != NULL) FL_TRY_DONE(status, FL_ALLOCATE(&out->document_hash, out->count, error));
    for (size_t i = 0; hashes != NULL && i < out->count; i++)
        snprintf(out->document_hash[i].text, sizeof out->document_hash[i].text, "%s", hashes[i]);
    status = read_texts(reader, group, "items/answer", out->count, &out->answer, error);
done:
    free_texts(names, out->count);
    free_texts(hashes, out->count);
    return status;
}

static fl_status read_counts(fl_run_reader *reader, const char *group, fl_task_result *out, fl_error *error) {
    double asked = 0, computed = 0;
    FL_TRY(fl_run_reader_attribute_number(reader, group, "prompt_tokens", &asked, error));
    FL_TRY(fl_run_reader_attribute_number(reader, group, "computed_tokens", &computed, error));
    FL_TRY(fl_run_reader_attribute_number(reader, group, "seconds", &out->counts.seconds, error));
    if (!fl_size_of_number(asked, &out->counts.asked_tokens) ||
        !fl_size_of_number(computed, &out->counts.computed_tokens))
        return fl_run_reader_refuse(reader, group, "token counts that are none", error);
    char *hash = NULL;
    if (!fl_run_reader_has_attribute(reader, group, "data_hash")) return FL_OK;
    FL_TRY(fl_run_reader_attribute_text(reader, group, "data_hash", &hash, error));
    snprintf(out->data_hash.text, sizeof out->data_hash.text, "%s", hash);
    fl_memory_free(hash);
    return FL_OK;
}

static fl_status read_task(fl_run_reader *reader, const fl_task_config *config, fl_task_result *out,
                           fl_error *error) {
    char group[GROUP_BYTES];
    size_t columns = 0;
    const fl_task_column *table = fl_task_columns(&columns);
    snprintf(group, sizeof group, "/tasks/%s", config->label);
    if (!fl_run_reader_has(reader, group))
        return fl_run_reader_refuse(reader, group, "is not there: the task has no results", error);
    FL_TRY(fl_memory_copy_string(&out->name, config->name, error));
    FL_TRY(fl_memory_copy_string(&out->label, config->label, error));
    for (size_t c = 0; c < columns; c++) FL_TRY(read_column(reader, group, &table[c], out, error));
    FL_TRY(read_subjects(reader, group, out, error));
    FL_TRY(read_item_texts(reader, group, out, error));
    FL_TRY(read_counts(reader, group, out, error));
    return check_columns(reader, config, out, error);
}

fl_status fl_task_record_read(fl_run_reader *reader, const fl_task_config *config, fl_task_result *out,
                              fl_error *error) {
    *out = (fl_task_result){0};
    fl_status status = read_task(reader, config, out, error);
    if (status != FL_OK) fl_task_result_release(out);
    return status;
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
