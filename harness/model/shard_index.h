/* Shard index (model.safetensors.index.json): which shard holds which tensor. Internal to harness/model. */
#ifndef FL_MODEL_SHARD_INDEX_H
#define FL_MODEL_SHARD_INDEX_H

#include <stddef.h>

#include "harness/base/status.h"

typedef struct fl_shard_assignment {
    char *tensor;
    size_t shard;
} fl_shard_assignment;

typedef struct fl_shard_index {
    char **shards; /* [shard_count] paths beside the index, sorted */
    size_t shard_count;
    fl_shard_assignment *assignments; /* [count], in the order of the file */
    size_t count;
} fl_shard_index;

/* Shards are named by plain file names: a separator, ".." or an absolute path is refused. Whether they exist
 * is not looked at. */
fl_status fl_shard_index_read(const char *path, fl_shard_index *out, fl_error *error);
void fl_shard_index_free(fl_shard_index *index);

#endif
