/* Tensor: a read-only view of weights in their stored type, usually inside a mapped checkpoint.
 *
 * Linear weights are [rows = out][columns = in], row-major, as Hugging Face stores them. Quantised types are
 * blocks of consecutive columns of one row. GGUF files of the Llama family store query/key rows permuted for
 * interleaved RoPE; `permuted_heads` records that, and every reader below undoes it, so users of fl_tensor
 * see Hugging Face's order. */
#ifndef FL_MODEL_TENSOR_H
#define FL_MODEL_TENSOR_H

#include <stddef.h>

#include "harness/base/status.h"

typedef enum fl_dtype {
    FL_DTYPE_F32 = 0,
    FL_DTYPE_F16,
    FL_DTYPE_BF16,
    FL_DTYPE_Q4_0,
    FL_DTYPE_Q4_1,
    FL_DTYPE_Q5_0,
    FL_DTYPE_Q5_1,
    FL_DTYPE_Q8_0,
    FL_DTYPE_Q2_K,
    FL_DTYPE_Q3_K,
    FL_DTYPE_Q4_K,
    FL_DTYPE_Q5_K,
    FL_DTYPE_Q6_K,
    FL_DTYPE_COUNT
} fl_dtype;

enum { FL_TENSOR_MAX_RANK = 4 };

typedef struct fl_tensor {
    const void
        *data; /* NULL: this tensor is absent. Borrowed from the checkpoint; not necessarily aligned. */
    fl_dtype type;
    size_t rank;                      /* 0..4 */
    size_t shape[FL_TENSOR_MAX_RANK]; /* slowest first */
    size_t rows, columns;             /* rank 2: shape; rank 1: rows 1, columns shape[0] */
    size_t permuted_heads;            /* 0, or the number of heads whose rows are stored interleaved */
    const char *name;                 /* as in the file, for messages; owned by the checkpoint */
} fl_tensor;

/* Name ("Q4_1"), block length in elements and in bytes of a type. */
const char *fl_dtype_name(fl_dtype type);
size_t fl_dtype_block_elements(fl_dtype type);
size_t fl_dtype_block_bytes(fl_dtype type);

/* Bytes of `columns` consecutive elements of one row. columns must be a multiple of the block length. */
size_t fl_dtype_row_bytes(fl_dtype type, size_t columns);

/* out[columns] = row `row` in float32, exactly the value the stored type means. */
void fl_tensor_widen_row(const fl_tensor *tensor, size_t row, float *out);

/* out[count][columns] = rows first .. first + count - 1. */
void fl_tensor_widen_rows(const fl_tensor *tensor, size_t first, size_t count, float *out);

/* Bytes of the whole tensor as stored. */
size_t fl_tensor_bytes(const fl_tensor *tensor);

#endif
