#include "harness/store/run_record.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"

/* A dataset of float64. Axes as letters: L layers, H query heads, N key/value heads, P positions, Q gate
 * quantiles, B trend bins and E their edges; none: a single value, which is written when the array at `with`
 * was measured. */
typedef struct number_row {
    const char *path;
    size_t offset;
    const char *axes;
    size_t with;
    const char *units, *description;
} number_row;

#define ARRAY(path, member, axes, units, description)                                                        \
    { path, offsetof(fl_text_result, member), axes, 0, units, description }
#define SINGLE(path, member, array, units, description)                                                      \
    { path, offsetof(fl_text_result, member), "", offsetof(fl_text_result, array), units, description }

#define TEACHER "/errors/teacher_forced/"
#define PROPAGATED "/errors/propagated/"
#define LANGUAGE "/language_model/"

static const number_row numbers[] = {
    ARRAY(TEACHER "mse", mse, "L", "1",
          "mean squared error after the output projection, same inputs as the frozen layer"),
    ARRAY(TEACHER "variance", variance, "L", "1",
          "variance of the frozen layer's output over all tokens and channels"),
    ARRAY(TEACHER "mean", mean, "L", "1", "mean of the frozen layer's output over all tokens and channels"),
    ARRAY(TEACHER "nmse", nmse, "L", "1", "mse / variance"),
    ARRAY(TEACHER "cosine", cosine, "L", "1", "cosine of the outputs, mean over tokens"),
    ARRAY(TEACHER "head_nmse", head_nmse, "LH", "1",
          "mse of a head before the output projection over that head's variance"),
    ARRAY(TEACHER "head_mean", head_mean, "LH", "1", "mean of the frozen head's output"),
    ARRAY(TEACHER "head_variance", head_variance, "LH", "1", "variance of the frozen head's output"),
    ARRAY(TEACHER "position_nmse", position_nmse, "LP", "1", "mse at a position over the layer's variance"),
    ARRAY(TEACHER "position_count", position_count, "P", "1", "number of sequences that reach a position"),
    ARRAY(TEACHER "head_position_mse", head_position_mse, "LHP", "1",
          "mse of a head at a position before the output projection, not normalised"),

    ARRAY(PROPAGATED "attention_nmse", attention_nmse, "L", "1",
          "attention-block output of the linearised model against the full model's, over its variance"),
    ARRAY(PROPAGATED "residual_nmse", residual_nmse, "L", "1",
          "residual stream after the layer against the full model's, over its variance"),
    ARRAY(PROPAGATED "attention_mse", attention_mse, "L", "1", "attention_nmse before the division"),
    ARRAY(PROPAGATED "residual_mse", residual_mse, "L", "1", "residual_nmse before the division"),
    ARRAY(PROPAGATED "attention_mean", attention_mean, "L", "1",
          "mean of the full model's attention-block output"),
    ARRAY(PROPAGATED "residual_mean", residual_mean, "L", "1", "mean of the full model's residual stream"),
    ARRAY(PROPAGATED "attention_variance", attention_variance, "L", "1",
          "variance of the full model's attention-block output"),
    ARRAY(PROPAGATED "residual_variance", residual_variance, "L", "1",
          "variance of the full model's residual stream"),
    ARRAY(PROPAGATED "attention_position_nmse", attention_position_nmse, "LP", "1",
          "attention_nmse by position"),
    ARRAY(PROPAGATED "residual_position_nmse", residual_position_nmse, "LP", "1",
          "residual_nmse by position"),

    SINGLE(LANGUAGE "perplexity", perplexity, position_kl, "1", "exp(cross_entropy)"),
    SINGLE(LANGUAGE "cross_entropy", cross_entropy, position_kl, "nat", "next token, whole evaluation text"),
    SINGLE(LANGUAGE "full_perplexity", full_perplexity, position_kl, "1", "the full model's"),
    SINGLE(LANGUAGE "full_cross_entropy", full_cross_entropy, position_kl, "nat", "the full model's"),
    SINGLE(LANGUAGE "kl", kl, position_kl, "nat",
           "KL(full || linearised) of the next token, mean over tokens"),
    SINGLE(LANGUAGE "agreement", agreement, position_kl, "1",
           "share of tokens at which both name the same next token first"),
    SINGLE(LANGUAGE "linear_share", linear_share, position_kl, "1",
           "share of scored tokens whose context reached the linear state"),
    ARRAY(LANGUAGE "position_kl", position_kl, "P", "nat", "kl by position"),
    ARRAY(LANGUAGE "position_cross_entropy", position_cross_entropy, "P", "nat",
          "cross entropy by position; NaN where no token is scored"),
    ARRAY(LANGUAGE "full_position_cross_entropy", full_position_cross_entropy, "P", "nat",
          "the full model's"),

    ARRAY("/diagnostics/key_concentration", key_concentration, "LNP", "1",
          "cosine of the unit key with the mean of the unit keys so far, mean over sequences"),
    ARRAY(
        "/diagnostics/projection_residual", projection_residual, "LNP", "1",
        "mean squared distance of the past unit keys, projected on their mean, from it; mean over sequences"),
    ARRAY("/diagnostics/state_norm", state_norm, "LHP", "1",
          "Frobenius norm of the state, mean over sequences"),
    ARRAY("/diagnostics/effective_rank", effective_rank, "LH", "1",
          "exp(entropy of the singular values) of the state after a sequence, mean over sequences"),
    ARRAY("/diagnostics/gates/gate_quantiles", gate_quantiles, "LHQ", "1",
          "quantiles 0, 0.05, 0.25, 0.5, 0.75, 0.95, 1 of the gate over tokens and channels"),
    ARRAY("/diagnostics/gates/beta_quantiles", beta_quantiles, "LHQ", "1",
          "quantiles 0, 0.05, 0.25, 0.5, 0.75, 0.95, 1 of beta over tokens"),
    ARRAY("/diagnostics/routing/kept", routing_kept, "LNP", "1",
          "share of sequences in which the token of a position was still cached at the end; NaN where none "
          "left"),
    ARRAY("/diagnostics/routing/lifetime", routing_lifetime, "LNP", "token",
          "steps a token stayed in the cache after leaving the window, mean over sequences"),
    ARRAY("/diagnostics/trends/key_concentration/edges", concentration_edges, "LE", "1",
          "quantile bins of the key concentration"),
    ARRAY("/diagnostics/trends/key_concentration/nmse", concentration_trend_nmse, "LB", "1",
          "teacher-forced error of a head before the output projection, over its variance, by bin"),
    ARRAY("/diagnostics/trends/key_concentration/count", concentration_count, "LB", "1",
          "tokens times query heads in a bin"),
    ARRAY("/diagnostics/trends/projection_residual/edges", residual_edges, "LE", "1",
          "quantile bins of the projection residual"),
    ARRAY("/diagnostics/trends/projection_residual/nmse", residual_trend_nmse, "LB", "1",
          "teacher-forced error of a head before the output projection, over its variance, by bin"),
    ARRAY("/diagnostics/trends/projection_residual/count", residual_count, "LB", "1",
          "tokens times query heads in a bin"),
};

/* size_t members, written as integers. */
static const struct {
    const char *path;
    size_t offset;
    const char *units, *description;
} counts[] = {
    {"/text/tokens", offsetof(fl_text_result, tokens), "1", "tokens evaluated"},
    {"/text/scored_tokens", offsetof(fl_text_result, scored_tokens), "1",
     "tokens with a next token to predict"},
    {"/memory/state_bytes", offsetof(fl_text_result, state_bytes), "B",
     "linear states of one sequence at its end, largest over sequences"},
    {"/memory/exact_bytes", offsetof(fl_text_result, exact_bytes), "B",
     "keys and values held exactly for one sequence at its end, largest over sequences"},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Axes of one length in every run; 0: the result says. */
static size_t fixed_axis(char letter) {
    switch (letter) {
    case 'Q':
        return FL_GATE_QUANTILES;
    case 'B':
        return FL_TREND_BINS;
    case 'E':
        return FL_TREND_BINS + 1;
    default:
        return 0;
    }
}

static size_t *axis_member(fl_text_result *result, char letter) {
    switch (letter) {
    case 'L':
        return &result->layers;
    case 'H':
        return &result->query_heads;
    case 'N':
        return &result->kv_heads;
    default:
        return &result->positions;
    }
}

static size_t axis_size(const fl_text_result *result, char letter) {
    size_t fixed = fixed_axis(letter);
    return fixed > 0 ? fixed : *axis_member((fl_text_result *)result, letter);
}

static const double *array_at(const fl_text_result *result, size_t offset) {
    return *(double *const *)((const char *)result + offset);
}

static fl_status write_row(fl_run_file *file, const fl_text_result *result, const number_row *row,
                           fl_error *error) {
    size_t rank = strlen(row->axes), shape[4] = {0};
    for (size_t i = 0; i < rank; i++) shape[i] = axis_size(result, row->axes[i]);
    const double *data = NULL;
    if (rank > 0)
        data = array_at(result, row->offset);
    else if (array_at(result, row->with) != NULL)
        data = (const double *)(const void *)((const char *)result + row->offset);
    return fl_run_file_write_doubles(file, row->path, rank, shape, data, row->units, row->description, error);
}

const char *fl_run_record_axes(const char *path) {
    for (size_t i = 0; i < COUNT(numbers); i++) {
        if (strcmp(numbers[i].path, path) == 0) return numbers[i].axes;
    }
    return "";
}

fl_status fl_run_record_write_text_result(fl_run_file *file, const fl_text_result *result, fl_error *error) {
    for (size_t i = 0; i < COUNT(numbers); i++) {
        /* The number of sequences at each position belongs to the teacher-forced trace. */
        bool is_count = numbers[i].offset == offsetof(fl_text_result, position_count);
        if (is_count && result->position_nmse == NULL) continue;
        FL_TRY(write_row(file, result, &numbers[i], error));
    }
    for (size_t i = 0; i < COUNT(counts); i++) {
        const size_t *member = (const size_t *)((const char *)result + counts[i].offset);
        int64_t value = (int64_t)*member;
        FL_TRY(fl_run_file_write_integers(file, counts[i].path, 0, NULL, &value, counts[i].units,
                                          counts[i].description, error));
    }
    if (result->position_count != NULL) {
        FL_TRY(fl_run_file_write_doubles(file, "/text/position_count", 1, &result->positions,
                                         result->position_count, "1",
                                         "number of sequences that reach a position", error));
    }
    if (result->mse != NULL) {
        FL_TRY(fl_run_record_write_seconds(file, "teacher_forced", result->seconds_teacher_forced,
                                           "this variant's part of the teacher-forced pass", error));
    }
    if (result->attention_nmse != NULL || result->position_kl != NULL) {
        FL_TRY(fl_run_record_write_seconds(file, "propagated", result->seconds_propagated,
                                           "this variant's own passes", error));
    }
    FL_TRY(fl_run_file_set_integer(file, "/", "diverged", result->diverged, error));
    return fl_run_file_set_text(file, "/", "diverged_at", result->diverged ? result->diverged_at : "", error);
}

/* The first dataset with an axis says how long it is; the others must agree. */
static fl_status read_array(fl_run_reader *reader, const char *path, const char *axes, double **out,
                            fl_text_result *sizes, fl_error *error) {
    size_t rank = 0, shape[4] = {0};
    if (!fl_run_reader_has(reader, path)) return FL_OK;
    FL_TRY(fl_run_reader_doubles(reader, path, out, &rank, shape, error));
    bool fits = rank == strlen(axes);
    for (size_t i = 0; fits && i < rank; i++) {
        size_t fixed = fixed_axis(axes[i]);
        size_t *size = fixed > 0 ? &fixed : axis_member(sizes, axes[i]);
        if (*size == 0) *size = shape[i];
        fits = shape[i] > 0 && shape[i] == *size;
    }
    return fits
               ? FL_OK
               : fl_error_set(error, FL_ERROR_FORMAT, "%s: its shape does not fit the other datasets'", path);
}

static fl_status read_row(fl_run_reader *reader, const number_row *row, fl_text_result *out,
                          fl_error *error) {
    if (row->axes[0] != '\0') {
        return read_array(reader, row->path, row->axes, (double **)((char *)out + row->offset), out, error);
    }
    double *single = NULL, *member = (double *)(void *)((char *)out + row->offset);
    *member = NAN;
    FL_TRY(read_array(reader, row->path, "", &single, out, error));
    if (single != NULL) *member = single[0];
    fl_memory_free(single);
    return FL_OK;
}

static fl_status read_all(fl_run_reader *reader, fl_text_result *out, fl_error *error) {
    for (size_t i = 0; i < COUNT(numbers); i++) FL_TRY(read_row(reader, &numbers[i], out, error));
    if (out->position_count == NULL) {
        FL_TRY(read_array(reader, "/text/position_count", "P", &out->position_count, out, error));
    }
    for (size_t i = 0; i < COUNT(counts); i++) {
        double *value = NULL;
        fl_status status = read_array(reader, counts[i].path, "", &value, out, error);
        if (status == FL_OK && value != NULL && value[0] >= 0 && value[0] < 9e15) {
            *(size_t *)((char *)out + counts[i].offset) = (size_t)value[0];
        }
        fl_memory_free(value);
        FL_TRY(status);
    }
    double *const seconds[] = {&out->seconds_teacher_forced, &out->seconds_propagated};
    static const char *const timings[] = {"/timing/teacher_forced", "/timing/propagated"};
    for (size_t i = 0; i < COUNT(timings); i++) {
        double *value = NULL;
        fl_status status = read_array(reader, timings[i], "", &value, out, error);
        if (status == FL_OK && value != NULL) *seconds[i] = value[0];
        fl_memory_free(value);
        FL_TRY(status);
    }
    double diverged = 0.0;
    char *where = NULL;
    FL_TRY(fl_run_reader_attribute_number(reader, "/", "diverged", &diverged, error));
    FL_TRY(fl_run_reader_attribute_text(reader, "/", "diverged_at", &where, error));
    out->diverged = diverged != 0.0;
    snprintf(out->diverged_at, sizeof out->diverged_at, "%s", where);
    fl_memory_free(where);
    return FL_OK;
}

fl_status fl_run_record_read_text_result(fl_run_reader *reader, fl_text_result *out, fl_error *error) {
    *out = (fl_text_result){0};
    fl_status status = read_all(reader, out, error);
    if (status != FL_OK) fl_text_result_release(out);
    return status;
}

fl_status fl_run_record_write_seconds(fl_run_file *file, const char *name, double seconds,
                                      const char *description, fl_error *error) {
    char path[128];
    snprintf(path, sizeof path, "/timing/%s", name);
    return fl_run_file_write_doubles(file, path, 0, NULL, &seconds, "s", description, error);
}

fl_status fl_run_record_write_bytes(fl_run_file *file, const char *name, int64_t bytes,
                                    const char *description, fl_error *error) {
    char path[128];
    snprintf(path, sizeof path, "/memory/%s", name);
    return fl_run_file_write_integers(file, path, 0, NULL, &bytes, "B", description, error);
}

fl_status fl_run_record_write_header(fl_run_file *file, const fl_run_header *header, fl_error *error) {
    const char *const attributes[][2] = {{"format", FL_RUN_FORMAT},  {"run_id", header->run_id},
                                         {"name", header->name},     {"cell", header->cell},
                                         {"status", header->status}, {"tier", header->tier}};
    for (size_t i = 0; i < COUNT(attributes); i++) {
        const char *value = attributes[i][1] != NULL ? attributes[i][1] : "";
        FL_TRY(fl_run_file_set_text(file, "/", attributes[i][0], value, error));
    }
    return fl_run_file_set_integer(file, "/", "version", FL_RUN_VERSION, error);
}

fl_status fl_run_record_write_config(fl_run_file *file, const fl_resolved *resolved, fl_error *error) {
    char *text = NULL;
    const char **defaults = NULL;
    size_t count = fl_resolved_count(resolved), used = 0;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_resolved_text(resolved, NULL, &text, error));
    FL_TRY_DONE(status, fl_run_file_write_text(file, "/config", text, "resolved configuration, YAML", error));
    FL_TRY_DONE(status, FL_ALLOCATE(&defaults, count, error));
    for (size_t i = 0; i < count; i++) {
        const char *key = NULL;
        bool is_default = false;
        fl_resolved_at(resolved, i, &key, NULL, &is_default);
        if (is_default) defaults[used++] = key;
    }
    FL_TRY_DONE(status,
                fl_run_file_write_texts(file, "/config_defaults", used, defaults,
                                        "keys of the configuration whose value is the default", error));
done:
    fl_memory_free(defaults);
    fl_memory_free(text);
    return status;
}
