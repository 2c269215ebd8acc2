#include "harness/cli/column_names.h"

#include <string.h>

#include "harness/base/memory.h"

static fl_status add_name(fl_column_names *out, char *name, fl_error *error) {
    name += strspn(name, " ");
    size_t length = strlen(name);
    while (length > 0 && name[length - 1] == ' ') name[--length] = '\0';
    if (length == 0) return fl_error_set(error, FL_ERROR_ARGUMENT, "--columns: an empty name");
    FL_TRY(FL_RESIZE(&out->names, out->count, out->count + 1, error));
    out->names[out->count++] = name;
    return FL_OK;
}

fl_status fl_column_names_split(const char *list, fl_column_names *out, fl_error *error) {
    *out = (fl_column_names){0};
    if (list == NULL) return FL_OK;
    FL_TRY(fl_memory_copy_string(&out->text, list, error));
    for (char *name = out->text, *end; name != NULL; name = end) {
        end = strchr(name, ',');
        if (end != NULL) *end++ = '\0';
        FL_TRY(add_name(out, name, error));
    }
    return FL_OK;
}

void fl_column_names_release(fl_column_names *names) {
    fl_memory_free(names->names);
    fl_memory_free(names->text);
    *names = (fl_column_names){0};
}
