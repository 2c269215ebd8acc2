#include "attn_variants/mechanism.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/base/random.h"
#include "harness/model/checkpoint.h"
#include "harness/model/fault_list.h"

enum { FILE_NAME_BYTES = 96 };

static const char LORA_PREFIX[] = "lora.";

/* How a tensor starts. `init` is a rule parameter's word or number. */
typedef struct fl_tensor_start {
    const char *init;
    size_t fan_in;
} fl_tensor_start;

typedef struct fl_table_builder {
    fl_mechanism *mechanism;
    fl_tensor_start starts[FL_MECHANISM_MAX_TENSORS];
    char numbers[FL_MECHANISM_MAX_TENSORS][32];
} fl_table_builder;

static void add_tensor(fl_table_builder *builder, const char *name, size_t rank, const size_t *shape,
                       const char *init, size_t fan_in) {
    fl_mechanism *mechanism = builder->mechanism;
    fl_mechanism_tensor *tensor = &mechanism->tensors[mechanism->tensor_count];
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->rank = rank;
    tensor->offset = mechanism->layer_floats;
    tensor->count = 1;
    for (size_t i = 0; i < rank; i++) {
        tensor->shape[i] = shape[i];
        tensor->count *= shape[i];
    }
    builder->starts[mechanism->tensor_count] = (fl_tensor_start){init, fan_in};
    mechanism->layer_floats += tensor->count;
    mechanism->tensor_count++;
}

static void add_number(fl_table_builder *builder, const char *name, size_t count, double value) {
    char *text = builder->numbers[builder->mechanism->tensor_count];
    snprintf(text, sizeof builder->numbers[0], "%.17g", value);
    add_tensor(builder, name, 1, &count, text, 1);
}

static void add_gate_bias(fl_table_builder *builder, size_t count) {
    if (builder->mechanism->variant->gate_bias_published)
        add_tensor(builder, "gate.bias", 1, &count, "softplus_step", 1);
    else
        add_number(builder, "gate.bias", count, builder->mechanism->variant->gate_bias);
}

static void add_gates(fl_table_builder *builder) {
    const fl_variant *variant = builder->mechanism->variant;
    const fl_attention_shape *shape = &builder->mechanism->shape;
    size_t model_dim = shape->model_dim, heads = shape->query_heads, channels = heads * shape->head_dim;
    if (variant->rule->gate == FL_GATE_CHANNEL && variant->gate_source == FL_GATE_PROJECTED) {
        add_tensor(builder, "gate.w1", 2, (size_t[]){model_dim, variant->gate_rank}, "uniform_fan_in",
                   model_dim);
        add_tensor(builder, "gate.w2", 2, (size_t[]){variant->gate_rank, channels}, "uniform_fan_in",
                   variant->gate_rank);
        add_gate_bias(builder, channels);
    }
    if (variant->rule->gate == FL_GATE_SCALAR && variant->gate_source == FL_GATE_PROJECTED) {
        add_tensor(builder, "gate.weight", 2, (size_t[]){model_dim, heads}, "uniform_fan_in", model_dim);
        add_gate_bias(builder, heads);
    }
    if (variant->rule->gate != FL_GATE_NONE && variant->gate_source == FL_GATE_PROJECTED &&
        variant->gate_form == FL_GATE_SOFTPLUS)
        add_tensor(builder, "gate.a_log", 1, &heads,
                   variant->rule->gate == FL_GATE_SCALAR ? "log_rate_from_0" : "log_rate_from_1", 1);
    if (variant->takes_beta && variant->beta_source == FL_GATE_PROJECTED) {
        add_tensor(builder, "beta.weight", 2, (size_t[]){model_dim, heads}, "uniform_fan_in", model_dim);
        add_number(builder, "beta.bias", heads, variant->beta_bias);
    }
}

static void add_factors(fl_table_builder *builder) {
    const fl_variant *variant = builder->mechanism->variant;
    const fl_rule *rule = variant->rule;
    const fl_attention_shape *shape = &builder->mechanism->shape;
    for (size_t i = 0; i < rule->factor_count; i++) {
        size_t width = fl_rule_factor_width(rule, i, shape->head_dim, variant->rule_options);
        size_t columns = shape->query_heads * width, rank = variant->factor_rank;
        bool wide = fl_rule_factor_is_wide(&rule->factors[i]);
        char name[sizeof builder->mechanism->tensors[0].name];
        if (width == 0) continue;
        snprintf(name, sizeof name, "%s.%s", rule->factors[i].name, wide ? "w1" : "weight");
        add_tensor(builder, name, 2, (size_t[]){shape->model_dim, wide ? rank : columns}, "uniform_fan_in",
                   shape->model_dim);
        snprintf(name, sizeof name, "%s.w2", rule->factors[i].name);
        if (wide) add_tensor(builder, name, 2, (size_t[]){rank, columns}, "uniform_fan_in", rank);
        snprintf(name, sizeof name, "%s.bias", rule->factors[i].name);
        add_number(builder, name, columns, rule->factors[i].bias);
    }
}

static void add_convolutions(fl_table_builder *builder) {
    const fl_variant *variant = builder->mechanism->variant;
    size_t channels = builder->mechanism->shape.query_heads * builder->mechanism->shape.head_dim;
    size_t kernel = variant->conv_kernel;
    if (kernel == 0) return;
    bool torch = variant->conv_init == FL_CONV_TORCH;
    static const char *const names[3][2] = {
        {"conv.q.weight", "conv.q.bias"}, {"conv.k.weight", "conv.k.bias"}, {"conv.v.weight", "conv.v.bias"}};
    for (size_t i = 0; i < 3; i++) {
        add_tensor(builder, names[i][0], 2, (size_t[]){channels, kernel},
                   torch ? "uniform_fan_in" : "current_token", kernel);
        add_tensor(builder, names[i][1], 1, &channels, torch ? "uniform_fan_in" : "0", kernel);
    }
}

static void add_lora(fl_table_builder *builder) {
    const fl_variant *variant = builder->mechanism->variant;
    const fl_attention_shape *shape = &builder->mechanism->shape;
    size_t query = shape->query_heads * shape->head_dim, key = shape->kv_heads * shape->head_dim;
    const size_t widths[FL_LORA_TARGETS][2] = {[FL_LORA_QUERY] = {shape->model_dim, query},
                                               [FL_LORA_KEY] = {shape->model_dim, key},
                                               [FL_LORA_VALUE] = {shape->model_dim, key},
                                               [FL_LORA_OUTPUT] = {query, shape->model_dim}};
    size_t rank = variant->lora_rank;
    for (size_t i = 0; rank > 0 && i < FL_LORA_TARGETS; i++) {
        if (!variant->lora_targets[i]) continue;
        const char *target = fl_lora_target_name((fl_lora_target)i);
        char name[sizeof builder->mechanism->tensors[0].name];
        snprintf(name, sizeof name, "%s%s.a", LORA_PREFIX, target);
        add_tensor(builder, name, 2, (size_t[]){widths[i][0], rank}, "uniform_fan_in", widths[i][0]);
        snprintf(name, sizeof name, "%s%s.b", LORA_PREFIX, target);
        add_tensor(builder, name, 2, (size_t[]){rank, widths[i][1]}, "0", rank);
    }
}

static size_t axis_extent(const fl_mechanism *mechanism, char letter) {
    const fl_variant *variant = mechanism->variant;
    switch (letter) {
    case 'H':
        return mechanism->shape.query_heads;
    case 'D':
        return mechanism->shape.head_dim;
    case 'K':
        return fl_rule_key_dim(variant->rule, mechanism->shape.head_dim, variant->rule_options);
    case 'M':
        return fl_rule_micro_steps(variant->rule, variant->rule_options);
    default:
        return 1;
    }
}

static void add_rule_parameters(fl_table_builder *builder) {
    const fl_rule *rule = builder->mechanism->variant->rule;
    for (size_t i = 0; i < rule->parameter_count; i++) {
        const fl_rule_parameter *parameter = &rule->parameters[i];
        if (!fl_rule_parameter_used(rule, i, builder->mechanism->variant->rule_options)) continue;
        size_t rank = strlen(parameter->axes);
        size_t shape[3] = {1, 1, 1};
        for (size_t axis = 0; axis < rank; axis++) {
            shape[axis] = axis_extent(builder->mechanism, parameter->axes[axis]);
        }
        add_tensor(builder, parameter->name, rank, shape, parameter->init,
                   rank >= 2 ? shape[rank - 2] : shape[0]);
    }
}

static void build_table(fl_table_builder *builder) {
    add_gates(builder);
    add_convolutions(builder);
    if (fl_merge_has_gamma(builder->mechanism->variant->merge) &&
        fl_variant_has_linear(builder->mechanism->variant)) {
        add_number(builder, "merge.window_factor", builder->mechanism->shape.query_heads,
                   FL_MERGE_WINDOW_FACTOR);
    }
    add_rule_parameters(builder);
    add_factors(builder);
    add_lora(builder);
}

static uint64_t name_number(const char *name) {
    uint64_t number = UINT64_C(0xcbf29ce484222325);
    for (; *name != '\0'; name++) number = (number ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return number;
}

static void fill_identity(const fl_mechanism_tensor *tensor, float *values) {
    size_t columns = tensor->shape[tensor->rank - 1];
    size_t rows = tensor->rank >= 2 ? tensor->shape[tensor->rank - 2] : 1;
    for (size_t i = 0; i < tensor->count; i++) {
        values[i] = i % columns == (i / columns) % rows ? 1.0f : 0.0f;
    }
}

/* Evenly between the logs of 0.001 and 0.1, where the published layers draw their step sizes. */
static double draw_log_step(fl_random *random) {
    return log(0.001) + fl_random_uniform(random) * (log(0.1) - log(0.001));
}

static void fill_counting(const fl_mechanism_tensor *tensor, bool logs, float *values) {
    static const double pi = 3.14159265358979323846;
    size_t columns = tensor->shape[tensor->rank - 1];
    for (size_t i = 0; i < tensor->count; i++)
        values[i] = (float)(logs ? log(1.0 + (double)(i % columns)) : pi * (double)(i % columns));
}

static void fill_current_token(const fl_mechanism_tensor *tensor, float *values) {
    size_t kernel = tensor->shape[1];
    for (size_t i = 0; i < tensor->count; i++) values[i] = i % kernel == kernel - 1 ? 1.0f : 0.0f;
}

static void initialise_tensor(const fl_mechanism *mechanism, size_t layer, const fl_mechanism_tensor *tensor,
                              const fl_tensor_start *start) {
    float *values = mechanism->layer[layer] + tensor->offset;
    fl_random random;
    fl_random_seed(&random, mechanism->variant->seed, fl_random_hash(layer, name_number(tensor->name), 0, 0));
    if (strcmp(start->init, "uniform_fan_in") == 0) {
        double bound = 1.0 / sqrt((double)(start->fan_in > 0 ? start->fan_in : 1));
        for (size_t i = 0; i < tensor->count; i++) {
            values[i] = (float)(bound * (2.0 * fl_random_uniform(&random) - 1.0));
        }
    } else if (strcmp(start->init, "normal") == 0) {
        for (size_t i = 0; i < tensor->count; i++) values[i] = (float)fl_random_normal(&random);
    } else if (strcmp(start->init, "identity") == 0) {
        fill_identity(tensor, values);
    } else if (strcmp(start->init, "log_counting") == 0 || strcmp(start->init, "pi_counting") == 0) {
        fill_counting(tensor, start->init[0] == 'l', values);
    } else if (strcmp(start->init, "log_step") == 0) {
        for (size_t i = 0; i < tensor->count; i++) values[i] = (float)draw_log_step(&random);
    } else if (strcmp(start->init, "softplus_step") == 0) { /* softplus(x) = s: x = s + log(1 - exp(-s)) */
        for (size_t i = 0; i < tensor->count; i++) {
            double step = exp(draw_log_step(&random));
            values[i] = (float)(step + log(-expm1(-step)));
        }
    } else if (strncmp(start->init, "log_rate_from_", 14) == 0) { /* log of a rate drawn evenly up to 16 */
        double least = start->init[14] == '0' ? 0.0 : 1.0;
        for (size_t i = 0; i < tensor->count; i++)
            values[i] = (float)log(fmax(least + fl_random_uniform(&random) * (16.0 - least), 1e-6));
    } else if (strcmp(start->init, "current_token") == 0) {
        fill_current_token(tensor, values);
    } else {
        float value = (float)strtod(start->init, NULL);
        for (size_t i = 0; i < tensor->count; i++) values[i] = value;
    }
}

static fl_status create_layers(fl_table_builder *builder, fl_error *error) {
    fl_mechanism *mechanism = builder->mechanism;
    FL_TRY(FL_ALLOCATE(&mechanism->layer, mechanism->layers, error));
    for (size_t layer = 0; layer < mechanism->layers; layer++) {
        if (fl_variant_layer_is_softmax(mechanism->variant, layer)) continue;
        FL_TRY(FL_ALLOCATE(&mechanism->layer[layer], mechanism->layer_floats, error));
        for (size_t i = 0; i < mechanism->tensor_count; i++) {
            initialise_tensor(mechanism, layer, &mechanism->tensors[i], &builder->starts[i]);
        }
    }
    return FL_OK;
}

fl_status fl_mechanism_create(const fl_variant *variant, const fl_attention_shape *shape, size_t layers,
                              fl_mechanism **out, fl_error *error) {
    *out = NULL;
    fl_mechanism *mechanism = NULL;
    fl_table_builder *builder = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&mechanism, 1, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&builder, 1, error));
    mechanism->variant = variant;
    mechanism->shape = *shape;
    mechanism->layers = layers;
    builder->mechanism = mechanism;
    build_table(builder);
    FL_TRY_DONE(status, create_layers(builder, error));
    if (variant->mechanism_path != NULL) {
        FL_TRY_DONE(status, fl_mechanism_load(mechanism, variant->mechanism_path, error));
    }
done:
    fl_memory_free(builder);
    if (status != FL_OK) {
        fl_mechanism_destroy(mechanism);
        return status;
    }
    *out = mechanism;
    return FL_OK;
}

void fl_mechanism_destroy(fl_mechanism *mechanism) {
    if (mechanism == NULL) return;
    for (size_t i = 0; mechanism->layer != NULL && i < mechanism->layers; i++)
        fl_memory_free(mechanism->layer[i]);
    fl_memory_free(mechanism->layer);
    fl_memory_free(mechanism);
}

/* Files. */

static void file_name(size_t layer, const fl_mechanism_tensor *tensor, char name[FILE_NAME_BYTES]) {
    snprintf(name, FILE_NAME_BYTES, "layers.%zu.%s", layer, tensor->name);
}

static void shape_text(size_t rank, const size_t *shape, char *text, size_t room) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < rank && used < room; i++) {
        used += (size_t)snprintf(text + used, room - used, "[%zu]", shape[i]);
    }
}

static bool shape_agrees(const fl_mechanism_tensor *tensor, const fl_tensor *stored) {
    if (tensor->rank != stored->rank) return false;
    for (size_t i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] != stored->shape[i]) return false;
    }
    return true;
}

/* Which tensor of which layer a file's name means; false when it is none of ours. */
static bool is_expected(const fl_mechanism *mechanism, const char *name) {
    for (size_t layer = 0; layer < mechanism->layers; layer++) {
        if (mechanism->layer[layer] == NULL) continue;
        for (size_t i = 0; i < mechanism->tensor_count; i++) {
            char expected[FILE_NAME_BYTES];
            file_name(layer, &mechanism->tensors[i], expected);
            if (strcmp(expected, name) == 0) return true;
        }
    }
    return false;
}

/* Whether a file leaves a tensor to its initialisation: LoRA, when it holds none at all. */
static bool is_left_out(const fl_checkpoint *file, const fl_mechanism_tensor *tensor) {
    if (!fl_mechanism_tensor_is_lora(tensor)) return false;
    for (size_t i = 0; i < fl_checkpoint_count(file); i++) {
        if (strstr(fl_checkpoint_entry_at(file, i)->tensor.name, ".lora.") != NULL) return false;
    }
    return true;
}

static void check_tensor(const fl_checkpoint *file, const fl_mechanism_tensor *tensor, const char *name,
                         fl_fault_list *faults) {
    char wanted[96], found[96];
    const fl_checkpoint_entry *entry = fl_checkpoint_lookup(file, name);
    if (entry == NULL) {
        fl_fault_list_add(faults, FL_ERROR_FORMAT, "%s is missing", name);
        return;
    }
    if (!shape_agrees(tensor, &entry->tensor)) {
        shape_text(tensor->rank, tensor->shape, wanted, sizeof wanted);
        shape_text(entry->tensor.rank, entry->tensor.shape, found, sizeof found);
        fl_fault_list_add(faults, FL_ERROR_FORMAT, "%s has shape %s, expected %s", name, found, wanted);
    } else if (!fl_checkpoint_entry_is_float(entry)) {
        fl_fault_list_add(faults, FL_ERROR_UNSUPPORTED, "%s has type %s, expected a float type", name,
                          entry->type_name);
    }
}

static void check_values(const fl_mechanism *mechanism, const float *block, size_t layer,
                         fl_fault_list *faults) {
    for (size_t i = 0; i < mechanism->tensor_count; i++) {
        const fl_mechanism_tensor *tensor = &mechanism->tensors[i];
        for (size_t j = 0; j < tensor->count; j++) {
            if (isfinite(block[tensor->offset + j])) continue;
            fl_fault_list_add(faults, FL_ERROR_FORMAT, "layers.%zu.%s holds a value that is not finite",
                              layer, tensor->name);
            break;
        }
    }
}

/* Every value into a fresh block first, so that a bad file leaves the mechanism as it was. */
static fl_status read_layers(const fl_mechanism *mechanism, const fl_checkpoint *file, float **fresh,
                             fl_fault_list *faults, fl_error *error) {
    for (size_t layer = 0; layer < mechanism->layers; layer++) {
        if (mechanism->layer[layer] == NULL) continue;
        FL_TRY(FL_ALLOCATE(&fresh[layer], mechanism->layer_floats, error));
        for (size_t i = 0; i < mechanism->tensor_count; i++) {
            const fl_mechanism_tensor *tensor = &mechanism->tensors[i];
            if (is_left_out(file, tensor)) {
                memcpy(fresh[layer] + tensor->offset, mechanism->layer[layer] + tensor->offset,
                       tensor->count * sizeof(float));
            } else {
                char name[FILE_NAME_BYTES];
                file_name(layer, tensor, name);
                fl_checkpoint_entry_floats(fl_checkpoint_lookup(file, name), fresh[layer] + tensor->offset);
            }
        }
        check_values(mechanism, fresh[layer], layer, faults);
    }
    return FL_OK;
}

static const char *const fit_names[] = {"none", "layers", "network"};

static fl_fit fit_of(const fl_checkpoint *file) {
    const char *name = fl_checkpoint_metadata(file, "fit");
    for (int fit = FL_FIT_NONE; name != NULL && fit < FL_FIT_NETWORK; fit++) {
        if (strcmp(name, fit_names[fit]) == 0) return (fl_fit)fit;
    }
    return FL_FIT_NETWORK;
}

fl_status fl_mechanism_load(fl_mechanism *mechanism, const char *path, fl_error *error) {
    fl_checkpoint *file = NULL;
    float **fresh = NULL;
    fl_fault_list *faults = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_checkpoint_open(path, &file, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&faults, 1, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&fresh, mechanism->layers, error));
    for (size_t layer = 0; layer < mechanism->layers; layer++) {
        if (mechanism->layer[layer] == NULL) continue;
        for (size_t i = 0; i < mechanism->tensor_count; i++) {
            if (is_left_out(file, &mechanism->tensors[i])) continue;
            char name[FILE_NAME_BYTES];
            file_name(layer, &mechanism->tensors[i], name);
            check_tensor(file, &mechanism->tensors[i], name, faults);
        }
    }
    for (size_t i = 0; i < fl_checkpoint_count(file); i++) {
        const char *name = fl_checkpoint_entry_at(file, i)->tensor.name;
        if (!is_expected(mechanism, name)) {
            fl_fault_list_add(faults, FL_ERROR_FORMAT, "%s is not a parameter of rule %s with these options",
                              name, mechanism->variant->rule->name);
        }
    }
    FL_TRY_DONE(status, fl_fault_list_result(faults, path, error));
    FL_TRY_DONE(status, read_layers(mechanism, file, fresh, faults, error));
    FL_TRY_DONE(status, fl_fault_list_result(faults, path, error));
    for (size_t layer = 0; layer < mechanism->layers; layer++) {
        float *old = mechanism->layer[layer];
        mechanism->layer[layer] = fresh[layer];
        fresh[layer] = old;
    }
    mechanism->fit = fit_of(file);
done:
    for (size_t i = 0; fresh != NULL && i < mechanism->layers; i++) fl_memory_free(fresh[i]);
    fl_memory_free(fresh);
    fl_memory_free(faults);
    fl_checkpoint_close(file);
    return status;
}

fl_status fl_mechanism_take(fl_mechanism *mechanism, size_t layer, const fl_checkpoint *file,
                            const char *prefix, fl_error *error) {
    fl_fault_list faults = {0};
    size_t prefix_bytes = strlen(prefix);
    for (size_t i = 0; i < fl_checkpoint_count(file); i++) {
        const fl_checkpoint_entry *entry = fl_checkpoint_entry_at(file, i);
        const char *name = entry->tensor.name;
        if (strncmp(name, prefix, prefix_bytes) != 0) continue;
        const fl_mechanism_tensor *tensor = fl_mechanism_find_tensor(mechanism, name + prefix_bytes);
        if (tensor == NULL) {
            fl_fault_list_add(&faults, FL_ERROR_FORMAT, "%s is not a parameter of rule %s with these options",
                              name, mechanism->variant->rule->name);
        } else {
            size_t before = faults.count;
            check_tensor(file, tensor, name, &faults);
            if (faults.count == before)
                fl_checkpoint_entry_floats(entry, mechanism->layer[layer] + tensor->offset);
        }
    }
    check_values(mechanism, mechanism->layer[layer], layer, &faults);
    return fl_fault_list_result(&faults, fl_checkpoint_file_path(file, 0), error);
}

static size_t linearised_layers(const fl_mechanism *mechanism) {
    size_t count = 0;
    for (size_t i = 0; i < mechanism->layers; i++) count += mechanism->layer[i] != NULL;
    return count;
}

fl_status fl_mechanism_save(const fl_mechanism *mechanism, const char *path, fl_error *error) {
    size_t count = linearised_layers(mechanism) * mechanism->tensor_count, next = 0;
    fl_checkpoint_write_tensor *tensors = NULL;
    char(*names)[FILE_NAME_BYTES] = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&tensors, count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&names, count, error));
    for (size_t layer = 0; layer < mechanism->layers; layer++) {
        if (mechanism->layer[layer] == NULL) continue;
        for (size_t i = 0; i < mechanism->tensor_count; i++, next++) {
            const fl_mechanism_tensor *tensor = &mechanism->tensors[i];
            file_name(layer, tensor, names[next]);
            tensors[next] = (fl_checkpoint_write_tensor){
                .name = names[next], .data = mechanism->layer[layer] + tensor->offset, .rank = tensor->rank};
            memcpy(tensors[next].shape, tensor->shape, tensor->rank * sizeof tensor->shape[0]);
        }
    }
    const char *keys[] = {"fit", "format", "rule"};
    const char *values[] = {fit_names[mechanism->fit], "frostline mechanism", mechanism->variant->rule->name};
    status = fl_checkpoint_write_safetensors(path, tensors, count, keys, values, 3, error);
done:
    fl_memory_free(names);
    fl_memory_free(tensors);
    return status;
}

/* Looking up. */

const fl_mechanism_tensor *fl_mechanism_find_tensor(const fl_mechanism *mechanism, const char *name) {
    for (size_t i = 0; i < mechanism->tensor_count; i++) {
        if (strcmp(mechanism->tensors[i].name, name) == 0) return &mechanism->tensors[i];
    }
    return NULL;
}

float *fl_mechanism_find(const fl_mechanism *mechanism, size_t layer, const char *name) {
    const fl_mechanism_tensor *tensor = fl_mechanism_find_tensor(mechanism, name);
    if (tensor == NULL || layer >= mechanism->layers || mechanism->layer[layer] == NULL) return NULL;
    return mechanism->layer[layer] + tensor->offset;
}

bool fl_mechanism_tensor_is_lora(const fl_mechanism_tensor *tensor) {
    return strncmp(tensor->name, LORA_PREFIX, sizeof LORA_PREFIX - 1) == 0;
}

size_t fl_mechanism_parameter_count(const fl_mechanism *mechanism) {
    return linearised_layers(mechanism) * mechanism->layer_floats;
}

/* A chain: each link is the hash of the link before it, the tensor's name and the hash of its values. */
fl_hash fl_mechanism_hash(const fl_mechanism *mechanism) {
    struct {
        fl_hash before, values;
        char name[FILE_NAME_BYTES];
    } link;
    memset(&link, 0, sizeof link);
    for (size_t layer = 0; layer < mechanism->layers; layer++) {
        if (mechanism->layer[layer] == NULL) continue;
        for (size_t i = 0; i < mechanism->tensor_count; i++) {
            const fl_mechanism_tensor *tensor = &mechanism->tensors[i];
            memset(link.name, 0, sizeof link.name);
            file_name(layer, tensor, link.name);
            link.values =
                fl_hash_bytes(mechanism->layer[layer] + tensor->offset, tensor->count * sizeof(float));
            link.before = fl_hash_bytes(&link, sizeof link);
        }
    }
    return fl_hash_bytes(&link, sizeof link);
}
