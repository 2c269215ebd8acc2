#include "harness/model/checkpoint.h"

#include <string.h>

#include "harness/base/memory.h"
#include "harness/model/checkpoint_entries.h"
#include "harness/model/fault_list.h"
#include "harness/model/gguf.h"
#include "harness/model/gguf_split.h"
#include "harness/model/mapped_file.h"
#include "harness/model/safetensors.h"
#include "harness/model/shard_index.h"

struct fl_checkpoint {
    fl_checkpoint_format format;
    fl_mapped_file *files; /* [file_count] */
    size_t file_count;
    fl_gguf **ggufs; /* [file_count], or NULL for safetensors */
    fl_checkpoint_entries entries;
    fl_safetensors_metadata metadata;
};

static fl_status add_gguf_tensors(fl_checkpoint *checkpoint, const fl_gguf *gguf, fl_error *error) {
    for (size_t i = 0; i < fl_gguf_tensor_count(gguf); i++) {
        const fl_gguf_tensor *tensor = fl_gguf_tensor_at(gguf, i);
        fl_checkpoint_listing listing = {
            .name = tensor->name,
            .name_bytes = tensor->name_bytes,
            .type = fl_stored_type_of_gguf(tensor->type_id),
            .rank = tensor->rank,
            .shape = tensor->shape,
            .bytes = tensor->bytes,
            .byte_count = tensor->byte_count,
        };
        FL_TRY(fl_checkpoint_entries_add(&checkpoint->entries, &listing, error));
    }
    return FL_OK;
}

/* Parts after the first, in order. */
static fl_status open_gguf_part(fl_checkpoint *checkpoint, size_t part, size_t count, fl_error *error) {
    char *path = NULL;
    size_t said = 0;
    FL_TRY(fl_gguf_split_path(checkpoint->files[0].path, part, count, &path, error));
    fl_status status = fl_mapped_file_open(path, &checkpoint->files[part], error);
    fl_memory_free(path);
    FL_TRY(status);
    FL_TRY(fl_gguf_parse(&checkpoint->files[part], &checkpoint->ggufs[part], error));
    FL_TRY(fl_gguf_split_check(checkpoint->ggufs[part], part, count, &said, error));
    return add_gguf_tensors(checkpoint, checkpoint->ggufs[part], error);
}

static fl_status check_gguf_total(const fl_checkpoint *checkpoint, fl_error *error) {
    uint64_t total = 0;
    if (!fl_gguf_find_unsigned(checkpoint->ggufs[0], "split.tensors.count", &total)) return FL_OK;
    if (total == checkpoint->entries.count) return FL_OK;
    return fl_error_set(error, FL_ERROR_FORMAT,
                        "%s: key split.tensors.count says %llu, the parts hold %zu tensors",
                        checkpoint->files[0].path, (unsigned long long)total, checkpoint->entries.count);
}

/* files[0] is mapped already. The arrays grow once the first part has said how many there are; nothing points
 * into them but the first part's parser, which is run again. */
static fl_status open_gguf(fl_checkpoint *checkpoint, fl_error *error) {
    size_t count = 0;
    checkpoint->format = FL_CHECKPOINT_GGUF;
    FL_TRY(FL_ALLOCATE(&checkpoint->ggufs, 1, error));
    FL_TRY(fl_gguf_parse(&checkpoint->files[0], &checkpoint->ggufs[0], error));
    FL_TRY(fl_gguf_split_check(checkpoint->ggufs[0], 0, 0, &count, error));
    if (count > 1) {
        fl_gguf_close(checkpoint->ggufs[0]);
        checkpoint->ggufs[0] = NULL;
        FL_TRY(FL_RESIZE(&checkpoint->ggufs, 1, count, error));
        FL_TRY(FL_RESIZE(&checkpoint->files, 1, count, error));
        checkpoint->file_count = count;
        FL_TRY(fl_gguf_parse(&checkpoint->files[0], &checkpoint->ggufs[0], error));
    }
    FL_TRY(add_gguf_tensors(checkpoint, checkpoint->ggufs[0], error));
    for (size_t part = 1; part < count; part++) FL_TRY(open_gguf_part(checkpoint, part, count, error));
    return count > 1 ? check_gguf_total(checkpoint, error) : FL_OK;
}

/* A GGUF file is known by its first bytes or by its name, so that a damaged one is named for what it should
 * be. */
static fl_status open_single(fl_checkpoint *checkpoint, const char *path, fl_error *error) {
    FL_TRY(FL_ALLOCATE(&checkpoint->files, 1, error));
    FL_TRY(fl_mapped_file_open(path, &checkpoint->files[0], error));
    checkpoint->file_count = 1;
    const fl_mapped_file *file = &checkpoint->files[0];
    if (fl_checkpoint_name_ends_with(path, ".gguf") ||
        (file->size >= 4 && memcmp(file->data, "GGUF", 4) == 0)) {
        return open_gguf(checkpoint, error);
    }
    return fl_safetensors_list(file, &checkpoint->entries, &checkpoint->metadata, error);
}

/* Maps every shard and lists it in listings[shard]; all shards that cannot be opened are reported together.
 */
static fl_status open_shards(fl_checkpoint *checkpoint, const fl_shard_index *index, const char *path,
                             fl_checkpoint_entries *listings, fl_error *error) {
    fl_fault_list faults = {0};
    FL_TRY(FL_ALLOCATE(&checkpoint->files, index->shard_count, error));
    checkpoint->file_count = index->shard_count;
    for (size_t i = 0; i < index->shard_count; i++) {
        fl_error fault;
        fl_status status = fl_mapped_file_open(index->shards[i], &checkpoint->files[i], &fault);
        if (status == FL_OK) status = fl_safetensors_list(&checkpoint->files[i], &listings[i], NULL, &fault);
        if (status == FL_OK) status = fl_checkpoint_entries_index(&listings[i], index->shards[i], &fault);
        if (status != FL_OK) fl_fault_list_add(&faults, status, "%s", fault.message);
    }
    return fl_fault_list_result(&faults, path, error);
}

static fl_status add_again(fl_checkpoint_entries *entries, const fl_checkpoint_entry *entry,
                           fl_error *error) {
    const fl_tensor *tensor = &entry->tensor;
    bool readable = tensor->type != FL_DTYPE_COUNT;
    fl_checkpoint_listing listing = {
        .name = tensor->name,
        .name_bytes = strlen(tensor->name),
        .type = readable ? fl_stored_type_of_dtype(tensor->type)
                         : fl_stored_type_of_safetensors(entry->type_name),
        .type_name = entry->type_name,
        .rank = tensor->rank,
        .shape = tensor->shape,
        .bytes = entry->bytes,
        .byte_count = entry->byte_count,
    };
    FL_TRY(fl_checkpoint_entries_add(entries, &listing, error));
    entries->items[entries->count - 1].readable = entry->readable;
    return FL_OK;
}

/* Takes each tensor from the shard the index assigns it to; whatever else the shards hold is not looked at.
 */
static fl_status collect(fl_checkpoint *checkpoint, const fl_shard_index *index, const char *path,
                         const fl_checkpoint_entries *listings, fl_error *error) {
    fl_fault_list faults = {0};
    for (size_t i = 0; i < index->count; i++) {
        const fl_shard_assignment *assignment = &index->assignments[i];
        const fl_checkpoint_entry *entry =
            fl_checkpoint_entries_find(&listings[assignment->shard], assignment->tensor);
        if (entry == NULL) {
            fl_fault_list_add(&faults, FL_ERROR_FORMAT, "tensor %s is not in its shard %s",
                              assignment->tensor, index->shards[assignment->shard]);
        } else {
            FL_TRY(add_again(&checkpoint->entries, entry, error));
        }
    }
    return fl_fault_list_result(&faults, path, error);
}

static fl_status open_sharded(fl_checkpoint *checkpoint, const char *path, fl_error *error) {
    fl_shard_index index;
    fl_checkpoint_entries *listings = NULL;
    FL_TRY(fl_shard_index_read(path, &index, error));
    fl_status status = FL_ALLOCATE(&listings, index.shard_count, error);
    if (status == FL_OK) status = open_shards(checkpoint, &index, path, listings, error);
    if (status == FL_OK) status = collect(checkpoint, &index, path, listings, error);
    for (size_t i = 0; listings != NULL && i < index.shard_count; i++)
        fl_checkpoint_entries_free(&listings[i]);
    fl_memory_free(listings);
    fl_shard_index_free(&index);
    return status;
}

fl_status fl_checkpoint_open(const char *path, fl_checkpoint **out, fl_error *error) {
    *out = NULL;
    fl_checkpoint *checkpoint = NULL;
    FL_TRY(FL_ALLOCATE(&checkpoint, 1, error));
    checkpoint->format = FL_CHECKPOINT_SAFETENSORS;
    fl_status status = fl_checkpoint_name_ends_with(path, ".json") ? open_sharded(checkpoint, path, error)
                                                                   : open_single(checkpoint, path, error);
    if (status == FL_OK) status = fl_checkpoint_entries_index(&checkpoint->entries, path, error);
    if (status != FL_OK) {
        fl_checkpoint_close(checkpoint);
        return status;
    }
    *out = checkpoint;
    return FL_OK;
}

void fl_checkpoint_close(fl_checkpoint *checkpoint) {
    if (checkpoint == NULL) return;
    fl_checkpoint_entries_free(&checkpoint->entries);
    fl_safetensors_metadata_free(&checkpoint->metadata);
    for (size_t i = 0; i < checkpoint->file_count; i++) {
        if (checkpoint->ggufs != NULL) fl_gguf_close(checkpoint->ggufs[i]);
        fl_mapped_file_close(&checkpoint->files[i]);
    }
    fl_memory_free(checkpoint->ggufs);
    fl_memory_free(checkpoint->files);
    fl_memory_free(checkpoint);
}

fl_checkpoint_format fl_checkpoint_format_of(const fl_checkpoint *checkpoint) {
    return checkpoint->format;
}

const fl_gguf *fl_checkpoint_gguf(const fl_checkpoint *checkpoint) {
    return checkpoint->ggufs != NULL ? checkpoint->ggufs[0] : NULL;
}

size_t fl_checkpoint_count(const fl_checkpoint *checkpoint) {
    return checkpoint->entries.count;
}

const fl_checkpoint_entry *fl_checkpoint_entry_at(const fl_checkpoint *checkpoint, size_t index) {
    return &checkpoint->entries.items[index];
}

const char *fl_checkpoint_metadata(const fl_checkpoint *checkpoint, const char *key) {
    for (size_t i = 0; i < checkpoint->metadata.count; i++) {
        if (strcmp(checkpoint->metadata.keys[i], key) == 0) return checkpoint->metadata.values[i];
    }
    return NULL;
}

size_t fl_checkpoint_file_count(const fl_checkpoint *checkpoint) {
    return checkpoint->file_count;
}

const char *fl_checkpoint_file_path(const fl_checkpoint *checkpoint, size_t index) {
    return checkpoint->files[index].path;
}

size_t fl_checkpoint_file_bytes(const fl_checkpoint *checkpoint, size_t index) {
    return checkpoint->files[index].size;
}

const fl_checkpoint_entry *fl_checkpoint_lookup(const fl_checkpoint *checkpoint, const char *name) {
    return fl_checkpoint_entries_find(&checkpoint->entries, name);
}

fl_status fl_checkpoint_find(const fl_checkpoint *checkpoint, const char *name, fl_tensor *out,
                             fl_error *error) {
    const char *path = checkpoint->files[0].path;
    const fl_checkpoint_entry *entry = fl_checkpoint_lookup(checkpoint, name);
    if (entry == NULL) return fl_error_set(error, FL_ERROR_FORMAT, "%s: tensor %s is missing", path, name);
    if (!entry->readable && entry->tensor.type != FL_DTYPE_COUNT) {
        return fl_error_set(error, FL_ERROR_UNSUPPORTED, "%s: tensor %s has more than %d dimensions", path,
                            name, FL_TENSOR_MAX_RANK);
    }
    if (!entry->readable) {
        return fl_error_set(error, FL_ERROR_UNSUPPORTED, "%s: tensor %s has type %s, which is not supported",
                            path, name, entry->type_name);
    }
    *out = entry->tensor;
    return FL_OK;
}

static bool is_double(const fl_checkpoint_entry *entry) {
    return strcmp(entry->type_name, "F64") == 0 && entry->bytes != NULL;
}

bool fl_checkpoint_entry_is_float(const fl_checkpoint_entry *entry) {
    return entry->readable || is_double(entry);
}

void fl_checkpoint_entry_floats(const fl_checkpoint_entry *entry, float *out) {
    const fl_tensor *tensor = &entry->tensor;
    size_t count = 1;
    for (size_t i = 0; i < tensor->rank; i++) count *= tensor->shape[i];
    if (!is_double(entry)) {
        fl_tensor_widen_rows(tensor, 0, tensor->columns > 0 ? count / tensor->columns : 0, out);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        double value = 0.0;
        memcpy(&value, entry->bytes + i * sizeof value, sizeof value);
        out[i] = (float)value;
    }
}

fl_status fl_checkpoint_hash(const fl_checkpoint *checkpoint, fl_hash *out, fl_error *error) {
    fl_hash_stream *stream = NULL;
    FL_TRY(fl_hash_stream_create(&stream, error));
    fl_status status = FL_OK;
    for (size_t i = 0; i < checkpoint->file_count && status == FL_OK; i++) {
        const fl_mapped_file *file = &checkpoint->files[i];
        status = fl_mapped_file_check(file, error);
        if (status == FL_OK) fl_hash_stream_add(stream, file->data, file->size);
    }
    if (status == FL_OK) *out = fl_hash_stream_value(stream);
    fl_hash_stream_destroy(stream);
    return status;
}
