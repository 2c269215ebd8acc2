/* A rule's rows: prepare and own steps, by two rules with simple definitions (kda for the recurrence, oja
 * with a step of its own; what other rules compute is for their own tests), and what a routed cache does with
 * rows. */
#include <math.h>
#include <string.h>

#include "attn_variants/write_layout.h"
#include "harness/bench/operation_list.h"

#define SLOT(name_) .name = #name_, .slot = offsetof(fl_compute_ops, name_)

enum { LATER = 2 /* rows after the last token that must stay as they are */ };

/* Rows with their float64 side: part [H][rows][width]. */
typedef struct {
    fl_write_rows rows;
    double *wide[FL_WRITE_PARTS];
} wide_rows;

typedef struct {
    fl_rule_layer layer;
    fl_write_layout layout;
    size_t heads, dim;
} row_case;

static size_t row_count(const row_case *c, const wide_rows *rows, int part) {
    return c->heads * rows->rows.rows * c->layout.width[part];
}

/* kda's rows; oja's have no write weight (its `erase_strength` is beta). */
static void describe_rows(row_case *c, const char *name, size_t heads, size_t dim, bool normaliser) {
    const fl_rule *rule = fl_rule_find(name); /* in the registry */
    c->heads = heads;
    c->dim = dim;
    c->layer = fl_rule_layer_of(rule, NULL, 0, 1, heads, dim);
    c->layout = (fl_write_layout){.heads = heads,
                                  .micro_steps = 1,
                                  .key_dim = dim,
                                  .value_dim = dim + (normaliser ? 1 : 0),
                                  .width = {[FL_WRITE_KEY] = dim,
                                            [FL_WRITE_VALUE] = dim + (normaliser ? 1 : 0),
                                            [FL_WRITE_LOG_DECAY] = dim,
                                            [FL_WRITE_ERASE_STRENGTH] = 1,
                                            [FL_WRITE_WEIGHT] = rule->has_write ? 1 : 0}};
    for (int i = 0; i < FL_WRITE_PARTS; i++) c->layout.row_floats += c->layout.width[i];
}

/* Drawn rows: decays in (-0.5, 0), strengths in (0, 1), the rest normal. */
static fl_status draw_rows(fl_trial *trial, const row_case *c, size_t rows, bool gates, wide_rows *out,
                           fl_error *error) {
    *out = (wide_rows){0};
    out->rows.rows = rows;
    for (int i = 0; i < FL_WRITE_PARTS; i++) {
        fl_trial_input part;
        const size_t count = c->heads * rows * c->layout.width[i];
        const bool decay = i == FL_WRITE_LOG_DECAY, strength = i == FL_WRITE_ERASE_STRENGTH;
        if (count == 0) continue;
        if (gates && (decay || strength)) {
            FL_TRY(fl_trial_uniforms(trial, count, decay ? -0.5 : 0.0, decay ? 0.0 : 1.0, &part, error));
        } else {
            FL_TRY(fl_trial_normals(trial, count, 1.0, &part, error));
        }
        out->rows.part[i] = part.array;
        out->wide[i] = part.wide;
    }
    return FL_OK;
}

static const char *const part_names[FL_WRITE_PARTS] = {
    [FL_WRITE_KEY] = "key",
    [FL_WRITE_VALUE] = "value",
    [FL_WRITE_LOG_DECAY] = "log_decay",
    [FL_WRITE_ERASE_STRENGTH] = "erase_strength",
    [FL_WRITE_WEIGHT] = "write",
};

/* The rows as they are, to be changed by the caller. */
static fl_status expect_parts(fl_trial *trial, const row_case *c, const wide_rows *rows,
                              double *expected[FL_WRITE_PARTS], fl_error *error) {
    for (int i = 0; i < FL_WRITE_PARTS; i++) {
        const size_t count = row_count(c, rows, i);
        expected[i] = NULL;
        if (count == 0) continue;
        FL_TRY(fl_trial_expect(trial, part_names[i], rows->rows.part[i], count, &expected[i], error));
        memcpy(expected[i], rows->wide[i], count * sizeof **expected);
    }
    return FL_OK;
}

static double inner(size_t n, const double *x, const double *y) {
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

static void unit(size_t n, const double *x, double *y) {
    const double length = sqrt(inner(n, x, x));
    for (size_t i = 0; i < n; i++) y[i] = x[i] / length;
}

/* --- prepare --- */

typedef struct {
    row_case rows;
    fl_prepare_call call;
    fl_prepare_gradients gradients;
    fl_trial_input query, key, value, gate, beta, given_read;
    wide_rows written;
    fl_array read;
    double *scratch; /* [D + 1] */
} prepare_case;

/* What the row of a token and head should hold in `part`, kda's definition; out [width]. */
static void prepared(const prepare_case *c, size_t head, size_t token, int part, double *out) {
    const size_t heads = c->rows.heads, dim = c->rows.dim, at = token * heads + head;
    const size_t source = token * c->call.key_heads + head / (heads / c->call.key_heads);
    memset(out, 0, c->rows.layout.width[part] * sizeof *out);
    if (token < c->call.null_tokens) return;
    if (part == FL_WRITE_KEY) unit(dim, c->key.wide + source * dim, out);
    if (part == FL_WRITE_VALUE) {
        memcpy(out, c->value.wide + source * dim, dim * sizeof *out);
        if (c->call.normaliser) out[dim] = 1.0;
    }
    if (part == FL_WRITE_LOG_DECAY) memcpy(out, c->gate.wide + at * dim, dim * sizeof *out);
    if (part == FL_WRITE_ERASE_STRENGTH || part == FL_WRITE_WEIGHT) out[0] = c->beta.wide[at];
}

static fl_status make_prepare_case(fl_trial *trial, size_t group, prepare_case **out, fl_error *error) {
    prepare_case *c = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = *out = c;
    const size_t tokens = trial->sizes[0], key_heads = trial->sizes[1], heads = key_heads * group,
                 dim = trial->sizes[2];
    const bool normaliser = fl_random_below(&trial->random, 2) == 0;
    describe_rows(&c->rows, "kda", heads, dim, normaliser);
    FL_TRY(fl_trial_normals(trial, tokens * heads * dim, 1.0, &c->query, error));
    FL_TRY(fl_trial_normals(trial, tokens * key_heads * dim, 1.0, &c->key, error));
    FL_TRY(fl_trial_normals(trial, tokens * key_heads * dim, 1.0, &c->value, error));
    FL_TRY(fl_trial_uniforms(trial, tokens * heads * dim, -0.5, 0.0, &c->gate, error));
    FL_TRY(fl_trial_uniforms(trial, tokens * heads, 0.0, 1.0, &c->beta, error));
    FL_TRY(fl_trial_array(trial, tokens * heads * dim, FL_FLOAT32, &c->read, error));
    FL_TRY(fl_trial_block(trial, dim + 1, sizeof *c->scratch, &c->scratch, error));
    c->call = (fl_prepare_call){.rule = &c->rows.layer,
                                .tokens = tokens,
                                .first_position = 5,
                                .key_heads = key_heads,
                                .query = c->query.array,
                                .key = c->key.array,
                                .value = c->value.array,
                                .gate = c->gate.array,
                                .beta = c->beta.array,
                                .gate_width = dim,
                                .scale = fl_random_below(&trial->random, 2) == 0 ? 1.0f : 0.25f,
                                .normaliser = normaliser,
                                .layout = c->rows.layout,
                                .read = c->read,
                                .first_row = (size_t)fl_random_below(&trial->random, 4),
                                .null_tokens = (size_t)fl_random_below(&trial->random, 3)};
    FL_TRY(draw_rows(trial, &c->rows, c->call.first_row + tokens + LATER, false, &c->written, error));
    c->call.written = c->written.rows;
    trial->bytes = 2.0 * sizeof(float) * (double)(tokens * heads * (c->rows.layout.row_floats + dim));
    return FL_OK;
}

static fl_status make_prepare(fl_trial *trial, fl_error *error) {
    prepare_case *c = NULL;
    double *expected[FL_WRITE_PARTS], *read = NULL;
    FL_TRY(make_prepare_case(trial, trial->sizes[3], &c, error));
    const size_t tokens = c->call.tokens, heads = c->rows.heads, dim = c->rows.dim,
                 rows = c->written.rows.rows;
    FL_TRY(fl_trial_expect(trial, "read", c->read, tokens * heads * dim, &read, error));
    FL_TRY(expect_parts(trial, &c->rows, &c->written, expected, error));
    for (size_t at = 0; at < tokens * heads; at++) {
        const size_t token = at / heads, head = at % heads, row = head * rows + c->call.first_row + token;
        double *of_token = read + (head * tokens + token) * dim;
        unit(dim, c->query.wide + at * dim, of_token);
        for (size_t i = 0; i < dim; i++) of_token[i] *= (double)c->call.scale;
        for (int i = 0; i < FL_WRITE_PARTS; i++) {
            if (expected[i] != NULL) prepared(c, head, token, i, expected[i] + row * c->rows.layout.width[i]);
        }
    }
    return FL_OK;
}

static fl_status call_prepare(fl_trial *trial, fl_error *error) {
    const prepare_case *c = trial->context;
    (void)error;
    trial->compute->ops->prepare(trial->compute, &c->call);
    return FL_OK;
}

/* Given gradients times what prepare makes; `written` holds the gradients of rows. */
static double prepare_loss(const void *context) {
    const prepare_case *c = context;
    const size_t tokens = c->call.tokens, heads = c->rows.heads, dim = c->rows.dim;
    double loss = 0.0;
    for (size_t at = 0; at < tokens * heads; at++) {
        const size_t token = at / heads, head = at % heads, row = c->call.first_row + token;
        unit(dim, c->query.wide + at * dim, c->scratch);
        loss += (double)c->call.scale *
                inner(dim, c->scratch, c->given_read.wide + (head * tokens + token) * dim);
        for (int i = 0; i < FL_WRITE_PARTS && row < c->gradients.steps; i++) {
            const size_t width = c->rows.layout.width[i];
            if (width == 0) continue;
            prepared(c, head, token, i, c->scratch);
            loss +=
                inner(width, c->scratch, c->written.wide[i] + (head * c->written.rows.rows + row) * width);
        }
    }
    return loss;
}

static fl_status make_prepare_backward(fl_trial *trial, fl_error *error) {
    prepare_case *c = NULL;
    FL_TRY(make_prepare_case(trial, 1, &c, error));
    const size_t tokens = c->call.tokens;
    FL_TRY(fl_trial_normals(trial, c->query.count, 1.0, &c->given_read, error));
    c->gradients = (fl_prepare_gradients){.read = c->given_read.array,
                                          .written = &c->written.rows,
                                          .steps = tokens + (size_t)fl_random_below(&trial->random, 4),
                                          .kv_heads = c->call.key_heads};
    struct {
        const char *name;
        const fl_trial_input *input;
        fl_array *gradient;
    } parts[] = {{"gradient of query", &c->query, &c->gradients.query},
                 {"gradient of key", &c->key, &c->gradients.key},
                 {"gradient of value", &c->value, &c->gradients.value},
                 {"gradient of gate", &c->gate, &c->gradients.gate},
                 {"gradient of beta", &c->beta, &c->gradients.beta}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        FL_TRY(fl_trial_array(trial, parts[i].input->count, FL_FLOAT32, parts[i].gradient, error));
        FL_TRY(fl_trial_expect_gradient(trial, parts[i].name, *parts[i].gradient, parts[i].input->count,
                                        parts[i].input->wide, prepare_loss, c, NULL, error));
        trial->expected[trial->expected_count - 1].scale = 1e-2; /* of one channel a unit vector's is 0 */
    }
    return FL_OK;
}

static fl_status call_prepare_backward(fl_trial *trial, fl_error *error) {
    const prepare_case *c = trial->context;
    (void)error;
    trial->compute->ops->prepare_backward(trial->compute, &c->call, &c->gradients);
    return FL_OK;
}

typedef struct {
    fl_bonus_call call;
    fl_trial_input bonus, value, read;
} bonus_case;

static fl_status make_bonus(fl_trial *trial, fl_error *error) {
    bonus_case *c = NULL;
    double *expected = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = c;
    const size_t tokens = trial->sizes[0], sources = trial->sizes[1], dim = trial->sizes[2],
                 heads = sources * trial->sizes[3];
    FL_TRY(fl_trial_normals(trial, tokens * heads * dim, 1.0, &c->bonus, error));
    FL_TRY(fl_trial_normals(trial, tokens * sources * dim, 1.0, &c->value, error));
    FL_TRY(fl_trial_normals(trial, heads * tokens * (dim + 1), 1.0, &c->read, error));
    c->call = (fl_bonus_call){.tokens = tokens,
                              .heads = heads,
                              .value_heads = sources,
                              .head_dim = dim,
                              .bonus = c->bonus.array,
                              .value = c->value.array,
                              .read = c->read.array,
                              .read_stride = dim + 1,
                              .read_head_stride = tokens * (dim + 1)};
    FL_TRY(fl_trial_expect(trial, "read", c->read.array, c->read.count, &expected, error));
    memcpy(expected, c->read.wide, c->read.count * sizeof *expected);
    for (size_t row = 0; row < tokens * heads; row++) {
        const size_t token = row / heads, head = row % heads;
        for (size_t i = 0; i < dim; i++) {
            expected[head * c->call.read_head_stride + token * (dim + 1) + i] +=
                c->bonus.wide[row * dim + i] *
                c->value.wide[(token * sources + head / (heads / sources)) * dim + i];
        }
    }
    return FL_OK;
}

static fl_status call_bonus(fl_trial *trial, fl_error *error) {
    const bonus_case *c = trial->context;
    (void)error;
    trial->compute->ops->add_bonus(trial->compute, &c->call);
    return FL_OK;
}

/* --- own steps --- */

typedef struct {
    row_case rows;
    fl_own_steps_call call;
    fl_own_steps_gradients gradients;
    fl_trial_input query, state, given;
    wide_rows written, made;
    fl_array output, state_norm;
    double *running, *unit_value, *unit_key, *y; /* [D][D], [D], [D], [D] */
} own_case;

static bool writes(const own_case *c, size_t step) {
    const size_t position = c->call.first_position + step;
    return position >= c->call.delay && position - c->call.delay >= c->call.sinks;
}

/* Oja: S = diag(a) S;  S += b v (k - S^T v)^T, k and v of unit length. */
static void write_row(const own_case *c, size_t head, size_t step, double *state) {
    const size_t dim = c->rows.dim, at = head * c->call.tokens + step;
    unit(dim, c->written.wide[FL_WRITE_KEY] + at * dim, c->unit_key);
    unit(dim, c->written.wide[FL_WRITE_VALUE] + at * dim, c->unit_value);
    for (size_t row = 0; row < dim; row++) {
        for (size_t i = 0; i < dim; i++)
            state[row * dim + i] *= exp(c->written.wide[FL_WRITE_LOG_DECAY][at * dim + row]);
    }
    for (size_t row = 0; row < dim; row++) {
        for (size_t i = 0; i < dim; i++) c->unit_key[i] -= c->unit_value[row] * state[row * dim + i];
    }
    for (size_t row = 0; row < dim; row++) {
        for (size_t i = 0; i < dim; i++)
            state[row * dim + i] +=
                c->written.wide[FL_WRITE_ERASE_STRENGTH][at] * c->unit_value[row] * c->unit_key[i];
    }
}

/* One head from its state; output [T][D], norm [T], NULL: not wanted. */
static void run_own(const own_case *c, size_t head, double *state, double *output, double *norm) {
    const size_t dim = c->rows.dim;
    for (size_t t = 0; t < c->call.tokens; t++) {
        if (writes(c, t)) write_row(c, head, t, state);
        unit(dim, c->query.wide + (head * c->call.tokens + t) * dim, c->y);
        for (size_t row = 0; row < dim; row++)
            output[t * dim + row] = (double)c->call.scale * inner(dim, state + row * dim, c->y);
        if (norm != NULL) norm[t] = sqrt(inner(dim * dim, state, state));
    }
}

static fl_status make_own_case(fl_trial *trial, own_case **out, fl_error *error) {
    own_case *c = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = *out = c;
    const size_t tokens = trial->sizes[0], heads = trial->sizes[1], dim = trial->sizes[2];
    describe_rows(&c->rows, "oja", heads, dim, false);
    FL_TRY(draw_rows(trial, &c->rows, tokens, true, &c->written, error));
    FL_TRY(fl_trial_normals(trial, heads * tokens * dim, 1.0, &c->query, error));
    FL_TRY(fl_trial_normals(trial, heads * dim * dim, 0.3, &c->state, error));
    FL_TRY(fl_trial_array(trial, heads * tokens * dim, FL_FLOAT32, &c->output, error));
    FL_TRY(fl_trial_block(trial, dim * dim, sizeof *c->running, &c->running, error));
    FL_TRY(fl_trial_block(trial, dim, sizeof *c->unit_key, &c->unit_key, error));
    FL_TRY(fl_trial_block(trial, dim, sizeof *c->unit_value, &c->unit_value, error));
    FL_TRY(fl_trial_block(trial, dim, sizeof *c->y, &c->y, error));
    c->call = (fl_own_steps_call){.rule = &c->rows.layer,
                                  .state_floats = dim * dim,
                                  .tokens = tokens,
                                  .steps = tokens,
                                  .scale = fl_random_below(&trial->random, 2) == 0 ? 1.0f : 0.25f,
                                  .layout = c->rows.layout,
                                  .query = c->query.array,
                                  .written = c->written.rows,
                                  .kv_heads = heads,
                                  .state = c->state.array,
                                  .output = c->output};
    trial->flops = 8.0 * (double)(heads * tokens * dim * dim);
    return FL_OK;
}

static fl_status make_own_steps(fl_trial *trial, fl_error *error) {
    own_case *c = NULL;
    double *output = NULL, *state = NULL, *norm = NULL;
    FL_TRY(make_own_case(trial, &c, error));
    const size_t tokens = c->call.tokens, heads = c->rows.heads, dim = c->rows.dim;
    c->call.delay = (size_t)fl_random_below(&trial->random, 3);
    c->call.sinks = (size_t)fl_random_below(&trial->random, 2);
    FL_TRY(fl_trial_array(trial, heads * tokens, FL_FLOAT32, &c->state_norm, error));
    c->call.state_norm = c->state_norm;
    FL_TRY(fl_trial_expect(trial, "output", c->output, heads * tokens * dim, &output, error));
    FL_TRY(fl_trial_expect(trial, "state", c->state.array, heads * dim * dim, &state, error));
    FL_TRY(fl_trial_expect(trial, "state_norm", c->state_norm, heads * tokens, &norm, error));
    memcpy(state, c->state.wide, heads * dim * dim * sizeof *state);
    for (size_t head = 0; head < heads; head++)
        run_own(c, head, state + head * dim * dim, output + head * tokens * dim, norm + head * tokens);
    return FL_OK;
}

static fl_status call_own_steps(fl_trial *trial, fl_error *error) {
    const own_case *c = trial->context;
    (void)error;
    trial->compute->ops->own_steps(trial->compute, &c->call);
    return FL_OK;
}

static double own_loss(const void *context) {
    const own_case *c = context;
    const size_t reads = c->call.tokens * c->rows.dim, states = c->rows.dim * c->rows.dim;
    double loss = 0.0, *output = c->running + states;
    for (size_t head = 0; head < c->rows.heads; head++) {
        memcpy(c->running, c->state.wide + head * states, states * sizeof *c->running);
        run_own(c, head, c->running, output, NULL);
        loss += inner(reads, output, c->given.wide + head * reads);
    }
    return loss;
}

static fl_status make_own_backward(fl_trial *trial, fl_error *error) {
    own_case *c = NULL;
    fl_array made = fl_array_none;
    FL_TRY(make_own_case(trial, &c, error));
    const size_t dim = c->rows.dim;
    FL_TRY(fl_trial_block(trial, dim * dim + c->call.tokens * dim, sizeof *c->running, &c->running, error));
    FL_TRY(fl_trial_normals(trial, c->query.count, 1.0, &c->given, error));
    FL_TRY(draw_rows(trial, &c->rows, c->call.tokens, false, &c->made, error));
    FL_TRY(fl_trial_array(trial, c->query.count, FL_FLOAT32, &made, error));
    c->gradients =
        (fl_own_steps_gradients){.output = c->given.array, .query = made, .written = &c->made.rows};
    FL_TRY(fl_trial_expect_gradient(trial, "gradient of query", made, c->query.count, c->query.wide, own_loss,
                                    c, NULL, error));
    trial->expected[0].scale = 1e-2; /* of one channel a unit vector's is 0 */
    for (int i = 0; i < FL_WRITE_PARTS; i++) {
        const size_t count = row_count(&c->rows, &c->written, i);
        if (count == 0) continue;
        FL_TRY(fl_trial_expect_gradient(trial, part_names[i], c->made.rows.part[i], count, c->written.wide[i],
                                        own_loss, c, NULL, error));
        trial->expected[trial->expected_count - 1].scale = 1e-2;
    }
    trial->flops *= 3.0;
    return FL_OK;
}

static fl_status call_own_backward(fl_trial *trial, fl_error *error) {
    const own_case *c = trial->context;
    return trial->compute->ops->own_steps_backward(trial->compute, &c->call, &c->gradients, error);
}

/* Of a rule without an initial state of its own: zeros. */
static fl_status make_own_init(fl_trial *trial, fl_error *error) {
    own_case *c = NULL;
    double *expected = NULL;
    FL_TRY(make_own_case(trial, &c, error));
    return fl_trial_expect(trial, "state", c->state.array, c->state.count, &expected, error);
}

static fl_status call_own_init(fl_trial *trial, fl_error *error) {
    const own_case *c = trial->context;
    (void)error;
    trial->compute->ops->own_init(trial->compute, &c->rows.layer, c->call.state_floats, c->state.array);
    return FL_OK;
}

/* --- rows of a cache --- */

typedef struct {
    row_case rows;
    fl_exchange_call call;
    wide_rows stream, cached;
    int32_t *slots;
} exchange_case;

static void exchange(const exchange_case *c, size_t head, size_t step, double *const *stream,
                     double *const *cached) {
    const int32_t slot = c->slots[head / (c->rows.heads / c->call.kv_heads) * c->call.tokens + step];
    for (int i = 0; i < FL_WRITE_PARTS && slot >= 0; i++) {
        const size_t width = c->rows.layout.width[i];
        for (size_t j = 0; j < width; j++) {
            double *x = &stream[i][(head * c->stream.rows.rows + step) * width + j];
            double *y = &cached[i][(head * c->cached.rows.rows + (size_t)slot) * width + j];
            const double kept = *x;
            *x = *y;
            *y = kept;
        }
    }
}

static fl_status make_exchange(fl_trial *trial, fl_error *error) {
    exchange_case *c = NULL;
    double *stream[FL_WRITE_PARTS], *cached[FL_WRITE_PARTS];
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = c;
    const size_t tokens = trial->sizes[0], kv_heads = trial->sizes[1], slots = 1 + trial->sizes[0] / 3;
    describe_rows(&c->rows, "kda", kv_heads * trial->sizes[3], trial->sizes[2], false);
    FL_TRY(draw_rows(trial, &c->rows, tokens + LATER, false, &c->stream, error));
    FL_TRY(draw_rows(trial, &c->rows, slots, false, &c->cached, error));
    FL_TRY(fl_trial_block(trial, kv_heads * tokens, sizeof *c->slots, &c->slots, error));
    for (size_t i = 0; i < kv_heads * tokens; i++)
        c->slots[i] = (int32_t)fl_random_below(&trial->random, slots + 1) - 1;
    c->call = (fl_exchange_call){.layout = c->rows.layout,
                                 .stream = c->stream.rows,
                                 .cached = c->cached.rows,
                                 .tokens = tokens,
                                 .kv_heads = kv_heads,
                                 .first_step = tokens > 2 ? 1 : 0};
    FL_TRY(fl_trial_integers(trial, kv_heads * tokens, c->slots, &c->call.slots, error));
    c->call.steps = tokens - c->call.first_step;
    FL_TRY(expect_parts(trial, &c->rows, &c->stream, stream, error));
    FL_TRY(expect_parts(trial, &c->rows, &c->cached, cached, error));
    for (size_t head = 0; head < c->rows.heads; head++) {
        for (size_t step = c->call.first_step; step < tokens; step++) exchange(c, head, step, stream, cached);
    }
    return FL_OK;
}

static fl_status call_exchange(fl_trial *trial, fl_error *error) {
    const exchange_case *c = trial->context;
    (void)error;
    trial->compute->ops->exchange_rows(trial->compute, &c->call);
    return FL_OK;
}

typedef struct {
    size_t heads, rows, dim;
    fl_trial_input x;
    fl_array made;
} lengths_case;

static fl_status make_lengths(fl_trial *trial, fl_error *error) {
    lengths_case *c = NULL;
    double *expected = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = c;
    *c = (lengths_case){.heads = trial->sizes[1], .rows = trial->sizes[0], .dim = trial->sizes[2]};
    const size_t stride = (c->rows + LATER) * c->dim;
    FL_TRY(fl_trial_normals(trial, c->heads * stride, 1.0, &c->x, error));
    FL_TRY(fl_trial_array(trial, c->heads * c->rows, FL_FLOAT64, &c->made, error));
    FL_TRY(fl_trial_expect(trial, "lengths", c->made, c->heads * c->rows, &expected, error));
    for (size_t i = 0; i < c->heads * c->rows; i++) {
        const double *x = c->x.wide + i / c->rows * stride + i % c->rows * c->dim;
        expected[i] = sqrt(inner(c->dim, x, x));
    }
    return FL_OK;
}

static fl_status call_lengths(fl_trial *trial, fl_error *error) {
    const lengths_case *c = trial->context;
    (void)error;
    trial->compute->ops->row_lengths(trial->compute, c->heads, c->rows, c->dim, c->x.array,
                                     (c->rows + LATER) * c->dim, c->made);
    return FL_OK;
}

typedef struct {
    fl_token_attention_call call;
    fl_trial_input query, key, value;
    int32_t *expiry;
} token_case;

/* One head's weights [S] and output [D]; returns the log of the sum of exp. */
static double attend(const token_case *c, size_t head, double *weights, double *output) {
    const size_t dim = c->call.shape.head_dim, keys = c->call.keys;
    const size_t kv = head / (c->call.shape.query_heads / c->call.shape.kv_heads);
    double largest = -INFINITY, sum = 0.0;
    for (size_t i = 0; i < keys; i++) {
        weights[i] = -INFINITY;
        if ((size_t)c->expiry[kv * keys + i] <= c->call.position) continue;
        weights[i] = (double)c->call.shape.scale *
                     inner(dim, c->query.wide + head * dim, c->key.wide + (kv * keys + i) * dim);
        largest = fmax(largest, weights[i]);
    }
    for (size_t i = 0; i < keys; i++)
        sum += weights[i] = weights[i] > -INFINITY ? exp(weights[i] - largest) : 0.0;
    for (size_t i = 0; i < keys && sum > 0.0; i++) {
        weights[i] /= sum;
        for (size_t d = 0; d < dim; d++) output[d] += weights[i] * c->value.wide[(kv * keys + i) * dim + d];
    }
    return sum > 0.0 ? largest + log(sum) : -INFINITY;
}

static fl_status make_token_attention(fl_trial *trial, fl_error *error) {
    token_case *c = NULL;
    double *weights = NULL, *output = NULL, *log_sum_exp = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = c;
    const size_t keys = trial->sizes[0], kv_heads = trial->sizes[1], dim = trial->sizes[2],
                 heads = kv_heads * trial->sizes[3];
    FL_TRY(fl_trial_normals(trial, heads * dim, 1.0, &c->query, error));
    FL_TRY(fl_trial_normals(trial, kv_heads * keys * dim, 1.0, &c->key, error));
    FL_TRY(fl_trial_normals(trial, kv_heads * keys * dim, 1.0, &c->value, error));
    FL_TRY(fl_trial_block(trial, kv_heads * keys, sizeof *c->expiry, &c->expiry, error));
    for (size_t i = 0; i < kv_heads * keys; i++)
        c->expiry[i] = fl_random_below(&trial->random, 4) == 0 ? 50 : FL_NEVER; /* expired, or never */
    c->call = (fl_token_attention_call){
        .shape = {heads, kv_heads, dim, heads * dim, (float)(1.0 / sqrt((double)dim))},
        .position = 50,
        .query = c->query.array,
        .keys = keys,
        .key = c->key.array,
        .value = c->value.array,
        .key_head_stride = keys * dim,
        .expiry_head_stride = keys};
    FL_TRY(fl_trial_integers(trial, kv_heads * keys, c->expiry, &c->call.expiry, error));
    FL_TRY(fl_trial_array(trial, heads * keys, FL_FLOAT32, &c->call.weights, error));
    FL_TRY(fl_trial_array(trial, heads * dim, FL_FLOAT32, &c->call.output, error));
    FL_TRY(fl_trial_array(trial, heads, FL_FLOAT32, &c->call.log_sum_exp, error));
    FL_TRY(fl_trial_expect(trial, "weights", c->call.weights, heads * keys, &weights, error));
    FL_TRY(fl_trial_expect(trial, "output", c->call.output, heads * dim, &output, error));
    FL_TRY(fl_trial_expect(trial, "log_sum_exp", c->call.log_sum_exp, heads, &log_sum_exp, error));
    for (size_t head = 0; head < heads; head++)
        log_sum_exp[head] = attend(c, head, weights + head * keys, output + head * dim);
    trial->flops = 4.0 * (double)(heads * keys * dim);
    return FL_OK;
}

static fl_status call_token_attention(fl_trial *trial, fl_error *error) {
    const token_case *c = trial->context;
    (void)error;
    trial->compute->ops->token_attention(trial->compute, &c->call);
    return FL_OK;
}

typedef struct {
    row_case rows;
    fl_recall_call call;
    fl_trial_input state;
    wide_rows cached;
    fl_array made;
} recall_case;

static fl_status make_recall(fl_trial *trial, fl_error *error) {
    recall_case *c = NULL;
    double *expected = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = c;
    const size_t candidates = trial->sizes[0], dim = trial->sizes[2], group = trial->sizes[3],
                 heads = trial->sizes[1] * group, rows = candidates + LATER;
    describe_rows(&c->rows, "kda", heads, dim, false);
    FL_TRY(draw_rows(trial, &c->rows, rows, false, &c->cached, error));
    FL_TRY(fl_trial_normals(trial, heads * dim * dim, 0.3, &c->state, error));
    FL_TRY(fl_trial_array(trial, heads * candidates, FL_FLOAT64, &c->made, error));
    c->call = (fl_recall_call){.rule = &c->rows.layer,
                               .state_floats = dim * dim,
                               .kv_heads = trial->sizes[1],
                               .candidates = candidates,
                               .layout = c->rows.layout,
                               .cached = c->cached.rows,
                               .state = c->state.array,
                               .errors = c->made};
    FL_TRY(fl_trial_array(trial, heads * candidates * dim, FL_FLOAT32, &c->call.read, error));
    FL_TRY(fl_trial_expect(trial, "errors", c->made, heads * candidates, &expected, error));
    for (size_t i = 0; i < heads * candidates; i++) {
        const size_t head = i / candidates, at = (head * rows + i % candidates) * dim;
        double sum = 0.0;
        for (size_t v = 0; v < dim; v++) {
            const double read =
                inner(dim, c->state.wide + (head * dim + v) * dim, c->cached.wide[FL_WRITE_KEY] + at);
            sum += pow(c->cached.wide[FL_WRITE_VALUE][at + v] - read, 2.0);
        }
        expected[i] = sqrt(sum) / (double)group;
    }
    return FL_OK;
}

static fl_status call_recall(fl_trial *trial, fl_error *error) {
    const recall_case *c = trial->context;
    (void)error;
    trial->compute->ops->recall_errors(trial->compute, &c->call);
    return FL_OK;
}

#define ROWS(tokens_)                                                                                        \
    .sizes = {{"tokens", tokens_, 512},                                                                      \
              {"key heads", {1, 3}, 3},                                                                      \
              {"head_dim", {1, 8, 33, 64}, 64},                                                              \
              {"group", {1, 3}, 3}}
#define MANY                                                                                                 \
    { 1, 2, 33, 70 }
#define FEW                                                                                                  \
    { 1, 2, 17 }

const fl_operation fl_operations_rows[] = {
    {SLOT(prepare), ROWS(MANY), .bound = 1e-6, .make = make_prepare, .call = call_prepare},
    {SLOT(prepare_backward), ROWS(FEW), .bound = 1e-5, .make = make_prepare_backward,
     .call = call_prepare_backward},
    {SLOT(add_bonus), ROWS(MANY), .bound = 1e-6, .make = make_bonus, .call = call_bonus},
    {SLOT(own_init), ROWS(FEW), .bound = 0.0, .make = make_own_init, .call = call_own_init},
    {SLOT(own_steps), ROWS(MANY), .bound = 1e-5, .make = make_own_steps, .call = call_own_steps},
    {SLOT(own_steps_backward), ROWS(FEW), .bound = 5e-5, .make = make_own_backward,
     .call = call_own_backward},
    {SLOT(row_lengths), ROWS(MANY), .bound = 1e-12, .make = make_lengths, .call = call_lengths},
    {SLOT(token_attention), ROWS(MANY), .bound = 5e-6, .make = make_token_attention,
     .call = call_token_attention},
    {SLOT(recall_errors), ROWS(MANY), .bound = 1e-6, .make = make_recall, .call = call_recall},
    {SLOT(exchange_rows), ROWS(MANY), .bound = 0.0, .make = make_exchange, .call = call_exchange},
    {0},
};
