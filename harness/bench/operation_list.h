/* Operations: the compute table slot by slot, each with how to try it against float64 and the bound its error is held to. One
 * list for the tests (every backend, random shapes with edges) and for `frostline bench --rows operations` (errors and speeds). */
#ifndef FL_BENCH_OPERATION_LIST_H
#define FL_BENCH_OPERATION_LIST_H

#include <stdint.h>

#include "harness/bench/operation_trial.h"

enum { FL_OPERATION_SIZES = 6, FL_OPERATION_EDGES = 6 };

/* One dimension of an operation: what a random case draws it from, ends and odd ones among them, and what a real model has. */
typedef struct fl_operation_size {
    const char *name;
    size_t edges[FL_OPERATION_EDGES]; /* up to the first 0 that is not the first entry */
    size_t typical;
} fl_operation_size;

typedef struct fl_operation {
    const char *name;   /* the table's slot */
    size_t slot;        /* its offset in fl_compute_ops */
    double bound;       /* the largest error (fl_trial_verdict) in float32 */
    fl_operation_size sizes[FL_OPERATION_SIZES]; /* up to the first without a name */
    fl_status (*make)(fl_trial *trial, fl_error *error);
    fl_status (*call)(fl_trial *trial, fl_error *error);
} fl_operation;

/* All of them, NULL last. */
const fl_operation *fl_operation_at(size_t index);

/* Slots that every trial goes through and that have no case of their own, offsets in fl_compute_ops; returns how many. */
size_t fl_operation_used_by_all(const size_t **slots);

/* A number for each of the operation's sizes, drawn from its edges. */
void fl_operation_draw(const fl_operation *operation, fl_random *random, size_t sizes[FL_OPERATION_SIZES]);
/* Whether the backend has it: a NULL slot is an operation that it refuses by name elsewhere. */
bool fl_operation_present(const fl_operation *operation, const fl_compute *compute);

/* Inputs drawn and expectations computed; `sizes` must outlive the trial. Released by fl_trial_release, also after failure. */
fl_status fl_operation_begin(const fl_operation *operation, fl_compute *compute, const size_t *sizes, uint64_t seed,
                             fl_trial *trial, fl_error *error);

/* One list a file. */
extern const fl_operation fl_operations_memory[], fl_operations_dense[], fl_operations_attention[],
    fl_operations_mixer[], fl_operations_rows[], fl_operations_statistics[];

#endif
