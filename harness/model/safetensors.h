/* safetensors: 8-byte little-endian header length, JSON header, tensor data. The format is
 * https://github.com/huggingface/safetensors; every rule it states is checked, and duplicate keys, which it
 * forbids and its reference reader lets pass, are refused. Internal to harness/model: use checkpoint.h. */
#ifndef FL_MODEL_SAFETENSORS_H
#define FL_MODEL_SAFETENSORS_H

#include <stddef.h>

#include "harness/base/status.h"
#include "harness/model/checkpoint_entries.h"
#include "harness/model/mapped_file.h"

enum { FL_SAFETENSORS_MAX_HEADER = 100000000 };

/* String metadata, sorted as in the file. */
typedef struct fl_safetensors_metadata {
    char **keys, **values; /* [count], owned */
    size_t count;
} fl_safetensors_metadata;

/* Appends the file's tensors in the order of their offsets. metadata may be NULL. */
fl_status fl_safetensors_list(const fl_mapped_file *file, fl_checkpoint_entries *entries,
                              fl_safetensors_metadata *metadata, fl_error *error);

void fl_safetensors_metadata_free(fl_safetensors_metadata *metadata);

#endif
