#include "harness/cli/sweep_folder.h"

#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/store/folder.h"
#include "harness/store/journal.h"
#include "harness/store/run_file.h"
#include "harness/store/sweep.h"

enum { LISTED_BYTES = 1024 };

typedef struct sweep_ids {
    char **done, **begun;
    size_t done_count, begun_count;
} sweep_ids;

static void release(sweep_ids *ids) {
    fl_sweep_list_release(ids->done, ids->done_count);
    fl_sweep_list_release(ids->begun, ids->begun_count);
}

static fl_status list(const char *path, sweep_ids *out, fl_error *error) {
    *out = (sweep_ids){0};
    FL_TRY(fl_sweep_list_done(path, &out->done, &out->done_count, error));
    fl_status status = fl_sweep_list_unfinished(path, &out->begun, &out->begun_count, error);
    if (status != FL_OK) fl_sweep_list_release(out->done, out->done_count);
    return status;
}

bool fl_sweep_folder_is_one(const char *path) {
    sweep_ids ids;
    if (list(path, &ids, NULL) != FL_OK) return false;
    bool any = ids.done_count + ids.begun_count > 0;
    release(&ids);
    return any;
}

static void print_done(const char *directory, const char *run_id) {
    char *path = NULL, *label = NULL, *status = NULL;
    fl_run_reader *reader = NULL;
    if (fl_folder_format(&path, NULL, "%s/%s.h5", directory, run_id) == FL_OK &&
        fl_run_reader_open(path, &reader, NULL) == FL_OK) {
        if (fl_run_reader_attribute_text(reader, "/", "label", &label, NULL) != FL_OK) label = NULL;
        if (fl_run_reader_attribute_text(reader, "/", "status", &status, NULL) != FL_OK) status = NULL;
        fl_run_reader_close(reader);
    }
    printf("%-12s  %-8s  %s\n", run_id, status != NULL ? status : "unreadable", label != NULL ? label : "");
    fl_memory_free(path);
    fl_memory_free(label);
    fl_memory_free(status);
}

static void print_note(const char *directory, const char *run_id, fl_sweep_state state) {
    fl_sweep_note note;
    fl_status status = state == FL_SWEEP_FAILED ? fl_sweep_read_failure(directory, run_id, &note, NULL)
                                                : fl_sweep_read_claim(directory, run_id, &note, NULL);
    if (status != FL_OK) return;
    if (note.message != NULL) printf("%14s%s\n", "", note.message);
    printf("%14s%s %s, process %.0f, %s\n", "", state == FL_SWEEP_FAILED ? "on" : "claimed by",
           note.host != NULL ? note.host : "an unknown machine", note.process,
           note.time != NULL ? note.time : "no date");
    fl_sweep_note_release(&note);
}

/* The events of the journal on one line; the label is in the last "begun". */
static void print_begun(const char *directory, const char *run_id) {
    fl_journal_lines *lines = NULL;
    fl_sweep_state state = FL_SWEEP_MISSING;
    const char *label = NULL;
    if (fl_journal_read(directory, run_id, &lines, NULL) != FL_OK) lines = NULL;
    if (fl_sweep_state_of(directory, run_id, 0, &state, NULL) != FL_OK) state = FL_SWEEP_MISSING;
    size_t count = lines != NULL ? fl_journal_line_count(lines) : 0;
    for (size_t i = 0; i < count; i++) {
        const char *found = fl_journal_text(lines, i, "label");
        if (found != NULL) label = found;
    }
    printf("%-12s  %-8s  %s\n", run_id, state == FL_SWEEP_MISSING ? "stopped" : fl_sweep_state_name(state),
           label != NULL ? label : "");
    if (state != FL_SWEEP_MISSING) print_note(directory, run_id, state);
    if (count > 0) printf("%14sjournal:", "");
    for (size_t i = 0; i < count; i++) {
        double seconds = 0;
        printf("%s %s", i > 0 ? "," : "", fl_journal_event(lines, i));
        if (fl_journal_number(lines, i, "seconds", &seconds)) printf(" (%.1f s)", seconds);
    }
    if (count > 0) printf("%s\n", fl_journal_was_torn(lines) ? ", cut off while writing" : "");
    fl_journal_lines_destroy(lines);
}

fl_status fl_sweep_folder_print(const char *path, fl_error *error) {
    sweep_ids ids;
    FL_TRY(list(path, &ids, error));
    for (size_t i = 0; i < ids.done_count; i++) print_done(path, ids.done[i]);
    for (size_t i = 0; i < ids.begun_count; i++) print_begun(path, ids.begun[i]);
    printf("\n%zu runs finished, %zu begun and not finished\n", ids.done_count, ids.begun_count);
    release(&ids);
    return FL_OK;
}

static fl_status refuse_unfinished(const char *path, const sweep_ids *ids, fl_error *error) {
    char names[LISTED_BYTES] = "";
    for (size_t i = 0; i < ids->begun_count; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", ids->begun[i]);
    }
    return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: %zu runs are begun and not finished: %s", path,
                        ids->begun_count, names);
}

fl_status fl_sweep_folder_files(const char *path, char ***paths, size_t *count, fl_error *error) {
    sweep_ids ids;
    char **made = NULL;
    FL_TRY(list(path, &ids, error));
    fl_status status = ids.begun_count > 0 ? refuse_unfinished(path, &ids, error) : FL_OK;
    if (status == FL_OK && ids.done_count == 0)
        status = fl_error_set(error, FL_ERROR_ARGUMENT, "%s: no run files in it", path);
    if (status == FL_OK) status = FL_ALLOCATE(&made, ids.done_count, error);
    for (size_t i = 0; i < ids.done_count && status == FL_OK; i++) {
        status = fl_folder_format(&made[i], error, "%s/%s.h5", path, ids.done[i]);
    }
    if (status == FL_OK) {
        *paths = made;
        *count = ids.done_count;
    } else {
        fl_sweep_list_release(made, made != NULL ? ids.done_count : 0);
    }
    release(&ids);
    return status;
}
