#include "harness/measure/text_result.h"

#include <math.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/measure/measurements.h"

fl_status fl_text_result_create(const fl_text_evaluation_options *options, fl_text_result *result,
                                fl_error *error) {
    size_t count = 0, shape[4];
    const fl_measurement *rows = fl_measurements(&count);
    for (size_t i = 0; i < count; i++) {
        if (rows[i].kind != FL_MEASUREMENT_ARRAY || !fl_measurement_wanted(&rows[i], options)) continue;
        const size_t elements = fl_measurement_shape(&rows[i], result, shape);
        fl_status status = FL_ALLOCATE(fl_measurement_array(result, &rows[i]), elements, error);
        if (status != FL_OK) {
            fl_text_result_release(result);
            return status;
        }
    }
    return FL_OK;
}

void fl_text_result_release(fl_text_result *result) {
    size_t count = 0;
    const fl_measurement *rows = fl_measurements(&count);
    for (size_t i = 0; i < count; i++) {
        if (rows[i].kind == FL_MEASUREMENT_ARRAY) fl_memory_free(*fl_measurement_array(result, &rows[i]));
    }
    memset(result, 0, sizeof *result);
}

fl_status fl_text_totals_create(const fl_text_evaluation_options *options, const fl_text_result *sizes,
                                fl_text_totals *out, fl_error *error) {
    size_t layers = sizes->layers, positions = sizes->positions;
    size_t keys = options->diagnostics ? layers * sizes->kv_heads * positions : 0;
    fl_status status = FL_OK;
    *out = (fl_text_totals){0};
    FL_TRY_DONE(status, FL_ALLOCATE(&out->position_count, positions, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->position_scored, positions, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->full_position_cross_entropy, positions, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->attention, layers, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->residual, layers, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->head, layers * sizes->query_heads, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->sequence_ids_hash, sizes->sequences, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->sequence_tokens, sizes->sequences, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->sequence_full_cross_entropy, sizes->sequences, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->sequence_attention, sizes->sequences * layers, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->sequence_residual, sizes->sequences * layers, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->key_concentration, keys, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->projection_residual, keys, error));
    return FL_OK;
done:
    fl_text_totals_release(out);
    return status;
}

void fl_text_totals_release(fl_text_totals *totals) {
    fl_memory_free(totals->position_count);
    fl_memory_free(totals->position_scored);
    fl_memory_free(totals->full_position_cross_entropy);
    fl_memory_free(totals->attention);
    fl_memory_free(totals->residual);
    fl_memory_free(totals->head);
    fl_memory_free(totals->sequence_ids_hash);
    fl_memory_free(totals->sequence_tokens);
    fl_memory_free(totals->sequence_full_cross_entropy);
    fl_memory_free(totals->sequence_attention);
    fl_memory_free(totals->sequence_residual);
    fl_memory_free(totals->key_concentration);
    fl_memory_free(totals->projection_residual);
    *totals = (fl_text_totals){0};
}

/* sums [rows][P] -> sums / (counts [P] * width * scale [row]); scale may be NULL (1). */
static void divide_positions(double *sums, size_t rows, size_t positions, const double *counts, double width,
                             const double *scale) {
    for (size_t row = 0; row < rows; row++) {
        for (size_t p = 0; p < positions; p++) {
            sums[row * positions + p] /= counts[p] * width * (scale != NULL ? scale[row] : 1.0);
        }
    }
}

static void finish_teacher_forced(fl_text_result *result, const fl_text_totals *totals, double width) {
    size_t heads = result->query_heads, positions = result->positions;
    double tokens = (double)result->tokens, head_dim = (double)result->head_dim;
    for (size_t l = 0; l < result->layers; l++) {
        result->mse[l] /= tokens * width;
        result->cosine[l] /= tokens;
        result->variance[l] = fl_moments_variance(&totals->attention[l]);
        result->mean[l] = totals->attention[l].sum / totals->attention[l].count;
        result->nmse[l] = result->mse[l] / result->variance[l];
        for (size_t h = 0; h < heads; h++) {
            double mse = 0.0;
            for (size_t p = 0; p < positions; p++) {
                mse += result->head_position_mse[(l * heads + h) * positions + p];
            }
            const fl_moments *head = &totals->head[l * heads + h];
            result->head_mean[l * heads + h] = head->sum / head->count;
            result->head_variance[l * heads + h] = fl_moments_variance(head);
            result->head_nmse[l * heads + h] = mse / (tokens * head_dim) / fl_moments_variance(head);
        }
    }
    divide_positions(result->position_nmse, result->layers, positions, totals->position_count, width,
                     result->variance);
    divide_positions(result->head_position_mse, result->layers * heads, positions, totals->position_count,
                     head_dim, NULL);
}

static void finish_propagated(fl_text_result *result, const fl_text_totals *totals, double width) {
    double tokens = (double)result->tokens;
    for (size_t l = 0; l < result->layers; l++) {
        result->attention_mse[l] /= tokens * width;
        result->residual_mse[l] /= tokens * width;
        result->attention_variance[l] = fl_moments_variance(&totals->attention[l]);
        result->residual_variance[l] = fl_moments_variance(&totals->residual[l]);
        result->attention_mean[l] = totals->attention[l].sum / totals->attention[l].count;
        result->residual_mean[l] = totals->residual[l].sum / totals->residual[l].count;
        result->attention_nmse[l] = result->attention_mse[l] / result->attention_variance[l];
        result->residual_nmse[l] = result->residual_mse[l] / result->residual_variance[l];
    }
    divide_positions(result->attention_position_nmse, result->layers, result->positions,
                     totals->position_count, width, result->attention_variance);
    divide_positions(result->residual_position_nmse, result->layers, result->positions,
                     totals->position_count, width, result->residual_variance);
}

static void finish_language_model(fl_text_result *result, const fl_text_totals *totals) {
    double tokens = (double)result->tokens, scored = (double)result->scored_tokens;
    result->cross_entropy /= scored;
    result->full_cross_entropy = totals->full_cross_entropy / scored;
    result->perplexity = exp(result->cross_entropy);
    result->full_perplexity = exp(result->full_cross_entropy);
    result->kl /= tokens;
    result->agreement /= tokens;
    memcpy(result->full_position_cross_entropy, totals->full_position_cross_entropy,
           result->positions * sizeof(double));
    divide_positions(result->position_kl, 1, result->positions, totals->position_count, 1.0, NULL);
    divide_positions(result->position_cross_entropy, 1, result->positions, totals->position_scored, 1.0,
                     NULL);
    divide_positions(result->full_position_cross_entropy, 1, result->positions, totals->position_scored, 1.0,
                     NULL);
}

static void finish_diagnostics(fl_text_result *result, const fl_text_totals *totals) {
    size_t keys = result->layers * result->kv_heads;
    memcpy(result->key_concentration, totals->key_concentration, keys * result->positions * sizeof(double));
    memcpy(result->projection_residual, totals->projection_residual,
           keys * result->positions * sizeof(double));
    divide_positions(result->key_concentration, keys, result->positions, totals->position_count, 1.0, NULL);
    divide_positions(result->projection_residual, keys, result->positions, totals->position_count, 1.0, NULL);
    divide_positions(result->state_norm, result->layers * result->query_heads, result->positions,
                     totals->position_count, 1.0, NULL);
}

/* sums, sums_squares [S][L] of moments. */
static void copy_moments(const fl_moments *moments, size_t count, double *sums, double *sums_squares) {
    for (size_t i = 0; i < count; i++) {
        sums[i] = moments[i].sum;
        sums_squares[i] = moments[i].sum_squares;
    }
}

/* What belongs to the frozen model and the text; the errors of a sequence are sums already. */
static void finish_sequences(fl_text_result *result, const fl_text_totals *totals, size_t model_dim) {
    const size_t sequences = result->sequences, of_layers = sequences * result->layers;
    for (size_t s = 0; s < sequences; s++) {
        result->sequence_ids_hash[s] = totals->sequence_ids_hash[s];
        result->sequence_tokens[s] = totals->sequence_tokens[s];
        result->sequence_scored_tokens[s] = totals->sequence_tokens[s] - 1.0;
        if (result->sequence_output_count != NULL)
            result->sequence_output_count[s] = totals->sequence_tokens[s] * (double)model_dim;
        if (result->sequence_full_cross_entropy != NULL)
            result->sequence_full_cross_entropy[s] = totals->sequence_full_cross_entropy[s];
    }
    if (result->sequence_output_sum != NULL)
        copy_moments(totals->sequence_attention, of_layers, result->sequence_output_sum,
                     result->sequence_output_sum_squares);
    if (result->sequence_residual_sum != NULL)
        copy_moments(totals->sequence_residual, of_layers, result->sequence_residual_sum,
                     result->sequence_residual_sum_squares);
}

void fl_text_result_finish(fl_text_result *result, const fl_text_totals *totals, size_t model_dim) {
    memcpy(result->position_count, totals->position_count, result->positions * sizeof(double));
    finish_sequences(result, totals, model_dim);
    if (result->mse != NULL) finish_teacher_forced(result, totals, (double)model_dim);
    if (result->attention_mse != NULL) finish_propagated(result, totals, (double)model_dim);
    if (result->key_concentration != NULL) finish_diagnostics(result, totals);
    if (result->position_kl != NULL) {
        finish_language_model(result, totals);
    } else {
        result->perplexity = result->cross_entropy = result->kl = result->agreement = NAN;
        result->full_perplexity = result->full_cross_entropy = NAN;
    }
}
