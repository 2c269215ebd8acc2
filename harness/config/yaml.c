/* The YAML reader: libyaml's events into a tree, with everything refused that a config has no use for. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "harness/base/input_file.h"
#include "harness/base/memory.h"
#include "harness/config/node_build.h"
#include "harness/config/scalar.h"

typedef struct reader {
    yaml_parser_t parser;
    const char *text;
    size_t bytes;
    const char *file;
    size_t column_shift;
    fl_node *root;
    fl_node *open[FL_NODE_MAX_DEPTH]; /* collections being read, outermost first */
    size_t depth, node_count;
    char *key; /* of the mapping being read, waiting for its value */
    size_t key_line, key_column;
    bool document_seen;
} reader;

static fl_place place_at(const reader *r, yaml_mark_t mark) {
    size_t shift = mark.line == 0 ? r->column_shift : 0;
    return (fl_place){r->file, mark.line + 1, mark.column + 1 + shift};
}

static fl_status refuse(const reader *r, yaml_mark_t mark, fl_error *error, const char *message) {
    fl_place place = place_at(r, mark);
    return fl_error_set(error, FL_ERROR_FORMAT, "%s:%zu:%zu: %s", place.file, place.line, place.column,
                        message);
}

/* Line and column (in characters) of a byte offset. */
static yaml_mark_t mark_of_offset(const reader *r, size_t offset) {
    yaml_mark_t mark = {offset, 0, 0};
    for (size_t i = 0; i < offset && i < r->bytes; i++) {
        unsigned char byte = (unsigned char)r->text[i];
        if (byte == '\n') {
            mark.line++;
            mark.column = 0;
        } else if ((byte & 0xc0) != 0x80) {
            mark.column++;
        }
    }
    return mark;
}

static fl_status refuse_syntax(const reader *r, fl_error *error) {
    const yaml_parser_t *parser = &r->parser;
    const char *problem = parser->problem != NULL ? parser->problem : "not YAML";
    if (parser->error == YAML_MEMORY_ERROR)
        return fl_error_set(error, FL_ERROR_MEMORY, "%s: out of memory", r->file);
    if (parser->error == YAML_READER_ERROR) {
        char message[256];
        const char *kind = strstr(problem, "control") != NULL ? "" : " (the file must be UTF-8)";
        snprintf(message, sizeof message, "%s%s", problem, kind);
        return refuse(r, mark_of_offset(r, parser->problem_offset), error, message);
    }
    yaml_mark_t mark = parser->problem_mark;
    char message[512];
    bool tab = mark.index < r->bytes && memchr(r->text + mark.index, '\t', 1) != NULL;
    if (tab) {
        snprintf(message, sizeof message, "tabs cannot indent YAML; use spaces");
    } else if (parser->context != NULL) {
        snprintf(message, sizeof message, "%s %s (begun on line %zu)", problem, parser->context,
                 parser->context_mark.line + 1);
    } else {
        snprintf(message, sizeof message, "%s", problem);
    }
    return refuse(r, mark, error, message);
}

/* Hands a finished or just opened node to its parent, which owns it from here. */
static fl_status attach(reader *r, fl_node *node, fl_error *error) {
    if (++r->node_count > FL_NODE_MAX_COUNT)
        return fl_error_set(error, FL_ERROR_FORMAT, "%s:%zu:%zu: more than %d values; this is no config file",
                            node->file, node->line, node->column, FL_NODE_MAX_COUNT);
    if (r->depth == 0) {
        r->root = node;
        return FL_OK;
    }
    fl_node *parent = r->open[r->depth - 1];
    if (parent->kind == FL_NODE_MAPPING) {
        node->key = r->key;
        node->key_line = r->key_line;
        node->key_column = r->key_column;
        r->key = NULL;
    }
    return fl_node_append(parent, node, error);
}

static bool waits_for_key(const reader *r) {
    return r->depth > 0 && r->open[r->depth - 1]->kind == FL_NODE_MAPPING && r->key == NULL;
}

static fl_status check_tag(const reader *r, const yaml_char_t *tag, yaml_mark_t mark, bool scalar,
                           fl_error *error) {
    if (tag == NULL || (scalar && strcmp((const char *)tag, YAML_STR_TAG) == 0)) return FL_OK;
    char message[256];
    snprintf(message, sizeof message, "tag '%.100s' is not allowed (only !!str is)", (const char *)tag);
    return refuse(r, mark, error, message);
}

static fl_status take_key(reader *r, const yaml_event_t *event, fl_error *error) {
    const char *text = (const char *)event->data.scalar.value;
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (plain && strcmp(text, "<<") == 0)
        return refuse(r, event->start_mark, error, "merge keys (<<) are not allowed");
    if (text[0] == '\0') return refuse(r, event->start_mark, error, "a key is empty");
    fl_place place = place_at(r, event->start_mark);
    r->key_line = place.line;
    r->key_column = place.column;
    return fl_memory_copy_string(&r->key, text, error);
}

static fl_status take_scalar(reader *r, const yaml_event_t *event, fl_error *error) {
    const char *text = (const char *)event->data.scalar.value;
    const yaml_char_t *tag = event->data.scalar.tag;
    FL_TRY(check_tag(r, tag, event->start_mark, true, error));
    if (event->data.scalar.anchor != NULL)
        return refuse(r, event->start_mark, error, "anchors (&) are not allowed");
    if (strlen(text) != event->data.scalar.length)
        return refuse(r, event->start_mark, error, "text holds a NUL character");
    if (waits_for_key(r)) return take_key(r, event, error);

    bool quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE || tag != NULL;
    bool null = !quoted && fl_scalar_is_null(text);
    fl_place place = place_at(r, event->start_mark);
    if (text[0] == '\0' && !quoted && r->key != NULL) {
        place.line = r->key_line;
        place.column = r->key_column;
    }
    fl_node *node = NULL;
    FL_TRY(fl_node_create(null ? FL_NODE_NULL : FL_NODE_SCALAR, place, &node, error));
    node->quoted = quoted;
    fl_status status = null ? FL_OK : fl_memory_copy_string(&node->text, text, error);
    if (status == FL_OK) status = attach(r, node, error);
    if (status != FL_OK) fl_node_destroy(node);
    return status;
}

static fl_status open_collection(reader *r, fl_node_kind kind, const yaml_event_t *event,
                                 const yaml_char_t *anchor, const yaml_char_t *tag, fl_error *error) {
    FL_TRY(check_tag(r, tag, event->start_mark, false, error));
    if (anchor != NULL) return refuse(r, event->start_mark, error, "anchors (&) are not allowed");
    if (waits_for_key(r))
        return refuse(r, event->start_mark, error, "a key must be a single word, not a list or mapping");
    if (r->depth == FL_NODE_MAX_DEPTH)
        return refuse(r, event->start_mark, error, "nested too deeply (more than 64 levels)");
    fl_node *node = NULL;
    FL_TRY(fl_node_create(kind, place_at(r, event->start_mark), &node, error));
    fl_status status = attach(r, node, error);
    if (status != FL_OK) {
        fl_node_destroy(node);
        return status;
    }
    r->open[r->depth++] = node;
    return FL_OK;
}

static int order_keys(const void *a, const void *b) {
    const fl_node *x = *(fl_node *const *)a, *y = *(fl_node *const *)b;
    int order = strcmp(x->key, y->key);
    if (order != 0) return order;
    if (x->key_line != y->key_line) return x->key_line < y->key_line ? -1 : 1;
    return x->key_column < y->key_column ? -1 : x->key_column > y->key_column;
}

/* Sorts a copy of the list, so that a hostile file with a million keys does not cost a million squared
 * comparisons. */
static fl_status check_duplicates(const reader *r, const fl_node *mapping, fl_error *error) {
    if (mapping->count < 2) return FL_OK;
    fl_node **sorted = NULL;
    FL_TRY(FL_ALLOCATE(&sorted, mapping->count, error));
    memcpy(sorted, mapping->children, mapping->count * sizeof *sorted);
    qsort(sorted, mapping->count, sizeof *sorted, order_keys);
    const fl_node *first = NULL, *second = NULL;
    for (size_t i = 1; i < mapping->count; i++) {
        if (strcmp(sorted[i - 1]->key, sorted[i]->key) != 0) continue;
        bool earlier =
            second == NULL || sorted[i]->key_line < second->key_line ||
            (sorted[i]->key_line == second->key_line && sorted[i]->key_column < second->key_column);
        if (!earlier) continue;
        first = sorted[i - 1];
        second = sorted[i];
    }
    fl_status status = FL_OK;
    if (second != NULL) {
        status = fl_error_set(error, FL_ERROR_FORMAT,
                              "%s:%zu:%zu: key '%.200s' is given twice (first on line %zu)", r->file,
                              second->key_line, second->key_column, second->key, first->key_line);
    }
    fl_memory_free(sorted);
    return status;
}

static fl_status take_event(reader *r, const yaml_event_t *event, fl_error *error) {
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (r->document_seen)
            return refuse(r, event->start_mark, error, "a second document begins; one is allowed");
        r->document_seen = true;
        return FL_OK;
    case YAML_ALIAS_EVENT:
        return refuse(r, event->start_mark, error, "aliases (*) are not allowed");
    case YAML_SCALAR_EVENT:
        return take_scalar(r, event, error);
    case YAML_SEQUENCE_START_EVENT:
        return open_collection(r, FL_NODE_SEQUENCE, event, event->data.sequence_start.anchor,
                               event->data.sequence_start.tag, error);
    case YAML_MAPPING_START_EVENT:
        return open_collection(r, FL_NODE_MAPPING, event, event->data.mapping_start.anchor,
                               event->data.mapping_start.tag, error);
    case YAML_MAPPING_END_EVENT:
        return check_duplicates(r, r->open[--r->depth], error);
    case YAML_SEQUENCE_END_EVENT:
        r->depth--;
        return FL_OK;
    default:
        return FL_OK;
    }
}

static fl_status read_events(reader *r, fl_error *error) {
    for (;;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&r->parser, &event)) return refuse_syntax(r, error);
        yaml_event_type_t type = event.type;
        fl_status status = take_event(r, &event, error);
        yaml_event_delete(&event);
        if (status != FL_OK || type == YAML_STREAM_END_EVENT) return status;
    }
}

fl_status fl_yaml_parse(const char *text, size_t bytes, const char *file, size_t column_shift, fl_node **out,
                        fl_error *error) {
    *out = NULL;
    if (bytes > FL_YAML_MAX_BYTES) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: larger than %d MiB; this is no config file", file,
                            FL_YAML_MAX_BYTES >> 20);
    }
    if (bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) { /* libyaml trips over the mark */
        text += 3;
        bytes -= 3;
    }
    reader r = {.text = text, .bytes = bytes, .file = file, .column_shift = column_shift};
    if (!yaml_parser_initialize(&r.parser))
        return fl_error_set(error, FL_ERROR_MEMORY, "%s: out of memory", file);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, bytes);
    fl_status status = read_events(&r, error);
    if (status == FL_OK && r.root == NULL)
        status = fl_node_create(FL_NODE_NULL, (fl_place){file, 1, 1}, &r.root, error);
    yaml_parser_delete(&r.parser);
    fl_memory_free(r.key);
    if (status != FL_OK) {
        fl_node_destroy(r.root);
        return status;
    }
    *out = r.root;
    return FL_OK;
}

fl_status fl_document_parse_text(const char *text, size_t bytes, const char *file_name, fl_document **out,
                                 fl_error *error) {
    *out = NULL;
    fl_document *document = NULL;
    FL_TRY(fl_document_create(file_name, &document, error));
    fl_node *root = NULL;
    fl_status status = fl_yaml_parse(text, bytes, document->files[0], 0, &root, error);
    if (status != FL_OK) {
        fl_document_destroy(document);
        return status;
    }
    fl_node_destroy(document->root);
    document->root = root;
    *out = document;
    return FL_OK;
}

fl_status fl_document_parse_file(const char *path, fl_document **out, fl_error *error) {
    *out = NULL;
    char *text = NULL;
    size_t bytes = 0;
    FL_TRY(fl_input_read(path, FL_YAML_MAX_BYTES, &text, &bytes, error));
    fl_status status = fl_document_parse_text(text, bytes, path, out, error);
    fl_memory_free(text);
    return status;
}
