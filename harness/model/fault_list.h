/* Fault list: everything that is wrong with a checkpoint, collected so that one error names all of it. */
#ifndef FL_MODEL_FAULT_LIST_H
#define FL_MODEL_FAULT_LIST_H

#include <stddef.h>

#include "harness/base/status.h"

enum { FL_FAULT_LIST_BYTES = 1500 };

typedef struct fl_fault_list {
    size_t count, left_out;
    fl_status status; /* of the first fault */
    size_t used;
    char text[FL_FAULT_LIST_BYTES]; /* faults, "; " between them; those that do not fit are counted in
                                       left_out */
} fl_fault_list;

void fl_fault_list_add(fl_fault_list *list, fl_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* FL_OK when the list is empty; else "<path>: <faults>". */
fl_status fl_fault_list_result(const fl_fault_list *list, const char *path, fl_error *error);

#endif
