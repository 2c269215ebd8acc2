/* What several commands take before their flags, said once. Tables as arguments.h has them. */
#ifndef FL_CLI_POSITIONALS_H
#define FL_CLI_POSITIONALS_H

#include "harness/cli/arguments.h"

extern const fl_positional fl_positionals_model[]; /* MODEL */
extern const fl_positional fl_positionals_sweep[]; /* CONFIG [KEY=VALUE ...] */

#endif
