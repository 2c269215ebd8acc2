#include "harness/run/finished_stage.h"

#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/base/build_info.h"
#include "harness/store/run_file.h"
#include "harness/store/run_record.h"
#include "harness/store/task_record.h"

enum { PATH_BYTES = 4096, STAGE_BYTES = 32 };

fl_status fl_finished_key(const fl_cell_work *cell, size_t threads, fl_hash *out, fl_error *error) {
    fl_hash program = {{0}};
    fl_hash_stream *stream = NULL;
    /* Of a program that cannot be looked at, its revision must do. */
    if (fl_hash_file("/proc/self/exe", &program, NULL) != FL_OK)
        program = fl_hash_bytes(fl_build_revision(), strlen(fl_build_revision()));
    const fl_hash mechanism = fl_mechanism_hash(cell->linearised.mechanism);
    FL_TRY(fl_hash_stream_create(&stream, error));
    fl_hash_stream_add(stream, program.text, sizeof program.text);
    fl_hash_stream_add(stream, &threads, sizeof threads);
    fl_hash_stream_add(stream, cell->run_id, sizeof cell->run_id);
    fl_hash_stream_add(stream, mechanism.text, sizeof mechanism.text);
    *out = fl_hash_stream_value(stream);
    fl_hash_stream_destroy(stream);
    return FL_OK;
}

static bool make_path(const fl_cell_list *list, const fl_cell_work *cell, const char *stage, const char *what,
                      char path[PATH_BYTES]) {
    int bytes = snprintf(path, PATH_BYTES, "%s/%s.%s.%s.partial", list->out, cell->run_id, stage, what);
    return bytes > 0 && bytes < PATH_BYTES;
}

static void finish(fl_run_file *file, fl_status status) {
    if (status == FL_OK)
        fl_run_file_commit(file, NULL);
    else
        fl_run_file_discard(file);
}

static fl_run_file *create(const fl_cell_list *list, const fl_cell_work *cell, const fl_hash *key,
                           const char *stage, const char *what) {
    char path[PATH_BYTES];
    fl_run_file *file = NULL;
    if (!make_path(list, cell, stage, what, path) || fl_run_file_create_at(path, &file, NULL) != FL_OK)
        return NULL;
    if (fl_run_file_set_text(file, "/", "key", key->text, NULL) == FL_OK) return file;
    fl_run_file_discard(file);
    return NULL;
}

/* NULL: none with this key. */
static fl_run_reader *open_reader(const fl_cell_list *list, const fl_cell_work *cell, const fl_hash *key,
                                  const char *stage, const char *what) {
    char path[PATH_BYTES], *text = NULL;
    fl_run_reader *reader = NULL;
    if (!make_path(list, cell, stage, what, path) || fl_run_reader_open(path, &reader, NULL) != FL_OK)
        return NULL;
    bool same = fl_run_reader_attribute_text(reader, "/", "key", &text, NULL) == FL_OK &&
                strcmp(text, key->text) == 0;
    fl_memory_free(text);
    if (same) return reader;
    fl_run_reader_close(reader);
    return NULL;
}

void fl_finished_text_save(const fl_cell_list *list, const fl_cell_work *cell, const fl_hash *key,
                           const char *what, const fl_text_result *result, double frozen_seconds) {
    fl_run_file *file = create(list, cell, key, "text", what);
    if (file == NULL) return;
    fl_status status = fl_run_record_write_text_result(file, result, NULL);
    if (status == FL_OK) status = fl_run_file_set_number(file, "/", "frozen_seconds", frozen_seconds, NULL);
    if (status == FL_OK)
        status = fl_run_file_set_integer(file, "/", "head_dim", (int64_t)result->head_dim, NULL);
    finish(file, status);
}

bool fl_finished_text_load(const fl_cell_list *list, const fl_cell_work *cell, const fl_hash *key,
                           const char *what, fl_text_result *out, double *frozen_seconds) {
    fl_run_reader *reader = open_reader(list, cell, key, "text", what);
    double head_dim = 0;
    if (reader == NULL) return false;
    bool loaded = fl_run_record_read_text_result(reader, out, NULL) == FL_OK;
    if (loaded &&
        (fl_run_reader_attribute_number(reader, "/", "frozen_seconds", frozen_seconds, NULL) != FL_OK ||
         fl_run_reader_attribute_number(reader, "/", "head_dim", &head_dim, NULL) != FL_OK)) {
        fl_text_result_release(out);
        loaded = false;
    }
    if (loaded) out->head_dim = (size_t)head_dim;
    fl_run_reader_close(reader);
    return loaded;
}

void fl_finished_task_save(const fl_cell_list *list, const fl_cell_work *cell, const fl_hash *key,
                           size_t task, const char *what, const fl_task_result *result) {
    char stage[STAGE_BYTES];
    snprintf(stage, sizeof stage, "task-%zu", task);
    fl_run_file *file = create(list, cell, key, stage, what);
    if (file != NULL) finish(file, fl_task_record_write(file, result, NULL));
}

bool fl_finished_task_load(const fl_cell_list *list, const fl_cell_work *cell, const fl_hash *key,
                           size_t task, const char *what, fl_task_result *out) {
    char stage[STAGE_BYTES];
    const fl_task_config *config = &cell->parts.tasks.items[task];
    snprintf(stage, sizeof stage, "task-%zu", task);
    fl_run_reader *reader = open_reader(list, cell, key, stage, what);
    if (reader == NULL) return false;
    bool loaded = fl_task_record_read(reader, config, out, NULL) == FL_OK;
    if (loaded && fl_task_result_summarise(config, out, NULL) != FL_OK) {
        fl_task_result_release(out);
        loaded = false;
    }
    fl_run_reader_close(reader);
    return loaded;
}
