/* Axis name: what a value of a swept key is called in tables, pictures and file names of cells.
 *
 * A value is a list of leaves, dotted keys with their texts: one for a scalar or a list, several for a mapping, none for
 * null. Names are as short as they can be and still tell the values of one axis apart:
 *   variant.rule: kda                               "kda"
 *   variant.window: 56                              "window 56"
 *   variant.cache: {budget: 32, route: recency}     "cache 32", and "cache 32 recency" beside another route
 *   train: {objective: layer_mse, steps: 10, ...}   "layer_mse", and "layer_mse steps 10" beside another number of steps
 *   train: null, cache: {budget: 0}, softmax_layers: []    ""
 *   model.path: models/smollm2-135m.gguf            "smollm2-135m"
 * A mapping is told by its head (objective, kernel, budget, source, ...), then by what differs among the values with the
 * same head. */
#ifndef FL_CONFIG_AXIS_NAME_H
#define FL_CONFIG_AXIS_NAME_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"
#include "harness/config/node.h"

typedef struct fl_axis_leaf {
    char *key, *text; /* owned */
} fl_axis_leaf;

typedef struct fl_axis_value {
    size_t count;
    fl_axis_leaf *leaves; /* in key order of the source */
} fl_axis_value;

fl_status fl_axis_value_add(fl_axis_value *value, const char *key, const char *text, fl_error *error);
/* Leaves of `node` (NULL: none), which is the value of `key`. */
fl_status fl_axis_value_read(const char *key, const fl_node *node, fl_axis_value *out, fl_error *error);
/* The same from canonical YAML (fl_node_text). */
fl_status fl_axis_value_parse(const char *key, const char *text, fl_axis_value *out, fl_error *error);
void fl_axis_value_release(fl_axis_value *value);

/* The name of values[index] among the `count` values of the axis `key`; "" for what is off. *out = fl_memory block. */
fl_status fl_axis_name(const char *key, const fl_axis_value *values, size_t count, size_t index, char **out,
                       fl_error *error);
/* The name of a value on its own, nothing left out: "no cache", whole paths, every leaf of a mapping. */
fl_status fl_axis_name_whole(const char *key, const fl_axis_value *value, char **out, fl_error *error);

/* Whether `key` is `prefix` or lies in it. */
bool fl_axis_is_under(const char *key, const char *prefix);

#endif
