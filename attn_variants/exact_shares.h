/* Exact shares: which of several variants, worked on side by side on the same frozen queries, keys and values, have the softmax
 * over their exact set in common, and memory for it. Equal sinks and window, no routed cache (fl_variant_shares_exact_set), and
 * no adapters, which change what is attended with. */
#ifndef FL_ATTN_VARIANTS_EXACT_SHARES_H
#define FL_ATTN_VARIANTS_EXACT_SHARES_H

#include <stddef.h>

#include "attn_variants/mixer.h"

typedef struct fl_exact_shares {
    fl_compute *compute;    /* borrowed */
    size_t count;
    fl_exact_share *shares; /* [count] */
    fl_exact_share **of;    /* [variants] one of them, or NULL: nobody else has that exact set */
} fl_exact_shares;

/* For up to `tokens` tokens. A failure leaves *out to be released. */
fl_status fl_exact_shares_create(fl_compute *compute, const fl_mechanism *const *mechanisms, size_t count,
                                 const fl_attention_shape *shape, size_t tokens, fl_exact_shares *out, fl_error *error);
void fl_exact_shares_release(fl_exact_shares *shares);
size_t fl_exact_shares_bytes(const fl_exact_shares *shares, const fl_attention_shape *shape, size_t tokens);

/* Before every layer and block: nothing is filled yet. */
void fl_exact_shares_clear(fl_exact_shares *shares);

#endif
