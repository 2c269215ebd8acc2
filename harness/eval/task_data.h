/* Documents: what a task file holds, in one form for every layout.
 *
 * A document is a few texts (pieces), its choices and the index of the right one. What the pieces mean is the
 * reader's and the template's business (prompt.h): questions           piece 0 = question, goal, stem or
 * query; choices = answer texts winogrande          piece 0 = the continuation; choices = the contexts
 *   lambada             piece 0 = the context; choice 0 = the word
 *   wikitext, text      piece 0 = the page or the text, as in the file
 * Strings are valid UTF-8 without NUL. */
#ifndef FL_EVAL_TASK_DATA_H
#define FL_EVAL_TASK_DATA_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/hash.h"
#include "harness/base/status.h"

enum { FL_DOCUMENT_PIECES = 2, FL_DOCUMENT_MAX_CHOICES = 64, FL_GOLD_MISSING = -100 };

typedef struct fl_task_document {
    size_t index;     /* in its subject's file, from 0 */
    size_t subject;   /* into set->subjects */
    const char *file; /* owned by the set */
    size_t line;      /* from 1 */
    char *piece[FL_DOCUMENT_PIECES];
    size_t choices;
    char **choice;
    unsigned char *correct; /* [choices] 1 = true (truthfulqa_mc2), or NULL */
    int gold;               /* index of the right choice, or FL_GOLD_MISSING: always scored wrong */
} fl_task_document;

typedef struct fl_task_document_list {
    size_t count, capacity;
    fl_task_document *items;
} fl_task_document_list;

typedef struct fl_task_subject {
    char *name;                    /* "abstract_algebra"; "" for tasks without subjects */
    size_t first, count;           /* its documents in set->documents */
    size_t shot_first, shot_count; /* its documents in set->pool */
} fl_task_subject;

/* Everything read for one task. `notes` are findings worth telling the user that are not errors: a byte-order
 * mark skipped, an answer missing. */
typedef struct fl_task_data {
    fl_task_document_list documents; /* the evaluated split, subject by subject, in file order */
    fl_task_document_list pool;      /* where few-shot examples come from; empty: the evaluated split */
    size_t subject_count, subject_capacity;
    fl_task_subject *subjects;
    size_t file_count, file_capacity;
    char **files; /* every file read, in order */
    size_t note_count, note_capacity;
    char **notes;
    fl_hash hash; /* of all files' bytes, set by fl_task_data_finish */
} fl_task_data;

void fl_task_data_release(fl_task_data *set);

/* *subject = a new subject that owns what is added to the lists from now on. */
fl_status fl_task_data_add_subject(fl_task_data *set, const char *name, size_t *subject, fl_error *error);
/* *kept = the set's copy of the path. */
fl_status fl_task_data_add_file(fl_task_data *set, const char *path, const char **kept, fl_error *error);
/* At most 100 notes are kept; the last one says that there are more. */
fl_status fl_task_data_note(fl_task_data *set, fl_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Hashes the files and sets the subjects' ranges. */
fl_status fl_task_data_finish(fl_task_data *set, fl_error *error);

/* *document = a fresh entry at the end of the list (index = its number within its subject's file, filled by
 * the caller). The pointer is valid until the next call. */
fl_status fl_task_document_list_add(fl_task_document_list *list, fl_task_document **document,
                                    fl_error *error);
fl_status fl_task_document_set_piece(fl_task_document *document, size_t piece, const char *text, size_t bytes,
                                     fl_error *error);
fl_status fl_task_document_add_choice(fl_task_document *document, const char *text, size_t bytes,
                                      fl_error *error);

/* Of pieces, choices and answer; not of its place. */
fl_status fl_task_document_hash(const fl_task_document *document, fl_hash *out, fl_error *error);

/* Same texts, choices and answer. */
bool fl_task_document_equal(const fl_task_document *a, const fl_task_document *b);

#endif
