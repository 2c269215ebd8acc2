/* Finite check: frozen weights that hold NaN or an infinity are a damaged model, not a variant that diverged. */
#ifndef FL_MODEL_FINITE_CHECK_H
#define FL_MODEL_FINITE_CHECK_H

#include "harness/base/status.h"
#include "harness/model/model.h"

/* Looks at every weight once, in its stored type (of quantised blocks: at the scales). FL_ERROR_FORMAT names model, tensor,
 * row and column of the first that is not finite. */
fl_status fl_model_check_finite(const fl_model *model, fl_error *error);

#endif
