/* Stored types: one table of every element type the two file formats know, readable or only listed.
 *
 * The first FL_DTYPE_COUNT rows are the readable ones, in the order of fl_dtype. A type that becomes readable
 * moves up there and gets a widening function in tensor.c. */
#ifndef FL_MODEL_STORED_TYPE_H
#define FL_MODEL_STORED_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/model/tensor.h"

typedef struct fl_stored_type {
    const char *name;      /* as safetensors or ggml spell it */
    size_t block_elements; /* elements and bytes of the smallest unit: {32, 18} for Q4_0, {2, 1} for 4-bit
                              floats */
    size_t block_bytes;
    int gguf_id;      /* ggml type id, or -1: not in GGUF */
    bool safetensors; /* a safetensors dtype */
} fl_stored_type;

/* The row of a name used by safetensors, or NULL when that dtype is unknown. */
const fl_stored_type *fl_stored_type_of_safetensors(const char *name);

/* The row of a ggml type id, or NULL when unknown or removed from the format. */
const fl_stored_type *fl_stored_type_of_gguf(uint32_t id);

const fl_stored_type *fl_stored_type_of_dtype(fl_dtype type);

/* The fl_dtype of a row, or FL_DTYPE_COUNT when it can only be listed. NULL gives FL_DTYPE_COUNT. */
fl_dtype fl_stored_type_dtype(const fl_stored_type *type);

#endif
