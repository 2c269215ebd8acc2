#include "harness/model/fault_list.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void fl_fault_list_add(fl_fault_list *list, fl_status status, const char *format, ...) {
    if (list->count++ == 0) list->status = status;
    char fault[FL_FAULT_LIST_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault, sizeof fault, format, arguments);
    va_end(arguments);
    const char *separator = list->used > 0 ? "; " : "";
    size_t needed = strlen(separator) + strlen(fault);
    if (list->left_out > 0 || (list->used > 0 && list->used + needed >= sizeof list->text)) {
        list->left_out++;
        return;
    }
    snprintf(list->text + list->used, sizeof list->text - list->used, "%s%s", separator, fault);
    list->used += needed;
}

fl_status fl_fault_list_result(const fl_fault_list *list, const char *path, fl_error *error) {
    if (list->count == 0) return FL_OK;
    if (list->left_out > 0) {
        return fl_error_set(error, list->status, "%s: %s; and %zu more", path, list->text, list->left_out);
    }
    return fl_error_set(error, list->status, "%s: %s", path, list->text);
}
