#include "harness/measure/branch_log.h"

#include <math.h>
#include <string.h>

#include "harness/base/memory.h"

const double fl_gate_quantile_levels[FL_GATE_QUANTILES] = {0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0};

enum { HISTOGRAM_BINS = 8002 };             /* the first and last hold everything beyond */
static const double histogram_limit = 20.0; /* log-odds */
static const double histogram_step = 0.005;
static const uint32_t never = UINT32_MAX;

struct fl_branch_log {
    fl_compute *compute; /* borrowed */
    const fl_mechanism *mechanism;
    size_t layers, heads, kv_heads, positions, gate_width;
    bool log_gate, has_gate, has_beta, has_cache;
    uint32_t *gate_counts, *beta_counts; /* [L][H][bins] */
    fl_array ranks_made;                 /* [L][H] float64: of one sequence, 0 without a state */
    double *ranks, *rank;                /* [L][H]: the same on the host; sums */
    size_t sequences;
    uint32_t *written_at; /* [L][Hkv][P] step of this sequence, or never */
    double *kept, *lifetime,
        *left;                     /* [L][Hkv][P] sums; left: sequences in which that token left the window */
    fl_array gate_made, beta_made; /* [block][H][width], [block][H] */
    float *gate, *beta;            /* the same on the host */
    int32_t *written;              /* [Hkv][block] */
};

fl_status fl_branch_log_create(fl_compute *compute, const fl_mechanism *mechanism, size_t positions,
                               size_t block, fl_branch_log **out, fl_error *error) {
    const fl_rule *rule = mechanism->variant->rule;
    fl_branch_log *log = NULL;
    *out = NULL;
    FL_TRY(FL_ALLOCATE(&log, 1, error));
    log->compute = compute;
    log->mechanism = mechanism;
    log->layers = mechanism->layers;
    log->heads = mechanism->shape.query_heads;
    log->kv_heads = mechanism->shape.kv_heads;
    log->positions = positions;
    log->gate_width = rule->gate == FL_GATE_CHANNEL ? mechanism->shape.head_dim : 1;
    log->log_gate = rule->gate_activation == FL_ACTIVATE_LOG_SIGMOID;
    log->has_gate = rule->gate != FL_GATE_NONE && rule->gate_activation != FL_ACTIVATE_RAW;
    log->has_beta = mechanism->variant->takes_beta && rule->beta_activation == FL_ACTIVATE_SIGMOID;
    log->has_cache = mechanism->variant->cache_budget > 0;
    size_t rows = log->layers * log->heads, routed = log->layers * log->kv_heads * positions;
    fl_status status = FL_OK;
    if (log->has_gate) {
        FL_TRY_DONE(status, FL_ALLOCATE(&log->gate_counts, rows * HISTOGRAM_BINS, error));
        const size_t gates = block * log->heads * log->gate_width;
        FL_TRY_DONE(status, FL_ALLOCATE(&log->gate, gates, error));
        FL_TRY_DONE(status, compute->ops->allocate(compute, gates, FL_FLOAT32, &log->gate_made, error));
    }
    if (log->has_beta) {
        FL_TRY_DONE(status, FL_ALLOCATE(&log->beta_counts, rows * HISTOGRAM_BINS, error));
        FL_TRY_DONE(status, FL_ALLOCATE(&log->beta, block * log->heads, error));
        FL_TRY_DONE(status,
                    compute->ops->allocate(compute, block * log->heads, FL_FLOAT32, &log->beta_made, error));
    }
    if (log->has_cache) {
        FL_TRY_DONE(status, FL_ALLOCATE(&log->written_at, routed, error));
        FL_TRY_DONE(status, FL_ALLOCATE(&log->kept, routed, error));
        FL_TRY_DONE(status, FL_ALLOCATE(&log->lifetime, routed, error));
        FL_TRY_DONE(status, FL_ALLOCATE(&log->left, routed, error));
        FL_TRY_DONE(status, FL_ALLOCATE(&log->written, block * log->kv_heads, error));
    }
    FL_TRY_DONE(status, compute->ops->allocate(compute, rows, FL_FLOAT64, &log->ranks_made, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&log->ranks, rows, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&log->rank, rows, error));
    *out = log;
    return FL_OK;
done:
    fl_branch_log_destroy(log);
    return status;
}

void fl_branch_log_destroy(fl_branch_log *log) {
    if (log == NULL) return;
    fl_memory_free(log->gate_counts);
    fl_memory_free(log->beta_counts);
    log->compute->ops->release(log->compute, log->ranks_made);
    log->compute->ops->release(log->compute, log->gate_made);
    log->compute->ops->release(log->compute, log->beta_made);
    fl_memory_free(log->ranks);
    fl_memory_free(log->rank);
    fl_memory_free(log->written_at);
    fl_memory_free(log->kept);
    fl_memory_free(log->lifetime);
    fl_memory_free(log->left);
    fl_memory_free(log->gate);
    fl_memory_free(log->beta);
    fl_memory_free(log->written);
    fl_memory_free(log);
}

void fl_branch_log_start_sequence(fl_branch_log *log) {
    size_t routed = log->layers * log->kv_heads * log->positions;
    for (size_t i = 0; log->has_cache && i < routed; i++) log->written_at[i] = never;
}

void fl_branch_log_attach(fl_branch_log *log, fl_mixer_call *call) {
    call->gate = log->gate_made;
    call->beta = log->beta_made;
    call->written = log->written;
}

/* Log-odds of a probability given as itself or as its logarithm. */
static void count_value(uint32_t *counts, double value, bool is_log) {
    double odds = is_log ? value - log(-expm1(value)) : log(value) - log1p(-value);
    if (isnan(odds)) return;
    size_t bin = 0;
    if (odds >= histogram_limit)
        bin = HISTOGRAM_BINS - 1;
    else if (odds >= -histogram_limit)
        bin = 1 + (size_t)((odds + histogram_limit) / histogram_step);
    if (bin > HISTOGRAM_BINS - 1) bin = HISTOGRAM_BINS - 1;
    counts[bin]++;
}

static void take_written(fl_branch_log *log, size_t layer, const fl_mixer_call *call, size_t first) {
    for (size_t n = 0; n < log->kv_heads; n++) {
        for (size_t t = 0; t < call->tokens; t++) {
            int32_t position = call->written[n * call->tokens + t];
            if (position < 0) continue;
            log->written_at[(layer * log->kv_heads + n) * log->positions + (size_t)position] =
                (uint32_t)(first + t);
        }
    }
}

static fl_status bring_gates(fl_branch_log *log, size_t rows, fl_error *error) {
    const fl_compute_ops *ops = log->compute->ops;
    if (log->has_gate)
        FL_TRY(ops->download(log->compute, log->gate, log->gate_made, rows * log->gate_width, error));
    if (log->has_beta) FL_TRY(ops->download(log->compute, log->beta, log->beta_made, rows, error));
    return FL_OK;
}

fl_status fl_branch_log_take(fl_branch_log *log, size_t layer, const fl_mixer_call *call, size_t first,
                             fl_error *error) {
    size_t width = log->gate_width;
    FL_TRY(bring_gates(log, call->tokens * log->heads, error));
    for (size_t t = 0; t < call->tokens; t++) {
        for (size_t h = 0; h < log->heads; h++) {
            size_t row = (layer * log->heads + h) * HISTOGRAM_BINS, at = t * log->heads + h;
            for (size_t c = 0; log->has_gate && c < width; c++) {
                count_value(log->gate_counts + row, (double)log->gate[at * width + c], log->log_gate);
            }
            if (log->has_beta) count_value(log->beta_counts + row, (double)log->beta[at], false);
        }
    }
    if (log->has_cache) take_written(log, layer, call, first);
    return FL_OK;
}

/* One download for all layers, which is why the ranks are kept apart by layer. */
static fl_status add_ranks(fl_branch_log *log, fl_mixer *const *mixers, fl_error *error) {
    fl_compute *compute = log->compute;
    const size_t heads = log->heads;
    compute->ops->fill(compute, log->ranks_made, log->layers * heads, 0.0);
    for (size_t l = 0; l < log->layers; l++) {
        size_t value_dim = 0, key_dim = 0;
        fl_array state = mixers[l] != NULL ? fl_mixer_state(mixers[l], &value_dim, &key_dim) : fl_array_none;
        if (!fl_array_is(state)) continue;
        FL_TRY(compute->ops->effective_rank(compute, heads, value_dim, key_dim, state,
                                            fl_array_from(log->ranks_made, l * heads), error));
    }
    FL_TRY(compute->ops->download(compute, log->ranks, log->ranks_made, log->layers * heads, error));
    for (size_t i = 0; i < log->layers * heads; i++) log->rank[i] += log->ranks[i];
    return FL_OK;
}

static void add_routing(fl_branch_log *log, size_t length) {
    const fl_variant *variant = log->mechanism->variant;
    for (size_t row = 0; row < log->layers * log->kv_heads; row++) {
        if (log->mechanism->layer[row / log->kv_heads] == NULL) continue;
        for (size_t p = variant->sinks; p + variant->window < length; p++) {
            size_t at = row * log->positions + p, leaves = p + variant->window;
            bool stayed = log->written_at[at] == never;
            log->left[at] += 1.0;
            log->kept[at] += stayed ? 1.0 : 0.0;
            log->lifetime[at] += (double)(stayed ? length - leaves : log->written_at[at] - leaves);
        }
    }
}

fl_status fl_branch_log_end_sequence(fl_branch_log *log, fl_mixer *const *mixers, size_t length,
                                     fl_error *error) {
    log->sequences++;
    if (log->has_cache) add_routing(log, length);
    return add_ranks(log, mixers, error);
}

static double quantile(const uint32_t *counts, double level) {
    uint64_t total = 0, below = 0;
    for (size_t b = 0; b < HISTOGRAM_BINS; b++) total += counts[b];
    if (total == 0) return NAN;
    uint64_t rank = (uint64_t)(level * (double)(total - 1));
    size_t bin = 0;
    for (; bin < HISTOGRAM_BINS; bin++) {
        below += counts[bin];
        if (below > rank) break;
    }
    if (bin == 0) return 0.0;
    if (bin == HISTOGRAM_BINS - 1) return 1.0;
    double odds = -histogram_limit + ((double)(bin - 1) + 0.5) * histogram_step;
    return 1.0 / (1.0 + exp(-odds));
}

/* What the variant has no such part for is not there. */
static void drop(double **array) {
    fl_memory_free(*array);
    *array = NULL;
}

static void finish_quantiles(const fl_branch_log *log, const uint32_t *counts, double **out) {
    if (counts == NULL) {
        drop(out);
        return;
    }
    for (size_t row = 0; row < log->layers * log->heads; row++) {
        for (size_t q = 0; q < FL_GATE_QUANTILES; q++) {
            (*out)[row * FL_GATE_QUANTILES + q] =
                quantile(counts + row * HISTOGRAM_BINS, fl_gate_quantile_levels[q]);
        }
    }
}

void fl_branch_log_finish(const fl_branch_log *log, fl_text_result *result) {
    finish_quantiles(log, log->gate_counts, &result->gate_quantiles);
    finish_quantiles(log, log->beta_counts, &result->beta_quantiles);
    for (size_t row = 0; row < log->layers * log->heads; row++) {
        result->effective_rank[row] = log->rank[row] / (double)log->sequences;
    }
    if (!log->has_cache) {
        drop(&result->routing_kept);
        drop(&result->routing_lifetime);
        return;
    }
    for (size_t i = 0; i < log->layers * log->kv_heads * log->positions; i++) {
        result->routing_kept[i] = log->left[i] > 0.0 ? log->kept[i] / log->left[i] : NAN;
        result->routing_lifetime[i] = log->left[i] > 0.0 ? log->lifetime[i] / log->left[i] : NAN;
    }
}
