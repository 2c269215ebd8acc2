#include "harness/eval/task_data.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/base/text_file.h"

enum { FIRST_CAPACITY = 16, MOST_NOTES = 100, NOTE_BYTES = 512 };

/* Makes room for one more element. */
#define GROW(array, count, capacity, error)                                                                  \
    ((count) < (capacity) ? FL_OK : grow((void **)(array), &(capacity), sizeof **(array), (error)))

static fl_status grow(void **array, size_t *capacity, size_t size, fl_error *error) {
    const size_t larger = *capacity == 0 ? FIRST_CAPACITY : 2 * *capacity;
    FL_TRY(fl_memory_resize(array, *capacity, larger, size, error));
    *capacity = larger;
    return FL_OK;
}

static fl_status copy_text(char **out, const char *text, size_t bytes, fl_error *error) {
    FL_TRY(FL_ALLOCATE(out, bytes + 1, error));
    if (bytes > 0) memcpy(*out, text, bytes);
    return FL_OK;
}

static void release_list(fl_task_document_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        fl_task_document *document = &list->items[i];
        for (size_t p = 0; p < FL_DOCUMENT_PIECES; p++) fl_memory_free(document->piece[p]);
        for (size_t c = 0; c < document->choices; c++) fl_memory_free(document->choice[c]);
        fl_memory_free(document->choice);
        fl_memory_free(document->correct);
    }
    fl_memory_free(list->items);
}

static void release_texts(char **texts, size_t count) {
    for (size_t i = 0; i < count; i++) fl_memory_free(texts[i]);
    fl_memory_free(texts);
}

void fl_task_data_release(fl_task_data *set) {
    release_list(&set->documents);
    release_list(&set->pool);
    for (size_t i = 0; i < set->subject_count; i++) fl_memory_free(set->subjects[i].name);
    fl_memory_free(set->subjects);
    release_texts(set->files, set->file_count);
    release_texts(set->notes, set->note_count);
    *set = (fl_task_data){0};
}

fl_status fl_task_data_add_subject(fl_task_data *set, const char *name, size_t *subject, fl_error *error) {
    FL_TRY(GROW(&set->subjects, set->subject_count, set->subject_capacity, error));
    fl_task_subject *fresh = &set->subjects[set->subject_count];
    *fresh = (fl_task_subject){.first = set->documents.count, .shot_first = set->pool.count};
    FL_TRY(fl_memory_copy_string(&fresh->name, name, error));
    *subject = set->subject_count++;
    return FL_OK;
}

fl_status fl_task_data_add_file(fl_task_data *set, const char *path, const char **kept, fl_error *error) {
    FL_TRY(GROW(&set->files, set->file_count, set->file_capacity, error));
    FL_TRY(fl_memory_copy_string(&set->files[set->file_count], path, error));
    *kept = set->files[set->file_count++];
    return FL_OK;
}

fl_status fl_task_data_note(fl_task_data *set, fl_error *error, const char *format, ...) {
    if (set->note_count >= MOST_NOTES) return FL_OK;
    char text[NOTE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (set->note_count == MOST_NOTES - 1)
        snprintf(text, sizeof text, "there are more findings than are kept");
    FL_TRY(GROW(&set->notes, set->note_count, set->note_capacity, error));
    FL_TRY(fl_memory_copy_string(&set->notes[set->note_count], text, error));
    set->note_count++;
    return FL_OK;
}

static fl_status hash_files(fl_task_data *set, fl_hash_stream *stream, fl_error *error) {
    for (size_t i = 0; i < set->file_count; i++) {
        char *text = NULL;
        size_t bytes = 0;
        FL_TRY(fl_text_file_read(set->files[i], &text, &bytes, error));
        fl_hash_stream_add(stream, &bytes, sizeof bytes);
        fl_hash_stream_add(stream, text, bytes);
        fl_memory_free(text);
    }
    set->hash = fl_hash_stream_value(stream);
    return FL_OK;
}

fl_status fl_task_data_finish(fl_task_data *set, fl_error *error) {
    for (size_t i = 0; i < set->subject_count; i++) {
        fl_task_subject *subject = &set->subjects[i];
        const bool last = i + 1 == set->subject_count;
        subject->count = (last ? set->documents.count : subject[1].first) - subject->first;
        subject->shot_count = (last ? set->pool.count : subject[1].shot_first) - subject->shot_first;
    }
    fl_hash_stream *stream = NULL;
    FL_TRY(fl_hash_stream_create(&stream, error));
    fl_status status = hash_files(set, stream, error);
    fl_hash_stream_destroy(stream);
    return status;
}

fl_status fl_task_document_list_add(fl_task_document_list *list, fl_task_document **document,
                                    fl_error *error) {
    FL_TRY(GROW(&list->items, list->count, list->capacity, error));
    *document = &list->items[list->count++];
    **document = (fl_task_document){.gold = FL_GOLD_MISSING};
    return FL_OK;
}

fl_status fl_task_document_set_piece(fl_task_document *document, size_t piece, const char *text, size_t bytes,
                                     fl_error *error) {
    fl_memory_free(document->piece[piece]);
    document->piece[piece] = NULL;
    return copy_text(&document->piece[piece], text, bytes, error);
}

fl_status fl_task_document_add_choice(fl_task_document *document, const char *text, size_t bytes,
                                      fl_error *error) {
    if (document->choices == FL_DOCUMENT_MAX_CHOICES) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s:%zu: more than %d choices", document->file,
                            document->line, FL_DOCUMENT_MAX_CHOICES);
    }
    if (document->choice == NULL) FL_TRY(FL_ALLOCATE(&document->choice, FL_DOCUMENT_MAX_CHOICES, error));
    FL_TRY(copy_text(&document->choice[document->choices], text, bytes, error));
    document->choices++;
    return FL_OK;
}

static void hash_text(fl_hash_stream *stream, const char *text) {
    const size_t bytes = text == NULL ? 0 : strlen(text) + 1;
    fl_hash_stream_add(stream, &bytes, sizeof bytes);
    if (bytes > 0) fl_hash_stream_add(stream, text, bytes);
}

fl_status fl_task_document_hash(const fl_task_document *document, fl_hash *out, fl_error *error) {
    fl_hash_stream *stream = NULL;
    FL_TRY(fl_hash_stream_create(&stream, error));
    for (size_t p = 0; p < FL_DOCUMENT_PIECES; p++) hash_text(stream, document->piece[p]);
    for (size_t c = 0; c < document->choices; c++) hash_text(stream, document->choice[c]);
    const int64_t gold = document->gold;
    fl_hash_stream_add(stream, &gold, sizeof gold);
    if (document->correct != NULL) fl_hash_stream_add(stream, document->correct, document->choices);
    *out = fl_hash_stream_value(stream);
    fl_hash_stream_destroy(stream);
    return FL_OK;
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

bool fl_task_document_equal(const fl_task_document *a, const fl_task_document *b) {
    if (a->choices != b->choices || a->gold != b->gold) return false;
    for (size_t p = 0; p < FL_DOCUMENT_PIECES; p++) {
        if (!same_text(a->piece[p], b->piece[p])) return false;
    }
    for (size_t c = 0; c < a->choices; c++) {
        if (!same_text(a->choice[c], b->choice[c])) return false;
    }
    return true;
}
