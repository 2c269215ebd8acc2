#include "analysis/output_file.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/memory.h"
#include "harness/store/folder.h"

static void release(fl_output_file *file) {
    fl_memory_free(file->path);
    fl_memory_free(file->temporary);
    memset(file, 0, sizeof *file);
}

fl_status fl_output_file_open(const char *path, fl_output_file *out, fl_error *error) {
    memset(out, 0, sizeof *out);
    size_t bytes = strlen(path) + 32;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_memory_copy_string(&out->path, path, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->temporary, bytes, error));
    snprintf(out->temporary, bytes, "%s.%ld.part", path, (long)getpid());
    out->stream = fopen(out->temporary, "wb");
    if (out->stream == NULL)
        status = fl_error_set(error, fl_status_of_write(errno), "%s: %s", path, strerror(errno));
done:
    if (status != FL_OK) release(out);
    return status;
}

/* EINVAL: a file system without sync. */
static int sync_stream(FILE *stream) {
    return fsync(fileno(stream)) == 0 || errno == EINVAL ? 0 : -1;
}

static fl_status sync_folder_of(const char *path, fl_error *error) {
    char *folder = NULL;
    FL_TRY(fl_folder_of(path, &folder, error));
    fl_status status = fl_folder_sync(folder, error);
    fl_memory_free(folder);
    return status;
}

fl_status fl_output_file_close(fl_output_file *file, fl_error *error) {
    errno = 0;
    int bad = fflush(file->stream) != 0 || ferror(file->stream) || sync_stream(file->stream) != 0;
    int cause = errno;
    if (fclose(file->stream) != 0 && !bad) bad = 1, cause = errno;
    if (!bad && rename(file->temporary, file->path) != 0) bad = 1, cause = errno;
    fl_status status = FL_OK;
    if (bad) {
        status = fl_error_set(error, fl_status_of_write(cause), "%s: %s", file->path,
                              cause != 0 ? strerror(cause) : "write failed");
        unlink(file->temporary);
    } else {
        status = sync_folder_of(file->path, error);
    }
    release(file);
    return status;
}

void fl_output_file_discard(fl_output_file *file) {
    if (file->stream != NULL) {
        fclose(file->stream);
        unlink(file->temporary);
    }
    release(file);
}

void fl_output_csv_text(FILE *stream, const char *text) {
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, stream);
        return;
    }
    fputc('"', stream);
    for (; *text != '\0'; text++) {
        if (*text == '"') fputc('"', stream);
        fputc(*text, stream);
    }
    fputc('"', stream);
}

void fl_output_csv_number(FILE *stream, double number) {
    if (isnan(number)) {
        fputs("nan", stream);
    } else if (isinf(number)) {
        fputs(number > 0 ? "inf" : "-inf", stream);
    } else {
        fprintf(stream, "%.9g", number);
    }
}
