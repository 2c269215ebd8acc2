#include "harness/cli/folder_table.h"

#include "analysis/output_file.h"
#include "analysis/run_columns.h"
#include "analysis/run_groups.h"
#include "analysis/run_set.h"
#include "analysis/table.h"
#include "harness/base/memory.h"
#include "harness/cli/page_table.h"
#include "harness/store/folder.h"

static fl_status write_csv(const char *path, const fl_table *table, fl_error *error) {
    fl_output_file file;
    FL_TRY(fl_output_file_open(path, &file, error));
    fl_table_write_csv(table, file.stream);
    return fl_output_file_close(&file, error);
}

fl_status fl_folder_table_write(const char *folder, fl_error *error) {
    fl_run_set *set = NULL;
    fl_table table = {0};
    char *path = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_run_set_load(&folder, 1, &set, error));
    FL_TRY_DONE(status, fl_run_columns_every_run(set, &table, error));
    FL_TRY_DONE(status, fl_folder_format(&path, error, "%s/table.csv", folder));
    status = write_csv(path, &table, error);
done:
    fl_memory_free(path);
    fl_table_release(&table);
    fl_run_set_destroy(set);
    return status;
}

fl_status fl_folder_table_print_pooled(FILE *stream, const char *const *run_files, size_t count,
                                       fl_error *error) {
    fl_run_set *set = NULL;
    fl_run_groups *groups = NULL;
    fl_table table = {0};
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_run_set_load(run_files, count, &set, error));
    FL_TRY_DONE(status, fl_run_groups_make(set, false, &groups, error));
    if (!fl_run_groups_any_seeds(groups)) goto done;
    FL_TRY_DONE(status, fl_run_columns_page(groups, NULL, 0, &table, error));
    fputs("\nOver seeds:\n", stream);
    status = fl_page_table_print(stream, &table, error);
done:
    fl_table_release(&table);
    fl_run_groups_destroy(groups);
    fl_run_set_destroy(set);
    return status;
}
