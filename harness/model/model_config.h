/* Model configuration: what config.json or the GGUF keys say, in one form, after every default of the
 * architecture has been applied. Filled through the descriptor of the architecture (architecture.h); anything
 * not understood is refused by name. */
#ifndef FL_MODEL_MODEL_CONFIG_H
#define FL_MODEL_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/shapes.h"
#include "harness/base/status.h"

typedef enum fl_rope_type {
    FL_ROPE_DEFAULT = 0,
    FL_ROPE_LINEAR,
    FL_ROPE_DYNAMIC,
    FL_ROPE_LLAMA3,
    FL_ROPE_YARN
} fl_rope_type;

typedef struct fl_rope_config {
    fl_rope_type type;
    double theta;
    size_t rotary_dim; /* even, <= head_dim */
    double factor;
    double low_frequency_factor, high_frequency_factor; /* llama3 */
    double original_max_positions;                      /* llama3, yarn */
    double beta_fast, beta_slow;                        /* yarn */
    double mscale, mscale_all_dim;                      /* yarn; 0 = not given */
    double attention_factor;                            /* yarn; 0 = derive it */
    bool truncate;         /* yarn: floor/ceil the correction range (default true) */
    const float *divisors; /* [rotary_dim / 2] from GGUF rope_freqs.weight, or NULL; owned by the model */
} fl_rope_config;

typedef enum fl_activation {
    FL_ACTIVATION_SILU = 0,
    FL_ACTIVATION_GELU_TANH,
    FL_ACTIVATION_GELU
} fl_activation;

enum { FL_MODEL_EOS_MAX = 16 };

typedef struct fl_model_config {
    const char *architecture; /* descriptor's name: "llama", "mistral", "qwen2", "qwen3" */
    size_t layers, model_dim, query_heads, kv_heads, head_dim, mlp_dim, vocabulary;
    size_t max_positions;
    double norm_epsilon;
    float attention_scale;
    fl_activation activation;
    bool tied_head;
    bool query_key_norm; /* RMS norm per head on q and k before RoPE (Qwen3) */
    size_t *
        sliding_window; /* [L]; 0 = full attention, w = key j visible to t if t - j < w. Owned by the model */
    fl_rope_config rope;
    long bos_token, eos_token; /* -1: none; of several the first */
    long eos_tokens[FL_MODEL_EOS_MAX]; /* each ends a text: generation_config.json's when it names any, else config's */
    size_t eos_count;
} fl_model_config;

/* inverse_frequencies [rotary_dim / 2] in float32 and the factor on cos and sin, the way Hugging Face
 * computes them (float32 throughout). `sequence_length` matters to dynamic scaling only. */
void fl_rope_inverse_frequencies(const fl_rope_config *rope, size_t max_positions, size_t sequence_length,
                                 float *inverse_frequencies, float *attention_factor);

fl_attention_shape fl_model_attention_shape(const fl_model_config *config);

#endif
