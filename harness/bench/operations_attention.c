/* Exact attention and the recurrence, with their gradients. */
#include <math.h>
#include <string.h>

#include "harness/bench/operation_list.h"

#define SLOT(name_) .name = #name_, .slot = offsetof(fl_compute_ops, name_)

/* --- attention --- */

typedef struct {
    fl_attention_call call;
    fl_attention_gradients gradients;
    size_t group;               /* query heads of a key head */
    int32_t *position, *expiry; /* [Hkv or 1][S] */
    fl_trial_input query, key, value;
    fl_trial_input given_output, given_log_sum_exp, key_before, value_before;
    fl_array output, log_sum_exp, largest, gradient_query;
    double *weights; /* [S] scratch of the reference */
} attention_case;

static bool visible(const attention_case *c, size_t token, size_t kv, size_t key) {
    const size_t at = (c->call.lifetimes_per_head ? kv * c->call.keys : 0) + key;
    const size_t now = c->call.first_position + token;
    return (size_t)c->position[at] <= now && (c->expiry == NULL || now < (size_t)c->expiry[at]);
}

/* One query's output [D], log of the sum of exp and largest score. */
static void attend(const attention_case *c, size_t token, size_t head, double *output, double *log_sum_exp,
                   double *largest) {
    const size_t dim = c->call.shape.head_dim, kv = head / c->group, keys = c->call.keys;
    const double *query = c->query.wide + (token * c->call.shape.query_heads + head) * dim;
    double sum = 0.0;
    *largest = -INFINITY;
    for (size_t i = 0; i < keys; i++) {
        c->weights[i] = -INFINITY;
        if (!visible(c, token, kv, i)) continue;
        double score = 0.0;
        for (size_t d = 0; d < dim; d++) score += query[d] * c->key.wide[(kv * keys + i) * dim + d];
        c->weights[i] = (double)c->call.shape.scale * score;
        *largest = fmax(*largest, c->weights[i]);
    }
    memset(output, 0, dim * sizeof *output);
    for (size_t i = 0; i<keys && * largest> - INFINITY; i++) {
        const double weight = exp(c->weights[i] - *largest);
        sum += weight;
        for (size_t d = 0; d < dim; d++) output[d] += weight * c->value.wide[(kv * keys + i) * dim + d];
    }
    for (size_t d = 0; d < dim && sum > 0.0; d++) output[d] /= sum;
    *log_sum_exp = sum > 0.0 ? *largest + log(sum) : -INFINITY;
}

/* Given gradients times results. */
static double attention_loss(const void *context) {
    const attention_case *c = context;
    const size_t heads = c->call.shape.query_heads, dim = c->call.shape.head_dim;
    double output[256], log_sum_exp = 0.0, largest = 0.0, loss = 0.0;
    for (size_t row = 0; row < c->call.tokens * heads; row++) {
        attend(c, row / heads, row % heads, output, &log_sum_exp, &largest);
        for (size_t d = 0; d < dim; d++) loss += c->given_output.wide[row * dim + d] * output[d];
        if (log_sum_exp > -INFINITY) loss += c->given_log_sum_exp.wide[row] * log_sum_exp;
    }
    return loss;
}

/* Keys at positions 0 .. S - 1, queries at the last T of them; expiry: never, a window behind sinks, or
 * random per head. */
static fl_status make_lifetimes(fl_trial *trial, attention_case *c, fl_error *error) {
    enum { CAUSAL, WINDOW, RANDOM, KINDS };
    const size_t kind = (size_t)fl_random_below(&trial->random, KINDS), keys = c->call.keys;
    const size_t window = 1 + (size_t)fl_random_below(&trial->random, keys);
    c->call.lifetimes_per_head = kind == RANDOM;
    const size_t count = (kind == RANDOM ? c->call.shape.kv_heads : 1) * keys;
    FL_TRY(fl_trial_block(trial, count, sizeof *c->position, &c->position, error));
    if (kind != CAUSAL) FL_TRY(fl_trial_block(trial, count, sizeof *c->expiry, &c->expiry, error));
    for (size_t i = 0; i < count; i++) {
        const size_t at = i % keys;
        c->position[i] = (int32_t)at;
        if (kind == WINDOW) c->expiry[i] = at < 2 ? FL_NEVER : (int32_t)(at + window);
        if (kind == RANDOM) c->expiry[i] = (int32_t)(at + 1 + (size_t)fl_random_below(&trial->random, keys));
    }
    if (kind != CAUSAL) FL_TRY(fl_trial_integers(trial, count, c->expiry, &c->call.expiry, error));
    return fl_trial_integers(trial, count, c->position, &c->call.position, error);
}

static fl_status make_attention_case(fl_trial *trial, attention_case **out, fl_error *error) {
    attention_case *c = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = *out = c;
    const size_t tokens = trial->sizes[0], past = trial->sizes[1] - 1, kv_heads = trial->sizes[2],
                 dim = trial->sizes[4], heads = kv_heads * trial->sizes[3], keys = past + tokens;
    c->group = trial->sizes[3];
    c->call =
        (fl_attention_call){.shape = {heads, kv_heads, dim, heads * dim, (float)(1.0 / sqrt((double)dim))},
                            .tokens = tokens,
                            .first_position = past,
                            .keys = keys,
                            .key_head_stride = keys * dim};
    FL_TRY(make_lifetimes(trial, c, error));
    FL_TRY(fl_trial_block(trial, keys, sizeof *c->weights, &c->weights, error));
    FL_TRY(fl_trial_normals(trial, tokens * heads * dim, 1.5, &c->query, error));
    FL_TRY(fl_trial_normals(trial, kv_heads * keys * dim, 1.0, &c->key, error));
    FL_TRY(fl_trial_normals(trial, kv_heads * keys * dim, 1.0, &c->value, error));
    FL_TRY(fl_trial_array(trial, tokens * heads * dim, FL_FLOAT32, &c->output, error));
    FL_TRY(fl_trial_array(trial, tokens * heads, FL_FLOAT32, &c->log_sum_exp, error));
    FL_TRY(fl_trial_array(trial, tokens * heads, FL_FLOAT32, &c->largest, error));
    c->call.query = c->query.array;
    c->call.key = c->key.array;
    c->call.value = c->value.array;
    double pairs = 0.0;
    for (size_t row = 0; row < tokens * kv_heads; row++) {
        for (size_t i = 0; i < keys; i++) pairs += visible(c, row / kv_heads, row % kv_heads, i) ? 1.0 : 0.0;
    }
    trial->flops = 4.0 * (double)(dim * c->group) * pairs;
    return FL_OK;
}

static fl_status make_attention(fl_trial *trial, fl_error *error) {
    attention_case *c = NULL;
    double *output = NULL, *log_sum_exp = NULL, *largest = NULL;
    FL_TRY(make_attention_case(trial, &c, error));
    const size_t heads = c->call.shape.query_heads, rows = c->call.tokens * heads,
                 dim = c->call.shape.head_dim;
    c->call.output = c->output;
    c->call.log_sum_exp = c->log_sum_exp;
    c->call.largest = c->largest;
    FL_TRY(fl_trial_expect(trial, "output", c->output, rows * dim, &output, error));
    FL_TRY(fl_trial_expect(trial, "log_sum_exp", c->log_sum_exp, rows, &log_sum_exp, error));
    FL_TRY(fl_trial_expect(trial, "largest", c->largest, rows, &largest, error));
    for (size_t row = 0; row < rows; row++)
        attend(c, row / heads, row % heads, output + row * dim, &log_sum_exp[row], &largest[row]);
    return FL_OK;
}

static fl_status call_attention(fl_trial *trial, fl_error *error) {
    const attention_case *c = trial->context;
    (void)error;
    trial->compute->ops->attention(trial->compute, &c->call);
    return FL_OK;
}

static fl_status make_attention_backward(fl_trial *trial, fl_error *error) {
    attention_case *c = NULL;
    FL_TRY(make_attention_case(trial, &c, error));
    FL_TRY(fl_trial_normals(trial, c->query.count, 1.0, &c->given_output, error));
    FL_TRY(
        fl_trial_normals(trial, c->query.count / c->call.shape.head_dim, 1.0, &c->given_log_sum_exp, error));
    FL_TRY(fl_trial_normals(trial, c->key.count, 1.0, &c->key_before, error));
    FL_TRY(fl_trial_normals(trial, c->key.count, 1.0, &c->value_before, error));
    FL_TRY(fl_trial_array(trial, c->query.count, FL_FLOAT32, &c->gradient_query, error));
    c->gradients = (fl_attention_gradients){.output = c->given_output.array,
                                            .log_sum_exp = c->given_log_sum_exp.array,
                                            .query = c->gradient_query,
                                            .key = c->key_before.array,
                                            .value = c->value_before.array};
    FL_TRY(fl_trial_expect_gradient(trial, "gradient of query", c->gradient_query, c->query.count,
                                    c->query.wide, attention_loss, c, NULL, error));
    FL_TRY(fl_trial_expect_gradient(trial, "gradient of key", c->key_before.array, c->key.count, c->key.wide,
                                    attention_loss, c, c->key_before.wide, error));
    trial->flops *= 2.5;
    return fl_trial_expect_gradient(trial, "gradient of value", c->value_before.array, c->key.count,
                                    c->value.wide, attention_loss, c, c->value_before.wide, error);
}

static fl_status call_attention_backward(fl_trial *trial, fl_error *error) {
    const attention_case *c = trial->context;
    (void)error;
    trial->compute->ops->attention_backward(trial->compute, &c->call, &c->gradients);
    return FL_OK;
}

/* --- the recurrence --- */

typedef struct {
    fl_recurrence_call call;
    fl_recurrence_backward_call backward;
    fl_trial_input query, key, value, log_decay, erase_strength, erase_read, erase_write, write, state;
    fl_trial_input given_output, given_state;
    fl_array state_in_out, output, state_norm;
    double *running; /* [Dv][Dk] scratch of the reference */
} recurrence_case;

static double inner(size_t n, const double *x, const double *y) {
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

static double decay_of(const recurrence_case *c, size_t at, size_t channel) {
    if (c->call.transition.decay == FL_DECAY_NONE) return 1.0;
    return exp(
        c->log_decay.wide[c->call.transition.decay == FL_DECAY_SCALAR ? at : at * c->call.key_dim + channel]);
}

/* S = S diag(a) (I - b r x^T) + w v k^T at row `at` of [H][T]. */
static void step(const recurrence_case *c, size_t at, double *state) {
    const size_t dk = c->call.key_dim, dv = c->call.value_dim;
    const bool erases = c->call.transition.erase != FL_ERASE_NONE;
    const bool own = c->call.transition.erase == FL_ERASE_DIRECTIONS;
    const double *key = c->key.wide + at * dk;
    const double *read = own ? c->erase_read.wide + at * dk : key;
    const double *removed = own ? c->erase_write.wide + at * dk : key;
    for (size_t v = 0; v < dv; v++) {
        double *row = state + v * dk;
        for (size_t i = 0; i < dk; i++) row[i] *= decay_of(c, at, i);
        const double erased = erases ? c->erase_strength.wide[at] * inner(dk, row, read) : 0.0;
        const double put = c->write.wide[at] * c->value.wide[at * dv + v];
        for (size_t i = 0; i < dk; i++) row[i] += put * key[i] - erased * removed[i];
    }
}

/* One head from its state; output [T][Dv], norm [T], NULL: not wanted. */
static void run_head(const recurrence_case *c, size_t head, double *state, double *output, double *norm) {
    const size_t dk = c->call.key_dim, dv = c->call.value_dim;
    for (size_t t = 0; t < c->call.steps; t++) {
        const size_t at = head * c->call.steps + t;
        step(c, at, state);
        for (size_t v = 0; v < dv; v++)
            output[t * dv + v] = inner(dk, state + v * dk, c->query.wide + at * dk);
        if (norm != NULL) norm[t] = sqrt(inner(dk * dv, state, state));
    }
}

static double recurrence_loss(const void *context) {
    const recurrence_case *c = context;
    const size_t states = c->call.key_dim * c->call.value_dim, reads = c->call.steps * c->call.value_dim;
    double *output = c->running + states, loss = 0.0;
    for (size_t head = 0; head < c->call.heads; head++) {
        memcpy(c->running, c->state.wide + head * states, states * sizeof *c->running);
        run_head(c, head, c->running, output, NULL);
        loss += inner(reads, output, c->given_output.wide + head * reads);
        loss += inner(states, c->running, c->given_state.wide + head * states);
    }
    return loss;
}

static const fl_transition transitions[] = {
    {FL_DECAY_NONE, FL_ERASE_NONE},         {FL_DECAY_SCALAR, FL_ERASE_NONE},
    {FL_DECAY_CHANNEL, FL_ERASE_NONE},      {FL_DECAY_NONE, FL_ERASE_KEY},
    {FL_DECAY_SCALAR, FL_ERASE_KEY},        {FL_DECAY_CHANNEL, FL_ERASE_KEY},
    {FL_DECAY_CHANNEL, FL_ERASE_DIRECTIONS}};

static fl_status make_inputs(fl_trial *trial, recurrence_case *c, fl_error *error) {
    const size_t rows = c->call.heads * c->call.steps, dk = c->call.key_dim, dv = c->call.value_dim;
    const fl_transition transition = c->call.transition;
    const size_t decays = transition.decay == FL_DECAY_NONE     ? 0
                          : transition.decay == FL_DECAY_SCALAR ? rows
                                                                : rows * dk;
    FL_TRY(fl_trial_normals(trial, rows * dk, 1.0, &c->query, error));
    FL_TRY(fl_trial_units(trial, rows, dk, &c->key, error));
    FL_TRY(fl_trial_normals(trial, rows * dv, 1.0, &c->value, error));
    FL_TRY(fl_trial_uniforms(trial, rows, 0.2, 1.0, &c->write, error));
    if (decays > 0) FL_TRY(fl_trial_uniforms(trial, decays, -0.5, 0.0, &c->log_decay, error));
    if (transition.erase != FL_ERASE_NONE)
        FL_TRY(fl_trial_uniforms(trial, rows, 0.0, 1.0, &c->erase_strength, error));
    if (transition.erase == FL_ERASE_DIRECTIONS) {
        FL_TRY(fl_trial_units(trial, rows, dk, &c->erase_read, error));
        FL_TRY(fl_trial_units(trial, rows, dk, &c->erase_write, error));
    }
    c->call.inputs = (fl_recurrence_inputs){.query = c->query.array,
                                            .key = c->key.array,
                                            .value = c->value.array,
                                            .log_decay = c->log_decay.array,
                                            .erase_strength = c->erase_strength.array,
                                            .erase_read = c->erase_read.array,
                                            .erase_write = c->erase_write.array,
                                            .write = c->write.array};
    return FL_OK;
}

static fl_status make_recurrence_case(fl_trial *trial, recurrence_case **out, fl_error *error) {
    recurrence_case *c = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = *out = c;
    const size_t heads = trial->sizes[0], steps = trial->sizes[1], dk = trial->sizes[2], dv = trial->sizes[3];
    c->call = (fl_recurrence_call){.transition = transitions[trial->sizes[4] - 1],
                                   .mode = (fl_recurrence_mode)(trial->sizes[5] - 1),
                                   .heads = heads,
                                   .steps = steps,
                                   .key_dim = dk,
                                   .value_dim = dv};
    FL_TRY(make_inputs(trial, c, error));
    FL_TRY(fl_trial_normals(trial, heads * dk * dv, 0.3, &c->state, error));
    FL_TRY(fl_trial_block(trial, dk * dv + steps * dv, sizeof *c->running, &c->running, error));
    trial->flops = 6.0 * (double)(heads * steps * dk * dv);
    return FL_OK;
}

static fl_status make_recurrence(fl_trial *trial, fl_error *error) {
    recurrence_case *c = NULL;
    double *output = NULL, *norm = NULL, *state = NULL;
    FL_TRY(make_recurrence_case(trial, &c, error));
    const size_t reads = c->call.steps * c->call.value_dim, states = c->call.key_dim * c->call.value_dim;
    const size_t heads = c->call.heads, steps = c->call.steps;
    FL_TRY(fl_trial_array(trial, heads * reads, FL_FLOAT32, &c->output, error));
    FL_TRY(fl_trial_expect(trial, "output", c->output, heads * reads, &output, error));
    FL_TRY(fl_trial_expect(trial, "state", c->state.array, heads * states, &state, error));
    c->call.state = c->state.array;
    c->call.output = c->output;
    if (c->call.mode == FL_RECURRENCE_STEP) {
        FL_TRY(fl_trial_array(trial, heads * steps, FL_FLOAT32, &c->state_norm, error));
        FL_TRY(fl_trial_expect(trial, "state_norm", c->state_norm, heads * steps, &norm, error));
        c->call.state_norm = c->state_norm;
    }
    memcpy(state, c->state.wide, heads * states * sizeof *state);
    for (size_t head = 0; head < heads; head++) {
        run_head(c, head, state + head * states, output + head * reads,
                 norm != NULL ? norm + head * steps : NULL);
    }
    return FL_OK;
}

static fl_status call_recurrence(fl_trial *trial, fl_error *error) {
    const recurrence_case *c = trial->context;
    return trial->compute->ops->recurrence(trial->compute, &c->call, error);
}

static fl_status make_recurrence_backward(fl_trial *trial, fl_error *error) {
    recurrence_case *c = NULL;
    FL_TRY(make_recurrence_case(trial, &c, error));
    FL_TRY(fl_trial_normals(trial, c->value.count, 1.0, &c->given_output, error));
    FL_TRY(fl_trial_normals(trial, c->state.count, 1.0, &c->given_state, error));
    fl_recurrence_gradients *gradients = &c->backward.gradients;
    struct {
        const char *name;
        const fl_trial_input *input;
        fl_array *gradient;
    } parts[] = {{"gradient of query", &c->query, &gradients->query},
                 {"gradient of key", &c->key, &gradients->key},
                 {"gradient of value", &c->value, &gradients->value},
                 {"gradient of log_decay", &c->log_decay, &gradients->log_decay},
                 {"gradient of erase_strength", &c->erase_strength, &gradients->erase_strength},
                 {"gradient of erase_read", &c->erase_read, &gradients->erase_read},
                 {"gradient of erase_write", &c->erase_write, &gradients->erase_write},
                 {"gradient of write", &c->write, &gradients->write},
                 {"gradient of the state", &c->state, &gradients->initial_state}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        fl_array made = fl_array_none;
        if (parts[i].input->wide == NULL) continue;
        FL_TRY(fl_trial_array(trial, parts[i].input->count, FL_FLOAT32, &made, error));
        *parts[i].gradient = made;
        FL_TRY(fl_trial_expect_gradient(trial, parts[i].name, made, parts[i].input->count,
                                        parts[i].input->wide, recurrence_loss, c, NULL, error));
    }
    c->backward.transition = c->call.transition;
    c->backward.mode = c->call.mode;
    c->backward.heads = c->call.heads;
    c->backward.steps = c->call.steps;
    c->backward.key_dim = c->call.key_dim;
    c->backward.value_dim = c->call.value_dim;
    c->backward.inputs = c->call.inputs;
    c->backward.initial_state = c->state.array;
    c->backward.gradient_output = c->given_output.array;
    c->backward.gradient_final_state = c->given_state.array;
    trial->flops *= 3.0;
    return FL_OK;
}

static fl_status call_recurrence_backward(fl_trial *trial, fl_error *error) {
    const recurrence_case *c = trial->context;
    return trial->compute->ops->recurrence_backward(trial->compute, &c->backward, error);
}

/* `transition` and `mode`: places in `transitions` and fl_recurrence_mode, from 1. */
#define ATTENTION(typical_)                                                                                  \
    .sizes = {{"tokens", {1, 2, 33, 70}, typical_},                                                          \
              {"past", {1, 2, 65}, 1},                                                                       \
              {"key heads", {1, 2}, 3},                                                                      \
              {"group", {1, 3}, 3},                                                                          \
              {"head_dim", {1, 8, 33, 64, 128}, 64}}
#define RECURRENCE(steps_, typical_)                                                                         \
    .sizes = {{"heads", {1, 2}, 9},                                                                          \
              {"steps", steps_, typical_},                                                                   \
              {"key_dim", {1, 7, 16, 32, 64}, 64},                                                           \
              {"value_dim", {1, 5, 16, 33, 64}, 64},                                                         \
              {"transition", {1, 2, 3, 5, 6, 7}, 6},                                                         \
              {"mode", {1, 2, 3}, 1}}
#define STEPS                                                                                                \
    { 1, 2, 63, 64, 65, 130 }
#define FEW_STEPS                                                                                            \
    { 1, 2, 17, 65 }

const fl_operation fl_operations_attention[] = {
    {SLOT(attention), ATTENTION(512), .bound = 1e-5, .make = make_attention, .call = call_attention},
    {SLOT(attention_backward), ATTENTION(128), .bound = 2e-5, .make = make_attention_backward,
     .call = call_attention_backward},
    {SLOT(recurrence), RECURRENCE(STEPS, 512), .bound = 1e-5, .make = make_recurrence,
     .call = call_recurrence},
    {SLOT(recurrence_backward), RECURRENCE(FEW_STEPS, 128), .bound = 5e-5, .make = make_recurrence_backward,
     .call = call_recurrence_backward},
    {0},
};
