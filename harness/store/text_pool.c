#include "harness/store/text_pool.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"

typedef enum pooling {
    BY_TOKENS = 0,
    BY_POSITION,        /* last axis P: sequences that reach the position */
    BY_SCORED_POSITION, /* last axis P: sequences that go on behind it */
    VARIANCE            /* with the mean at `partner` */
} pooling;

/* Axes as in run_record.c. `partner` of an array of ratios is its denominator [L] or [L][H]: the numerators
 * are pooled, then divided by the pooled denominator. Rows come after the rows they need. */
typedef struct pool_row {
    const char *name;
    size_t offset;
    const char *axes;
    pooling how;
    size_t partner; /* offset of a member, or NONE */
} pool_row;

#define NONE ((size_t)-1)
#define MEMBER(name) offsetof(fl_text_result, name)
#define ROW(name, axes, how, partner)                                                                        \
    { #name, MEMBER(name), axes, how, partner }

static const pool_row rows[] = {
    ROW(mean, "L", BY_TOKENS, NONE),
    ROW(head_mean, "LH", BY_TOKENS, NONE),
    ROW(attention_mean, "L", BY_TOKENS, NONE),
    ROW(residual_mean, "L", BY_TOKENS, NONE),
    ROW(variance, "L", VARIANCE, MEMBER(mean)),
    ROW(head_variance, "LH", VARIANCE, MEMBER(head_mean)),
    ROW(attention_variance, "L", VARIANCE, MEMBER(attention_mean)),
    ROW(residual_variance, "L", VARIANCE, MEMBER(residual_mean)),
    ROW(mse, "L", BY_TOKENS, NONE),
    ROW(cosine, "L", BY_TOKENS, NONE),
    ROW(attention_mse, "L", BY_TOKENS, NONE),
    ROW(residual_mse, "L", BY_TOKENS, NONE),
    ROW(nmse, "L", BY_TOKENS, MEMBER(variance)),
    ROW(head_nmse, "LH", BY_TOKENS, MEMBER(head_variance)),
    ROW(attention_nmse, "L", BY_TOKENS, MEMBER(attention_variance)),
    ROW(residual_nmse, "L", BY_TOKENS, MEMBER(residual_variance)),
    ROW(position_nmse, "LP", BY_POSITION, MEMBER(variance)),
    ROW(attention_position_nmse, "LP", BY_POSITION, MEMBER(attention_variance)),
    ROW(residual_position_nmse, "LP", BY_POSITION, MEMBER(residual_variance)),
    ROW(head_position_mse, "LHP", BY_POSITION, NONE),
    ROW(position_kl, "P", BY_POSITION, NONE),
    ROW(position_cross_entropy, "P", BY_SCORED_POSITION, NONE),
    ROW(full_position_cross_entropy, "P", BY_SCORED_POSITION, NONE),
    ROW(key_concentration, "LNP", BY_POSITION, NONE),
    ROW(projection_residual, "LNP", BY_POSITION, NONE),
    ROW(state_norm, "LHP", BY_POSITION, NONE),
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static double *array_of(const fl_text_result *result, size_t offset) {
    return *(double *const *)((const char *)result + offset);
}

static size_t axis_size(const fl_text_result *result, char letter) {
    return letter == 'L'   ? result->layers
           : letter == 'H' ? result->query_heads
           : letter == 'N' ? result->kv_heads
                           : result->positions;
}

/* Elements before the axis of positions. */
static size_t leading(const fl_text_result *result, const pool_row *row) {
    size_t count = 1;
    for (const char *axis = row->axes; *axis != '\0' && *axis != 'P'; axis++)
        count *= axis_size(result, *axis);
    return count;
}

static size_t trailing(const fl_text_result *result, const pool_row *row) {
    return strchr(row->axes, 'P') != NULL ? result->positions : 1;
}

static double weight_of(const fl_text_result *result, pooling how, size_t position) {
    if (how == BY_TOKENS || how == VARIANCE) return (double)result->tokens;
    size_t at = how == BY_SCORED_POSITION ? position + 1 : position;
    return at < result->positions ? result->position_count[at] : 0.0;
}

/* What one result adds to entry [lead][position]: its value, or its numerator, or its second moment about the
 * pooled mean. */
static double part_of(const fl_text_result *result, const fl_text_result *pooled, const pool_row *row,
                      size_t lead, size_t position) {
    double value = array_of(result, row->offset)[lead * trailing(result, row) + position];
    if (row->how == VARIANCE) {
        double distance = array_of(result, row->partner)[lead] - array_of(pooled, row->partner)[lead];
        return value + distance * distance;
    }
    return row->partner == NONE ? value : value * array_of(result, row->partner)[lead];
}

static fl_status pool_array(const fl_text_result *results, size_t count, const pool_row *row,
                            fl_text_result *out, fl_error *error) {
    size_t leads = leading(out, row), positions = trailing(out, row);
    double **slot = (double **)((char *)out + row->offset);
    FL_TRY(FL_ALLOCATE(slot, leads * positions, error));
    for (size_t lead = 0; lead < leads; lead++) {
        for (size_t p = 0; p < positions; p++) {
            double sum = 0.0, weights = 0.0;
            for (size_t r = 0; r < count; r++) {
                double weight = p < trailing(&results[r], row) ? weight_of(&results[r], row->how, p) : 0.0;
                if (weight == 0.0) continue;
                sum += weight * part_of(&results[r], out, row, lead, p);
                weights += weight;
            }
            double value = weights > 0.0 ? sum / weights : NAN;
            bool is_ratio = row->how != VARIANCE && row->partner != NONE;
            (*slot)[lead * positions + p] = is_ratio ? value / array_of(out, row->partner)[lead] : value;
        }
    }
    return FL_OK;
}

static fl_status check_alike(const fl_text_result *results, const char *const *names, size_t count,
                             fl_error *error) {
    const fl_text_result *first = &results[0];
    for (size_t r = 0; r < count; r++) {
        const fl_text_result *other = &results[r];
        bool shaped = other->layers == first->layers && other->query_heads == first->query_heads &&
                      other->kv_heads == first->kv_heads;
        if (!shaped)
            return fl_error_set(error, FL_ERROR_ARGUMENT, "%s and %s are of models of different shape",
                                names[0], names[r]);
        for (size_t i = 0; i < COUNT(rows); i++) {
            bool here = array_of(first, rows[i].offset) != NULL,
                 there = array_of(other, rows[i].offset) != NULL;
            if (here == there) continue;
            return fl_error_set(error, FL_ERROR_ARGUMENT, "%s has measured %s, %s has not",
                                names[here ? 0 : r], rows[i].name, names[here ? r : 0]);
        }
        if (other->tokens == 0 || other->position_count == NULL) {
            return fl_error_set(error, FL_ERROR_ARGUMENT, "%s does not say how many tokens it has measured",
                                names[r]);
        }
    }
    return FL_OK;
}

static void pool_counts(const fl_text_result *results, size_t count, fl_text_result *out) {
    for (size_t r = 0; r < count; r++) {
        const fl_text_result *one = &results[r];
        if (one->positions > out->positions) out->positions = one->positions;
        if (one->state_bytes > out->state_bytes) out->state_bytes = one->state_bytes;
        if (one->exact_bytes > out->exact_bytes) out->exact_bytes = one->exact_bytes;
        out->tokens += one->tokens;
        out->scored_tokens += one->scored_tokens;
        out->seconds_teacher_forced += one->seconds_teacher_forced;
        out->seconds_propagated += one->seconds_propagated;
        if (!one->diverged || out->diverged) continue;
        out->diverged = true;
        snprintf(out->diverged_at, sizeof out->diverged_at, "%s", one->diverged_at);
    }
}

static double pool_single(const fl_text_result *results, size_t count, size_t offset, bool by_scored) {
    double sum = 0.0, weights = 0.0;
    for (size_t r = 0; r < count; r++) {
        double weight = (double)(by_scored ? results[r].scored_tokens : results[r].tokens);
        sum += weight * *(const double *)(const void *)((const char *)&results[r] + offset);
        weights += weight;
    }
    return sum / weights;
}

static void pool_language_model(const fl_text_result *results, size_t count, fl_text_result *out) {
    out->cross_entropy = pool_single(results, count, MEMBER(cross_entropy), true);
    out->full_cross_entropy = pool_single(results, count, MEMBER(full_cross_entropy), true);
    out->linear_share = pool_single(results, count, MEMBER(linear_share), true);
    out->kl = pool_single(results, count, MEMBER(kl), false);
    out->agreement = pool_single(results, count, MEMBER(agreement), false);
    out->perplexity = exp(out->cross_entropy);
    out->full_perplexity = exp(out->full_cross_entropy);
}

fl_status fl_text_pool(const fl_text_result *results, const char *const *names, size_t count,
                       fl_text_result *out, fl_error *error) {
    *out = (fl_text_result){0};
    if (count == 0) return fl_error_set(error, FL_ERROR_ARGUMENT, "nothing to pool");
    FL_TRY(check_alike(results, names, count, error));
    out->layers = results[0].layers;
    out->query_heads = results[0].query_heads;
    out->kv_heads = results[0].kv_heads;
    out->head_dim = results[0].head_dim;
    pool_counts(results, count, out);
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&out->position_count, out->positions, error));
    for (size_t r = 0; r < count; r++) {
        for (size_t p = 0; p < results[r].positions; p++)
            out->position_count[p] += results[r].position_count[p];
    }
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (array_of(&results[0], rows[i].offset) == NULL) continue;
        FL_TRY_DONE(status, pool_array(results, count, &rows[i], out, error));
    }
    pool_language_model(results, count, out);
done:
    if (status != FL_OK) fl_text_result_release(out);
    return status;
}
