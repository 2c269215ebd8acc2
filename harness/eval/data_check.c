#include "harness/eval/data_check.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cjson/cJSON.h>

#include "harness/base/memory.h"
#include "harness/base/sha256.h"
#include "harness/eval/csv.h"
#include "harness/model/json_rows.h"
#include "harness/model/json_text.h"
#include "harness/eval/text_buffer.h"
#include "harness/base/text_file.h"

enum { FINDING_BYTES = FL_ERROR_MESSAGE_BYTES + 256 };

static bool has_ending(const char *name, const char *ending) {
    const size_t length = strlen(name), tail = strlen(ending);
    return length > tail && strcmp(name + length - tail, ending) == 0;
}

/* Relative, without a step upwards. */
static bool is_inside(const char *file) {
    return file[0] != '\0' && file[0] != '/' && strncmp(file, "../", 3) != 0 &&
           strstr(file, "/../") == NULL && strcmp(file, "..") != 0 && !has_ending(file, "/..");
}

static fl_status read_manifest(const char *path, cJSON **out, fl_error *error) {
    char *text = NULL;
    size_t bytes = 0;
    FL_TRY(fl_text_file_read(path, &text, &bytes, error));
    cJSON *json;
    fl_status status = fl_json_parse(text, bytes, path, 0, &json, error);
    fl_memory_free(text);
    FL_TRY(status);
    bool good = cJSON_IsString(cJSON_GetObjectItemCaseSensitive(json, "name"));
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(json, "files");
    good = good && cJSON_IsArray(files);
    for (const cJSON *file = good ? files->child : NULL; file != NULL && good; file = file->next) {
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(file, "file");
        good = cJSON_IsString(name) && is_inside(name->valuestring);
    }
    if (good) {
        *out = json;
        return FL_OK;
    }
    cJSON_Delete(json);
    return fl_error_set(error, FL_ERROR_FORMAT,
                        "%s: not a manifest (an object with a name and a list of files)", path);
}

/* Rows by the file's own reader; FL_ERROR_UNSUPPORTED for other kinds. */
static fl_status count_rows(const char *path, size_t *rows, fl_error *error) {
    if (has_ending(path, ".csv")) {
        fl_csv_table *table = NULL;
        FL_TRY(fl_csv_read(path, &table, error));
        *rows = table->count;
        fl_csv_destroy(table);
        return FL_OK;
    }
    if (has_ending(path, ".jsonl") || has_ending(path, ".json")) {
        fl_json_rows *json = NULL;
        FL_TRY(fl_json_rows_read(path, &json, error));
        *rows = json->count;
        fl_json_rows_destroy(json);
        return FL_OK;
    }
    return fl_error_set(error, FL_ERROR_UNSUPPORTED, "%s: rows of this kind of file are not counted", path);
}

/* What differs, when bytes or hash do; the row count tells a lost end from a changed line. */
static fl_status describe_difference(const char *path, const cJSON *entry, size_t bytes, char *finding,
                                     size_t room) {
    const cJSON *size = cJSON_GetObjectItemCaseSensitive(entry, "bytes");
    const cJSON *expected_rows = cJSON_GetObjectItemCaseSensitive(entry, "rows");
    int used = cJSON_IsNumber(size) && (double)bytes != size->valuedouble
                   ? snprintf(finding, room, "%zu bytes instead of %.0f", bytes, size->valuedouble)
                   : snprintf(finding, room, "the same size, but another content");
    size_t rows = 0;
    fl_error fault = {0};
    if (used < 0 || (size_t)used >= room || !cJSON_IsNumber(expected_rows)) return FL_OK;
    fl_status status = count_rows(path, &rows, &fault);
    if (status == FL_OK) {
        snprintf(finding + used, room - (size_t)used, "; %zu rows, %.0f expected", rows,
                 expected_rows->valuedouble);
    } else if (status == FL_ERROR_FORMAT) {
        snprintf(finding + used, room - (size_t)used, "; %s", fault.message);
    }
    return status == FL_ERROR_MEMORY ? status : FL_OK;
}

static fl_status check_hash(const char *path, const cJSON *entry, const char *hash, fl_data_state *state,
                            char *finding, fl_error *error) {
    struct stat status;
    char text[FL_SHA256_TEXT_BYTES];
    if (stat(path, &status) != 0) return fl_error_set(error, FL_ERROR_IO, "%s: %s", path, strerror(errno));
    FL_TRY(fl_sha256_file(path, text, error));
    *state = strcmp(text, hash) == 0 ? FL_DATA_SAME : FL_DATA_ALTERED;
    if (*state == FL_DATA_SAME) return FL_OK;
    return describe_difference(path, entry, (size_t)status.st_size, finding, FINDING_BYTES);
}

static fl_status check_rows(const char *path, const cJSON *entry, fl_data_state *state, char *finding,
                            fl_error *error) {
    const cJSON *expected = cJSON_GetObjectItemCaseSensitive(entry, "rows");
    *state = FL_DATA_UNVERIFIED;
    if (!cJSON_IsNumber(expected)) return FL_OK;
    size_t rows = 0;
    fl_error fault = {0};
    fl_status status = count_rows(path, &rows, &fault);
    if (status == FL_ERROR_UNSUPPORTED) return FL_OK;
    if (status == FL_ERROR_MEMORY) return fl_error_set(error, status, "%s", fault.message);
    if (status != FL_OK) {
        *state = FL_DATA_ALTERED;
        snprintf(finding, FINDING_BYTES, "%s", fault.message);
    } else if ((double)rows != expected->valuedouble) {
        *state = FL_DATA_ALTERED;
        snprintf(finding, FINDING_BYTES, "%zu rows, %.0f expected", rows, expected->valuedouble);
    }
    return FL_OK;
}

static fl_status check_file(const char *folder, const cJSON *entry, fl_data_file *out, fl_error *error) {
    const char *name = cJSON_GetObjectItemCaseSensitive(entry, "file")->valuestring;
    const cJSON *hash = cJSON_GetObjectItemCaseSensitive(entry, "sha256");
    char *path = NULL, finding[FINDING_BYTES] = "";
    FL_TRY(fl_memory_copy_string(&out->file, name, error));
    FL_TRY(fl_path_join(folder, name, &path, error));
    fl_status status = FL_OK;
    if (!fl_path_is_file(path)) {
        out->state = FL_DATA_MISSING;
    } else if (cJSON_IsString(hash)) {
        status = check_hash(path, entry, hash->valuestring, &out->state, finding, error);
    } else {
        status = check_rows(path, entry, &out->state, finding, error);
    }
    fl_memory_free(path);
    if (status == FL_OK && finding[0] != '\0') status = fl_memory_copy_string(&out->finding, finding, error);
    return status;
}

static fl_status copy_member(const cJSON *json, const char *name, char **out, fl_error *error) {
    const cJSON *member = cJSON_GetObjectItemCaseSensitive(json, name);
    return fl_memory_copy_string(out, cJSON_IsString(member) ? member->valuestring : "", error);
}

static fl_status check_files(const cJSON *json, const char *folder, fl_data_report *out, fl_error *error) {
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(json, "files");
    FL_TRY(copy_member(json, "name", &out->name, error));
    FL_TRY(copy_member(json, "title", &out->title, error));
    FL_TRY(copy_member(json, "licence", &out->licence, error));
    FL_TRY(copy_member(json, "source", &out->source, error));
    FL_TRY(FL_ALLOCATE(&out->files, cJSON_GetArraySize(files), error));
    size_t *const counts[] = {[FL_DATA_SAME] = &out->same,
                              [FL_DATA_UNVERIFIED] = &out->unverified,
                              [FL_DATA_MISSING] = &out->missing,
                              [FL_DATA_ALTERED] = &out->altered};
    for (const cJSON *entry = files->child; entry != NULL; entry = entry->next) {
        fl_data_file *file = &out->files[out->count++];
        FL_TRY(check_file(folder, entry, file, error));
        ++*counts[file->state];
    }
    return FL_OK;
}

fl_status fl_data_check(const char *manifest, const char *folder, fl_data_report *out, fl_error *error) {
    *out = (fl_data_report){0};
    cJSON *json = NULL;
    if (!fl_path_is_folder(folder)) return fl_error_set(error, FL_ERROR_IO, "%s: not a folder", folder);
    FL_TRY(read_manifest(manifest, &json, error));
    fl_status status = check_files(json, folder, out, error);
    cJSON_Delete(json);
    if (status != FL_OK) fl_data_report_release(out);
    return status;
}

void fl_data_report_release(fl_data_report *report) {
    for (size_t i = 0; i < report->count; i++) {
        fl_memory_free(report->files[i].file);
        fl_memory_free(report->files[i].finding);
    }
    fl_memory_free(report->files);
    fl_memory_free(report->name);
    fl_memory_free(report->title);
    fl_memory_free(report->licence);
    fl_memory_free(report->source);
    *report = (fl_data_report){0};
}

typedef struct path_list {
    size_t count;
    char **paths;
} path_list;

void fl_data_manifests_release(char **paths, size_t count) {
    for (size_t i = 0; i < count; i++) fl_memory_free(paths[i]);
    fl_memory_free(paths);
}

static int compare_paths(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Takes path over. */
static fl_status add_path(path_list *list, char *path, fl_error *error) {
    fl_status status = FL_RESIZE(&list->paths, list->count, list->count + 1, error);
    if (status != FL_OK) {
        fl_memory_free(path);
        return status;
    }
    list->paths[list->count++] = path;
    return FL_OK;
}

static fl_status list_manifests(const char *folder, path_list *list, fl_error *error) {
    DIR *entries = opendir(folder);
    if (entries == NULL)
        return fl_error_set(error, FL_ERROR_IO, "%s: cannot open: %s", folder, strerror(errno));
    fl_status status = FL_OK;
    const struct dirent *entry;
    while (status == FL_OK && (entry = readdir(entries)) != NULL) {
        char *path = NULL;
        if (!has_ending(entry->d_name, ".json")) continue;
        status = fl_path_join(folder, entry->d_name, &path, error);
        if (status == FL_OK) status = add_path(list, path, error);
    }
    closedir(entries);
    if (status == FL_OK && list->count > 0)
        qsort(list->paths, list->count, sizeof *list->paths, compare_paths);
    return status;
}

fl_status fl_data_manifests_all(const char *manifests, char ***paths, size_t *count, fl_error *error) {
    path_list list = {0};
    fl_status status = list_manifests(manifests, &list, error);
    if (status != FL_OK) {
        fl_data_manifests_release(list.paths, list.count);
        return status;
    }
    *paths = list.paths;
    *count = list.count;
    return FL_OK;
}

static fl_status any_file_there(const char *manifest, const char *folder, bool *there, fl_error *error) {
    cJSON *json = NULL;
    FL_TRY(read_manifest(manifest, &json, error));
    fl_status status = FL_OK;
    *there = false;
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(json, "files")->child;
    for (; status == FL_OK && entry != NULL && !*there; entry = entry->next) {
        char *path = NULL;
        status =
            fl_path_join(folder, cJSON_GetObjectItemCaseSensitive(entry, "file")->valuestring, &path, error);
        *there = status == FL_OK && fl_path_is_file(path);
        fl_memory_free(path);
    }
    cJSON_Delete(json);
    return status;
}

/* Keeps those that have a file in the folder; `known` collects the names of all. */
static fl_status keep_matching(path_list *list, const char *folder, fl_text_buffer *known, fl_error *error) {
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        bool there = false;
        char *path = list->paths[i];
        const char *slash = strrchr(path, '/');
        FL_TRY(FL_TEXT_ADD(known, error, i == 0 ? "" : ", ", slash == NULL ? path : slash + 1));
        known->bytes -= strlen(".json");
        FL_TRY(any_file_there(path, folder, &there, error));
        if (!there) continue;
        list->paths[i] = list->paths[kept];
        list->paths[kept++] = path;
    }
    for (size_t i = kept; i < list->count; i++) fl_memory_free(list->paths[i]);
    list->count = kept;
    return FL_OK;
}

static fl_status find_manifests(const char *folder, const char *manifests, path_list *list,
                                fl_text_buffer *known, fl_error *error) {
    char *own = NULL;
    FL_TRY(fl_path_join(folder, "manifest.json", &own, error));
    if (fl_path_is_file(own)) return add_path(list, own, error);
    fl_memory_free(own);
    FL_TRY(list_manifests(manifests, list, error));
    FL_TRY(keep_matching(list, folder, known, error));
    if (list->count > 0) return FL_OK;
    return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: holds no file of a known set (%.*s)", folder,
                        (int)known->bytes, known->text == NULL ? "" : known->text);
}

fl_status fl_data_manifests_for(const char *folder, const char *manifests, char ***paths, size_t *count,
                                fl_error *error) {
    if (!fl_path_is_folder(folder)) return fl_error_set(error, FL_ERROR_IO, "%s: not a folder", folder);
    path_list list = {0};
    fl_text_buffer known = {0};
    fl_status status = find_manifests(folder, manifests, &list, &known, error);
    fl_text_buffer_release(&known);
    if (status != FL_OK) {
        fl_data_manifests_release(list.paths, list.count);
        return status;
    }
    *paths = list.paths;
    *count = list.count;
    return FL_OK;
}
