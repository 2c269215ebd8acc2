/* Unused keys: in a sweep over rules, what the common part says and not every rule takes.
 *
 * The keys of `variant` that a rule may not take: gate, beta, normaliser, factors, scale, gate.rank, gate.form, beta.maximum,
 * and the options of rules. One that the cell's rule does not take is left out of that cell, as if it had not been written,
 * when another cell of the sweep has it and takes it. It is an error, at its place and of that cell (variant.h), when no cell
 * takes it, when there is no sweep, and when the cell has it by an entry of sweep.list or sweep.zip of its own: that was
 * written for this very rule. A key that sweep.grid sets is like one of the common part; the cells that it would tell apart
 * are then one and the same: the first stays, the others count as duplicates. */
#ifndef FL_ATTN_VARIANTS_UNUSED_KEYS_H
#define FL_ATTN_VARIANTS_UNUSED_KEYS_H

#include "harness/base/status.h"
#include "harness/config/experiment.h"

/* Takes such keys out of the documents and out of the axes that labels are made of, and notes them in `unused` of each experiment. Call it before anything is bound. */
fl_status fl_unused_keys_drop(fl_experiment_list *list, fl_error *error);

#endif
