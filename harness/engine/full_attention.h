/* Full attention: the frozen softmax of one layer over a whole sequence from position 0, for passes that see all its tokens at
 * once (training). */
#ifndef FL_ENGINE_FULL_ATTENTION_H
#define FL_ENGINE_FULL_ATTENTION_H

#include <stddef.h>

#include "harness/base/status.h"
#include "harness/compute/key_value_rows.h"
#include "harness/engine/block.h"
#include "harness/engine/network.h"

typedef struct fl_full_attention {
    size_t capacity; /* tokens */
    fl_key_value_rows rows; /* [Hkv][capacity][D], of which a call uses the first */
    fl_array log_sum_exp;   /* [T][H] */
    fl_ascending index;     /* positions, and shifted by the window expiries */
} fl_full_attention;

/* Makes room for `tokens` tokens; contents are lost when that takes more memory. */
fl_status fl_full_attention_reserve(fl_full_attention *attention, const fl_network *network, size_t tokens,
                                    fl_error *error);
void fl_full_attention_release(fl_full_attention *attention);
size_t fl_full_attention_bytes(const fl_full_attention *attention, const fl_model_config *config);
/* The same of one still to be made, for `tokens` tokens. */
size_t fl_full_attention_bytes_of(const fl_model_config *config, size_t tokens);

/* Fills block->mix from its query, key and value, and log_sum_exp. The call that was made is returned: it points into both. */
fl_attention_call fl_full_attention_run(fl_full_attention *attention, const fl_network *network, size_t layer,
                                        size_t tokens, fl_block *block);

#endif
