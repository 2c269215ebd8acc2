#include "harness/bench/bench_flops.h"

#include <stdint.h>
#include <string.h>

#include "harness/compute/cpu_recurrence.h"

double fl_bench_projection_flops(const fl_network *network, size_t tokens) {
    const fl_model_config *config = &network->model->config;
    double width = (double)config->model_dim;
    double heads = (double)((2 * config->query_heads + 2 * config->kv_heads) * config->head_dim);
    double weights = (double)config->layers * width * (heads + 3.0 * (double)config->mlp_dim);
    return 2.0 * (double)tokens * weights;
}

double fl_bench_logit_flops(const fl_network *network, size_t rows) {
    const fl_model_config *config = &network->model->config;
    return 2.0 * (double)rows * (double)config->model_dim * (double)config->vocabulary;
}

double fl_bench_softmax_flops(const fl_attention_shape *shape, double pairs) {
    return 4.0 * pairs * (double)(shape->query_heads * shape->head_dim);
}

double fl_bench_pairs(size_t tokens, size_t sinks, size_t window) {
    double pairs = 0;
    for (size_t t = 0; t < tokens; t++) {
        size_t seen = t + 1, held = window > SIZE_MAX - sinks ? SIZE_MAX : sinks + window;
        pairs += (double)(seen < held ? seen : held);
    }
    return pairs;
}

double fl_bench_recurrence_flops(fl_transition transition, size_t heads, size_t steps, size_t key_dim,
                                 size_t value_dim) {
    static const double with_state[] = {4, 6, 8}, triangles[] = {1, 2, 4};
    double state = with_state[transition.erase] * (double)key_dim * (double)value_dim;
    double chunk = triangles[transition.erase] * (double)FL_CHUNK_TOKENS * (double)(key_dim + value_dim);
    return (double)heads * (double)steps * (state + chunk);
}

/* Numbers of a layer's tensors that tokens are multiplied with: matrices, but not the taps of the
 * convolution. */
static double projected_numbers(const fl_mechanism *mechanism) {
    double numbers = 0;
    for (size_t i = 0; i < mechanism->tensor_count; i++) {
        const fl_mechanism_tensor *tensor = &mechanism->tensors[i];
        bool matrix = strncmp(tensor->name, "gate.w", 6) == 0 || strcmp(tensor->name, "beta.weight") == 0 ||
                      fl_mechanism_tensor_is_lora(tensor);
        bool of_rule = tensor->rank == 3 && tensor->shape[1] == mechanism->shape.head_dim;
        if (matrix || of_rule) numbers += (double)tensor->count;
    }
    return numbers;
}

static double linearised_layer(const fl_mechanism *mechanism, size_t tokens) {
    const fl_variant *variant = mechanism->variant;
    const fl_rule *rule = variant->rule;
    const fl_attention_shape *shape = &mechanism->shape;
    double flops = 2.0 * (double)tokens * projected_numbers(mechanism);
    if (fl_variant_has_exact_set(variant)) {
        flops += fl_bench_softmax_flops(shape, fl_bench_pairs(tokens, variant->sinks, variant->window));
    }
    if (rule->stateless || rule->prepare == NULL) return flops;
    size_t steps = tokens * fl_rule_micro_steps(rule, variant->rule_options);
    size_t key_dim = fl_rule_key_dim(rule, shape->head_dim, variant->rule_options);
    size_t value_dim = shape->head_dim + (variant->normaliser ? 1 : 0);
    return flops +
           fl_bench_recurrence_flops(variant->transition, shape->query_heads, steps, key_dim, value_dim);
}

double fl_bench_prefill_flops(const fl_network *network, const fl_mechanism *mechanism, size_t tokens) {
    const fl_model_config *config = &network->model->config;
    double flops = fl_bench_projection_flops(network, tokens) + fl_bench_logit_flops(network, 1);
    double after_mixing = (double)(config->query_heads * config->head_dim + 3 * config->mlp_dim);
    flops -= 2.0 * (double)(tokens - 1) * (double)config->model_dim * after_mixing;
    for (size_t l = 0; l < config->layers; l++) {
        bool softmax = mechanism == NULL || fl_variant_layer_is_softmax(mechanism->variant, l);
        size_t window = config->sliding_window[l] != 0 ? config->sliding_window[l] : SIZE_MAX;
        flops += softmax ? fl_bench_softmax_flops(&network->shape, fl_bench_pairs(tokens, 0, window))
                         : linearised_layer(mechanism, tokens);
    }
    return flops;
}
