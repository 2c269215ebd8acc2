/* Node: a parsed YAML document as a tree in which every node remembers its place.
 *
 * Strict YAML 1.2 core (libyaml underneath): one document; duplicate keys, anchors/aliases/merge keys, non-scalar keys,
 * tags other than !!str and bad UTF-8 are errors with file:line:column. Scalars stay text until an option table types them,
 * so 1e-3 is a number, `no` and `on` are words, 010 is refused as a number.
 *
 * Limits: a file of FL_YAML_MAX_BYTES, FL_NODE_MAX_DEPTH levels of nesting, FL_NODE_MAX_COUNT nodes. Faults of the YAML itself are FL_ERROR_FORMAT;
 * what the tree makes no sense of is FL_ERROR_ARGUMENT. */
#ifndef FL_CONFIG_NODE_H
#define FL_CONFIG_NODE_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"

enum { FL_NODE_MAX_DEPTH = 64, FL_YAML_MAX_BYTES = 8 << 20, FL_NODE_MAX_COUNT = 250000 };

typedef enum fl_node_kind { FL_NODE_NULL = 0, FL_NODE_SCALAR, FL_NODE_SEQUENCE, FL_NODE_MAPPING } fl_node_kind;

typedef struct fl_node fl_node;
struct fl_node {
    fl_node_kind kind;
    char *text;        /* scalar */
    bool quoted;       /* scalar written in quotes: always a string */
    char *key;         /* when this node is a mapping's value */
    size_t count;      /* children of a sequence or mapping, in file order */
    fl_node **children;
    const char *file;  /* file name, or "command line"; owned by the document */
    size_t line, column; /* from 1, of the value; the key's for an empty value */
    size_t key_line, key_column;
};

typedef struct fl_document fl_document; /* owns its nodes */

fl_status fl_document_parse_file(const char *path, fl_document **out, fl_error *error);
fl_status fl_document_parse_text(const char *text, size_t bytes, const char *file_name, fl_document **out,
                                 fl_error *error);
fl_status fl_document_copy(const fl_document *document, fl_document **out, fl_error *error);
void fl_document_destroy(fl_document *document);
fl_node *fl_document_root(const fl_document *document);

/* "a.b.c=value" (value is YAML: scalars, [lists], {maps}); creates mappings on the way, replaces what is there. List
 * elements by number: tasks.0.limit=5. What follows sweep.grid. or sweep.zip. is one key, dots and all. Nodes made this way say file "command line" and column in the argument. */
fl_status fl_document_override(fl_document *document, const char *assignment, fl_error *error);
/* Same with the value given as a node (copied): what sweep expansion does. */
fl_status fl_document_set(fl_document *document, const char *dotted_path, const fl_node *value, fl_error *error);
/* Nothing happens when the path is not there. */
fl_status fl_document_remove(fl_document *document, const char *dotted_path, fl_error *error);

const fl_node *fl_node_get(const fl_node *mapping, const char *key); /* NULL when absent or not a mapping */

/* The node a dotted path leads to ("variant.gate.source", "tasks.0.name"), or NULL. */
const fl_node *fl_node_find(const fl_node *root, const char *dotted_path);

/* Canonical YAML on one line: mapping keys sorted, numbers normalised (1e-3 and 0.001 are the same), strings quoted where
 * they must be. Equal texts mean equal values. *text is an fl_memory block. node may be NULL ("null"). */
fl_status fl_node_text(const fl_node *node, char **text, fl_error *error);

/* "file:line:column: " + message, as an fl_error of FL_ERROR_ARGUMENT. node may be NULL (no place is named then). */
fl_status fl_node_error(const fl_node *node, fl_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "file:line:column: what" in front of an error that lies in what the node names (a file that is not there), so that
 * the user sees where it is written. Nothing for FL_OK, an interrupt, a full disk, lack of memory, or node NULL. Returns
 * `status`. */
fl_status fl_node_place_error(const fl_node *node, const char *what, fl_status status, fl_error *error);

#endif
