/* Exact lab: the memory lab by the definition of four rules, in float64, one write after another.
 *
 * It holds no kernel, chunk or variant, so that it can be read against method.md section 2, and repeated elsewhere: the page of
 * `frostline lab --page` computes the same in JavaScript, in the same order, from the same draws (fl_memory_lab_draw).
 *
 *     S = S diag(a) (I - b k k^T) + w v k^T      linear: a = 1, b = 0, w = 1; delta: a = 1, b = w = beta;
 *                                                gated_delta: a = gate; kda: a = gate for the first half of the key's channels
 *                                                (rounded up), gate_rest for the others */
#ifndef FL_MEASURE_EXACT_LAB_H
#define FL_MEASURE_EXACT_LAB_H

#include "harness/measure/memory_lab.h"

typedef enum fl_exact_rule {
    FL_EXACT_LINEAR,
    FL_EXACT_DELTA,
    FL_EXACT_GATED_DELTA,
    FL_EXACT_KDA,
    FL_EXACT_RULES
} fl_exact_rule;

extern const char *const fl_exact_rule_names[FL_EXACT_RULES];

typedef struct fl_exact_strength {
    double gate, gate_rest, beta; /* 0 to 1 */
} fl_exact_strength;

/* One write into state [D][D], rows are channels of the value. Scratch: recalled [D]. */
void fl_exact_lab_write(fl_exact_rule rule, const fl_exact_strength *strength, size_t dimension, const double *key,
                        const double *value, double *state, double *recalled);

enum { FL_EXACT_FIGURE_SIZE = 4, FL_EXACT_FIGURE_WRITES = 4, FL_EXACT_FIGURE_KEYS = 3 };

/* The course's figure 18.2 after one of its writes: values under keys a, b and c, then a new one under a. Keys a and b are
 * perpendicular, c . a = overlap. */
typedef struct fl_exact_figure {
    double state[FL_EXACT_FIGURE_SIZE][FL_EXACT_FIGURE_SIZE];
    double recall[FL_EXACT_FIGURE_KEYS][FL_EXACT_FIGURE_SIZE]; /* S k for a, b, c */
} fl_exact_figure;

/* steps [FL_EXACT_FIGURE_WRITES] */
void fl_exact_lab_figure(fl_exact_rule rule, const fl_exact_strength *strength, double overlap, fl_exact_figure *steps);

/* Check 1, of trial 0, with the overwritten values as queries: o_t = sum over j <= t of (q_t . k_j) v_j against S_t q_t. */
typedef struct fl_exact_regrouped {
    double difference; /* largest, over all t and channels */
    double length;     /* mean of |o_t|, by the recurrence */
} fl_exact_regrouped;

fl_status fl_exact_lab_regrouped(const fl_memory_lab_options *options, size_t pairs, fl_exact_regrouped *out,
                                 fl_error *error);

/* Checks 2 (options->overwrite) and 3: means over pairs and trials. Without overwriting, old and blend are NaN. */
typedef struct fl_exact_recall {
    double recall_error;                    /* |y - newest|^2 */
    double to_newest, to_old, to_blend;     /* |y - v| for the newest value, the overwritten one, and the sum of both */
    double cosine, cosine_old, accuracy;    /* as in fl_memory_lab_row */
} fl_exact_recall;

fl_status fl_exact_lab_recall(fl_exact_rule rule, const fl_exact_strength *strength,
                              const fl_memory_lab_options *options, size_t pairs, fl_exact_recall *out,
                              fl_error *error);

#endif
