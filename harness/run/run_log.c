#include "harness/run/run_log.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "harness/base/memory.h"

enum { TIME_BYTES = 40, TROUBLE_BYTES = 256 };

struct fl_run_log {
    int descriptor; /* -1: ended */
    char *path;
    bool told;
    char trouble[TROUBLE_BYTES];
};

static void end(fl_run_log *log, int cause) {
    snprintf(log->trouble, sizeof log->trouble, "%s: %s; the log ends here", log->path, strerror(cause));
    close(log->descriptor);
    log->descriptor = -1;
}

/* A run that was killed may have left half a line. */
static bool ends_in_a_line(int descriptor) {
    char last = '\n';
    off_t size = lseek(descriptor, 0, SEEK_END);
    return size <= 0 || pread(descriptor, &last, 1, size - 1) != 1 || last == '\n';
}

static bool write_whole(int descriptor, const char *text, size_t bytes) {
    while (bytes > 0) {
        ssize_t written = write(descriptor, text, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        text += written;
        bytes -= (size_t)written;
    }
    return true;
}

fl_status fl_run_log_open(const char *path, fl_run_log **out, fl_error *error) {
    fl_run_log *log = NULL;
    *out = NULL;
    FL_TRY(FL_ALLOCATE(&log, 1, error));
    fl_status status = fl_memory_copy_string(&log->path, path, error);
    log->descriptor = status == FL_OK ? open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    /* What can be written to and not read (a pipe, /dev/stderr) is a log too. */
    if (status == FL_OK && log->descriptor < 0)
        log->descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (status == FL_OK && log->descriptor < 0)
        status = fl_error_set(error, fl_status_of_write(errno), "%s: %s", path, strerror(errno));
    if (status == FL_OK && !ends_in_a_line(log->descriptor)) write_whole(log->descriptor, "\n", 1);
    if (status == FL_OK)
        *out = log;
    else
        fl_run_log_close(log);
    return status;
}

/* "2026-01-31T12:00:00.123Z" */
static void now_as_text(char out[TIME_BYTES]) {
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t used = strftime(out, TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(out + used, TIME_BYTES - used, ".%03ldZ", now.tv_nsec / 1000000);
}

static void add_field(cJSON *line, const fl_run_log_field *field) {
    if (field->name == NULL) return;
    if (field->text != NULL)
        cJSON_AddStringToObject(line, field->name, field->text);
    else if (isfinite(field->number))
        cJSON_AddNumberToObject(line, field->name, field->number);
    else
        cJSON_AddStringToObject(line, field->name,
                                isnan(field->number) ? "nan"
                                : field->number < 0  ? "-inf"
                                                     : "inf");
}

void fl_run_log_add(fl_run_log *log, const char *event, const fl_run_log_field *fields, size_t count) {
    if (log == NULL || log->descriptor < 0) return;
    char time_text[TIME_BYTES];
    now_as_text(time_text);
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "time", time_text);
    cJSON_AddStringToObject(line, "event", event);
    for (size_t i = 0; i < count; i++) add_field(line, &fields[i]);
    char *text = cJSON_PrintUnformatted(line);
    cJSON_Delete(line);
    if (text == NULL) return;
    size_t bytes = strlen(text);
    text[bytes] = '\n'; /* over the 0: one write, so that lines of several workers stay whole */
    if (!write_whole(log->descriptor, text, bytes + 1)) end(log, errno);
    cJSON_free(text);
}

const char *fl_run_log_trouble(fl_run_log *log) {
    if (log == NULL || log->told || log->trouble[0] == '\0') return NULL;
    log->told = true;
    return log->trouble;
}

void fl_run_log_close(fl_run_log *log) {
    if (log == NULL) return;
    if (log->descriptor >= 0) close(log->descriptor);
    fl_memory_free(log->path);
    fl_memory_free(log);
}
