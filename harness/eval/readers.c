#include "harness/eval/readers.h"

#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/eval/hellaswag.h"
#include "harness/eval/reader_rows.h"
#include "harness/base/text_file.h"
#include "harness/eval/wikitext.h"

static fl_status choices_row(const fl_reader_row *row, fl_error *error) {
    FL_TRY(fl_reader_piece(row, 0, "question", error));
    FL_TRY(fl_reader_choices(row, "choices", error));
    return fl_reader_gold(row, "answer", 0, error);
}

fl_status fl_read_choices(const fl_reader_request *request, fl_task_data *set, fl_error *error) {
    return fl_reader_read_subject_rows(request, set, choices_row, error);
}

/* "Please choose ...: STEM\n\nAnswer1: ... Answer2: ...\n\nAnswer format: ...", answer "answer2". */
static fl_status instruction_row(const fl_reader_row *row, fl_error *error) {
    const char *text = NULL, *answer = NULL;
    FL_TRY(fl_json_rows_text(row->rows, row->row, "instruction", &text, error));
    FL_TRY(fl_json_rows_text(row->rows, row->row, "answer", &answer, error));
    static const char question_mark[] = "question: ", answers_mark[] = "\n\nAnswer1: ",
                      format_mark[] = "\n\nAnswer format:";
    const char *stem = strstr(text, question_mark), *answers = strstr(text, answers_mark);
    const char *end = answers == NULL ? NULL : strstr(answers + 1, format_mark);
    if (stem == NULL || end == NULL || stem > answers) {
        return fl_json_rows_fault(row->rows, row->row, error,
                                  "\"instruction\" has not the form \"... question: ... Answer1: ...\"");
    }
    stem += sizeof question_mark - 1;
    FL_TRY(fl_task_document_set_piece(row->document, 0, stem, (size_t)(answers - stem), error));
    const char *start = answers + sizeof answers_mark - 1;
    for (int number = 2; start != NULL; number++) {
        char mark[24];
        snprintf(mark, sizeof mark, " Answer%d: ", number);
        const char *next = strstr(start, mark);
        if (next != NULL && next >= end) next = NULL;
        FL_TRY(fl_task_document_add_choice(row->document, start,
                                           (size_t)((next == NULL ? end : next) - start), error));
        start = next == NULL ? NULL : next + strlen(mark);
    }
    int chosen = 0, used = 0;
    const bool known = sscanf(answer, "answer%d%n", &chosen, &used) == 1 && answer[used] == '\0';
    return fl_reader_set_gold(row->set, row->document, known ? chosen - 1L : -1L, answer, error);
}

/* gold = where answerKey stands among the labels, which are letters or digits. */
static fl_status labelled_gold(const fl_reader_row *row, const cJSON *const *labels, fl_error *error) {
    const cJSON *key = fl_json_rows_member(row->rows, row->row, "answerKey");
    if (!cJSON_IsString(key)) return fl_reader_set_gold(row->set, row->document, -1, NULL, error);
    long gold = -1;
    for (size_t i = 0; gold < 0 && i < row->document->choices; i++) {
        if (cJSON_IsString(labels[i]) && strcmp(labels[i]->valuestring, key->valuestring) == 0)
            gold = (long)i;
    }
    return fl_reader_set_gold(row->set, row->document, gold, key->valuestring, error);
}

static fl_status add_labelled(const fl_reader_row *row, const cJSON *text, const cJSON *label,
                              const cJSON **labels, fl_error *error) {
    if (!cJSON_IsString(text) || !cJSON_IsString(label)) {
        return fl_json_rows_fault(row->rows, row->row, error,
                                  "a choice needs \"text\" and \"label\" strings");
    }
    FL_TRY(fl_task_document_add_choice(row->document, text->valuestring, strlen(text->valuestring), error));
    labels[row->document->choices - 1] = label;
    return FL_OK;
}

static fl_status upstream_arc_row(const fl_reader_row *row, fl_error *error) {
    const cJSON *labels[FL_DOCUMENT_MAX_CHOICES], *choices = NULL;
    FL_TRY(fl_reader_piece(row, 0, "question.stem", error));
    FL_TRY(fl_json_rows_array(row->rows, row->row, "question.choices", &choices, error));
    for (const cJSON *choice = choices->child; choice != NULL; choice = choice->next) {
        FL_TRY(add_labelled(row, cJSON_GetObjectItemCaseSensitive(choice, "text"),
                            cJSON_GetObjectItemCaseSensitive(choice, "label"), labels, error));
    }
    return labelled_gold(row, labels, error);
}

static fl_status exported_arc_row(const fl_reader_row *row, fl_error *error) {
    const cJSON *labels[FL_DOCUMENT_MAX_CHOICES], *texts = NULL, *names = NULL;
    const bool stem = fl_json_rows_member(row->rows, row->row, "question_stem") != NULL;
    FL_TRY(fl_reader_piece(row, 0, stem ? "question_stem" : "question", error));
    FL_TRY(fl_json_rows_array(row->rows, row->row, "choices.text", &texts, error));
    FL_TRY(fl_json_rows_array(row->rows, row->row, "choices.label", &names, error));
    const cJSON *name = names->child;
    for (const cJSON *text = texts->child; text != NULL; text = text->next) {
        FL_TRY(add_labelled(row, text, name, labels, error));
        name = name == NULL ? NULL : name->next;
    }
    return labelled_gold(row, labels, error);
}

static fl_status arc_row(const fl_reader_row *row, fl_error *error) {
    if (fl_json_rows_member(row->rows, row->row, "instruction") != NULL) {
        FL_TRY(instruction_row(row, error));
    } else if (cJSON_IsObject(fl_json_rows_member(row->rows, row->row, "question"))) {
        FL_TRY(upstream_arc_row(row, error));
    } else {
        FL_TRY(exported_arc_row(row, error));
    }
    if (row->document->choices >= 2) return FL_OK;
    return fl_json_rows_fault(row->rows, row->row, error, "fewer than two choices");
}

fl_status fl_read_arc(const fl_reader_request *request, fl_task_data *set, fl_error *error) {
    return fl_reader_read_rows(request, set, arc_row, error);
}

static fl_status piqa_row(const fl_reader_row *row, fl_error *error) {
    FL_TRY(fl_reader_piece(row, 0, "goal", error));
    FL_TRY(fl_reader_choice(row, "sol1", error));
    FL_TRY(fl_reader_choice(row, "sol2", error));
    if (fl_json_rows_member(row->rows, row->row, "label") == NULL) return FL_OK;
    return fl_reader_gold(row, "label", 0, error);
}

static fl_status set_labels(const char *labels, const char *path, fl_task_data *set,
                            fl_task_document_list *list, fl_error *error) {
    size_t lines = 0;
    for (const char *at = labels; *at != '\0'; lines++) {
        const size_t length = strcspn(at, "\r\n");
        if (lines < list->count) {
            char answer[16];
            snprintf(answer, sizeof answer, "%.*s", (int)length, at);
            const long gold = length == 1 && at[0] >= '0' && at[0] <= '9' ? at[0] - '0' : -1;
            FL_TRY(fl_reader_set_gold(set, &list->items[lines], gold, answer, error));
        }
        at += length;
        at += *at == '\r';
        at += *at == '\n';
    }
    if (lines == list->count) return FL_OK;
    return fl_error_set(error, FL_ERROR_FORMAT, "%s: %zu labels for the %zu rows of %s", path, lines,
                        list->count, list->items[0].file);
}

/* Labels of `list` from NAME-labels.lst beside NAME.jsonl: one digit a line. */
static fl_status piqa_labels(fl_task_data *set, fl_task_document_list *list, fl_error *error) {
    const char *path = list->items[0].file, *kept = NULL;
    const size_t length = strlen(path);
    const bool named = length > 6 && strcmp(path + length - 6, ".jsonl") == 0;
    fl_text_buffer labels_path = {0};
    char *labels = NULL;
    size_t bytes = 0;
    fl_status status;
    FL_TRY_DONE(status, fl_text_buffer_add(&labels_path, path, named ? length - 6 : length, error));
    FL_TRY_DONE(status, fl_text_buffer_add_string(&labels_path, "-labels.lst", error));
    FL_TRY_DONE(status, fl_text_file_read(labels_path.text, &labels, &bytes, error));
    FL_TRY_DONE(status, fl_text_file_check(labels_path.text, labels, bytes, error));
    FL_TRY_DONE(status, fl_task_data_add_file(set, labels_path.text, &kept, error));
    status = set_labels(labels, labels_path.text, set, list, error);
done:
    fl_text_buffer_release(&labels_path);
    fl_memory_free(labels);
    return status;
}

static bool lacks_gold(const fl_task_document_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i].gold != FL_GOLD_MISSING) return false;
    }
    return list->count > 0;
}

fl_status fl_read_piqa(const fl_reader_request *request, fl_task_data *set, fl_error *error) {
    FL_TRY(fl_reader_read_rows(request, set, piqa_row, error));
    if (lacks_gold(&set->documents)) FL_TRY(piqa_labels(set, &set->documents, error));
    if (lacks_gold(&set->pool)) FL_TRY(piqa_labels(set, &set->pool, error));
    return FL_OK;
}

static fl_status sentence_row(const fl_reader_row *row, fl_error *error) {
    static const char *const options[2] = {"option1", "option2"};
    const char *sentence = NULL;
    FL_TRY(fl_json_rows_text(row->rows, row->row, "sentence", &sentence, error));
    const char *blank = strchr(sentence, '_');
    if (blank == NULL) return fl_json_rows_fault(row->rows, row->row, error, "\"sentence\" has no \"_\"");
    FL_TRY(fl_task_document_set_piece(row->document, 0, blank + 1, strlen(blank + 1), error));
    for (int i = 0; i < 2; i++) {
        const char *option = NULL;
        FL_TRY(fl_json_rows_text(row->rows, row->row, options[i], &option, error));
        fl_text_buffer context = {0};
        fl_status status = fl_text_buffer_add(&context, sentence, (size_t)(blank - sentence), error);
        if (status == FL_OK) status = fl_text_buffer_add_string(&context, option, error);
        if (status == FL_OK)
            status = fl_task_document_add_choice(row->document, context.text, context.bytes, error);
        fl_text_buffer_release(&context);
        FL_TRY(status);
    }
    return fl_reader_gold(row, "answer", 1, error);
}

static fl_status winogrande_row(const fl_reader_row *row, fl_error *error) {
    if (fl_json_rows_member(row->rows, row->row, "sentence") != NULL) return sentence_row(row, error);
    FL_TRY(fl_reader_piece(row, 0, "continuation", error));
    FL_TRY(fl_reader_choices(row, "context_options", error));
    return fl_reader_gold(row, "gold", 0, error);
}

fl_status fl_read_winogrande(const fl_reader_request *request, fl_task_data *set, fl_error *error) {
    return fl_reader_read_rows(request, set, winogrande_row, error);
}

static fl_status hellaswag_row(const fl_reader_row *row, fl_error *error) {
    const char *label = NULL, *first = NULL, *second = NULL;
    FL_TRY(fl_json_rows_text(row->rows, row->row, "activity_label", &label, error));
    FL_TRY(fl_json_rows_text(row->rows, row->row, "ctx_a", &first, error));
    FL_TRY(fl_json_rows_text(row->rows, row->row, "ctx_b", &second, error));
    fl_text_buffer text = {0};
    fl_status status;
    FL_TRY_DONE(status, fl_hellaswag_query(label, first, second, &text, error));
    FL_TRY_DONE(status, fl_task_document_set_piece(row->document, 0, text.text, text.bytes, error));
    const cJSON *endings = NULL;
    FL_TRY_DONE(status, fl_json_rows_array(row->rows, row->row, "endings", &endings, error));
    for (const cJSON *ending = endings->child; ending != NULL; ending = ending->next) {
        if (!cJSON_IsString(ending)) {
            status = fl_json_rows_fault(row->rows, row->row, error,
                                        "\"endings\" holds something that is not a string");
            goto done;
        }
        fl_text_buffer_clear(&text);
        FL_TRY_DONE(status,
                    fl_hellaswag_preprocess(ending->valuestring, strlen(ending->valuestring), &text, error));
        FL_TRY_DONE(status, fl_task_document_add_choice(row->document, text.text, text.bytes, error));
    }
    status = fl_reader_gold(row, "label", 0, error);
done:
    fl_text_buffer_release(&text);
    return status;
}

fl_status fl_read_hellaswag(const fl_reader_request *request, fl_task_data *set, fl_error *error) {
    return fl_reader_read_rows(request, set, hellaswag_row, error);
}

static fl_status lambada_row(const fl_reader_row *row, fl_error *error) {
    row->document->gold = 0;
    if (fl_json_rows_member(row->rows, row->row, "text") == NULL) {
        FL_TRY(fl_reader_piece(row, 0, "context", error));
        return fl_reader_choice(row, "continuation", error);
    }
    const char *text = NULL;
    FL_TRY(fl_json_rows_text(row->rows, row->row, "text", &text, error));
    const char *space = strrchr(text, ' '); /* the space character alone separates words here */
    if (space == NULL)
        return fl_json_rows_fault(row->rows, row->row, error, "\"text\" has no space before a last word");
    FL_TRY(fl_task_document_set_piece(row->document, 0, text, (size_t)(space - text), error));
    return fl_task_document_add_choice(row->document, space + 1, strlen(space + 1), error);
}

fl_status fl_read_lambada(const fl_reader_request *request, fl_task_data *set, fl_error *error) {
    return fl_reader_read_rows(request, set, lambada_row, error);
}

static fl_status page_row(const fl_reader_row *row, fl_error *error) {
    row->document->gold = 0;
    return fl_reader_piece(row, 0, "page", error);
}

/* Spans of a text file become documents. */
static fl_status add_spans(fl_task_data *set, const char *path, const char *text, const fl_text_span *spans,
                           size_t count, fl_error *error) {
    size_t subject = 0;
    const char *kept = NULL;
    FL_TRY(fl_task_data_add_file(set, path, &kept, error));
    FL_TRY(fl_task_data_add_subject(set, "", &subject, error));
    for (size_t i = 0; i < count; i++) {
        fl_task_document *document = NULL;
        FL_TRY(fl_task_document_list_add(&set->documents, &document, error));
        document->index = i;
        document->subject = subject;
        document->file = kept;
        document->line = spans[i].line;
        document->gold = 0;
        FL_TRY(fl_task_document_set_piece(document, 0, text + spans[i].start, spans[i].bytes, error));
    }
    return FL_OK;
}

static fl_status read_text_file(const fl_reader_request *request, fl_task_data *set, bool pages,
                                fl_error *error) {
    char *path = NULL, *text = NULL;
    fl_text_span *spans = NULL;
    size_t bytes = 0, count = 0;
    FL_TRY(fl_reader_resolve(request, &path, error));
    fl_status status;
    FL_TRY_DONE(status, fl_text_file_read(path, &text, &bytes, error));
    FL_TRY_DONE(status, fl_text_file_check(path, text, bytes, error));
    const fl_text_span whole = {.start = 0, .bytes = bytes, .line = 1};
    if (pages) FL_TRY_DONE(status, fl_wikitext_pages(text, bytes, &spans, &count, error));
    status = add_spans(set, path, text, pages ? spans : &whole, pages ? count : 1, error);
done:
    fl_memory_free(path);
    fl_memory_free(text);
    fl_memory_free(spans);
    return status;
}

fl_status fl_read_wikitext(const fl_reader_request *request, fl_task_data *set, fl_error *error) {
    const char *dot = strrchr(request->path, '.');
    if (dot != NULL && strcmp(dot, ".jsonl") == 0) return fl_reader_read_rows(request, set, page_row, error);
    return read_text_file(request, set, true, error);
}

fl_status fl_read_text(const fl_reader_request *request, fl_task_data *set, fl_error *error) {
    return read_text_file(request, set, false, error);
}
