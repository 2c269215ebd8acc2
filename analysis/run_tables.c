#include "analysis/run_tables.h"

#include <stdio.h>
#include <string.h>

#include "harness/store/dataset_axes.h"
#include "harness/base/memory.h"
#include "harness/store/folder.h"
#include "harness/store/run_file.h"
#include "harness/store/sweep.h"

/* Rows of a run in the table. */
typedef struct row_range {
    size_t first, count;
} row_range;

static const char *const always[][2] = {
    {"variant.rule", "rule"}, {"variant.window", "window"}, {"variant.sinks", "sinks"}};
enum { ALWAYS = sizeof always / sizeof always[0] };

static bool is_always(const char *key) {
    for (size_t i = 0; i < ALWAYS; i++) {
        if (strcmp(always[i][0], key) == 0) return true;
    }
    return false;
}

static fl_status add_text_column(const fl_run_set *set, const row_range *ranges, const char *name,
                                 const char *(*value)(const fl_run_entry *run, const char *key),
                                 const char *key, fl_table *table, fl_error *error) {
    size_t column = 0;
    FL_TRY(fl_table_add(table, name, "", true, &column, error));
    for (size_t r = 0; r < set->count; r++) {
        const char *text = value(&set->runs[r], key);
        for (size_t i = 0; i < ranges[r].count; i++)
            fl_table_set_text(table, ranges[r].first + i, column, text);
    }
    return FL_OK;
}

static const char *identity_of(const fl_run_entry *run, const char *key) {
    if (strcmp(key, "run_id") == 0) return run->run_id;
    if (strcmp(key, "name") == 0) return run->name;
    if (strcmp(key, "tier") == 0) return run->tier;
    if (strcmp(key, "status") == 0) return run->status;
    if (strcmp(key, "older") == 0) return run->older ? "1" : "0";
    if (strcmp(key, "code") == 0) return run->older ? "older" : "";
    return run->label;
}

static fl_status add_identity(const fl_run_set *set, const row_range *ranges, fl_table *table,
                              fl_error *error) {
    static const char *const names[] = {"run_id", "label", "name", "tier", "status"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        FL_TRY(add_text_column(set, ranges, names[i], identity_of, names[i], table, error));
    for (size_t i = 0; i < ALWAYS; i++)
        FL_TRY(add_text_column(set, ranges, always[i][1], fl_run_entry_value, always[i][0], table, error));
    for (size_t i = 0; i < set->axis_count; i++) {
        const char *key = set->axes[i];
        if (!is_always(key)) FL_TRY(add_text_column(set, ranges, key, fl_run_entry_value, key, table, error));
    }
    return add_text_column(set, ranges, "older", identity_of, "older", table, error);
}

/* What a long table is made of. */
typedef struct plan {
    const char *axes[FL_AXES_MOST];
    size_t rank;
    size_t dataset_count;
    char **datasets;                /* paths, in order of appearance */
    size_t (*shapes)[FL_AXES_MOST]; /* [runs] of the datasets there; all 0 when a run has none */
    row_range *ranges;              /* [runs] */
} plan;

static void release_plan(plan *p) {
    for (size_t i = 0; i < p->dataset_count; i++) fl_memory_free(p->datasets[i]);
    fl_memory_free(p->datasets);
    fl_memory_free(p->shapes);
    fl_memory_free(p->ranges);
}

/* Chooses datasets: by name (`wanted`), or by axes. */
typedef struct choice {
    const fl_run_set *set;
    size_t run;
    const char *const *wanted;
    size_t wanted_count;
    const char *axes;
    size_t group_rank; /* of the datasets that a group named as a whole gives */
    plan *plan;
} choice;

/* "layer,position" of a dataset. */
static void describe_axes(const char *const axes[FL_AXES_MOST], size_t rank, char *out, size_t bytes) {
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < rank && used < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%s", i > 0 ? "," : "", axes[i]);
}

static bool is_wanted(const choice *c, const char *path, const char *const axes[FL_AXES_MOST], size_t rank) {
    if (c->axes != NULL) {
        char own[128];
        bool is_baseline = strncmp(path, "/baseline/", 10) == 0 || strncmp(path, "/ablation/", 10) == 0;
        describe_axes(axes, rank, own, sizeof own);
        return rank > 0 && !is_baseline && strcmp(own, c->axes) == 0;
    }
    for (size_t i = 0; i < c->wanted_count; i++) {
        const char *name = c->wanted[i];
        const char *from = name[0] == '/' ? path : path + 1;
        size_t bytes = strlen(name);
        while (bytes > 1 && name[bytes - 1] == '/') bytes--;
        if (strncmp(from, name, bytes) == 0 && (from[bytes] == '\0' || from[bytes] == '/')) return true;
    }
    return false;
}

static fl_status check_axes(choice *c, const char *path, const char *const axes[FL_AXES_MOST], size_t rank,
                            const size_t *shape, fl_error *error) {
    plan *p = c->plan;
    size_t *known = p->shapes[c->run];
    if (p->dataset_count == 0) {
        p->rank = rank;
        memcpy(p->axes, axes, sizeof p->axes);
    }
    char first[128], own[128];
    describe_axes(p->axes, p->rank, first, sizeof first);
    describe_axes(axes, rank, own, sizeof own);
    if (rank != p->rank || strcmp(first, own) != 0) {
        return fl_error_set(
            error, FL_ERROR_ARGUMENT,
            "%s: %s has the axes (%s), others (%s): one table holds datasets of the same axes; name them",
            c->set->runs[c->run].path, path, own, first);
    }
    if (p->ranges[c->run].count > 0 && memcmp(known, shape, rank * sizeof shape[0]) != 0) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: %s is of another size than the datasets beside it",
                            c->set->runs[c->run].path, path);
    }
    memcpy(known, shape, rank * sizeof shape[0]);
    size_t elements = 1;
    for (size_t i = 0; i < rank; i++) elements *= shape[i];
    p->ranges[c->run].count = elements;
    return FL_OK;
}

static bool is_named(const choice *c, const char *path) {
    for (size_t i = 0; i < c->wanted_count; i++) {
        if (strcmp(path + (c->wanted[i][0] == '/' ? 0 : 1), c->wanted[i]) == 0) return true;
    }
    return false;
}

/* A group named as a whole gives its datasets with the fewest axes: of a task's items, one value an item. */
static fl_status find_group_rank(void *context, const char *path, size_t rank, const size_t *shape,
                                 fl_error *error) {
    choice *c = context;
    const char *axes[FL_AXES_MOST];
    (void)shape, (void)error;
    fl_dataset_axes(path, rank, axes);
    if (rank > 0 && is_wanted(c, path, axes, rank) && (c->group_rank == 0 || rank < c->group_rank))
        c->group_rank = rank;
    return FL_OK;
}

static fl_status consider(void *context, const char *path, size_t rank, const size_t *shape,
                          fl_error *error) {
    choice *c = context;
    const char *axes[FL_AXES_MOST];
    fl_dataset_axes(path, rank, axes);
    if (!is_wanted(c, path, axes, rank)) return FL_OK;
    if (c->wanted != NULL && !is_named(c, path) && rank != c->group_rank) return FL_OK;
    FL_TRY(check_axes(c, path, axes, rank, shape, error));
    plan *p = c->plan;
    for (size_t i = 0; i < p->dataset_count; i++) {
        if (strcmp(p->datasets[i], path) == 0) return FL_OK;
    }
    FL_TRY(FL_RESIZE(&p->datasets, p->dataset_count, p->dataset_count + 1, error));
    FL_TRY(fl_memory_copy_string(&p->datasets[p->dataset_count], path, error));
    p->dataset_count++;
    return FL_OK;
}

static fl_status visit_run(choice *c,
                           fl_status (*visit)(void *context, const char *path, size_t rank,
                                              const size_t *shape, fl_error *error),
                           fl_error *error) {
    fl_run_reader *reader = NULL;
    FL_TRY(fl_run_reader_open(c->set->runs[c->run].path, &reader, error));
    fl_status status = fl_run_reader_visit(reader, visit, c, error);
    fl_run_reader_close(reader);
    return status;
}

static fl_status make_plan(choice *c, fl_error *error) {
    plan *p = c->plan;
    size_t total = 0;
    for (c->run = 0; c->run < c->set->count; c->run++) FL_TRY(visit_run(c, find_group_rank, error));
    FL_TRY(FL_ALLOCATE(&p->shapes, c->set->count, error));
    FL_TRY(FL_ALLOCATE(&p->ranges, c->set->count, error));
    for (c->run = 0; c->run < c->set->count; c->run++) {
        FL_TRY(visit_run(c, consider, error));
        p->ranges[c->run].first = total;
        total += p->ranges[c->run].count;
    }
    if (p->dataset_count > 0) return FL_OK;
    if (c->axes != NULL)
        return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: no dataset has the axes %s", c->set->runs[0].path,
                            c->axes);
    return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: there is no %s", c->set->runs[0].path, c->wanted[0]);
}

static fl_status add_axes(const fl_run_set *set, const plan *p, fl_table *table, fl_error *error) {
    for (size_t axis = 0; axis < p->rank; axis++) {
        size_t column = 0;
        FL_TRY(fl_table_add(table, p->axes[axis], "", false, &column, error));
        for (size_t r = 0; r < set->count; r++) {
            size_t stride = 1;
            for (size_t i = axis + 1; i < p->rank; i++) stride *= p->shapes[r][i];
            for (size_t i = 0; i < p->ranges[r].count; i++) {
                double index = (double)(i / stride % p->shapes[r][axis]);
                fl_table_set_number(table, p->ranges[r].first + i, column, index);
            }
        }
    }
    return FL_OK;
}

static fl_status fill_texts(fl_run_reader *reader, const char *path, row_range range, size_t column,
                            fl_table *table, fl_error *error) {
    char **texts = NULL;
    size_t count = 0;
    FL_TRY(fl_run_reader_texts(reader, path, &texts, &count, error));
    fl_status status = FL_OK;
    for (size_t i = 0; i < count && status == FL_OK; i++) {
        char *text = texts[i];
        texts[i] = NULL;
        status = fl_table_adopt(table, text, error);
        if (status == FL_OK && i < range.count) fl_table_set_text(table, range.first + i, column, text);
    }
    fl_sweep_list_release(texts, count);
    return status;
}

static fl_status fill_numbers(fl_run_reader *reader, const char *path, row_range range, size_t column,
                              fl_table *table, fl_error *error) {
    double *data = NULL;
    size_t rank = 0, shape[4] = {0}, count = 1;
    FL_TRY(fl_run_reader_doubles(reader, path, &data, &rank, shape, error));
    for (size_t i = 0; i < rank; i++) count *= shape[i];
    if (count != range.count) {
        fl_memory_free(data);
        return fl_run_reader_refuse(reader, path, "is of another size than the datasets beside it", error);
    }
    for (size_t i = 0; i < range.count; i++) fl_table_set_number(table, range.first + i, column, data[i]);
    fl_memory_free(data);
    return FL_OK;
}

/* One dataset of every run. Whether it is text is seen in the first run that has it. */
static fl_status add_dataset(const fl_run_set *set, const plan *p, const char *path, fl_table *table,
                             fl_error *error) {
    size_t column = 0;
    bool added = false;
    for (size_t r = 0; r < set->count; r++) {
        fl_run_reader *reader = NULL;
        FL_TRY(fl_run_reader_open(set->runs[r].path, &reader, error));
        fl_status status = FL_OK;
        if (!fl_run_reader_has(reader, path)) goto done;
        if (!added) {
            char *units = NULL;
            char **texts = NULL;
            size_t count = 0;
            bool is_text = fl_run_reader_texts(reader, path, &texts, &count, NULL) == FL_OK;
            fl_sweep_list_release(texts, count);
            if (fl_run_reader_attribute_text(reader, path, "units", &units, NULL) != FL_OK) units = NULL;
            status = fl_table_add(table, path + 1, units != NULL ? units : "", is_text, &column, error);
            fl_memory_free(units);
            if (status != FL_OK) goto done;
            added = true;
        }
        status = table->columns[column].is_text
                     ? fill_texts(reader, path, p->ranges[r], column, table, error)
                     : fill_numbers(reader, path, p->ranges[r], column, table, error);
    done:
        fl_run_reader_close(reader);
        FL_TRY(status);
    }
    return FL_OK;
}

static fl_status build(choice *c, fl_table *out, fl_error *error) {
    plan p = {0};
    *out = (fl_table){0};
    /* cppcheck-suppress autoVariables; read in here only */
    c->plan = &p;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, make_plan(c, error));
    for (size_t r = 0; r < c->set->count; r++) out->rows += p.ranges[r].count;
    FL_TRY_DONE(status, add_identity(c->set, p.ranges, out, error));
    FL_TRY_DONE(status, add_axes(c->set, &p, out, error));
    for (size_t i = 0; i < p.dataset_count; i++)
        FL_TRY_DONE(status, add_dataset(c->set, &p, p.datasets[i], out, error));
done:
    release_plan(&p);
    if (status != FL_OK) fl_table_release(out);
    return status;
}

fl_status fl_run_tables_long(const fl_run_set *set, const char *const *wanted, size_t wanted_count,
                             fl_table *out, fl_error *error) {
    choice c = {.set = set, .wanted = wanted, .wanted_count = wanted_count};
    return build(&c, out, error);
}

fl_status fl_run_tables_by_axes(const fl_run_set *set, const char *axes, fl_table *out, fl_error *error) {
    choice c = {.set = set, .axes = axes};
    return build(&c, out, error);
}
