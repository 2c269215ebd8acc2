#include "harness/store/journal.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/input_file.h"
#include "harness/base/memory.h"
#include "harness/config/text_builder.h"
#include "harness/store/folder.h"

struct fl_journal {
    int descriptor;
    char *path;
};

struct fl_journal_lines {
    char *path;
    size_t count, room;
    cJSON **lines;
    bool torn;
};

static fl_status journal_path(const char *directory, const char *run_id, char **path, fl_error *error) {
    return fl_folder_format(path, error, "%s/%s.journal.jsonl", directory, run_id);
}

static fl_status io_error(const char *path, const char *verb, fl_error *error) {
    return fl_error_set(error, fl_status_of_write(errno), "%s: cannot %s: %s%s", path, verb, strerror(errno),
                        fl_disk_explanation(errno));
}

/* Whole content of an open file. */
static fl_status read_whole(int descriptor, const char *path, fl_text_builder *content, fl_error *error) {
    char block[16384];
    for (;;) {
        ssize_t got = read(descriptor, block, sizeof block);
        if (got == 0) return FL_OK;
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return io_error(path, "read", error);
        FL_TRY(fl_text_builder_add_bytes(content, block, (size_t)got, error));
    }
}

/* Bytes up to the last newline: what is behind it was torn off. */
static size_t whole_bytes(const fl_text_builder *content) {
    size_t bytes = content->length;
    while (bytes > 0 && content->text[bytes - 1] != '\n') bytes--;
    return bytes;
}

fl_status fl_journal_open(const char *directory, const char *run_id, fl_journal **out, fl_error *error) {
    *out = NULL;
    fl_text_builder content = {0};
    fl_journal *journal = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&journal, 1, error));
    journal->descriptor = -1;
    FL_TRY_DONE(status, journal_path(directory, run_id, &journal->path, error));
    FL_TRY_DONE(status, fl_folder_create(directory, error));
    journal->descriptor = open(journal->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (journal->descriptor < 0) {
        status = io_error(journal->path, "open", error);
        goto done;
    }
    FL_TRY_DONE(status, read_whole(journal->descriptor, journal->path, &content, error));
    if (whole_bytes(&content) < content.length &&
        ftruncate(journal->descriptor, (off_t)whole_bytes(&content)) != 0) {
        status = io_error(journal->path, "cut the torn last line off", error);
        goto done;
    }
    FL_TRY_DONE(status, fl_folder_sync(directory, error));
    *out = journal;
    journal = NULL;
done:
    fl_text_builder_release(&content);
    if (journal != NULL) fl_journal_close(journal, true, NULL);
    return status;
}

static cJSON *number_value(double number) {
    if (isnan(number)) return cJSON_CreateString("nan");
    if (isinf(number)) return cJSON_CreateString(number > 0 ? "inf" : "-inf");
    char text[40];
    snprintf(text, sizeof text, "%.17g", number);
    return cJSON_CreateRaw(text);
}

static cJSON *numbers_value(const double *numbers, size_t count) {
    cJSON *list = cJSON_CreateArray();
    for (size_t i = 0; list != NULL && i < count; i++) {
        cJSON *item = number_value(numbers[i]);
        if (item == NULL || !cJSON_AddItemToArray(list, item)) {
            cJSON_Delete(item);
            cJSON_Delete(list);
            return NULL;
        }
    }
    return list;
}

static cJSON *field_value(const fl_journal_field *field) {
    if (field->text != NULL) return cJSON_CreateString(field->text);
    if (field->numbers != NULL) return numbers_value(field->numbers, field->count);
    return number_value(field->number);
}

static char *line_text(const char *event, const fl_journal_field *fields, size_t field_count) {
    cJSON *line = cJSON_CreateObject();
    bool ok = line != NULL && cJSON_AddStringToObject(line, "event", event) != NULL;
    for (size_t i = 0; ok && i < field_count; i++) {
        cJSON *value = field_value(&fields[i]);
        ok = value != NULL && cJSON_AddItemToObject(line, fields[i].name, value);
        if (!ok) cJSON_Delete(value);
    }
    char *text = ok ? cJSON_PrintUnformatted(line) : NULL;
    cJSON_Delete(line);
    return text;
}

static fl_status write_all(int descriptor, const char *path, const char *text, size_t bytes,
                           fl_error *error) {
    while (bytes > 0) {
        ssize_t written = write(descriptor, text, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return io_error(path, "write", error);
        text += written;
        bytes -= (size_t)written;
    }
    return FL_OK;
}

fl_status fl_journal_append(fl_journal *journal, const char *event, const fl_journal_field *fields,
                            size_t field_count, fl_error *error) {
    fl_text_builder line = {0};
    char *text = line_text(event, fields, field_count);
    if (text == NULL) return fl_error_set(error, FL_ERROR_MEMORY, "%s: out of memory", journal->path);
    fl_status status = fl_text_builder_format(&line, error, "%s\n", text);
    cJSON_free(text);
    off_t before = lseek(journal->descriptor, 0, SEEK_END);
    if (status == FL_OK)
        status = write_all(journal->descriptor, journal->path, line.text, line.length, error);
    if (status == FL_OK && fsync(journal->descriptor) != 0) status = io_error(journal->path, "sync", error);
    /* A full disk may take half a line: the next append must not continue it. */
    if (status != FL_OK && before >= 0 && ftruncate(journal->descriptor, before) != 0) {
        fl_error_prepend(error, status, "%s: the last line is torn", journal->path);
    }
    fl_text_builder_release(&line);
    return status;
}

fl_status fl_journal_close(fl_journal *journal, bool keep, fl_error *error) {
    if (journal == NULL) return FL_OK;
    fl_status status = FL_OK;
    if (journal->descriptor >= 0 && close(journal->descriptor) != 0)
        status = io_error(journal->path, "close", error);
    if (!keep && unlink(journal->path) != 0 && errno != ENOENT)
        status = io_error(journal->path, "delete", error);
    fl_memory_free(journal->path);
    fl_memory_free(journal);
    return status;
}

static fl_status parse_line(fl_journal_lines *lines, const char *text, size_t bytes, fl_error *error) {
    cJSON *line = cJSON_ParseWithLength(text, bytes);
    if (!cJSON_IsObject(line) || !cJSON_IsString(cJSON_GetObjectItemCaseSensitive(line, "event"))) {
        cJSON_Delete(line);
        return fl_error_set(error, FL_ERROR_FORMAT, "%s:%zu: not a journal line", lines->path,
                            lines->count + 1);
    }
    fl_status status = FL_OK;
    if (lines->count == lines->room) {
        size_t room = lines->room == 0 ? 16 : 2 * lines->room;
        status = FL_RESIZE(&lines->lines, lines->room, room, error);
        if (status == FL_OK) lines->room = room;
    }
    if (status == FL_OK)
        lines->lines[lines->count++] = line;
    else
        cJSON_Delete(line);
    return status;
}

static fl_status parse_content(fl_journal_lines *lines, const fl_text_builder *content, fl_error *error) {
    size_t end = whole_bytes(content);
    lines->torn = end < content->length;
    for (size_t at = 0; at < end;) {
        const char *newline = memchr(content->text + at, '\n', end - at);
        size_t bytes = (size_t)(newline - (content->text + at));
        FL_TRY(parse_line(lines, content->text + at, bytes, error));
        at += bytes + 1;
    }
    return FL_OK;
}

fl_status fl_journal_read(const char *directory, const char *run_id, fl_journal_lines **out,
                          fl_error *error) {
    *out = NULL;
    fl_text_builder content = {0};
    fl_journal_lines *lines = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&lines, 1, error));
    FL_TRY_DONE(status, journal_path(directory, run_id, &lines->path, error));
    int descriptor;
    size_t size;
    status = fl_input_open(lines->path, &descriptor, &size, error);
    if (status == FL_OK) {
        status = read_whole(descriptor, lines->path, &content, error);
        close(descriptor);
        if (status == FL_OK) status = parse_content(lines, &content, error);
    } else if (status == FL_ERROR_IO && errno == ENOENT) {
        status = FL_OK;
    }
    if (status != FL_OK) goto done;
    *out = lines;
    lines = NULL;
done:
    fl_text_builder_release(&content);
    fl_journal_lines_destroy(lines);
    return status;
}

void fl_journal_lines_destroy(fl_journal_lines *lines) {
    if (lines == NULL) return;
    for (size_t i = 0; i < lines->count; i++) cJSON_Delete(lines->lines[i]);
    fl_memory_free(lines->lines);
    fl_memory_free(lines->path);
    fl_memory_free(lines);
}

size_t fl_journal_line_count(const fl_journal_lines *lines) {
    return lines->count;
}

bool fl_journal_was_torn(const fl_journal_lines *lines) {
    return lines->torn;
}

const char *fl_journal_event(const fl_journal_lines *lines, size_t line) {
    return fl_journal_text(lines, line, "event");
}

static const cJSON *field_of(const fl_journal_lines *lines, size_t line, const char *name) {
    return line < lines->count ? cJSON_GetObjectItemCaseSensitive(lines->lines[line], name) : NULL;
}

const char *fl_journal_text(const fl_journal_lines *lines, size_t line, const char *name) {
    return cJSON_GetStringValue(field_of(lines, line, name));
}

static bool read_number(const cJSON *value, double *out) {
    const char *text = cJSON_GetStringValue(value);
    if (cJSON_IsNumber(value))
        *out = value->valuedouble;
    else if (text != NULL && strcmp(text, "nan") == 0)
        *out = NAN;
    else if (text != NULL && strcmp(text, "inf") == 0)
        *out = INFINITY;
    else if (text != NULL && strcmp(text, "-inf") == 0)
        *out = -INFINITY;
    else
        return false;
    return true;
}

bool fl_journal_number(const fl_journal_lines *lines, size_t line, const char *name, double *out) {
    return read_number(field_of(lines, line, name), out);
}

fl_status fl_journal_numbers(const fl_journal_lines *lines, size_t line, const char *name, double **values,
                             size_t *count, fl_error *error) {
    *values = NULL;
    const cJSON *list = field_of(lines, line, name);
    double *out = NULL;
    size_t n = 0;
    bool ok = cJSON_IsArray(list);
    if (ok) FL_TRY(FL_ALLOCATE(&out, (size_t)cJSON_GetArraySize(list), error));
    for (const cJSON *item = ok ? list->child : NULL; item != NULL && ok; item = item->next) {
        ok = read_number(item, &out[n++]);
    }
    if (!ok) {
        fl_memory_free(out);
        return fl_error_set(error, FL_ERROR_FORMAT, "%s:%zu: %s is not a list of numbers", lines->path,
                            line + 1, name);
    }
    *values = out;
    *count = n;
    return FL_OK;
}
