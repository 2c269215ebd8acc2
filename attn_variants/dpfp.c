#include "harness/compute/rule_functions.h"

typedef struct dpfp_options {
    size_t shifts;
} dpfp_options;

FL_RULE_FUNCTION size_t shifts(const void *chosen) {
    return ((const dpfp_options *)chosen)->shifts;
}

FL_RULE_FUNCTION size_t key_dim(size_t head_dim, const void *chosen) {
    return 2 * shifts(chosen) * head_dim;
}

/* [relu(x), relu(-x)] */
FL_RULE_FUNCTION void split(size_t n, const float *x, float *halves) {
    FL_EACH(i, n) {
        halves[i] = x[i] > 0.0f ? x[i] : 0.0f;
        halves[n + i] = x[i] < 0.0f ? -x[i] : 0.0f;
    }
    FL_JOIN();
}

/* Feature i of shift j: halves[i] halves[i - j], round the end. */
FL_RULE_FUNCTION void map(size_t n, size_t count, const float *x, float *features) {
    FL_VECTORS(halves, 2);
    split(n, x, halves);
    FL_ALL(shift, count) {
        FL_EACH(i, 2 * n)
        features[shift * 2 * n + i] = halves[i] * halves[(i + 2 * n - (shift + 1) % (2 * n)) % (2 * n)];
    }
    FL_JOIN();
}

/* A half is in the feature of its own place and, j places on, in that which takes it for its other factor;
 * the earlier place first. */
FL_RULE_FUNCTION void map_backward(size_t n, size_t count, const float *x, const float *gradient,
                                   float *gradient_x) {
    FL_VECTORS(halves, 2);
    FL_VECTORS(of_halves, 2);
    size_t width = 2 * n;
    split(n, x, halves);
    FL_EACH(i, width) {
        float sum = 0.0f;
        FL_ALL(j, count) {
            size_t shift = (j + 1) % width, before = (i + width - shift) % width, after = (i + shift) % width;
            const float *of_shift = gradient + j * width;
            float own = of_shift[i] * halves[before], other = of_shift[after] * halves[after];
            sum += after < i ? other : own;
            sum += after < i ? own : other;
        }
        of_halves[i] = sum;
    }
    FL_JOIN();
    FL_EACH(i, n) gradient_x[i] = x[i] > 0.0f ? of_halves[i] : x[i] < 0.0f ? -of_halves[n + i] : 0.0f;
    FL_JOIN();
}

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    size_t n = input->head_dim, count = shifts(input->options);
    map(n, count, input->query, output->query);
    map(n, count, input->key, output->key);
    fl_rule_copy(n, input->value, output->value);
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    size_t n = input->head_dim, count = shifts(input->options);
    map_backward(n, count, input->query, gradient->query, out->query);
    map_backward(n, count, input->key, gradient->key, out->key);
    fl_rule_copy(n, gradient->value, out->value);
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

static const fl_option options[] = {
    {.key = "shifts",
     .type = FL_OPTION_SIZE,
     .offset = offsetof(dpfp_options, shifts),
     .default_text = "3",
     .minimum = 1,
     .maximum = 8,
     .help = "nu: products with so many shifted copies, 2 nu D features"},
};

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

#endif
