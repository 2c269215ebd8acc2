/* Shape letters, defined once for the whole tree. Every tensor argument is annotated with them, slowest axis first:
 *
 *   B    sequences in a batch            L    layers
 *   T    tokens of this call             P    positions of a sequence, counted from 0
 *   H    query heads                     Hkv  key/value heads; query head h uses KV head h / (H / Hkv)
 *   D    head dimension                  E    width of the residual stream (hidden_size)
 *   F    width of the MLP                V    vocabulary
 *   Dk, Dv  key and value dimensions of a state (Dk = D unless a feature map changes it; Dv = D, + 1 with a normaliser)
 *   S    keys held exactly (sinks, window, cache)
 *
 * A state is [Dv][Dk]: y = S q. Everything is float32 unless said otherwise; sums and statistics are float64. */
#ifndef FL_BASE_SHAPES_H
#define FL_BASE_SHAPES_H

#include <stddef.h>

typedef struct fl_attention_shape {
    size_t query_heads; /* H */
    size_t kv_heads;    /* Hkv, divides H */
    size_t head_dim;    /* D */
    size_t model_dim;   /* E */
    float scale;        /* softmax logits are scale * q.k, 1/sqrt(D) unless the model says otherwise */
} fl_attention_shape;

#endif
