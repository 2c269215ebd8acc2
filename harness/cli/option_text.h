/* What an option's row says, in words. */
#ifndef FL_CLI_OPTION_TEXT_H
#define FL_CLI_OPTION_TEXT_H

#include "harness/base/status.h"
#include "harness/config/options.h"
#include "harness/config/text_builder.h"

/* "whole number from 0 to 16777216", "sum | half", "true or false". `form` for a NODE; may be NULL. */
fl_status fl_option_type_text(const fl_option *option, const char *form, fl_text_builder *out, fl_error *error);
/* "required", "none", or the default as YAML. */
const char *fl_option_default_text(const fl_option *option);

#endif
