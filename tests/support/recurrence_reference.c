#include "tests/support/arrays.h"
#include "tests/support/recurrence_reference.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "harness/base/memory.h"

static double inner(size_t n, const double *x, const double *y) {
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

static void step(const fl_reference_stream *s, size_t t, double *state) {
    size_t dk = s->key_dim;
    const double *key = s->key + t * dk;
    const double *read = s->transition.erase == FL_ERASE_DIRECTIONS ? s->erase_read + t * dk : key;
    const double *removed = s->transition.erase == FL_ERASE_DIRECTIONS ? s->erase_write + t * dk : key;
    double strength = s->transition.erase == FL_ERASE_NONE ? 0.0 : s->erase_strength[t];
    double write = s->write == NULL ? 1.0 : s->write[t];
    for (size_t v = 0; v < s->value_dim; v++) {
        double *row = state + v * dk;
        for (size_t i = 0; i < dk; i++) {
            if (s->transition.decay == FL_DECAY_SCALAR) row[i] *= exp(s->log_decay[t]);
            if (s->transition.decay == FL_DECAY_CHANNEL) row[i] *= exp(s->log_decay[t * dk + i]);
        }
        double erased = strength * inner(dk, row, read), put = write * s->value[t * s->value_dim + v];
        for (size_t i = 0; i < dk; i++) row[i] += put * key[i] - erased * removed[i];
    }
}

void fl_reference_recurrence(const fl_reference_stream *s, double *state, double *output, double *norm) {
    size_t size = s->value_dim * s->key_dim;
    for (size_t t = 0; t < s->steps; t++) {
        step(s, t, state);
        for (size_t v = 0; output != NULL && v < s->value_dim; v++) {
            output[t * s->value_dim + v] =
                inner(s->key_dim, state + v * s->key_dim, s->query + t * s->key_dim);
        }
        if (norm != NULL) norm[t] = sqrt(inner(size, state, state));
    }
}

static double *doubles(size_t count) {
    double *block = NULL;
    if (FL_ALLOCATE(&block, count, NULL) != FL_OK) return NULL;
    return block;
}

static float *narrow(double *values, size_t count) {
    float *block = NULL;
    if (FL_ALLOCATE(&block, count, NULL) != FL_OK) return NULL;
    for (size_t i = 0; i < count; i++) {
        block[i] = (float)values[i];
        values[i] = (double)block[i]; /* both sides see the same number */
    }
    return block;
}

static void fill(fl_random *random, double *x, size_t count, double scale) {
    for (size_t i = 0; i < count; i++) x[i] = scale * fl_random_normal(random);
}

static void fill_rows(fl_random *random, double *x, size_t rows, size_t dim, double scale, bool unit) {
    fill(random, x, rows * dim, scale);
    for (size_t r = 0; unit && r < rows; r++) {
        double length = sqrt(inner(dim, x + r * dim, x + r * dim));
        for (size_t i = 0; i < dim; i++) x[r * dim + i] *= scale / length;
    }
}

static double random_log_decay(fl_random *random, fl_case_kind kind) {
    static const double sharp[] = {-INFINITY, 0.0, -13.8155, -69.0776, -1e-4, -0.3};
    switch (kind) {
    case FL_CASE_SHARP:
        return sharp[fl_random_below(random, 6)];
    case FL_CASE_RESETS:
        return fl_random_below(random, 23) == 0 ? -INFINITY : 0.0;
    default:
        return -log1p(exp(-1.0 - fl_random_normal(random)));
    }
}

static double random_strength(fl_random *random, fl_case_kind kind) {
    if (kind == FL_CASE_SHARP) return (double)fl_random_below(random, 2);
    return 1.0 / (1.0 + exp(1.0 - fl_random_normal(random)));
}

/* Makes tokens 10 .. 59 of every 80 null writes. */
static void silence(fl_reference_stream *s) {
    size_t width =
        s->transition.decay == FL_DECAY_CHANNEL ? s->key_dim : s->transition.decay == FL_DECAY_SCALAR;
    for (size_t t = 0; t < s->steps; t++) {
        if (t % 80 < 10 || t % 80 >= 60) continue;
        memset(s->key + t * s->key_dim, 0, s->key_dim * sizeof(double));
        for (size_t i = 0; i < width; i++) s->log_decay[t * width + i] = 0.0;
        if (s->erase_strength != NULL) s->erase_strength[t] = 0.0;
    }
}

static void fill_stream(fl_reference_stream *s, fl_random *random, fl_case_kind kind) {
    size_t keys = s->steps * s->key_dim;
    bool erases = s->transition.erase != FL_ERASE_NONE;
    double size = kind == FL_CASE_TINY ? 1e-6 : kind == FL_CASE_HUGE ? 1e4 : 1.0;
    s->query = doubles(keys);
    s->key = doubles(keys);
    s->value = doubles(s->steps * s->value_dim);
    s->write = doubles(s->steps);
    fill_rows(random, s->query, s->steps, s->key_dim, 1.0, true);
    fill_rows(random, s->key, s->steps, s->key_dim, erases && kind == FL_CASE_HUGE ? 1.0 : size, erases);
    fill(random, s->value, s->steps * s->value_dim, size);
    for (size_t t = 0; t < s->steps; t++) s->write[t] = random_strength(random, kind);
    size_t width =
        s->transition.decay == FL_DECAY_CHANNEL ? s->key_dim : s->transition.decay == FL_DECAY_SCALAR;
    if (width > 0) {
        s->log_decay = doubles(s->steps * width);
        for (size_t i = 0; i < s->steps * width; i++) s->log_decay[i] = random_log_decay(random, kind);
    }
    if (erases) {
        s->erase_strength = doubles(s->steps);
        for (size_t t = 0; t < s->steps; t++) s->erase_strength[t] = random_strength(random, kind);
    }
    if (s->transition.erase == FL_ERASE_DIRECTIONS) {
        s->erase_read = doubles(keys);
        s->erase_write = doubles(keys);
        fill_rows(random, s->erase_read, s->steps, s->key_dim, 1.0, true);
        /* x near r, so that the transition does not blow up. */
        fill_rows(random, s->erase_write, s->steps, s->key_dim, 0.1, true);
        for (size_t i = 0; i < keys; i++) s->erase_write[i] += s->erase_read[i];
    }
    if (kind == FL_CASE_NULL_RUNS) silence(s);
}

/* The heads' arrays of one member, side by side in float32. */
static const float *gather(fl_recurrence_case *c, size_t member_offset, size_t count) {
    size_t heads = c->call.heads;
    float *block = NULL;
    if (FL_ALLOCATE(&block, heads * count, NULL) != FL_OK) return NULL;
    for (size_t h = 0; h < heads; h++) {
        double *values = NULL;
        memcpy(&values, (char *)&c->streams[h] + member_offset, sizeof values);
        if (values == NULL) {
            fl_memory_free(block);
            return NULL;
        }
        float *part = narrow(values, count);
        memcpy(block + h * count, part, count * sizeof *block);
        fl_memory_free(part);
    }
    return block;
}

void fl_case_create(fl_recurrence_case *c, fl_random *random, fl_transition transition, fl_case_kind kind,
                    size_t heads, size_t steps, size_t key_dim, size_t value_dim) {
    memset(c, 0, sizeof *c);
    c->call = (fl_recurrence_call){
        .transition = transition, .heads = heads, .steps = steps, .key_dim = key_dim, .value_dim = value_dim};
    size_t state = heads * value_dim * key_dim, outputs = heads * steps * value_dim;
    if (FL_ALLOCATE(&c->streams, heads, NULL) != FL_OK) return;
    for (size_t h = 0; h < heads; h++) {
        c->streams[h] = (fl_reference_stream){
            .transition = transition, .steps = steps, .key_dim = key_dim, .value_dim = value_dim};
        fill_stream(&c->streams[h], random, kind);
    }
    size_t keys = steps * key_dim, width = transition.decay == FL_DECAY_CHANNEL ? key_dim : 1;
    c->call.inputs = (fl_recurrence_inputs){
        .query = fl_test_array(gather(c, offsetof(fl_reference_stream, query), keys)),
        .key = fl_test_array(gather(c, offsetof(fl_reference_stream, key), keys)),
        .value = fl_test_array(gather(c, offsetof(fl_reference_stream, value), steps * value_dim)),
        .log_decay = fl_test_array(gather(c, offsetof(fl_reference_stream, log_decay), steps * width)),
        .erase_strength = fl_test_array(gather(c, offsetof(fl_reference_stream, erase_strength), steps)),
        .erase_read = fl_test_array(gather(c, offsetof(fl_reference_stream, erase_read), keys)),
        .erase_write = fl_test_array(gather(c, offsetof(fl_reference_stream, erase_write), keys)),
        .write = fl_test_array(gather(c, offsetof(fl_reference_stream, write), steps))};
    c->state = doubles(state);
    fill(random, c->state, state, kind == FL_CASE_TINY ? 1e-6 : 1.0);
    c->entry_state = narrow(c->state, state);
    c->call.state = fl_test_array(narrow(c->state, state));
    c->output = doubles(outputs);
    c->norm = doubles(heads * steps);
    c->call.output = fl_test_array(fl_test_block(outputs, sizeof(float)));
}

void fl_case_expect(fl_recurrence_case *c) {
    const fl_recurrence_call *call = &c->call;
    for (size_t h = 0; h < call->heads; h++) {
        fl_reference_recurrence(&c->streams[h], c->state + h * call->value_dim * call->key_dim,
                                c->output + h * call->steps * call->value_dim, c->norm + h * call->steps);
    }
}

void fl_case_rewind(fl_recurrence_case *c) {
    memcpy(fl_test_floats(c->call.state), c->entry_state,
           c->call.heads * c->call.value_dim * c->call.key_dim * sizeof(float));
}

void fl_case_destroy(fl_recurrence_case *c) {
    for (size_t h = 0; h < c->call.heads; h++) {
        fl_reference_stream *s = &c->streams[h];
        double *const blocks[] = {s->query,          s->key,        s->value,       s->log_decay,
                                  s->erase_strength, s->erase_read, s->erase_write, s->write};
        for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fl_memory_free(blocks[i]);
    }
    const fl_recurrence_inputs *in = &c->call.inputs;
    const float *const arrays[] = {fl_test_floats(in->query),          fl_test_floats(in->key),
                                   fl_test_floats(in->value),          fl_test_floats(in->log_decay),
                                   fl_test_floats(in->erase_strength), fl_test_floats(in->erase_read),
                                   fl_test_floats(in->erase_write),    fl_test_floats(in->write)};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) fl_memory_free((void *)(uintptr_t)arrays[i]);
    fl_memory_free(c->streams);
    fl_memory_free(c->state);
    fl_memory_free(c->output);
    fl_memory_free(c->norm);
    fl_memory_free(c->entry_state);
    fl_memory_free(fl_test_floats(c->call.state));
    fl_memory_free(fl_test_floats(c->call.output));
}
