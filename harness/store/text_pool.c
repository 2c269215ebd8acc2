#include "harness/store/text_pool.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/base/whole_number.h"
#include "harness/measure/measurements.h"

/* Elements before the axis of positions. */
static size_t leading(const fl_text_result *result, const fl_measurement *row) {
    size_t count = 1;
    for (const char *axis = row->axes; *axis != '\0' && *axis != 'P'; axis++)
        count *= fl_measurement_extent(result, *axis);
    return count;
}

static size_t trailing(const fl_text_result *result, const fl_measurement *row) {
    return strchr(row->axes, 'P') != NULL ? result->positions : 1;
}

static double weight_of(const fl_text_result *result, fl_pooling how, size_t position) {
    switch (how) {
    case FL_POOL_BY_POSITION:
        return result->position_count[position];
    case FL_POOL_BY_SCORED_POSITION:
        return position + 1 < result->positions ? result->position_count[position + 1] : 0.0;
    case FL_POOL_BY_SCORED:
        return (double)result->scored_tokens;
    default:
        return (double)result->tokens;
    }
}

/* The values of an array's partner. */
static const double *partner_of(const fl_text_result *result, const fl_measurement *row) {
    return fl_measurement_values(result, fl_measurement_of_member(row->partner));
}

/* What one result adds to entry [lead][position]: its value, or its numerator, or its second moment about the
 * pooled mean. */
static double part_of(const fl_text_result *result, const fl_text_result *pooled, const fl_measurement *row,
                      size_t lead, size_t position) {
    const double value = fl_measurement_values(result, row)[lead * trailing(result, row) + position];
    if (row->pooling == FL_POOL_VARIANCE) {
        const double distance = partner_of(result, row)[lead] - partner_of(pooled, row)[lead];
        return value + distance * distance;
    }
    return row->partner == NULL ? value : value * partner_of(result, row)[lead];
}

static double pool_entry(const fl_text_result *results, size_t count, const fl_text_result *pooled,
                         const fl_measurement *row, size_t lead, size_t position) {
    double sum = 0.0, weights = 0.0;
    for (size_t r = 0; r < count; r++) {
        const bool reached = position < trailing(&results[r], row);
        const double weight = reached ? weight_of(&results[r], row->pooling, position) : 0.0;
        if (weight == 0.0) continue;
        sum += weight * part_of(&results[r], pooled, row, lead, position);
        weights += weight;
    }
    const double value = weights > 0.0 ? sum / weights : (double)NAN;
    const bool is_ratio = row->pooling != FL_POOL_VARIANCE && row->partner != NULL;
    return is_ratio ? value / partner_of(pooled, row)[lead] : value;
}

static double sum_entry(const fl_text_result *results, size_t count, const fl_measurement *row, size_t lead,
                        size_t position) {
    double sum = 0.0;
    for (size_t r = 0; r < count; r++) {
        const size_t positions = trailing(&results[r], row);
        if (position < positions) sum += fl_measurement_values(&results[r], row)[lead * positions + position];
    }
    return sum;
}

static fl_status pool_array(const fl_text_result *results, size_t count, const fl_measurement *row,
                            fl_text_result *out, fl_error *error) {
    const size_t leads = leading(out, row), positions = trailing(out, row);
    double **slot = fl_measurement_array(out, row);
    FL_TRY(FL_ALLOCATE(slot, leads * positions, error));
    for (size_t lead = 0; lead < leads; lead++) {
        for (size_t p = 0; p < positions; p++) {
            (*slot)[lead * positions + p] = row->pooling == FL_POOL_SUM
                                                ? sum_entry(results, count, row, lead, p)
                                                : pool_entry(results, count, out, row, lead, p);
        }
    }
    return FL_OK;
}

static double pool_value(const fl_text_result *results, size_t count, const fl_text_result *pooled,
                         const fl_measurement *row) {
    if (row->pooling == FL_POOL_EXPONENTIAL)
        return exp(fl_measurement_value(pooled, fl_measurement_of_member(row->partner)));
    double sum = 0.0, weights = 0.0, largest = 0.0;
    for (size_t r = 0; r < count; r++) {
        const double weight = row->pooling == FL_POOL_SUM ? 1.0 : weight_of(&results[r], row->pooling, 0);
        const double value = fl_measurement_value(&results[r], row);
        sum += weight * value;
        weights += weight;
        if (value > largest) largest = value;
    }
    if (row->pooling == FL_POOL_LARGEST) return largest;
    return row->pooling == FL_POOL_SUM ? sum : sum / weights;
}

static void pool_single(const fl_text_result *results, size_t count, const fl_measurement *row,
                        fl_text_result *out) {
    const double value = pool_value(results, count, out, row);
    if (row->kind == FL_MEASUREMENT_COUNT)
        fl_size_of_number(trunc(value), fl_measurement_count(out, row)); /* of nothing: stays 0 */
    else
        *fl_measurement_figure(out, row) = value;
}

/* One result's block after the other's: the axis of sequences comes first. */
static fl_status join_array(const fl_text_result *results, size_t count, const fl_measurement *row,
                            fl_text_result *out, fl_error *error) {
    size_t shape[4], done = 0;
    double **slot = fl_measurement_array(out, row);
    FL_TRY(FL_ALLOCATE(slot, fl_measurement_shape(row, out, shape), error));
    for (size_t r = 0; r < count; r++) {
        const size_t elements = fl_measurement_shape(row, &results[r], shape);
        memcpy(*slot + done, fl_measurement_values(&results[r], row), elements * sizeof **slot);
        done += elements;
    }
    return FL_OK;
}

static bool all_have(const fl_text_result *results, size_t count, const fl_measurement *row) {
    for (size_t r = 0; r < count; r++) {
        if (!fl_measurement_there(row, &results[r])) return false;
    }
    return true;
}

static bool is_pooled_array(const fl_measurement *row) {
    return row->kind == FL_MEASUREMENT_ARRAY && row->pooling != FL_POOL_NEVER && row->pooling != FL_POOL_JOIN;
}

static fl_status check_alike(const fl_text_result *results, const char *const *names, size_t count,
                             fl_error *error) {
    const fl_text_result *first = &results[0];
    size_t row_count = 0;
    const fl_measurement *rows = fl_measurements(&row_count);
    for (size_t r = 0; r < count; r++) {
        const fl_text_result *other = &results[r];
        bool shaped = other->layers == first->layers && other->query_heads == first->query_heads &&
                      other->kv_heads == first->kv_heads;
        if (!shaped)
            return fl_error_set(error, FL_ERROR_ARGUMENT, "%s and %s are of models of different shape",
                                names[0], names[r]);
        for (size_t i = 0; i < row_count; i++) {
            if (!is_pooled_array(&rows[i])) continue;
            bool here = fl_measurement_there(&rows[i], first), there = fl_measurement_there(&rows[i], other);
            if (here == there) continue;
            return fl_error_set(error, FL_ERROR_ARGUMENT, "%s has measured %s, %s has not",
                                names[here ? 0 : r], rows[i].member, names[here ? r : 0]);
        }
        if (other->tokens == 0 || other->position_count == NULL) {
            return fl_error_set(error, FL_ERROR_ARGUMENT, "%s does not say how many tokens it has measured",
                                names[r]);
        }
    }
    return FL_OK;
}

static void pool_sizes(const fl_text_result *results, size_t count, fl_text_result *out) {
    out->layers = results[0].layers;
    out->query_heads = results[0].query_heads;
    out->kv_heads = results[0].kv_heads;
    out->head_dim = results[0].head_dim;
    for (size_t r = 0; r < count; r++) {
        const fl_text_result *one = &results[r];
        if (one->positions > out->positions) out->positions = one->positions;
        out->sequences += one->sequences;
        if (!one->diverged || out->diverged) continue;
        out->diverged = true;
        snprintf(out->diverged_at, sizeof out->diverged_at, "%s", one->diverged_at);
    }
}

fl_status fl_text_pool(const fl_text_result *results, const char *const *names, size_t count,
                       fl_text_result *out, fl_error *error) {
    *out = (fl_text_result){0};
    if (count == 0) return fl_error_set(error, FL_ERROR_ARGUMENT, "nothing to pool");
    FL_TRY(check_alike(results, names, count, error));
    pool_sizes(results, count, out);
    size_t row_count = 0;
    const fl_measurement *rows = fl_measurements(&row_count);
    fl_status status = FL_OK;
    for (size_t i = 0; i < row_count; i++) {
        const fl_measurement *row = &rows[i];
        if (row->kind == FL_MEASUREMENT_FIGURE || row->kind == FL_MEASUREMENT_COUNT)
            pool_single(results, count, row, out);
        else if (is_pooled_array(row) && fl_measurement_there(row, &results[0]))
            FL_TRY_DONE(status, pool_array(results, count, row, out, error));
        else if (row->pooling == FL_POOL_JOIN && all_have(results, count, row))
            FL_TRY_DONE(status, join_array(results, count, row, out, error));
    }
done:
    if (status != FL_OK) fl_text_result_release(out);
    return status;
}
