/* Checkpoint: named tensors of one or more mapped weight files (safetensors, sharded safetensors, GGUF).
 *
 * Files are mapped PROT_READ and stay mapped until fl_checkpoint_close. All offsets, shapes and counts have
 * been checked against the file's size when open returns; hostile files give FL_ERROR_FORMAT with file,
 * offset or tensor name. */
#ifndef FL_MODEL_CHECKPOINT_H
#define FL_MODEL_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/hash.h"
#include "harness/base/status.h"
#include "harness/model/gguf.h"
#include "harness/model/tensor.h"

typedef struct fl_checkpoint fl_checkpoint;

typedef enum fl_checkpoint_format { FL_CHECKPOINT_SAFETENSORS = 0, FL_CHECKPOINT_GGUF } fl_checkpoint_format;

/* One tensor as listed by the file. `readable` is false for types this build cannot widen (codebook types, integers
 * ...): the entry is listed, `type_name` says what it is, and `bytes` points to its stored bytes;
 * fl_checkpoint_find refuses it. Then tensor.type may be FL_DTYPE_COUNT, and a rank above FL_TENSOR_MAX_RANK
 * is folded into the slowest axis. */
typedef struct fl_checkpoint_entry {
    fl_tensor tensor;
    const char *type_name;
    const unsigned char *bytes;
    size_t byte_count;
    bool readable;
} fl_checkpoint_entry;

/* path: a .safetensors file, a model.safetensors.index.json, or a .gguf file (the first of a split one). */
fl_status fl_checkpoint_open(const char *path, fl_checkpoint **out, fl_error *error);
void fl_checkpoint_close(fl_checkpoint *checkpoint);

fl_checkpoint_format fl_checkpoint_format_of(const fl_checkpoint *checkpoint);
size_t fl_checkpoint_count(const fl_checkpoint *checkpoint);
const fl_checkpoint_entry *fl_checkpoint_entry_at(const fl_checkpoint *checkpoint, size_t index);

/* The text a safetensors file's __metadata__ gives for `key`, or NULL (always NULL for sharded files and
 * GGUF). */
const char *fl_checkpoint_metadata(const fl_checkpoint *checkpoint, const char *key);

/* The metadata of a GGUF checkpoint (of its first part), or NULL. Lives as long as the checkpoint. */
const fl_gguf *fl_checkpoint_gguf(const fl_checkpoint *checkpoint);

/* Files mapped, their paths and sizes: one, or the shards. */
size_t fl_checkpoint_file_count(const fl_checkpoint *checkpoint);
const char *fl_checkpoint_file_path(const fl_checkpoint *checkpoint, size_t index);
size_t fl_checkpoint_file_bytes(const fl_checkpoint *checkpoint, size_t index);

/* The entry of that name, or NULL. */
const fl_checkpoint_entry *fl_checkpoint_lookup(const fl_checkpoint *checkpoint, const char *name);

/* *out = the tensor; FL_ERROR_FORMAT when absent, FL_ERROR_UNSUPPORTED (naming tensor and type) when not
 * readable. */
fl_status fl_checkpoint_find(const fl_checkpoint *checkpoint, const char *name, fl_tensor *out,
                             fl_error *error);

/* Whether an entry holds plain or quantised floats, F64 included, and all of its elements as float32 (F64 rounded). For
 * parameters and inputs that are read whole; weights are widened row by row. */
bool fl_checkpoint_entry_is_float(const fl_checkpoint_entry *entry);
void fl_checkpoint_entry_floats(const fl_checkpoint_entry *entry, float *out /* [elements] */);

/* Hash over all mapped files, in order, read afresh. */
fl_status fl_checkpoint_hash(const fl_checkpoint *checkpoint, fl_hash *out, fl_error *error);

/* Writing (mechanism parameters, fixtures): F32 tensors and string metadata, written to a temporary name,
 * synced and renamed. */
typedef struct fl_checkpoint_write_tensor {
    const char *name;
    const float *data;
    size_t rank;
    size_t shape[FL_TENSOR_MAX_RANK];
} fl_checkpoint_write_tensor;

fl_status fl_checkpoint_write_safetensors(const char *path, const fl_checkpoint_write_tensor *tensors,
                                          size_t count, const char *const *metadata_keys,
                                          const char *const *metadata_values, size_t metadata_count,
                                          fl_error *error);

#endif
