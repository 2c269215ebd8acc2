#include "harness/eval/reader_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/base/text_file.h"

fl_status fl_reader_resolve(const fl_reader_request *request, char **file, fl_error *error) {
    if (!fl_path_is_folder(request->path)) return fl_memory_copy_string(file, request->path, error);
    for (const char *const *name = request->file_names; name != NULL && *name != NULL; name++) {
        char *candidate = NULL;
        FL_TRY(fl_path_join(request->path, *name, &candidate, error));
        if (fl_path_is_file(candidate)) {
            *file = candidate;
            return FL_OK;
        }
        fl_memory_free(candidate);
    }
    const bool any = request->file_names != NULL && request->file_names[0] != NULL;
    return fl_error_set(error, FL_ERROR_IO, "%s: a folder without %s%s", request->path,
                        any ? request->file_names[0] : "a known file", any ? " or another known file" : "");
}

fl_status fl_reader_note_mark(fl_task_data *set, const char *path, bool mark, fl_error *error) {
    return mark ? fl_task_data_note(set, error, "%s:1: byte-order mark skipped", path) : FL_OK;
}

static const char *subject_of(const fl_json_rows *rows, size_t row) {
    const cJSON *subject = fl_json_rows_member(rows, row, "subject");
    return cJSON_IsString(subject) ? subject->valuestring : "";
}

typedef struct row_walk {
    const fl_json_rows *rows;
    const char *file;
    fl_task_data *set;
    fl_row_reader read;
} row_walk;

/* Rows of one subject (NULL: all) become documents of `list`. */
static fl_status walk_rows(const row_walk *walk, const char *subject_name, size_t subject,
                           fl_task_document_list *list, fl_error *error) {
    size_t index = 0;
    for (size_t i = 0; i < walk->rows->count; i++) {
        if (subject_name != NULL && strcmp(subject_of(walk->rows, i), subject_name) != 0) continue;
        fl_task_document *document = NULL;
        FL_TRY(fl_task_document_list_add(list, &document, error));
        document->index = index++;
        document->subject = subject;
        document->file = walk->file;
        document->line = walk->rows->rows[i].line;
        const fl_reader_row row = {.rows = walk->rows, .row = i, .set = walk->set, .document = document};
        FL_TRY(walk->read(&row, error));
    }
    return FL_OK;
}

static fl_status open_rows(const char *path, fl_task_data *set, fl_row_reader read, fl_json_rows **rows,
                           row_walk *walk, fl_error *error) {
    const char *kept = NULL;
    FL_TRY(fl_task_data_add_file(set, path, &kept, error));
    FL_TRY(fl_json_rows_read(path, rows, error));
    *walk = (row_walk){.rows = *rows, .file = kept, .set = set, .read = read};
    return fl_reader_note_mark(set, path, (*rows)->byte_order_mark, error);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* names [*count]: the distinct subjects of the rows, sorted; the strings stay the rows'. */
static fl_status distinct_subjects(const fl_json_rows *rows, const char ***names, size_t *count,
                                   fl_error *error) {
    const char **all = NULL;
    FL_TRY(FL_ALLOCATE(&all, rows->count, error));
    for (size_t i = 0; i < rows->count; i++) all[i] = subject_of(rows, i);
    qsort(all, rows->count, sizeof *all, compare_names);
    size_t kept = 0;
    for (size_t i = 0; i < rows->count; i++) {
        if (kept == 0 || strcmp(all[kept - 1], all[i]) != 0) all[kept++] = all[i];
    }
    *names = all;
    *count = kept;
    return FL_OK;
}

static fl_status read_files(const fl_reader_request *request, const char *path, fl_task_data *set,
                            fl_row_reader read, bool by_subject, fl_error *error) {
    fl_json_rows *rows = NULL, *shot_rows = NULL;
    const char **names = NULL;
    size_t name_count = 1;
    row_walk walk, shot_walk;
    fl_status status;
    FL_TRY_DONE(status, open_rows(path, set, read, &rows, &walk, error));
    if (request->shots_path != NULL) {
        FL_TRY_DONE(status, open_rows(request->shots_path, set, read, &shot_rows, &shot_walk, error));
    }
    if (by_subject) FL_TRY_DONE(status, distinct_subjects(rows, &names, &name_count, error));
    for (size_t i = 0; i < name_count; i++) {
        const char *name = by_subject ? names[i] : NULL;
        if (request->subject != NULL && name != NULL && strcmp(request->subject, name) != 0) continue;
        size_t subject = 0;
        FL_TRY_DONE(status, fl_task_data_add_subject(set, name == NULL ? "" : name, &subject, error));
        FL_TRY_DONE(status, walk_rows(&walk, name, subject, &set->documents, error));
        if (shot_rows == NULL) continue;
        FL_TRY_DONE(status, walk_rows(&shot_walk, name, subject, &set->pool, error));
    }
done:
    fl_memory_free(names);
    fl_json_rows_destroy(rows);
    fl_json_rows_destroy(shot_rows);
    return status;
}

static fl_status resolve_and_read(const fl_reader_request *request, fl_task_data *set, fl_row_reader read,
                                  bool by_subject, fl_error *error) {
    char *path = NULL;
    FL_TRY(fl_reader_resolve(request, &path, error));
    fl_status status = read_files(request, path, set, read, by_subject, error);
    fl_memory_free(path);
    return status;
}

fl_status fl_reader_read_rows(const fl_reader_request *request, fl_task_data *set, fl_row_reader read,
                              fl_error *error) {
    return resolve_and_read(request, set, read, false, error);
}

fl_status fl_reader_read_subject_rows(const fl_reader_request *request, fl_task_data *set, fl_row_reader read,
                                      fl_error *error) {
    return resolve_and_read(request, set, read, true, error);
}

fl_status fl_reader_piece(const fl_reader_row *row, size_t piece, const char *member, fl_error *error) {
    const char *text = NULL;
    FL_TRY(fl_json_rows_text(row->rows, row->row, member, &text, error));
    return fl_task_document_set_piece(row->document, piece, text, strlen(text), error);
}

fl_status fl_reader_choice(const fl_reader_row *row, const char *member, fl_error *error) {
    const char *text = NULL;
    FL_TRY(fl_json_rows_text(row->rows, row->row, member, &text, error));
    return fl_task_document_add_choice(row->document, text, strlen(text), error);
}

fl_status fl_reader_choices(const fl_reader_row *row, const char *member, fl_error *error) {
    const cJSON *list = NULL;
    FL_TRY(fl_json_rows_array(row->rows, row->row, member, &list, error));
    for (const cJSON *choice = list->child; choice != NULL; choice = choice->next) {
        if (!cJSON_IsString(choice)) {
            return fl_json_rows_fault(row->rows, row->row, error,
                                      "\"%s\" holds something that is not a string", member);
        }
        FL_TRY(fl_task_document_add_choice(row->document, choice->valuestring, strlen(choice->valuestring),
                                           error));
    }
    if (row->document->choices >= 2) return FL_OK;
    return fl_json_rows_fault(row->rows, row->row, error, "\"%s\" has fewer than two choices", member);
}

fl_status fl_reader_set_gold(fl_task_data *set, fl_task_document *document, long gold, const char *answer,
                             fl_error *error) {
    if (gold >= 0 && (size_t)gold < document->choices) {
        document->gold = (int)gold;
        return FL_OK;
    }
    document->gold = FL_GOLD_MISSING;
    return fl_task_data_note(set, error, "%s:%zu: answer %s%s%s is none of the %zu choices; scored as wrong",
                             document->file, document->line, answer == NULL ? "" : "\"",
                             answer == NULL ? "missing:" : answer, answer == NULL ? "" : "\"",
                             document->choices);
}

static long answer_index(const char *text, int base) {
    if (text[0] >= '0' && text[0] <= '9') {
        char *end = NULL;
        const long value = strtol(text, &end, 10);
        return *end == '\0' ? value - base : -1;
    }
    if (text[0] == '\0' || text[1] != '\0') return -1;
    if (text[0] >= 'A' && text[0] <= 'Z') return text[0] - 'A';
    return text[0] >= 'a' && text[0] <= 'z' ? text[0] - 'a' : -1;
}

fl_status fl_reader_gold(const fl_reader_row *row, const char *member, int base, fl_error *error) {
    const cJSON *answer = fl_json_rows_member(row->rows, row->row, member);
    if (cJSON_IsString(answer)) {
        return fl_reader_set_gold(row->set, row->document, answer_index(answer->valuestring, base),
                                  answer->valuestring, error);
    }
    if (!cJSON_IsNumber(answer)) return fl_reader_set_gold(row->set, row->document, -1, NULL, error);
    const double value = answer->valuedouble - base;
    const bool usable = value >= 0 && value < FL_DOCUMENT_MAX_CHOICES && value == floor(value);
    char text[32];
    snprintf(text, sizeof text, "%g", answer->valuedouble);
    return fl_reader_set_gold(row->set, row->document, usable ? (long)value : -1, text, error);
}
