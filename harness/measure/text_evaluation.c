#include "harness/measure/text_evaluation.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variants/exact_shares.h"
#include "harness/base/clock.h"
#include "harness/base/hash.h"
#include "harness/base/memory.h"
#include "harness/engine/block.h"
#include "harness/engine/session.h"
#include "harness/measure/branch_log.h"
#include "harness/measure/diagnostics.h"
#include "harness/measure/logit_scorer.h"
#include "harness/measure/row_figures.h"
#include "harness/measure/text_result.h"
#include "harness/measure/trends.h"

/* One mechanism under measurement. */
typedef struct {
    const fl_mechanism *mechanism;
    fl_text_result *result;
    fl_mixer **mixers;   /* [L], teacher forced; NULL entries in softmax layers; NULL when not wanted */
    fl_session *session; /* propagated; NULL when not wanted */
    fl_array hidden;     /* [block][E] */
    fl_branch_log *log;  /* diagnostics; NULL when not wanted */
    float *trend_errors; /* beside evaluation's trend signals; NULL when not wanted */
    fl_exact_share
        *exact; /* one of the evaluation's, with the other runs that have this exact set; NULL: none has */
} fl_mechanism_run;

/* The whole evaluation. The text is worked off in blocks of at most FL_SESSION_BLOCK tokens: the frozen model
 * first, then every mechanism on the same block, so that memory does not grow with the length of a sequence.
 */
typedef struct {
    const fl_network *network;
    const fl_text_evaluation_options *options;
    size_t layers, heads, model_dim, mix_dim, positions;
    fl_session *frozen;
    fl_key_geometry **geometry;              /* [L] or NULL */
    fl_array geometry_made;                  /* [2][Hkv][block] float64: C and R of one layer and block */
    double *concentration, *residual_signal; /* the same on the host */
    fl_trend_signals trends;                 /* room 0 when not wanted */
    fl_text_totals totals;
    size_t sequence; /* the one at hand */
    fl_mechanism_run *runs;
    size_t run_count;
    fl_exact_shares shares;       /* among runs */
    size_t block;                 /* tokens that the buffers below hold */
    fl_array mix, projected;      /* [block][H][D], [block][E]: of one mechanism */
    fl_array attention, residual; /* [L][block][E]: the frozen model's */
    fl_array hidden;              /* [block][E]: the frozen model's */
    fl_array state_norm;          /* [H][block] */
    float *state_norm_brought;
    fl_array not_finite; /* [1] int32 */
    fl_row_figures rows; /* [block][H] */
    fl_block adapted;    /* q, k, v of a layer with adapters, on the frozen model's inputs */
    fl_rope rope;
    fl_logit_scorer scorer;
    double seconds_measuring; /* spent inside the frozen model's observer */
} fl_evaluation;

/* Numbers of a layer: x [T][rows of width each]. */
typedef struct {
    const char *stage;
    size_t rows, width;
    fl_array x;
} fl_watched;

/* The first number that is not finite names the place, once a run. */
static fl_status note_divergence(fl_evaluation *evaluation, fl_text_result *result, const fl_layer_view *view,
                                 fl_watched watched, fl_error *error) {
    fl_compute *compute = evaluation->network->compute;
    const size_t rows = watched.rows, width = watched.width, count = view->tokens * rows * width;
    int32_t found = 0;
    if (result->diverged) return FL_OK;
    compute->ops->first_not_finite(compute, count, watched.x, evaluation->not_finite);
    FL_TRY(compute->ops->download(compute, &found, evaluation->not_finite, 1, error));
    const size_t at = (size_t)found;
    if (at == count) return FL_OK;
    result->diverged = true;
    const size_t position = view->first_position + at / (rows * width);
    if (rows > 1) {
        snprintf(result->diverged_at, sizeof result->diverged_at, "%s, layer %zu, head %zu, position %zu",
                 watched.stage, view->layer, at / width % rows, position);
    } else {
        snprintf(result->diverged_at, sizeof result->diverged_at, "%s, layer %zu, position %zu",
                 watched.stage, view->layer, position);
    }
    return FL_OK;
}

/* sums [T] += squared errors of a row a token; *total is their sum. With cosine, adds the cosines there. */
static fl_status add_errors(fl_evaluation *evaluation, size_t tokens, fl_array reference, fl_array other,
                            double *sums, double *total, double *cosine, fl_error *error) {
    fl_row_errors errors;
    FL_TRY(fl_row_figures_errors(&evaluation->rows, tokens, evaluation->model_dim, reference, other, &errors,
                                 error));
    *total = 0.0;
    for (size_t t = 0; t < tokens; t++) {
        sums[t] += errors.squared[t];
        *total += errors.squared[t];
        if (cosine != NULL) *cosine += errors.cosine[t];
    }
    return FL_OK;
}

static fl_status add_head_errors(fl_evaluation *evaluation, fl_text_result *result, const fl_layer_view *view,
                                 float *trend_errors, fl_error *error) {
    size_t heads = evaluation->heads, positions = evaluation->positions;
    fl_row_errors errors;
    FL_TRY(fl_row_figures_errors(&evaluation->rows, view->tokens * heads, result->head_dim, view->mix,
                                 evaluation->mix, &errors, error));
    for (size_t t = 0; t < view->tokens; t++) {
        for (size_t h = 0; h < heads; h++) {
            size_t at = (view->layer * heads + h) * positions + view->first_position + t;
            result->head_position_mse[at] += errors.squared[t * heads + h];
        }
    }
    if (trend_errors == NULL) return FL_OK;
    fl_trend_errors_append(&evaluation->trends, view->layer, view->tokens, errors.squared, trend_errors);
    return FL_OK;
}

static fl_status add_state_norms(fl_evaluation *evaluation, fl_text_result *result, const fl_layer_view *view,
                                 fl_error *error) {
    fl_compute *compute = evaluation->network->compute;
    FL_TRY(compute->ops->download(compute, evaluation->state_norm_brought, evaluation->state_norm,
                                  evaluation->heads * view->tokens, error));
    for (size_t h = 0; h < evaluation->heads; h++) {
        size_t at = (view->layer * evaluation->heads + h) * evaluation->positions + view->first_position;
        for (size_t t = 0; t < view->tokens; t++) {
            result->state_norm[at + t] += (double)evaluation->state_norm_brought[h * view->tokens + t];
        }
    }
    return FL_OK;
}

/* Place of a layer in arrays [S][L]. */
static size_t in_sequence(const fl_evaluation *evaluation, size_t layer) {
    return evaluation->sequence * evaluation->layers + layer;
}

/* The call's q, k and v, where the mechanism adapts their projections. */
static fl_status adapt_inputs(fl_evaluation *evaluation, const fl_adapter *adapter, const fl_layer_view *view,
                              fl_mixer_call *call, fl_error *error) {
    fl_block *block = &evaluation->adapted;
    if (adapter->rank == 0) return FL_OK;
    FL_TRY(fl_block_reserve(block, evaluation->network, false, view->tokens, error));
    FL_TRY(fl_block_reserve_adapter(block, adapter->rank, view->tokens, error));
    fl_block_project_input(evaluation->network, view->layer, &evaluation->rope, adapter, view->tokens,
                           view->first_position, view->attention_input, block);
    call->query = block->query;
    call->key = block->key;
    call->value = block->value;
    return FL_OK;
}

/* One mechanism on the frozen model's inputs of one layer and block. */
static fl_status measure_teacher_forced(fl_evaluation *evaluation, fl_mechanism_run *run,
                                        const fl_layer_view *view, fl_error *error) {
    fl_text_result *result = run->result;
    fl_mixer *mixer = run->mixers[view->layer];
    const fl_text_evaluation_options *options = evaluation->options;
    if (mixer == NULL) { /* the frozen block itself */
        if (options->teacher_forced) result->cosine[view->layer] += (double)view->tokens;
        return FL_OK;
    }
    fl_mixer_call call = {
        .tokens = view->tokens,
        .query = view->query,
        .key = view->key,
        .value = view->value,
        .input = view->attention_input,
        .output = evaluation->mix,
        .state_norm = options->diagnostics ? evaluation->state_norm : fl_array_none,
        .exact = run->exact,
    };
    const fl_adapter adapter = fl_adapter_of(run->mechanism, view->layer);
    FL_TRY(adapt_inputs(evaluation, &adapter, view, &call, error));
    fl_compute *compute = evaluation->network->compute;
    if (options->diagnostics)
        compute->ops->fill(compute, evaluation->state_norm, evaluation->heads * view->tokens, 0.0);
    if (run->log != NULL) fl_branch_log_attach(run->log, &call);
    FL_TRY(fl_mixer_forward(mixer, &call, error));
    if (run->log != NULL)
        FL_TRY(fl_branch_log_take(run->log, view->layer, &call, view->first_position, error));
    const fl_watched mix = {"teacher forced", evaluation->heads, result->head_dim, evaluation->mix};
    FL_TRY(note_divergence(evaluation, result, view, mix, error));
    if (options->diagnostics) FL_TRY(add_state_norms(evaluation, result, view, error));
    if (!options->teacher_forced) return FL_OK;
    FL_TRY(add_head_errors(evaluation, result, view, run->trend_errors, error));
    fl_session_output_projection(evaluation->network, view->layer, view->tokens, evaluation->mix,
                                 evaluation->projected);
    if (adapter.rank > 0) {
        fl_adapter_forward(compute, &adapter, FL_LORA_OUTPUT, view->tokens, evaluation->mix,
                           evaluation->adapted.low, evaluation->projected);
    }
    double *positions = &result->position_nmse[view->layer * evaluation->positions + view->first_position];
    double squared = 0.0;
    FL_TRY(add_errors(evaluation, view->tokens, view->attention_output, evaluation->projected, positions,
                      &squared, &result->cosine[view->layer], error));
    result->mse[view->layer] += squared;
    result->sequence_squared_error[in_sequence(evaluation, view->layer)] += squared;
    return FL_OK;
}

/* Of the heads of each token, a row each: [H] targets. */
static fl_status add_head_moments(fl_evaluation *evaluation, const fl_layer_view *view, fl_moments *of_head,
                                  fl_error *error) {
    const size_t heads = evaluation->heads, width = evaluation->mix_dim / heads;
    fl_row_moments moments;
    FL_TRY(
        fl_row_figures_moments(&evaluation->rows, view->tokens * heads, width, view->mix, &moments, error));
    for (size_t row = 0; row < view->tokens * heads; row++) {
        fl_moments_add(&of_head[row % heads], (double)width, moments.sum[row], moments.sum_squares[row]);
    }
    return FL_OK;
}

/* Of whole rows [tokens][E], in all and of the sequence. */
static fl_status add_output_moments(fl_evaluation *evaluation, size_t tokens, fl_array x, fl_moments *all,
                                    fl_moments *of_sequence, fl_error *error) {
    const size_t width = evaluation->model_dim;
    fl_row_moments moments;
    FL_TRY(fl_row_figures_moments(&evaluation->rows, tokens, width, x, &moments, error));
    for (size_t row = 0; row < tokens; row++) {
        fl_moments_add(all, (double)width, moments.sum[row], moments.sum_squares[row]);
        fl_moments_add(of_sequence, (double)width, moments.sum[row], moments.sum_squares[row]);
    }
    return FL_OK;
}

static fl_status keep_frozen(fl_evaluation *evaluation, const fl_layer_view *view, fl_error *error) {
    fl_text_totals *totals = &evaluation->totals;
    const size_t width = evaluation->model_dim;
    const size_t layer = view->layer, at_sequence = in_sequence(evaluation, layer);
    FL_TRY(add_output_moments(evaluation, view->tokens, view->attention_output, &totals->attention[layer],
                              &totals->sequence_attention[at_sequence], error));
    FL_TRY(add_head_moments(evaluation, view, &totals->head[layer * evaluation->heads], error));
    if (!evaluation->options->propagated) return FL_OK;
    FL_TRY(add_output_moments(evaluation, view->tokens, view->residual, &totals->residual[layer],
                              &totals->sequence_residual[at_sequence], error));
    const size_t at = layer * evaluation->block * width, numbers = view->tokens * width;
    fl_compute *compute = evaluation->network->compute;
    fl_compute_copy(compute, fl_array_from(evaluation->attention, at), view->attention_output, numbers);
    fl_compute_copy(compute, fl_array_from(evaluation->residual, at), view->residual, numbers);
    return FL_OK;
}

static fl_status add_key_geometry(fl_evaluation *evaluation, const fl_layer_view *view, fl_error *error) {
    fl_compute *compute = evaluation->network->compute;
    const size_t heads = evaluation->network->shape.kv_heads, tokens = view->tokens, signals = heads * tokens;
    const fl_array made = evaluation->geometry_made;
    fl_key_geometry_append(evaluation->geometry[view->layer], tokens, view->key, made,
                           fl_array_from(made, signals));
    FL_TRY(compute->ops->download(compute, evaluation->concentration, made, 2 * signals, error));
    evaluation->residual_signal = evaluation->concentration + signals;
    for (size_t n = 0; n < heads; n++) {
        size_t at = (view->layer * heads + n) * evaluation->positions + view->first_position;
        for (size_t t = 0; t < tokens; t++) {
            evaluation->totals.key_concentration[at + t] += evaluation->concentration[n * tokens + t];
            evaluation->totals.projection_residual[at + t] += evaluation->residual_signal[n * tokens + t];
        }
    }
    return FL_OK;
}

static fl_status observe_frozen(void *context, const fl_layer_view *view, fl_error *error) {
    fl_evaluation *evaluation = context;
    const fl_text_evaluation_options *options = evaluation->options;
    double start = fl_clock_seconds();
    if (options->teacher_forced || options->propagated) FL_TRY(keep_frozen(evaluation, view, error));
    if (options->diagnostics) FL_TRY(add_key_geometry(evaluation, view, error));
    fl_exact_shares_clear(&evaluation->shares);
    for (size_t r = 0; r < evaluation->run_count; r++) {
        fl_mechanism_run *run = &evaluation->runs[r];
        if (run->mixers == NULL) continue;
        double run_start = fl_clock_seconds();
        FL_TRY(measure_teacher_forced(evaluation, run, view, error));
        run->result->seconds_teacher_forced += fl_clock_seconds() - run_start;
    }
    if (evaluation->trends.room > 0) {
        fl_trend_signals_append(&evaluation->trends, view->layer, view->tokens, evaluation->concentration,
                                evaluation->residual_signal);
    }
    evaluation->seconds_measuring += fl_clock_seconds() - start;
    return FL_OK;
}

typedef struct {
    fl_evaluation *evaluation;
    fl_mechanism_run *run;
} fl_propagated_context;

static fl_status observe_propagated(void *context, const fl_layer_view *view, fl_error *error) {
    fl_evaluation *evaluation = ((fl_propagated_context *)context)->evaluation;
    fl_text_result *result = ((fl_propagated_context *)context)->run->result;
    const fl_watched mix = {"propagated", evaluation->heads, result->head_dim, view->mix};
    const fl_watched stream = {"propagated residual", 1, evaluation->model_dim, view->residual};
    FL_TRY(note_divergence(evaluation, result, view, mix, error));
    FL_TRY(note_divergence(evaluation, result, view, stream, error));
    if (!evaluation->options->propagated) return FL_OK;
    size_t at = view->layer * evaluation->positions + view->first_position;
    size_t frozen = view->layer * evaluation->block * evaluation->model_dim;
    double attention = 0.0, residual = 0.0;
    FL_TRY(add_errors(evaluation, view->tokens, fl_array_from(evaluation->attention, frozen),
                      view->attention_output, &result->attention_position_nmse[at], &attention, NULL, error));
    FL_TRY(add_errors(evaluation, view->tokens, fl_array_from(evaluation->residual, frozen), view->residual,
                      &result->residual_position_nmse[at], &residual, NULL, error));
    const size_t at_sequence = in_sequence(evaluation, view->layer);
    result->attention_mse[view->layer] += attention;
    result->residual_mse[view->layer] += residual;
    result->sequence_attention_squared_error[at_sequence] += attention;
    result->sequence_residual_squared_error[at_sequence] += residual;
    return FL_OK;
}

/* Rows `first` .. of the sequence are in the scorer; `scored` of them have a token after them. */
static void add_reference_scores(fl_evaluation *evaluation, size_t first, size_t scored) {
    for (size_t row = 0; row < scored; row++) {
        const double loss = evaluation->scorer.reference.cross_entropy[row];
        evaluation->totals.full_cross_entropy += loss;
        evaluation->totals.sequence_full_cross_entropy[evaluation->sequence] += loss;
        evaluation->totals.full_position_cross_entropy[first + row] += loss;
        evaluation->totals.position_scored[first + row] += 1.0;
    }
}

static void add_scores(fl_evaluation *evaluation, fl_text_result *result, size_t first, size_t rows,
                       size_t scored) {
    const fl_logit_scorer *scorer = &evaluation->scorer;
    const fl_logit_figures *reference = &scorer->reference, *compared = &scorer->compared;
    for (size_t row = 0; row < rows; row++) {
        result->kl += scorer->divergence[row];
        result->sequence_kl[evaluation->sequence] += scorer->divergence[row];
        result->position_kl[first + row] += scorer->divergence[row];
        const bool finite = isfinite(compared->log_sum_exp[row]);
        const bool agrees = finite && isfinite(reference->log_sum_exp[row]) &&
                            compared->largest[row] == reference->largest[row];
        result->agreement += agrees ? 1.0 : 0.0;
        result->sequence_agreement[evaluation->sequence] += agrees ? 1.0 : 0.0;
        if (!result->diverged && !finite) {
            result->diverged = true;
            snprintf(result->diverged_at, sizeof result->diverged_at, "logits, position %zu", first + row);
        }
        if (row >= scored) continue;
        const double loss = compared->cross_entropy[row];
        result->cross_entropy += loss;
        result->sequence_cross_entropy[evaluation->sequence] += loss;
        result->position_cross_entropy[first + row] += loss;
    }
}

static fl_status score_block(fl_evaluation *evaluation, const int32_t *ids, size_t length, size_t first,
                             size_t tokens, fl_error *error) {
    fl_logit_scorer *scorer = &evaluation->scorer;
    size_t width = evaluation->model_dim;
    for (size_t done = 0; done < tokens; done += scorer->rows) {
        size_t rows = tokens - done < scorer->rows ? tokens - done : scorer->rows;
        const size_t at = first + done, scored = at + rows < length ? rows : length - 1 - at;
        FL_TRY(fl_logit_scorer_reference(scorer, rows, fl_array_from(evaluation->hidden, done * width),
                                         ids + at + 1, scored, error));
        add_reference_scores(evaluation, at, scored);
        for (size_t r = 0; r < evaluation->run_count; r++) {
            double start = fl_clock_seconds();
            FL_TRY(fl_logit_scorer_compare(scorer, rows,
                                           fl_array_from(evaluation->runs[r].hidden, done * width),
                                           ids + at + 1, scored, error));
            add_scores(evaluation, evaluation->runs[r].result, at, rows, scored);
            evaluation->runs[r].result->seconds_propagated += fl_clock_seconds() - start;
        }
    }
    return FL_OK;
}

static fl_status evaluate_block(fl_evaluation *evaluation, const int32_t *ids, size_t length, size_t first,
                                size_t tokens, double *frozen_seconds, fl_error *error) {
    fl_session_observer frozen = {observe_frozen, evaluation};
    evaluation->seconds_measuring = 0.0;
    double start = fl_clock_seconds();
    FL_TRY(fl_session_forward(evaluation->frozen, ids + first, tokens, fl_array_none, evaluation->hidden,
                              &frozen, error));
    *frozen_seconds += fl_clock_seconds() - start - evaluation->seconds_measuring;
    for (size_t r = 0; r < evaluation->run_count; r++) {
        fl_mechanism_run *run = &evaluation->runs[r];
        if (run->session == NULL) continue;
        fl_propagated_context context = {evaluation, run};
        fl_session_observer observer = {observe_propagated, &context};
        start = fl_clock_seconds();
        FL_TRY(fl_session_forward(run->session, ids + first, tokens, fl_array_none, run->hidden, &observer,
                                  error));
        run->result->seconds_propagated += fl_clock_seconds() - start;
    }
    return evaluation->options->language_model ? score_block(evaluation, ids, length, first, tokens, error)
                                               : FL_OK;
}

/* The state receives its first token at the step at which one leaves the filled exact set. */
static size_t first_written_position(const fl_mechanism *mechanism) {
    const fl_variant *variant = mechanism->variant;
    if (variant->rule->stateless) return SIZE_MAX;
    for (size_t l = 0; l < mechanism->layers; l++) {
        if (!fl_variant_layer_is_softmax(variant, l)) {
            return variant->sinks + variant->window + variant->cache_budget;
        }
    }
    return SIZE_MAX;
}

static void note_memory(fl_evaluation *evaluation, fl_mechanism_run *run, size_t length) {
    size_t state = 0, exact = 0;
    for (size_t l = 0; l < evaluation->layers; l++) {
        if (run->session != NULL) break;
        const fl_mixer *mixer = run->mixers != NULL ? run->mixers[l] : NULL;
        if (mixer != NULL) state += fl_mixer_state_bytes(mixer);
        exact += mixer != NULL ? fl_mixer_exact_bytes(mixer)
                               : fl_network_cache_bytes(evaluation->network, l, length);
    }
    if (run->session != NULL) {
        state = fl_session_state_bytes(run->session);
        exact = fl_session_exact_bytes(run->session);
    }
    if (state > run->result->state_bytes) run->result->state_bytes = state;
    if (exact > run->result->exact_bytes) run->result->exact_bytes = exact;
}

static fl_status start_sequence(fl_evaluation *evaluation, size_t length, fl_error *error) {
    fl_session_reset(evaluation->frozen);
    FL_TRY(fl_session_expect_length(evaluation->frozen, length, error));
    fl_rope_set_length(&evaluation->rope, &evaluation->network->model->config, length);
    for (size_t l = 0; l < evaluation->layers && evaluation->geometry != NULL; l++) {
        fl_key_geometry_reset(evaluation->geometry[l]);
    }
    for (size_t r = 0; r < evaluation->run_count; r++) {
        fl_mechanism_run *run = &evaluation->runs[r];
        for (size_t l = 0; l < evaluation->layers && run->mixers != NULL; l++) {
            if (run->mixers[l] != NULL) fl_mixer_reset(run->mixers[l]);
        }
        if (run->log != NULL) fl_branch_log_start_sequence(run->log);
        if (run->session == NULL) continue;
        fl_session_reset(run->session);
        FL_TRY(fl_session_expect_length(run->session, length, error));
    }
    return FL_OK;
}

/* 48 bits: what a float64 holds exactly, with room to spare. */
static double hash_of_ids(const int32_t *ids, size_t length) {
    const fl_hash hash = fl_hash_bytes(ids, length * sizeof *ids);
    char first[13] = "";
    memcpy(first, hash.text, sizeof first - 1);
    return (double)strtoull(first, NULL, 16);
}

static fl_status finish_sequence(fl_evaluation *evaluation, const int32_t *ids, size_t length,
                                 fl_error *error) {
    evaluation->totals.sequence_ids_hash[evaluation->sequence] = hash_of_ids(ids, length);
    evaluation->totals.sequence_tokens[evaluation->sequence] = (double)length;
    for (size_t p = 0; p < length; p++) evaluation->totals.position_count[p] += 1.0;
    for (size_t r = 0; r < evaluation->run_count; r++) {
        fl_mechanism_run *run = &evaluation->runs[r];
        size_t first = first_written_position(run->mechanism);
        run->result->tokens += length;
        run->result->scored_tokens += length - 1;
        if (first < length - 1) run->result->linear_share += (double)(length - 1 - first);
        note_memory(evaluation, run, length);
        if (run->log == NULL) continue;
        FL_TRY(fl_branch_log_end_sequence(run->log, run->mixers, length, error));
    }
    return FL_OK;
}

static fl_status evaluate_sequences(fl_evaluation *evaluation, const fl_sequences *sequences,
                                    const fl_progress *progress, double *frozen_seconds, fl_error *error) {
    size_t total = 0, done = 0;
    for (size_t s = 0; s < sequences->count; s++) total += sequences->lengths[s];
    for (size_t s = 0; s < sequences->count; s++) {
        size_t length = sequences->lengths[s];
        evaluation->sequence = s;
        FL_TRY(start_sequence(evaluation, length, error));
        for (size_t first = 0; first < length; first += evaluation->block) {
            size_t tokens = length - first < evaluation->block ? length - first : evaluation->block;
            fl_progress_report(progress, "text evaluation", done, total);
            if (fl_progress_cancelled(progress)) {
                return fl_error_set(error, FL_ERROR_CANCELLED, "text evaluation: interrupted in sequence %zu",
                                    s);
            }
            fl_status status =
                evaluate_block(evaluation, sequences->ids[s], length, first, tokens, frozen_seconds, error);
            if (status != FL_OK) return fl_error_prepend(error, status, "text evaluation, sequence %zu", s);
            done += tokens;
        }
        FL_TRY(finish_sequence(evaluation, sequences->ids[s], length, error));
    }
    fl_progress_report(progress, "text evaluation", total, total);
    return FL_OK;
}

static fl_status create_run(fl_evaluation *evaluation, fl_mechanism_run *run, fl_error *error) {
    const fl_text_evaluation_options *options = evaluation->options;
    const fl_network *network = evaluation->network;
    if (options->teacher_forced || options->diagnostics) {
        FL_TRY(FL_ALLOCATE(&run->mixers, evaluation->layers, error));
        for (size_t l = 0; l < evaluation->layers; l++) {
            if (fl_variant_layer_is_softmax(run->mechanism->variant, l)) continue;
            FL_TRY(fl_mixer_create(network->compute, run->mechanism, l, &run->mixers[l], error));
        }
    }
    if (options->diagnostics) {
        FL_TRY(fl_branch_log_create(network->compute, run->mechanism, evaluation->positions,
                                    evaluation->block, &run->log, error));
    }
    if (evaluation->trends.room > 0) {
        FL_TRY(fl_trend_errors_create(&evaluation->trends, &run->trend_errors, error));
    }
    if (options->propagated || options->language_model) {
        FL_TRY(fl_session_create(network, run->mechanism, &run->session, error));
        FL_TRY(fl_compute_floats(evaluation->network->compute, evaluation->block * evaluation->model_dim,
                                 &run->hidden, error));
    }
    return fl_text_result_create(options, run->result, error);
}

static fl_status create_buffers(fl_evaluation *evaluation, fl_error *error) {
    FL_TRY(fl_rope_create(&evaluation->network->model->config, &evaluation->rope, error));
    const fl_text_evaluation_options *options = evaluation->options;
    fl_compute *compute = evaluation->network->compute;
    size_t rows = evaluation->block * evaluation->heads, stream = evaluation->block * evaluation->model_dim;
    FL_TRY(fl_compute_floats(compute, evaluation->block * evaluation->mix_dim, &evaluation->mix, error));
    FL_TRY(fl_compute_floats(compute, stream, &evaluation->projected, error));
    FL_TRY(fl_compute_floats(compute, stream, &evaluation->hidden, error));
    FL_TRY(compute->ops->allocate(compute, rows, FL_FLOAT32, &evaluation->state_norm, error));
    FL_TRY(FL_ALLOCATE(&evaluation->state_norm_brought, rows, error));
    FL_TRY(compute->ops->allocate(compute, 1, FL_INT32, &evaluation->not_finite, error));
    FL_TRY(fl_row_figures_create(compute, rows, &evaluation->rows, error));
    if (options->propagated) {
        FL_TRY(fl_compute_floats(compute, evaluation->layers * stream, &evaluation->attention, error));
        FL_TRY(fl_compute_floats(compute, evaluation->layers * stream, &evaluation->residual, error));
    }
    if (options->diagnostics) {
        const fl_attention_shape *shape = &evaluation->network->shape;
        FL_TRY(FL_ALLOCATE(&evaluation->geometry, evaluation->layers, error));
        for (size_t l = 0; l < evaluation->layers; l++) {
            FL_TRY(fl_key_geometry_create(compute, shape->kv_heads, shape->head_dim, &evaluation->geometry[l],
                                          error));
        }
        const size_t signals = 2 * shape->kv_heads * evaluation->block;
        FL_TRY(compute->ops->allocate(compute, signals, FL_FLOAT64, &evaluation->geometry_made, error));
        FL_TRY(FL_ALLOCATE(&evaluation->concentration, signals, error));
    }
    if (options->language_model) {
        FL_TRY(fl_logit_scorer_create(evaluation->network, &evaluation->scorer, error));
    }
    return fl_session_create(evaluation->network, NULL, &evaluation->frozen, error);
}

static void release(fl_evaluation *evaluation) {
    fl_compute *compute = evaluation->network->compute;
    for (size_t r = 0; evaluation->runs != NULL && r < evaluation->run_count; r++) {
        fl_mechanism_run *run = &evaluation->runs[r];
        for (size_t l = 0; run->mixers != NULL && l < evaluation->layers; l++)
            fl_mixer_destroy(run->mixers[l]);
        fl_memory_free(run->mixers);
        fl_session_destroy(run->session);
        fl_compute_release(compute, run->hidden);
        fl_branch_log_destroy(run->log);
        fl_memory_free(run->trend_errors);
    }
    for (size_t l = 0; evaluation->geometry != NULL && l < evaluation->layers; l++) {
        fl_key_geometry_destroy(evaluation->geometry[l]);
    }
    fl_exact_shares_release(&evaluation->shares);
    fl_memory_free(evaluation->geometry);
    fl_memory_free(evaluation->concentration);
    compute->ops->release(compute, evaluation->geometry_made);
    fl_trend_signals_release(&evaluation->trends);
    fl_memory_free(evaluation->runs);
    fl_rope_release(&evaluation->rope);
    fl_block_release(&evaluation->adapted);
    fl_compute_release(compute, evaluation->mix);
    fl_compute_release(compute, evaluation->projected);
    fl_compute_release(compute, evaluation->attention);
    fl_compute_release(compute, evaluation->residual);
    fl_compute_release(compute, evaluation->hidden);
    compute->ops->release(compute, evaluation->state_norm);
    fl_memory_free(evaluation->state_norm_brought);
    compute->ops->release(compute, evaluation->not_finite);
    fl_row_figures_release(&evaluation->rows);
    fl_logit_scorer_release(&evaluation->scorer);
    fl_text_totals_release(&evaluation->totals);
    fl_session_destroy(evaluation->frozen);
}

static fl_status create(fl_evaluation *evaluation, const fl_mechanism *const *mechanisms, size_t count,
                        size_t sequences, fl_text_result *results, fl_error *error) {
    const fl_model_config *config = &evaluation->network->model->config;
    const fl_text_evaluation_options *options = evaluation->options;
    evaluation->layers = config->layers;
    evaluation->heads = config->query_heads;
    evaluation->model_dim = config->model_dim;
    evaluation->mix_dim = config->query_heads * config->head_dim;
    evaluation->block = evaluation->positions < FL_SESSION_BLOCK ? evaluation->positions : FL_SESSION_BLOCK;
    FL_TRY(FL_ALLOCATE(&evaluation->runs, count, error));
    evaluation->run_count = count;
    FL_TRY(create_buffers(evaluation, error));
    fl_text_result sizes = {.layers = config->layers,
                            .query_heads = config->query_heads,
                            .kv_heads = config->kv_heads,
                            .head_dim = config->head_dim,
                            .positions = evaluation->positions,
                            .sequences = sequences};
    FL_TRY(fl_text_totals_create(options, &sizes, &evaluation->totals, error));
    for (size_t r = 0; r < count; r++) {
        results[r] = sizes;
        evaluation->runs[r].mechanism = mechanisms[r];
        evaluation->runs[r].result = &results[r];
        FL_TRY(create_run(evaluation, &evaluation->runs[r], error));
    }
    if (!options->teacher_forced && !options->diagnostics) return FL_OK;
    FL_TRY(fl_exact_shares_create(evaluation->network->compute, mechanisms, count,
                                  &evaluation->network->shape, evaluation->block, &evaluation->shares,
                                  error));
    for (size_t r = 0; r < count; r++) evaluation->runs[r].exact = evaluation->shares.of[r];
    return FL_OK;
}

fl_status fl_text_evaluation_run(const fl_network *network, const fl_sequences *sequences,
                                 const fl_mechanism *const *mechanisms, size_t count,
                                 const fl_text_evaluation_options *options, const fl_progress *progress,
                                 fl_text_result *results, double *frozen_seconds, fl_error *error) {
    memset(results, 0, count * sizeof *results);
    fl_evaluation evaluation = {.network = network, .options = options};
    double seconds = 0.0;
    FL_TRY(fl_sequences_check(sequences, network->model->config.vocabulary, 1, "text evaluation", error));
    size_t tokens = 0;
    for (size_t s = 0; s < sequences->count; s++) {
        tokens += sequences->lengths[s];
        if (sequences->lengths[s] > evaluation.positions) evaluation.positions = sequences->lengths[s];
    }
    fl_status status = FL_OK;
    if (options->diagnostics && options->teacher_forced) {
        const fl_attention_shape *shape = &network->shape;
        FL_TRY_DONE(status, fl_trend_signals_create(network->model->config.layers, shape->query_heads,
                                                    shape->kv_heads, tokens, &evaluation.trends, error));
    }
    FL_TRY_DONE(status, create(&evaluation, mechanisms, count, sequences->count, results, error));
    FL_TRY_DONE(status, evaluate_sequences(&evaluation, sequences, progress, &seconds, error));
    for (size_t r = 0; r < count; r++) {
        results[r].linear_share /= (double)results[r].scored_tokens;
        fl_text_result_finish(&results[r], &evaluation.totals, evaluation.model_dim);
        const fl_mechanism_run *run = &evaluation.runs[r];
        if (run->log != NULL) fl_branch_log_finish(run->log, &results[r]);
        if (run->trend_errors == NULL) continue;
        FL_TRY_DONE(status, fl_trends_finish(&evaluation.trends, run->trend_errors, &evaluation.totals,
                                             &results[r], error));
    }
    if (frozen_seconds != NULL) *frozen_seconds = seconds;
done:
    if (status != FL_OK) {
        for (size_t r = 0; r < count; r++) fl_text_result_release(&results[r]);
    }
    release(&evaluation);
    return status;
}
