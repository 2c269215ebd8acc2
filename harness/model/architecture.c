#include "harness/model/architecture.h"

#include <stdio.h>
#include <string.h>

#include "harness/model/model.h"

#define MEMBER(name) offsetof(fl_layer_weights, name)

/* Pre-norm decoder with a gated MLP and separate projections: Llama and its relatives. */
static const fl_weight_descriptor llama_weights[] = {
    {MEMBER(input_norm), "input_layernorm.weight", "attn_norm.weight", FL_WEIGHT_ALWAYS, FL_AXIS_MODEL,
     FL_AXIS_NONE, false},
    {MEMBER(query), "self_attn.q_proj.weight", "attn_q.weight", FL_WEIGHT_ALWAYS, FL_AXIS_QUERY,
     FL_AXIS_MODEL, true},
    {MEMBER(key), "self_attn.k_proj.weight", "attn_k.weight", FL_WEIGHT_ALWAYS, FL_AXIS_KV, FL_AXIS_MODEL,
     true},
    {MEMBER(value), "self_attn.v_proj.weight", "attn_v.weight", FL_WEIGHT_ALWAYS, FL_AXIS_KV, FL_AXIS_MODEL,
     false},
    {MEMBER(output), "self_attn.o_proj.weight", "attn_output.weight", FL_WEIGHT_ALWAYS, FL_AXIS_MODEL,
     FL_AXIS_QUERY, false},
    {MEMBER(query_bias), "self_attn.q_proj.bias", "attn_q.bias", FL_WEIGHT_WITH_INPUT_BIAS, FL_AXIS_QUERY,
     FL_AXIS_NONE, true},
    {MEMBER(key_bias), "self_attn.k_proj.bias", "attn_k.bias", FL_WEIGHT_WITH_INPUT_BIAS, FL_AXIS_KV,
     FL_AXIS_NONE, true},
    {MEMBER(value_bias), "self_attn.v_proj.bias", "attn_v.bias", FL_WEIGHT_WITH_INPUT_BIAS, FL_AXIS_KV,
     FL_AXIS_NONE, false},
    {MEMBER(output_bias), "self_attn.o_proj.bias", "attn_output.bias", FL_WEIGHT_WITH_OUTPUT_BIAS,
     FL_AXIS_MODEL, FL_AXIS_NONE, false},
    {MEMBER(query_norm), "self_attn.q_norm.weight", "attn_q_norm.weight", FL_WEIGHT_WITH_QUERY_KEY_NORM,
     FL_AXIS_HEAD, FL_AXIS_NONE, false},
    {MEMBER(key_norm), "self_attn.k_norm.weight", "attn_k_norm.weight", FL_WEIGHT_WITH_QUERY_KEY_NORM,
     FL_AXIS_HEAD, FL_AXIS_NONE, false},
    {MEMBER(post_attention_norm), "post_attention_layernorm.weight", "ffn_norm.weight", FL_WEIGHT_ALWAYS,
     FL_AXIS_MODEL, FL_AXIS_NONE, false},
    {MEMBER(gate), "mlp.gate_proj.weight", "ffn_gate.weight", FL_WEIGHT_ALWAYS, FL_AXIS_MLP, FL_AXIS_MODEL,
     false},
    {MEMBER(up), "mlp.up_proj.weight", "ffn_up.weight", FL_WEIGHT_ALWAYS, FL_AXIS_MLP, FL_AXIS_MODEL, false},
    {MEMBER(down), "mlp.down_proj.weight", "ffn_down.weight", FL_WEIGHT_ALWAYS, FL_AXIS_MODEL, FL_AXIS_MLP,
     false},
    {MEMBER(gate_bias), "mlp.gate_proj.bias", "ffn_gate.bias", FL_WEIGHT_WITH_MLP_BIAS, FL_AXIS_MLP,
     FL_AXIS_NONE, false},
    {MEMBER(up_bias), "mlp.up_proj.bias", "ffn_up.bias", FL_WEIGHT_WITH_MLP_BIAS, FL_AXIS_MLP, FL_AXIS_NONE,
     false},
    {MEMBER(down_bias), "mlp.down_proj.bias", "ffn_down.bias", FL_WEIGHT_WITH_MLP_BIAS, FL_AXIS_MODEL,
     FL_AXIS_NONE, false},
};

#define LLAMA_WEIGHTS                                                                                        \
    .layer_weights = llama_weights, .layer_weight_count = sizeof llama_weights / sizeof llama_weights[0]

/* Defaults are those of the configuration classes of Hugging Face Transformers 5.17. */
static const fl_architecture architectures[] = {
    {
        .name = "llama",
        .class_names = {"LlamaForCausalLM", "LlamaModel"},
        .gguf_name = "llama",
        .gguf_permuted = true,
        LLAMA_WEIGHTS,
        .input_bias = FL_BIAS_CONFIG,
        .output_bias = FL_BIAS_CONFIG,
        .mlp_bias = FL_BIAS_CONFIG,
        .window = FL_WINDOW_NEVER,
        .default_max_positions = 2048,
        .default_norm_epsilon = 1e-6,
        .default_theta = 10000.0,
        .default_bos = 1,
        .default_eos = 2,
    },
    {
        .name = "mistral",
        .class_names = {"MistralForCausalLM", "MistralModel"},
        LLAMA_WEIGHTS,
        .window = FL_WINDOW_ALL_LAYERS,
        .default_window = 4096,
        .default_kv_heads = 8,
        .default_max_positions = 131072,
        .default_norm_epsilon = 1e-6,
        .default_theta = 10000.0,
        .default_bos = 1,
        .default_eos = 2,
    },
    {
        .name = "qwen2",
        .class_names = {"Qwen2ForCausalLM", "Qwen2Model"},
        .gguf_name = "qwen2",
        LLAMA_WEIGHTS,
        .input_bias = FL_BIAS_ALWAYS,
        .window = FL_WINDOW_UPPER_LAYERS,
        .default_window = 4096,
        .default_window_layers = 28,
        .default_kv_heads = 32,
        .default_max_positions = 32768,
        .default_norm_epsilon = 1e-6,
        .default_theta = 10000.0,
        .default_bos = -1,
        .default_eos = -1,
    },
    {
        .name = "qwen3",
        .class_names = {"Qwen3ForCausalLM", "Qwen3Model"},
        .gguf_name = "qwen3",
        LLAMA_WEIGHTS,
        .query_key_norm = true,
        .input_bias = FL_BIAS_CONFIG,
        .output_bias = FL_BIAS_CONFIG,
        .window = FL_WINDOW_UPPER_LAYERS,
        .default_window = 4096,
        .default_window_layers = 28,
        .default_kv_heads = 32,
        .default_head_dim = 128,
        .default_max_positions = 32768,
        .default_norm_epsilon = 1e-6,
        .default_theta = 10000.0,
        .default_bos = -1,
        .default_eos = -1,
    },
};

enum { ARCHITECTURE_COUNT = sizeof architectures / sizeof architectures[0] };

const fl_architecture *fl_architecture_of_model_type(const char *model_type) {
    for (size_t i = 0; i < ARCHITECTURE_COUNT; i++) {
        if (strcmp(architectures[i].name, model_type) == 0) return &architectures[i];
    }
    return NULL;
}

const fl_architecture *fl_architecture_of_gguf(const char *name, size_t bytes) {
    for (size_t i = 0; i < ARCHITECTURE_COUNT; i++) {
        const char *known = architectures[i].gguf_name;
        if (known != NULL && strlen(known) == bytes && memcmp(known, name, bytes) == 0)
            return &architectures[i];
    }
    return NULL;
}

void fl_architecture_list(char *text) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < ARCHITECTURE_COUNT && used < FL_ARCHITECTURE_LIST_BYTES; i++) {
        used += (size_t)snprintf(text + used, FL_ARCHITECTURE_LIST_BYTES - used, "%s%s", i > 0 ? ", " : "",
                                 architectures[i].name);
    }
}

bool fl_architecture_has_weight(const fl_weight_descriptor *weight, const fl_model_parts *parts) {
    switch (weight->rule) {
    case FL_WEIGHT_ALWAYS:
        return true;
    case FL_WEIGHT_WITH_INPUT_BIAS:
        return parts->input_bias;
    case FL_WEIGHT_WITH_OUTPUT_BIAS:
        return parts->output_bias;
    case FL_WEIGHT_WITH_MLP_BIAS:
        return parts->mlp_bias;
    case FL_WEIGHT_WITH_QUERY_KEY_NORM:
        return parts->query_key_norm;
    }
    return false;
}

size_t fl_architecture_axis(const fl_model_config *config, fl_weight_axis axis) {
    switch (axis) {
    case FL_AXIS_NONE:
        return 1;
    case FL_AXIS_MODEL:
        return config->model_dim;
    case FL_AXIS_QUERY:
        return config->query_heads * config->head_dim;
    case FL_AXIS_KV:
        return config->kv_heads * config->head_dim;
    case FL_AXIS_HEAD:
        return config->head_dim;
    case FL_AXIS_MLP:
        return config->mlp_dim;
    }
    return 0;
}
