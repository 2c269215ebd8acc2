#include "harness/cli/page_table.h"

#include "analysis/run_columns.h"
#include "harness/cli/columns.h"

fl_status fl_page_table_print(FILE *stream, const fl_table *table, fl_error *error) {
    size_t shown = 0;
    FL_TRY(fl_table_write_text(table, stream, fl_columns_of_terminal(stream), &shown, error));
    const char *note = fl_run_columns_note(table);
    if (note[0] != '\0') fprintf(stream, "\n%s\n", note);
    for (size_t c = shown; c < table->column_count; c++) {
        fprintf(stream, c == shown ? "\nNo room here for %s" : ", %s", table->columns[c].name);
        if (c + 1 == table->column_count) fputs(": a wider terminal or --columns shows them.\n", stream);
    }
    return FL_OK;
}
