/* Linearised: a config's variant, bound, fitted to a model and given its mechanism parameters. */
#ifndef FL_RUN_LINEARISED_H
#define FL_RUN_LINEARISED_H

#include "attn_variants/mechanism.h"
#include "attn_variants/variant.h"
#include "harness/base/progress.h"
#include "harness/base/status.h"
#include "harness/run/workbench.h"
#include "harness/config/experiment.h"
#include "harness/measure/text_evaluation.h"

typedef struct fl_linearised {
    fl_variant *variant;
    fl_mechanism *mechanism; /* borrows the variant; NULL until equipped */
} fl_linearised;

/* Binds and fits the variant, and completes experiment->resolved with its keys. On failure *out is empty. */
fl_status fl_linearised_bind(fl_experiment *experiment, const fl_workbench *bench, fl_linearised *out,
                             fl_error *error);
/* Makes it ready to run: a hybrid's hardest layers are measured on `sequences` (the bench must be prepared;
 * NULL: such a hybrid is refused), mechanism parameters initialised or loaded. Nothing when that has been
 * done. progress may be NULL. */
fl_status fl_linearised_equip(fl_linearised *linearised, const fl_workbench *bench,
                              const fl_sequences *sequences, const fl_progress *progress, fl_error *error);
/* Bound and equipped from a config file of one cell. */
fl_status fl_linearised_load(const char *config, const fl_workbench *bench, const fl_sequences *sequences,
                             fl_linearised *out, fl_error *error);
/* An equipped one with the linear part of an equipped `source` off: the exact set alone. */
fl_status fl_linearised_linear_off(const fl_linearised *source, const fl_workbench *bench, fl_linearised *out,
                                   fl_error *error);
void fl_linearised_release(fl_linearised *linearised);

#endif
