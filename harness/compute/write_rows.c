#include "harness/compute/write_rows.h"

#include <string.h>

#include "harness/compute/cpu_backend.h"

size_t fl_write_rows_floats(const fl_write_layout *layout, size_t rows) {
    return layout->heads * rows * layout->row_floats;
}

fl_write_rows fl_write_rows_in(const fl_write_layout *layout, size_t rows, fl_array block) {
    fl_write_rows result = {.rows = rows};
    for (int part = 0; part < FL_WRITE_PARTS; part++) {
        if (layout->width[part] == 0) continue;
        result.part[part] = block;
        block = fl_array_from(block, layout->heads * rows * layout->width[part]);
    }
    return result;
}

fl_array fl_write_row(const fl_write_layout *layout, const fl_write_rows *rows, enum fl_write_part part,
                      size_t head, size_t row) {
    if (!fl_array_is(rows->part[part])) return fl_array_none;
    return fl_array_from(rows->part[part], (head * rows->rows + row) * layout->width[part]);
}

void fl_write_row_clear(const fl_write_layout *layout, const fl_write_rows *rows, size_t head, size_t row) {
    for (int part = 0; part < FL_WRITE_PARTS; part++) {
        float *to = fl_cpu_floats(fl_write_row(layout, rows, (enum fl_write_part)part, head, row));
        if (to != NULL) memset(to, 0, layout->width[part] * sizeof *to);
    }
}

void fl_write_rows_copy(fl_compute *compute, const fl_write_layout *layout, const fl_write_rows *to,
                        size_t to_row, const fl_write_rows *from, size_t from_row, size_t count) {
    for (int i = 0; i < FL_WRITE_PARTS; i++) {
        enum fl_write_part part = (enum fl_write_part)i;
        size_t width = layout->width[i];
        if (width == 0) continue;
        fl_compute_copy_rows(compute, fl_write_row(layout, to, part, 0, to_row), to->rows * width,
                             fl_write_row(layout, from, part, 0, from_row), from->rows * width, layout->heads,
                             count * width);
    }
}

fl_rule_output fl_write_row_output(const fl_write_layout *layout, const fl_write_rows *rows, size_t head,
                                   size_t row) {
    fl_rule_output output = {
        .query = NULL,
        .key = fl_cpu_floats(fl_write_row(layout, rows, FL_WRITE_KEY, head, row)),
        .value = fl_cpu_floats(fl_write_row(layout, rows, FL_WRITE_VALUE, head, row)),
        .log_decay = fl_cpu_floats(fl_write_row(layout, rows, FL_WRITE_LOG_DECAY, head, row)),
        .erase_strength = fl_cpu_floats(fl_write_row(layout, rows, FL_WRITE_ERASE_STRENGTH, head, row)),
        .erase_read = fl_cpu_floats(fl_write_row(layout, rows, FL_WRITE_ERASE_READ, head, row)),
        .erase_write = fl_cpu_floats(fl_write_row(layout, rows, FL_WRITE_ERASE_WRITE, head, row)),
        .write = fl_cpu_floats(fl_write_row(layout, rows, FL_WRITE_WEIGHT, head, row)),
    };
    for (int i = 0; i < FL_RULE_MAX_FACTORS; i++)
        output.factors[i] =
            fl_cpu_floats(fl_write_row(layout, rows, (enum fl_write_part)(FL_WRITE_FACTORS + i), head, row));
    return output;
}

fl_recurrence_inputs fl_write_rows_inputs(const fl_write_layout *layout, const fl_write_rows *rows,
                                          size_t first, fl_array query) {
    return (fl_recurrence_inputs){
        .query = query,
        .key = fl_write_row(layout, rows, FL_WRITE_KEY, 0, first),
        .value = fl_write_row(layout, rows, FL_WRITE_VALUE, 0, first),
        .log_decay = fl_write_row(layout, rows, FL_WRITE_LOG_DECAY, 0, first),
        .erase_strength = fl_write_row(layout, rows, FL_WRITE_ERASE_STRENGTH, 0, first),
        .erase_read = fl_write_row(layout, rows, FL_WRITE_ERASE_READ, 0, first),
        .erase_write = fl_write_row(layout, rows, FL_WRITE_ERASE_WRITE, 0, first),
        .write = fl_write_row(layout, rows, FL_WRITE_WEIGHT, 0, first),
    };
}
