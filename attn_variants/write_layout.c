#include "attn_variants/write_layout.h"

fl_write_layout fl_write_layout_of(const fl_rule *rule, const fl_variant *variant, size_t heads,
                                   size_t micro_steps, size_t key_dim, size_t value_dim) {
    fl_transition transition = variant->transition;
    fl_write_layout layout = {heads, micro_steps, key_dim, value_dim, {0}, 0};
    size_t *width = layout.width;
    width[FL_WRITE_KEY] = key_dim;
    width[FL_WRITE_VALUE] = value_dim;
    if (fl_rule_is_own(rule, variant->rule_options)) {
        width[FL_WRITE_LOG_DECAY] = rule->gate == FL_GATE_NONE     ? 0
                                    : rule->gate == FL_GATE_SCALAR ? 1
                                                                   : key_dim;
        width[FL_WRITE_ERASE_STRENGTH] = variant->takes_beta ? 1 : 0;
        for (size_t i = 0; i < rule->factor_count; i++)
            width[FL_WRITE_FACTORS + i] = fl_rule_factor_width(rule, i, key_dim, variant->rule_options);
    } else {
        if (transition.decay == FL_DECAY_SCALAR) width[FL_WRITE_LOG_DECAY] = 1;
        if (transition.decay == FL_DECAY_CHANNEL) width[FL_WRITE_LOG_DECAY] = key_dim;
        if (transition.erase != FL_ERASE_NONE) width[FL_WRITE_ERASE_STRENGTH] = 1;
        if (transition.erase == FL_ERASE_DIRECTIONS) {
            width[FL_WRITE_ERASE_READ] = key_dim;
            width[FL_WRITE_ERASE_WRITE] = key_dim;
        }
        if (rule->has_write) width[FL_WRITE_WEIGHT] = 1;
    }
    for (int part = 0; part < FL_WRITE_PARTS; part++) {
        width[part] *= micro_steps;
        layout.row_floats += width[part];
    }
    return layout;
}

fl_rule_layer fl_rule_layer_of(const fl_rule *rule, const void *options, size_t layer, size_t layers,
                               size_t heads, size_t head_dim) {
    return (fl_rule_layer){.rule = {.name = rule->name,
                                    .prepare = rule->prepare,
                                    .prepare_backward = rule->prepare_backward,
                                    .init = rule->own.init,
                                    .write = rule->own.write,
                                    .read = rule->own.read,
                                    .write_backward = rule->own.write_backward,
                                    .read_backward = rule->own.read_backward,
                                    .bonus = rule->own.bonus,
                                    .bonus_backward = rule->own.bonus_backward},
                           .options = options,
                           .options_bytes = rule->options_bytes,
                           .parameter_count = rule->parameter_count,
                           .layer = layer,
                           .layers = layers,
                           .heads = heads,
                           .head_dim = head_dim};
}
