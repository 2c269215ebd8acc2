#include "harness/engine/network.h"

#include <stddef.h>

#include "harness/base/memory.h"
#include "harness/model/finite_check.h"

/* Where one vector (norm or bias) of a layer comes from and goes to. */
typedef struct {
    size_t tensor_offset; /* in fl_layer_weights */
    size_t vector_offset; /* in fl_network_layer */
} fl_vector_slot;

#define SLOT(member)                                                                                         \
    { offsetof(fl_layer_weights, member), offsetof(fl_network_layer, member) }

static const fl_vector_slot vector_slots[] = {
    SLOT(input_norm), SLOT(post_attention_norm), SLOT(query_norm),  SLOT(key_norm),  SLOT(query_bias),
    SLOT(key_bias),   SLOT(value_bias),          SLOT(output_bias), SLOT(gate_bias), SLOT(up_bias),
    SLOT(down_bias),
};

static const fl_vector_slot matrix_slots[] = {
    SLOT(query), SLOT(key), SLOT(value), SLOT(output), SLOT(gate), SLOT(up), SLOT(down),
};

enum {
    VECTOR_COUNT = sizeof vector_slots / sizeof vector_slots[0],
    MATRIX_COUNT = sizeof matrix_slots / sizeof matrix_slots[0]
};

static const fl_tensor *slot_tensor(const fl_layer_weights *weights, const fl_vector_slot *slot) {
    return (const fl_tensor *)((const char *)weights + slot->tensor_offset);
}

static size_t vector_floats(const fl_model *model) {
    size_t count = model->final_norm.columns;
    for (size_t l = 0; l < model->config.layers; l++) {
        for (size_t s = 0; s < VECTOR_COUNT; s++) {
            const fl_tensor *tensor = slot_tensor(&model->layers[l], &vector_slots[s]);
            if (tensor->data != NULL) count += tensor->columns;
        }
    }
    return count;
}

/* Widens a vector into the network's storage and has the instance read it there; none where the model has
 * none. */
static fl_status take_vector(const fl_network *network, const fl_tensor *tensor, float **next, fl_array *out,
                             fl_error *error) {
    fl_compute *compute = network->compute;
    if (tensor->data == NULL) return FL_OK;
    float *vector = *next;
    fl_tensor_widen_row(tensor, 0, vector);
    *next += tensor->columns;
    return compute->ops->borrow(compute, vector, tensor->columns, FL_FLOAT32, 1, out, error);
}

static fl_status take_vectors(fl_network *network, fl_error *error) {
    const fl_model *model = network->model;
    float *next = network->vectors;
    FL_TRY(take_vector(network, &model->final_norm, &next, &network->final_norm, error));
    for (size_t l = 0; l < model->config.layers; l++) {
        for (size_t s = 0; s < VECTOR_COUNT; s++) {
            fl_array *vector = (fl_array *)((char *)&network->layers[l] + vector_slots[s].vector_offset);
            FL_TRY(
                take_vector(network, slot_tensor(&model->layers[l], &vector_slots[s]), &next, vector, error));
        }
    }
    return FL_OK;
}

static void forget_vector(const fl_network *network, const fl_tensor *tensor, const float **next) {
    if (tensor->data == NULL) return;
    network->compute->ops->forget(network->compute, *next);
    *next += tensor->columns;
}

static void forget_vectors(const fl_network *network) {
    const fl_model *model = network->model;
    const float *next = network->vectors;
    if (next == NULL) return;
    forget_vector(network, &model->final_norm, &next);
    for (size_t l = 0; l < model->config.layers; l++) {
        for (size_t s = 0; s < VECTOR_COUNT; s++)
            forget_vector(network, slot_tensor(&model->layers[l], &vector_slots[s]), &next);
    }
}

static fl_status create_matrices(fl_network *network, fl_error *error) {
    const fl_model *model = network->model;
    fl_compute *compute = network->compute;
    for (size_t l = 0; l < model->config.layers; l++) {
        for (size_t s = 0; s < MATRIX_COUNT; s++) {
            fl_weight **weight = (fl_weight **)((char *)&network->layers[l] + matrix_slots[s].vector_offset);
            FL_TRY(compute->ops->weight_create(compute, slot_tensor(&model->layers[l], &matrix_slots[s]),
                                               weight, error));
        }
    }
    FL_TRY(compute->ops->weight_create(compute, &model->embedding, &network->embedding, error));
    if (model->head.data == model->embedding.data) {
        network->head = network->embedding;
        return FL_OK;
    }
    return compute->ops->weight_create(compute, &model->head, &network->head, error);
}

fl_status fl_network_create(const fl_model *model, fl_compute *compute, fl_network **out, fl_error *error) {
    *out = NULL;
    fl_network *network = NULL;
    FL_TRY(fl_model_check_finite(model, error));
    FL_TRY(FL_ALLOCATE(&network, 1, error));
    network->model = model;
    network->compute = compute;
    network->shape = fl_model_attention_shape(&model->config);
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&network->layers, model->config.layers, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&network->vectors, vector_floats(model), error));
    FL_TRY_DONE(status, take_vectors(network, error));
    FL_TRY_DONE(status, create_matrices(network, error));
    *out = network;
    return FL_OK;
done:
    fl_network_destroy(network);
    return status;
}

void fl_network_destroy(fl_network *network) {
    if (network == NULL) return;
    const fl_compute_ops *ops = network->compute->ops;
    for (size_t l = 0; network->layers != NULL && l < network->model->config.layers; l++) {
        for (size_t s = 0; s < MATRIX_COUNT; s++) {
            fl_weight *weight = *(fl_weight **)((char *)&network->layers[l] + matrix_slots[s].vector_offset);
            if (weight != NULL) ops->weight_destroy(network->compute, weight);
        }
    }
    if (network->head != NULL && network->head != network->embedding) {
        ops->weight_destroy(network->compute, network->head);
    }
    if (network->embedding != NULL) ops->weight_destroy(network->compute, network->embedding);
    forget_vectors(network);
    fl_memory_free(network->layers);
    fl_memory_free(network->vectors);
    fl_memory_free(network);
}

fl_status fl_network_go_on(const fl_network *network, fl_error *error) {
    if (!fl_progress_cancelled(network->stop)) return FL_OK;
    return fl_error_set(error, FL_ERROR_CANCELLED, "interrupted");
}

fl_status fl_network_embed(const fl_network *network, size_t tokens, const int32_t *ids, fl_array stream,
                           fl_error *error) {
    fl_compute *compute = network->compute;
    fl_array sent;
    FL_TRY(compute->ops->allocate(compute, tokens, FL_INT32, &sent, error));
    compute->ops->upload(compute, sent, ids, tokens);
    compute->ops->embed(compute, network->embedding, tokens, sent, stream);
    compute->ops->release(compute, sent);
    return FL_OK;
}

void fl_network_logits(const fl_network *network, size_t rows, fl_array hidden, fl_array logits) {
    network->compute->ops->linear(network->compute, network->head, fl_array_none, rows, hidden, logits);
}

size_t fl_network_logit_rows(const fl_network *network) {
    enum { LARGEST_BLOCK_LOGITS = 1 << 23, LARGEST_BLOCK_ROWS = 128 };
    size_t rows = LARGEST_BLOCK_LOGITS / network->model->config.vocabulary;
    return rows < 1 ? 1 : rows > LARGEST_BLOCK_ROWS ? LARGEST_BLOCK_ROWS : rows;
}

size_t fl_network_cache_bytes(const fl_network *network, size_t layer, size_t tokens) {
    size_t window = network->model->config.sliding_window[layer];
    size_t keys = window != 0 && window < tokens ? window : tokens;
    return 2 * keys * network->shape.kv_heads * network->shape.head_dim * sizeof(float);
}
