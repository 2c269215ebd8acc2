#include "harness/store/merge_notes.h"

#include <stdbool.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/store/sweep.h"

static const char other_code[] = "merge: the runs were not all made by the same code";

typedef struct notes {
    char **fingerprints; /* one a run */
    size_t runs;
    char **sources; /* of the first run */
    size_t source_count;
    char **warnings; /* of all, each once */
    size_t warning_count;
} notes;

static void release(notes *n) {
    fl_sweep_list_release(n->fingerprints, n->fingerprints != NULL ? n->runs : 0);
    fl_sweep_list_release(n->sources, n->source_count);
    fl_sweep_list_release(n->warnings, n->warning_count);
}

static fl_status add_warning(notes *n, const char *text, fl_error *error) {
    for (size_t i = 0; i < n->warning_count; i++) {
        if (strcmp(n->warnings[i], text) == 0) return FL_OK;
    }
    FL_TRY(FL_RESIZE(&n->warnings, n->warning_count, n->warning_count + 1, error));
    FL_TRY(fl_memory_copy_string(&n->warnings[n->warning_count], text, error));
    n->warning_count++;
    return FL_OK;
}

static fl_status add_warnings(notes *n, fl_run_reader *reader, fl_error *error) {
    char **texts = NULL;
    size_t count = 0;
    if (!fl_run_reader_has(reader, "/warnings")) return FL_OK;
    FL_TRY(fl_run_reader_texts(reader, "/warnings", &texts, &count, error));
    fl_status status = FL_OK;
    for (size_t i = 0; i < count && status == FL_OK; i++) status = add_warning(n, texts[i], error);
    fl_sweep_list_release(texts, count);
    return status;
}

static fl_status read_run(notes *n, size_t run, fl_run_reader *reader, fl_error *error) {
    if (fl_run_reader_text(reader, "/provenance/fingerprint", &n->fingerprints[run], NULL) != FL_OK)
        FL_TRY(fl_memory_copy_string(&n->fingerprints[run], "", error));
    if (run == 0 && fl_run_reader_has(reader, "/provenance/sources"))
        FL_TRY(fl_run_reader_texts(reader, "/provenance/sources", &n->sources, &n->source_count, error));
    return add_warnings(n, reader, error);
}

static fl_status read_runs(notes *n, const char *const *paths, fl_error *error) {
    FL_TRY(FL_ALLOCATE(&n->fingerprints, n->runs, error));
    for (size_t i = 0; i < n->runs; i++) {
        fl_run_reader *reader = NULL;
        FL_TRY(fl_run_reader_open(paths[i], &reader, error));
        fl_status status = read_run(n, i, reader, error);
        fl_run_reader_close(reader);
        FL_TRY(status);
    }
    return FL_OK;
}

static bool are_of_one_code(const notes *n) {
    for (size_t i = 1; i < n->runs; i++) {
        if (strcmp(n->fingerprints[i], n->fingerprints[0]) != 0) return false;
    }
    return true;
}

static fl_status write_code(const notes *n, fl_run_file *file, fl_error *error) {
    if (n->fingerprints[0][0] == '\0' || n->sources == NULL) return FL_OK;
    FL_TRY(fl_run_file_write_text(file, "/provenance/fingerprint", n->fingerprints[0],
                                  "XXH3-128 of /provenance/sources, the same in all runs", error));
    return fl_run_file_write_texts(
        file, "/provenance/sources", n->source_count, (const char *const *)n->sources,
        "sources that the numbers of all runs depend on, with the first 16 digits of "
        "their SHA-256",
        error);
}

static fl_status write(notes *n, fl_run_file *file, fl_error *error) {
    FL_TRY(fl_run_file_write_texts(file, "/merged/fingerprint", n->runs, (const char *const *)n->fingerprints,
                                   "code of each run (/provenance/fingerprint); empty: the file names none",
                                   error));
    if (are_of_one_code(n))
        FL_TRY(write_code(n, file, error));
    else
        FL_TRY(add_warning(n, other_code, error));
    if (n->warning_count == 0) return FL_OK;
    return fl_run_file_write_texts(file, "/warnings", n->warning_count, (const char *const *)n->warnings,
                                   "what was measured and can hardly be meant, of any run", error);
}

fl_status fl_merge_notes_write(const char *const *paths, size_t count, fl_run_file *file, fl_error *error) {
    notes n = {.runs = count};
    fl_status status = read_runs(&n, paths, error);
    if (status == FL_OK) status = write(&n, file, error);
    release(&n);
    return status;
}
