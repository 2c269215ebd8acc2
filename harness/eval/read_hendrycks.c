/* MMLU in the layout of its authors. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "harness/base/memory.h"
#include "harness/eval/csv.h"
#include "harness/eval/reader_rows.h"
#include "harness/eval/readers.h"
#include "harness/eval/text_buffer.h"
#include "harness/base/text_file.h"

enum { COLUMNS = 6 };

typedef struct subject_names {
    size_t count;
    char **names;
} subject_names;

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void release_names(subject_names *names) {
    for (size_t i = 0; i < names->count; i++) fl_memory_free(names->names[i]);
    fl_memory_free(names->names);
}

/* "x_test.csv" with split "test" -> "x". */
static fl_status add_name(subject_names *names, const char *file, const char *split, fl_error *error) {
    char suffix[64];
    snprintf(suffix, sizeof suffix, "_%s.csv", split);
    const size_t length = strlen(file), ending = strlen(suffix);
    if (length <= ending || strcmp(file + length - ending, suffix) != 0) return FL_OK;
    FL_TRY(FL_RESIZE(&names->names, names->count, names->count + 1, error));
    FL_TRY(fl_memory_copy_string(&names->names[names->count], file, error));
    names->names[names->count++][length - ending] = '\0';
    return FL_OK;
}

static fl_status list_subjects(const char *folder, const char *split, subject_names *names, fl_error *error) {
    DIR *entries = opendir(folder);
    if (entries == NULL)
        return fl_error_set(error, FL_ERROR_IO, "%s: cannot open: %s", folder, strerror(errno));
    fl_status status = FL_OK;
    const struct dirent *entry;
    while (status == FL_OK && (entry = readdir(entries)) != NULL)
        status = add_name(names, entry->d_name, split, error);
    closedir(entries);
    FL_TRY(status);
    if (names->count == 0) {
        return fl_error_set(error, FL_ERROR_IO, "%s: holds no file named <subject>_%s.csv", folder, split);
    }
    qsort(names->names, names->count, sizeof *names->names, compare_names);
    return FL_OK;
}

static bool is_header(const fl_csv_row *row) {
    return row->cells == COLUMNS && strcasecmp(row->cell[0], "question") == 0 &&
           strcasecmp(row->cell[5], "answer") == 0;
}

static long letter_index(const char *answer) {
    if (answer[0] == '\0' || answer[1] != '\0') return -1;
    if (answer[0] >= '0' && answer[0] <= '3') return answer[0] - '0';
    return answer[0] >= 'A' && answer[0] <= 'D' ? answer[0] - 'A' : -1;
}

static fl_status add_row(const fl_csv_row *row, const char *file, size_t subject, size_t index,
                         fl_task_data *set, fl_task_document_list *list, fl_error *error) {
    if (row->cells != COLUMNS) {
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "%s:%zu: %zu cells instead of %d (question, four choices, answer)", file,
                            row->line, row->cells, COLUMNS);
    }
    fl_task_document *document = NULL;
    FL_TRY(fl_task_document_list_add(list, &document, error));
    document->index = index;
    document->subject = subject;
    document->file = file;
    document->line = row->line;
    FL_TRY(fl_task_document_set_piece(document, 0, row->cell[0], strlen(row->cell[0]), error));
    for (int i = 1; i < COLUMNS - 1; i++) {
        FL_TRY(fl_task_document_add_choice(document, row->cell[i], strlen(row->cell[i]), error));
    }
    const char *answer = row->cell[COLUMNS - 1];
    return fl_reader_set_gold(set, document, letter_index(answer), answer[0] == '\0' ? NULL : answer, error);
}

static fl_status read_file(const char *path, size_t subject, fl_task_data *set, fl_task_document_list *list,
                           fl_error *error) {
    const char *kept = NULL;
    fl_csv_table *table = NULL;
    FL_TRY(fl_task_data_add_file(set, path, &kept, error));
    FL_TRY(fl_csv_read(path, &table, error));
    fl_status status = fl_reader_note_mark(set, path, table->byte_order_mark, error);
    const size_t first = table->count > 0 && is_header(&table->rows[0]) ? 1 : 0;
    for (size_t i = first; status == FL_OK && i < table->count; i++) {
        status = add_row(&table->rows[i], kept, subject, i - first, set, list, error);
    }
    fl_csv_destroy(table);
    return status;
}

static fl_status read_split(const char *folder, const char *name, const char *split, size_t subject,
                            fl_task_data *set, fl_task_document_list *list, fl_error *error) {
    fl_text_buffer path = {0};
    fl_status status = FL_TEXT_ADD(&path, error, folder, "/", split, "/", name, "_", split, ".csv");
    if (status == FL_OK) status = read_file(path.text, subject, set, list, error);
    fl_text_buffer_release(&path);
    return status;
}

static fl_status read_subjects(const fl_reader_request *request, const char *folder,
                               const subject_names *names, fl_task_data *set, fl_error *error) {
    bool found = false;
    for (size_t i = 0; i < names->count; i++) {
        const char *name = names->names[i];
        if (request->subject != NULL && strcmp(request->subject, name) != 0) continue;
        found = true;
        size_t subject = 0;
        FL_TRY(fl_task_data_add_subject(set, name, &subject, error));
        FL_TRY(read_split(folder, name, request->split, subject, set, &set->documents, error));
        if (request->needs_shots) FL_TRY(read_split(folder, name, "dev", subject, set, &set->pool, error));
    }
    if (found) return FL_OK;
    return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: no subject \"%s\"", folder, request->subject);
}

static fl_status mmlu_row(const fl_reader_row *row, fl_error *error) {
    FL_TRY(fl_reader_piece(row, 0, "question", error));
    FL_TRY(fl_reader_choices(row, "choices", error));
    return fl_reader_gold(row, "answer", 0, error);
}

static fl_status read_folder(const fl_reader_request *request, const char *folder, fl_task_data *set,
                             fl_error *error) {
    char *split_folder = NULL;
    subject_names names = {0};
    FL_TRY(fl_path_join(folder, request->split, &split_folder, error));
    fl_status status = list_subjects(split_folder, request->split, &names, error);
    if (status == FL_OK) status = read_subjects(request, folder, &names, set, error);
    release_names(&names);
    fl_memory_free(split_folder);
    return status;
}

fl_status fl_read_hendrycks(const fl_reader_request *request, fl_task_data *set, fl_error *error) {
    if (!fl_path_is_folder(request->path)) return fl_reader_read_subject_rows(request, set, mmlu_row, error);
    char *nested = NULL;
    FL_TRY(fl_path_join(request->path, "data", &nested, error));
    fl_status status = read_folder(request, fl_path_is_folder(nested) ? nested : request->path, set, error);
    fl_memory_free(nested);
    return status;
}
