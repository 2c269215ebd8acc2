/* Measurements: the table of everything an evaluation of a text yields (measurements.inc), as rows to walk.
 *
 * Whoever treats all measured arrays alike (allocation, run file, pooling, tables, the schema page) walks these rows and knows
 * no member by name. */
#ifndef FL_MEASURE_MEASUREMENTS_H
#define FL_MEASURE_MEASUREMENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/measure/text_evaluation.h"

typedef enum fl_measurement_kind {
    FL_MEASUREMENT_ARRAY,  /* double *, NULL when not measured */
    FL_MEASUREMENT_ALIAS,  /* the array of another row, in a second dataset */
    FL_MEASUREMENT_FIGURE, /* double */
    FL_MEASUREMENT_COUNT   /* size_t */
} fl_measurement_kind;

/* How the values of several runs become one. `partner` is another row's member:
 * of a variance its mean; of an exponential its exponent; of a ratio (the other kinds) its denominator [L] or [L][H]: the
 * numerators are pooled, then divided by the pooled denominator. */
typedef enum fl_pooling {
    FL_POOL_NEVER = 0,
    FL_POOL_BY_TOKENS,          /* mean, weight: tokens */
    FL_POOL_BY_SCORED,          /* mean, weight: scored tokens */
    FL_POOL_BY_POSITION,        /* mean; last axis P; weight: sequences that reach the position */
    FL_POOL_BY_SCORED_POSITION, /* mean; last axis P; weight: sequences that go on behind it */
    FL_POOL_VARIANCE,           /* n (v + (m - M)^2) added up, over the sum of n */
    FL_POOL_EXPONENTIAL,        /* exp of the pooled partner */
    FL_POOL_SUM,                /* added up; of an array by position, where a run has the position */
    FL_POOL_LARGEST,
    FL_POOL_JOIN /* first axis S: one run's after the other's, where all runs have it */
} fl_pooling;

typedef struct fl_measurement {
    const char *member; /* of fl_text_result */
    fl_measurement_kind kind;
    size_t offset;    /* of the member */
    const char *path; /* its dataset in a run file */
    const char *axes; /* letters, slowest first (measurements.inc); "" for a single value */
    unsigned wanted_by;
    const char *units, *description;
    fl_pooling pooling;
    const char *partner; /* member, or NULL */
    bool frozen;         /* of the full model: the same for every variant on this text */
    const char *beside;  /* kept of baselines and ablations as well; its description there */
    const char *figure;  /* its name among the single figures of a run; an array is averaged */
    const char *meaning; /* of the figure */
} fl_measurement;

/* Static rows. */
const fl_measurement *fl_measurements(size_t *count);
/* NULL when there is none. A member's row is never an alias. */
const fl_measurement *fl_measurement_of_member(const char *member);
/* `path` may lie below a baseline or an ablation ("/baseline/linear_off/errors/..."). */
const fl_measurement *fl_measurement_of_path(const char *path);

/* The member in a result; `row` must be of that kind. */
double **fl_measurement_array(fl_text_result *result, const fl_measurement *row);
double *fl_measurement_figure(fl_text_result *result, const fl_measurement *row);
size_t *fl_measurement_count(fl_text_result *result, const fl_measurement *row);
/* To be read only: an array (or alias); a figure, or a count as a number. */
const double *fl_measurement_values(const fl_text_result *result, const fl_measurement *row);
double fl_measurement_value(const fl_text_result *result, const fl_measurement *row);

/* Whether an evaluation with these options yields it. */
bool fl_measurement_wanted(const fl_measurement *row, const fl_text_evaluation_options *options);
/* Whether the result has it: an array that is there, a figure of a part that was measured, any count. */
bool fl_measurement_there(const fl_measurement *row, const fl_text_result *result);

/* Length of an axis, or 0 when the result does not know it yet. */
size_t fl_measurement_extent(const fl_text_result *result, char axis);
/* Where the result keeps that; NULL for an axis that has the same length in every run. */
size_t *fl_measurement_axis(fl_text_result *result, char axis);
/* "sequence", "layer", "head", "kv_head", "position", "quantile", "bin", "edge". */
const char *fl_measurement_axis_name(char axis);
/* Sizes of the row's axes; returns the number of elements. */
size_t fl_measurement_shape(const fl_measurement *row, const fl_text_result *result, size_t shape[4]);

#endif
