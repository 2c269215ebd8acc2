/* Write layout: which parts a variant's writes have, and how wide they are (harness/compute/write_rows.h); and what operations are told
 * of a rule (harness/compute/rule_rows.h). */
#ifndef FL_ATTN_VARIANTS_WRITE_LAYOUT_H
#define FL_ATTN_VARIANTS_WRITE_LAYOUT_H

#include <stddef.h>

#include "attn_variants/variant.h"
#include "harness/compute/write_rows.h"

/* value_dim with the normaliser's channel. */
fl_write_layout fl_write_layout_of(const fl_rule *rule, const fl_variant *variant, size_t heads, size_t micro_steps,
                                   size_t key_dim, size_t value_dim);

/* The rule in one layer of a network, without parameters (parameter_count is set): those are the caller's to fill in. */
fl_rule_layer fl_rule_layer_of(const fl_rule *rule, const void *options, size_t layer, size_t layers, size_t heads,
                               size_t head_dim);

#endif
