#include "harness/cli/option_text.h"

#include <string.h>

static const char *const type_names[] = {
    [FL_OPTION_BOOL] = "true or false",
    [FL_OPTION_SIZE] = "whole number",
    [FL_OPTION_INTEGER] = "whole number, signed",
    [FL_OPTION_SEED] = "whole number",
    [FL_OPTION_NUMBER] = "number",
    [FL_OPTION_STRING] = "text",
    [FL_OPTION_CHOICE] = "",
    [FL_OPTION_SIZES] = "list of whole numbers",
    [FL_OPTION_NODE] = "mapping",
};

/* Both 0: no range; maximum below minimum: no maximum. */
static fl_status add_range(const fl_option *option, fl_text_builder *out, fl_error *error) {
    if (option->minimum == 0.0 && option->maximum == 0.0) return FL_OK;
    if (option->maximum < option->minimum)
        return fl_text_builder_format(out, error, ", at least %.10g", option->minimum);
    return fl_text_builder_format(out, error, " from %.10g to %.10g", option->minimum, option->maximum);
}

fl_status fl_option_type_text(const fl_option *option, const char *form, fl_text_builder *out,
                              fl_error *error) {
    if (option->type == FL_OPTION_CHOICE) {
        for (size_t i = 0; option->choices[i] != NULL; i++)
            FL_TRY(fl_text_builder_format(out, error, "%s%s", i > 0 ? " | " : "", option->choices[i]));
        return FL_OK;
    }
    const char *name = option->type == FL_OPTION_NODE && form != NULL ? form : type_names[option->type];
    FL_TRY(fl_text_builder_add(out, name, error));
    return add_range(option, out, error);
}

const char *fl_option_default_text(const fl_option *option) {
    if (option->default_text == NULL) return option->type == FL_OPTION_SEED ? "0" : "none";
    return strcmp(option->default_text, "!") == 0 ? "required" : option->default_text;
}
