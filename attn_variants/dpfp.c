#include <stddef.h>
#include <string.h>

#include "attn_variants/attn_variant.h"

typedef struct dpfp_options {
    size_t shifts;
} dpfp_options;

static const fl_option options[] = {
    {.key = "shifts",
     .type = FL_OPTION_SIZE,
     .offset = offsetof(dpfp_options, shifts),
     .default_text = "3",
     .minimum = 1,
     .maximum = 8,
     .help = "nu: products with so many shifted copies, 2 nu D features"},
};

static size_t shifts(const void *chosen) {
    return ((const dpfp_options *)chosen)->shifts;
}

static size_t key_dim(size_t head_dim, const void *chosen) {
    return 2 * shifts(chosen) * head_dim;
}

/* [relu(x), relu(-x)] */
static void split(size_t n, const float *x, float *halves) {
    for (size_t i = 0; i < n; i++) {
        halves[i] = x[i] > 0.0f ? x[i] : 0.0f;
        halves[n + i] = x[i] < 0.0f ? -x[i] : 0.0f;
    }
}

/* Feature i of shift j: halves[i] halves[i - j], round the end. */
static void map(size_t n, size_t count, const float *x, float *features) {
    float halves[2 * FL_RULE_MAX_HEAD_DIM];
    split(n, x, halves);
    for (size_t shift = 1; shift <= count; shift++) {
        for (size_t i = 0; i < 2 * n; i++)
            *features++ = halves[i] * halves[(i + 2 * n - shift % (2 * n)) % (2 * n)];
    }
}

static void map_backward(size_t n, size_t count, const float *x, const float *gradient, float *gradient_x) {
    float halves[2 * FL_RULE_MAX_HEAD_DIM], of_halves[2 * FL_RULE_MAX_HEAD_DIM] = {0};
    split(n, x, halves);
    for (size_t shift = 1; shift <= count; shift++) {
        for (size_t i = 0; i < 2 * n; i++, gradient++) {
            size_t other = (i + 2 * n - shift % (2 * n)) % (2 * n);
            of_halves[i] += *gradient * halves[other];
            of_halves[other] += *gradient * halves[i];
        }
    }
    for (size_t i = 0; i < n; i++)
        gradient_x[i] = x[i] > 0.0f ? of_halves[i] : x[i] < 0.0f ? -of_halves[n + i] : 0.0f;
}

static void prepare(const fl_rule_input *input, fl_rule_output *output) {
    size_t n = input->head_dim, count = shifts(input->options);
    map(n, count, input->query, output->query);
    map(n, count, input->key, output->key);
    memcpy(output->value, input->value, n * sizeof(float));
}

static void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                             fl_rule_input_gradient *out) {
    size_t n = input->head_dim, count = shifts(input->options);
    map_backward(n, count, input->query, gradient->query, out->query);
    map_backward(n, count, input->key, gradient->key, out->key);
    memcpy(out->value, gradient->value, n * sizeof(float));
}

const fl_rule fl_rule_dpfp = {
    .abi = FL_RULE_ABI,
    .name = "dpfp",
    .summary = "kernel attention with a projection that has no parameters: products of shifted halves",
    .equation = "S += v phi(k)^T, phi(x)_ij = z_i z_(i - j), z = [relu(x), relu(-x)], j = 1 .. nu;  y = S "
                "phi(q) / z.phi(q)",
    .source = "Schlag, Irie and Schmidhuber 2021, arXiv 2102.11174",
    .differs = "z is the paper's; one library's map takes [relu(x), -relu(x)] instead, whose features may be "
               "negative.",
    .transition = {FL_DECAY_NONE, FL_ERASE_NONE},
    .normaliser = true,
    .shared_normaliser = true,
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_bytes = sizeof(dpfp_options),
    .key_dim = key_dim,
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};
