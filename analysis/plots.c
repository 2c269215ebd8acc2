#include "analysis/plots.h"

#include <string.h>

#include "analysis/plot_parts.h"

#define LAYERS "/errors/teacher_forced/nmse"
#define POSITIONS "/errors/teacher_forced/position_nmse"
#define LINEAR_OFF "/baseline/linear_off"

static const fl_curve_spec layers = {.csv = "nmse_layers",
                                     .path = LAYERS,
                                     .baseline = LINEAR_OFF LAYERS,
                                     .interval = "nmse",
                                     .x_label = "layer",
                                     .y_label = "nMSE (teacher forced)",
                                     .log_y = true,
                                     .marks = true};
static const fl_curve_spec positions = {.csv = "nmse_positions",
                                        .path = POSITIONS,
                                        .baseline = LINEAR_OFF POSITIONS,
                                        .x_label = "position",
                                        .y_label = "nMSE (teacher forced)",
                                        .log_y = true,
                                        .over_layers = true,
                                        .binned = true};

static fl_status draw_nmse(const fl_plot_request *request, fl_error *error) {
    fl_curve_spec specs[] = {layers, positions};
    specs[0].csv = "nmse_by_layer";
    specs[1].csv = "nmse_by_position";
    specs[1].x_label = "position (mean over layers)";
    return fl_plot_curves(request, "nmse", "Error of attention on the frozen model's inputs", specs, 2,
                          error);
}

static fl_status draw_layers(const fl_plot_request *request, fl_error *error) {
    return fl_plot_curves(request, layers.csv, "Error of each attention block on the frozen model's inputs",
                          &layers, 1, error);
}

static fl_status draw_positions(const fl_plot_request *request, fl_error *error) {
    return fl_plot_curves(request, positions.csv, "Error by position, mean over layers", &positions, 1,
                          error);
}

static fl_status draw_propagated(const fl_plot_request *request, fl_error *error) {
    static const fl_curve_spec spec = {.csv = "nmse_propagated",
                                       .path = "/errors/propagated/attention_nmse",
                                       .baseline = LINEAR_OFF "/errors/propagated/attention_nmse",
                                       .interval = "propagated_nmse",
                                       .x_label = "layer",
                                       .y_label = "nMSE (propagated)",
                                       .log_y = true,
                                       .marks = true};
    return fl_plot_curves(request, spec.csv,
                          "Error of each attention block, linearised layers feeding each other", &spec, 1,
                          error);
}

static fl_status draw_kl(const fl_plot_request *request, fl_error *error) {
    static const fl_curve_spec spec = {.csv = "kl_positions",
                                       .path = "/language_model/position_kl",
                                       .x_label = "position",
                                       .y_label = "KL (nats)",
                                       .log_y = true,
                                       .binned = true};
    return fl_plot_curves(request, spec.csv, "KL(full || linearised) of the next token", &spec, 1, error);
}

static fl_status draw_training(const fl_plot_request *request, fl_error *error) {
    static const fl_curve_spec loss = {.csv = "training_loss",
                                       .path = "/training/loss",
                                       .x_label = "step",
                                       .y_label = "loss (mean of each bin)",
                                       .log_y = true,
                                       .binned = true};
    static const fl_curve_spec evaluation = {.csv = "training_evaluation",
                                             .path = "/training/evaluation_perplexity",
                                             .x_path = "/training/evaluation_step",
                                             .reference = "full_perplexity",
                                             .x_label = "steps taken",
                                             .y_label = "perplexity",
                                             .log_y = true,
                                             .marks = true,
                                             .whole_x = true};
    FL_TRY(fl_plot_curves(request, loss.csv, "Training loss", &loss, 1, error));
    fl_status status = fl_plot_curves(
        request, evaluation.csv, "Perplexity of the evaluation text during training", &evaluation, 1, error);
    return status == FL_ERROR_ARGUMENT ? FL_OK : status; /* evaluations are made on request */
}

static fl_status draw_trends(const fl_plot_request *request, fl_error *error) {
    static const fl_curve_spec concentration = {.csv = "nmse_by_concentration",
                                                .path = "/diagnostics/trends/key_concentration/nmse",
                                                .x_path = "/diagnostics/trends/key_concentration/edges",
                                                .x_label =
                                                    "key concentration C (middle of each bin)",
                                                .y_label = "nMSE (teacher forced, per head)",
                                                .log_y = true,
                                                .marks = true,
                                                .over_layers = true};
    static const fl_curve_spec residual = {.csv = "nmse_by_residual",
                                           .path = "/diagnostics/trends/projection_residual/nmse",
                                           .x_path = "/diagnostics/trends/projection_residual/edges",
                                           .x_label = "projection residual R (middle of each bin)",
                                           .y_label = "nMSE (teacher forced, per head)",
                                           .log_x = true,
                                           .log_y = true,
                                           .marks = true,
                                           .over_layers = true};
    FL_TRY(fl_plot_curves(request, concentration.csv, "Error against key concentration C, mean over layers",
                          &concentration, 1, error));
    return fl_plot_curves(request, residual.csv, "Error against projection residual R, mean over layers",
                          &residual, 1, error);
}

const fl_plot_kind fl_plot_kinds[] = {
    {"nmse", "teacher-forced nMSE by layer and by position side by side: what `run` draws", draw_nmse, true},
    {"layers", "teacher-forced nMSE by layer", draw_layers, false},
    {"positions", "teacher-forced nMSE by position, mean over layers", draw_positions, false},
    {"propagated", "nMSE by layer with linearised layers feeding each other", draw_propagated, false},
    {"kl", "KL from the full model by position", draw_kl, false},
    {"heads", "nMSE by layer and head, a heat map a run", fl_plot_heads, false},
    {"trends", "nMSE in quantile bins of key concentration and projection residual", draw_trends, false},
    {"training", "training loss and evaluations by step", draw_training, false},
    {"scores", "perplexity and task scores with standard errors and baselines", fl_plot_scores, false},
    {"hybrid", "scores against the number of softmax layers", fl_plot_hybrid, false},
    {"bytes", "scores against bytes of state and exact set", fl_plot_bytes, false},
    {NULL, NULL, NULL, false},
};

const fl_plot_kind *fl_plot_kind_find(const char *name) {
    for (const fl_plot_kind *kind = fl_plot_kinds; kind->name != NULL; kind++) {
        if (strcmp(kind->name, name) == 0) return kind;
    }
    return NULL;
}

fl_status fl_plot_all(const fl_plot_request *request, fl_error *error) {
    fl_status first = FL_OK;
    bool drawn = false;
    for (const fl_plot_kind *kind = fl_plot_kinds; kind->name != NULL; kind++) {
        fl_error trouble;
        if (kind->only_by_name) continue;
        fl_status status = kind->draw(request, &trouble);
        drawn = drawn || status != FL_ERROR_ARGUMENT;
        if (status == FL_OK || status == FL_ERROR_ARGUMENT || first != FL_OK) continue;
        first = status;
        if (error != NULL) *error = trouble;
    }
    if (first != FL_OK || drawn) return first;
    return fl_error_set(error, FL_ERROR_ARGUMENT, "these runs hold nothing to plot");
}
