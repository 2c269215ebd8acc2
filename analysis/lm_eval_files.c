#include "analysis/lm_eval_files.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/lm_eval_samples.h"
#include "analysis/lm_eval_task.h"
#include "analysis/output_file.h"
#include "analysis/table.h"
#include "harness/base/memory.h"
#include "harness/config/node.h"
#include "harness/store/folder.h"
#include "harness/store/run_file.h"

enum { TIME_BYTES = 32 };

/* Runs of characters that a file name should not hold become "__", as lm-evaluation-harness does it. What
 * only leads there
 * ("/", "./", "../") is left out: the name of a folder that begins with a dot would be hidden. */
static fl_status sanitise(const char *name, char **out, fl_error *error) {
    static const char bad[] = "\"<>:/|\\?*[]";
    FL_TRY(FL_ALLOCATE(out, 2 * strlen(name) + 1, error));
    char *to = *out;
    name += strspn(name, "./");
    for (; *name != '\0'; name++) {
        if (strchr(bad, *name) == NULL) {
            *to++ = *name;
            continue;
        }
        while (name[1] != '\0' && strchr(bad, name[1]) != NULL) name++;
        *to++ = '_';
        *to++ = '_';
    }
    *to = '\0';
    return FL_OK;
}

static char *provenance_text(fl_run_reader *reader, const char *name) {
    char path[64], *text = NULL;
    snprintf(path, sizeof path, "/provenance/%s", name);
    return fl_run_reader_text(reader, path, &text, NULL) == FL_OK ? text : NULL;
}

/* "2026-01-31T23:59:59Z" as seconds since 1970 (Howard Hinnant's days from civil); NaN when it is none. */
static double seconds_since_1970(const char *time) {
    int year, month, day, hour, minute, second;
    if (time == NULL ||
        sscanf(time, "%4d-%2d-%2dT%2d:%2d:%2dZ", &year, &month, &day, &hour, &minute, &second) != 6)
        return (double)NAN;
    year -= month <= 2;
    long era = year / 400, year_of_era = year - era * 400;
    long day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    long day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return (double)(era * 146097 + day_of_era - 719468) * 86400.0 + hour * 3600.0 + minute * 60.0 + second;
}

static void write_pair(FILE *stream, const char *name, const char *text, const char *end) {
    fputs("    ", stream);
    fl_table_json_text(stream, name);
    fputs(": ", stream);
    if (text == NULL) {
        fputs("null", stream);
    } else {
        fl_table_json_text(stream, text);
    }
    fputs(end, stream);
}

/* "pretrained=...,rule=kda,window=56,...": every setting of the variant. */
static void write_model_arguments(FILE *stream, const fl_run_entry *run, const char *model) {
    static const char prefix[] = "variant.";
    size_t used = 0;
    char text[4096];
    used = (size_t)snprintf(text, sizeof text, "pretrained=%s", model != NULL ? model : "");
    for (size_t i = 0; i < run->key_count && used < sizeof text; i++) {
        if (strncmp(run->keys[i], prefix, sizeof prefix - 1) != 0) continue;
        used += (size_t)snprintf(text + used, sizeof text - used, ",%s=%s", run->keys[i] + sizeof prefix - 1,
                                 run->values[i]);
    }
    write_pair(stream, "model_args", text, ",\n");
}

static double total_seconds(const fl_run_entry *run) {
    double total = 0;
    for (size_t i = 0; i < run->task_count; i++) {
        char name[512];
        snprintf(name, sizeof name, "tasks/%s/seconds", run->tasks[i]);
        double seconds = fl_run_metric_value(run, name);
        if (isfinite(seconds)) total += seconds;
    }
    return total;
}

static void write_config(FILE *stream, const fl_run_entry *run, fl_run_reader *reader, const char *model,
                         const char *time) {
    char number[FL_NUMBER_BYTES];
    char *revision = provenance_text(reader, "code_revision"),
         *weights = provenance_text(reader, "weights_hash_before");
    fputs("  \"config\": {\n", stream);
    write_pair(stream, "model", "frostline", ",\n");
    write_model_arguments(stream, run, model);
    write_pair(stream, "dtype", "float32", ",\n");
    write_pair(stream, "sha", weights, ",\n");
    write_pair(stream, "device", "cpu", ",\n");
    write_pair(stream, "run_id", run->run_id, ",\n");
    write_pair(stream, "tier", run->tier, "\n  },\n");
    fputs("  \"git_hash\": ", stream);
    fl_table_json_text(stream, revision != NULL ? revision : "");
    double date = seconds_since_1970(time);
    fprintf(stream, ",\n  \"date\": %s,\n", isnan(date) ? "null" : fl_table_number_text(date, number));
    fputs("  \"model_source\": \"frostline\",\n  \"model_name\": ", stream);
    fl_table_json_text(stream, model != NULL ? model : "");
    fprintf(stream, ",\n  \"total_evaluation_time_seconds\": \"%s\"\n}\n",
            fl_table_number_text(total_seconds(run), number));
    fl_memory_free(revision);
    fl_memory_free(weights);
}

static fl_status write_results(const fl_run_entry *run, fl_run_reader *reader, const fl_lm_eval_task *tasks,
                               const char *path, const char *model, const char *time, fl_error *error) {
    fl_output_file file;
    FL_TRY(fl_output_file_open(path, &file, error));
    fputs("{\n", file.stream);
    for (fl_lm_eval_part part = 0; part < FL_LM_EVAL_PARTS; part++)
        fl_lm_eval_write_part(file.stream, part, run, tasks, run->task_count);
    write_config(file.stream, run, reader, model, time);
    return fl_output_file_close(&file, error);
}

static fl_status write_run_into(const fl_run_entry *run, fl_run_reader *reader, const fl_lm_eval_task *tasks,
                                const char *folder, const char *model, const char *time, fl_error *error) {
    char stamp[TIME_BYTES];
    char *path = NULL;
    snprintf(stamp, sizeof stamp, "%s", time != NULL ? time : "unknown");
    for (char *c = stamp; *c != '\0'; c++) {
        if (*c == ':' || *c == '/') *c = '-';
        if (*c == 'Z') *c = '\0';
    }
    FL_TRY(fl_folder_create(folder, error));
    FL_TRY(fl_folder_format(&path, error, "%s/results_%s.json", folder, stamp));
    fl_status status = write_results(run, reader, tasks, path, model, time, error);
    fl_memory_free(path);
    for (size_t t = 0; t < run->task_count && status == FL_OK; t++)
        status = fl_lm_eval_write_samples(&tasks[t], folder, stamp, error);
    return status;
}

/* The run's own task settings. */
static fl_status read_configs(fl_run_reader *reader, const char *path, fl_document **document,
                              fl_task_config_list *out, fl_error *error) {
    char *text = NULL;
    FL_TRY(fl_run_reader_text(reader, "/config", &text, error));
    fl_status status = fl_document_parse_text(text, strlen(text), path, document, error);
    fl_memory_free(text);
    FL_TRY(status);
    return fl_task_config_bind(fl_node_get(fl_document_root(*document), "tasks"), NULL, out, error);
}

/* The data behind a task, when they are still the recorded ones. */
static fl_status open_texts(fl_run_reader *reader, const fl_task_config *config, fl_task_texts **out,
                            fl_error *error) {
    char group[512], *recorded = NULL;
    fl_task_texts *texts = NULL;
    snprintf(group, sizeof group, "/tasks/%s", config->label);
    FL_TRY(fl_run_reader_attribute_text(reader, group, "data_hash", &recorded, error));
    fl_status status = fl_task_texts_open(config, &texts, error);
    if (status == FL_OK && strcmp(recorded, fl_task_texts_data_hash(texts).text) != 0) {
        status = fl_error_set(error, FL_ERROR_ARGUMENT, "%s has changed since the run (hash %s, recorded %s)",
                              config->path, fl_task_texts_data_hash(texts).text, recorded);
    }
    fl_memory_free(recorded);
    if (status == FL_OK)
        *out = texts;
    else
        fl_task_texts_close(texts);
    return status;
}

/* Tasks whose data cannot be had are left without texts, and noted. */
static fl_status add_texts(fl_run_reader *reader, const fl_run_entry *run, const fl_task_config_list *configs,
                           fl_lm_eval_task *tasks, fl_text_builder *notes, fl_error *error) {
    for (size_t t = 0; t < run->task_count; t++) {
        for (size_t c = 0; c < configs->count; c++) {
            const fl_task_config *config = &configs->items[c];
            fl_error fault;
            if (strcmp(config->label, tasks[t].label) != 0) continue;
            tasks[t].kind = config->kind;
            if (!fl_task_texts_exist(config->kind)) continue;
            if (open_texts(reader, config, &tasks[t].texts, &fault) == FL_OK) continue;
            FL_TRY(fl_text_builder_format(notes, error, "%s: task %s without texts: %s\n", run->path,
                                          config->label, fault.message));
        }
    }
    return FL_OK;
}

/* A configuration that cannot be read any more (a merged file's paths may differ) leaves all without texts.
 */
static fl_status find_texts(fl_run_reader *reader, const fl_run_entry *run, fl_lm_eval_task *tasks,
                            fl_task_config_list *configs, fl_document **document, fl_text_builder *notes,
                            fl_error *error) {
    fl_error fault;
    if (read_configs(reader, run->path, document, configs, &fault) == FL_OK)
        return add_texts(reader, run, configs, tasks, notes, error);
    return fl_text_builder_format(notes, error, "%s: tasks without texts: %s\n", run->path, fault.message);
}

static fl_status write_run(const fl_run_entry *run, const char *folder, fl_text_builder *notes,
                           fl_error *error) {
    fl_task_config_list configs = {0};
    fl_document *document = NULL;
    fl_run_reader *reader = NULL;
    fl_lm_eval_task *tasks = NULL;
    char *model = NULL, *time = NULL, *safe = NULL, *id = NULL, *own = NULL;
    fl_status status = FL_OK;
    FL_TRY(fl_run_reader_open(run->path, &reader, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&tasks, run->task_count, error));
    for (size_t t = 0; t < run->task_count; t++)
        FL_TRY_DONE(status, fl_lm_eval_task_read(reader, run, run->tasks[t], &tasks[t], error));
    FL_TRY_DONE(status, find_texts(reader, run, tasks, &configs, &document, notes, error));
    model = provenance_text(reader, "model");
    time = provenance_text(reader, "finished");
    FL_TRY_DONE(status, sanitise(model != NULL ? model : "model", &safe, error));
    FL_TRY_DONE(status, sanitise(run->run_id, &id, error));
    FL_TRY_DONE(status, fl_folder_format(&own, error, "%s/%s__%s", folder, safe, id));
    status = write_run_into(run, reader, tasks, own, model, time, error);
done:
    for (size_t t = 0; tasks != NULL && t < run->task_count; t++) fl_lm_eval_task_release(&tasks[t]);
    fl_memory_free(tasks);
    fl_task_config_release(&configs);
    fl_document_destroy(document);
    fl_memory_free(model);
    fl_memory_free(time);
    fl_memory_free(safe);
    fl_memory_free(id);
    fl_memory_free(own);
    fl_run_reader_close(reader);
    return status;
}

fl_status fl_lm_eval_files_write(const fl_run_set *set, const char *folder, size_t *written,
                                 fl_text_builder *notes, fl_error *error) {
    *written = 0;
    for (size_t i = 0; i < set->count; i++) {
        if (set->runs[i].task_count == 0) continue;
        FL_TRY(write_run(&set->runs[i], folder, notes, error));
        (*written)++;
    }
    if (*written > 0) return FL_OK;
    return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: no run has task results", set->runs[0].path);
}
