/* Expansion: the `sweep` mapping of a config into cells (see experiment.h for its keys). */
#ifndef FL_CONFIG_EXPANSION_H
#define FL_CONFIG_EXPANSION_H

#include <stddef.h>

#include "harness/base/status.h"
#include "harness/config/cell_label.h"
#include "harness/config/node.h"
#include "harness/config/options.h"

/* What keeps a small file from filling the memory or taking hours: cells of a sweep, different keys that it sets, and keys of
 * one mapping of the file (they are looked up one after the other). More is an error that names the place. */
enum { FL_SWEEP_MAX_CELLS = 10000, FL_SWEEP_MAX_KEYS = 256, FL_SWEEP_MAX_MAPPING = 1024 };

typedef struct fl_cell {
    fl_document *document; /* without `sweep` */
    char *label;           /* "variant.rule=kda train.seed=2" */
    char **own_keys;       /* [own_key_count] keys that an entry of sweep.list or a place of sweep.zip sets for this cell */
    size_t own_key_count;
    fl_cell_axes axes;     /* the same as settings with names */
} fl_cell;

typedef struct fl_expansion {
    size_t count;
    fl_cell *cells;
    size_t excluded;
} fl_expansion;

/* `overrides` ("key=value") are applied first and win over the sweep. A document without `sweep` is one cell.
 */
fl_status fl_expansion_create(const fl_document *document, const char *const *overrides,
                              size_t override_count, fl_expansion **out, fl_error *error);
/* The keys of `sweep`. */
const fl_option_section *fl_expansion_sections(size_t *count);
void fl_expansion_destroy(fl_expansion *expansion);

#endif
