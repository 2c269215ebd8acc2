/* TruthfulQA's multiple-choice forms. */
#include <string.h>

#include "harness/base/memory.h"
#include "harness/eval/csv.h"
#include "harness/eval/reader_rows.h"
#include "harness/eval/readers.h"

static fl_status fill_gold(const fl_reader_row *row, const unsigned char *correct, fl_error *error) {
    long gold = -1;
    for (size_t i = 0; gold < 0 && i < row->document->choices; i++) {
        if (correct[i]) gold = (long)i;
    }
    return fl_reader_set_gold(row->set, row->document, gold, NULL, error);
}

static fl_status add_target(const fl_reader_row *row, const char *text, const cJSON *label, fl_error *error) {
    if (!cJSON_IsNumber(label) || (label->valuedouble != 0.0 && label->valuedouble != 1.0)) {
        return fl_json_rows_fault(row->rows, row->row, error, "a target's label is not 0 or 1");
    }
    FL_TRY(fl_task_document_add_choice(row->document, text, strlen(text), error));
    row->document->correct[row->document->choices - 1] = label->valuedouble == 1.0;
    return FL_OK;
}

static fl_status targets_row(const fl_reader_row *row, const char *member, fl_error *error) {
    FL_TRY(fl_reader_piece(row, 0, "question", error));
    FL_TRY(FL_ALLOCATE(&row->document->correct, FL_DOCUMENT_MAX_CHOICES, error));
    const cJSON *targets = fl_json_rows_member(row->rows, row->row, member);
    if (!cJSON_IsObject(targets))
        return fl_json_rows_fault(row->rows, row->row, error, "no object \"%s\"", member);
    const cJSON *choices = cJSON_GetObjectItemCaseSensitive(targets, "choices");
    const cJSON *labels = cJSON_GetObjectItemCaseSensitive(targets, "labels");
    if (cJSON_IsArray(choices) && cJSON_IsArray(labels)) {
        const cJSON *label = labels->child;
        for (const cJSON *choice = choices->child; choice != NULL; choice = choice->next) {
            if (!cJSON_IsString(choice)) {
                return fl_json_rows_fault(row->rows, row->row, error, "a choice of \"%s\" is not a string",
                                          member);
            }
            FL_TRY(add_target(row, choice->valuestring, label, error));
            label = label == NULL ? NULL : label->next;
        }
    } else {
        for (const cJSON *target = targets->child; target != NULL; target = target->next) {
            FL_TRY(add_target(row, target->string, target, error));
        }
    }
    return fill_gold(row, row->document->correct, error);
}

static fl_status mc1_row(const fl_reader_row *row, fl_error *error) {
    return targets_row(row, "mc1_targets", error);
}
static fl_status mc2_row(const fl_reader_row *row, fl_error *error) {
    return targets_row(row, "mc2_targets", error);
}

/* "a; b; c" -> choices, without blanks around and without empty ones. */
static fl_status add_list(fl_task_document *document, const char *list, unsigned char correct,
                          fl_error *error) {
    while (*list != '\0') {
        list += strspn(list, " ");
        size_t length = strcspn(list, ";");
        const char *next = list + length + (list[length] == ';');
        while (length > 0 && list[length - 1] == ' ') length--;
        if (length > 0) {
            FL_TRY(fl_task_document_add_choice(document, list, length, error));
            document->correct[document->choices - 1] = correct;
        }
        list = next;
    }
    return FL_OK;
}

enum { COLUMN_QUESTION, COLUMN_BEST, COLUMN_CORRECT, COLUMN_INCORRECT, COLUMNS };

static fl_status find_columns(const fl_csv_table *table, const char *path, size_t columns[COLUMNS],
                              fl_error *error) {
    static const char *const names[COLUMNS] = {"Question", "Best Answer", "Correct Answers",
                                               "Incorrect Answers"};
    for (int n = 0; n < COLUMNS; n++) {
        columns[n] = (size_t)-1;
        for (size_t c = 0; table->count > 0 && c < table->rows[0].cells; c++) {
            if (strcmp(table->rows[0].cell[c], names[n]) == 0) columns[n] = c;
        }
        if (columns[n] == (size_t)-1) {
            return fl_error_set(error, FL_ERROR_FORMAT, "%s:1: the header has no \"%s\"", path, names[n]);
        }
    }
    return FL_OK;
}

static fl_status add_csv_row(const fl_csv_row *row, const size_t columns[COLUMNS], bool all_correct,
                             fl_task_document *document, fl_error *error) {
    const char *question = row->cell[columns[COLUMN_QUESTION]], *best = row->cell[columns[COLUMN_BEST]];
    FL_TRY(FL_ALLOCATE(&document->correct, FL_DOCUMENT_MAX_CHOICES, error));
    FL_TRY(fl_task_document_set_piece(document, 0, question, strlen(question), error));
    if (all_correct) {
        FL_TRY(add_list(document, row->cell[columns[COLUMN_CORRECT]], 1, error));
    } else {
        FL_TRY(fl_task_document_add_choice(document, best, strlen(best), error));
        document->correct[0] = 1;
    }
    if (document->choices == 0) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s:%zu: no correct answer", document->file, row->line);
    }
    document->gold = 0;
    return add_list(document, row->cell[columns[COLUMN_INCORRECT]], 0, error);
}

static fl_status add_csv_rows(const fl_csv_table *table, const char *file, bool all_correct,
                              fl_task_data *set, fl_error *error) {
    size_t columns[COLUMNS], subject = 0;
    FL_TRY(find_columns(table, file, columns, error));
    FL_TRY(fl_task_data_add_subject(set, "", &subject, error));
    for (size_t i = 1; i < table->count; i++) {
        const fl_csv_row *row = &table->rows[i];
        if (row->cells != table->rows[0].cells) {
            return fl_error_set(error, FL_ERROR_FORMAT, "%s:%zu: %zu cells where the header has %zu", file,
                                row->line, row->cells, table->rows[0].cells);
        }
        fl_task_document *document = NULL;
        FL_TRY(fl_task_document_list_add(&set->documents, &document, error));
        document->index = i - 1;
        document->subject = subject;
        document->file = file;
        document->line = row->line;
        FL_TRY(add_csv_row(row, columns, all_correct, document, error));
    }
    return FL_OK;
}

static fl_status read_csv(const char *path, bool all_correct, fl_task_data *set, fl_error *error) {
    const char *kept = NULL;
    fl_csv_table *table = NULL;
    FL_TRY(fl_task_data_add_file(set, path, &kept, error));
    FL_TRY(fl_csv_read(path, &table, error));
    fl_status status = fl_reader_note_mark(set, path, table->byte_order_mark, error);
    if (status == FL_OK) {
        status = fl_task_data_note(
            set, error, "%s: choices made from the question file; the official lists are in mc_task.json",
            path);
    }
    if (status == FL_OK) status = add_csv_rows(table, kept, all_correct, set, error);
    fl_csv_destroy(table);
    return status;
}

static fl_status read_truthfulqa(const fl_reader_request *request, fl_task_data *set, bool all_correct,
                                 fl_error *error) {
    char *path = NULL;
    FL_TRY(fl_reader_resolve(request, &path, error));
    const char *dot = strrchr(path, '.');
    const bool csv = dot != NULL && strcmp(dot, ".csv") == 0;
    fl_status status = csv ? read_csv(path, all_correct, set, error)
                           : fl_reader_read_rows(request, set, all_correct ? mc2_row : mc1_row, error);
    fl_memory_free(path);
    return status;
}

fl_status fl_read_truthfulqa_mc1(const fl_reader_request *request, fl_task_data *set, fl_error *error) {
    return read_truthfulqa(request, set, false, error);
}

fl_status fl_read_truthfulqa_mc2(const fl_reader_request *request, fl_task_data *set, fl_error *error) {
    return read_truthfulqa(request, set, true, error);
}
