#include "harness/store/run_merge.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "harness/base/hash.h"
#include "harness/base/memory.h"
#include "harness/config/text_builder.h"
#include "harness/store/merge_baselines.h"
#include "harness/store/merge_notes.h"
#include "harness/store/merge_tasks.h"
#include "harness/store/run_file.h"
#include "harness/store/run_record.h"
#include "harness/store/text_pool.h"

/* One input. */
typedef struct merge_input {
    const char *path;
    char *run_id, *name, *cell, *tier, *config;
    char *weights;         /* their hash, or NULL */
    fl_document *document; /* of config */
    bool has_text;
    fl_merge_tasks tasks;
} merge_input;

typedef struct merge {
    size_t count;
    merge_input *inputs;
    const char **paths;
    fl_text_result *results; /* [count], empty without a text */
    fl_text_result pooled;
    fl_resolved *common;
} merge;

static void release(merge *m) {
    for (size_t i = 0; i < m->count; i++) {
        merge_input *input = &m->inputs[i];
        fl_memory_free(input->run_id);
        fl_memory_free(input->name);
        fl_memory_free(input->cell);
        fl_memory_free(input->tier);
        fl_memory_free(input->config);
        fl_memory_free(input->weights);
        fl_merge_tasks_release(&input->tasks);
        fl_document_destroy(input->document);
        fl_text_result_release(&m->results[i]);
    }
    fl_text_result_release(&m->pooled);
    fl_resolved_destroy(m->common);
    fl_memory_free(m->inputs);
    fl_memory_free(m->results);
    fl_memory_free(m->paths);
}

static fl_status check_schema(fl_run_reader *reader, const char *path, fl_error *error) {
    char *format = NULL, *status_text = NULL;
    double version = 0.0;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_run_reader_attribute_text(reader, "/", "format", &format, error));
    FL_TRY_DONE(status, fl_run_reader_attribute_number(reader, "/", "version", &version, error));
    FL_TRY_DONE(status, fl_run_reader_attribute_text(reader, "/", "status", &status_text, error));
    bool finished = strcmp(status_text, "complete") == 0 || strcmp(status_text, "diverged") == 0;
    if (strcmp(format, FL_RUN_FORMAT) != 0 || version != FL_RUN_VERSION) {
        status = fl_error_set(error, FL_ERROR_UNSUPPORTED, "%s: schema %s, version %g, is not %s, version %d",
                              path, format, version, FL_RUN_FORMAT, FL_RUN_VERSION);
    } else if (!finished) {
        status = fl_error_set(error, FL_ERROR_ARGUMENT, "%s: its status is %s", path, status_text);
    }
done:
    fl_memory_free(format);
    fl_memory_free(status_text);
    return status;
}

static fl_status read_input(merge_input *input, fl_text_result *result, fl_error *error) {
    fl_run_reader *reader = NULL;
    fl_status status = FL_OK;
    FL_TRY(fl_run_reader_open(input->path, &reader, error));
    FL_TRY_DONE(status, check_schema(reader, input->path, error));
    FL_TRY_DONE(status, fl_run_reader_attribute_text(reader, "/", "run_id", &input->run_id, error));
    FL_TRY_DONE(status, fl_run_reader_attribute_text(reader, "/", "name", &input->name, error));
    FL_TRY_DONE(status, fl_run_reader_attribute_text(reader, "/", "cell", &input->cell, error));
    FL_TRY_DONE(status, fl_run_reader_attribute_text(reader, "/", "tier", &input->tier, error));
    FL_TRY_DONE(status, fl_run_reader_text(reader, "/config", &input->config, error));
    FL_TRY_DONE(status, fl_document_parse_text(input->config, strlen(input->config), input->path,
                                               &input->document, error));
    if (fl_run_reader_text(reader, "/provenance/weights_hash_before", &input->weights, NULL) != FL_OK)
        input->weights = NULL;
    input->has_text = fl_run_reader_has(reader, "/text");
    if (input->has_text) status = fl_run_record_read_text_result(reader, result, error);
    if (status == FL_OK)
        status = fl_merge_tasks_read(reader, fl_document_root(input->document), &input->tasks, error);
done:
    fl_run_reader_close(reader);
    return status;
}

/* All faulty files are named, not only the first: a missing run must not be found out one at a time. */
static fl_status read_inputs(merge *m, fl_error *error) {
    fl_text_builder faults = {0};
    fl_status first = FL_OK, status = FL_OK;
    size_t faulty = 0;
    for (size_t i = 0; i < m->count && status == FL_OK; i++) {
        fl_error fault = {0};
        fl_status read = read_input(&m->inputs[i], &m->results[i], &fault);
        if (read == FL_OK) continue;
        if (first == FL_OK) first = read;
        faulty++;
        status = fl_text_builder_format(&faults, error, "\n  %s", fault.message);
    }
    if (status == FL_OK && faulty > 0) {
        status =
            fl_error_set(error, first, "%zu of %zu runs cannot be merged:%s", faulty, m->count, faults.text);
    }
    fl_text_builder_release(&faults);
    return status;
}

static fl_status check_distinct(const merge *m, fl_error *error) {
    for (size_t i = 0; i < m->count; i++) {
        for (size_t k = 0; k < i; k++) {
            if (strcmp(m->inputs[i].run_id, m->inputs[k].run_id) != 0) continue;
            return fl_error_set(error, FL_ERROR_ARGUMENT, "%s and %s are the same run, %s", m->inputs[k].path,
                                m->inputs[i].path, m->inputs[i].run_id);
        }
        if (strcmp(m->inputs[i].tier, m->inputs[0].tier) != 0) {
            return fl_error_set(error, FL_ERROR_ARGUMENT, "%s is %s, %s is %s: tiers are not pooled",
                                m->inputs[0].path, m->inputs[0].tier, m->inputs[i].path, m->inputs[i].tier);
        }
        if (m->inputs[i].has_text != m->inputs[0].has_text) {
            return fl_error_set(error, FL_ERROR_ARGUMENT, "%s has measured a text, %s has not",
                                m->inputs[m->inputs[0].has_text ? 0 : i].path,
                                m->inputs[m->inputs[0].has_text ? i : 0].path);
        }
        const char *weights = m->inputs[i].weights, *first = m->inputs[0].weights;
        if (weights != NULL && first != NULL && strcmp(weights, first) != 0) {
            return fl_error_set(error, FL_ERROR_ARGUMENT, "%s and %s are of different weights (%s, %s)",
                                m->inputs[0].path, m->inputs[i].path, first, weights);
        }
    }
    return FL_OK;
}

/* What runs of one cell may differ in. */
static bool may_differ(const char *key) {
    static const char *const keys[] = {"name", "text", "variant.seed", "variant.mechanism", "train.seed"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        size_t bytes = strlen(keys[i]);
        if (strncmp(key, keys[i], bytes) == 0 && (key[bytes] == '\0' || key[bytes] == '.')) return true;
    }
    return strcmp(key, "model.path") == 0 || strcmp(key, "train.path") == 0;
}

/* Compares the value of `key` in all runs; equal values go into the common configuration. */
static fl_status compare_key(merge *m, const char *key, fl_error *error) {
    char *first = NULL;
    fl_status status =
        fl_node_text(fl_node_find(fl_document_root(m->inputs[0].document), key), &first, error);
    bool equal = true;
    for (size_t i = 1; i < m->count && status == FL_OK && equal; i++) {
        char *other = NULL;
        status = fl_node_text(fl_node_find(fl_document_root(m->inputs[i].document), key), &other, error);
        equal = status != FL_OK || strcmp(first, other) == 0;
        if (!equal && !may_differ(key) && !fl_merge_tasks_may_differ(&m->inputs[0].tasks, key)) {
            status = fl_error_set(error, FL_ERROR_ARGUMENT,
                                  "the runs are not of one cell: %s is %.200s in %s, %.200s in %s", key,
                                  first, m->inputs[0].path, other, m->inputs[i].path);
        }
        fl_memory_free(other);
    }
    if (status == FL_OK && equal) status = fl_resolved_add(m->common, key, first, false, error);
    fl_memory_free(first);
    return status;
}

/* Every key of one run's configuration, down to plain values. */
static fl_status compare_tree(merge *m, const fl_node *node, fl_text_builder *key, fl_error *error) {
    if (node->count == 0) return key->length == 0 ? FL_OK : compare_key(m, key->text, error);
    size_t length = key->length;
    for (size_t i = 0; i < node->count; i++) {
        const char *dot = length > 0 ? "." : "";
        if (node->kind == FL_NODE_MAPPING)
            FL_TRY(fl_text_builder_format(key, error, "%s%s", dot, node->children[i]->key));
        else
            FL_TRY(fl_text_builder_format(key, error, "%s%zu", dot, i));
        FL_TRY(compare_tree(m, node->children[i], key, error));
        key->length = length;
        key->text[length] = '\0';
    }
    return FL_OK;
}

static fl_status compare_configs(merge *m, fl_error *error) {
    fl_status status = fl_resolved_create(&m->common, error);
    for (size_t i = 0; i < m->count && status == FL_OK; i++) {
        fl_text_builder key = {0};
        status = fl_text_builder_add(&key, "", error);
        if (status == FL_OK) status = compare_tree(m, fl_document_root(m->inputs[i].document), &key, error);
        fl_text_builder_release(&key);
    }
    return status;
}

static fl_status write_texts(const merge *m, fl_run_file *file, const char *path, size_t member,
                             const char *description, fl_error *error) {
    const char **texts = NULL;
    FL_TRY(FL_ALLOCATE(&texts, m->count, error));
    for (size_t i = 0; i < m->count; i++) texts[i] = *(char *const *)((const char *)&m->inputs[i] + member);
    fl_status status = fl_run_file_write_texts(file, path, m->count, texts, description, error);
    fl_memory_free(texts);
    return status;
}

static fl_status write_figures(const merge *m, fl_run_file *file, fl_error *error) {
    static const struct {
        const char *path;
        size_t member;
        const char *units, *description;
    } figures[] = {
        {"/merged/cross_entropy", offsetof(fl_text_result, cross_entropy), "nat",
         "cross entropy of each run"},
        {"/merged/full_cross_entropy", offsetof(fl_text_result, full_cross_entropy), "nat",
         "the full model's in each run"},
        {"/merged/kl", offsetof(fl_text_result, kl), "nat", "kl of each run"},
        {"/merged/agreement", offsetof(fl_text_result, agreement), "1", "agreement of each run"},
    };
    double *values = NULL;
    FL_TRY(FL_ALLOCATE(&values, m->count, error));
    fl_status status = FL_OK;
    for (size_t f = 0; f < sizeof figures / sizeof figures[0] && status == FL_OK; f++) {
        for (size_t i = 0; i < m->count; i++) {
            values[i] = *(const double *)(const void *)((const char *)&m->results[i] + figures[f].member);
        }
        status = fl_run_file_write_doubles(file, figures[f].path, 1, &m->count, values, figures[f].units,
                                           figures[f].description, error);
    }
    for (size_t i = 0; i < m->count; i++) values[i] = (double)m->results[i].tokens;
    if (status == FL_OK) {
        status = fl_run_file_write_doubles(file, "/merged/tokens", 1, &m->count, values, "1",
                                           "tokens of each run", error);
    }
    fl_memory_free(values);
    return status;
}

/* nMSE of every run and layer: the spread that the pooled value no longer shows. */
static fl_status write_spread(const merge *m, fl_run_file *file, fl_error *error) {
    size_t layers = m->pooled.layers;
    double *values = NULL;
    if (m->pooled.nmse == NULL) return FL_OK;
    FL_TRY(FL_ALLOCATE(&values, m->count * layers, error));
    for (size_t i = 0; i < m->count; i++)
        memcpy(values + i * layers, m->results[i].nmse, layers * sizeof *values);
    fl_status status = fl_run_file_write_doubles(file, "/merged/nmse", 2, (size_t[]){m->count, layers},
                                                 values, "1", "teacher-forced nmse of each run", error);
    fl_memory_free(values);
    return status;
}

static fl_status write_tasks(const merge *m, fl_run_file *file, fl_error *error) {
    fl_merge_tasks *tasks = NULL;
    FL_TRY(FL_ALLOCATE(&tasks, m->count, error));
    for (size_t i = 0; i < m->count; i++) tasks[i] = m->inputs[i].tasks; /* borrowed */
    fl_status status = fl_merge_tasks_write(tasks, m->paths, m->count, file, error);
    for (size_t t = 0; t < tasks[0].configs.count && status == FL_OK; t++)
        status = fl_merge_baseline_task(m->paths, m->count, tasks[0].configs.items[t].label, file, error);
    fl_memory_free(tasks);
    return status;
}

static fl_status write_merged(const merge *m, fl_run_file *file, fl_error *error) {
    fl_hash_stream *stream = NULL;
    FL_TRY(fl_hash_stream_create(&stream, error));
    for (size_t i = 0; i < m->count; i++) {
        fl_hash_stream_add(stream, m->inputs[i].run_id, strlen(m->inputs[i].run_id) + 1);
    }
    char run_id[13] = "";
    memcpy(run_id, fl_hash_stream_value(stream).text, 12);
    fl_hash_stream_destroy(stream);
    fl_run_header header = {run_id, m->inputs[0].name, "", "merged", m->inputs[0].tier};
    FL_TRY(fl_run_record_write_header(file, &header, error));
    FL_TRY(fl_run_record_write_config(file, m->common, error));
    FL_TRY(fl_merge_notes_write(m->paths, m->count, file, error));
    if (m->inputs[0].has_text) {
        FL_TRY(fl_run_record_write_text_result(file, &m->pooled, error));
        FL_TRY(fl_merge_baseline_texts(m->paths, m->count, file, error));
    }
    FL_TRY(write_tasks(m, file, error));
    FL_TRY(
        write_texts(m, file, "/merged/run_id", offsetof(merge_input, run_id), "run id of each run", error));
    FL_TRY(write_texts(m, file, "/merged/cell", offsetof(merge_input, cell), "cell of each run", error));
    FL_TRY(write_texts(m, file, "/merged/config", offsetof(merge_input, config),
                       "resolved configuration of each run", error));
    if (!m->inputs[0].has_text) return FL_OK;
    FL_TRY(write_figures(m, file, error));
    return write_spread(m, file, error);
}

static fl_status pool_and_write(merge *m, const char *output, fl_error *error) {
    FL_TRY(read_inputs(m, error));
    FL_TRY(check_distinct(m, error));
    FL_TRY(compare_configs(m, error));
    if (m->inputs[0].has_text) FL_TRY(fl_text_pool(m->results, m->paths, m->count, &m->pooled, error));
    fl_run_file *file = NULL;
    FL_TRY(fl_run_file_create_at(output, &file, error));
    fl_status status = write_merged(m, file, error);
    if (status == FL_OK) return fl_run_file_commit(file, error);
    fl_run_file_discard(file);
    return status;
}

fl_status fl_merge_runs(const char *const *paths, size_t count, const char *output, fl_error *error) {
    if (count == 0) return fl_error_set(error, FL_ERROR_ARGUMENT, "no runs to merge");
    merge m = {0};
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&m.inputs, count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&m.results, count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&m.paths, count, error));
    m.count = count;
    for (size_t i = 0; i < count; i++) m.paths[i] = m.inputs[i].path = paths[i];
    status = pool_and_write(&m, output, error);
done:
    release(&m);
    return status;
}
