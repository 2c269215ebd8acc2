#include "analysis/run_set.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "analysis/run_axes.h"
#include "analysis/run_label.h"
#include "harness/base/memory.h"
#include "harness/config/node.h"
#include "harness/measure/measurements.h"
#include "harness/store/axis_record.h"
#include "harness/store/fingerprint.h"
#include "harness/store/folder.h"
#include "harness/store/run_file.h"
#include "harness/store/sweep.h"

enum { NAME_BYTES = 512 };

bool fl_run_scalar_at(size_t index, fl_run_scalar *out) {
    size_t count = 0, at = 0;
    const fl_measurement *rows = fl_measurements(&count);
    for (size_t i = 0; i < 2 * count; i++) {
        const fl_measurement *row = &rows[i % count];
        const bool linear_off = i >= count;
        if (row->figure == NULL || (linear_off && row->beside == NULL) || at++ < index) continue;
        snprintf(out->name, sizeof out->name, "%s%s", linear_off ? "linear_off/" : "", row->figure);
        snprintf(out->dataset, sizeof out->dataset, "%s%s", linear_off ? "/baseline/linear_off" : "",
                 row->path);
        out->rank = strlen(row->axes);
        out->units = row->units;
        out->meaning = row->meaning;
        return true;
    }
    return false;
}

void fl_run_entry_release(fl_run_entry *run) {
    char *const texts[] = {run->path,   run->run_id, run->name,  run->cell,
                           run->status, run->tier,   run->label, run->changed};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) fl_memory_free(texts[i]);
    for (size_t i = 0; i < run->key_count; i++) {
        fl_memory_free(run->keys[i]);
        fl_memory_free(run->values[i]);
    }
    for (size_t i = 0; i < run->metric_count; i++) fl_memory_free(run->metrics[i].name);
    for (size_t i = 0; i < run->task_count; i++) fl_memory_free(run->tasks[i]);
    fl_cell_axes_release(&run->axes);
    fl_sweep_list_release(run->warnings, run->warning_count);
    fl_memory_free(run->keys);
    fl_memory_free(run->values);
    fl_memory_free(run->metrics);
    fl_memory_free(run->tasks);
    *run = (fl_run_entry){0};
}

void fl_run_set_destroy(fl_run_set *set) {
    if (set == NULL) return;
    for (size_t i = 0; i < set->count + set->left_out; i++) fl_run_entry_release(&set->runs[i]);
    fl_absent_runs_release(&set->absent);
    fl_memory_free(set->runs);
    fl_memory_free(set->axes);
    fl_memory_free(set);
}

const char *fl_run_entry_value(const fl_run_entry *run, const char *key) {
    size_t low = 0, high = run->key_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(run->keys[middle], key);
        if (order == 0) return run->values[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    const fl_cell_setting *setting = fl_cell_axes_find(&run->axes, key);
    if (setting == NULL) return NULL;
    return setting->label[0] != '\0' ? setting->label : setting->name[0] != '\0' ? setting->name : "none";
}

bool fl_run_set_has_older(const fl_run_set *set) {
    for (size_t i = 0; i < set->count; i++) {
        if (set->runs[i].older) return true;
    }
    return false;
}

const char *fl_run_set_short_key(const char *key) {
    static const char prefix[] = "variant.";
    return strncmp(key, prefix, sizeof prefix - 1) == 0 ? key + sizeof prefix - 1 : key;
}

static const fl_run_metric *find_metric(const fl_run_entry *run, const char *name) {
    for (size_t i = 0; i < run->metric_count; i++) {
        if (strcmp(run->metrics[i].name, name) == 0) return &run->metrics[i];
    }
    return NULL;
}

double fl_run_metric_value(const fl_run_entry *run, const char *name) {
    const fl_run_metric *metric = find_metric(run, name);
    return metric != NULL ? metric->value : (double)NAN;
}

bool fl_run_has_metric(const fl_run_entry *run, const char *name) {
    return find_metric(run, name) != NULL;
}

bool fl_run_has_linear_part(const fl_run_entry *run) {
    const char *rule = fl_run_entry_value(run, "variant.rule");
    return rule != NULL && strcmp(rule, "softmax") != 0 && strcmp(rule, "none") != 0;
}

bool fl_run_no_gain(const fl_run_entry *run) {
    return fl_run_has_linear_part(run) &&
           fl_run_metric_value(run, "linear_off/perplexity") <= fl_run_metric_value(run, "perplexity");
}

static fl_status add_metric(fl_run_entry *run, const char *name, double value, fl_error *error) {
    FL_TRY(FL_RESIZE(&run->metrics, run->metric_count, run->metric_count + 1, error));
    FL_TRY(fl_memory_copy_string(&run->metrics[run->metric_count].name, name, error));
    run->metrics[run->metric_count++].value = value;
    return FL_OK;
}

static fl_status add_key(fl_run_entry *run, const char *key, const fl_node *value, fl_error *error) {
    FL_TRY(FL_RESIZE(&run->keys, run->key_count, run->key_count + 1, error));
    FL_TRY(FL_RESIZE(&run->values, run->key_count, run->key_count + 1, error));
    size_t at = run->key_count++;
    FL_TRY(fl_memory_copy_string(&run->keys[at], key, error));
    if (value->kind == FL_NODE_SCALAR) return fl_memory_copy_string(&run->values[at], value->text, error);
    return fl_node_text(value, &run->values[at], error);
}

/* Leaves of a tree; the parser limits its depth. Lists of mappings are numbered, other lists are values. */
static fl_status flatten(fl_run_entry *run, const char *prefix, const fl_node *node, fl_error *error) {
    bool list =
        node->kind == FL_NODE_SEQUENCE && node->count > 0 && node->children[0]->kind == FL_NODE_MAPPING;
    if (node->kind != FL_NODE_MAPPING && !list) return add_key(run, prefix, node, error);
    for (size_t i = 0; i < node->count; i++) {
        char key[NAME_BYTES], number[24];
        snprintf(number, sizeof number, "%zu", i);
        const char *name = node->kind == FL_NODE_MAPPING ? node->children[i]->key : number;
        int bytes = snprintf(key, sizeof key, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", name);
        if (bytes < 0 || bytes >= NAME_BYTES)
            return fl_error_set(error, FL_ERROR_FORMAT, "%s: /config: a key is too long", run->path);
        FL_TRY(flatten(run, key, node->children[i], error));
    }
    return FL_OK;
}

/* Nearly sorted already: the file's keys are, but "a.b" and "a_b" interleave. */
static void sort_keys(fl_run_entry *run) {
    for (size_t i = 1; i < run->key_count; i++) {
        char *key = run->keys[i], *value = run->values[i];
        size_t at = i;
        for (; at > 0 && strcmp(key, run->keys[at - 1]) < 0; at--) {
            run->keys[at] = run->keys[at - 1];
            run->values[at] = run->values[at - 1];
        }
        run->keys[at] = key;
        run->values[at] = value;
    }
}

static fl_status read_config(fl_run_reader *reader, fl_run_entry *run, fl_error *error) {
    char *text = NULL;
    fl_document *document = NULL;
    if (!fl_run_reader_has(reader, "/config")) return FL_OK;
    FL_TRY(fl_run_reader_text(reader, "/config", &text, error));
    fl_status status = fl_document_parse_text(text, strlen(text), run->path, &document, error);
    fl_memory_free(text);
    FL_TRY(status);
    status = flatten(run, "", fl_document_root(document), error);
    fl_document_destroy(document);
    if (status == FL_OK) sort_keys(run);
    return status;
}

/* Of a dataset with axes the mean. */
static fl_status read_scalar(fl_run_reader *reader, fl_run_entry *run, const fl_run_scalar *scalar,
                             fl_error *error) {
    double *data = NULL, sum = 0;
    size_t shape[4] = {0}, count = 1;
    if (!fl_run_reader_has(reader, scalar->dataset)) return FL_OK;
    FL_TRY(fl_run_reader_array(reader, scalar->dataset, scalar->rank, shape, &data, error));
    for (size_t i = 0; i < scalar->rank; i++) count *= shape[i];
    for (size_t i = 0; i < count; i++) sum += data[i];
    fl_memory_free(data);
    return add_metric(run, scalar->name, sum / (double)count, error);
}

/* Whether the attribute that is no number is a text, which is no metric. */
static bool is_text(fl_run_reader *reader, const char *group, const char *name) {
    char *text = NULL;
    const bool is = fl_run_reader_attribute_text(reader, group, name, &text, NULL) == FL_OK;
    fl_memory_free(text);
    return is;
}

/* Number attributes of one group as metrics `prefix`/<attribute>. */
static fl_status read_attributes(fl_run_reader *reader, fl_run_entry *run, const char *group,
                                 const char *prefix, fl_error *error) {
    char **names = NULL;
    size_t count = 0;
    if (!fl_run_reader_has(reader, group)) return FL_OK;
    FL_TRY(fl_run_reader_attribute_names(reader, group, &names, &count, error));
    fl_status status = FL_OK;
    for (size_t i = 0; i < count && status == FL_OK; i++) {
        double value = 0;
        char *name = NULL;
        status = fl_run_reader_attribute_number(reader, group, names[i], &value, error);
        if (status != FL_OK && is_text(reader, group, names[i])) {
            status = FL_OK;
            continue;
        }
        if (status == FL_OK) status = fl_folder_format(&name, error, "%s/%s", prefix, names[i]);
        if (status == FL_OK) status = add_metric(run, name, value, error);
        fl_memory_free(name);
    }
    fl_sweep_list_release(names, count);
    return status;
}

/* What guessing would score: the mean over items of 1 / choices. Nothing for tasks without choices. */
static fl_status read_chance(fl_run_reader *reader, fl_run_entry *run, const char *task, fl_error *error) {
    char path[NAME_BYTES], name[NAME_BYTES];
    double *data = NULL, sum = 0;
    size_t shape[2] = {0};
    snprintf(path, sizeof path, "/tasks/%s/items/log_likelihood", task);
    snprintf(name, sizeof name, "tasks/%s/chance", task);
    if (!fl_run_reader_has(reader, path)) return FL_OK;
    FL_TRY(fl_run_reader_array(reader, path, 2, shape, &data, error));
    bool choices = shape[1] > 1;
    for (size_t i = 0; choices && i < shape[0]; i++) {
        size_t there = 0;
        for (size_t c = 0; c < shape[1]; c++) there += !isnan(data[i * shape[1] + c]);
        sum += 1.0 / (double)(there > 0 ? there : shape[1]); /* none: the variant diverged */
    }
    fl_memory_free(data);
    return choices ? add_metric(run, name, sum / (double)shape[0], error) : FL_OK;
}

static fl_status read_task(fl_run_reader *reader, fl_run_entry *run, const char *task, fl_error *error) {
    static const char *const places[][2] = {{"/tasks", "tasks"},
                                            {"/baseline/full/tasks", "full/tasks"},
                                            {"/baseline/linear_off/tasks", "linear_off/tasks"}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char group[NAME_BYTES], prefix[NAME_BYTES];
        snprintf(group, sizeof group, "%s/%s", places[i][0], task);
        snprintf(prefix, sizeof prefix, "%s/%s", places[i][1], task);
        FL_TRY(read_attributes(reader, run, group, prefix, error));
    }
    return read_chance(reader, run, task, error);
}

/* Notes the task that a dataset "/tasks/<label>/items/document" belongs to. */
static fl_status note_task(void *context, const char *path, size_t rank, const size_t *shape,
                           fl_error *error) {
    (void)rank, (void)shape;
    static const char head[] = "/tasks/", tail[] = "/items/document";
    fl_run_entry *run = context;
    size_t bytes = strlen(path);
    if (bytes <= sizeof head + sizeof tail - 2 || strncmp(path, head, sizeof head - 1) != 0 ||
        strcmp(path + bytes - (sizeof tail - 1), tail) != 0)
        return FL_OK;
    size_t label = bytes - (sizeof head - 1) - (sizeof tail - 1);
    FL_TRY(FL_RESIZE(&run->tasks, run->task_count, run->task_count + 1, error));
    char **task = &run->tasks[run->task_count];
    FL_TRY(FL_ALLOCATE(task, label + 1, error));
    memcpy(*task, path + sizeof head - 1, label);
    run->task_count++;
    return FL_OK;
}

static fl_status read_attribute(fl_run_reader *reader, const char *name, char **out, fl_error *error) {
    return fl_run_reader_has_attribute(reader, "/", name)
               ? fl_run_reader_attribute_text(reader, "/", name, out, error)
               : fl_memory_copy_string(out, "", error);
}

static fl_status read_identity(fl_run_reader *reader, fl_run_entry *run, fl_error *error) {
    FL_TRY(read_attribute(reader, "run_id", &run->run_id, error));
    FL_TRY(read_attribute(reader, "name", &run->name, error));
    FL_TRY(read_attribute(reader, "cell", &run->cell, error));
    FL_TRY(read_attribute(reader, "status", &run->status, error));
    FL_TRY(read_attribute(reader, "tier", &run->tier, error));
    double diverged = 0;
    if (fl_run_reader_has_attribute(reader, "/", "diverged"))
        FL_TRY(fl_run_reader_attribute_number(reader, "/", "diverged", &diverged, error));
    run->diverged = diverged != 0 || strcmp(run->status, "diverged") == 0;
    if (run->run_id[0] != '\0') return FL_OK;
    const char *slash = strrchr(run->path, '/');
    fl_memory_free(run->run_id);
    return fl_memory_copy_string(&run->run_id, slash != NULL ? slash + 1 : run->path, error);
}

/* A file without a configuration (what `forward` writes), or pooled from runs of several codes, is not
 * judged. */
static fl_status read_age(fl_run_reader *reader, fl_run_entry *run, fl_error *error) {
    const fl_source_table sources = fl_fingerprint_sources();
    const char *rule = fl_run_entry_value(run, "variant.rule");
    const bool merged = strcmp(run->status, "merged") == 0;
    if (rule == NULL || (merged && !fl_run_reader_has(reader, "/provenance/fingerprint"))) return FL_OK;
    FL_TRY(fl_fingerprint_compare(reader, &sources, rule, &run->changed, error));
    run->older = run->changed != NULL;
    return FL_OK;
}

static fl_status read_warnings(fl_run_reader *reader, fl_run_entry *run, fl_error *error) {
    if (!fl_run_reader_has(reader, "/warnings")) return FL_OK;
    return fl_run_reader_texts(reader, "/warnings", &run->warnings, &run->warning_count, error);
}

static fl_status read_run(const char *path, fl_run_entry *run, fl_error *error) {
    fl_run_reader *reader = NULL;
    FL_TRY(fl_memory_copy_string(&run->path, path, error));
    FL_TRY(fl_run_reader_open(path, &reader, error));
    fl_status status = FL_OK;
    FL_TRY_DONE(status, read_identity(reader, run, error));
    FL_TRY_DONE(status, read_config(reader, run, error));
    FL_TRY_DONE(status, fl_axis_record_read(reader, &run->axes, error));
    FL_TRY_DONE(status, read_age(reader, run, error));
    FL_TRY_DONE(status, read_warnings(reader, run, error));
    fl_run_scalar scalar;
    for (size_t i = 0; fl_run_scalar_at(i, &scalar); i++)
        FL_TRY_DONE(status, read_scalar(reader, run, &scalar, error));
    FL_TRY_DONE(status, fl_run_reader_visit(reader, note_task, run, error));
    for (size_t i = 0; i < run->task_count; i++)
        FL_TRY_DONE(status, read_task(reader, run, run->tasks[i], error));
done:
    fl_run_reader_close(reader);
    return status;
}

static bool is_listed(const fl_run_set *set, const fl_run_entry *run) {
    for (size_t i = 0; i < set->count; i++) {
        const fl_run_entry *other = &set->runs[i];
        if (strcmp(other->run_id, run->run_id) == 0 && strcmp(other->name, run->name) == 0) return true;
    }
    return false;
}

fl_status fl_run_entry_read(const char *path, fl_run_entry *out, fl_error *error) {
    *out = (fl_run_entry){0};
    fl_status status = read_run(path, out, error);
    if (status != FL_OK) fl_run_entry_release(out);
    return status;
}

static fl_status add_run(fl_run_set *set, const char *path, fl_error *error) {
    fl_run_entry run;
    fl_status status = fl_run_entry_read(path, &run, error);
    if (status == FL_OK && !is_listed(set, &run))
        status = FL_RESIZE(&set->runs, set->count, set->count + 1, error);
    if (status != FL_OK || is_listed(set, &run)) {
        fl_run_entry_release(&run);
        return status;
    }
    set->runs[set->count++] = run;
    return FL_OK;
}

/* A run file of a folder that cannot be read does not keep the others from being shown: it is named. */
static fl_status add_run_of_folder(fl_run_set *set, const char *path, fl_error *error) {
    fl_error trouble;
    fl_status status = add_run(set, path, &trouble);
    if (status == FL_ERROR_IO || status == FL_ERROR_FORMAT)
        return fl_absent_runs_add(&set->absent, FL_ABSENT_UNREADABLE, path, trouble.message, error);
    if (status != FL_OK && error != NULL) *error = trouble;
    return status;
}

static fl_status add_folder(fl_run_set *set, const char *folder, fl_error *error) {
    char **ids = NULL, *path = NULL;
    size_t count = 0;
    FL_TRY(fl_absent_runs_find(folder, &set->absent, error));
    FL_TRY(fl_sweep_list_done(folder, &ids, &count, error));
    fl_status status = FL_OK;
    if (count == 0) status = fl_error_set(error, FL_ERROR_ARGUMENT, "%s: no run files (*.h5) in it", folder);
    for (size_t i = 0; i < count && status == FL_OK; i++) {
        status = fl_folder_format(&path, error, "%s/%s.h5", folder, ids[i]);
        if (status == FL_OK) status = add_run_of_folder(set, path, error);
        fl_memory_free(path);
        path = NULL;
    }
    fl_sweep_list_release(ids, count);
    return status;
}

fl_status fl_run_set_load(const char *const *paths, size_t count, fl_run_set **out, fl_error *error) {
    fl_run_set *set = NULL;
    FL_TRY(FL_ALLOCATE(&set, 1, error));
    fl_status status = FL_OK;
    for (size_t i = 0; i < count; i++) {
        struct stat what;
        bool folder = stat(paths[i], &what) == 0 && S_ISDIR(what.st_mode);
        FL_TRY_DONE(status, folder ? add_folder(set, paths[i], error) : add_run(set, paths[i], error));
    }
    if (set->count == 0 && set->absent.count > 0) {
        const fl_absent_run *last = &set->absent.items[set->absent.count - 1];
        status = fl_error_set(error, FL_ERROR_FORMAT, "no run file can be read; %s: %s", last->name,
                              last->message);
        goto done;
    }
    FL_TRY_DONE(status, fl_run_axes_find(set, error));
    FL_TRY_DONE(status, fl_run_label_all(set, error));
    *out = set;
done:
    if (status != FL_OK) fl_run_set_destroy(set);
    return status;
}
