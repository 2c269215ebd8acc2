#include "tests/support/arrays.h"
#include "tests/support/prepare_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "attn_variants/write_layout.h"
#include "harness/base/memory.h"
#include "harness/base/random.h"
#include "tests/support/mixer_case.h"

enum { HEAD_DIM = 6, HEADS = 2, HEAD = 1, MAX_WIDTH = HEAD_DIM * FL_RULE_MAX_MICRO_STEPS };

typedef struct prepare_world {
    const fl_rule *rule;
    fl_mixer_case mixer_case; /* only for its variant and mechanism */
    float query[HEAD_DIM], key[HEAD_DIM], value[HEAD_DIM], gate[HEAD_DIM], beta;
    float *parameters[FL_RULE_MAX_PARAMETERS];
    float factors[FL_RULE_MAX_FACTORS][MAX_WIDTH];
    size_t factor_width[FL_RULE_MAX_FACTORS];
    fl_write_layout layout;
    size_t key_dim, floats;
    float *output, *weights; /* all outputs in one row: query, then the parts; weights: dLoss/d(output) */
} prepare_world;

/* The outputs' pointers into one block; the layout is that of one head. */
static fl_rule_output outputs_in(const prepare_world *w, float *block) {
    fl_write_rows rows = fl_write_rows_in(&w->layout, 1, fl_test_array(block + w->key_dim));
    fl_rule_output output = fl_write_row_output(&w->layout, &rows, 0, 0);
    output.query = block;
    if (w->rule->bonus) output.bonus = block + w->key_dim + w->layout.row_floats;
    return output;
}

static fl_rule_input inputs_of(const prepare_world *w) {
    fl_rule_input input = {.head_dim = HEAD_DIM,
                           .layer = FL_CASE_LAYER,
                           .layers = FL_CASE_LAYERS,
                           .head = HEAD,
                           .heads = HEADS,
                           .position = 3,
                           .query = w->query,
                           .key = w->key,
                           .value = w->value,
                           .gate = w->rule->gate == FL_GATE_NONE ? NULL : w->gate,
                           .beta = w->mixer_case.variant->takes_beta ? w->beta : 0.0f,
                           .options = w->mixer_case.variant->rule_options,
                           .parameters = (const float *const *)w->parameters};
    for (size_t i = 0; i < FL_RULE_MAX_FACTORS; i++)
        input.factors[i] = w->factor_width[i] > 0 ? w->factors[i] : NULL;
    return input;
}

static double loss(const prepare_world *w) {
    fl_rule_input input = inputs_of(w);
    fl_rule_output output = outputs_in(w, w->output);
    w->rule->prepare(&input, &output);
    double sum = 0.0;
    for (size_t i = 0; i < w->floats; i++) sum += (double)w->weights[i] * w->output[i];
    return sum;
}

static double slope(const prepare_world *w, float *x) {
    static const double step = 0.01;
    float kept = *x, at[4] = {(float)(kept - 2 * step), (float)(kept - step), (float)(kept + step),
                              (float)(kept + 2 * step)};
    double of[4];
    for (size_t i = 0; i < 4; i++) {
        *x = at[i];
        of[i] = loss(w);
    }
    *x = kept;
    return (8.0 * (of[2] - of[1]) / ((double)at[2] - at[1]) * 2.0 * step -
            (of[3] - of[0]) / ((double)at[3] - at[0]) * 4.0 * step) /
           (12.0 * step);
}

static double compare_kind(const prepare_world *w, size_t count, float *x, const float *gradient) {
    double largest = 1e-6, difference = 0.0;
    for (size_t i = 0; i < count; i++) {
        difference = fmax(difference, fabs(slope(w, &x[i]) - gradient[i]));
        largest = fmax(largest, fabs(gradient[i]));
    }
    return difference / largest;
}

static void fill(fl_random *random, size_t count, double scale, double shift, float *x) {
    for (size_t i = 0; i < count; i++) x[i] = (float)(shift + scale * fl_random_normal(random));
}

static void open_world(prepare_world *w, const fl_rule *rule, const char *yaml, uint64_t seed) {
    fl_error error;
    fl_random random;
    fl_random_seed(&random, seed, 0);
    memset(w, 0, sizeof *w);
    w->rule = rule;
    fl_mixer_case_open(&w->mixer_case, rule, yaml, HEADS, 1, HEAD_DIM, 1, 1.0, seed);
    const fl_variant *variant = w->mixer_case.variant;
    for (size_t i = 0; i < rule->parameter_count; i++) {
        w->parameters[i] =
            fl_mechanism_find(w->mixer_case.mechanism, FL_CASE_LAYER, rule->parameters[i].name);
    }
    /* Away from the corners of relu and from gates that saturate. */
    fill(&random, HEAD_DIM, 1.0, 0.1, w->query);
    fill(&random, HEAD_DIM, 1.0, 0.1, w->key);
    fill(&random, HEAD_DIM, 1.0, 0.0, w->value);
    fill(&random, HEAD_DIM, 0.1, -0.5, w->gate);
    w->beta = 0.4f;
    w->key_dim = fl_rule_key_dim(rule, HEAD_DIM, variant->rule_options);
    w->layout = fl_write_layout_of(rule, variant, 1, fl_rule_micro_steps(rule, variant->rule_options),
                                   w->key_dim, HEAD_DIM);
    for (size_t i = 0; i < rule->factor_count; i++) {
        w->factor_width[i] = fl_rule_factor_width(rule, i, HEAD_DIM, variant->rule_options);
        fill(&random, w->factor_width[i], 0.1, 0.5, w->factors[i]);
    }
    w->floats = w->key_dim + w->layout.row_floats + (rule->bonus ? HEAD_DIM : 0);
    assert_int_equal(FL_ALLOCATE(&w->output, w->floats, &error), FL_OK);
    assert_int_equal(FL_ALLOCATE(&w->weights, w->floats, &error), FL_OK);
    fill(&random, w->floats, 1.0, 0.0, w->weights);
}

double fl_prepare_check(const fl_rule *rule, const char *yaml, uint64_t seed) {
    prepare_world w;
    fl_error error;
    open_world(&w, rule, yaml, seed);
    const fl_mechanism *mechanism = w.mixer_case.mechanism;
    float query[HEAD_DIM], key[HEAD_DIM], value[HEAD_DIM], gate[HEAD_DIM], beta = 0.0f, *block = NULL;
    float *parameters[FL_RULE_MAX_PARAMETERS] = {NULL};
    assert_int_equal(FL_ALLOCATE(&block, mechanism->layer_floats, &error), FL_OK);
    for (size_t i = 0; i < rule->parameter_count; i++) {
        const fl_mechanism_tensor *tensor = fl_mechanism_find_tensor(mechanism, rule->parameters[i].name);
        if (tensor != NULL) parameters[i] = block + tensor->offset;
    }
    bool takes_beta = w.mixer_case.variant->takes_beta;
    float factors[FL_RULE_MAX_FACTORS][MAX_WIDTH];
    fl_rule_input input = inputs_of(&w);
    fl_rule_output_gradient gradient = outputs_in(&w, w.weights);
    fl_rule_input_gradient out = {.query = query,
                                  .key = key,
                                  .value = value,
                                  .gate = rule->gate == FL_GATE_NONE ? NULL : gate,
                                  .beta = takes_beta ? &beta : NULL,
                                  .parameters = parameters};
    for (size_t i = 0; i < FL_RULE_MAX_FACTORS; i++)
        out.factors[i] = w.factor_width[i] > 0 ? factors[i] : NULL;
    rule->prepare_backward(&input, &gradient, &out);
    double worst = compare_kind(&w, HEAD_DIM, w.query, query);
    worst = fmax(worst, compare_kind(&w, HEAD_DIM, w.key, key));
    worst = fmax(worst, compare_kind(&w, HEAD_DIM, w.value, value));
    if (rule->gate != FL_GATE_NONE) {
        worst = fmax(worst, compare_kind(&w, rule->gate == FL_GATE_SCALAR ? 1 : HEAD_DIM, w.gate, gate));
    }
    if (takes_beta) worst = fmax(worst, compare_kind(&w, 1, &w.beta, &beta));
    for (size_t i = 0; i < FL_RULE_MAX_FACTORS; i++)
        worst = fmax(worst, compare_kind(&w, w.factor_width[i], w.factors[i], factors[i]));
    for (size_t i = 0; i < rule->parameter_count; i++) {
        if (parameters[i] == NULL) continue;
        size_t count = fl_mechanism_find_tensor(mechanism, rule->parameters[i].name)->count;
        worst = fmax(worst, compare_kind(&w, count, w.parameters[i], parameters[i]));
    }
    /* Parameter gradients may be left out; the rest must not change. */
    float again[HEAD_DIM];
    out.query = again;
    out.parameters = NULL;
    rule->prepare_backward(&input, &gradient, &out);
    assert_memory_equal(again, query, sizeof again);
    fl_memory_free(block);
    fl_memory_free(w.output);
    fl_memory_free(w.weights);
    fl_mixer_case_close(&w.mixer_case);
    return worst;
}
