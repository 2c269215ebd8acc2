#include "tests/support/checkpoint_builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "tests/support/fixture.h"

void fl_bytes_add(fl_bytes *bytes, const void *data, size_t count) {
    if (bytes->count + count > bytes->room) {
        size_t room = 2 * (bytes->count + count) + 64;
        assert_int_equal(FL_RESIZE(&bytes->data, bytes->room, room, NULL), FL_OK);
        bytes->room = room;
    }
    if (count > 0) memcpy(bytes->data + bytes->count, data, count);
    bytes->count += count;
}

void fl_bytes_add_zeros(fl_bytes *bytes, size_t count) {
    static const unsigned char zeros[64];
    for (; count > sizeof zeros; count -= sizeof zeros) fl_bytes_add(bytes, zeros, sizeof zeros);
    fl_bytes_add(bytes, zeros, count);
}

void fl_bytes_add_u8(fl_bytes *bytes, uint8_t value) {
    fl_bytes_add(bytes, &value, sizeof value);
}
void fl_bytes_add_u16(fl_bytes *bytes, uint16_t value) {
    fl_bytes_add(bytes, &value, sizeof value);
}
void fl_bytes_add_u32(fl_bytes *bytes, uint32_t value) {
    fl_bytes_add(bytes, &value, sizeof value);
}
void fl_bytes_add_u64(fl_bytes *bytes, uint64_t value) {
    fl_bytes_add(bytes, &value, sizeof value);
}
void fl_bytes_add_f32(fl_bytes *bytes, float value) {
    fl_bytes_add(bytes, &value, sizeof value);
}
void fl_bytes_add_f64(fl_bytes *bytes, double value) {
    fl_bytes_add(bytes, &value, sizeof value);
}

void fl_bytes_pad(fl_bytes *bytes, size_t alignment) {
    fl_bytes_add_zeros(bytes, (alignment - bytes->count % alignment) % alignment);
}

void fl_bytes_free(fl_bytes *bytes) {
    fl_memory_free(bytes->data);
    memset(bytes, 0, sizeof *bytes);
}

void fl_build_safetensors(fl_bytes *out, const char *header, size_t data) {
    fl_bytes_add_u64(out, strlen(header));
    fl_bytes_add(out, header, strlen(header));
    fl_bytes_add_zeros(out, data);
}

void fl_gguf_add_text(fl_bytes *out, const char *text) {
    fl_bytes_add_u64(out, strlen(text));
    fl_bytes_add(out, text, strlen(text));
}

void fl_gguf_add_string(fl_bytes *out, const char *key, const char *value) {
    fl_gguf_add_text(out, key);
    fl_bytes_add_u32(out, 8);
    fl_gguf_add_text(out, value);
}

void fl_gguf_add_u32(fl_bytes *out, const char *key, uint32_t value) {
    fl_gguf_add_text(out, key);
    fl_bytes_add_u32(out, 4);
    fl_bytes_add_u32(out, value);
}

void fl_gguf_add_f32(fl_bytes *out, const char *key, float value) {
    fl_gguf_add_text(out, key);
    fl_bytes_add_u32(out, 6);
    fl_bytes_add_f32(out, value);
}

void fl_build_gguf(fl_bytes *out, const fl_bytes *pairs, size_t pair_count,
                   const fl_gguf_build_tensor *tensors, size_t tensor_count, size_t alignment) {
    fl_bytes_add(out, "GGUF", 4);
    fl_bytes_add_u32(out, 3);
    fl_bytes_add_u64(out, tensor_count);
    fl_bytes_add_u64(out, pair_count);
    fl_bytes_add(out, pairs->data, pairs->count);
    uint64_t offset = 0;
    for (size_t i = 0; i < tensor_count; i++) {
        const fl_gguf_build_tensor *tensor = &tensors[i];
        fl_gguf_add_text(out, tensor->name);
        fl_bytes_add_u32(out, (uint32_t)tensor->rank);
        for (size_t axis = tensor->rank; axis-- > 0;) fl_bytes_add_u64(out, tensor->shape[axis]);
        fl_bytes_add_u32(out, tensor->type);
        fl_bytes_add_u64(out, offset);
        offset += (tensor->bytes + alignment - 1) / alignment * alignment;
    }
    fl_bytes_pad(out, alignment);
    for (size_t i = 0; i < tensor_count; i++) {
        fl_bytes_add(out, tensors[i].data, tensors[i].bytes);
        fl_bytes_pad(out, alignment);
    }
}

const char *fl_put_file(const char *folder, const char *name, const fl_bytes *bytes) {
    enum { BUFFERS = 8 };
    static char paths[BUFFERS][1024];
    static int next;
    char *path = paths[next++ % BUFFERS];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    fl_write_file(path, bytes->data, bytes->count);
    return path;
}

const char *fl_put_text(const char *folder, const char *name, const char *text) {
    fl_bytes bytes = {0};
    fl_bytes_add(&bytes, text, strlen(text));
    const char *path = fl_put_file(folder, name, &bytes);
    fl_bytes_free(&bytes);
    return path;
}
