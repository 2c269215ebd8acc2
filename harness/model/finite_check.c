#include "harness/model/finite_check.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/model/architecture.h"

/* The float16 scales of a block: where the first lies, and how many there are. Codes and the scales of parts
 * are small integers, so that a block is finite when these are. */
static const struct {
    size_t offset, count;
} scales[FL_DTYPE_COUNT] = {
    [FL_DTYPE_Q4_0] = {0, 1},   [FL_DTYPE_Q4_1] = {0, 2}, [FL_DTYPE_Q5_0] = {0, 1},
    [FL_DTYPE_Q5_1] = {0, 2},   [FL_DTYPE_Q8_0] = {0, 1}, [FL_DTYPE_Q2_K] = {80, 2},
    [FL_DTYPE_Q3_K] = {108, 1}, [FL_DTYPE_Q4_K] = {0, 2}, [FL_DTYPE_Q5_K] = {0, 2},
    [FL_DTYPE_Q6_K] = {208, 1},
};

/* 1 when one of `count` numbers of two bytes has the exponent of NaN and infinities. */
static unsigned any_half(const unsigned char *bytes, size_t count, size_t stride, uint16_t exponent) {
    unsigned found = 0;
    for (size_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, bytes + i * stride, sizeof bits);
        found |= (unsigned)((bits & exponent) == exponent);
    }
    return found;
}

static unsigned any_single(const unsigned char *bytes, size_t count) {
    unsigned found = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, bytes + i * sizeof bits, sizeof bits);
        found |= (unsigned)((bits & 0x7f800000u) == 0x7f800000u);
    }
    return found;
}

static size_t first_not_finite(const float *values, size_t count) {
    size_t at = 0;
    while (at < count && isfinite(values[at])) at++;
    return at;
}

/* Whether a row may hold a number that is not finite; row: as widened. */
static bool suspicious(const fl_tensor *tensor, size_t stored_row, float *widened) {
    const size_t block = fl_dtype_block_bytes(tensor->type);
    const size_t blocks = tensor->columns / fl_dtype_block_elements(tensor->type);
    const unsigned char *bytes = (const unsigned char *)tensor->data + stored_row * blocks * block;
    unsigned found = 0;
    switch (tensor->type) {
    case FL_DTYPE_F32:
        return any_single(bytes, blocks) != 0;
    case FL_DTYPE_F16:
        return any_half(bytes, blocks, block, 0x7c00) != 0;
    case FL_DTYPE_BF16:
        return any_half(bytes, blocks, block, 0x7f80) != 0;
    default:
        break;
    }
    for (size_t s = 0; s < scales[tensor->type].count; s++)
        found |= any_half(bytes + scales[tensor->type].offset + 2 * s, blocks, block, 0x7c00);
    if (scales[tensor->type].count > 0) return found != 0;
    fl_tensor_widen_row(tensor, stored_row, widened);
    return first_not_finite(widened, tensor->columns) < tensor->columns;
}

static fl_status name_first(const fl_model *model, const fl_tensor *tensor, float *widened, fl_error *error) {
    for (size_t row = 0; row < tensor->rows; row++) {
        fl_tensor_widen_row(tensor, row, widened);
        size_t column = first_not_finite(widened, tensor->columns);
        if (column == tensor->columns) continue;
        return fl_error_set(
            error, FL_ERROR_FORMAT, "%s: the model is damaged: tensor %s holds %s at row %zu, column %zu",
            model->path, tensor->name, isnan(widened[column]) ? "NaN" : "an infinity", row, column);
    }
    return FL_OK;
}

static fl_status check_tensor(const fl_model *model, const fl_tensor *tensor, fl_error *error) {
    if (tensor->data == NULL) return FL_OK;
    float *widened;
    FL_TRY(FL_ALLOCATE(&widened, tensor->columns, error));
    fl_status status = FL_OK;
    for (size_t row = 0; row < tensor->rows && status == FL_OK; row++)
        if (suspicious(tensor, row, widened)) status = name_first(model, tensor, widened, error);
    fl_memory_free(widened);
    return status;
}

fl_status fl_model_check_finite(const fl_model *model, fl_error *error) {
    const fl_architecture *architecture = fl_architecture_of_model_type(model->config.architecture);
    FL_TRY(check_tensor(model, &model->embedding, error));
    FL_TRY(check_tensor(model, &model->final_norm, error));
    if (model->head.data != model->embedding.data) FL_TRY(check_tensor(model, &model->head, error));
    for (size_t layer = 0; layer < model->config.layers; layer++) {
        for (size_t i = 0; i < architecture->layer_weight_count; i++) {
            const char *weights = (const char *)&model->layers[layer];
            FL_TRY(check_tensor(model, (const fl_tensor *)(weights + architecture->layer_weights[i].offset),
                                error));
        }
    }
    return FL_OK;
}
