/* Cell label: the one name of a cell, from the declared axes of its sweep.
 *
 * `plan` and `run` make labels before there are run files, everything under analysis/ after, from what the run file keeps
 * of the axes (/sweep): the same sweep gives the same labels. A label is the rule, then the exact set (sinks + window), then
 * the other axes in the order of the config, what is off or does not vary left out: "kda, 8 + 56, conv 4, layer_mse". A
 * choice that the user named (sweep.labels, `label:` in sweep.list) is called that. */
#ifndef FL_CONFIG_CELL_LABEL_H
#define FL_CONFIG_CELL_LABEL_H

#include <stddef.h>

#include "harness/base/status.h"
#include "harness/config/axis_name.h"

/* One swept key of a cell. Keys that were walked together (sweep.zip, sweep.list) have one `axis`. */
typedef struct fl_cell_setting {
    size_t axis;
    char *key;   /* dotted */
    char *value; /* canonical YAML */
    char *name;  /* of the value (axis_name.h); "" when there is nothing to say */
    char *label; /* of the choice, as the user wrote it; "" without */
} fl_cell_setting;

/* The settings of a cell, by axis in the order of the config. Only keys that take several values in the sweep, and those of
 * choices with a label, are settings. */
typedef struct fl_cell_axes {
    size_t count;
    fl_cell_setting *items; /* owned, as their texts */
} fl_cell_axes;

fl_status fl_cell_axes_add(fl_cell_axes *axes, size_t axis, const char *key, const char *value, const char *name,
                           const char *label, fl_error *error);
fl_status fl_cell_axes_copy(const fl_cell_axes *axes, fl_cell_axes *out, fl_error *error);
/* NULL when the key is no setting. */
const fl_cell_setting *fl_cell_axes_find(const fl_cell_axes *axes, const char *key);
/* Takes the values of `key`, and of what lies in it, out of a cell that has no use for them: null, without a name. */
fl_status fl_cell_axes_clear(fl_cell_axes *axes, const char *key, fl_error *error);
void fl_cell_axes_release(fl_cell_axes *axes);

/* What a label is made from. All borrowed. */
typedef struct fl_cell_label_source {
    const fl_cell_axes *axes;
    const char *rule;            /* NULL: not known */
    const char *experiment;      /* its name */
    const char *id;              /* run id, or NULL before it is known */
    const fl_axis_value *config; /* every key of the configuration, or NULL; asked when the axes do not tell two cells apart */
    bool without_seeds;          /* variant.seed and train.seed are left out */
} fl_cell_label_source;

/* labels[i] = an fl_memory block, unique within the set, or NULLs on failure. Cells that the short form does not tell apart
 * are told by what it leaves out, then by at most three configuration keys, by the experiment, and at last by a short id. */
fl_status fl_cell_label_make(const fl_cell_label_source *cells, size_t count, char **labels, fl_error *error);

#endif
