#include "analysis/lm_eval_samples.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "analysis/output_file.h"
#include "analysis/table.h"
#include "harness/base/memory.h"
#include "harness/base/sha256.h"
#include "harness/base/whole_number.h"
#include "harness/eval/python_json.h"
#include "harness/store/folder.h"

/* One item on its way into the file. */
typedef struct sample {
    FILE *stream;
    const fl_lm_eval_task *task;
    size_t item;
    const fl_item_texts *texts; /* NULL: none */
    fl_text_buffer *scratch;
} sample;

/* Choices of an item: those with a log-likelihood, plus NaN ones before them (a diverged variant has only
 * NaN). */
static size_t choices_of(const fl_lm_eval_task *task, size_t item) {
    size_t count = task->choices;
    const double *values = task->log_likelihood + item * task->choices;
    while (count > 1 && isnan(values[count - 1])) count--;
    return count;
}

static bool has_log_likelihoods(const fl_lm_eval_task *task) {
    return task->log_likelihood != NULL && task->answer == NULL;
}

static bool is_page(const fl_lm_eval_task *task) {
    return task->words != NULL;
}

static size_t requests_of(const sample *s) {
    if (s->texts != NULL) return s->texts->count;
    return has_log_likelihoods(s->task) ? choices_of(s->task, s->item) : 1;
}

static fl_status write_text(const sample *s, const char *text, fl_error *error) {
    if (text == NULL) {
        fputs("null", s->stream);
        return FL_OK;
    }
    fl_text_buffer_clear(s->scratch);
    FL_TRY(fl_python_json_string(text, s->scratch, error));
    fputs(s->scratch->text, s->stream);
    return FL_OK;
}

static void write_hash(const sample *s, const char *name, const char *text) {
    char hash[FL_SHA256_TEXT_BYTES];
    if (text == NULL) {
        fprintf(s->stream, ", \"%s\": null", name);
        return;
    }
    fl_sha256_bytes(text, strlen(text), hash);
    fprintf(s->stream, ", \"%s\": \"%s\"", name, hash);
}

static fl_status write_document(const sample *s, fl_error *error) {
    const double document = s->task->document[s->item];
    fprintf(s->stream, "{\"doc_id\": %.0f, \"doc\": ", document);
    if (s->texts != NULL) {
        fputs(s->texts->document, s->stream);
    } else {
        fprintf(s->stream, "{\"document\": %.0f, \"subject\": ", document);
        FL_TRY(write_text(s, s->task->subject != NULL ? s->task->subject[s->item] : "", error));
        fputc('}', s->stream);
    }
    return FL_OK;
}

/* str(target); without texts that of a choice's number is known all the same. */
static const char *target_of(const sample *s, char number[32]) {
    if (s->texts != NULL) return s->texts->target;
    const bool text = is_page(s->task) || (s->task->kind != NULL && s->task->kind->text_target);
    if (text || s->task->gold == NULL || s->task->gold[s->item] < 0) return NULL;
    snprintf(number, 32, "%.0f", s->task->gold[s->item]);
    return number;
}

static fl_status write_arguments(const sample *s, fl_error *error) {
    fputs(", \"arguments\": {", s->stream);
    for (size_t i = 0; i < requests_of(s); i++) {
        fprintf(s->stream, "%s\"gen_args_%zu\": {\"arg_0\": ", i > 0 ? ", " : "", i);
        FL_TRY(write_text(s, s->texts != NULL ? s->texts->context[i] : NULL, error));
        if (!is_page(s->task)) {
            fputs(", \"arg_1\": ", s->stream);
            FL_TRY(write_text(s, s->texts != NULL ? s->texts->continuation[i] : NULL, error));
        }
        fputc('}', s->stream);
    }
    fputc('}', s->stream);
    return FL_OK;
}

/* ["-12.5", "True"], of a page "-12.5". Older run files know of the right choice alone whether it was the
 * greedy one: null for the others. */
static void write_response(const sample *s, size_t choice) {
    const fl_lm_eval_task *task = s->task;
    char text[FL_NUMBER_BYTES];
    const size_t at = s->item * task->choices + choice;
    fl_table_number_text(task->log_likelihood[at], text);
    if (is_page(task)) {
        fprintf(s->stream, "\"%s\"", text);
        return;
    }
    const bool is_gold = task->gold != NULL && task->gold[s->item] == (double)choice;
    const double *greedy = task->choice_greedy != NULL ? &task->choice_greedy[at]
                           : task->greedy != NULL && (is_gold || task->choices == 1) ? &task->greedy[s->item]
                                                                                     : NULL;
    fprintf(s->stream, "[\"%s\", %s]", text,
            greedy == NULL ? "null"
            : *greedy != 0 ? "\"True\""
                           : "\"False\"");
}

static fl_status write_responses(const sample *s, fl_error *error) {
    if (s->task->answer != NULL) {
        fputs(", \"resps\": [[", s->stream);
        FL_TRY(write_text(s, s->task->answer[s->item], error));
        fputs("]], \"filtered_resps\": [", s->stream);
        FL_TRY(write_text(s, s->task->answer[s->item], error));
        fputc(']', s->stream);
        return FL_OK;
    }
    const size_t count = has_log_likelihoods(s->task) ? requests_of(s) : 0;
    for (int filtered = 0; filtered < 2; filtered++) {
        fputs(filtered ? ", \"filtered_resps\": [" : ", \"resps\": [", s->stream);
        for (size_t c = 0; c < count; c++) {
            fputs(c > 0 ? ", " : "", s->stream);
            fputs(filtered ? "" : "[", s->stream);
            write_response(s, c);
            fputs(filtered ? "" : "]", s->stream);
        }
        fputc(']', s->stream);
    }
    return FL_OK;
}

/* Metrics an item has: of values, or of a log-likelihood and what it is divided by. */
typedef struct item_metric {
    const char *name;
    const double *values, *weights;
} item_metric;

enum { MOST_METRICS = 7 };

static size_t list_metrics(const fl_lm_eval_task *task, item_metric out[MOST_METRICS]) {
    const bool last_word = task->kind != NULL && task->kind->form == FL_TASK_LAST_WORD;
    const double *const pages = is_page(task) ? task->log_likelihood : NULL;
    const item_metric all[MOST_METRICS] = {
        {"acc", task->correct, NULL},
        {"acc_norm", task->correct_norm, NULL},
        {"acc_bytes", task->correct_bytes, NULL},
        {"perplexity", last_word ? task->log_likelihood : NULL, NULL},
        {"word_perplexity", pages, task->words},
        {"byte_perplexity", pages, task->bytes},
        {"bits_per_byte", pages, task->bytes},
    };
    size_t count = 0;
    for (size_t i = 0; i < MOST_METRICS; i++) {
        if (all[i].values != NULL) out[count++] = all[i];
    }
    return count;
}

static void write_metrics(const sample *s, const item_metric *metrics, size_t count) {
    char text[FL_NUMBER_BYTES];
    for (size_t i = 0; i < count; i++) {
        fprintf(s->stream, ", \"%s\": ", metrics[i].name);
        const double value = metrics[i].values[s->item];
        const char *number = isnan(value) ? "NaN" : fl_table_number_text(value, text);
        if (metrics[i].weights == NULL)
            fputs(number, s->stream);
        else
            fprintf(s->stream, "[%s, %.0f]", number, metrics[i].weights[s->item]);
    }
}

static fl_status write_sample(const sample *s, fl_error *error) {
    char number[32];
    const char *target = target_of(s, number);
    item_metric metrics[MOST_METRICS];
    const size_t count = list_metrics(s->task, metrics);
    FL_TRY(write_document(s, error));
    fputs(", \"target\": ", s->stream);
    FL_TRY(write_text(s, target, error));
    FL_TRY(write_arguments(s, error));
    FL_TRY(write_responses(s, error));
    fputs(", \"filter\": \"none\", \"metrics\": [", s->stream);
    for (size_t i = 0; i < count; i++) fprintf(s->stream, "%s\"%s\"", i > 0 ? ", " : "", metrics[i].name);
    fputc(']', s->stream);
    const bool row = s->texts != NULL && s->texts->is_row;
    write_hash(s, "doc_hash", row ? s->texts->document_indented : NULL);
    write_hash(s, "prompt_hash", s->texts != NULL ? s->texts->context[0] : NULL);
    write_hash(s, "target_hash", target);
    write_metrics(s, metrics, count);
    if (s->task->document_hash != NULL)
        fprintf(s->stream, ", \"frostline_document_hash\": \"%s\"", s->task->document_hash[s->item]);
    fputs("}\n", s->stream);
    return FL_OK;
}

static fl_status write_item(const fl_lm_eval_task *task, size_t item, FILE *stream, fl_text_buffer *scratch,
                            fl_error *error) {
    fl_item_texts texts = {0};
    sample s = {.stream = stream, .task = task, .item = item, .scratch = scratch};
    if (task->texts != NULL) {
        size_t shots = SIZE_MAX, document = 0;
        bool known = fl_size_of_number(task->document[item], &document);
        if (task->shots_left != NULL) known = known && fl_size_of_number(task->shots_left[item], &shots);
        if (!known)
            return fl_error_set(error, FL_ERROR_FORMAT, "task %s: item %zu: no index of a document, or shots",
                                task->label, item);
        FL_TRY(fl_task_texts_item(task->texts, task->subject != NULL ? task->subject[item] : "", document,
                                  shots, &texts, error));
        s.texts = &texts;
        if (task->document_hash != NULL && strcmp(task->document_hash[item], texts.hash.text) != 0) {
            fl_item_texts_release(&texts);
            return fl_error_set(error, FL_ERROR_FORMAT,
                                "task %s: item %zu is of another document than the data's", task->label,
                                item);
        }
        if (has_log_likelihoods(task) && texts.count > task->choices) {
            fl_error_set(error, FL_ERROR_FORMAT,
                         "task %s: item %zu: %zu choices in the run file, %zu in the data", task->label, item,
                         task->choices, texts.count);
            fl_item_texts_release(&texts);
            return FL_ERROR_FORMAT;
        }
    }
    fl_status status = write_sample(&s, error);
    fl_item_texts_release(&texts);
    return status;
}

static bool belongs(const fl_lm_eval_task *task, size_t leaf, size_t item) {
    return !fl_lm_eval_is_group(task) || task->subject == NULL ||
           strcmp(task->subject[item], task->subjects[leaf]) == 0;
}

static fl_status write_leaf(const fl_lm_eval_task *task, size_t leaf, const char *folder, const char *stamp,
                            fl_error *error) {
    char name[FL_LM_EVAL_NAME_BYTES], *path = NULL;
    fl_output_file file;
    fl_text_buffer scratch = {0};
    fl_lm_eval_leaf_name(task, leaf, name);
    for (char *c = name; *c != '\0'; c++) {
        if (*c == '/') *c = '_';
    }
    FL_TRY(fl_folder_format(&path, error, "%s/samples_%s_%s.jsonl", folder, name, stamp));
    fl_status status = fl_output_file_open(path, &file, error);
    fl_memory_free(path);
    FL_TRY(status);
    for (size_t i = 0; i < task->count && status == FL_OK; i++) {
        if (belongs(task, leaf, i)) status = write_item(task, i, file.stream, &scratch, error);
    }
    fl_text_buffer_release(&scratch);
    if (status == FL_OK) return fl_output_file_close(&file, error);
    fl_output_file_discard(&file);
    return status;
}

fl_status fl_lm_eval_write_samples(const fl_lm_eval_task *task, const char *folder, const char *stamp,
                                   fl_error *error) {
    for (size_t leaf = 0; leaf < fl_lm_eval_leaf_count(task); leaf++)
        FL_TRY(write_leaf(task, leaf, folder, stamp, error));
    return FL_OK;
}
