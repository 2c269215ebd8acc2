/* Self-generated text: `text: {self_generated: {...}}` and the same under `train`: text sampled from the frozen model itself,
 * for whoever has no other. This is what is asked for; sampling is done above. */
#ifndef FL_CONFIG_SELF_GENERATED_H
#define FL_CONFIG_SELF_GENERATED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"
#include "harness/config/node.h"
#include "harness/config/options.h"

typedef struct fl_self_generated {
    const fl_node *node; /* the mapping; NULL: not asked for */
    size_t tokens;       /* in all, rounded up to whole sequences */
    double temperature, top_p;
    size_t top_k;
    uint64_t seed;
} fl_self_generated;

/* What a text is for. The seeds' defaults differ (1 and 2), so that the two texts do. */
typedef enum fl_self_generated_use { FL_SELF_GENERATED_TEXT = 0, FL_SELF_GENERATED_TRAIN } fl_self_generated_use;

/* Binds out->node; nothing when that is NULL. Errors carry file:line:column. */
fl_status fl_self_generated_bind(fl_self_generated *out, fl_self_generated_use use, fl_resolved *resolved,
                                 fl_error *error);
const fl_option_section *fl_self_generated_sections(size_t *count);
bool fl_self_generated_same(const fl_self_generated *a, const fl_self_generated *b);

#endif
