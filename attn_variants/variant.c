#include "attn_variants/variant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/data_path.h"
#include "harness/base/memory.h"

static const char *const merge_names[] = {"sum", "half", "shared_normaliser", "lolcats", "lolcats_invariant",
                                          NULL};
static const char *const route_names[] = {"self_recall", "attention_mass", "key_norm", "value_norm",
                                          "recency",     "random",         NULL};
static const char *const source_names[] = {"projected", "constant", NULL};
static const char *const gate_form_names[] = {"sigmoid", "softplus", NULL};
static const char *const conv_init_names[] = {"identity", "torch", NULL};
static const char *const lora_target_names[] = {"q", "k", "v", "o", NULL};
static const char *const hardness_names[] = {"key_concentration", "projection_residual", "nmse", NULL};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { LARGEST_SPAN = 1 << 24, LARGEST_KERNEL = 1024, LARGEST_RANK = 1 << 16 };

const char *fl_merge_name(fl_merge merge) {
    return merge_names[merge];
}
const char *fl_route_name(fl_route route) {
    return route_names[route];
}
const char *fl_lora_target_name(fl_lora_target target) {
    return lora_target_names[target];
}

/* What the `variant` mapping itself holds, before it is understood. */
typedef struct fl_variant_keys {
    char *rule, *mechanism;
    const fl_node *gate, *beta, *factors, *scale, *normaliser, *short_conv, *cache, *softmax_layers, *lora;
    size_t window, sinks;
    int merge;
    uint64_t seed;
} fl_variant_keys;

static const fl_option variant_options[] = {
    {.key = "rule",
     .type = FL_OPTION_STRING,
     .offset = offsetof(fl_variant_keys, rule),
     .default_text = "softmax",
     .help = "the update rule; `frostline variants` lists them"},
    {.key = "gate",
     .type = FL_OPTION_NODE,
     .offset = offsetof(fl_variant_keys, gate),
     .help = "{source: projected, rank, bias} or {source: constant, value}"},
    {.key = "beta",
     .type = FL_OPTION_NODE,
     .offset = offsetof(fl_variant_keys, beta),
     .help = "{source: projected, bias} or {source: constant, value}"},
    {.key = "factors",
     .type = FL_OPTION_NODE,
     .offset = offsetof(fl_variant_keys, factors),
     .help = "{rank}: of what a rule projects for itself beside gate and beta, where it is wide"},
    {.key = "scale",
     .type = FL_OPTION_NODE,
     .offset = offsetof(fl_variant_keys, scale),
     .help =
         "of every read of the state: none, sqrt_dim (D^-1/2, as libraries do) or a number; a read that is "
         "divided by a normaliser is not changed by it"},
    {.key = "normaliser",
     .type = FL_OPTION_NODE,
     .offset = offsetof(fl_variant_keys, normaliser),
     .help = "divide the read by z.q; on by default where the rule's kernel is never negative"},
    {.key = "window",
     .type = FL_OPTION_SIZE,
     .offset = offsetof(fl_variant_keys, window),
     .default_text = "0",
     .minimum = 0,
     .maximum = LARGEST_SPAN,
     .help = "newest tokens kept exactly, the current one included",
     .unit = "tokens"},
    {.key = "sinks",
     .type = FL_OPTION_SIZE,
     .offset = offsetof(fl_variant_keys, sinks),
     .default_text = "0",
     .minimum = 0,
     .maximum = LARGEST_SPAN,
     .help = "first tokens kept exactly for ever",
     .unit = "tokens"},
    {.key = "merge",
     .type = FL_OPTION_CHOICE,
     .offset = offsetof(fl_variant_keys, merge),
     .default_text = "sum",
     .choices = merge_names,
     .help = "how the softmax over the exact set and the linear read are joined"},
    {.key = "short_conv",
     .type = FL_OPTION_NODE,
     .offset = offsetof(fl_variant_keys, short_conv),
     .help = "{kernel, init}: causal depthwise convolution of q, k, v in the linear branch"},
    {.key = "cache",
     .type = FL_OPTION_NODE,
     .offset = offsetof(fl_variant_keys, cache),
     .help = "{budget, route}: tokens kept exactly by score after leaving the window, per KV head"},
    {.key = "softmax_layers",
     .type = FL_OPTION_NODE,
     .offset = offsetof(fl_variant_keys, softmax_layers),
     .help = "layers left as they are: a list, {every: n} or {hardest: n, by: signal}"},
    {.key = "lora",
     .type = FL_OPTION_NODE,
     .offset = offsetof(fl_variant_keys, lora),
     .help = "{rank, alpha, targets}: low-rank adapters on the frozen projections (tier `adapted`)"},
    {.key = "mechanism",
     .type = FL_OPTION_STRING,
     .offset = offsetof(fl_variant_keys, mechanism),
     .help = "safetensors file of mechanism parameters to load"},
    {.key = "seed",
     .type = FL_OPTION_SEED,
     .offset = offsetof(fl_variant_keys, seed),
     .default_text = "1",
     .help = "of the mechanism's initialisation and of random routing"},
};
enum { VARIANT_OPTION_COUNT = sizeof variant_options / sizeof variant_options[0] };

static bool is_given(const fl_node *node) {
    return node != NULL && node->kind != FL_NODE_NULL;
}

/* Gate and beta. */

typedef struct fl_gate_keys {
    int source, form;
    double value, bias, maximum;
    size_t rank;
} fl_gate_keys;

typedef struct fl_gate_request {
    const char *key; /* "gate" or "beta" */
    bool rule_takes, has_rank, has_form, has_maximum;
    fl_gate_activation activation;
    double default_bias;
} fl_gate_request;

static fl_status refuse_keys(const fl_node *node, const char *const *keys, const char *why, fl_error *error) {
    for (size_t i = 0; keys[i] != NULL; i++) {
        const fl_node *found = fl_node_get(node, keys[i]);
        if (found != NULL) return fl_node_error(found, error, "%s: %s", keys[i], why);
    }
    return FL_OK;
}

/* Keys that came after run ids were given out are recorded only where they change something: ids stay what
 * they were. */
static void forget_default(fl_resolved *resolved, const char *prefix, const char *key, const char *value) {
    char path[64];
    snprintf(path, sizeof path, "%s.%s", prefix, key);
    const char *found = resolved == NULL ? NULL : fl_resolved_find(resolved, path);
    if (found != NULL && strcmp(found, value) == 0) fl_resolved_remove(resolved, path);
}

/* Of gate (the first five) and beta (the last four); which of them there are is takes_key's. */
static const fl_option gate_options[] = {
    {.key = "rank",
     .type = FL_OPTION_SIZE,
     .offset = offsetof(fl_gate_keys, rank),
     .default_text = "16",
     .minimum = 1,
     .maximum = LARGEST_RANK,
     .help = "rank of w1 w2, of rules with a gate per channel"},
    {.key = "form",
     .type = FL_OPTION_CHOICE,
     .offset = offsetof(fl_gate_keys, form),
     .default_text = "sigmoid",
     .choices = gate_form_names,
     .help = "log a = log sigmoid(x), or -exp(a_log) softplus(x) as published"},
    {.key = "source",
     .type = FL_OPTION_CHOICE,
     .offset = offsetof(fl_gate_keys, source),
     .default_text = "projected",
     .choices = source_names,
     .help = "projected from the block's input for every token, or constant"},
    {.key = "value",
     .type = FL_OPTION_NUMBER,
     .offset = offsetof(fl_gate_keys, value),
     .default_text = "!",
     .maximum = 1.0,
     .help = "the constant; of rules with an activation of their own, any number before it"},
    {.key = "bias",
     .type = FL_OPTION_NUMBER,
     .offset = offsetof(fl_gate_keys, bias),
     .help = "initial bias of the projection; the default is the rule's"},
    {.key = "maximum",
     .type = FL_OPTION_NUMBER,
     .offset = offsetof(fl_gate_keys, maximum),
     .default_text = "1",
     .minimum = 1.0,
     .maximum = 2.0,
     .help = "beta in (0, maximum): above 1 a step may reflect"},
};
enum { FIRST_OF_BETA = 2, GATE_COUNT = 5 };

static bool takes_key(const fl_gate_request *request, bool constant, const char *key) {
    if (strcmp(key, "source") == 0) return true;
    if (constant || strcmp(key, "value") == 0) return constant && strcmp(key, "value") == 0;
    if (strcmp(key, "rank") == 0) return request->has_rank;
    if (strcmp(key, "form") == 0) return request->has_form;
    if (strcmp(key, "maximum") == 0) return request->has_maximum;
    return true;
}

static fl_status bind_gate_keys(const fl_node *node, const fl_gate_request *request, fl_resolved *resolved,
                                fl_gate_keys *keys, fl_error *error) {
    static const char *const of_constant[] = {"value", NULL};
    static const char *const of_projected[] = {"rank", "bias", "form", "maximum", NULL};
    static const char *const of_rank[] = {"rank", NULL};
    const fl_node *source = fl_node_get(node, "source");
    if (is_given(source)) FL_TRY(fl_node_to_choice(source, source_names, &keys->source, error));
    bool constant = keys->source == FL_GATE_CONSTANT;
    FL_TRY(refuse_keys(
        node, constant ? of_projected : of_constant,
        constant ? "source: constant takes only `value`" : "only source: constant takes a value", error));
    if (!request->has_rank) FL_TRY(refuse_keys(node, of_rank, "only gates per channel have a rank", error));

    char bias_text[40], prefix[40];
    fl_option options[COUNT(gate_options)];
    size_t count = 0;
    snprintf(bias_text, sizeof bias_text, "%.17g", request->default_bias);
    snprintf(prefix, sizeof prefix, "variant.%s", request->key);
    for (size_t i = 0; i < COUNT(gate_options); i++) {
        if (!takes_key(request, constant, gate_options[i].key)) continue;
        options[count] = gate_options[i];
        if (strcmp(options[count].key, "bias") == 0) options[count].default_text = bias_text;
        if (strcmp(options[count].key, "value") == 0 && request->activation == FL_ACTIVATE_RAW)
            options[count].maximum = 0.0; /* no range */
        count++;
    }
    fl_option_table table = {options, count, keys};
    FL_TRY(fl_options_bind(node, &table, 1, prefix, resolved, error));
    forget_default(resolved, prefix, "form", "sigmoid");
    forget_default(resolved, prefix, "maximum", "1");
    return FL_OK;
}

static fl_status bind_gate(const fl_rule *rule, const fl_node *node, const fl_gate_request *request,
                           fl_resolved *resolved, fl_gate_keys *keys, fl_error *error) {
    if (!request->rule_takes) {
        if (is_given(node))
            return fl_node_error(node, error, "rule %s takes no %s", rule->name, request->key);
        return FL_OK;
    }
    return bind_gate_keys(is_given(node) ? node : NULL, request, resolved, keys, error);
}

static fl_status bind_gates(fl_variant *variant, const fl_variant_keys *keys, fl_resolved *resolved,
                            fl_error *error) {
    const fl_rule *rule = variant->rule;
    fl_gate_keys gate = {0}, beta = {0};
    variant->takes_beta = fl_rule_takes_beta(rule, variant->rule_options);
    fl_gate_request gate_request = {.key = "gate",
                                    .rule_takes = rule->gate != FL_GATE_NONE,
                                    .has_rank = rule->gate == FL_GATE_CHANNEL,
                                    .has_form = rule->gate_activation == FL_ACTIVATE_LOG_SIGMOID,
                                    .activation = rule->gate_activation,
                                    .default_bias = rule->default_gate_bias};
    fl_gate_request beta_request = {.key = "beta",
                                    .rule_takes = variant->takes_beta,
                                    .has_maximum = rule->beta_may_reflect,
                                    .activation = rule->beta_activation,
                                    .default_bias = rule->default_beta_bias};
    FL_TRY(bind_gate(rule, keys->gate, &gate_request, resolved, &gate, error));
    FL_TRY(bind_gate(rule, keys->beta, &beta_request, resolved, &beta, error));
    variant->gate_source = (fl_gate_source)gate.source;
    variant->gate_value = gate.value;
    variant->gate_rank = gate.rank;
    variant->gate_bias = gate.bias;
    variant->beta_source = (fl_gate_source)beta.source;
    variant->beta_value = beta.value;
    variant->beta_bias = beta.bias;
    variant->gate_form = (fl_gate_form)gate.form;
    variant->gate_bias_published =
        variant->gate_form == FL_GATE_SOFTPLUS && !is_given(fl_node_get(keys->gate, "bias"));
    if (variant->gate_bias_published && resolved != NULL) fl_resolved_remove(resolved, "variant.gate.bias");
    variant->beta_maximum = beta.maximum > 0.0 ? beta.maximum : 1.0;
    return FL_OK;
}

static const fl_option factor_options[] = {{.key = "rank",
                                            .type = FL_OPTION_SIZE,
                                            .offset = 0,
                                            .default_text = "16",
                                            .minimum = 1,
                                            .maximum = LARGEST_RANK,
                                            .help = "rank of w1 w2"}};

/* The rank of wide factors; a rule without any takes no such key. */
static fl_status bind_factors(fl_variant *variant, const fl_node *node, fl_resolved *resolved,
                              fl_error *error) {
    bool wide = false;
    for (size_t i = 0; i < variant->rule->factor_count; i++)
        wide = wide || (fl_rule_factor_is_wide(&variant->rule->factors[i]) &&
                        fl_rule_factor_width(variant->rule, i, 1, variant->rule_options) > 0);
    if (!wide) {
        return is_given(node) ? fl_node_error(node, error, "rule %s projects nothing wide of its own%s",
                                              variant->rule->name,
                                              variant->rule->factor_count > 0 ? " with these options" : "")
                              : FL_OK;
    }
    fl_option_table table = {factor_options, 1, &variant->factor_rank};
    return fl_options_bind(is_given(node) ? node : NULL, &table, 1, "variant.factors", resolved, error);
}

/* Only what differs from the default is recorded, so that run ids from before the key stay what they are. */
static fl_status bind_scale(fl_variant *variant, const fl_node *node, fl_resolved *resolved,
                            fl_error *error) {
    variant->scale = 1.0;
    bool published = variant->rule->scaled != NULL && variant->rule->scaled(variant->rule_options);
    variant->scale_by_dim = published;
    if (!is_given(node)) return FL_OK;
    if (variant->rule->stateless)
        return fl_node_error(node, error, "rule %s reads no state", variant->rule->name);
    variant->scale_by_dim = node->kind == FL_NODE_SCALAR && strcmp(node->text, "sqrt_dim") == 0;
    bool none = node->kind == FL_NODE_SCALAR && strcmp(node->text, "none") == 0;
    if (!none && !variant->scale_by_dim) {
        fl_status status = fl_node_to_number(node, 1e-6, 1e6, &variant->scale, error);
        if (status != FL_OK)
            return fl_node_error(node, error, "scale: none, sqrt_dim or a number from 1e-6 to 1e6");
    }
    if (resolved == NULL || (variant->scale_by_dim == published && variant->scale == 1.0)) return FL_OK;
    char *text = NULL;
    FL_TRY(fl_node_text(node, &text, error));
    fl_status status = fl_resolved_add(resolved, "variant.scale", text, false, error);
    fl_memory_free(text);
    return status;
}

/* Interventions. */

typedef struct fl_conv_keys {
    size_t kernel;
    int init;
} fl_conv_keys;

static const fl_option conv_options[] = {
    {.key = "kernel",
     .type = FL_OPTION_SIZE,
     .offset = offsetof(fl_conv_keys, kernel),
     .default_text = "8",
     .minimum = 1,
     .maximum = LARGEST_KERNEL,
     .help = "taps, the current token included",
     .unit = "tokens"},
    {.key = "init",
     .type = FL_OPTION_CHOICE,
     .offset = offsetof(fl_conv_keys, init),
     .default_text = "identity",
     .choices = conv_init_names,
     .help = "identity changes nothing until trained; torch is uniform"},
};

static fl_status bind_short_conv(fl_variant *variant, const fl_node *node, fl_resolved *resolved,
                                 fl_error *error) {
    if (!is_given(node)) return FL_OK;
    fl_conv_keys keys = {0};
    fl_option_table table = {conv_options, COUNT(conv_options), &keys};
    FL_TRY(fl_options_bind(node, &table, 1, "variant.short_conv", resolved, error));
    if (!fl_variant_has_linear(variant)) return FL_OK;
    variant->conv_kernel = keys.kernel;
    variant->conv_init = (fl_conv_init)keys.init;
    return FL_OK;
}

typedef struct fl_cache_keys {
    size_t budget;
    int route;
} fl_cache_keys;

static const fl_option cache_options[] = {
    {.key = "budget",
     .type = FL_OPTION_SIZE,
     .offset = offsetof(fl_cache_keys, budget),
     .default_text = "0",
     .minimum = 0,
     .maximum = LARGEST_SPAN,
     .help = "cached tokens per KV head; 0 = no cache",
     .unit = "tokens"},
    {.key = "route",
     .type = FL_OPTION_CHOICE,
     .offset = offsetof(fl_cache_keys, route),
     .default_text = "self_recall",
     .choices = route_names,
     .help = "the score; the lowest is written to the state"},
};

static fl_status bind_cache(fl_variant *variant, const fl_node *node, fl_resolved *resolved,
                            fl_error *error) {
    if (!is_given(node)) return FL_OK;
    fl_cache_keys keys = {0};
    fl_option_table table = {cache_options, COUNT(cache_options), &keys};
    FL_TRY(fl_options_bind(node, &table, 1, "variant.cache", resolved, error));
    variant->cache_budget = keys.budget;
    variant->route = (fl_route)keys.route;
    return FL_OK;
}

typedef struct fl_lora_keys {
    size_t rank;
    double alpha;
    const fl_node *targets;
} fl_lora_keys;

static fl_status bind_lora_targets(fl_variant *variant, const fl_node *node, fl_resolved *resolved,
                                   fl_error *error) {
    for (size_t i = 0; !is_given(node) && i < FL_LORA_TARGETS; i++) variant->lora_targets[i] = true;
    if (is_given(node) && (node->kind != FL_NODE_SEQUENCE || node->count == 0)) {
        return fl_node_error(node, error, "targets: expected a list of q, k, v, o");
    }
    for (size_t i = 0; is_given(node) && i < node->count; i++) {
        int target = 0;
        FL_TRY(fl_node_to_choice(node->children[i], lora_target_names, &target, error));
        if (variant->lora_targets[target]) {
            return fl_node_error(node->children[i], error, "targets: %s is listed twice",
                                 lora_target_names[target]);
        }
        variant->lora_targets[target] = true;
    }
    if (resolved == NULL) return FL_OK;
    char text[32] = "[";
    size_t used = 1;
    for (size_t i = 0; i < FL_LORA_TARGETS; i++) {
        if (!variant->lora_targets[i]) continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used > 1 ? ", " : "",
                                 lora_target_names[i]);
    }
    snprintf(text + used, sizeof text - used, "]");
    return fl_resolved_add(resolved, "variant.lora.targets", text, !is_given(node), error);
}

static const fl_option lora_options[] = {
    {.key = "rank",
     .type = FL_OPTION_SIZE,
     .offset = offsetof(fl_lora_keys, rank),
     .default_text = "8",
     .minimum = 1,
     .maximum = LARGEST_RANK,
     .help = "columns of A"},
    {.key = "alpha",
     .type = FL_OPTION_NUMBER,
     .offset = offsetof(fl_lora_keys, alpha),
     .default_text = "16",
     .minimum = 0.0,
     .maximum = 1e6,
     .help = "the product A B is scaled by alpha / rank"},
    {.key = "targets",
     .type = FL_OPTION_NODE,
     .offset = offsetof(fl_lora_keys, targets),
     .help = "which of q, k, v, o; all by default"},
};

static fl_status bind_lora(fl_variant *variant, const fl_node *node, fl_resolved *resolved, fl_error *error) {
    if (!is_given(node)) return FL_OK;
    fl_lora_keys keys = {0};
    fl_option_table table = {lora_options, COUNT(lora_options), &keys};
    FL_TRY(fl_options_bind(node, &table, 1, "variant.lora", resolved, error));
    FL_TRY(bind_lora_targets(variant, keys.targets, resolved, error));
    variant->lora_rank = keys.rank;
    variant->lora_alpha = keys.alpha;
    return FL_OK;
}

typedef struct fl_hybrid_keys {
    size_t every, hardest;
    int by;
} fl_hybrid_keys;

static bool is_listed(const fl_variant *variant, size_t layer) {
    for (size_t i = 0; i < variant->softmax_layer_count; i++) {
        if (variant->softmax_layers[i] == layer) return true;
    }
    return false;
}

static const fl_option every_options[] = {{.key = "every",
                                           .type = FL_OPTION_SIZE,
                                           .offset = offsetof(fl_hybrid_keys, every),
                                           .default_text = "!",
                                           .minimum = 1,
                                           .maximum = 1024,
                                           .help = "n: layers n-1, 2n-1, ... stay softmax",
                                           .unit = "layers"}};

static const fl_option hardest_options[] = {{.key = "hardest",
                                             .type = FL_OPTION_SIZE,
                                             .offset = offsetof(fl_hybrid_keys, hardest),
                                             .default_text = "!",
                                             .minimum = 1,
                                             .maximum = 1024,
                                             .help = "n layers that are hardest by the signal",
                                             .unit = "layers"},
                                            {.key = "by",
                                             .type = FL_OPTION_CHOICE,
                                             .offset = offsetof(fl_hybrid_keys, by),
                                             .default_text = "key_concentration",
                                             .choices = hardness_names,
                                             .help = "the signal, measured before the run"}};

static fl_status bind_hybrid_mapping(fl_variant *variant, const fl_node *node, fl_resolved *resolved,
                                     fl_error *error) {
    bool hardest = fl_node_get(node, "hardest") != NULL;
    const fl_node *every = fl_node_get(node, "every");
    if (hardest && every != NULL) {
        return fl_node_error(every, error, "softmax_layers: either every or hardest, not both");
    }
    fl_hybrid_keys keys = {0};
    fl_option_table table = {hardest ? hardest_options : every_options, hardest ? 2 : 1, &keys};
    FL_TRY(fl_options_bind(node, &table, 1, "variant.softmax_layers", resolved, error));
    variant->softmax_every = keys.every;
    variant->softmax_hardest = keys.hardest;
    variant->softmax_hardest_by = keys.by;
    return FL_OK;
}

static fl_status bind_softmax_layers(fl_variant *variant, const fl_node *node, fl_resolved *resolved,
                                     fl_error *error) {
    if (!is_given(node)) return FL_OK;
    if (node->kind == FL_NODE_MAPPING) return bind_hybrid_mapping(variant, node, resolved, error);
    if (node->kind != FL_NODE_SEQUENCE) {
        return fl_node_error(node, error,
                             "softmax_layers: a list of layers, {every: n} or {hardest: n, by: signal}");
    }
    FL_TRY(FL_ALLOCATE(&variant->softmax_layers, node->count, error));
    for (size_t i = 0; i < node->count; i++) {
        size_t layer = 0;
        FL_TRY(fl_node_to_size(node->children[i], 0, LARGEST_SPAN, &layer, error));
        if (is_listed(variant, layer)) {
            return fl_node_error(node->children[i], error, "softmax_layers: layer %zu is listed twice",
                                 layer);
        }
        variant->softmax_layers[variant->softmax_layer_count++] = layer;
    }
    return FL_OK;
}

static int compare_sizes(const void *a, const void *b) {
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

static fl_status record_softmax_layers(const fl_variant *variant, fl_resolved *resolved, bool is_default,
                                       fl_error *error) {
    if (resolved == NULL || variant->softmax_every > 0 || variant->softmax_hardest > 0) return FL_OK;
    char *text = NULL;
    size_t room = 3 + 24 * variant->softmax_layer_count;
    FL_TRY(FL_ALLOCATE(&text, room, error));
    size_t used = (size_t)snprintf(text, room, "[");
    for (size_t i = 0; i < variant->softmax_layer_count; i++) {
        used +=
            (size_t)snprintf(text + used, room - used, i == 0 ? "%zu" : ", %zu", variant->softmax_layers[i]);
    }
    snprintf(text + used, room - used, "]");
    fl_status status = fl_resolved_add(resolved, "variant.softmax_layers", text, is_default, error);
    fl_memory_free(text);
    return status;
}

/* Normaliser and merge. */

static bool merge_shares_normaliser(fl_merge merge) {
    return merge >= FL_MERGE_SHARED_NORMALISER;
}

static fl_status bind_normaliser(fl_variant *variant, const fl_node *node, fl_resolved *resolved,
                                 fl_error *error) {
    const fl_rule *rule = variant->rule;
    variant->normaliser = rule->normaliser && fl_rule_positive(rule, variant->rule_options);
    if (is_given(node)) {
        FL_TRY(fl_node_to_bool(node, &variant->normaliser, error));
        if (variant->normaliser && !rule->normaliser) {
            return fl_node_error(node, error, "rule %s has no normaliser", rule->name);
        }
    }
    if (resolved == NULL || !rule->normaliser) return FL_OK;
    return fl_resolved_add(resolved, "variant.normaliser", variant->normaliser ? "true" : "false",
                           !is_given(node), error);
}

static fl_status check_merge(const fl_variant *variant, const fl_node *mapping, fl_error *error) {
    if (!merge_shares_normaliser(variant->merge) || variant->rule->stateless) return FL_OK;
    const fl_node *node = fl_node_get(mapping, "merge");
    const char *name = fl_merge_name(variant->merge);
    if (!variant->rule->normaliser || !fl_rule_positive(variant->rule, variant->rule_options)) {
        return fl_node_error(node, error, "merge %s needs a kernel that is never negative; rule %s %s", name,
                             variant->rule->name,
                             variant->rule->positive != NULL ? "has none with these options" : "has none");
    }
    if (!variant->normaliser) return fl_node_error(node, error, "merge %s needs normaliser: true", name);
    return FL_OK;
}

const fl_option_section *fl_variant_sections(size_t *count) {
    static const fl_option_section sections[] = {
        {"variant", NULL, variant_options, VARIANT_OPTION_COUNT},
        {"variant.gate", NULL, gate_options, GATE_COUNT},
        {"variant.beta", NULL, gate_options + FIRST_OF_BETA, COUNT(gate_options) - FIRST_OF_BETA},
        {"variant.factors", NULL, factor_options, COUNT(factor_options)},
        {"variant.short_conv", NULL, conv_options, COUNT(conv_options)},
        {"variant.cache", NULL, cache_options, COUNT(cache_options)},
        {"variant.softmax_layers", "every", every_options, COUNT(every_options)},
        {"variant.softmax_layers", "hardest", hardest_options, COUNT(hardest_options)},
        {"variant.lora", NULL, lora_options, COUNT(lora_options)},
    };
    *count = COUNT(sections);
    return sections;
}

/* Whole. */

static fl_status bind_into(fl_variant *variant, const fl_node *node, fl_variant_keys *keys,
                           fl_resolved *resolved, fl_error *error) {
    const fl_rule *rule = variant->rule;
    if (rule->options_bytes > 0)
        FL_TRY(fl_memory_allocate(&variant->rule_options, 1, rule->options_bytes, error));
    fl_option_table tables[] = {{variant_options, VARIANT_OPTION_COUNT, keys},
                                {rule->options, rule->option_count, variant->rule_options}};
    FL_TRY(fl_options_bind(node, tables, rule->option_count > 0 ? 2 : 1, "variant", resolved, error));
    variant->transition = rule->resolve != NULL ? rule->resolve(variant->rule_options) : rule->transition;
    variant->window = keys->window;
    variant->sinks = keys->sinks;
    variant->merge = (fl_merge)keys->merge;
    variant->seed = keys->seed;
    variant->mechanism_path = keys->mechanism;
    keys->mechanism = NULL;
    FL_TRY(fl_data_path_resolve(&variant->mechanism_path, error));
    FL_TRY(bind_gates(variant, keys, resolved, error));
    FL_TRY(bind_factors(variant, keys->factors, resolved, error));
    FL_TRY(bind_scale(variant, keys->scale, resolved, error));
    FL_TRY(bind_normaliser(variant, keys->normaliser, resolved, error));
    FL_TRY(check_merge(variant, node, error));
    FL_TRY(bind_short_conv(variant, keys->short_conv, resolved, error));
    FL_TRY(bind_cache(variant, keys->cache, resolved, error));
    FL_TRY(bind_lora(variant, keys->lora, resolved, error));
    FL_TRY(bind_softmax_layers(variant, keys->softmax_layers, resolved, error));
    return record_softmax_layers(variant, resolved, !is_given(keys->softmax_layers), error);
}

fl_status fl_variant_bind_rule(const fl_rule *rule, const fl_node *node, fl_resolved *resolved,
                               fl_variant **out, fl_error *error) {
    *out = NULL;
    const fl_rule *const rules[] = {rule, NULL};
    FL_TRY(fl_rule_list_check(rules, error));
    const fl_node *named = fl_node_get(node, "rule");
    if (is_given(named) && (named->kind != FL_NODE_SCALAR || strcmp(named->text, rule->name) != 0)) {
        return fl_node_error(named, error, "rule: expected %s", rule->name);
    }
    fl_variant *variant = NULL;
    FL_TRY(FL_ALLOCATE(&variant, 1, error));
    variant->rule = rule;
    fl_variant_keys keys = {0};
    fl_status status = bind_into(variant, node, &keys, resolved, error);
    fl_options_release(variant_options, VARIANT_OPTION_COUNT, &keys);
    if (status != FL_OK) {
        fl_variant_destroy(variant);
        return status;
    }
    *out = variant;
    return FL_OK;
}

static fl_status find_rule(const fl_node *node, const fl_rule **out, fl_error *error) {
    const fl_node *named = fl_node_get(node, "rule");
    if (!is_given(named)) {
        *out = fl_rule_find("softmax");
        return FL_OK;
    }
    if (named->kind != FL_NODE_SCALAR) return fl_node_error(named, error, "rule: expected a name");
    *out = fl_rule_find(named->text);
    if (*out != NULL) return FL_OK;
    const char *names[128];
    size_t count = 0;
    for (; count < 128 && fl_rule_registry[count] != NULL; count++)
        names[count] = fl_rule_registry[count]->name;
    return fl_unknown_name(named, "rule: there is no rule", named->text, names, count, error);
}

fl_status fl_variant_bind(const fl_node *node, fl_resolved *resolved, fl_variant **out, fl_error *error) {
    *out = NULL;
    if (is_given(node) && node->kind != FL_NODE_MAPPING) {
        return fl_node_error(node, error, "variant: expected a mapping");
    }
    const fl_rule *rule = NULL;
    FL_TRY(find_rule(node, &rule, error));
    return fl_variant_bind_rule(rule, node, resolved, out, error);
}

void fl_variant_destroy(fl_variant *variant) {
    if (variant == NULL) return;
    if (variant->rule_options != NULL) {
        fl_options_release(variant->rule->options, variant->rule->option_count, variant->rule_options);
        fl_memory_free(variant->rule_options);
    }
    fl_memory_free(variant->softmax_layers);
    fl_memory_free(variant->mechanism_path);
    fl_memory_free(variant);
}

bool fl_variant_has_linear(const fl_variant *variant) {
    return !variant->rule->stateless;
}

bool fl_variant_has_exact_set(const fl_variant *variant) {
    return variant->window > 0 || variant->sinks > 0 || variant->cache_budget > 0;
}

/* Equal sinks, window and cache. */
static bool same_exact_tokens(const fl_variant *a, const fl_variant *b) {
    bool same_cache = a->cache_budget == b->cache_budget && (a->cache_budget == 0 || a->route == b->route);
    return a->sinks == b->sinks && a->window == b->window && same_cache;
}

bool fl_variant_same_exact_set(const fl_variant *variant, const fl_variant *other) {
    if (variant->lora_rank > 0 || other->lora_rank > 0) return false; /* each has its own adapters */
    if (!same_exact_tokens(variant, other) || variant->softmax_hardest != other->softmax_hardest)
        return false;
    if (variant->softmax_layer_count != other->softmax_layer_count) return false;
    for (size_t i = 0; i < variant->softmax_layer_count; i++) {
        if (variant->softmax_layers[i] != other->softmax_layers[i]) return false;
    }
    return true;
}

bool fl_variant_shares_exact_set(const fl_variant *variant, const fl_variant *other) {
    return fl_variant_has_exact_set(variant) && variant->cache_budget == 0 &&
           same_exact_tokens(variant, other);
}

bool fl_variant_layer_is_softmax(const fl_variant *variant, size_t layer) {
    return strcmp(variant->rule->name, "softmax") == 0 || is_listed(variant, layer);
}

fl_status fl_variant_set_softmax_layers(fl_variant *variant, const size_t *layers, size_t count,
                                        fl_error *error) {
    size_t *copy = NULL;
    FL_TRY(FL_ALLOCATE(&copy, count, error));
    if (count > 0) memcpy(copy, layers, count * sizeof *copy);
    qsort(copy, count, sizeof *copy, compare_sizes);
    fl_memory_free(variant->softmax_layers);
    variant->softmax_layers = copy;
    variant->softmax_layer_count = count;
    return FL_OK;
}

static fl_status fit_layers(fl_variant *variant, size_t layers, fl_error *error) {
    if (variant->softmax_hardest > layers) {
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "softmax_layers: hardest %zu, but the model has %zu layers",
                            variant->softmax_hardest, layers);
    }
    for (size_t i = 0; i < variant->softmax_layer_count; i++) {
        if (variant->softmax_layers[i] >= layers) {
            return fl_error_set(error, FL_ERROR_ARGUMENT,
                                "softmax_layers: there is no layer %zu, the model has %zu",
                                variant->softmax_layers[i], layers);
        }
    }
    if (variant->softmax_every == 0) {
        if (variant->softmax_layer_count > 0) {
            qsort(variant->softmax_layers, variant->softmax_layer_count, sizeof(size_t), compare_sizes);
        }
        return FL_OK;
    }
    size_t count = layers / variant->softmax_every;
    size_t *list = NULL;
    FL_TRY(FL_ALLOCATE(&list, count, error));
    for (size_t i = 0; i < count; i++) list[i] = (i + 1) * variant->softmax_every - 1;
    fl_status status = fl_variant_set_softmax_layers(variant, list, count, error);
    fl_memory_free(list);
    return status;
}

fl_status fl_variant_fit(fl_variant *variant, const fl_attention_shape *shape, size_t layers,
                         fl_error *error) {
    const fl_rule *rule = variant->rule;
    if (shape->kv_heads == 0 || shape->query_heads % shape->kv_heads != 0 || shape->head_dim == 0) {
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "variant: %zu query heads over %zu KV heads of %zu channels", shape->query_heads,
                            shape->kv_heads, shape->head_dim);
    }
    if (shape->head_dim > FL_RULE_MAX_HEAD_DIM) {
        return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                            "variant: head dimension %zu, at most %d is supported", shape->head_dim,
                            (int)FL_RULE_MAX_HEAD_DIM);
    }
    if (fl_rule_micro_steps(rule, variant->rule_options) > FL_RULE_MAX_MICRO_STEPS) {
        return fl_error_set(error, FL_ERROR_UNSUPPORTED, "variant: rule %s: at most %d micro steps a token",
                            rule->name, (int)FL_RULE_MAX_MICRO_STEPS);
    }
    if (variant->scale_by_dim) variant->scale = 1.0 / sqrt((double)shape->head_dim);
    if (rule->check != NULL) {
        fl_status status = rule->check(shape, variant->rule_options, error);
        if (status != FL_OK) return fl_error_prepend(error, status, "variant: rule %s", rule->name);
    }
    return fit_layers(variant, layers, error);
}

fl_status fl_variant_linear_off(const fl_variant *variant, fl_variant **out, fl_error *error) {
    *out = NULL;
    fl_variant *copy = NULL;
    FL_TRY(FL_ALLOCATE(&copy, 1, error));
    *copy = *variant;
    copy->rule = fl_rule_find("none");
    copy->rule_options = NULL;
    copy->transition = copy->rule->transition;
    copy->normaliser = false;
    copy->merge = FL_MERGE_SUM;
    copy->conv_kernel = 0;
    copy->mechanism_path = NULL;
    copy->softmax_layers = NULL;
    fl_status status =
        fl_variant_set_softmax_layers(copy, variant->softmax_layers, variant->softmax_layer_count, error);
    if (status != FL_OK) {
        fl_variant_destroy(copy);
        return status;
    }
    *out = copy;
    return FL_OK;
}
