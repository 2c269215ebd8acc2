#include "harness/measure/measurements.h"

#include <string.h>

/* Parts of an evaluation: bits of wanted_by. */
enum {
    TEACHER_FORCED = 1,
    PROPAGATED = 2,
    DIAGNOSTICS = 4,
    LANGUAGE_MODEL = 8,
    TRENDS = 16, /* teacher forced and diagnostics together */
    ALWAYS = 32
};

#define TEACHER "/errors/teacher_forced/"
#define PROPAGATED_PATH "/errors/propagated/"
#define LANGUAGE "/language_model/"
#define SEQUENCES "/sequences/"
#define PARTNER(name) .partner = #name

#define ROW(name, kind_, path_, axes_, wanted, ...)                                                          \
    {.member = #name,                                                                                        \
     .kind = FL_MEASUREMENT_##kind_,                                                                         \
     .offset = offsetof(fl_text_result, name),                                                               \
     .path = path_,                                                                                          \
     .axes = axes_,                                                                                          \
     .wanted_by = wanted,                                                                                    \
     __VA_ARGS__},
#define ARRAY(name, path, axes, wanted, ...) ROW(name, ARRAY, path, axes, wanted, __VA_ARGS__)
#define ALIAS(name, path, axes, wanted, ...) ROW(name, ALIAS, path, axes, wanted, __VA_ARGS__)
#define FIGURE(name, path, wanted, ...) ROW(name, FIGURE, path, "", wanted, __VA_ARGS__)
#define COUNT(name, path, ...) ROW(name, COUNT, path, "", ALWAYS, __VA_ARGS__)

static const fl_measurement rows[] = {
#include "harness/measure/measurements.inc"
};

enum { ROWS = sizeof rows / sizeof rows[0] };

const fl_measurement *fl_measurements(size_t *count) {
    *count = ROWS;
    return rows;
}

const fl_measurement *fl_measurement_of_member(const char *member) {
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].kind != FL_MEASUREMENT_ALIAS && strcmp(rows[i].member, member) == 0) return &rows[i];
    }
    return NULL;
}

/* What follows "/baseline/<which>" or "/ablation/<which>"; else the path itself. */
static const char *below_comparison(const char *path) {
    static const char *const roots[] = {"/baseline/", "/ablation/"};
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++) {
        size_t bytes = strlen(roots[i]);
        if (strncmp(path, roots[i], bytes) != 0) continue;
        const char *rest = strchr(path + bytes, '/');
        return rest != NULL ? rest : path;
    }
    return path;
}

const fl_measurement *fl_measurement_of_path(const char *path) {
    const char *own = below_comparison(path);
    for (size_t i = 0; i < ROWS; i++) {
        if (strcmp(rows[i].path, own) == 0) return &rows[i];
    }
    return NULL;
}

double **fl_measurement_array(fl_text_result *result, const fl_measurement *row) {
    return (double **)(void *)((char *)result + row->offset);
}

double *fl_measurement_figure(fl_text_result *result, const fl_measurement *row) {
    return (double *)(void *)((char *)result + row->offset);
}

size_t *fl_measurement_count(fl_text_result *result, const fl_measurement *row) {
    return (size_t *)(void *)((char *)result + row->offset);
}

const double *fl_measurement_values(const fl_text_result *result, const fl_measurement *row) {
    return *(double *const *)(const void *)((const char *)result + row->offset);
}

double fl_measurement_value(const fl_text_result *result, const fl_measurement *row) {
    const void *member = (const char *)result + row->offset;
    return row->kind == FL_MEASUREMENT_COUNT ? (double)*(const size_t *)member : *(const double *)member;
}

bool fl_measurement_wanted(const fl_measurement *row, const fl_text_evaluation_options *options) {
    const unsigned asked = ALWAYS | (options->teacher_forced ? TEACHER_FORCED : 0) |
                           (options->propagated ? PROPAGATED : 0) | (options->diagnostics ? DIAGNOSTICS : 0) |
                           (options->language_model ? LANGUAGE_MODEL : 0) |
                           (options->teacher_forced && options->diagnostics ? TRENDS : 0);
    return (row->wanted_by & asked) != 0;
}

/* Whether an array is there that only these parts ask for. */
static bool part_measured(const fl_text_result *result, unsigned parts) {
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].kind != FL_MEASUREMENT_ARRAY || (rows[i].wanted_by & ~parts) != 0) continue;
        if (fl_measurement_values(result, &rows[i]) != NULL) return true;
    }
    return false;
}

bool fl_measurement_there(const fl_measurement *row, const fl_text_result *result) {
    switch (row->kind) {
    case FL_MEASUREMENT_ARRAY:
        return fl_measurement_values(result, row) != NULL;
    case FL_MEASUREMENT_ALIAS:
        return fl_measurement_values(result, row) != NULL && part_measured(result, row->wanted_by);
    case FL_MEASUREMENT_FIGURE:
        return part_measured(result, row->wanted_by);
    case FL_MEASUREMENT_COUNT:
        break;
    }
    return true;
}

/* size: the same in every run; 0: a member of the result. */
static const struct axis {
    char letter;
    const char *name;
    size_t size, offset;
} axes[] = {
    {'S', "sequence", 0, offsetof(fl_text_result, sequences)},
    {'L', "layer", 0, offsetof(fl_text_result, layers)},
    {'H', "head", 0, offsetof(fl_text_result, query_heads)},
    {'N', "kv_head", 0, offsetof(fl_text_result, kv_heads)},
    {'P', "position", 0, offsetof(fl_text_result, positions)},
    {'Q', "quantile", FL_GATE_QUANTILES, 0},
    {'B', "bin", FL_TREND_BINS, 0},
    {'E', "edge", FL_TREND_BINS + 1, 0},
};

static const struct axis *axis_of(char letter) {
    size_t i = 0;
    while (axes[i].letter != letter) i++; /* the table's letters are all there */
    return &axes[i];
}

size_t *fl_measurement_axis(fl_text_result *result, char axis) {
    const struct axis *row = axis_of(axis);
    return row->size > 0 ? NULL : (size_t *)(void *)((char *)result + row->offset);
}

size_t fl_measurement_extent(const fl_text_result *result, char axis) {
    const struct axis *row = axis_of(axis);
    return row->size > 0 ? row->size : *(const size_t *)(const void *)((const char *)result + row->offset);
}

const char *fl_measurement_axis_name(char axis) {
    return axis_of(axis)->name;
}

size_t fl_measurement_shape(const fl_measurement *row, const fl_text_result *result, size_t shape[4]) {
    size_t elements = 1;
    for (size_t i = 0; row->axes[i] != '\0'; i++) {
        shape[i] = fl_measurement_extent(result, row->axes[i]);
        elements *= shape[i];
    }
    return elements;
}
