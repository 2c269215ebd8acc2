/* How trees of nodes are made: shared by the YAML reader and the tree operations, not for the floors above.
 */
#ifndef FL_CONFIG_NODE_BUILD_H
#define FL_CONFIG_NODE_BUILD_H

#include "harness/base/status.h"
#include "harness/config/node.h"

struct fl_document {
    fl_node *root;
    size_t file_count;
    char **files; /* the names that nodes point to */
};

typedef struct fl_place {
    const char *file; /* owned by the document */
    size_t line, column;
} fl_place;

/* An empty document: a null root. */
fl_status fl_document_create(const char *file_name, fl_document **out, fl_error *error);
/* *out = the document's own copy of a file name. */
fl_status fl_document_own_file(fl_document *document, const char *name, const char **out, fl_error *error);

fl_status fl_node_create(fl_node_kind kind, fl_place place, fl_node **out, fl_error *error);
/* Deep; NULL is fine. */
void fl_node_destroy(fl_node *node);
/* Deep copy into `document`; no deeper than `levels`. */
fl_status fl_node_copy(const fl_node *node, fl_document *document, size_t levels, fl_node **out,
                       fl_error *error);
/* The parent owns the child after success. */
fl_status fl_node_append(fl_node *parent, fl_node *child, fl_error *error);
fl_status fl_node_set_key(fl_node *node, const char *key, size_t line, size_t column, fl_error *error);

/* Parses one value for `document`. Columns of line 1 are shifted by `column_shift`. */
fl_status fl_yaml_parse(const char *text, size_t bytes, const char *file, size_t column_shift, fl_node **out,
                        fl_error *error);

#endif
