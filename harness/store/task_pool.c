#include "harness/store/task_pool.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/eval/task_columns.h"

/* One item of one result; subject: in the pooled list. */
typedef struct entry {
    size_t run, item, subject;
    int64_t document;
    const fl_hash *hash;
} entry;

typedef struct pool {
    const fl_task_result *results;
    const char *const *names;
    size_t count, items;
    entry *entries; /* [items] */
    fl_task_result *out;
} pool;

static int order_numbers(size_t a, size_t b) {
    return a < b ? -1 : a > b;
}

static int by_place(const void *a, const void *b) {
    const entry *x = a, *y = b;
    int order = order_numbers(x->subject, y->subject);
    if (order == 0) order = x->document < y->document ? -1 : x->document > y->document;
    if (order == 0) order = order_numbers(x->run, y->run);
    return order != 0 ? order : order_numbers(x->item, y->item);
}

static int by_hash(const void *a, const void *b) {
    const entry *x = a, *y = b;
    const int order = strcmp(x->hash->text, y->hash->text);
    return order != 0 ? order : by_place(a, b);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const fl_task_subject_result *)a)->name, ((const fl_task_subject_result *)b)->name);
}

static size_t find_subject(const fl_task_result *result, const char *name) {
    size_t s = 0;
    while (s < result->subject_count && strcmp(result->subjects[s].name, name) != 0) s++;
    return s;
}

/* The subjects of all results: the first one's, and when others have more, all in the order of their names.
 */
static fl_status join_subjects(pool *p, fl_error *error) {
    size_t most = 0;
    for (size_t r = 0; r < p->count; r++) most += p->results[r].subject_count;
    FL_TRY(FL_ALLOCATE(&p->out->subjects, most, error));
    for (size_t r = 0; r < p->count; r++) {
        for (size_t s = 0; s < p->results[r].subject_count; s++) {
            const char *name = p->results[r].subjects[s].name;
            if (find_subject(p->out, name) < p->out->subject_count) continue;
            FL_TRY(fl_memory_copy_string(&p->out->subjects[p->out->subject_count].name, name, error));
            p->out->subject_count++;
        }
    }
    if (p->out->subject_count > p->results[0].subject_count)
        qsort(p->out->subjects, p->out->subject_count, sizeof *p->out->subjects, by_name);
    return FL_OK;
}

static fl_status list_entries(pool *p, fl_error *error) {
    for (size_t r = 0; r < p->count; r++) p->items += p->results[r].count;
    FL_TRY(FL_ALLOCATE(&p->entries, p->items, error));
    size_t at = 0;
    for (size_t r = 0; r < p->count; r++) {
        const fl_task_result *result = &p->results[r];
        for (size_t i = 0; i < result->count; i++) {
            const char *subject = result->subjects[result->subject[i]].name;
            p->entries[at++] = (entry){.run = r,
                                       .item = i,
                                       .subject = find_subject(p->out, subject),
                                       .document = result->document[i],
                                       .hash = &result->document_hash[i]};
        }
    }
    return FL_OK;
}

static bool is_same_item(const pool *p, const entry *a, const entry *b) {
    if (a->run == b->run || a->subject != b->subject) return false;
    const bool same_data = strcmp(p->results[a->run].data_hash.text, p->results[b->run].data_hash.text) == 0;
    return !same_data || a->document == b->document;
}

/* Names the first of the items held twice. */
static fl_status refuse_same_items(pool *p, fl_error *error) {
    const entry *first = NULL, *second = NULL;
    qsort(p->entries, p->items, sizeof *p->entries, by_hash);
    for (size_t i = 0; i < p->items; i++) {
        const entry *a = &p->entries[i];
        for (size_t k = i + 1; k < p->items && strcmp(p->entries[k].hash->text, a->hash->text) == 0; k++) {
            if (!is_same_item(p, a, &p->entries[k]) || (first != NULL && by_place(a, first) > 0)) continue;
            first = a;
            second = &p->entries[k];
        }
    }
    if (first == NULL) return FL_OK;
    const bool in_order = first->run < second->run;
    const char *subject = p->out->subjects[first->subject].name;
    return fl_error_set(error, FL_ERROR_ARGUMENT, "%s and %s both hold document %lld%s%s of task %s",
                        p->names[in_order ? first->run : second->run],
                        p->names[in_order ? second->run : first->run], (long long)first->document,
                        subject[0] != '\0' ? " of " : "", subject, p->results[0].label);
}

static fl_status check_column(const pool *p, const fl_task_column *column, fl_error *error) {
    const bool first = fl_task_column_data(column, &p->results[0]) != NULL;
    for (size_t r = 1; r < p->count; r++) {
        const bool there = fl_task_column_data(column, &p->results[r]) != NULL;
        if (there == first) continue;
        return fl_error_set(error, FL_ERROR_ARGUMENT, "task %s: %s has the column %s, %s has not",
                            p->results[0].label, p->names[first ? 0 : r], column->name,
                            p->names[first ? r : 0]);
    }
    return FL_OK;
}

static fl_status join_column(const pool *p, const fl_task_column *column, fl_error *error) {
    FL_TRY(check_column(p, column, error));
    if (fl_task_column_data(column, &p->results[0]) == NULL) return FL_OK;
    const size_t width = column->per_choice ? p->out->choices : 1, size = sizeof(double);
    _Static_assert(sizeof(double) == sizeof(int64_t), "columns have elements of one size");
    char *joined = NULL;
    FL_TRY(fl_memory_allocate((void **)&joined, p->items * width, size, error));
    fl_task_column_set(column, p->out, joined);
    for (size_t i = 0; i < p->items; i++) {
        const entry *from = &p->entries[i];
        const size_t own = column->per_choice ? p->results[from->run].choices : 1;
        const char *data = fl_task_column_data(column, &p->results[from->run]);
        memcpy(joined + i * width * size, data + from->item * own * size, own * size);
        /* Log-likelihoods of choices an item does not have are NaN, counts 0. */
        for (size_t c = own; c < width && !column->is_integer; c++)
            ((double *)(void *)joined)[i * width + c] = (double)NAN;
    }
    return FL_OK;
}

static fl_status join_texts(const pool *p, fl_error *error) {
    fl_task_result *out = p->out;
    FL_TRY(FL_ALLOCATE(&out->subject, p->items, error));
    FL_TRY(FL_ALLOCATE(&out->document_hash, p->items, error));
    for (size_t i = 0; i < p->items; i++) {
        out->subject[i] = (int64_t)p->entries[i].subject;
        out->document_hash[i] = *p->entries[i].hash;
    }
    if (p->results[0].answer == NULL) return FL_OK;
    FL_TRY(FL_ALLOCATE(&out->answer, p->items, error));
    for (size_t i = 0; i < p->items; i++) {
        const entry *from = &p->entries[i];
        FL_TRY(fl_memory_copy_string(&out->answer[i], p->results[from->run].answer[from->item], error));
    }
    return FL_OK;
}

static void join_counts(const pool *p) {
    p->out->data_hash = p->results[0].data_hash;
    for (size_t r = 0; r < p->count; r++) {
        const fl_task_result *one = &p->results[r];
        if (one->choices > p->out->choices) p->out->choices = one->choices;
        p->out->counts.asked_tokens += one->counts.asked_tokens;
        p->out->counts.computed_tokens += one->counts.computed_tokens;
        p->out->counts.seconds += one->counts.seconds;
        if (strcmp(one->data_hash.text, p->out->data_hash.text) != 0) p->out->data_hash = (fl_hash){{0}};
    }
}

static fl_status pool_items(pool *p, const fl_task_config *config, int64_t **run, fl_error *error) {
    fl_task_result *out = p->out;
    FL_TRY(fl_memory_copy_string(&out->name, config->name, error));
    FL_TRY(fl_memory_copy_string(&out->label, config->label, error));
    FL_TRY(join_subjects(p, error));
    FL_TRY(list_entries(p, error));
    FL_TRY(refuse_same_items(p, error));
    qsort(p->entries, p->items, sizeof *p->entries, by_place);
    join_counts(p);
    out->count = p->items;
    size_t columns = 0;
    const fl_task_column *table = fl_task_columns(&columns);
    for (size_t c = 0; c < columns; c++) FL_TRY(join_column(p, &table[c], error));
    FL_TRY(join_texts(p, error));
    FL_TRY(FL_ALLOCATE(run, p->items, error));
    for (size_t i = 0; i < p->items; i++) (*run)[i] = (int64_t)p->entries[i].run;
    return fl_task_result_summarise(config, out, error);
}

fl_status fl_task_pool(const fl_task_config *config, const fl_task_result *results, const char *const *names,
                       size_t count, fl_task_result *out, int64_t **run, fl_error *error) {
    *out = (fl_task_result){0};
    *run = NULL;
    pool p = {.results = results, .names = names, .count = count, .out = out};
    fl_status status = count > 0 ? pool_items(&p, config, run, error)
                                 : fl_error_set(error, FL_ERROR_ARGUMENT, "nothing to pool");
    fl_memory_free(p.entries);
    if (status == FL_OK) return FL_OK;
    fl_task_result_release(out);
    fl_memory_free(*run);
    *run = NULL;
    return status;
}
