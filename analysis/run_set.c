#include "analysis/run_set.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/base/memory.h"
#include "harness/config/node.h"

enum { PATH_BYTES = 4096, KEY_BYTES = 512, MAX_DEPTH = 16 };

static void release_run(fl_run_entry *run) {
    char *const texts[] = {run->path, run->run_id, run->name, run->status, run->tier, run->label};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) fl_memory_free(texts[i]);
    for (size_t i = 0; i < run->key_count; i++) {
        fl_memory_free(run->keys[i]);
        fl_memory_free(run->values[i]);
    }
    fl_memory_free(run->keys);
    fl_memory_free(run->values);
}

void fl_run_set_destroy(fl_run_set *set) {
    if (set == NULL) return;
    for (size_t i = 0; i < set->count; i++) release_run(&set->runs[i]);
    for (size_t i = 0; i < set->axis_count; i++) fl_memory_free(set->axes[i]);
    fl_memory_free(set->runs);
    fl_memory_free(set->axes);
    fl_memory_free(set);
}

static fl_status add_key(fl_run_entry *run, const char *key, const fl_node *node, fl_error *error) {
    char *name = NULL, *value = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_memory_copy_string(&name, key, error));
    FL_TRY_DONE(status, fl_node_text(node, &value, error));
    FL_TRY_DONE(status, FL_RESIZE(&run->keys, run->key_count, run->key_count + 1, error));
    FL_TRY_DONE(status, FL_RESIZE(&run->values, run->key_count, run->key_count + 1, error));
    run->keys[run->key_count] = name;
    run->values[run->key_count++] = value;
    return FL_OK;
done:
    fl_memory_free(name);
    fl_memory_free(value);
    return status;
}

/* Every leaf below a mapping under its dotted key. */
static fl_status add_keys(fl_run_entry *run, const char *prefix, const fl_node *node, size_t depth,
                          fl_error *error) {
    if (node->kind != FL_NODE_MAPPING || node->count == 0 || depth == MAX_DEPTH)
        return add_key(run, prefix, node, error);
    for (size_t i = 0; i < node->count; i++) {
        char key[KEY_BYTES];
        snprintf(key, sizeof key, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", node->children[i]->key);
        FL_TRY(add_keys(run, key, node->children[i], depth + 1, error));
    }
    return FL_OK;
}

static fl_status read_config(fl_run_entry *run, fl_run_reader *reader, fl_error *error) {
    char *text = NULL;
    fl_document *document = NULL;
    FL_TRY(fl_run_reader_text(reader, "/config", &text, error));
    fl_status status = fl_document_parse_text(text, strlen(text), run->path, &document, error);
    if (status == FL_OK) status = add_keys(run, "", fl_document_root(document), 0, error);
    fl_document_destroy(document);
    fl_memory_free(text);
    return status;
}

static fl_status read_run(const char *path, fl_run_entry *run, fl_error *error) {
    fl_run_reader *reader = NULL;
    memset(run, 0, sizeof *run);
    FL_TRY(fl_run_reader_open(path, &reader, error));
    const struct {
        const char *name;
        char **text;
    } attributes[] = {
        {"run_id", &run->run_id}, {"name", &run->name}, {"status", &run->status}, {"tier", &run->tier}};
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_memory_copy_string(&run->path, path, error));
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        status = fl_run_reader_attribute_text(reader, "/", attributes[i].name, attributes[i].text, error);
        if (status != FL_OK) {
            status = fl_error_prepend(error, status, "%s: not a run file", path);
            goto done;
        }
    }
    status = read_config(run, reader, error);
done:
    fl_run_reader_close(reader);
    if (status != FL_OK) {
        release_run(run);
        memset(run, 0, sizeof *run);
    }
    return status;
}

static fl_status add_file(fl_run_set *set, const char *path, fl_error *error) {
    fl_run_entry run;
    FL_TRY(read_run(path, &run, error));
    for (size_t i = 0; i < set->count; i++) {
        if (strcmp(set->runs[i].run_id, run.run_id) != 0) continue;
        release_run(&run);
        return FL_OK;
    }
    fl_status status = FL_RESIZE(&set->runs, set->count, set->count + 1, error);
    if (status != FL_OK) {
        release_run(&run);
        return status;
    }
    set->runs[set->count++] = run;
    return FL_OK;
}

static fl_status add_folder(fl_run_set *set, const char *folder, fl_error *error) {
    DIR *directory = opendir(folder);
    if (directory == NULL) return fl_error_set(error, FL_ERROR_IO, "%s: %s", folder, strerror(errno));
    size_t before = set->count;
    fl_status status = FL_OK;
    for (struct dirent *entry; status == FL_OK && (entry = readdir(directory)) != NULL;) {
        char path[PATH_BYTES];
        size_t length = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || length < 4 || strcmp(entry->d_name + length - 3, ".h5") != 0) continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= PATH_BYTES) continue;
        status = add_file(set, path, error);
    }
    closedir(directory);
    if (status == FL_OK && set->count == before) {
        status = fl_error_set(error, FL_ERROR_ARGUMENT, "%s: holds no run files", folder);
    }
    return status;
}

const char *fl_run_entry_value(const fl_run_entry *run, const char *key) {
    for (size_t i = 0; i < run->key_count; i++) {
        if (strcmp(run->keys[i], key) == 0) return run->values[i];
    }
    return NULL;
}

const char *fl_run_set_short_key(const char *key) {
    static const char prefix[] = "variant.";
    return strncmp(key, prefix, sizeof prefix - 1) == 0 ? key + sizeof prefix - 1 : key;
}

static bool is_axis(const fl_run_set *set, const char *key) {
    const char *first = NULL;
    for (size_t i = 0; i < set->count; i++) {
        const char *value = fl_run_entry_value(&set->runs[i], key);
        if (value == NULL) continue;
        if (first == NULL) first = value;
        if (strcmp(first, value) != 0) return true;
    }
    return false;
}

static bool has_axis(const fl_run_set *set, const char *key) {
    for (size_t i = 0; i < set->axis_count; i++) {
        if (strcmp(set->axes[i], key) == 0) return true;
    }
    return false;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static fl_status find_axes(fl_run_set *set, fl_error *error) {
    for (size_t i = 0; i < set->count; i++) {
        for (size_t j = 0; j < set->runs[i].key_count; j++) {
            const char *key = set->runs[i].keys[j];
            if (strcmp(key, "name") == 0 || has_axis(set, key) || !is_axis(set, key)) continue;
            FL_TRY(FL_RESIZE(&set->axes, set->axis_count, set->axis_count + 1, error));
            FL_TRY(fl_memory_copy_string(&set->axes[set->axis_count], key, error));
            set->axis_count++;
        }
    }
    if (set->axis_count > 0) qsort(set->axes, set->axis_count, sizeof set->axes[0], by_text);
    return FL_OK;
}

static int compare_values(const char *a, const char *b) {
    if (a == NULL || b == NULL) return (a != NULL) - (b != NULL);
    char *end_a = NULL, *end_b = NULL;
    double x = strtod(a, &end_a), y = strtod(b, &end_b);
    if (end_a != a && *end_a == '\0' && end_b != b && *end_b == '\0' && x != y) return x < y ? -1 : 1;
    return strcmp(a, b);
}

static int compare_runs(const fl_run_set *set, const fl_run_entry *a, const fl_run_entry *b) {
    for (size_t i = 0; i < set->axis_count; i++) {
        int order = compare_values(fl_run_entry_value(a, set->axes[i]), fl_run_entry_value(b, set->axes[i]));
        if (order != 0) return order;
    }
    return strcmp(a->run_id, b->run_id);
}

/* By insertion: sets are small, and the order needs the set. */
static void sort_runs(fl_run_set *set) {
    for (size_t i = 1; i < set->count; i++) {
        fl_run_entry run = set->runs[i];
        size_t at = i;
        for (; at > 0 && compare_runs(set, &run, &set->runs[at - 1]) < 0; at--)
            set->runs[at] = set->runs[at - 1];
        set->runs[at] = run;
    }
}

static fl_status make_label(const fl_run_set *set, fl_run_entry *run, fl_error *error) {
    char label[PATH_BYTES] = "";
    size_t used = 0;
    for (size_t i = 0; i < set->axis_count && used < sizeof label; i++) {
        const char *value = fl_run_entry_value(run, set->axes[i]);
        if (value == NULL) continue;
        used += (size_t)snprintf(label + used, sizeof label - used, "%s%s=%s", used > 0 ? " " : "",
                                 fl_run_set_short_key(set->axes[i]), value);
    }
    if (used > 0) return fl_memory_copy_string(&run->label, label, error);
    const char *rule = fl_run_entry_value(run, "variant.rule");
    return fl_memory_copy_string(&run->label, rule != NULL ? rule : run->name, error);
}

fl_status fl_run_set_load(const char *const *paths, size_t count, fl_run_set **out, fl_error *error) {
    fl_run_set *set = NULL;
    FL_TRY(FL_ALLOCATE(&set, 1, error));
    fl_status status = FL_OK;
    for (size_t i = 0; i < count; i++) {
        struct stat what;
        bool folder = stat(paths[i], &what) == 0 && S_ISDIR(what.st_mode);
        FL_TRY_DONE(status, folder ? add_folder(set, paths[i], error) : add_file(set, paths[i], error));
    }
    FL_TRY_DONE(status, find_axes(set, error));
    sort_runs(set);
    for (size_t i = 0; i < set->count; i++) FL_TRY_DONE(status, make_label(set, &set->runs[i], error));
    *out = set;
done:
    if (status != FL_OK) fl_run_set_destroy(set);
    return status;
}

double fl_run_mean(fl_run_reader *reader, const char *path) {
    double *data = NULL;
    size_t rank = 0, shape[4] = {0}, count = 1;
    if (!fl_run_reader_has(reader, path)) return NAN;
    if (fl_run_reader_doubles(reader, path, &data, &rank, shape, NULL) != FL_OK) return NAN;
    double sum = 0;
    for (size_t i = 0; i < rank; i++) count *= shape[i];
    for (size_t i = 0; i < count; i++) sum += data[i];
    fl_memory_free(data);
    return count > 0 ? sum / (double)count : NAN;
}
