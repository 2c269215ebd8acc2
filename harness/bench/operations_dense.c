/* Products, norms, rotations and activations. */
#include <math.h>

#include "harness/bench/operation_list.h"

#define SLOT(name_) .name = #name_, .slot = offsetof(fl_compute_ops, name_)

static bool coin(fl_trial *trial) {
    return fl_random_below(&trial->random, 2) == 1;
}

/* --- products with weights --- */

static const fl_dtype weight_types[] = {FL_DTYPE_F32, FL_DTYPE_BF16, FL_DTYPE_Q8_0};

typedef struct {
    size_t tokens, rows, columns;
    fl_weight *weight;
    double *values; /* [rows][columns] */
    fl_trial_input bias, input, gradient;
    fl_array output;
    bool accumulate;
} linear_case;

static fl_status make_weight(fl_trial *trial, linear_case **out, fl_error *error) {
    linear_case *c = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = *out = c;
    c->tokens = trial->sizes[0];
    c->rows = trial->sizes[1];
    c->columns = 32 * trial->sizes[2];
    FL_TRY(fl_trial_weight(trial, weight_types[trial->sizes[3] - 1], c->rows, c->columns, &c->weight,
                           &c->values, error));
    trial->flops = 2.0 * (double)c->tokens * (double)c->rows * (double)c->columns;
    return FL_OK;
}

static fl_status make_linear(fl_trial *trial, fl_error *error) {
    linear_case *c = NULL;
    double *expected = NULL;
    FL_TRY(make_weight(trial, &c, error));
    FL_TRY(fl_trial_normals(trial, c->tokens * c->columns, 1.0, &c->input, error));
    if (coin(trial)) FL_TRY(fl_trial_normals(trial, c->rows, 1.0, &c->bias, error));
    FL_TRY(fl_trial_array(trial, c->tokens * c->rows, FL_FLOAT32, &c->output, error));
    FL_TRY(fl_trial_expect(trial, "output", c->output, c->tokens * c->rows, &expected, error));
    for (size_t t = 0; t < c->tokens; t++) {
        for (size_t row = 0; row < c->rows; row++) {
            double sum = c->bias.wide != NULL ? c->bias.wide[row] : 0.0;
            for (size_t i = 0; i < c->columns; i++)
                sum += c->input.wide[t * c->columns + i] * c->values[row * c->columns + i];
            expected[t * c->rows + row] = sum;
        }
    }
    return FL_OK;
}

static fl_status call_linear(fl_trial *trial, fl_error *error) {
    const linear_case *c = trial->context;
    (void)error;
    trial->compute->ops->linear(trial->compute, c->weight, c->bias.array, c->tokens, c->input.array,
                                c->output);
    return FL_OK;
}

static fl_status make_linear_backward(fl_trial *trial, fl_error *error) {
    linear_case *c = NULL;
    double *expected = NULL;
    FL_TRY(make_weight(trial, &c, error));
    c->accumulate = coin(trial);
    FL_TRY(fl_trial_normals(trial, c->tokens * c->rows, 1.0, &c->gradient, error));
    FL_TRY(fl_trial_normals(trial, c->tokens * c->columns, 1.0, &c->input, error));
    FL_TRY(fl_trial_expect(trial, "gradient_input", c->input.array, c->input.count, &expected, error));
    for (size_t i = 0; i < c->input.count; i++) expected[i] = c->accumulate ? c->input.wide[i] : 0.0;
    for (size_t t = 0; t < c->tokens; t++) {
        for (size_t row = 0; row < c->rows; row++) {
            const double along = c->gradient.wide[t * c->rows + row];
            for (size_t i = 0; i < c->columns; i++)
                expected[t * c->columns + i] += along * c->values[row * c->columns + i];
        }
    }
    return FL_OK;
}

static fl_status call_linear_backward(fl_trial *trial, fl_error *error) {
    const linear_case *c = trial->context;
    (void)error;
    trial->compute->ops->linear_backward(trial->compute, c->weight, c->tokens, c->gradient.array,
                                         c->input.array, c->accumulate);
    return FL_OK;
}

typedef struct {
    linear_case *of;
    int32_t *ids;
    fl_array ids_array, output;
} embed_case;

static fl_status make_embed(fl_trial *trial, fl_error *error) {
    embed_case *c = NULL;
    double *expected = NULL;
    linear_case *of = NULL;
    FL_TRY(make_weight(trial, &of, error));
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = c;
    trial->flops = 0.0;
    c->of = of;
    FL_TRY(fl_trial_block(trial, of->tokens, sizeof *c->ids, &c->ids, error));
    FL_TRY(fl_trial_array(trial, of->tokens * of->columns, FL_FLOAT32, &c->output, error));
    FL_TRY(fl_trial_expect(trial, "output", c->output, of->tokens * of->columns, &expected, error));
    for (size_t t = 0; t < of->tokens; t++) {
        c->ids[t] = (int32_t)(t == 0 ? of->rows - 1 : fl_random_below(&trial->random, of->rows));
        for (size_t i = 0; i < of->columns; i++)
            expected[t * of->columns + i] = of->values[(size_t)c->ids[t] * of->columns + i];
    }
    return fl_trial_integers(trial, of->tokens, c->ids, &c->ids_array, error);
}

static fl_status call_embed(fl_trial *trial, fl_error *error) {
    const embed_case *c = trial->context;
    (void)error;
    trial->compute->ops->embed(trial->compute, c->of->weight, c->of->tokens, c->ids_array, c->output);
    return FL_OK;
}

/* --- plain products --- */

typedef struct {
    bool transpose_a, transpose_b;
    size_t m, n, k;
    float alpha, beta;
    fl_trial_input a, b, c;
} matmul_case;

static fl_status make_matmul(fl_trial *trial, fl_error *error) {
    matmul_case *c = NULL;
    double *expected = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = c;
    *c = (matmul_case){.transpose_a = coin(trial),
                       .transpose_b = coin(trial),
                       .m = trial->sizes[0],
                       .n = trial->sizes[1],
                       .k = trial->sizes[2],
                       .alpha = 0.5f,
                       .beta = coin(trial) ? 2.0f : 0.0f};
    FL_TRY(fl_trial_normals(trial, c->m * c->k, 1.0, &c->a, error));
    FL_TRY(fl_trial_normals(trial, c->k * c->n, 1.0, &c->b, error));
    FL_TRY(fl_trial_normals(trial, c->m * c->n, 1.0, &c->c, error));
    FL_TRY(fl_trial_expect(trial, "c", c->c.array, c->c.count, &expected, error));
    for (size_t i = 0; i < c->m; i++) {
        for (size_t j = 0; j < c->n; j++) {
            double sum = 0.0;
            for (size_t x = 0; x < c->k; x++) {
                sum += c->a.wide[c->transpose_a ? x * c->m + i : i * c->k + x] *
                       c->b.wide[c->transpose_b ? j * c->k + x : x * c->n + j];
            }
            expected[i * c->n + j] = (double)c->alpha * sum + (double)c->beta * c->c.wide[i * c->n + j];
        }
    }
    trial->flops = 2.0 * (double)c->m * (double)c->n * (double)c->k;
    return FL_OK;
}

static fl_status call_matmul(fl_trial *trial, fl_error *error) {
    const matmul_case *c = trial->context;
    (void)error;
    trial->compute->ops->matmul(trial->compute, c->transpose_a, c->transpose_b, c->m, c->n, c->k, c->alpha,
                                c->a.array, c->transpose_a ? c->m : c->k, c->b.array,
                                c->transpose_b ? c->k : c->n, c->beta, c->c.array, c->n);
    return FL_OK;
}

/* --- norms --- */

typedef struct {
    size_t rows, columns;
    double epsilon;
    fl_trial_input input, weight, gradient, result;
    bool accumulate;
} norm_case;

/* sum of gradient . normed input */
static double norm_loss(const void *context) {
    const norm_case *c = context;
    double loss = 0.0;
    for (size_t row = 0; row < c->rows; row++) {
        const double *x = c->input.wide + row * c->columns;
        double square = 0.0;
        for (size_t i = 0; i < c->columns; i++) square += x[i] * x[i];
        const double scale = 1.0 / sqrt(square / (double)c->columns + c->epsilon);
        for (size_t i = 0; i < c->columns; i++)
            loss += c->gradient.wide[row * c->columns + i] * x[i] * scale * c->weight.wide[i];
    }
    return loss;
}

static fl_status make_norm_case(fl_trial *trial, norm_case **out, fl_error *error) {
    norm_case *c = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = *out = c;
    c->rows = trial->sizes[0];
    c->columns = trial->sizes[1];
    c->epsilon = 1e-5;
    FL_TRY(fl_trial_normals(trial, c->rows * c->columns, 2.0, &c->input, error));
    FL_TRY(fl_trial_normals(trial, c->columns, 1.0, &c->weight, error));
    FL_TRY(fl_trial_normals(trial, c->rows * c->columns, 1.0, &c->gradient, error));
    trial->bytes = 2.0 * sizeof(float) * (double)(c->rows * c->columns);
    return fl_trial_normals(trial, c->rows * c->columns, 1.0, &c->result, error);
}

static fl_status make_norm(fl_trial *trial, fl_error *error) {
    norm_case *c = NULL;
    double *expected = NULL;
    FL_TRY(make_norm_case(trial, &c, error));
    FL_TRY(fl_trial_expect(trial, "output", c->result.array, c->result.count, &expected, error));
    for (size_t row = 0; row < c->rows; row++) {
        const double *x = c->input.wide + row * c->columns;
        double square = 0.0;
        for (size_t i = 0; i < c->columns; i++) square += x[i] * x[i];
        for (size_t i = 0; i < c->columns; i++) {
            expected[row * c->columns + i] =
                x[i] / sqrt(square / (double)c->columns + c->epsilon) * c->weight.wide[i];
        }
    }
    return FL_OK;
}

static fl_status call_norm(fl_trial *trial, fl_error *error) {
    const norm_case *c = trial->context;
    (void)error;
    trial->compute->ops->rms_norm(trial->compute, c->rows, c->columns, c->input.array, c->weight.array,
                                  c->epsilon, c->result.array);
    return FL_OK;
}

static fl_status make_norm_backward(fl_trial *trial, fl_error *error) {
    norm_case *c = NULL;
    FL_TRY(make_norm_case(trial, &c, error));
    c->accumulate = coin(trial);
    FL_TRY(fl_trial_expect_gradient(trial, "gradient_input", c->result.array, c->input.count, c->input.wide,
                                    norm_loss, c, c->accumulate ? c->result.wide : NULL, error));
    trial->expected[0].scale = 1e-2; /* of one column it cancels */
    return FL_OK;
}

static fl_status call_norm_backward(fl_trial *trial, fl_error *error) {
    const norm_case *c = trial->context;
    (void)error;
    trial->compute->ops->rms_norm_backward(trial->compute, c->rows, c->columns, c->input.array,
                                           c->weight.array, c->epsilon, c->gradient.array, c->result.array,
                                           c->accumulate);
    return FL_OK;
}

/* --- rotation --- */

typedef struct {
    size_t tokens, heads, head_dim, rotary_dim, first_position;
    int direction;
    float attention_factor;
    fl_trial_input x, inverse_frequencies;
} rope_case;

/* Angles are float32, as Hugging Face has them. */
static void rotate(const rope_case *c, size_t token, double *x) {
    const size_t pairs = c->rotary_dim / 2;
    for (size_t i = 0; i < pairs; i++) {
        const float angle = (float)(c->first_position + token) * (float)c->inverse_frequencies.wide[i];
        const double cosine = cos((double)angle) * (double)c->attention_factor;
        const double sine = c->direction * sin((double)angle) * (double)c->attention_factor;
        const double low = x[i], high = x[i + pairs];
        x[i] = low * cosine - high * sine;
        x[i + pairs] = high * cosine + low * sine;
    }
}

static fl_status make_rope(fl_trial *trial, fl_error *error) {
    rope_case *c = NULL;
    double *expected = NULL, *frequencies = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = c;
    *c = (rope_case){.tokens = trial->sizes[0],
                     .heads = trial->sizes[1],
                     .head_dim = 2 * trial->sizes[2],
                     .first_position = (size_t)fl_random_below(&trial->random, 5000),
                     .direction = coin(trial) ? 1 : -1,
                     .attention_factor = coin(trial) ? 1.0f : 1.25f};
    c->rotary_dim = c->head_dim % 4 == 0 && coin(trial) ? c->head_dim / 2 : c->head_dim;
    FL_TRY(fl_trial_block(trial, c->rotary_dim / 2, sizeof *frequencies, &frequencies, error));
    for (size_t i = 0; i < c->rotary_dim / 2; i++)
        frequencies[i] = pow(10000.0, -2.0 * (double)i / (double)c->rotary_dim);
    FL_TRY(fl_trial_upload(trial, c->rotary_dim / 2, frequencies, &c->inverse_frequencies, error));
    FL_TRY(fl_trial_normals(trial, c->tokens * c->heads * c->head_dim, 1.0, &c->x, error));
    FL_TRY(fl_trial_expect(trial, "x", c->x.array, c->x.count, &expected, error));
    for (size_t i = 0; i < c->x.count; i++) expected[i] = c->x.wide[i];
    for (size_t row = 0; row < c->tokens * c->heads; row++)
        rotate(c, row / c->heads, expected + row * c->head_dim);
    trial->bytes = 2.0 * sizeof(float) * (double)c->x.count;
    return FL_OK;
}

static fl_status call_rope(fl_trial *trial, fl_error *error) {
    const rope_case *c = trial->context;
    (void)error;
    trial->compute->ops->rope(trial->compute, c->tokens, c->heads, c->head_dim, c->first_position,
                              c->rotary_dim, c->inverse_frequencies.array, c->attention_factor, c->direction,
                              c->x.array);
    return FL_OK;
}

/* --- activations and sums --- */

typedef struct {
    fl_activation activation;
    size_t count;
    fl_trial_input gate, up, gradient;
    fl_array output, gradient_gate, gradient_up;
} gated_case;

static double activated(fl_activation activation, double x) {
    const double root = 0.7978845608028654; /* sqrt(2 / pi) */
    if (activation == FL_ACTIVATION_SILU) return x / (1.0 + exp(-x));
    if (activation == FL_ACTIVATION_GELU) return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
    return 0.5 * x * (1.0 + tanh(root * (x + 0.044715 * x * x * x)));
}

static double gated_loss(const void *context) {
    const gated_case *c = context;
    double loss = 0.0;
    for (size_t i = 0; i < c->count; i++)
        loss += c->gradient.wide[i] * activated(c->activation, c->gate.wide[i]) * c->up.wide[i];
    return loss;
}

static fl_status make_gated_case(fl_trial *trial, gated_case **out, fl_error *error) {
    gated_case *c = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = *out = c;
    c->count = trial->sizes[0];
    c->activation = (fl_activation)fl_random_below(&trial->random, 3);
    FL_TRY(fl_trial_normals(trial, c->count, 3.0, &c->gate, error));
    FL_TRY(fl_trial_normals(trial, c->count, 1.0, &c->up, error));
    trial->bytes = 3.0 * sizeof(float) * (double)c->count;
    return FL_OK;
}

static fl_status make_gated(fl_trial *trial, fl_error *error) {
    gated_case *c = NULL;
    double *expected = NULL;
    FL_TRY(make_gated_case(trial, &c, error));
    FL_TRY(fl_trial_array(trial, c->count, FL_FLOAT32, &c->output, error));
    FL_TRY(fl_trial_expect(trial, "output", c->output, c->count, &expected, error));
    for (size_t i = 0; i < c->count; i++)
        expected[i] = activated(c->activation, c->gate.wide[i]) * c->up.wide[i];
    return FL_OK;
}

static fl_status call_gated(fl_trial *trial, fl_error *error) {
    const gated_case *c = trial->context;
    (void)error;
    trial->compute->ops->gated_activation(trial->compute, c->activation, c->count, c->gate.array, c->up.array,
                                          c->output);
    return FL_OK;
}

static fl_status make_gated_backward(fl_trial *trial, fl_error *error) {
    gated_case *c = NULL;
    FL_TRY(make_gated_case(trial, &c, error));
    FL_TRY(fl_trial_normals(trial, c->count, 1.0, &c->gradient, error));
    FL_TRY(fl_trial_array(trial, c->count, FL_FLOAT32, &c->gradient_gate, error));
    FL_TRY(fl_trial_array(trial, c->count, FL_FLOAT32, &c->gradient_up, error));
    FL_TRY(fl_trial_expect_gradient(trial, "gradient_gate", c->gradient_gate, c->count, c->gate.wide,
                                    gated_loss, c, NULL, error));
    return fl_trial_expect_gradient(trial, "gradient_up", c->gradient_up, c->count, c->up.wide, gated_loss, c,
                                    NULL, error);
}

static fl_status call_gated_backward(fl_trial *trial, fl_error *error) {
    const gated_case *c = trial->context;
    (void)error;
    trial->compute->ops->gated_activation_backward(trial->compute, c->activation, c->count, c->gate.array,
                                                   c->up.array, c->gradient.array, c->gradient_gate,
                                                   c->gradient_up);
    return FL_OK;
}

typedef struct {
    fl_trial_input x, y;
} sum_case;

static fl_status make_sum(fl_trial *trial, fl_error *error) {
    sum_case *c = NULL;
    double *expected = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = c;
    FL_TRY(fl_trial_normals(trial, trial->sizes[0], 1.0, &c->x, error));
    FL_TRY(fl_trial_normals(trial, trial->sizes[0], 1.0, &c->y, error));
    FL_TRY(fl_trial_expect(trial, "x", c->x.array, c->x.count, &expected, error));
    for (size_t i = 0; i < c->x.count; i++) expected[i] = c->x.wide[i] + c->y.wide[i];
    trial->bytes = 3.0 * sizeof(float) * (double)c->x.count;
    return FL_OK;
}

static fl_status call_add(fl_trial *trial, fl_error *error) {
    const sum_case *c = trial->context;
    (void)error;
    trial->compute->ops->add(trial->compute, c->x.count, c->x.array, c->y.array);
    return FL_OK;
}

typedef struct {
    size_t tokens, heads, sources, width;
    fl_trial_input x, to;
} heads_case;

static fl_status make_add_heads(fl_trial *trial, fl_error *error) {
    heads_case *c = NULL;
    double *expected = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = c;
    *c = (heads_case){.tokens = trial->sizes[0],
                      .sources = trial->sizes[1],
                      .heads = trial->sizes[1] * trial->sizes[2],
                      .width = trial->sizes[3]};
    FL_TRY(fl_trial_normals(trial, c->tokens * c->heads * c->width, 1.0, &c->x, error));
    FL_TRY(fl_trial_normals(trial, c->tokens * c->sources * c->width, 1.0, &c->to, error));
    FL_TRY(fl_trial_expect(trial, "to", c->to.array, c->to.count, &expected, error));
    for (size_t i = 0; i < c->to.count; i++) expected[i] = c->to.wide[i];
    for (size_t row = 0; row < c->tokens * c->heads; row++) {
        const size_t source = row / c->heads * c->sources + row % c->heads / (c->heads / c->sources);
        for (size_t i = 0; i < c->width; i++)
            expected[source * c->width + i] += c->x.wide[row * c->width + i];
    }
    trial->bytes = sizeof(float) * (double)(c->x.count + 2 * c->to.count);
    return FL_OK;
}

static fl_status call_add_heads(fl_trial *trial, fl_error *error) {
    const heads_case *c = trial->context;
    (void)error;
    trial->compute->ops->add_heads(trial->compute, c->tokens, c->heads, c->sources, c->width, c->x.array,
                                   c->to.array);
    return FL_OK;
}

/* `columns` counts blocks of 32; `type` places in weight_types, from 1. */
#define WEIGHT                                                                                               \
    {"tokens", {1, 2, 5, 6, 65, 130}, 256}, {"rows", {1, 7, 64, 200}, 576}, {"columns", {1, 2, 7, 18}, 18},  \
    {                                                                                                        \
        "type", {1, 2, 3}, 1                                                                                 \
    }
#define COUNT .sizes = {{"count", {1, 7, 64, 1001, 40000}, 393216}}
#define NORM .sizes = {{"rows", {1, 2, 33, 90}, 512}, {"columns", {1, 7, 64, 577}, 576}}

const fl_operation fl_operations_dense[] = {
    {SLOT(linear), .sizes = {WEIGHT}, .bound = 5e-6, .make = make_linear, .call = call_linear},
    {SLOT(linear_backward), .sizes = {WEIGHT}, .bound = 5e-6, .make = make_linear_backward,
     .call = call_linear_backward},
    {SLOT(embed), .sizes = {WEIGHT}, .bound = 0.0, .make = make_embed, .call = call_embed},
    {SLOT(matmul),
     .sizes = {{"m", {1, 3, 64, 130}, 256}, {"n", {1, 5, 64, 100}, 256}, {"k", {1, 2, 65, 200}, 256}},
     .bound = 5e-6, .make = make_matmul, .call = call_matmul},
    {SLOT(rms_norm), NORM, .bound = 1e-6, .make = make_norm, .call = call_norm},
    {SLOT(rms_norm_backward), NORM, .bound = 2e-6, .make = make_norm_backward, .call = call_norm_backward},
    {SLOT(rope),
     .sizes = {{"tokens", {1, 2, 65}, 512}, {"heads", {1, 3, 9}, 9}, {"pairs", {1, 3, 32, 64}, 32}},
     .bound = 1e-6, .make = make_rope, .call = call_rope},
    {SLOT(gated_activation), COUNT, .bound = 2e-6, .make = make_gated, .call = call_gated},
    {SLOT(gated_activation_backward), COUNT, .bound = 5e-6, .make = make_gated_backward,
     .call = call_gated_backward},
    {SLOT(add), COUNT, .bound = 2e-7, .make = make_sum, .call = call_add},
    {SLOT(add_heads),
     .sizes = {{"tokens", {1, 2, 70}, 512},
               {"sources", {1, 3}, 3},
               {"heads a source", {1, 2, 3}, 3},
               {"width", {1, 7, 64}, 64}},
     .bound = 1e-6, .make = make_add_heads, .call = call_add_heads},
    {0},
};
