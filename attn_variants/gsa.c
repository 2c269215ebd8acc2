#include "harness/compute/rule_functions.h"

enum { MAX_SLOTS = 256 };

typedef struct gsa_options {
    size_t slots;
    double softness;
} gsa_options;

FL_RULE_FUNCTION const gsa_options *chosen(const void *of_variant) {
    return (const gsa_options *)of_variant;
}

FL_RULE_FUNCTION size_t slots(const void *of_variant) {
    return chosen(of_variant)->slots;
}

enum { FORGET = 0 };

FL_RULE_FUNCTION float kept(const fl_rule_input *token, size_t slot) {
    return expf((float)(token->factors[FORGET][slot] / chosen(token->options)->softness));
}

FL_RULE_FUNCTION void write_token(const fl_rule_input *token, float *state) {
    size_t n = token->head_dim, count = slots(token->options);
    FL_ALL(slot, count) {
        float keep = kept(token, slot), *key = state + slot * n, *value = key + count * n;
        FL_EACH(i, n) {
            key[i] = keep * key[i] + (1.0f - keep) * token->key[i];
            value[i] = keep * value[i] + (1.0f - keep) * token->value[i];
        }
    }
    FL_JOIN();
}

/* With a slot's row x' = a x + (1 - a) y and G its gradient: da = G . (x - y), dy = (1 - a) G, dx = a G. */
FL_RULE_FUNCTION double row_backward(size_t n, float keep, const float *before, const float *written,
                                     float *gradient, float *of_written) {
    fl_rule_sum(of_keep, i, n, (double)gradient[i] * (before[i] - written[i]));
    FL_EACH(i, n) {
        of_written[i] += (1.0f - keep) * gradient[i];
        gradient[i] *= keep;
    }
    FL_JOIN();
    return of_keep;
}

FL_RULE_FUNCTION void write_backward(const fl_rule_input *token, const float *before, float *gradient_state,
                                     fl_rule_input_gradient *out) {
    size_t n = token->head_dim, count = slots(token->options);
    fl_rule_clear(n, out->key);
    fl_rule_clear(n, out->value);
    FL_ALL(slot, count) {
        size_t key = slot * n, value = (count + slot) * n;
        float keep = kept(token, slot);
        double of_keep =
            row_backward(n, keep, before + key, token->key, gradient_state + key, out->key) +
            row_backward(n, keep, before + value, token->value, gradient_state + value, out->value);
        FL_ONCE out->factors[FORGET][slot] = (float)(of_keep * keep / chosen(token->options)->softness);
    }
}

/* p = softmax(q . keys / sqrt(D)): the frozen attention's own logits, over slots. */
FL_RULE_FUNCTION void find_weights(const fl_rule_input *token, const float *state, float *weights) {
    size_t n = token->head_dim, count = slots(token->options);
    fl_rule_times_rows(count, n, state, token->query, weights);
    FL_JOIN();
    FL_EACH(slot, count) weights[slot] *= (float)(1.0 / sqrt((double)n));
    FL_JOIN();
    fl_rule_softmax_of(count, weights, weights);
    FL_JOIN();
}

FL_RULE_FUNCTION void read_state(const fl_rule_input *token, const float *state, float *output) {
    size_t n = token->head_dim, count = slots(token->options);
    FL_VECTOR(weights);
    find_weights(token, state, weights);
    fl_rule_weigh_rows(count, n, weights, state + count * n, output);
    FL_JOIN();
}

/* dp = values . g;  dz = p (dp - p . dp);  dq = sum dz keys / sqrt(D). */
FL_RULE_FUNCTION void read_backward(const fl_rule_input *token, const float *state,
                                    const float *gradient_output, float *gradient_state,
                                    fl_rule_input_gradient *out) {
    size_t n = token->head_dim, count = slots(token->options);
    FL_VECTOR(weights);
    FL_VECTOR(of_weights);
    find_weights(token, state, weights);
    fl_rule_times_rows(count, n, state + count * n, gradient_output, of_weights);
    FL_JOIN();
    fl_rule_sum(mean, m, count, (double)weights[m] * of_weights[m]);
    fl_rule_clear(n, out->query);
    FL_ALL(slot, count) {
        float of_logit = (float)(weights[slot] * (of_weights[slot] - mean) / sqrt((double)n));
        FL_EACH(i, n) {
            out->query[i] += of_logit * state[slot * n + i];
            gradient_state[slot * n + i] += of_logit * token->query[i];
            gradient_state[(count + slot) * n + i] += weights[slot] * gradient_output[i];
        }
    }
    FL_JOIN();
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

static const fl_option options[] = {
    {.key = "slots",
     .type = FL_OPTION_SIZE,
     .offset = offsetof(gsa_options, slots),
     .default_text = "64",
     .minimum = 1,
     .maximum = MAX_SLOTS,
     .help = "keys and values that the memory holds"},
    {.key = "softness",
     .type = FL_OPTION_NUMBER,
     .offset = offsetof(gsa_options, softness),
     .default_text = "8",
     .minimum = 1e-3,
     .maximum = 1e3,
     .help = "the log of a slot's forget gate is divided by it: the larger, the slower slots change"},
};

static const fl_rule_factor factors[] = {
    {.name = "gsa.forget",
     .axes = "S",
     .activation = FL_ACTIVATE_LOG_SIGMOID,
     .help = "log of how much every slot keeps, before it is softened"},
};

/* Keys of the slots [M][D], then their values [M][D]. */
static size_t state_floats(size_t head_dim, const void *of_variant) {
    return 2 * slots(of_variant) * head_dim;
}

const fl_rule fl_rule_gsa = {
    .abi = FL_RULE_ABI,
    .name = "gsa",
    .summary = "gated slot attention: softmax over a fixed number of slots, each a moving average of keys "
               "and values",
    .equation =
        "K_m = a_m K_m + (1 - a_m) k, V_m = a_m V_m + (1 - a_m) v;  y = sum_m softmax_m(q.K_m / sqrt(D)) V_m",
    .source = "Zhang et al. 2024, arXiv 2409.07146",
    .differs = "the forget gates of the slots have low rank (factors.rank), where the published projection "
               "is full; the feature "
               "map (swish) of q, k and v is the layer's.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_bytes = sizeof(gsa_options),
    .factors = factors,
    .factor_count = sizeof factors / sizeof factors[0],
    .slots = slots,
    .own = {.state_floats = state_floats,
            .write = write_token,
            .read = read_state,
            .write_backward = write_backward,
            .read_backward = read_backward},
};

#endif
