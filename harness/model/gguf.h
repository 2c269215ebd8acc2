/* GGUF: typed key-value metadata, then tensor infos, then aligned tensor data (ggml's format, versions 2 and
 * 3, little-endian; https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
 *
 * fl_gguf_open checks the whole file's structure; what it gives out points into the mapping and lives until
 * fl_gguf_close. Keys are found by binary search, array elements in constant time. The find functions return
 * false when the key is absent or of another kind; fl_gguf_has tells these apart. Immutable after opening,
 * thread-safe. */
#ifndef FL_MODEL_GGUF_H
#define FL_MODEL_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"
#include "harness/model/mapped_file.h"

typedef struct fl_gguf fl_gguf;

/* FL_ERROR_FORMAT names file and byte, key or tensor; FL_ERROR_UNSUPPORTED an unknown version or tensor type.
 */
fl_status fl_gguf_open(const char *path, fl_gguf **out, fl_error *error);

/* The same over a file that the caller has mapped and keeps mapped. */
fl_status fl_gguf_parse(const fl_mapped_file *file, fl_gguf **out, fl_error *error);
void fl_gguf_close(fl_gguf *gguf);

const char *fl_gguf_path(const fl_gguf *gguf);
bool fl_gguf_has(const fl_gguf *gguf, const char *key);

/* Not NUL-terminated; may hold any bytes. */
bool fl_gguf_find_string(const fl_gguf *gguf, const char *key, const char **text, size_t *bytes);
/* Any integer type whose value is not negative. */
bool fl_gguf_find_unsigned(const fl_gguf *gguf, const char *key, uint64_t *out);
/* Any integer or floating type. */
bool fl_gguf_find_number(const fl_gguf *gguf, const char *key, double *out);
bool fl_gguf_find_bool(const fl_gguf *gguf, const char *key, bool *out);

/* Arrays of any element type. */
bool fl_gguf_array_count(const fl_gguf *gguf, const char *key, size_t *count);
/* false also when `index` is past the end. */
bool fl_gguf_array_string(const fl_gguf *gguf, const char *key, size_t index, const char **text,
                          size_t *bytes);
bool fl_gguf_array_integer(const fl_gguf *gguf, const char *key, size_t index, int64_t *out);
bool fl_gguf_array_number(const fl_gguf *gguf, const char *key, size_t index, double *out);

/* Keys in file order, for listings. */
size_t fl_gguf_key_count(const fl_gguf *gguf);
void fl_gguf_key(const fl_gguf *gguf, size_t index, const char **key, size_t *bytes);

/* Tensors as the file lists them; shape is in Hugging Face's order, slowest first (the file's reversed). */
enum { FL_GGUF_MAX_RANK = 4 };
typedef struct fl_gguf_tensor {
    const char *name; /* not NUL-terminated */
    size_t name_bytes;
    uint32_t type_id; /* known to stored_type.h */
    size_t rank, shape[FL_GGUF_MAX_RANK];
    const unsigned char *bytes;
    size_t byte_count;
} fl_gguf_tensor;

size_t fl_gguf_tensor_count(const fl_gguf *gguf);
const fl_gguf_tensor *fl_gguf_tensor_at(const fl_gguf *gguf, size_t index);

#endif
