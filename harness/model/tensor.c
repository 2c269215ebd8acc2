#include "harness/model/tensor.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "harness/model/stored_type.h"

enum { LARGEST_BLOCK = 256 };

const char *fl_dtype_name(fl_dtype type) {
    return fl_stored_type_of_dtype(type)->name;
}
size_t fl_dtype_block_elements(fl_dtype type) {
    return fl_stored_type_of_dtype(type)->block_elements;
}
size_t fl_dtype_block_bytes(fl_dtype type) {
    return fl_stored_type_of_dtype(type)->block_bytes;
}

size_t fl_dtype_row_bytes(fl_dtype type, size_t columns) {
    const fl_stored_type *stored = fl_stored_type_of_dtype(type);
    assert(columns % stored->block_elements == 0);
    return columns / stored->block_elements * stored->block_bytes;
}

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Exact, subnormals included, without float32 subnormal arithmetic (a flush-to-zero mode would lose it). */
static inline float half_to_float(uint16_t half) {
    const uint32_t exponent_mask = 0x7c00u << 13, rebias = 112u << 23;
    uint32_t bits = (uint32_t)(half & 0x7fffu) << 13;
    uint32_t exponent = bits & exponent_mask;
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    bits += rebias;
    if (exponent == exponent_mask) {
        bits += rebias;
    } else if (exponent == 0) {
        float tiny = float_of_bits(bits + (1u << 23)) - float_of_bits(113u << 23);
        memcpy(&bits, &tiny, sizeof bits);
    }
    return float_of_bits(bits | sign);
}

static float load_half(const unsigned char *bytes) {
    uint16_t half;
    memcpy(&half, bytes, sizeof half);
    return half_to_float(half);
}

static void widen_f32(const unsigned char *bytes, size_t blocks, float *out) {
    memcpy(out, bytes, blocks * sizeof *out);
}

static void widen_f16(const unsigned char *bytes, size_t blocks, float *out) {
    for (size_t i = 0; i < blocks; i++) out[i] = load_half(bytes + 2 * i);
}

static void widen_bf16(const unsigned char *bytes, size_t blocks, float *out) {
    for (size_t i = 0; i < blocks; i++) {
        uint16_t upper;
        memcpy(&upper, bytes + 2 * i, sizeof upper);
        out[i] = float_of_bits((uint32_t)upper << 16);
    }
}

/* Q4 and Q5 blocks: a scale, perhaps a minimum, perhaps 32 high bits, then 16 bytes whose low nibbles are
 * elements 0..15 and whose high nibbles are 16..31. value = scale * (code - offset) + minimum. The loops are
 * kept apart and free of conditions so that compilers turn them into vector code. */
static void unpack_nibbles(const unsigned char *restrict codes, int8_t *restrict out) {
    for (int j = 0; j < 16; j++) out[j] = (int8_t)(codes[j] & 15);
    for (int j = 0; j < 16; j++) out[j + 16] = (int8_t)(codes[j] >> 4);
}

static void add_high_bits(uint32_t bits, int8_t *restrict out) {
    for (int j = 0; j < 32; j++) out[j] |= (int8_t)(((bits >> j) & 1u) << 4);
}

static void scale_codes(const int8_t *restrict codes, float scale, int offset, float *restrict out) {
    for (int j = 0; j < 32; j++) out[j] = scale * (float)(codes[j] - offset);
}

static void scale_codes_from(const int8_t *restrict codes, float scale, float minimum, float *restrict out) {
    for (int j = 0; j < 32; j++) out[j] = scale * (float)codes[j] + minimum;
}

static uint32_t load_high_bits(const unsigned char *bytes) {
    uint32_t bits;
    memcpy(&bits, bytes, sizeof bits);
    return bits;
}

static void widen_q4_0(const unsigned char *bytes, size_t blocks, float *out) {
    for (size_t i = 0; i < blocks; i++, bytes += 18, out += 32) {
        int8_t codes[32];
        unpack_nibbles(bytes + 2, codes);
        scale_codes(codes, load_half(bytes), 8, out);
    }
}

static void widen_q4_1(const unsigned char *bytes, size_t blocks, float *out) {
    for (size_t i = 0; i < blocks; i++, bytes += 20, out += 32) {
        int8_t codes[32];
        unpack_nibbles(bytes + 4, codes);
        scale_codes_from(codes, load_half(bytes), load_half(bytes + 2), out);
    }
}

static void widen_q5_0(const unsigned char *bytes, size_t blocks, float *out) {
    for (size_t i = 0; i < blocks; i++, bytes += 22, out += 32) {
        int8_t codes[32];
        unpack_nibbles(bytes + 6, codes);
        add_high_bits(load_high_bits(bytes + 2), codes);
        scale_codes(codes, load_half(bytes), 16, out);
    }
}

static void widen_q5_1(const unsigned char *bytes, size_t blocks, float *out) {
    for (size_t i = 0; i < blocks; i++, bytes += 24, out += 32) {
        int8_t codes[32];
        unpack_nibbles(bytes + 8, codes);
        add_high_bits(load_high_bits(bytes + 4), codes);
        scale_codes_from(codes, load_half(bytes), load_half(bytes + 2), out);
    }
}

static void widen_q8_0(const unsigned char *bytes, size_t blocks, float *out) {
    for (size_t i = 0; i < blocks; i++, bytes += 34, out += 32) {
        int8_t codes[32];
        memcpy(codes, bytes + 2, sizeof codes);
        scale_codes(codes, load_half(bytes), 0, out);
    }
}

/* K-quants: blocks of 256 in parts of 16 or 32, each part with a small integer scale (and minimum) of its own
 * below the block's. The formats are ggml's; products are taken in its order, so that values are equal bit
 * for bit. */

static unsigned low_bits(unsigned char byte, unsigned shift, unsigned bits) {
    return ((unsigned)byte >> shift) & ((1u << bits) - 1u);
}

/* [16] scale and minimum in a byte, [64] codes of two bits, scale, minimum. */
static void widen_q2_k(const unsigned char *bytes, size_t blocks, float *out) {
    for (size_t i = 0; i < blocks; i++, bytes += 84) {
        const unsigned char *scales = bytes, *codes = bytes + 16;
        float scale = load_half(bytes + 80), minimum = load_half(bytes + 82);
        for (int part = 0; part < 16; part++) {
            int half = part / 8, shift = part % 8 / 2 * 2, from = half * 32 + part % 2 * 16;
            float of_part = scale * (float)(scales[part] & 15), least = minimum * (float)(scales[part] >> 4);
            for (int j = 0; j < 16; j++)
                *out++ = of_part * (float)low_bits(codes[from + j], (unsigned)shift, 2) - least;
        }
    }
}

/* [32] high bits, [64] codes of two bits, [12] sixteen scales of six bits, scale. */
static void widen_q3_k(const unsigned char *bytes, size_t blocks, float *out) {
    for (size_t i = 0; i < blocks; i++, bytes += 110) {
        const unsigned char *high = bytes, *codes = bytes + 32, *packed = bytes + 96;
        float scale = load_half(bytes + 108);
        for (int part = 0; part < 16; part++) {
            unsigned low = part < 8 ? packed[part] & 15u : packed[part - 8] >> 4;
            unsigned top = low_bits(packed[8 + part % 4], (unsigned)(part / 4 * 2), 2);
            float of_part = scale * (float)((int)(low | top << 4) - 32);
            int half = part / 8, plane = part / 2, from = part % 2 * 16;
            for (int j = 0; j < 16; j++) {
                int code = (int)low_bits(codes[half * 32 + from + j], (unsigned)(plane % 4 * 2), 2);
                *out++ = of_part * (float)(code - (high[from + j] >> plane & 1 ? 0 : 4));
            }
        }
    }
}

/* Scale and minimum of part 0 .. 7, six bits each, out of twelve bytes. */
static void unpack_part(const unsigned char *packed, int part, unsigned *scale, unsigned *minimum) {
    if (part < 4) {
        *scale = packed[part] & 63u;
        *minimum = packed[part + 4] & 63u;
    } else {
        *scale = (packed[part + 4] & 15u) | (unsigned)(packed[part - 4] >> 6) << 4;
        *minimum = (unsigned)(packed[part + 4] >> 4) | (unsigned)(packed[part] >> 6) << 4;
    }
}

/* scale, minimum, [12] parts, with five bits [32] of the highest, [128] nibbles. */
static void widen_k_nibbles(const unsigned char *bytes, const unsigned char *high, const unsigned char *codes,
                            float *out) {
    float scale = load_half(bytes), minimum = load_half(bytes + 2);
    for (int part = 0; part < 8; part++) {
        unsigned of_part, least;
        unpack_part(bytes + 4, part, &of_part, &least);
        float by = scale * (float)of_part, from = minimum * (float)least;
        for (int j = 0; j < 32; j++) {
            unsigned code = low_bits(codes[part / 2 * 32 + j], part % 2 == 0 ? 0 : 4, 4);
            if (high != NULL) code |= low_bits(high[j], (unsigned)part, 1) << 4;
            *out++ = by * (float)code - from;
        }
    }
}

static void widen_q4_k(const unsigned char *bytes, size_t blocks, float *out) {
    for (size_t i = 0; i < blocks; i++, bytes += 144, out += 256)
        widen_k_nibbles(bytes, NULL, bytes + 16, out);
}

static void widen_q5_k(const unsigned char *bytes, size_t blocks, float *out) {
    for (size_t i = 0; i < blocks; i++, bytes += 176, out += 256)
        widen_k_nibbles(bytes, bytes + 16, bytes + 48, out);
}

/* [128] low nibbles, [64] high pairs of bits, [16] signed scales, scale. */
static void widen_q6_k(const unsigned char *bytes, size_t blocks, float *out) {
    for (size_t i = 0; i < blocks; i++, bytes += 210) {
        const unsigned char *low = bytes, *high = bytes + 128;
        float scale = load_half(bytes + 208);
        for (int j = 0; j < 256; j++) {
            int half = j / 128, plane = j % 128 / 32, within = j % 32;
            int8_t of_part;
            memcpy(&of_part, bytes + 192 + j / 16, 1);
            unsigned code = low_bits(low[half * 64 + plane % 2 * 32 + within], plane < 2 ? 0 : 4, 4) |
                            low_bits(high[half * 32 + within], (unsigned)(plane * 2), 2) << 4;
            *out++ = scale * (float)of_part * (float)((int)code - 32);
        }
    }
}

typedef void (*widen_blocks)(const unsigned char *bytes, size_t blocks, float *out);

static const widen_blocks wideners[FL_DTYPE_COUNT] = {
    [FL_DTYPE_F32] = widen_f32,   [FL_DTYPE_F16] = widen_f16,   [FL_DTYPE_BF16] = widen_bf16,
    [FL_DTYPE_Q4_0] = widen_q4_0, [FL_DTYPE_Q4_1] = widen_q4_1, [FL_DTYPE_Q5_0] = widen_q5_0,
    [FL_DTYPE_Q5_1] = widen_q5_1, [FL_DTYPE_Q8_0] = widen_q8_0, [FL_DTYPE_Q2_K] = widen_q2_k,
    [FL_DTYPE_Q3_K] = widen_q3_k, [FL_DTYPE_Q4_K] = widen_q4_k, [FL_DTYPE_Q5_K] = widen_q5_k,
    [FL_DTYPE_Q6_K] = widen_q6_k,
};

/* Where the converter put index `wanted` of Hugging Face's order: within a head of d, element j of half h is
 * at 2 j + h. */
static size_t stored_index(size_t wanted, size_t total, size_t heads) {
    if (heads == 0) return wanted;
    size_t head_dim = total / heads, half = head_dim / 2;
    size_t head = wanted / head_dim, within = wanted % head_dim;
    return head * head_dim + 2 * (within % half) + within / half;
}

static void widen_permuted_vector(const fl_tensor *tensor, float *out) {
    size_t elements = fl_dtype_block_elements(tensor->type), bytes = fl_dtype_block_bytes(tensor->type);
    assert(elements <= LARGEST_BLOCK);
    for (size_t i = 0; i < tensor->columns; i++) {
        float block[LARGEST_BLOCK];
        size_t from = stored_index(i, tensor->columns, tensor->permuted_heads);
        const unsigned char *data = tensor->data;
        wideners[tensor->type](data + from / elements * bytes, 1, block);
        out[i] = block[from % elements];
    }
}

void fl_tensor_widen_row(const fl_tensor *tensor, size_t row, float *out) {
    assert(row < tensor->rows && tensor->type < FL_DTYPE_COUNT);
    if (tensor->rank == 1 && tensor->permuted_heads > 0) {
        widen_permuted_vector(tensor, out);
        return;
    }
    size_t stored = stored_index(row, tensor->rows, tensor->permuted_heads);
    const unsigned char *data = tensor->data;
    data += stored * fl_dtype_row_bytes(tensor->type, tensor->columns);
    wideners[tensor->type](data, tensor->columns / fl_dtype_block_elements(tensor->type), out);
}

void fl_tensor_widen_rows(const fl_tensor *tensor, size_t first, size_t count, float *out) {
    for (size_t i = 0; i < count; i++) fl_tensor_widen_row(tensor, first + i, out + i * tensor->columns);
}

size_t fl_tensor_bytes(const fl_tensor *tensor) {
    return tensor->rows * fl_dtype_row_bytes(tensor->type, tensor->columns);
}
