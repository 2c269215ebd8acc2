#include "analysis/run_warnings.h"

#include <math.h>
#include <string.h>

#include "harness/base/memory.h"

enum { LINE_BYTES = 100, INDENT = 9 };

static fl_status find_group(fl_warning_group **groups, size_t *count, const char *text, size_t rows,
                            fl_warning_group **out, fl_error *error) {
    for (size_t i = 0; i < *count; i++) {
        *out = &(*groups)[i];
        if (strcmp((*out)->text, text) == 0) return FL_OK;
    }
    FL_TRY(FL_RESIZE(groups, *count, *count + 1, error));
    *out = &(*groups)[*count];
    FL_TRY(FL_ALLOCATE(&(*out)->cells, rows, error));
    (*out)->text = text;
    (*count)++;
    return FL_OK;
}

fl_status fl_run_warnings_group(const fl_warned *rows, size_t count, fl_warning_group **groups,
                                size_t *group_count, fl_error *error) {
    *groups = NULL;
    *group_count = 0;
    fl_status status = FL_OK;
    for (size_t r = 0; r < count; r++) {
        for (size_t w = 0; w < rows[r].count; w++) {
            fl_warning_group *group = NULL;
            FL_TRY_DONE(status, find_group(groups, group_count, rows[r].warnings[w], count, &group, error));
            if (group->count == 0 || group->cells[group->count - 1] != r) group->cells[group->count++] = r;
        }
    }
done:
    if (status != FL_OK) {
        fl_run_warnings_release(*groups, *group_count);
        *groups = NULL;
        *group_count = 0;
    }
    return status;
}

void fl_run_warnings_release(fl_warning_group *groups, size_t group_count) {
    for (size_t i = 0; i < group_count; i++) fl_memory_free(groups[i].cells);
    fl_memory_free(groups);
}

/* "label; label; ...", broken between labels. */
static void print_cells(FILE *stream, const fl_warned *rows, const fl_warning_group *group) {
    size_t column = INDENT;
    fprintf(stream, "%*s", INDENT, "");
    for (size_t i = 0; i < group->count; i++) {
        const char *label = rows[group->cells[i]].label;
        const size_t bytes = strlen(label) + 2;
        if (column > INDENT && column + bytes > LINE_BYTES) {
            fprintf(stream, "\n%*s", INDENT, "");
            column = INDENT;
        }
        fprintf(stream, "%s%s", label, i + 1 < group->count ? "; " : "\n");
        column += bytes;
    }
}

fl_status fl_run_warnings_print(FILE *stream, const fl_warned *rows, size_t count, fl_error *error) {
    fl_warning_group *groups = NULL;
    size_t group_count = 0;
    FL_TRY(fl_run_warnings_group(rows, count, &groups, &group_count, error));
    for (size_t i = 0; i < group_count; i++) {
        fprintf(stream, "warning: %s\n", groups[i].text);
        if (groups[i].count < count) print_cells(stream, rows, &groups[i]);
    }
    fl_run_warnings_release(groups, group_count);
    return FL_OK;
}

/* A figure of the run itself that its mechanism decides. */
static bool is_own_figure(const char *name) {
    static const char *const others[] = {"linear_off/", "full_", "full/", "tokens", "linear_share"};
    static const char *const endings[] = {"_bytes", "_seconds"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strncmp(name, others[i], strlen(others[i])) == 0) return false;
    }
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const size_t bytes = strlen(name), tail = strlen(endings[i]);
        if (bytes > tail && strcmp(name + bytes - tail, endings[i]) == 0) return false;
    }
    return true;
}

static size_t count_own(const fl_run_entry *run) {
    size_t count = 0;
    for (size_t i = 0; i < run->metric_count; i++) count += is_own_figure(run->metrics[i].name);
    return count;
}

/* A figure that is undefined in both (a standard error of one item) tells nothing. */
static bool are_equal(const fl_run_entry *a, const fl_run_entry *b) {
    size_t finite = 0;
    for (size_t i = 0; i < a->metric_count; i++) {
        const double value = a->metrics[i].value, other = fl_run_metric_value(b, a->metrics[i].name);
        if (!is_own_figure(a->metrics[i].name)) continue;
        if (!fl_run_has_metric(b, a->metrics[i].name) || isinf(value)) return false;
        if (!(value == other || (isnan(value) && isnan(other)))) return false;
        finite += isfinite(value);
    }
    return finite > 0 && count_own(a) == count_own(b);
}

void fl_run_twins_find(const fl_run_entry *const *runs, size_t count, size_t *twin_of) {
    for (size_t i = 0; i < count; i++) {
        twin_of[i] = i;
        for (size_t j = 0; j < i && twin_of[i] == i && runs[i] != NULL; j++) {
            if (runs[j] != NULL && twin_of[j] == j && are_equal(runs[i], runs[j])) twin_of[i] = j;
        }
    }
}
