/* Inverse frequencies step by step as Hugging Face Transformers 5.17 (modeling_rope_utils.py) computes them
 * on PyTorch tensors: each operation rounds to float32 once, and a number divided by a tensor is its
 * reciprocal times the number. */
#include <math.h>

#include "harness/model/model_config.h"

/* base^exponent rounded once to float32. */
static float power(float base, float exponent) {
    return (float)pow((double)base, (double)exponent);
}

static float plain_frequency(float theta, size_t i, size_t rotary_dim) {
    return 1.0f / power(theta, (float)(2 * i) / (float)rotary_dim);
}

/* NTK scaling: the base grows with the sequence once it is longer than the model was made for. */
static float dynamic_theta(const fl_rope_config *rope, size_t max_positions, size_t sequence_length) {
    if (sequence_length <= max_positions) return (float)rope->theta;
    float stretch = (float)rope->factor * (float)sequence_length / (float)max_positions;
    double exponent = (double)rope->rotary_dim / ((double)rope->rotary_dim - 2.0);
    return (float)rope->theta * power(stretch - (float)(rope->factor - 1.0), (float)exponent);
}

static float llama3_frequency(const fl_rope_config *rope, float plain) {
    const double two_pi = 6.283185307179586;
    float wavelength = (1.0f / plain) * (float)two_pi;
    float longest = (float)(rope->original_max_positions / rope->low_frequency_factor);
    float shortest = (float)(rope->original_max_positions / rope->high_frequency_factor);
    float factor = (float)rope->factor;
    if (wavelength > longest) return plain / factor;
    if (wavelength < shortest) return plain;
    float turns = (1.0f / wavelength) * (float)rope->original_max_positions;
    float smooth = (turns - (float)rope->low_frequency_factor) /
                   (float)(rope->high_frequency_factor - rope->low_frequency_factor);
    return (1.0f - smooth) * plain / factor + smooth * plain;
}

/* The (fractional) dimension that turns `rotations` times over the original context. */
static double yarn_dimension(const fl_rope_config *rope, double rotations) {
    const double two_pi = 6.283185307179586;
    return (double)rope->rotary_dim * log(rope->original_max_positions / (rotations * two_pi)) /
           (2.0 * log(rope->theta));
}

static void yarn_range(const fl_rope_config *rope, double *low, double *high) {
    *low = yarn_dimension(rope, rope->beta_fast);
    *high = yarn_dimension(rope, rope->beta_slow);
    if (rope->truncate) {
        *low = floor(*low);
        *high = ceil(*high);
    }
    *low = fmax(*low, 0.0);
    *high = fmin(*high, (double)rope->rotary_dim - 1.0);
    if (*low == *high) *high += 0.001;
}

static float yarn_frequency(const fl_rope_config *rope, size_t i, double low, double high) {
    float wave = power((float)rope->theta, (float)(2 * i) / (float)rope->rotary_dim);
    float extrapolated = 1.0f / wave, interpolated = 1.0f / ((float)rope->factor * wave);
    float ramp = ((float)i - (float)low) / (float)(high - low);
    if (ramp < 0.0f) ramp = 0.0f;
    if (ramp > 1.0f) ramp = 1.0f;
    float keep = 1.0f - ramp;
    return interpolated * (1.0f - keep) + extrapolated * keep;
}

static double yarn_scale(double factor, double mscale) {
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

static double yarn_attention_factor(const fl_rope_config *rope) {
    if (rope->attention_factor != 0.0) return rope->attention_factor;
    if (rope->mscale != 0.0 && rope->mscale_all_dim != 0.0) {
        return yarn_scale(rope->factor, rope->mscale) / yarn_scale(rope->factor, rope->mscale_all_dim);
    }
    return yarn_scale(rope->factor, 1.0);
}

void fl_rope_inverse_frequencies(const fl_rope_config *rope, size_t max_positions, size_t sequence_length,
                                 float *inverse_frequencies, float *attention_factor) {
    float theta = (float)rope->theta;
    double low = 0.0, high = 1.0;
    if (rope->type == FL_ROPE_DYNAMIC) theta = dynamic_theta(rope, max_positions, sequence_length);
    if (rope->type == FL_ROPE_YARN) yarn_range(rope, &low, &high);
    for (size_t i = 0; i < rope->rotary_dim / 2; i++) {
        float frequency = plain_frequency(theta, i, rope->rotary_dim);
        if (rope->type == FL_ROPE_LINEAR) frequency /= (float)rope->factor;
        if (rope->type == FL_ROPE_LLAMA3) frequency = llama3_frequency(rope, frequency);
        if (rope->type == FL_ROPE_YARN) frequency = yarn_frequency(rope, i, low, high);
        if (rope->divisors != NULL) frequency /= rope->divisors[i];
        inverse_frequencies[i] = frequency;
    }
    *attention_factor = rope->type == FL_ROPE_YARN ? (float)yarn_attention_factor(rope) : 1.0f;
}
