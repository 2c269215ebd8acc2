/* The option catalogue as a JSON Schema (draft 7): an editor or a validator completes and checks a config by it.
 *
 * Without a sweep it also says which keys go together: what a rule takes, which of path, ids and self_generated, what a task
 * needs. With a sweep these may come from its axes, and are left to `frostline plan`. */
#ifndef FL_CLI_CONFIG_SCHEMA_H
#define FL_CLI_CONFIG_SCHEMA_H

#include "harness/base/status.h"

/* *text: an fl_memory block. */
fl_status fl_config_schema_make(char **text, fl_error *error);

#endif
