#include "harness/model/safetensors.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/input_file.h"
#include "harness/base/memory.h"
#include "harness/model/json_text.h"

enum { LENGTH_BYTES = 8 };

typedef struct header_tensor {
    const cJSON *item; /* its member of the header: the name */
    const char *type_name;
    const fl_stored_type *type;
    const cJSON *shape;
    size_t rank, begin, end;
} header_tensor;

typedef struct header_reader {
    const fl_mapped_file *file;
    size_t data_start, data_bytes;
    header_tensor *tensors;
    size_t count;
} header_reader;

/* What a file is when its first bytes are no safetensors header, so that a page or an archive is called by
 * its name. */
static fl_status refuse_start(const fl_mapped_file *file, const char *what, fl_error *error) {
    const char *kind = fl_input_foreign_kind(file->data, file->size);
    if (kind != NULL)
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: is %s, not a safetensors file", file->path, kind);
    return fl_error_set(error, FL_ERROR_FORMAT, "%s: %s", file->path, what);
}

static fl_status read_header(const fl_mapped_file *file, size_t *header_bytes, cJSON **out, fl_error *error) {
    char what[128];
    uint64_t length = 0;
    if (file->size < LENGTH_BYTES) {
        snprintf(what, sizeof what, "%zu bytes are too few for a safetensors file", file->size);
        return refuse_start(file, what, error);
    }
    memcpy(&length, file->data, sizeof length);
    if (length > FL_SAFETENSORS_MAX_HEADER) {
        snprintf(what, sizeof what, "byte 0: header length %llu is above the limit of %d",
                 (unsigned long long)length, FL_SAFETENSORS_MAX_HEADER);
        return refuse_start(file, what, error);
    }
    if (length > file->size - LENGTH_BYTES) {
        snprintf(what, sizeof what, "byte 0: header length %llu passes the end of the file (%zu bytes)",
                 (unsigned long long)length, file->size);
        return refuse_start(file, what, error);
    }
    const char *text = (const char *)file->data + LENGTH_BYTES;
    if (length < 2 || text[0] != '{')
        return refuse_start(file, "byte 8: the header does not begin with \"{\"", error);
    *header_bytes = (size_t)length;
    return fl_json_parse(text, (size_t)length, file->path, LENGTH_BYTES, out, error);
}

static fl_status refuse(const header_reader *reader, const char *name, const char *what, fl_error *error) {
    return fl_error_set(error, FL_ERROR_FORMAT, "%s: tensor %s: %s", reader->file->path, name, what);
}

static fl_status read_offsets(const header_reader *reader, const cJSON *offsets, header_tensor *tensor,
                              fl_error *error) {
    const char *name = tensor->item->string;
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2) {
        return refuse(reader, name, "data_offsets is not a pair of numbers", error);
    }
    if (!fl_json_size(offsets->child, &tensor->begin) || !fl_json_size(offsets->child->next, &tensor->end)) {
        return refuse(reader, name, "data_offsets are not whole numbers from 0 to 2^53 - 1", error);
    }
    if (tensor->end < tensor->begin) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: tensor %s: data_offsets [%zu, %zu] are reversed",
                            reader->file->path, name, tensor->begin, tensor->end);
    }
    if (tensor->end > reader->data_bytes) {
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "%s: tensor %s: data_offsets [%zu, %zu] pass the end of the data (%zu bytes)",
                            reader->file->path, name, tensor->begin, tensor->end, reader->data_bytes);
    }
    return FL_OK;
}

/* *elements = product of the shape. */
static fl_status read_shape(const header_reader *reader, header_tensor *tensor, size_t *elements,
                            fl_error *error) {
    const char *name = tensor->item->string;
    if (!cJSON_IsArray(tensor->shape)) return refuse(reader, name, "shape is not a list", error);
    *elements = 1;
    for (const cJSON *size = tensor->shape->child; size != NULL; size = size->next) {
        size_t length = 0;
        if (!fl_json_size(size, &length)) {
            return refuse(reader, name, "shape holds something that is not a whole number from 0 to 2^53 - 1",
                          error);
        }
        if (__builtin_mul_overflow(*elements, length, elements)) {
            return refuse(reader, name, "the product of its shape overflows", error);
        }
        tensor->rank++;
    }
    return FL_OK;
}

static fl_status check_size(const header_reader *reader, const header_tensor *tensor, size_t elements,
                            fl_error *error) {
    if (tensor->type == NULL) return FL_OK;
    const char *name = tensor->item->string;
    if (elements % tensor->type->block_elements != 0) {
        return refuse(reader, name, "its bits do not fill whole bytes", error);
    }
    size_t bytes = 0;
    if (__builtin_mul_overflow(elements / tensor->type->block_elements, tensor->type->block_bytes, &bytes)) {
        return refuse(reader, name, "its size overflows", error);
    }
    if (bytes != tensor->end - tensor->begin) {
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "%s: tensor %s: shape and dtype %s need %zu bytes, data_offsets give %zu",
                            reader->file->path, name, tensor->type_name, bytes, tensor->end - tensor->begin);
    }
    return FL_OK;
}

static fl_status read_tensor(const header_reader *reader, const cJSON *item, header_tensor *tensor,
                             fl_error *error) {
    const cJSON *offsets = NULL, *type = NULL;
    const char *name = item->string;
    tensor->item = item;
    if (name[0] == '\0') return refuse(reader, "\"\"", "the name is empty", error);
    if (!fl_checkpoint_name_is_clean(name, strlen(name))) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: header: a tensor's name holds a control byte",
                            reader->file->path);
    }
    if (!cJSON_IsObject(item)) return refuse(reader, name, "its entry is not an object", error);
    for (const cJSON *member = item->child; member != NULL; member = member->next) {
        if (strcmp(member->string, "dtype") == 0) {
            type = member;
        } else if (strcmp(member->string, "shape") == 0) {
            tensor->shape = member;
        } else if (strcmp(member->string, "data_offsets") == 0) {
            offsets = member;
        } else {
            return fl_error_set(error, FL_ERROR_FORMAT, "%s: tensor %s: unknown key \"%s\"",
                                reader->file->path, name, member->string);
        }
    }
    if (!cJSON_IsString(type)) return refuse(reader, name, "dtype is missing or not text", error);
    if (!fl_checkpoint_name_is_clean(type->valuestring, strlen(type->valuestring))) {
        return refuse(reader, name, "dtype holds a control byte", error);
    }
    tensor->type_name = type->valuestring;
    tensor->type = fl_stored_type_of_safetensors(type->valuestring);
    size_t elements = 0;
    FL_TRY(read_shape(reader, tensor, &elements, error));
    FL_TRY(read_offsets(reader, offsets, tensor, error));
    return check_size(reader, tensor, elements, error);
}

static fl_status read_metadata(const header_reader *reader, const cJSON *item,
                               fl_safetensors_metadata *metadata, fl_error *error) {
    const char *path = reader->file->path;
    if (!cJSON_IsObject(item)) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: __metadata__ is not an object", path);
    }
    for (const cJSON *member = item->child; member != NULL; member = member->next) {
        if (cJSON_IsString(member)) continue;
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: __metadata__: the value of \"%s\" is not text", path,
                            member->string);
    }
    if (metadata == NULL) return FL_OK;
    size_t count = (size_t)cJSON_GetArraySize(item);
    FL_TRY(FL_ALLOCATE(&metadata->keys, count, error));
    FL_TRY(FL_ALLOCATE(&metadata->values, count, error));
    for (const cJSON *member = item->child; member != NULL; member = member->next) {
        FL_TRY(fl_memory_copy_string(&metadata->keys[metadata->count], member->string, error));
        metadata->count++;
        FL_TRY(fl_memory_copy_string(&metadata->values[metadata->count - 1], member->valuestring, error));
    }
    return FL_OK;
}

static int compare_offsets(const void *a, const void *b) {
    const header_tensor *first = a, *second = b;
    if (first->begin != second->begin) return first->begin < second->begin ? -1 : 1;
    if (first->end != second->end) return first->end < second->end ? -1 : 1;
    return strcmp(first->item->string, second->item->string);
}

/* The tensors must cover the data without hole or overlap, to the file's last byte. */
static fl_status check_coverage(const header_reader *reader, fl_error *error) {
    size_t expected = 0;
    for (size_t i = 0; i < reader->count; i++) {
        const header_tensor *tensor = &reader->tensors[i];
        if (tensor->begin != expected) {
            return fl_error_set(error, FL_ERROR_FORMAT,
                                "%s: tensor %s begins at data offset %zu where %zu was expected: %s",
                                reader->file->path, tensor->item->string, tensor->begin, expected,
                                tensor->begin < expected ? "tensors overlap" : "there is a hole");
        }
        expected = tensor->end;
    }
    if (expected != reader->data_bytes) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: byte %zu: %zu bytes follow the last tensor",
                            reader->file->path, reader->data_start + expected, reader->data_bytes - expected);
    }
    return FL_OK;
}

static fl_status append(const header_reader *reader, const header_tensor *tensor,
                        fl_checkpoint_entries *entries, fl_error *error) {
    size_t *shape = NULL, axis = 0;
    FL_TRY(FL_ALLOCATE(&shape, tensor->rank, error));
    for (const cJSON *size = tensor->shape->child; size != NULL; size = size->next) {
        shape[axis++] = (size_t)size->valuedouble;
    }
    fl_checkpoint_listing listing = {
        .name = tensor->item->string,
        .name_bytes = strlen(tensor->item->string),
        .type = tensor->type,
        .type_name = tensor->type_name,
        .rank = tensor->rank,
        .shape = shape,
        .bytes = reader->file->data + reader->data_start + tensor->begin,
        .byte_count = tensor->end - tensor->begin,
    };
    fl_status status = fl_checkpoint_entries_add(entries, &listing, error);
    fl_memory_free(shape);
    return status;
}

static fl_status read_members(header_reader *reader, const cJSON *header, fl_checkpoint_entries *entries,
                              fl_safetensors_metadata *metadata, fl_error *error) {
    FL_TRY(FL_ALLOCATE(&reader->tensors, cJSON_GetArraySize(header), error));
    for (const cJSON *item = header->child; item != NULL; item = item->next) {
        if (strcmp(item->string, "__metadata__") == 0) {
            FL_TRY(read_metadata(reader, item, metadata, error));
        } else {
            FL_TRY(read_tensor(reader, item, &reader->tensors[reader->count], error));
            reader->count++;
        }
    }
    qsort(reader->tensors, reader->count, sizeof *reader->tensors, compare_offsets);
    FL_TRY(check_coverage(reader, error));
    for (size_t i = 0; i < reader->count; i++) FL_TRY(append(reader, &reader->tensors[i], entries, error));
    return FL_OK;
}

fl_status fl_safetensors_list(const fl_mapped_file *file, fl_checkpoint_entries *entries,
                              fl_safetensors_metadata *metadata, fl_error *error) {
    size_t header_bytes = 0;
    cJSON *header = NULL;
    FL_TRY(read_header(file, &header_bytes, &header, error));
    header_reader reader = {.file = file, .data_start = LENGTH_BYTES + header_bytes};
    reader.data_bytes = file->size - reader.data_start;
    fl_status status = read_members(&reader, header, entries, metadata, error);
    fl_memory_free(reader.tensors);
    cJSON_Delete(header);
    return status;
}

void fl_safetensors_metadata_free(fl_safetensors_metadata *metadata) {
    for (size_t i = 0; i < metadata->count; i++) {
        fl_memory_free(metadata->keys[i]);
        fl_memory_free(metadata->values[i]);
    }
    fl_memory_free(metadata->keys);
    fl_memory_free(metadata->values);
    memset(metadata, 0, sizeof *metadata);
}
