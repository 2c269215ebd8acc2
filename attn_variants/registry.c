#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variants/attn_variant.h"

/* One line a rule; the order is that of `frostline variants`. */
#define FL_RULES(RULE)                                                                                       \
    RULE(softmax)                                                                                            \
    RULE(none)                                                                                               \
    RULE(linear)                                                                                             \
    RULE(gated)                                                                                              \
    RULE(decay)                                                                                              \
    RULE(gla)                                                                                                \
    RULE(kgla)                                                                                               \
    RULE(delta)                                                                                              \
    RULE(gated_delta)                                                                                        \
    RULE(kda)                                                                                                \
    RULE(hedgehog)                                                                                           \
    RULE(taylor)                                                                                             \
    RULE(random_features)                                                                                    \
    RULE(retnet)                                                                                             \
    RULE(ssd)                                                                                                \
    RULE(delta_product)                                                                                      \
    RULE(longhorn)                                                                                           \
    RULE(rwkv7)                                                                                              \
    RULE(comba)                                                                                              \
    RULE(gdn2)                                                                                               \
    RULE(oja)                                                                                                \
    RULE(s4d)                                                                                                \
    RULE(mamba)                                                                                              \
    RULE(hgrn2)                                                                                              \
    RULE(lightning)                                                                                          \
    RULE(rebased)                                                                                            \
    RULE(dpfp)                                                                                               \
    RULE(rodimus)                                                                                            \
    RULE(rwkv6)                                                                                              \
    RULE(mlstm)                                                                                              \
    RULE(gsa)

#define DECLARE(name) extern const fl_rule fl_rule_##name;
#define LIST(name) &fl_rule_##name,

FL_RULES(DECLARE)

const fl_rule *const fl_rule_registry[] = {FL_RULES(LIST) NULL};

const fl_rule *fl_rule_find(const char *name) {
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        if (strcmp(fl_rule_registry[i]->name, name) == 0) return fl_rule_registry[i];
    }
    return NULL;
}

size_t fl_rule_key_dim(const fl_rule *rule, size_t head_dim, const void *options) {
    return rule->key_dim != NULL ? rule->key_dim(head_dim, options) : head_dim;
}

size_t fl_rule_micro_steps(const fl_rule *rule, const void *options) {
    return rule->micro_steps != NULL ? rule->micro_steps(options) : 1;
}

bool fl_rule_positive(const fl_rule *rule, const void *options) {
    return rule->positive != NULL ? rule->positive(options) : rule->shared_normaliser;
}

size_t fl_rule_state_floats(const fl_rule *rule, size_t head_dim, const void *options) {
    if (rule->stateless) return 0;
    return fl_rule_is_own(rule, options) ? rule->own.state_floats(head_dim, options)
                                         : head_dim * fl_rule_key_dim(rule, head_dim, options);
}

bool fl_rule_is_own(const fl_rule *rule, const void *options) {
    return rule->own.write != NULL && (rule->own.used == NULL || rule->own.used(options));
}

bool fl_rule_takes_beta(const fl_rule *rule, const void *options) {
    return rule->beta && (rule->takes_beta == NULL || rule->takes_beta(options));
}

bool fl_rule_factor_is_wide(const fl_rule_factor *factor) {
    return strpbrk(factor->axes, "DS") != NULL;
}

bool fl_rule_parameter_used(const fl_rule *rule, size_t index, const void *options) {
    const fl_rule_parameter *parameter = &rule->parameters[index];
    return parameter->used == NULL || parameter->used(options);
}

size_t fl_rule_factor_width(const fl_rule *rule, size_t index, size_t head_dim, const void *options) {
    const fl_rule_factor *factor = &rule->factors[index];
    if (factor->used != NULL && !factor->used(options)) return 0;
    size_t width = 1;
    for (const char *letter = factor->axes; *letter != '\0'; letter++) {
        if (*letter == 'D') width *= head_dim;
        if (*letter == 'S') width *= rule->slots(options);
        if (*letter == 'M') width *= fl_rule_micro_steps(rule, options);
    }
    return width;
}

static bool is_number(const char *text, double *value) {
    char *end = NULL;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*value);
}

static bool choice_known(const fl_option *option) {
    for (size_t i = 0; option->choices != NULL && option->choices[i] != NULL; i++) {
        if (strcmp(option->choices[i], option->default_text) == 0) return true;
    }
    return false;
}

/* NULL when the option is sound, else what is wrong with it. */
static const char *option_fault(const fl_rule *rule, const fl_option *option) {
    if (option->key == NULL || option->key[0] == '\0') return "an option without a key";
    if (option->help == NULL) return "an option without help";
    if (option->offset >= rule->options_bytes) return "an option outside its struct";
    if (option->default_text == NULL || strcmp(option->default_text, "!") == 0) return NULL;
    double value = 0.0;
    switch (option->type) {
    case FL_OPTION_BOOL:
        return strcmp(option->default_text, "true") == 0 || strcmp(option->default_text, "false") == 0
                   ? NULL
                   : "a default that is neither true nor false";
    case FL_OPTION_SIZE:
    case FL_OPTION_INTEGER:
    case FL_OPTION_SEED:
    case FL_OPTION_NUMBER:
        if (!is_number(option->default_text, &value)) return "a default that is no number";
        if ((option->minimum != 0.0 || option->maximum != 0.0) &&
            (value < option->minimum || value > option->maximum)) {
            return "a default outside its range";
        }
        return NULL;
    case FL_OPTION_CHOICE:
        return choice_known(option) ? NULL : "a default that is not among its choices";
    case FL_OPTION_STRING:
    case FL_OPTION_SIZES:
    case FL_OPTION_NODE:
        return NULL;
    }
    return "an option of unknown type";
}

static const char *parameter_fault(const fl_rule_parameter *parameter) {
    if (parameter->name == NULL || parameter->name[0] == '\0') return "a parameter without a name";
    if (parameter->help == NULL) return "a parameter without help";
    if (parameter->axes == NULL || parameter->axes[0] != 'H') return "a parameter whose first axis is not H";
    if (strlen(parameter->axes) > 3 || strspn(parameter->axes, "HDKM1") != strlen(parameter->axes)) {
        return "a parameter with unknown or too many axes";
    }
    double value = 0.0;
    static const char *const inits[] = {"uniform_fan_in", "normal",      "identity",
                                        "log_counting",   "pi_counting", "log_step"};
    for (size_t i = 0; parameter->init != NULL && i < sizeof inits / sizeof inits[0]; i++) {
        if (strcmp(parameter->init, inits[i]) == 0) return NULL;
    }
    if (parameter->init == NULL || !is_number(parameter->init, &value)) return "a parameter of unknown init";
    return NULL;
}

static const char *factor_fault(const fl_rule_factor *factor) {
    static const char *const axes[] = {"1", "D", "M", "MD", "S"};
    if (factor->name == NULL || factor->name[0] == '\0') return "a factor without a name";
    if (factor->help == NULL) return "a factor without help";
    if (factor->activation == FL_ACTIVATE_UNSET) return "a factor without an activation";
    if (!isfinite(factor->bias)) return "a factor with a bias that is not finite";
    for (size_t i = 0; factor->axes != NULL && i < sizeof axes / sizeof axes[0]; i++) {
        if (strcmp(factor->axes, axes[i]) == 0) return NULL;
    }
    return "a factor with unknown axes";
}

/* An activation left out would else be whatever comes first in the enumeration. */
static const char *activation_fault(const fl_rule *rule) {
    if (rule->gate != FL_GATE_NONE && rule->gate_activation == FL_ACTIVATE_UNSET)
        return "a gate, and no gate_activation";
    if (rule->gate == FL_GATE_NONE && rule->gate_activation != FL_ACTIVATE_UNSET)
        return "a gate_activation, and no gate";
    if (rule->beta && rule->beta_activation == FL_ACTIVATE_UNSET) return "a beta, and no beta_activation";
    if (!rule->beta && rule->beta_activation != FL_ACTIVATE_UNSET) return "a beta_activation, and no beta";
    return NULL;
}

static const char *slot_fault(const fl_rule *rule) {
    bool own = rule->own.write != NULL || rule->own.read != NULL || rule->own.state_floats != NULL;
    if (rule->summary == NULL || rule->equation == NULL || rule->source == NULL) {
        return "no summary, equation or source";
    }
    if (!isfinite(rule->default_gate_bias) || !isfinite(rule->default_beta_bias)) {
        return "a default bias that is not finite";
    }
    if (rule->stateless) {
        return rule->prepare != NULL || own || rule->gate != FL_GATE_NONE || rule->beta
                   ? "stateless, yet with hooks, gate or beta"
                   : NULL;
    }
    if (own) {
        if (rule->own.write == NULL || rule->own.read == NULL || rule->own.state_floats == NULL) {
            return "own hooks that are not complete (state_floats, write, read)";
        }
        if ((rule->own.write_backward == NULL) != (rule->own.read_backward == NULL))
            return "only one of write_backward and read_backward";
        if (rule->normaliser) return "both a normaliser and own hooks";
        if ((rule->own.bonus != NULL) != (rule->own.bonus_backward != NULL))
            return "only one of own.bonus and own.bonus_backward";
        if (rule->own.used == NULL)
            return rule->prepare != NULL ? "both `prepare` and own hooks, and no own.used to choose" : NULL;
    }
    if (rule->normaliser && (rule->bonus || rule->reads_before)) return "both a normaliser and a bonus";
    if (rule->prepare == NULL || rule->prepare_backward == NULL) return "no prepare or no prepare_backward";
    if (rule->normaliser && rule->micro_steps != NULL) return "both a normaliser and micro steps";
    return NULL;
}

static fl_status rule_check(const fl_rule *rule, fl_error *error) {
    if (rule->name == NULL || rule->name[0] == '\0') {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "a rule without a name is registered");
    }
    if (rule->abi != FL_RULE_ABI) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "rule %s: abi %d, this build wants %d", rule->name,
                            rule->abi, (int)FL_RULE_ABI);
    }
    const char *fault = slot_fault(rule);
    if (fault == NULL) fault = activation_fault(rule);
    if (fault == NULL && rule->parameter_count > FL_RULE_MAX_PARAMETERS) fault = "too many parameters";
    for (size_t i = 0; fault == NULL && i < rule->option_count; i++)
        fault = option_fault(rule, &rule->options[i]);
    for (size_t i = 0; fault == NULL && i < rule->parameter_count; i++) {
        fault = parameter_fault(&rule->parameters[i]);
    }
    if (fault == NULL && rule->factor_count > FL_RULE_MAX_FACTORS) fault = "too many factors";
    for (size_t i = 0; fault == NULL && i < rule->factor_count; i++) fault = factor_fault(&rule->factors[i]);
    if (fault != NULL) return fl_error_set(error, FL_ERROR_ARGUMENT, "rule %s: %s", rule->name, fault);
    return FL_OK;
}

fl_status fl_rule_list_check(const fl_rule *const *rules, fl_error *error) {
    for (size_t i = 0; rules[i] != NULL; i++) {
        FL_TRY(rule_check(rules[i], error));
        for (size_t j = 0; j < i; j++) {
            if (strcmp(rules[i]->name, rules[j]->name) == 0) {
                return fl_error_set(error, FL_ERROR_ARGUMENT, "rule %s is registered twice", rules[i]->name);
            }
        }
    }
    return FL_OK;
}

fl_status fl_rule_registry_check(fl_error *error) {
    return fl_rule_list_check(fl_rule_registry, error);
}
