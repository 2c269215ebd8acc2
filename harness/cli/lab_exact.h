/* `frostline lab --exact`: figure 18.2 and the three checks in float64 (measure/exact_lab.h), as JSON. The page of `lab --page`
 * gives the same object, by `lab.numbers(options)`. */
#ifndef FL_CLI_LAB_EXACT_H
#define FL_CLI_LAB_EXACT_H

#include <stdio.h>

#include "harness/measure/exact_lab.h"

typedef struct fl_lab_exact_request {
    fl_memory_lab_options options; /* overwrite is set by the check */
    fl_exact_strength strength;
    double overlap; /* of keys a and c in the figure, 0 to below 1 */
    const size_t *pairs;
    size_t count; /* of pairs */
} fl_lab_exact_request;

fl_status fl_lab_exact_write(FILE *stream, const fl_lab_exact_request *request, fl_error *error);

#endif
