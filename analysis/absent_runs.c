#include "analysis/absent_runs.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/memory.h"
#include "harness/store/sweep.h"

enum { NAME_BYTES = 256, PATH_BYTES = 4096 };

fl_status fl_absent_runs_add(fl_absent_runs *runs, fl_absence absence, const char *name, const char *message,
                             fl_error *error) {
    FL_TRY(FL_RESIZE(&runs->items, runs->count, runs->count + 1, error));
    fl_absent_run *run = &runs->items[runs->count++];
    *run = (fl_absent_run){.absence = absence};
    FL_TRY(fl_memory_copy_string(&run->name, name, error));
    return fl_memory_copy_string(&run->message, message, error);
}

/* A cell whose failure is recorded has failed; another was begun. */
static fl_status add_cell(const char *folder, const char *run_id, fl_absent_runs *runs, fl_error *error) {
    fl_sweep_note note;
    if (fl_sweep_read_failure(folder, run_id, &note, NULL) != FL_OK)
        return fl_absent_runs_add(runs, FL_ABSENT_UNFINISHED, run_id, "", error);
    fl_status status =
        fl_absent_runs_add(runs, FL_ABSENT_FAILED, run_id, note.message != NULL ? note.message : "", error);
    fl_sweep_note_release(&note);
    return status;
}

static bool is_named(const fl_absent_runs *runs, const char *run_id) {
    for (size_t i = 0; i < runs->count; i++) {
        if (strcmp(runs->items[i].name, run_id) == 0) return true;
    }
    return false;
}

/* "<id>.h5.older": a run file whose successor was never finished, and is not being worked on. */
static fl_status add_left_aside(const char *folder, const char *name, fl_absent_runs *runs, fl_error *error) {
    static const char ending[] = ".h5.older";
    char run_id[NAME_BYTES], path[PATH_BYTES];
    size_t bytes = strlen(name), tail = sizeof ending - 1;
    if (bytes <= tail || bytes >= NAME_BYTES || strcmp(name + bytes - tail, ending) != 0) return FL_OK;
    snprintf(run_id, sizeof run_id, "%.*s", (int)(bytes - tail), name);
    int length = snprintf(path, sizeof path, "%s/%s.h5", folder, run_id);
    bool is_done = length < 0 || length >= PATH_BYTES || access(path, F_OK) == 0;
    if (is_done || is_named(runs, run_id)) return FL_OK;
    return fl_absent_runs_add(runs, FL_ABSENT_UNFINISHED, run_id, "its older run file was set aside", error);
}

static fl_status find_left_aside(const char *folder, fl_absent_runs *runs, fl_error *error) {
    DIR *directory = opendir(folder);
    if (directory == NULL) return fl_error_set(error, FL_ERROR_IO, "%s: %s", folder, strerror(errno));
    fl_status status = FL_OK;
    for (struct dirent *entry; status == FL_OK && (entry = readdir(directory)) != NULL;)
        status = add_left_aside(folder, entry->d_name, runs, error);
    closedir(directory);
    return status;
}

fl_status fl_absent_runs_find(const char *folder, fl_absent_runs *runs, fl_error *error) {
    char **ids = NULL;
    size_t count = 0;
    FL_TRY(fl_sweep_list_unfinished(folder, &ids, &count, error));
    fl_status status = FL_OK;
    for (size_t i = 0; i < count && status == FL_OK; i++) status = add_cell(folder, ids[i], runs, error);
    fl_sweep_list_release(ids, count);
    return status == FL_OK ? find_left_aside(folder, runs, error) : status;
}

size_t fl_absent_runs_count(const fl_absent_runs *runs, fl_absence absence) {
    size_t count = 0;
    for (size_t i = 0; i < runs->count; i++) count += runs->items[i].absence == absence;
    return count;
}

void fl_absent_runs_release(fl_absent_runs *runs) {
    for (size_t i = 0; i < runs->count; i++) {
        fl_memory_free(runs->items[i].name);
        fl_memory_free(runs->items[i].message);
    }
    fl_memory_free(runs->items);
    *runs = (fl_absent_runs){0};
}
