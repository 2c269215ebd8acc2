/* Self check: the exactness invariants of the house plan on the user's own model, text and variant.
 *
 * Every check runs on the first tokens of the given sequence, compares two ways of computing the same thing
 * and reports one figure (largest difference, relative to the root mean square of the layer's output where it
 * says so) beside its bound. A check that has no meaning for the variant is reported as not applicable, with
 * the reason. A failure names layer, head and position. Failing is a result (FL_OK with passed = false); an
 * error is returned only when a check could not run. */
#ifndef FL_MEASURE_SELF_CHECK_H
#define FL_MEASURE_SELF_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn_variants/mechanism.h"
#include "harness/base/hash.h"
#include "harness/base/status.h"
#include "harness/engine/network.h"

typedef struct fl_self_check_row {
    const char *name;    /* "chunk_equals_step" */
    const char *meaning; /* one sentence */
    bool applicable, passed;
    double figure, bound;
    char place[128]; /* where the largest difference is, or why the check does not apply */
} fl_self_check_row;

enum { FL_SELF_CHECK_MAX_ROWS = 16 };

typedef struct fl_self_check_report {
    size_t count, tokens; /* tokens: how many were used */
    bool passed;          /* every applicable check */
    fl_self_check_row rows[FL_SELF_CHECK_MAX_ROWS];
} fl_self_check_report;

/* ids [tokens]; at most `limit` are used (0 = as many as it takes to reach the state several times over).
 * weights_before: the model's hash when it was opened; the last check takes it again. */
fl_status fl_self_check_run(const fl_network *network, const fl_mechanism *mechanism, const int32_t *ids,
                            size_t tokens, size_t limit, const fl_hash *weights_before,
                            fl_self_check_report *report, fl_error *error);

#endif
