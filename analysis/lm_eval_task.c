#include "analysis/lm_eval_task.h"

#include <math.h>
#include <string.h>

#include "analysis/table.h"
#include "harness/base/memory.h"
#include "harness/base/whole_number.h"
#include "harness/eval/task_columns.h"
#include "harness/store/sweep.h"

enum { NAME_BYTES = FL_LM_EVAL_NAME_BYTES };

static const struct {
    const char *name;
    bool higher_is_better;
} metrics[] = {
    {"acc", true},
    {"acc_norm", true},
    {"acc_bytes", true},
    {"perplexity", false},
    {"word_perplexity", false},
    {"byte_perplexity", false},
    {"bits_per_byte", false},
};
enum { METRICS = sizeof metrics / sizeof metrics[0] };
static const char *const categories[] = {"stem", "humanities", "social_sciences", "other"};
enum { CATEGORIES = sizeof categories / sizeof categories[0] };

void fl_lm_eval_task_release(fl_lm_eval_task *task) {
    double *const columns[] = {task->document,
                               task->gold,
                               task->greedy,
                               task->correct,
                               task->correct_norm,
                               task->correct_bytes,
                               task->log_likelihood,
                               task->subject_n,
                               task->words,
                               task->bytes,
                               task->shots_left,
                               task->choice_greedy,
                               task->subject_acc,
                               task->subject_acc_stderr,
                               task->subject_acc_norm,
                               task->subject_acc_norm_stderr};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) fl_memory_free(columns[i]);
    fl_sweep_list_release(task->subject, task->count);
    fl_sweep_list_release(task->answer, task->count);
    fl_sweep_list_release(task->document_hash, task->count);
    fl_task_texts_close(task->texts);
    fl_sweep_list_release(task->subjects, task->subject_count);
    fl_memory_free(task->label);
    *task = (fl_lm_eval_task){0};
}

/* Absent columns are left NULL. */
static fl_status read_array(fl_run_reader *reader, const char *label, const char *name, size_t rank,
                            size_t *shape, double **out, fl_error *error) {
    char path[NAME_BYTES];
    snprintf(path, sizeof path, "/tasks/%s/%s", label, name);
    return fl_run_reader_has(reader, path) ? fl_run_reader_array(reader, path, rank, shape, out, error)
                                           : FL_OK;
}

static fl_status read_texts(fl_run_reader *reader, const char *label, const char *name, size_t count,
                            char ***out, fl_error *error) {
    char path[NAME_BYTES];
    snprintf(path, sizeof path, "/tasks/%s/%s", label, name);
    return fl_run_reader_has(reader, path) ? fl_run_reader_column(reader, path, count, out, error) : FL_OK;
}

/* A column of whole numbers, or of any. */
static fl_status read_items_column(fl_run_reader *reader, fl_lm_eval_task *task, const char *name,
                                   double **out, fl_error *error) {
    char path[NAME_BYTES + 16], item[64];
    int64_t whole = 0;
    snprintf(item, sizeof item, "items/%s", name);
    FL_TRY(read_array(reader, task->label, item, 1, &task->count, out, error));
    const fl_task_column *known = fl_task_column_find(name);
    for (size_t i = 0; *out != NULL && known != NULL && known->is_integer && i < task->count; i++) {
        if (fl_integer_of_number((*out)[i], &whole)) continue;
        snprintf(path, sizeof path, "/tasks/%s/%s", task->label, item);
        return fl_run_reader_refuse(reader, path, "holds what is no whole number", error);
    }
    return FL_OK;
}

/* Sizes of the task: what documents and log-likelihoods say. */
static fl_status read_sizes(fl_run_reader *reader, fl_lm_eval_task *task, fl_error *error) {
    FL_TRY(read_items_column(reader, task, "document", &task->document, error));
    if (task->document == NULL)
        return fl_run_reader_refuse(reader, task->label, "the task lists no documents", error);
    size_t shape[2] = {task->count, 0};
    FL_TRY(read_array(reader, task->label, "items/log_likelihood", 2, shape, &task->log_likelihood, error));
    task->choices = shape[1];
    if (task->log_likelihood == NULL) return FL_OK;
    return read_array(reader, task->label, "items/choice_greedy", 2, shape, &task->choice_greedy, error);
}

static fl_status read_items(fl_run_reader *reader, fl_lm_eval_task *task, fl_error *error) {
    FL_TRY(read_sizes(reader, task, error));
    const struct {
        const char *name;
        double **out;
    } columns[] = {{"gold", &task->gold},
                   {"greedy", &task->greedy},
                   {"correct", &task->correct},
                   {"correct_norm", &task->correct_norm},
                   {"correct_bytes", &task->correct_bytes},
                   {"words", &task->words},
                   {"bytes", &task->bytes},
                   {"shots", &task->shots_left}};
    const struct {
        const char *name;
        char ***out;
    } texts[] = {{"items/subject", &task->subject},
                 {"items/answer", &task->answer},
                 {"items/document_hash", &task->document_hash}};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        FL_TRY(read_items_column(reader, task, columns[i].name, columns[i].out, error));
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        FL_TRY(read_texts(reader, task->label, texts[i].name, task->count, texts[i].out, error));
    return FL_OK;
}

static fl_status read_subjects(fl_run_reader *reader, fl_lm_eval_task *task, fl_error *error) {
    char path[NAME_BYTES];
    snprintf(path, sizeof path, "/tasks/%s/subjects/name", task->label);
    if (!fl_run_reader_has(reader, path)) return FL_OK;
    FL_TRY(fl_run_reader_texts(reader, path, &task->subjects, &task->subject_count, error));
    if (task->subject_count == 0) return fl_run_reader_refuse(reader, path, "has no entries", error);
    const struct {
        const char *name;
        double **out;
    } columns[] = {{"subjects/n", &task->subject_n},
                   {"subjects/acc", &task->subject_acc},
                   {"subjects/acc_stderr", &task->subject_acc_stderr},
                   {"subjects/acc_norm", &task->subject_acc_norm},
                   {"subjects/acc_norm_stderr", &task->subject_acc_norm_stderr}};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        FL_TRY(
            read_array(reader, task->label, columns[i].name, 1, &task->subject_count, columns[i].out, error));
    return FL_OK;
}

/* The entry of the configuration's task list with this label. */
static void find_settings(const fl_run_entry *run, fl_lm_eval_task *task) {
    for (size_t i = 0;; i++) {
        char key[64];
        snprintf(key, sizeof key, "tasks.%zu.name", i);
        const char *name = fl_run_entry_value(run, key);
        if (name == NULL) return;
        snprintf(key, sizeof key, "tasks.%zu.label", i);
        const char *label = fl_run_entry_value(run, key);
        bool is_it = label != NULL && strcmp(label, task->label) == 0;
        if (!is_it && strcmp(name, task->label) != 0) continue;
        snprintf(key, sizeof key, "tasks.%zu.shots", i);
        task->shots = fl_run_entry_value(run, key);
        snprintf(key, sizeof key, "tasks.%zu.limit", i);
        task->limit = fl_run_entry_value(run, key);
        return;
    }
}

fl_status fl_lm_eval_task_read(fl_run_reader *reader, const fl_run_entry *run, const char *label,
                               fl_lm_eval_task *out, fl_error *error) {
    *out = (fl_lm_eval_task){0};
    fl_status status = fl_memory_copy_string(&out->label, label, error);
    if (status == FL_OK) status = read_items(reader, out, error);
    if (status == FL_OK) status = read_subjects(reader, out, error);
    if (status == FL_OK) {
        find_settings(run, out);
        return FL_OK;
    }
    fl_lm_eval_task_release(out);
    return status;
}

bool fl_lm_eval_is_group(const fl_lm_eval_task *task) {
    return task->subject_count > 1;
}

size_t fl_lm_eval_leaf_count(const fl_lm_eval_task *task) {
    return fl_lm_eval_is_group(task) ? task->subject_count : 1;
}

void fl_lm_eval_leaf_name(const fl_lm_eval_task *task, size_t leaf, char out[FL_LM_EVAL_NAME_BYTES]) {
    if (fl_lm_eval_is_group(task)) {
        snprintf(out, NAME_BYTES, "%s_%s", task->label, task->subjects[leaf]);
    } else {
        snprintf(out, NAME_BYTES, "%s", task->label);
    }
}

static size_t leaf_items(const fl_lm_eval_task *task, size_t leaf) {
    size_t items = 0;
    const bool own = fl_lm_eval_is_group(task) && task->subject_n != NULL;
    return own && fl_size_of_number(task->subject_n[leaf], &items) ? items : task->count;
}

static void write_value(FILE *stream, double value) {
    char text[FL_NUMBER_BYTES];
    if (isnan(value)) {
        fputs("\"N/A\"", stream);
    } else if (isinf(value)) {
        fputs(value > 0 ? "Infinity" : "-Infinity", stream);
    } else {
        fputs(fl_table_number_text(value, text), stream);
    }
}

static void write_metric(FILE *stream, const char *name, double value, double error) {
    fprintf(stream, ",\n      \"%s,none\": ", name);
    write_value(stream, value);
    fprintf(stream, ",\n      \"%s_stderr,none\": ", name);
    write_value(stream, error);
}

/* Metrics that the run file holds for the task as a whole, or for a category ("acc_stem"). */
static void write_whole(FILE *stream, const fl_run_entry *run, const fl_lm_eval_task *task,
                        const char *category) {
    for (size_t m = 0; m < METRICS; m++) {
        char name[NAME_BYTES], error[NAME_BYTES];
        const char *joint = category != NULL ? "_" : "";
        snprintf(name, sizeof name, "tasks/%s/%s%s%s", task->label, metrics[m].name, joint,
                 category != NULL ? category : "");
        snprintf(error, sizeof error, "tasks/%s/%s%s%s_stderr", task->label, metrics[m].name, joint,
                 category != NULL ? category : "");
        if (!fl_run_has_metric(run, name)) continue;
        write_metric(stream, metrics[m].name, fl_run_metric_value(run, name),
                     fl_run_metric_value(run, error));
    }
}

static void write_leaf(FILE *stream, const fl_run_entry *run, const fl_lm_eval_task *task, size_t leaf) {
    if (!fl_lm_eval_is_group(task)) {
        write_whole(stream, run, task, NULL);
        return;
    }
    if (task->subject_acc != NULL && task->subject_acc_stderr != NULL)
        write_metric(stream, "acc", task->subject_acc[leaf], task->subject_acc_stderr[leaf]);
    if (task->subject_acc_norm != NULL && task->subject_acc_norm_stderr != NULL && task->correct_norm != NULL)
        write_metric(stream, "acc_norm", task->subject_acc_norm[leaf], task->subject_acc_norm_stderr[leaf]);
}

/* Starts a member `"name": {"alias": "name"`. */
static void open_result(FILE *stream, const char *name, bool *first) {
    fputs(*first ? "\n    " : ",\n    ", stream);
    *first = false;
    fl_table_json_text(stream, name);
    fputs(": {\n      \"alias\": ", stream);
    fl_table_json_text(stream, name);
}

static void write_groups(FILE *stream, const fl_run_entry *run, const fl_lm_eval_task *task, bool *first) {
    if (!fl_lm_eval_is_group(task)) return;
    open_result(stream, task->label, first);
    write_whole(stream, run, task, NULL);
    fputs("\n    }", stream);
    for (size_t c = 0; c < CATEGORIES; c++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "tasks/%s/acc_%s", task->label, categories[c]);
        if (!fl_run_has_metric(run, name)) continue;
        snprintf(name, sizeof name, "%s_%s", task->label, categories[c]);
        open_result(stream, name, first);
        write_whole(stream, run, task, categories[c]);
        fputs("\n    }", stream);
    }
}

static void write_results(FILE *stream, const fl_run_entry *run, const fl_lm_eval_task *task, bool *first) {
    write_groups(stream, run, task, first);
    for (size_t leaf = 0; leaf < fl_lm_eval_leaf_count(task); leaf++) {
        char name[NAME_BYTES];
        fl_lm_eval_leaf_name(task, leaf, name);
        open_result(stream, name, first);
        write_leaf(stream, run, task, leaf);
        fputs("\n    }", stream);
    }
}

static void write_subtasks(FILE *stream, const fl_lm_eval_task *task, bool *first) {
    if (!fl_lm_eval_is_group(task)) return;
    fputs(*first ? "\n    " : ",\n    ", stream);
    *first = false;
    fl_table_json_text(stream, task->label);
    fputs(": [", stream);
    for (size_t leaf = 0; leaf < fl_lm_eval_leaf_count(task); leaf++) {
        char name[NAME_BYTES];
        fl_lm_eval_leaf_name(task, leaf, name);
        if (leaf > 0) fputs(", ", stream);
        fl_table_json_text(stream, name);
    }
    fputc(']', stream);
}

static bool whole_metric(const fl_run_entry *run, const fl_lm_eval_task *task, size_t metric) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "tasks/%s/%s", task->label, metrics[metric].name);
    return fl_run_has_metric(run, name);
}

static void write_directions(FILE *stream, const fl_run_entry *run, const fl_lm_eval_task *task) {
    const char *separator = "";
    fputc('{', stream);
    for (size_t m = 0; m < METRICS; m++) {
        if (!whole_metric(run, task, m)) continue;
        fprintf(stream, "%s\"%s\": %s", separator, metrics[m].name,
                metrics[m].higher_is_better ? "true" : "false");
        separator = ", ";
    }
    fputc('}', stream);
}

/* One value a leaf. */
static void write_leaf_value(FILE *stream, fl_lm_eval_part part, const fl_run_entry *run,
                             const fl_lm_eval_task *task, size_t leaf) {
    const char *shots = task->shots != NULL ? task->shots : "null";
    bool all = task->limit != NULL && strcmp(task->limit, "0") == 0;
    char name[NAME_BYTES];
    switch (part) {
    case FL_LM_EVAL_CONFIGS:
        fl_lm_eval_leaf_name(task, leaf, name);
        fputs("{\"task\": ", stream);
        fl_table_json_text(stream, name);
        fprintf(stream, ", \"num_fewshot\": %s}", shots);
        break;
    case FL_LM_EVAL_SHOTS:
        fputs(shots, stream);
        break;
    case FL_LM_EVAL_HIGHER_IS_BETTER:
        write_directions(stream, run, task);
        break;
    case FL_LM_EVAL_SAMPLE_COUNTS:
        fputs("{\"original\": ", stream);
        if (all) {
            fprintf(stream, "%zu", leaf_items(task, leaf));
        } else {
            fputs("null", stream);
        }
        fprintf(stream, ", \"effective\": %zu}", leaf_items(task, leaf));
        break;
    default:
        fputs("null", stream);
    }
}

static void write_leaf_values(FILE *stream, fl_lm_eval_part part, const fl_run_entry *run,
                              const fl_lm_eval_task *task, bool *first) {
    for (size_t leaf = 0; leaf < fl_lm_eval_leaf_count(task); leaf++) {
        char name[NAME_BYTES];
        fl_lm_eval_leaf_name(task, leaf, name);
        fputs(*first ? "\n    " : ",\n    ", stream);
        *first = false;
        fl_table_json_text(stream, name);
        fputs(": ", stream);
        write_leaf_value(stream, part, run, task, leaf);
    }
}

void fl_lm_eval_write_part(FILE *stream, fl_lm_eval_part part, const fl_run_entry *run,
                           const fl_lm_eval_task *tasks, size_t count) {
    static const char *const names[] = {"results",  "groups", "group_subtasks",   "configs",
                                        "versions", "n-shot", "higher_is_better", "n-samples"};
    bool first = true;
    fprintf(stream, "  \"%s\": {", names[part]);
    for (size_t t = 0; t < count; t++) {
        if (part == FL_LM_EVAL_RESULTS) {
            write_results(stream, run, &tasks[t], &first);
        } else if (part == FL_LM_EVAL_GROUPS) {
            write_groups(stream, run, &tasks[t], &first);
        } else if (part == FL_LM_EVAL_GROUP_SUBTASKS) {
            write_subtasks(stream, &tasks[t], &first);
        } else {
            write_leaf_values(stream, part, run, &tasks[t], &first);
        }
    }
    fputs(first ? "},\n" : "\n  },\n", stream);
}
