#include "harness/model/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "harness/base/input_file.h"
#include "harness/base/memory.h"
#include "harness/model/checkpoint_entries.h"
#include "harness/model/stored_type.h"

enum {
    MAX_KEY_BYTES = 65535,
    MAX_NAME_BYTES = 63,
    MAX_LENGTH = 1 << 30, /* bytes of a string, elements of an array */
    DEFAULT_ALIGNMENT = 32,
    /* The fewest bytes a key-value pair and a tensor info can take: bounds on counts before anything is
       allocated. */
    MIN_PAIR_BYTES = 14,
    MIN_INFO_BYTES = 33
};

typedef enum value_type {
    VALUE_U8 = 0,
    VALUE_I8,
    VALUE_U16,
    VALUE_I16,
    VALUE_U32,
    VALUE_I32,
    VALUE_F32,
    VALUE_BOOL,
    VALUE_STRING,
    VALUE_ARRAY,
    VALUE_U64,
    VALUE_I64,
    VALUE_F64,
    VALUE_TYPES
} value_type;

static const size_t value_bytes[VALUE_TYPES] = {
    [VALUE_U8] = 1,  [VALUE_I8] = 1,   [VALUE_U16] = 2, [VALUE_I16] = 2, [VALUE_U32] = 4, [VALUE_I32] = 4,
    [VALUE_F32] = 4, [VALUE_BOOL] = 1, [VALUE_U64] = 8, [VALUE_I64] = 8, [VALUE_F64] = 8,
};

typedef struct pair {
    const char *key;
    size_t key_bytes;
    value_type type; /* VALUE_ARRAY: element_type and count tell more */
    value_type element_type;
    size_t count;                  /* elements of an array, bytes of a string */
    const unsigned char *data;     /* the scalar, the string's bytes, or the first element */
    const unsigned char **strings; /* [count] length fields of an array of strings, owned; else NULL */
} pair;

struct fl_gguf {
    fl_mapped_file owned; /* empty when the caller keeps the mapping */
    const fl_mapped_file *file;
    pair *pairs; /* [pair_count], in file order */
    size_t pair_count;
    const pair **by_key;     /* [pair_count], sorted */
    fl_gguf_tensor *tensors; /* [tensor_count] */
    size_t tensor_count;
};

typedef struct cursor {
    const fl_mapped_file *file;
    size_t at;
} cursor;

static size_t bytes_left(const cursor *reader) {
    return reader->file->size - reader->at;
}

static fl_status refuse(const cursor *reader, const char *what, fl_error *error) {
    return fl_error_set(error, FL_ERROR_FORMAT, "%s: byte %zu: %s", reader->file->path, reader->at, what);
}

static fl_status take(cursor *reader, size_t bytes, const unsigned char **out, fl_error *error) {
    if (bytes > bytes_left(reader)) return refuse(reader, "the file ends too early", error);
    *out = reader->file->data + reader->at;
    reader->at += bytes;
    return FL_OK;
}

static fl_status take_u32(cursor *reader, uint32_t *out, fl_error *error) {
    const unsigned char *bytes = NULL;
    FL_TRY(take(reader, sizeof *out, &bytes, error));
    memcpy(out, bytes, sizeof *out);
    return FL_OK;
}

static fl_status take_u64(cursor *reader, uint64_t *out, fl_error *error) {
    const unsigned char *bytes = NULL;
    FL_TRY(take(reader, sizeof *out, &bytes, error));
    memcpy(out, bytes, sizeof *out);
    return FL_OK;
}

static fl_status take_string(cursor *reader, size_t limit, const char **text, size_t *bytes,
                             fl_error *error) {
    uint64_t length = 0;
    size_t start = reader->at;
    FL_TRY(take_u64(reader, &length, error));
    if (length > limit || length > bytes_left(reader)) {
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "%s: byte %zu: a string of %llu bytes (limit %zu, %zu left in the file)",
                            reader->file->path, start, (unsigned long long)length, limit, bytes_left(reader));
    }
    const unsigned char *data = NULL;
    FL_TRY(take(reader, (size_t)length, &data, error));
    *text = (const char *)data;
    *bytes = (size_t)length;
    return FL_OK;
}

static fl_status take_value_type(cursor *reader, value_type *out, fl_error *error) {
    uint32_t type = 0;
    FL_TRY(take_u32(reader, &type, error));
    if (type >= VALUE_TYPES) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: byte %zu: value type %u is unknown",
                            reader->file->path, reader->at - sizeof type, (unsigned)type);
    }
    *out = (value_type)type;
    return FL_OK;
}

static fl_status check_bools(cursor *reader, const unsigned char *bytes, size_t count, fl_error *error) {
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] > 1) return refuse(reader, "a boolean that is neither 0 nor 1 ends here", error);
    }
    return FL_OK;
}

static fl_status take_strings(cursor *reader, pair *item, fl_error *error) {
    if (item->count > bytes_left(reader) / sizeof(uint64_t)) {
        return refuse(reader, "an array of more strings than the file can hold", error);
    }
    FL_TRY(FL_ALLOCATE(&item->strings, item->count, error));
    for (size_t i = 0; i < item->count; i++) {
        const char *text;
        size_t bytes;
        item->strings[i] = reader->file->data + reader->at;
        FL_TRY(take_string(reader, MAX_LENGTH, &text, &bytes, error));
    }
    return FL_OK;
}

static fl_status take_array(cursor *reader, pair *item, fl_error *error) {
    uint64_t count = 0;
    FL_TRY(take_value_type(reader, &item->element_type, error));
    if (item->element_type == VALUE_ARRAY) return refuse(reader, "an array of arrays", error);
    FL_TRY(take_u64(reader, &count, error));
    if (count > MAX_LENGTH) return refuse(reader, "an array of more than 2^30 elements", error);
    item->count = (size_t)count;
    item->data = reader->file->data + reader->at;
    if (item->element_type == VALUE_STRING) return take_strings(reader, item, error);
    FL_TRY(take(reader, item->count * value_bytes[item->element_type], &item->data, error));
    return item->element_type == VALUE_BOOL ? check_bools(reader, item->data, item->count, error) : FL_OK;
}

static fl_status take_pair(cursor *reader, pair *item, fl_error *error) {
    size_t start = reader->at;
    FL_TRY(take_string(reader, MAX_KEY_BYTES, &item->key, &item->key_bytes, error));
    if (item->key_bytes == 0 || !fl_checkpoint_name_is_clean(item->key, item->key_bytes)) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: byte %zu: a key is empty or holds a control byte",
                            reader->file->path, start);
    }
    FL_TRY(take_value_type(reader, &item->type, error));
    if (item->type == VALUE_ARRAY) return take_array(reader, item, error);
    if (item->type == VALUE_STRING) {
        const char *text;
        FL_TRY(take_string(reader, MAX_LENGTH, &text, &item->count, error));
        item->data = (const unsigned char *)text;
        return FL_OK;
    }
    FL_TRY(take(reader, value_bytes[item->type], &item->data, error));
    return item->type == VALUE_BOOL ? check_bools(reader, item->data, 1, error) : FL_OK;
}

static int compare_bytes(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    if (order != 0) return order;
    return (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static int compare_pairs(const void *a, const void *b) {
    const pair *first = *(const pair *const *)a, *second = *(const pair *const *)b;
    return compare_bytes(first->key, first->key_bytes, second->key, second->key_bytes);
}

static fl_status read_pairs(fl_gguf *gguf, cursor *reader, uint64_t count, fl_error *error) {
    if (count > bytes_left(reader) / MIN_PAIR_BYTES) {
        return refuse(reader, "more keys than the file can hold", error);
    }
    FL_TRY(FL_ALLOCATE(&gguf->pairs, count, error));
    for (; gguf->pair_count < count; gguf->pair_count++) {
        pair *item = &gguf->pairs[gguf->pair_count];
        fl_status status = take_pair(reader, item, error);
        if (status == FL_OK) continue;
        fl_memory_free(item->strings);
        return status;
    }
    FL_TRY(FL_ALLOCATE(&gguf->by_key, count, error));
    for (size_t i = 0; i < count; i++) gguf->by_key[i] = &gguf->pairs[i];
    if (count > 1) qsort(gguf->by_key, count, sizeof *gguf->by_key, compare_pairs);
    for (size_t i = 1; i < count; i++) {
        if (compare_pairs(&gguf->by_key[i - 1], &gguf->by_key[i]) != 0) continue;
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: key %.*s is given twice", reader->file->path,
                            (int)gguf->by_key[i]->key_bytes, gguf->by_key[i]->key);
    }
    return FL_OK;
}

static fl_status refuse_tensor(const cursor *reader, const fl_gguf_tensor *tensor, fl_status status,
                               const char *what, fl_error *error) {
    return fl_error_set(error, status, "%s: tensor %.*s: %s", reader->file->path, (int)tensor->name_bytes,
                        tensor->name, what);
}

/* Shape and size, with ne[0] the fastest axis in the file. */
static fl_status take_shape(cursor *reader, fl_gguf_tensor *tensor, size_t *elements, fl_error *error) {
    uint32_t rank = 0;
    FL_TRY(take_u32(reader, &rank, error));
    if (rank < 1 || rank > FL_GGUF_MAX_RANK) {
        return refuse_tensor(reader, tensor, FL_ERROR_FORMAT, "its number of dimensions is not 1 to 4",
                             error);
    }
    tensor->rank = rank;
    *elements = 1;
    for (size_t i = 0; i < rank; i++) {
        uint64_t length = 0;
        FL_TRY(take_u64(reader, &length, error));
        if (length > INT64_MAX || __builtin_mul_overflow(*elements, (size_t)length, elements) ||
            *elements > INT64_MAX) {
            return refuse_tensor(reader, tensor, FL_ERROR_FORMAT, "the product of its dimensions overflows",
                                 error);
        }
        tensor->shape[rank - 1 - i] = (size_t)length;
    }
    return FL_OK;
}

static fl_status take_type(cursor *reader, fl_gguf_tensor *tensor, size_t elements, fl_error *error) {
    FL_TRY(take_u32(reader, &tensor->type_id, error));
    const fl_stored_type *type = fl_stored_type_of_gguf(tensor->type_id);
    if (type == NULL) {
        return fl_error_set(
            error, FL_ERROR_UNSUPPORTED, "%s: tensor %.*s: type id %u is unknown or was removed from GGUF",
            reader->file->path, (int)tensor->name_bytes, tensor->name, (unsigned)tensor->type_id);
    }
    size_t columns = tensor->shape[tensor->rank - 1];
    if (columns % type->block_elements != 0) {
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "%s: tensor %.*s: rows of %zu elements are not whole blocks of %s (%zu)",
                            reader->file->path, (int)tensor->name_bytes, tensor->name, columns, type->name,
                            type->block_elements);
    }
    if (__builtin_mul_overflow(elements / type->block_elements, type->block_bytes, &tensor->byte_count)) {
        return refuse_tensor(reader, tensor, FL_ERROR_FORMAT, "its size overflows", error);
    }
    return FL_OK;
}

/* Leaves the offset in the data area in *offset. */
static fl_status take_info(cursor *reader, fl_gguf_tensor *tensor, uint64_t *offset, fl_error *error) {
    size_t start = reader->at, elements = 0;
    FL_TRY(take_string(reader, MAX_NAME_BYTES, &tensor->name, &tensor->name_bytes, error));
    if (tensor->name_bytes == 0 || !fl_checkpoint_name_is_clean(tensor->name, tensor->name_bytes)) {
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "%s: byte %zu: a tensor's name is empty or holds a control byte",
                            reader->file->path, start);
    }
    FL_TRY(take_shape(reader, tensor, &elements, error));
    FL_TRY(take_type(reader, tensor, elements, error));
    return take_u64(reader, offset, error);
}

static int compare_tensors(const void *a, const void *b) {
    const fl_gguf_tensor *first = *(const fl_gguf_tensor *const *)a,
                         *second = *(const fl_gguf_tensor *const *)b;
    return compare_bytes(first->name, first->name_bytes, second->name, second->name_bytes);
}

static fl_status check_tensor_names(const fl_gguf *gguf, const cursor *reader, fl_error *error) {
    const fl_gguf_tensor **sorted = NULL;
    FL_TRY(FL_ALLOCATE(&sorted, gguf->tensor_count, error));
    for (size_t i = 0; i < gguf->tensor_count; i++) sorted[i] = &gguf->tensors[i];
    if (gguf->tensor_count > 1) qsort(sorted, gguf->tensor_count, sizeof *sorted, compare_tensors);
    fl_status status = FL_OK;
    for (size_t i = 1; i < gguf->tensor_count && status == FL_OK; i++) {
        if (compare_tensors(&sorted[i - 1], &sorted[i]) != 0) continue;
        status = refuse_tensor(reader, sorted[i], FL_ERROR_FORMAT, "is listed twice", error);
    }
    fl_memory_free(sorted);
    return status;
}

static fl_status find_alignment(const fl_gguf *gguf, size_t *out, fl_error *error) {
    uint64_t alignment = DEFAULT_ALIGNMENT;
    if (fl_gguf_has(gguf, "general.alignment") &&
        !fl_gguf_find_unsigned(gguf, "general.alignment", &alignment)) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: key general.alignment is not a whole number",
                            gguf->file->path);
    }
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > MAX_LENGTH) {
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "%s: key general.alignment: %llu is not a power of two up to 2^30",
                            gguf->file->path, (unsigned long long)alignment);
    }
    *out = (size_t)alignment;
    return FL_OK;
}

/* Every tensor begins where the padded sizes before it end, and lies inside the file. */
static fl_status place_tensors(fl_gguf *gguf, const cursor *reader, const uint64_t *offsets,
                               fl_error *error) {
    size_t alignment = 0;
    FL_TRY(find_alignment(gguf, &alignment, error));
    size_t start = (reader->at + alignment - 1) & ~(alignment - 1), size = gguf->file->size, expected = 0;
    for (size_t i = 0; i < gguf->tensor_count; i++) {
        fl_gguf_tensor *tensor = &gguf->tensors[i];
        if (offsets[i] != expected) {
            return fl_error_set(error, FL_ERROR_FORMAT,
                                "%s: tensor %.*s: data offset %llu where %zu was expected", gguf->file->path,
                                (int)tensor->name_bytes, tensor->name, (unsigned long long)offsets[i],
                                expected);
        }
        if (start > size || expected > size - start || tensor->byte_count > size - start - expected) {
            return fl_error_set(
                error, FL_ERROR_FORMAT,
                "%s: tensor %.*s: %zu bytes at data offset %zu pass the end of the file (%zu bytes)",
                gguf->file->path, (int)tensor->name_bytes, tensor->name, tensor->byte_count, expected, size);
        }
        tensor->bytes = gguf->file->data + start + expected;
        expected = (expected + tensor->byte_count + alignment - 1) & ~(alignment - 1);
    }
    return FL_OK;
}

static fl_status read_tensors(fl_gguf *gguf, cursor *reader, uint64_t count, fl_error *error) {
    if (count > bytes_left(reader) / MIN_INFO_BYTES) {
        return refuse(reader, "more tensors than the file can hold", error);
    }
    uint64_t *offsets = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&gguf->tensors, count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&offsets, count, error));
    for (; gguf->tensor_count < count; gguf->tensor_count++) {
        size_t i = gguf->tensor_count;
        FL_TRY_DONE(status, take_info(reader, &gguf->tensors[i], &offsets[i], error));
    }
    FL_TRY_DONE(status, check_tensor_names(gguf, reader, error));
    FL_TRY_DONE(status, place_tensors(gguf, reader, offsets, error));
done:
    fl_memory_free(offsets);
    return status;
}

static fl_status read_version(cursor *reader, fl_error *error) {
    const unsigned char *magic = NULL;
    uint32_t version = 0;
    FL_TRY(take(reader, 4, &magic, error));
    if (memcmp(magic, "GGUF", 4) != 0) {
        const char *kind = fl_input_foreign_kind(magic, reader->file->size);
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: byte 0: not a GGUF file%s%s", reader->file->path,
                            kind != NULL ? " but " : "", kind != NULL ? kind : "");
    }
    FL_TRY(take_u32(reader, &version, error));
    if (version != 0 && (version & 0xffffu) == 0) {
        return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                            "%s: byte 4: wrong endian: this GGUF file is big-endian", reader->file->path);
    }
    if (version != 2 && version != 3) {
        return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                            "%s: byte 4: GGUF version %u (2 and 3 are supported)", reader->file->path,
                            (unsigned)version);
    }
    return FL_OK;
}

static fl_status read_all(fl_gguf *gguf, fl_error *error) {
    cursor reader = {gguf->file, 0};
    uint64_t tensors = 0, pairs = 0;
    FL_TRY(read_version(&reader, error));
    FL_TRY(take_u64(&reader, &tensors, error));
    FL_TRY(take_u64(&reader, &pairs, error));
    FL_TRY(read_pairs(gguf, &reader, pairs, error));
    return read_tensors(gguf, &reader, tensors, error);
}

fl_status fl_gguf_parse(const fl_mapped_file *file, fl_gguf **out, fl_error *error) {
    *out = NULL;
    fl_gguf *gguf = NULL;
    FL_TRY(FL_ALLOCATE(&gguf, 1, error));
    gguf->file = file;
    fl_status status = read_all(gguf, error);
    if (status != FL_OK) {
        fl_gguf_close(gguf);
        return status;
    }
    *out = gguf;
    return FL_OK;
}

fl_status fl_gguf_open(const char *path, fl_gguf **out, fl_error *error) {
    *out = NULL;
    fl_mapped_file file;
    FL_TRY(fl_mapped_file_open(path, &file, error));
    fl_status status = fl_gguf_parse(&file, out, error);
    if (status != FL_OK) {
        fl_mapped_file_close(&file);
        return status;
    }
    (*out)->owned = file;
    (*out)->file = &(*out)->owned;
    return FL_OK;
}

void fl_gguf_close(fl_gguf *gguf) {
    if (gguf == NULL) return;
    for (size_t i = 0; i < gguf->pair_count; i++) fl_memory_free(gguf->pairs[i].strings);
    fl_memory_free(gguf->pairs);
    fl_memory_free(gguf->by_key);
    fl_memory_free(gguf->tensors);
    fl_mapped_file_close(&gguf->owned);
    fl_memory_free(gguf);
}

const char *fl_gguf_path(const fl_gguf *gguf) {
    return gguf->file->path;
}

static const pair *find(const fl_gguf *gguf, const char *key) {
    size_t low = 0, high = gguf->pair_count, bytes = strlen(key);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const pair *item = gguf->by_key[middle];
        int order = compare_bytes(key, bytes, item->key, item->key_bytes);
        if (order == 0) return item;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

bool fl_gguf_has(const fl_gguf *gguf, const char *key) {
    return find(gguf, key) != NULL;
}

/* An integer as sign and magnitude: u64 values above INT64_MAX exist. */
static bool load_integer(value_type type, const unsigned char *data, bool *negative, uint64_t *magnitude) {
    int64_t value = 0;
    switch (type) {
    case VALUE_U8:
        value = data[0];
        break;
    case VALUE_I8:
        value = (int8_t)data[0];
        break;
    case VALUE_U16:
        value = (int64_t)(data[0] | data[1] << 8);
        break;
    case VALUE_I16:
        value = (int16_t)(uint16_t)(data[0] | data[1] << 8);
        break;
    case VALUE_U32: {
        uint32_t narrow;
        memcpy(&narrow, data, sizeof narrow);
        value = narrow;
        break;
    }
    case VALUE_I32: {
        int32_t narrow;
        memcpy(&narrow, data, sizeof narrow);
        value = narrow;
        break;
    }
    case VALUE_I64:
        memcpy(&value, data, sizeof value);
        break;
    case VALUE_U64:
        *negative = false;
        memcpy(magnitude, data, sizeof *magnitude);
        return true;
    default:
        return false;
    }
    *negative = value < 0;
    *magnitude = *negative ? 0 - (uint64_t)value : (uint64_t)value;
    return true;
}

static bool load_number(value_type type, const unsigned char *data, double *out) {
    bool negative = false;
    uint64_t magnitude = 0;
    if (type == VALUE_F32) {
        float narrow;
        memcpy(&narrow, data, sizeof narrow);
        *out = (double)narrow;
        return true;
    }
    if (type == VALUE_F64) {
        memcpy(out, data, sizeof *out);
        return true;
    }
    if (!load_integer(type, data, &negative, &magnitude)) return false;
    *out = negative ? -(double)magnitude : (double)magnitude;
    return true;
}

bool fl_gguf_find_string(const fl_gguf *gguf, const char *key, const char **text, size_t *bytes) {
    const pair *item = find(gguf, key);
    if (item == NULL || item->type != VALUE_STRING) return false;
    *text = (const char *)item->data;
    *bytes = item->count;
    return true;
}

bool fl_gguf_find_unsigned(const fl_gguf *gguf, const char *key, uint64_t *out) {
    const pair *item = find(gguf, key);
    bool negative = false;
    uint64_t magnitude = 0;
    if (item == NULL || !load_integer(item->type, item->data, &negative, &magnitude) || negative)
        return false;
    *out = magnitude;
    return true;
}

bool fl_gguf_find_number(const fl_gguf *gguf, const char *key, double *out) {
    const pair *item = find(gguf, key);
    return item != NULL && load_number(item->type, item->data, out);
}

bool fl_gguf_find_bool(const fl_gguf *gguf, const char *key, bool *out) {
    const pair *item = find(gguf, key);
    if (item == NULL || item->type != VALUE_BOOL) return false;
    *out = item->data[0] != 0;
    return true;
}

bool fl_gguf_array_count(const fl_gguf *gguf, const char *key, size_t *count) {
    const pair *item = find(gguf, key);
    if (item == NULL || item->type != VALUE_ARRAY) return false;
    *count = item->count;
    return true;
}

bool fl_gguf_array_string(const fl_gguf *gguf, const char *key, size_t index, const char **text,
                          size_t *bytes) {
    const pair *item = find(gguf, key);
    if (item == NULL || item->type != VALUE_ARRAY || item->strings == NULL || index >= item->count)
        return false;
    uint64_t length;
    memcpy(&length, item->strings[index], sizeof length);
    *text = (const char *)item->strings[index] + sizeof length;
    *bytes = (size_t)length;
    return true;
}

/* The element at `index` of an array of fixed-size elements, or NULL. */
static const unsigned char *element(const fl_gguf *gguf, const char *key, size_t index, value_type *type) {
    const pair *item = find(gguf, key);
    if (item == NULL || item->type != VALUE_ARRAY || item->element_type == VALUE_STRING ||
        index >= item->count) {
        return NULL;
    }
    *type = item->element_type;
    return item->data + index * value_bytes[item->element_type];
}

bool fl_gguf_array_integer(const fl_gguf *gguf, const char *key, size_t index, int64_t *out) {
    value_type type = VALUE_U8;
    const unsigned char *data = element(gguf, key, index, &type);
    bool negative = false;
    uint64_t magnitude = 0;
    if (data == NULL || !load_integer(type, data, &negative, &magnitude)) return false;
    if (!negative && magnitude > INT64_MAX) return false;
    *out = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return true;
}

bool fl_gguf_array_number(const fl_gguf *gguf, const char *key, size_t index, double *out) {
    value_type type = VALUE_U8;
    const unsigned char *data = element(gguf, key, index, &type);
    return data != NULL && load_number(type, data, out);
}

size_t fl_gguf_key_count(const fl_gguf *gguf) {
    return gguf->pair_count;
}

void fl_gguf_key(const fl_gguf *gguf, size_t index, const char **key, size_t *bytes) {
    *key = gguf->pairs[index].key;
    *bytes = gguf->pairs[index].key_bytes;
}

size_t fl_gguf_tensor_count(const fl_gguf *gguf) {
    return gguf->tensor_count;
}

const fl_gguf_tensor *fl_gguf_tensor_at(const fl_gguf *gguf, size_t index) {
    return &gguf->tensors[index];
}
