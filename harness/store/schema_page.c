#include "harness/store/schema_page.h"

#include "harness/config/text_builder.h"
#include "harness/measure/measurements.h"

/* A bar in a cell would end it. */
static fl_status add_escaped(fl_text_builder *text, const char *description, fl_error *error) {
    fl_status status = FL_OK;
    for (const char *c = description; *c != '\0' && status == FL_OK; c++)
        status = fl_text_builder_format(text, error, *c == '|' ? "\\%c" : "%c", *c);
    return status;
}

static fl_status add_row(fl_text_builder *text, const fl_measurement *row, fl_error *error) {
    FL_TRY(fl_text_builder_format(text, error, "| `%s` | ", row->path));
    for (const char *axis = row->axes; *axis != '\0'; axis++)
        FL_TRY(fl_text_builder_format(text, error, "[%c]", *axis));
    FL_TRY(
        fl_text_builder_format(text, error, "%s | %s | ", row->axes[0] == '\0' ? "single" : "", row->units));
    FL_TRY(add_escaped(text, row->description, error));
    return fl_text_builder_format(text, error, " | %s |\n", row->beside != NULL ? "yes" : "");
}

fl_status fl_schema_page_measurements(char **out, fl_error *error) {
    fl_text_builder text = {0};
    size_t count = 0;
    const fl_measurement *rows = fl_measurements(&count);
    fl_status status = fl_text_builder_add(
        &text, "| dataset | axes | units | what | beside |\n|---|---|---|---|---|\n", error);
    for (size_t i = 0; i < count && status == FL_OK; i++) status = add_row(&text, &rows[i], error);
    if (status != FL_OK) {
        fl_text_builder_release(&text);
        return status;
    }
    *out = text.text;
    return FL_OK;
}
