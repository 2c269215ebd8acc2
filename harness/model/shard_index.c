#include "harness/model/shard_index.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/model/checkpoint_entries.h"
#include "harness/model/json_text.h"

static bool is_plain_name(const char *name) {
    return name[0] != '\0' && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
           strpbrk(name, "/\\") == NULL && fl_checkpoint_name_is_clean(name, strlen(name));
}

static fl_status check_entry(const char *path, const cJSON *item, fl_error *error) {
    if (item->string[0] == '\0' || !fl_checkpoint_name_is_clean(item->string, strlen(item->string))) {
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "%s: weight_map: a tensor's name is empty or holds a control byte", path);
    }
    if (!cJSON_IsString(item)) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: weight_map: the shard of tensor %s is not text",
                            path, item->string);
    }
    if (!is_plain_name(item->valuestring)) {
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "%s: weight_map: tensor %s: shard \"%s\" is not a plain file name", path,
                            item->string, item->valuestring);
    }
    if (!fl_checkpoint_name_ends_with(item->valuestring, ".safetensors")) {
        return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                            "%s: weight_map: shard \"%s\" is not a .safetensors file", path,
                            item->valuestring);
    }
    return FL_OK;
}

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* *out = the distinct shard names, sorted; borrowed from the document. */
static fl_status distinct_names(const cJSON *map, const char ***out, size_t *count, fl_error *error) {
    size_t total = 0;
    FL_TRY(FL_ALLOCATE(out, cJSON_GetArraySize(map), error));
    for (const cJSON *item = map->child; item != NULL; item = item->next) (*out)[total++] = item->valuestring;
    qsort(*out, total, sizeof **out, compare_texts);
    *count = 0;
    for (size_t i = 0; i < total; i++) {
        if (i == 0 || strcmp((*out)[i], (*out)[*count - 1]) != 0) (*out)[(*count)++] = (*out)[i];
    }
    return FL_OK;
}

static fl_status beside(const char *path, const char *name, char **out, fl_error *error) {
    const char *slash = strrchr(path, '/');
    size_t folder = slash != NULL ? (size_t)(slash - path) + 1 : 0, room = folder + strlen(name) + 1;
    FL_TRY(FL_ALLOCATE(out, room, error));
    snprintf(*out, room, "%.*s%s", (int)folder, path, name);
    return FL_OK;
}

static fl_status fill(const char *path, const cJSON *map, const char *const *names, size_t name_count,
                      fl_shard_index *index, fl_error *error) {
    FL_TRY(FL_ALLOCATE(&index->shards, name_count, error));
    for (; index->shard_count < name_count; index->shard_count++) {
        FL_TRY(beside(path, names[index->shard_count], &index->shards[index->shard_count], error));
    }
    FL_TRY(FL_ALLOCATE(&index->assignments, cJSON_GetArraySize(map), error));
    for (const cJSON *item = map->child; item != NULL; item = item->next, index->count++) {
        const char *name = item->valuestring;
        const char *const *found = bsearch(&name, names, name_count, sizeof *names, compare_texts);
        index->assignments[index->count].shard = (size_t)(found - names);
        FL_TRY(fl_memory_copy_string(&index->assignments[index->count].tensor, item->string, error));
    }
    return FL_OK;
}

fl_status fl_shard_index_read(const char *path, fl_shard_index *out, fl_error *error) {
    memset(out, 0, sizeof *out);
    cJSON *document = NULL;
    const char **names = NULL;
    size_t name_count = 0;
    FL_TRY(fl_json_read_file(path, &document, error));
    fl_status status = FL_OK;
    const cJSON *map = fl_json_member(document, "weight_map");
    if (!cJSON_IsObject(map) || map->child == NULL) {
        status =
            fl_error_set(error, FL_ERROR_FORMAT, "%s: weight_map is missing, empty or not an object", path);
        goto done;
    }
    for (const cJSON *item = map->child; item != NULL; item = item->next) {
        FL_TRY_DONE(status, check_entry(path, item, error));
    }
    FL_TRY_DONE(status, distinct_names(map, &names, &name_count, error));
    FL_TRY_DONE(status, fill(path, map, names, name_count, out, error));
done:
    if (status != FL_OK) fl_shard_index_free(out);
    fl_memory_free(names);
    cJSON_Delete(document);
    return status;
}

void fl_shard_index_free(fl_shard_index *index) {
    for (size_t i = 0; i < index->shard_count; i++) fl_memory_free(index->shards[i]);
    for (size_t i = 0; i < index->count; i++) fl_memory_free(index->assignments[i].tensor);
    fl_memory_free(index->shards);
    fl_memory_free(index->assignments);
    memset(index, 0, sizeof *index);
}
