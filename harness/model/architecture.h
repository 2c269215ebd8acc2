/* Architectures: what distinguishes one pretrained transformer from the next, as data.
 *
 * A descriptor says under which names Hugging Face and GGUF know the architecture, which tensors a layer has
 * and under which condition, how the config's optional keys default, and which of its switches the
 * architecture understands at all. Adding an architecture of the same computation is one more row in
 * architecture.c. */
#ifndef FL_MODEL_ARCHITECTURE_H
#define FL_MODEL_ARCHITECTURE_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/model/model_config.h"

/* When a tensor must be there. Where the condition does not hold it must be absent. */
typedef enum fl_weight_rule {
    FL_WEIGHT_ALWAYS = 0,
    FL_WEIGHT_WITH_INPUT_BIAS, /* biases of query, key, value */
    FL_WEIGHT_WITH_OUTPUT_BIAS,
    FL_WEIGHT_WITH_MLP_BIAS,
    FL_WEIGHT_WITH_QUERY_KEY_NORM
} fl_weight_rule;

typedef enum fl_weight_axis {
    FL_AXIS_NONE = 0,
    FL_AXIS_MODEL, /* E */
    FL_AXIS_QUERY, /* H * D */
    FL_AXIS_KV,    /* Hkv * D */
    FL_AXIS_HEAD,  /* D */
    FL_AXIS_MLP    /* F */
} fl_weight_axis;

/* One member of fl_layer_weights. */
typedef struct fl_weight_descriptor {
    size_t offset;            /* of the fl_tensor in fl_layer_weights */
    const char *hugging_face; /* after "<prefix>layers.<i>." */
    const char *gguf;         /* after "blk.<i>." */
    fl_weight_rule rule;
    fl_weight_axis rows, columns; /* columns FL_AXIS_NONE: a vector of `rows` */
    bool rotated;                 /* query and key rows: those a permuting GGUF converter interleaves */
} fl_weight_descriptor;

typedef enum fl_bias_rule { FL_BIAS_NEVER = 0, FL_BIAS_ALWAYS, FL_BIAS_CONFIG } fl_bias_rule;

typedef enum fl_window_rule {
    FL_WINDOW_NEVER = 0,
    FL_WINDOW_ALL_LAYERS, /* sliding_window, `default_window` when the key is absent, null = none (Mistral) */
    FL_WINDOW_UPPER_LAYERS /* only with use_sliding_window, from layer max_window_layers on, or by layer_types
                              (Qwen) */
} fl_window_rule;

typedef struct fl_architecture {
    const char *name;           /* also Hugging Face's model_type */
    const char *class_names[3]; /* accepted entries of config.json's `architectures`, NULL-terminated */
    const char *gguf_name; /* general.architecture, or NULL: GGUF files of this one go by another's name */
    bool gguf_permuted;    /* GGUF stores query and key rows interleaved */
    const fl_weight_descriptor *layer_weights;
    size_t layer_weight_count;
    bool query_key_norm;
    fl_bias_rule input_bias, output_bias, mlp_bias;
    fl_window_rule window;
    size_t default_window, default_window_layers;
    bool partial_rotary;     /* partial_rotary_factor other than 1 is understood */
    size_t default_kv_heads; /* when the key is absent; 0: as many as query heads */
    size_t default_head_dim; /* when the key is absent; 0: hidden_size / heads */
    size_t default_max_positions;
    double default_norm_epsilon, default_theta;
    long default_bos, default_eos;
} fl_architecture;

/* Which of the optional parts a given checkpoint has. */
typedef struct fl_model_parts {
    bool input_bias, output_bias, mlp_bias, query_key_norm;
} fl_model_parts;

/* The descriptor, or NULL. */
const fl_architecture *fl_architecture_of_model_type(const char *model_type);
const fl_architecture *fl_architecture_of_gguf(const char *name, size_t bytes);

/* "llama, mistral, ..." for error messages; `text` holds at least FL_ARCHITECTURE_LIST_BYTES. */
enum { FL_ARCHITECTURE_LIST_BYTES = 256 };
void fl_architecture_list(char *text);

bool fl_architecture_has_weight(const fl_weight_descriptor *weight, const fl_model_parts *parts);
size_t fl_architecture_axis(const fl_model_config *config, fl_weight_axis axis);

#endif
