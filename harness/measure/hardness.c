#include "harness/measure/hardness.h"

#include <math.h>
#include <stdlib.h>

#include "attn_variants/ablation.h"
#include "harness/base/memory.h"

const char *fl_hardness_name(fl_hardness signal) {
    static const char *const names[] = {"key_concentration", "projection_residual", "nmse"};
    return names[signal];
}

static double mean_of_layer(const double *values, size_t layer, size_t heads, size_t positions) {
    double sum = 0.0;
    for (size_t i = 0; i < heads * positions; i++) sum += values[layer * heads * positions + i];
    return sum / (double)(heads * positions);
}

static void signal_of(const fl_text_result *result, fl_hardness by, double *signal) {
    for (size_t layer = 0; layer < result->layers; layer++) {
        switch (by) {
        case FL_HARDNESS_KEY_CONCENTRATION:
            signal[layer] =
                mean_of_layer(result->key_concentration, layer, result->kv_heads, result->positions);
            break;
        case FL_HARDNESS_PROJECTION_RESIDUAL:
            signal[layer] =
                mean_of_layer(result->projection_residual, layer, result->kv_heads, result->positions);
            break;
        case FL_HARDNESS_NMSE:
            signal[layer] = result->nmse[layer];
            break;
        }
    }
}

fl_status fl_hardness_measure(const fl_network *network, const fl_sequences *sequences,
                              const fl_variant *variant, fl_hardness by, const fl_progress *progress,
                              double *signal, fl_error *error) {
    fl_variant *plain = NULL;
    fl_mechanism *mechanism = NULL;
    fl_text_result result = {0};
    fl_status status = FL_OK;
    if (by == FL_HARDNESS_NMSE) {
        FL_TRY_DONE(status, fl_variant_copy(variant, &plain, error));
        FL_TRY_DONE(status, fl_variant_set_softmax_layers(plain, NULL, 0, error));
    } else { /* keys alone, of the frozen model: all layers softmax, no mixer */
        FL_TRY_DONE(status, fl_variant_bind(NULL, NULL, &plain, error));
    }
    FL_TRY_DONE(status, fl_mechanism_create(plain, &network->shape, network->model->config.layers, &mechanism,
                                            error));
    fl_text_evaluation_options options = {.teacher_forced = by == FL_HARDNESS_NMSE,
                                          .diagnostics = by != FL_HARDNESS_NMSE};
    const fl_mechanism *list[1] = {mechanism};
    FL_TRY_DONE(status, fl_text_evaluation_run(network, sequences, list, 1, &options, progress, &result, NULL,
                                               error));
    signal_of(&result, by, signal);
    fl_text_result_release(&result);
done:
    fl_mechanism_destroy(mechanism);
    fl_variant_destroy(plain);
    return status == FL_OK ? FL_OK : fl_error_prepend(error, status, "hardness of layers");
}

typedef struct {
    double hardness;
    size_t layer;
} fl_ranked_layer;

static int harder_first(const void *a, const void *b) {
    const fl_ranked_layer *x = a, *y = b;
    if (x->hardness != y->hardness) return x->hardness > y->hardness ? -1 : 1;
    return x->layer < y->layer ? -1 : x->layer > y->layer;
}

fl_status fl_hardness_resolve(const fl_network *network, const fl_sequences *sequences, fl_variant *variant,
                              const fl_progress *progress, double *signal, fl_error *error) {
    if (variant->softmax_hardest == 0) return FL_OK;
    size_t layers = network->model->config.layers, count = variant->softmax_hardest;
    fl_hardness by = (fl_hardness)variant->softmax_hardest_by;
    FL_TRY(fl_hardness_measure(network, sequences, variant, by, progress, signal, error));
    fl_ranked_layer *ranked = NULL;
    size_t *chosen = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&ranked, layers, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&chosen, count, error));
    for (size_t l = 0; l < layers; l++) {
        double hardness = by == FL_HARDNESS_KEY_CONCENTRATION ? -signal[l] : signal[l];
        ranked[l] = (fl_ranked_layer){isnan(hardness) ? INFINITY : hardness, l};
    }
    qsort(ranked, layers, sizeof *ranked, harder_first);
    for (size_t i = 0; i < count; i++) chosen[i] = ranked[i].layer;
    status = fl_variant_set_softmax_layers(variant, chosen, count, error);
done:
    fl_memory_free(ranked);
    fl_memory_free(chosen);
    return status;
}
