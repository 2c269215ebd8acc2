#include "harness/run/linearised.h"

#include <string.h>

#include "harness/base/memory.h"
#include "harness/measure/hardness.h"

static fl_status create_mechanism(fl_linearised *linearised, const fl_workbench *bench, fl_error *error) {
    return fl_mechanism_create(linearised->variant, &bench->shape, bench->model->config.layers,
                               &linearised->mechanism, error);
}

fl_status fl_linearised_bind(fl_experiment *experiment, const fl_workbench *bench, fl_linearised *out,
                             fl_error *error) {
    memset(out, 0, sizeof *out);
    FL_TRY(fl_variant_bind(experiment->variant, experiment->resolved, &out->variant, error));
    fl_status status = fl_variant_fit(out->variant, &bench->shape, bench->model->config.layers, error);
    if (status == FL_OK) return FL_OK;
    fl_linearised_release(out);
    bool layers = error != NULL && strncmp(error->message, "softmax_layers", 14) == 0;
    const fl_node *node = fl_node_get(experiment->variant, layers ? "softmax_layers" : "rule");
    return fl_node_place_error(node, layers ? "variant" : "variant.rule", status, error);
}

fl_status fl_linearised_equip(fl_linearised *linearised, const fl_workbench *bench,
                              const fl_sequences *sequences, const fl_progress *progress, fl_error *error) {
    if (linearised->mechanism != NULL) return FL_OK;
    if (linearised->variant->softmax_hardest > 0 && sequences == NULL) {
        return fl_error_set(
            error, FL_ERROR_ARGUMENT,
            "variant.softmax_layers: {hardest: ...} is measured on a text, and there is none here; list the "
            "layers instead");
    }
    if (linearised->variant->softmax_hardest > 0) {
        double *signal = NULL;
        FL_TRY(FL_ALLOCATE(&signal, bench->model->config.layers, error));
        fl_status status =
            fl_hardness_resolve(bench->network, sequences, linearised->variant, progress, signal, error);
        fl_memory_free(signal);
        FL_TRY(status);
    }
    return create_mechanism(linearised, bench, error);
}

fl_status fl_linearised_load(const char *config, const fl_workbench *bench, const fl_sequences *sequences,
                             fl_linearised *out, fl_error *error) {
    fl_experiment_list *list = NULL;
    memset(out, 0, sizeof *out);
    FL_TRY(fl_experiment_load(config, NULL, 0, &list, error));
    fl_status status = FL_OK;
    if (list->count != 1) {
        status = fl_error_set(error, FL_ERROR_ARGUMENT, "%s: a sweep of %zu cells; one is needed here",
                              config, list->count);
    } else {
        status = fl_linearised_bind(list->cells[0], bench, out, error);
    }
    if (status == FL_OK) status = fl_linearised_equip(out, bench, sequences, NULL, error);
    if (status != FL_OK) fl_linearised_release(out);
    fl_experiment_list_destroy(list);
    return status;
}

fl_status fl_linearised_linear_off(const fl_linearised *source, const fl_workbench *bench, fl_linearised *out,
                                   fl_error *error) {
    memset(out, 0, sizeof *out);
    FL_TRY(fl_variant_linear_off(source->variant, &out->variant, error));
    fl_status status = fl_variant_fit(out->variant, &bench->shape, bench->model->config.layers, error);
    if (status == FL_OK) status = create_mechanism(out, bench, error);
    if (status != FL_OK) fl_linearised_release(out);
    return status;
}

void fl_linearised_release(fl_linearised *linearised) {
    if (linearised->mechanism != NULL) fl_mechanism_destroy(linearised->mechanism);
    if (linearised->variant != NULL) fl_variant_destroy(linearised->variant);
    memset(linearised, 0, sizeof *linearised);
}
