/* Write layout: which parts a variant's writes have, and how wide they are (harness/compute/write_rows.h). */
#ifndef FL_ATTN_VARIANTS_WRITE_LAYOUT_H
#define FL_ATTN_VARIANTS_WRITE_LAYOUT_H

#include <stddef.h>

#include "attn_variants/variant.h"
#include "harness/compute/write_rows.h"

/* value_dim with the normaliser's channel. */
fl_write_layout fl_write_layout_of(const fl_rule *rule, const fl_variant *variant, size_t heads, size_t micro_steps,
                                   size_t key_dim, size_t value_dim);

#endif
