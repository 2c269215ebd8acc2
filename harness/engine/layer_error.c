#include "harness/engine/layer_error.h"

#include "attn_variants/mixer_backward.h"
#include "harness/base/memory.h"

static size_t floats_per_token(const fl_model_config *config) {
    return config->query_heads * config->head_dim + config->model_dim;
}

static fl_status reserve(fl_layer_error *scratch, const fl_network *network, size_t tokens, fl_error *error) {
    const fl_model_config *config = &network->model->config;
    if (tokens <= scratch->capacity) return FL_OK;
    size_t floats = 0;
    fl_layer_error_release(scratch);
    scratch->compute = network->compute;
    FL_TRY(scratch->compute->ops->allocate(scratch->compute, 1, FL_FLOAT64, &scratch->squares, error));
    FL_TRY(fl_memory_multiply(tokens, floats_per_token(config), &floats, "error of a layer", error));
    FL_TRY(fl_compute_floats(scratch->compute, floats, &scratch->mix, error));
    scratch->difference = fl_array_from(scratch->mix, tokens * config->query_heads * config->head_dim);
    scratch->capacity = tokens;
    return FL_OK;
}

void fl_layer_error_release(fl_layer_error *scratch) {
    fl_compute_release(scratch->compute, scratch->mix);
    if (scratch->compute != NULL) scratch->compute->ops->release(scratch->compute, scratch->squares);
    *scratch = (fl_layer_error){0};
}

size_t fl_layer_error_bytes(const fl_layer_error *scratch, const fl_model_config *config) {
    return scratch->capacity * floats_per_token(config) * sizeof(float);
}

fl_status fl_layer_error_check(const fl_mechanism *mechanism, fl_error *error) {
    if (mechanism->variant->lora_rank == 0) return FL_OK;
    return fl_error_set(error, FL_ERROR_ARGUMENT,
                        "train: objective layer_mse does not train variant.lora; use next_token or kl (after "
                        "a layer_mse fit without lora, whose mechanism file can be loaded)");
}

/* Mean square of linearised - frozen, which replaces the linearised output in scratch->difference. */
static fl_status subtract(fl_layer_error *scratch, size_t count, fl_array frozen, double *mean,
                          fl_error *error) {
    fl_compute *compute = scratch->compute;
    double squares = 0.0;
    compute->ops->subtract_squares(compute, count, frozen, scratch->difference, scratch->squares);
    FL_TRY(compute->ops->download(compute, &squares, scratch->squares, 1, error));
    *mean = squares / (double)count;
    return FL_OK;
}

/* Forward on the tape, then back when a gradient is wanted. */
static fl_status run(fl_layer_error *scratch, const fl_network *network, const fl_mechanism *mechanism,
                     const fl_frozen_layer *target, fl_exact_share *exact, double weight, double variance,
                     fl_mixer_tape **tape, fl_array gradient_parameters, double *loss, fl_error *error) {
    const fl_network_layer *weights = &network->layers[target->layer];
    fl_compute *compute = network->compute;
    size_t tokens = target->tokens, count = tokens * network->model->config.model_dim;
    const fl_mixer_call call = {.tokens = tokens,
                                .query = target->query,
                                .key = target->key,
                                .value = target->value,
                                .input = target->attention_input,
                                .output = scratch->mix,
                                .exact = exact};
    FL_TRY(fl_mixer_record(compute, mechanism, target->layer, &call, tape, error));
    compute->ops->linear(compute, weights->output, weights->output_bias, tokens, scratch->mix,
                         scratch->difference);
    FL_TRY(subtract(scratch, count, target->attention_output, loss, error));
    *loss /= variance;
    if (!fl_array_is(gradient_parameters)) return FL_OK;
    float factor = (float)(2.0 * weight / ((double)count * variance));
    compute->ops->scale(compute, count, factor, scratch->difference);
    compute->ops->linear_backward(compute, weights->output, tokens, scratch->difference, scratch->mix, false);
    return fl_mixer_tape_backward(*tape, scratch->mix, fl_array_none, fl_array_none, fl_array_none,
                                  fl_array_none, gradient_parameters, error);
}

fl_status fl_layer_error_run(fl_layer_error *scratch, const fl_network *network,
                             const fl_mechanism *mechanism, const fl_frozen_layer *target,
                             fl_exact_share *exact, double weight, bool normalise,
                             fl_array gradient_parameters, double *loss, fl_error *error) {
    fl_mixer_tape *tape = NULL;
    FL_TRY(reserve(scratch, network, target->tokens, error));
    fl_status status = run(scratch, network, mechanism, target, exact, weight,
                           normalise ? target->variance : 1.0, &tape, gradient_parameters, loss, error);
    fl_mixer_tape_destroy(tape);
    return status;
}
