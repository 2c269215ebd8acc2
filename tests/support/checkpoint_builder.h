/* Weight files built byte by byte, so that tests can make valid ones, odd ones and every kind of broken one.
 */
#ifndef FL_TESTS_SUPPORT_CHECKPOINT_BUILDER_H
#define FL_TESTS_SUPPORT_CHECKPOINT_BUILDER_H

#include <stddef.h>
#include <stdint.h>

/* A growing block of bytes; {0} is empty. Running out of memory fails the test. */
typedef struct fl_bytes {
    unsigned char *data;
    size_t count, room;
} fl_bytes;

void fl_bytes_add(fl_bytes *bytes, const void *data, size_t count);
void fl_bytes_add_zeros(fl_bytes *bytes, size_t count);
void fl_bytes_add_u8(fl_bytes *bytes, uint8_t value);
void fl_bytes_add_u16(fl_bytes *bytes, uint16_t value);
void fl_bytes_add_u32(fl_bytes *bytes, uint32_t value);
void fl_bytes_add_u64(fl_bytes *bytes, uint64_t value);
void fl_bytes_add_f32(fl_bytes *bytes, float value);
void fl_bytes_add_f64(fl_bytes *bytes, double value);
void fl_bytes_pad(fl_bytes *bytes, size_t alignment);
void fl_bytes_free(fl_bytes *bytes);

/* Length, JSON text, then `data` zero bytes. */
void fl_build_safetensors(fl_bytes *out, const char *header, size_t data);

/* GGUF: u64 length and bytes. */
void fl_gguf_add_text(fl_bytes *out, const char *text);

/* GGUF key-value pairs, counted by the caller. */
void fl_gguf_add_string(fl_bytes *out, const char *key, const char *value);
void fl_gguf_add_u32(fl_bytes *out, const char *key, uint32_t value);
void fl_gguf_add_f32(fl_bytes *out, const char *key, float value);

/* A whole GGUF file of version 3 from its pairs and its tensors. */
typedef struct fl_gguf_build_tensor {
    const char *name;
    uint32_t type;
    size_t rank, shape[4]; /* slowest first, as Hugging Face says it */
    const void *data;
    size_t bytes;
} fl_gguf_build_tensor;

void fl_build_gguf(fl_bytes *out, const fl_bytes *pairs, size_t pair_count,
                   const fl_gguf_build_tensor *tensors, size_t tensor_count, size_t alignment);

/* Writes `bytes` as folder/name; the path is valid until the eighth call from now. */
const char *fl_put_file(const char *folder, const char *name, const fl_bytes *bytes);
const char *fl_put_text(const char *folder, const char *name, const char *text);

#endif
