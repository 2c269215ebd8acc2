#include "harness/store/axis_record.h"

#include <stddef.h>
#include <stdint.h>

#include "harness/base/memory.h"
#include "harness/base/whole_number.h"
#include "harness/store/sweep.h"

static const struct {
    const char *path, *description;
    size_t member;
} columns[] = {
    {"/sweep/key", "keys of the configuration that the sweep walks along, in its order",
     offsetof(fl_cell_setting, key)},
    {"/sweep/value", "the value of each in this cell, YAML", offsetof(fl_cell_setting, value)},
    {"/sweep/name", "what the value is called in labels; empty: nothing", offsetof(fl_cell_setting, name)},
    {"/sweep/label", "the user's name of the choice; empty: none", offsetof(fl_cell_setting, label)},
};

enum { COLUMNS = sizeof columns / sizeof columns[0] };

static char **member_of(fl_cell_setting *setting, size_t column) {
    return (char **)(void *)((char *)setting + columns[column].member);
}

static fl_status write_column(fl_run_file *file, const fl_cell_axes *axes, size_t column, fl_error *error) {
    const char **texts = NULL;
    FL_TRY(FL_ALLOCATE(&texts, axes->count, error));
    for (size_t i = 0; i < axes->count; i++) texts[i] = *member_of(&axes->items[i], column);
    fl_status status = fl_run_file_write_texts(file, columns[column].path, axes->count, texts,
                                               columns[column].description, error);
    fl_memory_free(texts);
    return status;
}

fl_status fl_axis_record_write(fl_run_file *file, const fl_cell_axes *axes, fl_error *error) {
    int64_t *numbers = NULL;
    if (axes->count == 0) return FL_OK;
    FL_TRY(FL_ALLOCATE(&numbers, axes->count, error));
    for (size_t i = 0; i < axes->count; i++) numbers[i] = (int64_t)axes->items[i].axis;
    fl_status status = fl_run_file_write_integers(file, "/sweep/axis", 1, &axes->count, numbers, "1",
                                                  "axis of each key; keys walked together share one", error);
    fl_memory_free(numbers);
    for (size_t c = 0; c < COLUMNS && status == FL_OK; c++) status = write_column(file, axes, c, error);
    return status;
}

fl_status fl_axis_record_read(fl_run_reader *reader, fl_cell_axes *out, fl_error *error) {
    double *numbers = NULL;
    size_t count = 0;
    char **texts[COLUMNS] = {NULL};
    fl_status status = FL_OK;
    *out = (fl_cell_axes){0};
    if (!fl_run_reader_has(reader, "/sweep/axis")) return FL_OK;
    FL_TRY_DONE(status, fl_run_reader_array(reader, "/sweep/axis", 1, &count, &numbers, error));
    for (size_t c = 0; c < COLUMNS; c++)
        FL_TRY_DONE(status, fl_run_reader_column(reader, columns[c].path, count, &texts[c], error));
    for (size_t i = 0; i < count; i++) {
        size_t axis = 0;
        if (!fl_size_of_number(numbers[i], &axis)) {
            status = fl_run_reader_refuse(reader, "/sweep/axis", "an entry is no number of an axis", error);
            goto done;
        }
        FL_TRY_DONE(status,
                    fl_cell_axes_add(out, axis, texts[0][i], texts[1][i], texts[2][i], texts[3][i], error));
    }
done:
    for (size_t c = 0; c < COLUMNS; c++) fl_sweep_list_release(texts[c], count);
    fl_memory_free(numbers);
    if (status != FL_OK) fl_cell_axes_release(out);
    return status;
}
