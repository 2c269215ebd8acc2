#include "attn_variants/ablation.h"

#include <string.h>

#include "harness/base/memory.h"

const char *const fl_branch_names[] = {"linear", "exact", "convolution", "gate", NULL};

static fl_status copy_option(const fl_option *option, const void *from, void *to, fl_error *error) {
    if (option->type == FL_OPTION_STRING) {
        char *const *text = (char *const *)((const char *)from + option->offset);
        char **copy = (char **)((char *)to + option->offset);
        return *text == NULL ? FL_OK : fl_memory_copy_string(copy, *text, error);
    }
    if (option->type == FL_OPTION_SIZES) {
        const fl_size_list *list = (const fl_size_list *)((const char *)from + option->offset);
        fl_size_list *copy = (fl_size_list *)((char *)to + option->offset);
        FL_TRY(FL_ALLOCATE(&copy->values, list->count, error));
        copy->count = list->count;
        if (list->count > 0) memcpy(copy->values, list->values, list->count * sizeof *list->values);
    }
    return FL_OK;
}

/* The options struct byte by byte; what it owns is copied one by one after being cleared. */
static fl_status copy_rule_options(const fl_rule *rule, const void *from, void **out, fl_error *error) {
    if (from == NULL) return FL_OK;
    FL_TRY(fl_memory_allocate(out, 1, rule->options_bytes, error));
    memcpy(*out, from, rule->options_bytes);
    for (size_t i = 0; i < rule->option_count; i++) {
        void *member = (char *)*out + rule->options[i].offset;
        if (rule->options[i].type == FL_OPTION_STRING) memset(member, 0, sizeof(char *));
        if (rule->options[i].type == FL_OPTION_SIZES) memset(member, 0, sizeof(fl_size_list));
    }
    for (size_t i = 0; i < rule->option_count; i++) FL_TRY(copy_option(&rule->options[i], from, *out, error));
    return FL_OK;
}

fl_status fl_variant_copy(const fl_variant *variant, fl_variant **out, fl_error *error) {
    *out = NULL;
    fl_variant *copy = NULL;
    FL_TRY(FL_ALLOCATE(&copy, 1, error));
    *copy = *variant;
    copy->rule_options = NULL;
    copy->softmax_layers = NULL;
    copy->mechanism_path = NULL;
    fl_status status = copy_rule_options(variant->rule, variant->rule_options, &copy->rule_options, error);
    if (status == FL_OK) {
        status =
            fl_variant_set_softmax_layers(copy, variant->softmax_layers, variant->softmax_layer_count, error);
    }
    if (status == FL_OK && variant->mechanism_path != NULL) {
        status = fl_memory_copy_string(&copy->mechanism_path, variant->mechanism_path, error);
    }
    if (status != FL_OK) {
        fl_variant_destroy(copy);
        return status;
    }
    *out = copy;
    return FL_OK;
}

static bool has_branch(const fl_variant *variant, fl_branch branch) {
    if (!fl_variant_has_linear(variant)) return false;
    switch (branch) {
    case FL_BRANCH_LINEAR:
        return true;
    case FL_BRANCH_EXACT:
        return fl_variant_has_exact_set(variant);
    case FL_BRANCH_CONVOLUTION:
        return variant->conv_kernel > 0;
    case FL_BRANCH_GATE:
        return variant->rule->gate != FL_GATE_NONE &&
               variant->rule->gate_activation == FL_ACTIVATE_LOG_SIGMOID;
    case FL_BRANCH_COUNT:
        break;
    }
    return false;
}

fl_status fl_variant_ablate(const fl_variant *variant, fl_branch branch, fl_variant **out, fl_error *error) {
    *out = NULL;
    if (!has_branch(variant, branch)) return FL_OK;
    if (branch == FL_BRANCH_LINEAR) return fl_variant_linear_off(variant, out, error);
    fl_variant *copy = NULL;
    FL_TRY(fl_variant_copy(variant, &copy, error));
    fl_memory_free(copy->mechanism_path);
    copy->mechanism_path = NULL;
    if (branch == FL_BRANCH_EXACT) {
        copy->window = copy->sinks = copy->cache_budget = 0;
        copy->merge = FL_MERGE_SUM;
    } else if (branch == FL_BRANCH_CONVOLUTION) {
        copy->conv_kernel = 0;
    } else {
        copy->gate_source = FL_GATE_CONSTANT;
        copy->gate_value = 1.0;
    }
    *out = copy;
    return FL_OK;
}

fl_status fl_mechanism_derive(const fl_mechanism *source, const fl_variant *variant, fl_mechanism **out,
                              fl_error *error) {
    FL_TRY(fl_mechanism_create(variant, &source->shape, source->layers, out, error));
    fl_mechanism *derived = *out;
    for (size_t i = 0; i < derived->tensor_count; i++) {
        const fl_mechanism_tensor *tensor = &derived->tensors[i];
        const fl_mechanism_tensor *original = fl_mechanism_find_tensor(source, tensor->name);
        if (original == NULL || original->count != tensor->count) continue;
        for (size_t layer = 0; layer < derived->layers; layer++) {
            if (derived->layer[layer] == NULL || source->layer[layer] == NULL) continue;
            memcpy(derived->layer[layer] + tensor->offset, source->layer[layer] + original->offset,
                   tensor->count * sizeof(float));
        }
    }
    return FL_OK;
}
