#include "harness/measure/trends.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"

fl_status fl_trend_signals_create(size_t layers, size_t query_heads, size_t kv_heads, size_t total_tokens,
                                  fl_trend_signals *out, fl_error *error) {
    size_t stride = (total_tokens + FL_TREND_TOKENS - 1) / FL_TREND_TOKENS;
    if (stride == 0) stride = 1;
    size_t room = (total_tokens + stride - 1) / stride;
    *out = (fl_trend_signals){
        .layers = layers, .query_heads = query_heads, .kv_heads = kv_heads, .stride = stride, .room = room};
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&out->kept, layers, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->seen, layers, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->concentration, layers * room * kv_heads, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->residual, layers * room * kv_heads, error));
    return FL_OK;
done:
    fl_trend_signals_release(out);
    return status;
}

void fl_trend_signals_release(fl_trend_signals *signals) {
    fl_memory_free(signals->kept);
    fl_memory_free(signals->seen);
    fl_memory_free(signals->concentration);
    fl_memory_free(signals->residual);
    *signals = (fl_trend_signals){0};
}

fl_status fl_trend_errors_create(const fl_trend_signals *signals, float **out, fl_error *error) {
    return FL_ALLOCATE(out, signals->layers * signals->room * signals->query_heads, error);
}

void fl_trend_errors_append(const fl_trend_signals *signals, size_t layer, size_t tokens,
                            const double *squared, float *of_variant) {
    size_t kept = signals->kept[layer], heads = signals->query_heads;
    for (size_t t = 0; t < tokens; t++) {
        if ((signals->seen[layer] + t) % signals->stride != 0) continue;
        float *row = of_variant + (layer * signals->room + kept++) * heads;
        for (size_t h = 0; h < heads; h++) row[h] = (float)squared[t * heads + h];
    }
}

void fl_trend_signals_append(fl_trend_signals *signals, size_t layer, size_t tokens,
                             const double *concentration, const double *residual) {
    size_t heads = signals->kv_heads;
    for (size_t t = 0; t < tokens; t++) {
        if ((signals->seen[layer] + t) % signals->stride != 0) continue;
        size_t row = (layer * signals->room + signals->kept[layer]++) * heads;
        for (size_t n = 0; n < heads; n++) {
            signals->concentration[row + n] = (float)concentration[n * tokens + t];
            signals->residual[row + n] = (float)residual[n * tokens + t];
        }
    }
    signals->seen[layer] += tokens;
}

static int compare_floats(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* edges [bins + 1]: quantiles of `count` sorted values. */
static void quantile_edges(const float *sorted, size_t count, double *edges) {
    for (size_t b = 0; b <= FL_TREND_BINS; b++) {
        double at = (double)b / FL_TREND_BINS * (double)(count - 1);
        size_t low = (size_t)at;
        size_t high = low + 1 < count ? low + 1 : low;
        edges[b] = (double)sorted[low] + (at - (double)low) * ((double)sorted[high] - (double)sorted[low]);
    }
}

/* The last bin whose lower edge is not above x. */
static size_t bin_of(const double *edges, double x) {
    size_t low = 0, high = FL_TREND_BINS - 1;
    while (low < high) {
        size_t middle = (low + high + 1) / 2;
        if (edges[middle] <= x)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

typedef struct {
    const float *signal;    /* [kept][Hkv] of the layer */
    const float *error;     /* [kept][H] */
    const fl_moments *head; /* [H] */
    size_t head_dim, kept;
    double *edges, *nmse, *count;
} fl_trend_of_layer;

static void bin_layer(const fl_trend_signals *signals, const fl_trend_of_layer *layer, float *sorted) {
    size_t group = signals->query_heads / signals->kv_heads, values = layer->kept * signals->kv_heads;
    for (size_t b = 0; b < FL_TREND_BINS; b++) layer->nmse[b] = layer->count[b] = 0.0;
    if (values == 0) return;
    memcpy(sorted, layer->signal, values * sizeof *sorted);
    qsort(sorted, values, sizeof *sorted, compare_floats);
    quantile_edges(sorted, values, layer->edges);
    for (size_t t = 0; t < layer->kept; t++) {
        for (size_t h = 0; h < signals->query_heads; h++) {
            double x = (double)layer->signal[t * signals->kv_heads + h / group];
            size_t bin = bin_of(layer->edges, x);
            double variance = fl_moments_variance(&layer->head[h]);
            layer->nmse[bin] +=
                (double)layer->error[t * signals->query_heads + h] / (double)layer->head_dim / variance;
            layer->count[bin] += 1.0;
        }
    }
    for (size_t b = 0; b < FL_TREND_BINS; b++) layer->nmse[b] /= layer->count[b];
}

fl_status fl_trends_finish(const fl_trend_signals *signals, const float *of_variant,
                           const fl_text_totals *totals, fl_text_result *result, fl_error *error) {
    float *sorted = NULL;
    FL_TRY(FL_ALLOCATE(&sorted, signals->room * signals->kv_heads, error));
    for (size_t l = 0; l < signals->layers; l++) {
        size_t first = l * signals->room;
        fl_trend_of_layer layer = {.signal = signals->concentration + first * signals->kv_heads,
                                   .error = of_variant + first * signals->query_heads,
                                   .head = totals->head + l * signals->query_heads,
                                   .head_dim = result->head_dim,
                                   .kept = signals->kept[l],
                                   .edges = result->concentration_edges + l * (FL_TREND_BINS + 1),
                                   .nmse = result->concentration_trend_nmse + l * FL_TREND_BINS,
                                   .count = result->concentration_count + l * FL_TREND_BINS};
        bin_layer(signals, &layer, sorted);
        layer.signal = signals->residual + first * signals->kv_heads;
        layer.edges = result->residual_edges + l * (FL_TREND_BINS + 1);
        layer.nmse = result->residual_trend_nmse + l * FL_TREND_BINS;
        layer.count = result->residual_count + l * FL_TREND_BINS;
        bin_layer(signals, &layer, sorted);
    }
    fl_memory_free(sorted);
    return FL_OK;
}
