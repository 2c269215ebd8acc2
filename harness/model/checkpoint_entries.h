/* What the format readers fill and checkpoint.c serves: entries in file order, then an index by name.
 * Internal to harness/model. */
#ifndef FL_MODEL_CHECKPOINT_ENTRIES_H
#define FL_MODEL_CHECKPOINT_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"
#include "harness/model/checkpoint.h"
#include "harness/model/mapped_file.h"
#include "harness/model/stored_type.h"

typedef struct fl_checkpoint_entries {
    fl_checkpoint_entry *items;
    size_t count, room;
    const fl_checkpoint_entry **by_name; /* [count] once indexed */
} fl_checkpoint_entries;

/* What a file says of one tensor; the texts are copied. */
typedef struct fl_checkpoint_listing {
    const char *name;
    size_t name_bytes;
    const fl_stored_type *type; /* NULL: unknown, then type_name is the file's own word for it */
    const char *type_name;
    size_t rank;
    const size_t *shape; /* slowest first; a rank above FL_TENSOR_MAX_RANK is folded into the slowest and not
                            readable */
    const unsigned char *bytes;
    size_t byte_count;
} fl_checkpoint_listing;

fl_status fl_checkpoint_entries_add(fl_checkpoint_entries *entries, const fl_checkpoint_listing *listing,
                                    fl_error *error);

/* Sorts the index; FL_ERROR_FORMAT naming a tensor listed twice. `path` is named in errors. */
fl_status fl_checkpoint_entries_index(fl_checkpoint_entries *entries, const char *path, fl_error *error);

const fl_checkpoint_entry *fl_checkpoint_entries_find(const fl_checkpoint_entries *entries, const char *name);
void fl_checkpoint_entries_free(fl_checkpoint_entries *entries);

/* True when every byte is a printable one or part of UTF-8: no control bytes, no NUL. */
bool fl_checkpoint_name_is_clean(const char *name, size_t bytes);
bool fl_checkpoint_name_ends_with(const char *name, const char *suffix);

#endif
