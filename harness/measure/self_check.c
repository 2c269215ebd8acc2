#include "harness/measure/self_check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attn_variants/ablation.h"
#include "attn_variants/mixer.h"
#include "harness/base/memory.h"
#include "harness/engine/session.h"
#include "harness/measure/moments.h"

enum { RECENCY_TOKENS = 8, SPARE_TOKENS = 130, MOST_TOKENS = 1024 };

typedef enum {
    CHUNK_EQUALS_STEP = 0,
    SPLIT_EQUALS_WHOLE,
    PAST_ONLY,
    ONE_MEMORY_EACH,
    SHORT_PROMPT_IS_SOFTMAX,
    RECENCY_CACHE_IS_LONGER_WINDOW,
    IDENTITY_CONVOLUTION,
    FORK_EQUALS_RECOMPUTE,
    RESET_EQUALS_FRESH,
    ALL_SOFTMAX_IS_THE_MODEL,
    WEIGHTS_UNCHANGED,
    CHECK_COUNT
} fl_check;

static const fl_self_check_row blank_rows[CHECK_COUNT] = {
    [CHUNK_EQUALS_STEP] = {.name = "chunk_equals_step",
                           .meaning = "the chunkwise form gives what one token after another gives",
                           .bound = 1e-3},
    [SPLIT_EQUALS_WHOLE] =
        {.name = "split_equals_whole",
         .meaning = "a sequence cut into calls of 1, 0, 7, 64, ... tokens gives one pass's output",
         .bound = 1e-3},
    [PAST_ONLY] = {.name = "past_only",
                   .meaning = "changing the last token changes no earlier output",
                   .bound = 1e-6},
    [ONE_MEMORY_EACH] = {.name = "one_memory_each",
                         .meaning = "every past token is in exactly one of sinks, window, cache and state",
                         .bound = 0.0},
    [SHORT_PROMPT_IS_SOFTMAX] = {.name = "short_prompt_is_softmax",
                                 .meaning =
                                     "a prompt inside sinks + window gives the frozen model's attention",
                                 .bound = 1e-4},
    [RECENCY_CACHE_IS_LONGER_WINDOW] = {.name = "recency_cache_is_longer_window",
                                        .meaning = "a recency cache of 8 tokens equals a window longer by 8",
                                        .bound = 1e-3},
    [IDENTITY_CONVOLUTION] = {.name = "identity_convolution",
                              .meaning = "an identity short convolution changes nothing",
                              .bound = 1e-4},
    [FORK_EQUALS_RECOMPUTE] = {.name = "fork_equals_recompute",
                               .meaning = "a forked session continues as the original does",
                               .bound = 0.0},
    [RESET_EQUALS_FRESH] = {.name = "reset_equals_fresh",
                            .meaning = "a session used before and reset gives what a fresh one gives",
                            .bound = 0.0},
    [ALL_SOFTMAX_IS_THE_MODEL] = {.name = "all_softmax_is_the_model",
                                  .meaning = "a hybrid with every layer softmax is the frozen model",
                                  .bound = 0.0},
    [WEIGHTS_UNCHANGED] = {.name = "weights_unchanged",
                           .meaning = "the weights' hash is what it was when the model was opened",
                           .bound = 0.0},
};

typedef struct {
    const fl_network *network;
    const fl_mechanism *mechanism, *recency, *longer,
        *plain;                        /* the derived ones NULL where they do not apply */
    size_t tokens, query_floats;       /* T, H * D */
    fl_array whole, other;             /* [T][H][D] */
    fl_array query, key, value, input; /* copies in which the last token is changed */
    float *on_host[2];                 /* [T][H][D] or [T][E]: of two arrays that are compared */
    int32_t *written;                  /* [Hkv][T] */
    fl_self_check_report *report;
} fl_checker;

static void not_applicable(fl_checker *checker, fl_check check, const char *why) {
    fl_self_check_row *row = &checker->report->rows[check];
    row->applicable = false;
    snprintf(row->place, sizeof row->place, "%s", why);
}

static void record(fl_checker *checker, fl_check check, double figure, const char *place) {
    fl_self_check_row *row = &checker->report->rows[check];
    row->applicable = true;
    bool worse = isnan(figure) || figure > row->figure;
    if (row->place[0] == '\0' || (worse && !isnan(row->figure))) {
        row->figure = figure;
        snprintf(row->place, sizeof row->place, "%s", place);
    }
    row->passed = row->figure <= row->bound;
}

static fl_status bring_both(fl_checker *checker, size_t count, fl_array reference, fl_array other,
                            fl_error *error) {
    FL_TRY(fl_compute_download(checker->network->compute, checker->on_host[0], reference, count, error));
    return fl_compute_download(checker->network->compute, checker->on_host[1], other, count, error);
}

/* The largest difference relative to the root mean square of `reference`. Equal infinities and NaN on both
 * sides agree: a rule that diverges does so in both forms. */
static fl_status compare(fl_checker *checker, fl_check check, size_t layer, size_t tokens,
                         fl_array reference_array, fl_array other_array, fl_error *error) {
    size_t count = tokens * checker->query_floats, at = 0;
    double square = 0.0, largest = 0.0;
    FL_TRY(bring_both(checker, count, reference_array, other_array, error));
    const float *reference = checker->on_host[0], *other = checker->on_host[1];
    for (size_t i = 0; i < count; i++) {
        double r = (double)reference[i], d = fabs((double)other[i] - r);
        if (!isfinite(r) && !isfinite((double)other[i])) continue;
        square += r * r;
        if (d > largest || isnan(d)) {
            largest = d;
            at = i;
            if (isnan(d)) break;
        }
    }
    double scale = sqrt(square / (double)(count > 0 ? count : 1));
    size_t head_dim = checker->network->shape.head_dim;
    char place[128];
    snprintf(place, sizeof place, "layer %zu, head %zu, position %zu", layer,
             at % checker->query_floats / head_dim, at / checker->query_floats);
    record(checker, check, largest == 0.0 ? 0.0 : largest / (scale > 0.0 ? scale : 1.0), place);
    return FL_OK;
}

static fl_status mix(const fl_checker *checker, const fl_mechanism *mechanism, size_t layer,
                     const fl_mixer_call *call, size_t cuts, fl_error *error) {
    static const size_t lengths[] = {1, 0, 7, 64, 3, 33};
    const fl_attention_shape *shape = &checker->network->shape;
    size_t key_floats = shape->kv_heads * shape->head_dim;
    fl_mixer *mixer = NULL;
    FL_TRY(fl_mixer_create(checker->network->compute, mechanism, layer, &mixer, error));
    fl_status status = FL_OK;
    for (size_t done = 0, cut = 0; done < call->tokens && status == FL_OK; cut++) {
        size_t length = cuts == 0 ? call->tokens : lengths[cut % cuts];
        if (length > call->tokens - done) length = call->tokens - done;
        fl_mixer_call part = *call;
        part.tokens = length;
        part.query = fl_array_from(part.query, done * checker->query_floats);
        part.key = fl_array_from(part.key, done * key_floats);
        part.value = fl_array_from(part.value, done * key_floats);
        part.input = fl_array_from(part.input, done * shape->model_dim);
        part.output = fl_array_from(part.output, done * checker->query_floats);
        status = fl_mixer_forward(mixer, &part, error);
        done += length;
    }
    fl_mixer_destroy(mixer);
    return status;
}

/* Counts, step by step, what is in the state and what must still be exact. */
static void check_memories(fl_checker *checker, size_t layer) {
    const fl_variant *variant = checker->mechanism->variant;
    size_t tokens = checker->tokens, kv_heads = checker->network->shape.kv_heads;
    char place[128];
    for (size_t head = 0; head < kv_heads; head++) {
        const int32_t *written = checker->written + head * tokens;
        for (size_t t = 0, in_state = 0; t < tokens; t++) {
            bool sound = true;
            if (written[t] >= 0) {
                size_t position = (size_t)written[t];
                in_state++;
                sound = position >= variant->sinks && position + variant->window <= t;
                for (size_t earlier = 0; earlier < t && sound; earlier++)
                    sound = written[earlier] != written[t];
            }
            size_t outside = t + 1 - in_state;
            size_t sinks = t + 1 < variant->sinks ? t + 1 : variant->sinks;
            size_t most = sinks + variant->window + variant->cache_budget;
            size_t due = t + 1 < most ? t + 1 : most;
            snprintf(place, sizeof place, "layer %zu, KV head %zu, step %zu: %zu tokens exact, %zu expected",
                     layer, head, t, outside, due);
            record(checker, ONE_MEMORY_EACH, sound && outside == due ? 0.0 : 1.0, place);
        }
    }
}

static bool is_prefix_exact(const fl_variant *variant) {
    return variant->merge == FL_MERGE_SUM || variant->merge == FL_MERGE_SHARED_NORMALISER;
}

static fl_status check_short_prompt(fl_checker *checker, const fl_layer_view *view, fl_error *error) {
    const fl_variant *variant = checker->mechanism->variant;
    size_t prompt = variant->sinks + variant->window;
    if (prompt > view->tokens) prompt = view->tokens;
    if (variant->window == 0 && prompt > variant->sinks) prompt = variant->sinks;
    if (prompt == 0) {
        not_applicable(checker, SHORT_PROMPT_IS_SOFTMAX, "the variant has no window and no sinks");
        return FL_OK;
    }
    if (!is_prefix_exact(variant)) {
        not_applicable(checker, SHORT_PROMPT_IS_SOFTMAX,
                       "this merge weighs the two parts even while the state is empty");
        return FL_OK;
    }
    if (checker->network->model->config.sliding_window[view->layer] != 0) {
        not_applicable(checker, SHORT_PROMPT_IS_SOFTMAX, "the frozen layer has a sliding window of its own");
        return FL_OK;
    }
    return compare(checker, SHORT_PROMPT_IS_SOFTMAX, view->layer, prompt, view->mix, checker->whole, error);
}

static fl_status check_derived(fl_checker *checker, const fl_layer_view *view, fl_mixer_call call,
                               fl_error *error) {
    if (checker->recency != NULL) {
        fl_mixer_call longer = call;
        FL_TRY(mix(checker, checker->recency, view->layer, &call, 0, error));
        fl_compute_copy(checker->network->compute, checker->whole, checker->other,
                        view->tokens * checker->query_floats);
        FL_TRY(mix(checker, checker->longer, view->layer, &longer, 0, error));
        FL_TRY(compare(checker, RECENCY_CACHE_IS_LONGER_WINDOW, view->layer, view->tokens, checker->whole,
                       checker->other, error));
    }
    return FL_OK;
}

static fl_status check_changed_last_token(fl_checker *checker, const fl_layer_view *view, fl_mixer_call call,
                                          fl_error *error) {
    const fl_attention_shape *shape = &checker->network->shape;
    size_t last = view->tokens - 1;
    fl_compute *compute = checker->network->compute;
    float *row = checker->on_host[0];
    const struct {
        fl_array copy, from;
        size_t width;
    } parts[] = {{checker->query, call.query, checker->query_floats},
                 {checker->key, call.key, shape->kv_heads * shape->head_dim},
                 {checker->value, call.value, shape->kv_heads * shape->head_dim},
                 {checker->input, call.input, shape->model_dim}};
    for (size_t i = 0; i < 4; i++) {
        const size_t width = parts[i].width;
        fl_compute_copy(compute, parts[i].copy, parts[i].from, last * width);
        FL_TRY(fl_compute_download(compute, row, fl_array_from(parts[i].from, last * width), width, error));
        for (size_t c = 0; c < width; c++) row[c] += 1.0f;
        fl_compute_upload(compute, fl_array_from(parts[i].copy, last * width), row, width);
    }
    call.query = checker->query;
    call.key = checker->key;
    call.value = checker->value;
    call.input = checker->input;
    FL_TRY(mix(checker, checker->mechanism, view->layer, &call, 0, error));
    FL_TRY(compare(checker, PAST_ONLY, view->layer, last, checker->whole, checker->other, error));
    return FL_OK;
}

static fl_status check_layer(void *context, const fl_layer_view *view, fl_error *error) {
    fl_checker *checker = context;
    if (checker->mechanism->layer[view->layer] == NULL) return FL_OK;
    fl_mixer_call call = {.tokens = view->tokens,
                          .query = view->query,
                          .key = view->key,
                          .value = view->value,
                          .input = view->attention_input,
                          .output = checker->whole,
                          .written = checker->written};
    FL_TRY(mix(checker, checker->mechanism, view->layer, &call, 0, error));
    check_memories(checker, view->layer);
    FL_TRY(check_short_prompt(checker, view, error));
    call.written = NULL;
    call.output = checker->other;
    FL_TRY(mix(checker, checker->mechanism, view->layer, &call, 6, error));
    FL_TRY(compare(checker, SPLIT_EQUALS_WHOLE, view->layer, view->tokens, checker->whole, checker->other,
                   error));
    FL_TRY(check_changed_last_token(checker, view, call, error));
    if (checker->plain != NULL) {
        FL_TRY(mix(checker, checker->plain, view->layer, &call, 0, error));
        FL_TRY(compare(checker, IDENTITY_CONVOLUTION, view->layer, view->tokens, checker->whole,
                       checker->other, error));
    }
    if (fl_variant_has_linear(checker->mechanism->variant)) {
        call.mode = FL_RECURRENCE_STEP;
        FL_TRY(mix(checker, checker->mechanism, view->layer, &call, 0, error));
        fl_compute_copy(checker->network->compute, checker->whole, checker->other,
                        view->tokens * checker->query_floats);
        call.mode = FL_RECURRENCE_CHUNK;
        FL_TRY(mix(checker, checker->mechanism, view->layer, &call, 0, error));
        FL_TRY(compare(checker, CHUNK_EQUALS_STEP, view->layer, view->tokens, checker->whole, checker->other,
                       error));
        call.mode = FL_RECURRENCE_AUTO;
    }
    return check_derived(checker, view, call, error);
}

/* Hidden states of one sequence, [T][E], from a session that has been used, forked or set up as the caller
 * likes. */
static fl_status compare_hidden(fl_checker *checker, fl_check check, size_t count, fl_array reference_array,
                                fl_array other_array, fl_error *error) {
    size_t width = checker->network->shape.model_dim, at = 0;
    double largest = 0.0;
    FL_TRY(bring_both(checker, count, reference_array, other_array, error));
    const float *reference = checker->on_host[0], *other = checker->on_host[1];
    for (size_t i = 0; i < count; i++) {
        double d = fabs((double)reference[i] - (double)other[i]);
        if (isfinite((double)reference[i]) != isfinite((double)other[i])) d = INFINITY;
        if (isfinite((double)reference[i]) && d > largest) {
            largest = d;
            at = i;
        }
    }
    char place[128];
    snprintf(place, sizeof place, "final hidden states, position %zu", at / width);
    record(checker, check, largest, place);
    return FL_OK;
}

static fl_status check_sessions(fl_checker *checker, const int32_t *ids, fl_error *error) {
    size_t tokens = checker->tokens, width = checker->network->shape.model_dim, half = tokens / 2;
    fl_session *session = NULL, *fork = NULL;
    fl_array first = fl_array_none, second = fl_array_none;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_compute_floats(checker->network->compute, tokens * width, &first, error));
    FL_TRY_DONE(status, fl_compute_floats(checker->network->compute, tokens * width, &second, error));
    FL_TRY_DONE(status, fl_session_create(checker->network, checker->mechanism, &session, error));
    FL_TRY_DONE(status, fl_session_forward(session, ids, half, fl_array_none, first, NULL, error));
    FL_TRY_DONE(status, fl_session_fork(session, &fork, error));
    FL_TRY_DONE(status, fl_session_forward(session, ids + half, tokens - half, fl_array_none,
                                           fl_array_from(first, half * width), NULL, error));
    FL_TRY_DONE(status, fl_session_forward(fork, ids + half, tokens - half, fl_array_none,
                                           fl_array_from(second, half * width), NULL, error));
    FL_TRY_DONE(status, compare_hidden(checker, FORK_EQUALS_RECOMPUTE, (tokens - half) * width,
                                       fl_array_from(first, half * width),
                                       fl_array_from(second, half * width), error));
    fl_session_reset(fork);
    FL_TRY_DONE(status, fl_session_forward(fork, ids, half, fl_array_none, second, NULL, error));
    FL_TRY_DONE(status, compare_hidden(checker, RESET_EQUALS_FRESH, half * width, first, second, error));
done:
    fl_session_destroy(session);
    fl_session_destroy(fork);
    fl_compute_release(checker->network->compute, first);
    fl_compute_release(checker->network->compute, second);
    return status;
}

static fl_status check_all_softmax(fl_checker *checker, const int32_t *ids, fl_error *error) {
    size_t tokens = checker->tokens, width = checker->network->shape.model_dim,
           layers = checker->mechanism->layers;
    fl_variant *hybrid = NULL;
    fl_mechanism *mechanism = NULL;
    fl_session *session = NULL, *frozen = NULL;
    size_t *all = NULL;
    fl_array first = fl_array_none, second = fl_array_none;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&all, layers, error));
    for (size_t l = 0; l < layers; l++) all[l] = l;
    FL_TRY_DONE(status, fl_variant_copy(checker->mechanism->variant, &hybrid, error));
    FL_TRY_DONE(status, fl_variant_set_softmax_layers(hybrid, all, layers, error));
    fl_memory_free(hybrid->mechanism_path);
    hybrid->mechanism_path = NULL;
    FL_TRY_DONE(status, fl_mechanism_derive(checker->mechanism, hybrid, &mechanism, error));
    FL_TRY_DONE(status, fl_compute_floats(checker->network->compute, tokens * width, &first, error));
    FL_TRY_DONE(status, fl_compute_floats(checker->network->compute, tokens * width, &second, error));
    FL_TRY_DONE(status, fl_session_create(checker->network, mechanism, &session, error));
    FL_TRY_DONE(status, fl_session_create(checker->network, NULL, &frozen, error));
    FL_TRY_DONE(status, fl_session_forward(session, ids, tokens, fl_array_none, first, NULL, error));
    FL_TRY_DONE(status, fl_session_forward(frozen, ids, tokens, fl_array_none, second, NULL, error));
    FL_TRY_DONE(status,
                compare_hidden(checker, ALL_SOFTMAX_IS_THE_MODEL, tokens * width, second, first, error));
done:
    fl_session_destroy(session);
    fl_session_destroy(frozen);
    fl_mechanism_destroy(mechanism);
    fl_variant_destroy(hybrid);
    fl_memory_free(all);
    fl_compute_release(checker->network->compute, first);
    fl_compute_release(checker->network->compute, second);
    return status;
}

typedef struct {
    fl_variant *variant;
    fl_mechanism *mechanism;
} fl_derived;

static void derived_release(fl_derived *derived) {
    fl_mechanism_destroy(derived->mechanism);
    fl_variant_destroy(derived->variant);
}

static fl_status derive(const fl_mechanism *mechanism, size_t longer_window, size_t cache, fl_derived *out,
                        fl_error *error) {
    FL_TRY(fl_variant_copy(mechanism->variant, &out->variant, error));
    fl_memory_free(out->variant->mechanism_path);
    out->variant->mechanism_path = NULL;
    out->variant->window += longer_window;
    out->variant->cache_budget = cache;
    out->variant->route = FL_ROUTE_RECENCY;
    return fl_mechanism_derive(mechanism, out->variant, &out->mechanism, error);
}

static bool convolution_is_identity(const fl_mechanism *mechanism) {
    static const char *const weights[] = {"conv.q.weight", "conv.k.weight", "conv.v.weight"};
    static const char *const biases[] = {"conv.q.bias", "conv.k.bias", "conv.v.bias"};
    size_t kernel = mechanism->variant->conv_kernel;
    for (size_t l = 0; l < mechanism->layers; l++) {
        if (mechanism->layer[l] == NULL) continue;
        for (size_t i = 0; i < 3; i++) {
            const fl_mechanism_tensor *tensor = fl_mechanism_find_tensor(mechanism, weights[i]);
            const float *weight = fl_mechanism_find(mechanism, l, weights[i]);
            const float *bias = fl_mechanism_find(mechanism, l, biases[i]);
            for (size_t j = 0; j < tensor->count; j++) {
                if (weight[j] != (j % kernel == kernel - 1 ? 1.0f : 0.0f)) return false;
            }
            for (size_t j = 0; j < tensor->count / kernel; j++) {
                if (bias[j] != 0.0f) return false;
            }
        }
    }
    return true;
}

static fl_status run_layers(fl_checker *checker, const int32_t *ids, fl_error *error) {
    const fl_variant *variant = checker->mechanism->variant;
    fl_derived recency = {0}, longer = {0}, plain = {0};
    fl_session *frozen = NULL;
    fl_status status = FL_OK;
    if (!fl_variant_has_linear(variant)) not_applicable(checker, CHUNK_EQUALS_STEP, "the rule has no state");
    if (variant->window == 0) {
        not_applicable(checker, RECENCY_CACHE_IS_LONGER_WINDOW, "the variant has no window");
    } else {
        FL_TRY_DONE(status, derive(checker->mechanism, 0, RECENCY_TOKENS, &recency, error));
        FL_TRY_DONE(status, derive(checker->mechanism, RECENCY_TOKENS, 0, &longer, error));
        checker->recency = recency.mechanism;
        checker->longer = longer.mechanism;
    }
    if (variant->conv_kernel == 0) {
        not_applicable(checker, IDENTITY_CONVOLUTION, "the variant has no short convolution");
    } else if (!convolution_is_identity(checker->mechanism)) {
        not_applicable(checker, IDENTITY_CONVOLUTION, "the convolution's weights are not the identity");
    } else {
        FL_TRY_DONE(status, fl_variant_ablate(variant, FL_BRANCH_CONVOLUTION, &plain.variant, error));
        FL_TRY_DONE(status, fl_mechanism_derive(checker->mechanism, plain.variant, &plain.mechanism, error));
        checker->plain = plain.mechanism;
    }
    FL_TRY_DONE(status, fl_session_create(checker->network, NULL, &frozen, error));
    FL_TRY_DONE(status, fl_session_expect_length(frozen, checker->tokens, error));
    fl_session_observer observer = {check_layer, checker};
    status = fl_session_forward(frozen, ids, checker->tokens, fl_array_none, fl_array_none, &observer, error);
done:
    fl_session_destroy(frozen);
    derived_release(&recency);
    derived_release(&longer);
    derived_release(&plain);
    return status;
}

static fl_status allocate(fl_checker *checker, fl_error *error) {
    const fl_attention_shape *shape = &checker->network->shape;
    size_t key = checker->tokens * shape->kv_heads * shape->head_dim;
    size_t query = checker->tokens * checker->query_floats;
    FL_TRY(fl_compute_floats(checker->network->compute, query, &checker->whole, error));
    FL_TRY(fl_compute_floats(checker->network->compute, query, &checker->other, error));
    FL_TRY(fl_compute_floats(checker->network->compute, query, &checker->query, error));
    FL_TRY(fl_compute_floats(checker->network->compute, key, &checker->key, error));
    FL_TRY(fl_compute_floats(checker->network->compute, key, &checker->value, error));
    FL_TRY(fl_compute_floats(checker->network->compute, checker->tokens * shape->model_dim, &checker->input,
                             error));
    const size_t widest = shape->model_dim > checker->query_floats ? shape->model_dim : checker->query_floats;
    for (size_t i = 0; i < 2; i++) FL_TRY(FL_ALLOCATE(&checker->on_host[i], checker->tokens * widest, error));
    return FL_ALLOCATE(&checker->written, checker->tokens * shape->kv_heads, error);
}

static size_t tokens_to_use(const fl_variant *variant, size_t tokens, size_t limit) {
    size_t wanted =
        2 * (variant->sinks + variant->window + variant->cache_budget + RECENCY_TOKENS) + SPARE_TOKENS;
    if (wanted > MOST_TOKENS) wanted = MOST_TOKENS;
    if (limit > 0) wanted = limit;
    if (wanted > FL_SESSION_BLOCK)
        wanted = FL_SESSION_BLOCK; /* a layer is seen whole, in one observer call */
    return wanted < tokens ? wanted : tokens;
}

static fl_status check_weights(fl_checker *checker, const fl_hash *before, fl_error *error) {
    fl_hash now;
    FL_TRY(fl_model_hash(checker->network->model, &now, error));
    char place[128];
    snprintf(place, sizeof place, "%s", now.text);
    record(checker, WEIGHTS_UNCHANGED, strcmp(now.text, before->text) == 0 ? 0.0 : 1.0, place);
    return FL_OK;
}

fl_status fl_self_check_run(const fl_network *network, const fl_mechanism *mechanism, const int32_t *ids,
                            size_t tokens, size_t limit, const fl_hash *weights_before,
                            fl_self_check_report *report, fl_error *error) {
    memset(report, 0, sizeof *report);
    memcpy(report->rows, blank_rows, sizeof blank_rows);
    report->count = CHECK_COUNT;
    if (tokens < 2)
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "self check: a sequence of at least 2 tokens is needed");
    fl_checker checker = {.network = network,
                          .mechanism = mechanism,
                          .tokens = tokens_to_use(mechanism->variant, tokens, limit),
                          .query_floats = network->shape.query_heads * network->shape.head_dim,
                          .report = report};
    report->tokens = checker.tokens;
    for (size_t i = 0; i < CHECK_COUNT; i++) report->rows[i].passed = true;
    bool any = false;
    for (size_t l = 0; l < mechanism->layers; l++) any = any || mechanism->layer[l] != NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, allocate(&checker, error));
    if (any) FL_TRY_DONE(status, run_layers(&checker, ids, error));
    FL_TRY_DONE(status, check_sessions(&checker, ids, error));
    FL_TRY_DONE(status, check_all_softmax(&checker, ids, error));
    FL_TRY_DONE(status, check_weights(&checker, weights_before, error));
    report->passed = true;
    for (size_t i = 0; i < report->count; i++) {
        report->passed = report->passed && (report->rows[i].passed || !report->rows[i].applicable);
    }
done:
    fl_compute_release(network->compute, checker.whole);
    fl_compute_release(network->compute, checker.other);
    fl_compute_release(network->compute, checker.query);
    fl_compute_release(network->compute, checker.key);
    fl_compute_release(network->compute, checker.value);
    fl_compute_release(network->compute, checker.input);
    fl_memory_free(checker.on_host[0]);
    fl_memory_free(checker.on_host[1]);
    fl_memory_free(checker.written);
    return status == FL_OK ? FL_OK : fl_error_prepend(error, status, "self check");
}
