#include "harness/engine/mix.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attn_variants/mixer.h"
#include "attn_variants/mixer_backward.h"
#include "harness/base/memory.h"
#include "harness/model/checkpoint.h"

static const char PARAMETER_PREFIX[] = "p.";

enum { MAX_OUTPUTS = 8 + FL_MECHANISM_MAX_TENSORS, NAME_BYTES = 96 };

enum { QUERY = 0, KEY, VALUE, INPUT, STATE, NORMALISER, GRADIENT, INPUTS };

static const char *const input_names[INPUTS] = {"q", "k", "v", "h", "state", "normaliser", "grad_out"};

typedef struct fl_mix {
    const fl_mix_request *request;
    fl_compute *compute;
    fl_checkpoint *file;
    fl_variant *variant;
    fl_mechanism *mechanism;
    fl_mixer *mixer;
    fl_attention_shape shape;
    size_t tokens;
    float *inputs[INPUTS]; /* NULL: not in the file */
    fl_array sent[INPUTS]; /* the same with the instance, of those that a pass reads */
    fl_array initial;      /* [H][state_floats] with the instance, or NULL */
    fl_array result;       /* [T][H][D] with the instance */
    float *output, *state, *normaliser;
    float *gradients[4]; /* of q, k, v, h */
    float *parameters;   /* gradients, laid out as the layer */
} fl_mix;

/* Inputs. */

static size_t elements(const fl_tensor *tensor) {
    size_t count = 1;
    for (size_t i = 0; i < tensor->rank; i++) count *= tensor->shape[i];
    return count;
}

/* NULL when the file has none of that name. */
static const fl_tensor *shape_of(const fl_mix *mix, int input) {
    const fl_checkpoint_entry *entry = fl_checkpoint_lookup(mix->file, input_names[input]);
    return entry == NULL ? NULL : &entry->tensor;
}

static fl_status refuse_strangers(const fl_mix *mix, fl_error *error) {
    for (size_t i = 0; i < fl_checkpoint_count(mix->file); i++) {
        const fl_checkpoint_entry *entry = fl_checkpoint_entry_at(mix->file, i);
        const char *name = entry->tensor.name;
        bool known = strncmp(name, PARAMETER_PREFIX, sizeof PARAMETER_PREFIX - 1) == 0;
        for (int input = 0; input < INPUTS; input++) known = known || strcmp(name, input_names[input]) == 0;
        if (!known) {
            return fl_error_set(error, FL_ERROR_FORMAT,
                                "%s: tensor %s is no input (q, k, v, h, state, normaliser, grad_out, p.*)",
                                mix->request->inputs, name);
        }
        if (!fl_checkpoint_entry_is_float(entry)) {
            return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                                "%s: tensor %s has type %s, expected a float type", mix->request->inputs,
                                name, entry->type_name);
        }
    }
    return FL_OK;
}

static fl_status expect_shape(const fl_mix *mix, int input, const char *letters, size_t rank,
                              const size_t *wanted, fl_error *error) {
    const fl_tensor *tensor = shape_of(mix, input);
    char found[96] = "", numbers[96] = "";
    bool same = tensor == NULL || tensor->rank == rank;
    size_t used = 0, said = 0;
    for (size_t i = 0; tensor != NULL && i < tensor->rank; i++) {
        used += (size_t)snprintf(found + used, sizeof found - used, "[%zu]", tensor->shape[i]);
        same = same && i < rank && tensor->shape[i] == wanted[i];
    }
    for (size_t i = 0; i < rank; i++)
        said += (size_t)snprintf(numbers + said, sizeof numbers - said, "[%zu]", wanted[i]);
    if (same) return FL_OK;
    return fl_error_set(error, FL_ERROR_FORMAT, "%s: %s has shape %s, expected %s = %s", mix->request->inputs,
                        input_names[input], found, letters, numbers);
}

/* Sizes come from q and k; the rest must agree with them. */
static fl_status take_sizes(fl_mix *mix, fl_error *error) {
    const fl_tensor *query = shape_of(mix, QUERY), *key = shape_of(mix, KEY), *input = shape_of(mix, INPUT);
    const char *path = mix->request->inputs;
    for (int needed = QUERY; needed <= VALUE; needed++) {
        if (shape_of(mix, needed) == NULL)
            return fl_error_set(error, FL_ERROR_FORMAT, "%s: tensor %s is missing", path,
                                input_names[needed]);
    }
    if (query->rank != 3 || key->rank != 3 || elements(query) == 0 || elements(key) == 0)
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "%s: q and k are [T][H][D] and [T][Hkv][D], none of them 0", path);
    if (input != NULL && (input->rank != 2 || elements(input) == 0))
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: h is [T][E]", path);
    mix->tokens = query->shape[0];
    mix->shape = (fl_attention_shape){.query_heads = query->shape[1],
                                      .kv_heads = key->shape[1],
                                      .head_dim = query->shape[2],
                                      .model_dim = input != NULL ? input->shape[1] : 1};
    mix->shape.scale = (float)(1.0 / sqrt((double)mix->shape.head_dim));
    size_t keys[3] = {mix->tokens, mix->shape.kv_heads, mix->shape.head_dim};
    size_t queries[3] = {mix->tokens, mix->shape.query_heads, mix->shape.head_dim};
    FL_TRY(expect_shape(mix, KEY, "[T][Hkv][D]", 3, keys, error));
    FL_TRY(expect_shape(mix, VALUE, "[T][Hkv][D]", 3, keys, error));
    FL_TRY(expect_shape(mix, INPUT, "[T][E]", 2, (size_t[]){mix->tokens, mix->shape.model_dim}, error));
    return expect_shape(mix, GRADIENT, "[T][H][D]", 3, queries, error);
}

/* What a pass reads goes to the instance, what it made comes from there. */
static fl_status send(const fl_mix *mix, const float *host, size_t count, fl_array *out, fl_error *error) {
    FL_TRY(fl_compute_floats(mix->compute, count, out, error));
    fl_compute_upload(mix->compute, *out, host, count);
    return FL_OK;
}

static fl_status fetch(const fl_mix *mix, fl_array array, size_t count, float **host, fl_error *error) {
    FL_TRY(FL_ALLOCATE(host, count, error));
    return fl_compute_download(mix->compute, *host, array, count, error);
}

static fl_status read_inputs(fl_mix *mix, fl_error *error) {
    for (int input = 0; input < INPUTS; input++) {
        const fl_checkpoint_entry *entry = fl_checkpoint_lookup(mix->file, input_names[input]);
        if (entry == NULL) continue;
        FL_TRY(FL_ALLOCATE(&mix->inputs[input], elements(&entry->tensor), error));
        fl_checkpoint_entry_floats(entry, mix->inputs[input]);
        if (input == STATE || input == NORMALISER) continue;
        FL_TRY(send(mix, mix->inputs[input], elements(&entry->tensor), &mix->sent[input], error));
    }
    return FL_OK;
}

/* Variant and mechanism. */

static fl_status bind_variant(fl_mix *mix, fl_error *error) {
    const fl_node *node = mix->request->variant;
    FL_TRY(fl_variant_bind(node, NULL, &mix->variant, error));
    fl_variant *variant = mix->variant;
    if (variant->lora_rank > 0)
        return fl_node_error(fl_node_get(node, "lora"), error,
                             "lora adapts projections, which mix has none of");
    if (variant->softmax_layer_count > 0 || variant->softmax_every > 0 || variant->softmax_hardest > 0)
        return fl_node_error(fl_node_get(node, "softmax_layers"), error, "mix has one layer, which is mixed");
    if (strcmp(variant->rule->name, "softmax") == 0) { /* all of it exact: a window that nothing leaves */
        variant->rule = fl_rule_find("none");
        variant->window = mix->tokens;
        variant->sinks = variant->cache_budget = variant->conv_kernel = 0;
    }
    return fl_variant_fit(variant, &mix->shape, 1, error);
}

/* Whether anything is projected from h. */
static bool needs_input(const fl_mix *mix) {
    const fl_variant *variant = mix->variant;
    bool factors = false;
    for (size_t i = 0; i < variant->rule->factor_count; i++)
        factors = factors || fl_rule_factor_width(variant->rule, i, 1, variant->rule_options) > 0;
    return factors || (variant->rule->gate != FL_GATE_NONE && variant->gate_source == FL_GATE_PROJECTED) ||
           (variant->takes_beta && variant->beta_source == FL_GATE_PROJECTED);
}

static fl_status create_mechanism(fl_mix *mix, fl_error *error) {
    if (needs_input(mix) && mix->inputs[INPUT] == NULL) {
        return fl_error_set(
            error, FL_ERROR_ARGUMENT,
            "%s: tensor h is missing: rule %s projects its gates from it (or set them constant)",
            mix->request->inputs, mix->variant->rule->name);
    }
    FL_TRY(fl_mechanism_create(mix->variant, &mix->shape, 1, &mix->mechanism, error));
    return fl_mechanism_take(mix->mechanism, 0, mix->file, PARAMETER_PREFIX, error);
}

/* State. */

static size_t state_rows(const fl_mix *mix, size_t *columns) {
    size_t value_dim = 0, floats = fl_mixer_state_floats(mix->mixer);
    if (!fl_array_is(fl_mixer_state(mix->mixer, &value_dim, columns))) {
        *columns = floats;
        return 1;
    }
    return value_dim;
}

/* The given state, with the normaliser's row where it belongs. */
static fl_status join_state(fl_mix *mix, fl_error *error) {
    size_t floats = fl_mixer_state_floats(mix->mixer), heads = mix->shape.query_heads, key_dim = 0;
    if (mix->inputs[STATE] == NULL && mix->inputs[NORMALISER] == NULL) return FL_OK;
    if (floats == 0)
        return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: rule %s has no state", mix->request->inputs,
                            mix->variant->rule->name);
    size_t rows = state_rows(mix, &key_dim), dim = mix->shape.head_dim;
    bool own = rows == 1 && key_dim == floats;
    if (own) {
        FL_TRY(expect_shape(mix, STATE, "[H][n]", 2, (size_t[]){heads, floats}, error));
    } else {
        FL_TRY(expect_shape(mix, STATE, "[H][Dv][Dk]", 3, (size_t[]){heads, dim, key_dim}, error));
    }
    if ((mix->inputs[NORMALISER] != NULL) != (mix->inputs[STATE] != NULL && !own && rows > dim))
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "%s: state and normaliser go together, and only with normaliser: true",
                            mix->request->inputs);
    FL_TRY(expect_shape(mix, NORMALISER, "[H][Dk]", 2, (size_t[]){heads, key_dim}, error));
    size_t plain = mix->inputs[NORMALISER] != NULL ? floats - key_dim : floats;
    float *joined = NULL;
    FL_TRY(FL_ALLOCATE(&joined, heads * floats, error));
    for (size_t head = 0; head < heads; head++) {
        float *to = joined + head * floats;
        memcpy(to, mix->inputs[STATE] + head * plain, plain * sizeof *to);
        if (plain < floats)
            memcpy(to + plain, mix->inputs[NORMALISER] + head * key_dim, key_dim * sizeof *to);
    }
    fl_status status = send(mix, joined, heads * floats, &mix->initial, error);
    fl_memory_free(joined);
    return status;
}

/* state [H][floats] in two. */
static fl_status split(fl_mix *mix, const float *state, size_t floats, size_t plain, fl_error *error) {
    size_t heads = mix->shape.query_heads, rest = floats - plain;
    FL_TRY(FL_ALLOCATE(&mix->state, heads * plain, error));
    if (rest > 0) FL_TRY(FL_ALLOCATE(&mix->normaliser, heads * rest, error));
    for (size_t head = 0; head < heads; head++) {
        memcpy(mix->state + head * plain, state + head * floats, plain * sizeof *state);
        if (rest > 0)
            memcpy(mix->normaliser + head * rest, state + head * floats + plain, rest * sizeof *state);
    }
    return FL_OK;
}

static fl_status split_state(fl_mix *mix, fl_error *error) {
    size_t floats = fl_mixer_state_floats(mix->mixer), heads = mix->shape.query_heads, key_dim = 0;
    if (floats == 0) return FL_OK;
    state_rows(mix, &key_dim);
    size_t plain = mix->variant->normaliser ? floats - key_dim : floats;
    float *state = NULL;
    fl_status status = fetch(mix, fl_mixer_state_block(mix->mixer), heads * floats, &state, error);
    if (status == FL_OK) status = split(mix, state, floats, plain, error);
    fl_memory_free(state);
    return status;
}

/* Passes. */

static fl_mixer_call call_of(const fl_mix *mix, size_t first, size_t count) {
    size_t query_row = mix->shape.query_heads * mix->shape.head_dim;
    size_t key_row = mix->shape.kv_heads * mix->shape.head_dim;
    fl_array input = mix->sent[INPUT];
    return (fl_mixer_call){
        .tokens = count,
        .query = fl_array_from(mix->sent[QUERY], first * query_row),
        .key = fl_array_from(mix->sent[KEY], first * key_row),
        .value = fl_array_from(mix->sent[VALUE], first * key_row),
        .input = !fl_array_is(input) ? fl_array_none : fl_array_from(input, first * mix->shape.model_dim),
        .output = !fl_array_is(mix->result) ? fl_array_none : fl_array_from(mix->result, first * query_row),
        .initial_state = first == 0 ? mix->initial : fl_array_none,
        .mode = mix->request->mode};
}

/* Where reads come before writes the last token has not been written: a token more, of zeros, writes it and
 * waits itself. */
static fl_status settle(fl_mix *mix, fl_error *error) {
    const fl_variant *variant = mix->variant;
    if (!variant->rule->reads_before || variant->window > 0 || variant->cache_budget > 0) return FL_OK;
    fl_array zeros = fl_array_none;
    size_t row = mix->shape.query_heads * mix->shape.head_dim + mix->shape.model_dim;
    FL_TRY(fl_compute_floats(mix->compute, 2 * row, &zeros, error));
    fl_compute_fill(mix->compute, zeros, 2 * row, 0.0);
    fl_mixer_call call = {.tokens = 1,
                          .query = zeros,
                          .key = zeros,
                          .value = zeros,
                          .input = zeros,
                          .output = fl_array_from(zeros, row),
                          .mode = mix->request->mode};
    fl_status status = fl_mixer_forward(mix->mixer, &call, error);
    fl_compute_release(mix->compute, zeros);
    return status;
}

static fl_status forward(fl_mix *mix, fl_error *error) {
    size_t cut = mix->request->cut > 0 ? mix->request->cut : mix->tokens;
    if (cut > mix->tokens)
        return fl_error_set(error, FL_ERROR_ARGUMENT, "a cut after %zu tokens, but there are %zu", cut,
                            mix->tokens);
    const size_t floats = mix->tokens * mix->shape.query_heads * mix->shape.head_dim;
    FL_TRY(fl_compute_floats(mix->compute, floats, &mix->result, error));
    fl_mixer_call call = call_of(mix, 0, cut);
    FL_TRY(fl_mixer_forward(mix->mixer, &call, error));
    call = call_of(mix, cut, mix->tokens - cut);
    FL_TRY(fl_mixer_forward(mix->mixer, &call, error));
    FL_TRY(settle(mix, error));
    FL_TRY(fetch(mix, mix->result, floats, &mix->output, error));
    return split_state(mix, error);
}

/* The gradients with the instance: of q, k, v, h and the parameters. */
static fl_status run_backward(fl_mix *mix, const size_t *sizes, fl_array *arrays, fl_error *error) {
    for (size_t i = 0; i < 5; i++) {
        if (sizes[i] > 0) FL_TRY(fl_compute_floats(mix->compute, sizes[i], &arrays[i], error));
    }
    if (fl_array_is(arrays[4])) fl_compute_fill(mix->compute, arrays[4], sizes[4], 0.0);
    fl_mixer_call call = call_of(mix, 0, mix->tokens);
    call.output = fl_array_none;
    FL_TRY(fl_mixer_backward(mix->compute, mix->mechanism, 0, &call, mix->sent[GRADIENT], arrays[0],
                             arrays[1], arrays[2], arrays[3], arrays[4], error));
    for (size_t i = 0; i < 4; i++) {
        if (sizes[i] > 0) FL_TRY(fetch(mix, arrays[i], sizes[i], &mix->gradients[i], error));
    }
    return fetch(mix, arrays[4], sizes[4], &mix->parameters, error);
}

static fl_status backward(fl_mix *mix, fl_error *error) {
    size_t tokens = mix->tokens, keys = tokens * mix->shape.kv_heads * mix->shape.head_dim;
    const size_t sizes[5] = {tokens * mix->shape.query_heads * mix->shape.head_dim, keys, keys,
                             mix->inputs[INPUT] == NULL ? 0 : tokens * mix->shape.model_dim,
                             mix->mechanism->layer_floats};
    fl_array arrays[5] = {fl_array_none, fl_array_none, fl_array_none, fl_array_none, fl_array_none};
    if (mix->inputs[GRADIENT] == NULL) return FL_OK;
    fl_status status = run_backward(mix, sizes, arrays, error);
    for (size_t i = 0; i < 5; i++) fl_compute_release(mix->compute, arrays[i]);
    return status;
}

/* Output. */

typedef struct fl_mix_outputs {
    size_t count;
    fl_checkpoint_write_tensor tensors[MAX_OUTPUTS];
    char names[MAX_OUTPUTS][NAME_BYTES];
} fl_mix_outputs;

static void add(fl_mix_outputs *outputs, const char *prefix, const char *name, const float *data, size_t rank,
                const size_t *shape) {
    if (data == NULL) return;
    char *full = outputs->names[outputs->count];
    snprintf(full, NAME_BYTES, "%s%s", prefix, name);
    fl_checkpoint_write_tensor *tensor = &outputs->tensors[outputs->count++];
    *tensor = (fl_checkpoint_write_tensor){.name = full, .data = data, .rank = rank};
    memcpy(tensor->shape, shape, rank * sizeof *shape);
}

static fl_status write_outputs(const fl_mix *mix, fl_error *error) {
    fl_mix_outputs *outputs = NULL;
    FL_TRY(FL_ALLOCATE(&outputs, 1, error));
    size_t heads = mix->shape.query_heads, dim = mix->shape.head_dim, key_dim = 0;
    size_t queries[3] = {mix->tokens, heads, dim}, keys[3] = {mix->tokens, mix->shape.kv_heads, dim};
    size_t rows = mix->state == NULL ? 0 : state_rows(mix, &key_dim);
    bool own = rows == 1 && key_dim == fl_mixer_state_floats(mix->mixer);
    size_t state[3] = {heads, own ? key_dim : dim, key_dim};
    add(outputs, "", "out", mix->output, 3, queries);
    add(outputs, "", "state", mix->state, own ? 2 : 3, state);
    add(outputs, "", "normaliser", mix->normaliser, 2, (size_t[]){heads, key_dim});
    for (size_t i = 0; i < 3; i++)
        add(outputs, "grad.", input_names[i], mix->gradients[i], 3, i == QUERY ? queries : keys);
    add(outputs, "grad.", "h", mix->gradients[3], 2, (size_t[]){mix->tokens, mix->shape.model_dim});
    for (size_t i = 0; mix->parameters != NULL && i < mix->mechanism->tensor_count; i++) {
        const fl_mechanism_tensor *tensor = &mix->mechanism->tensors[i];
        add(outputs, "grad.p.", tensor->name, mix->parameters + tensor->offset, tensor->rank, tensor->shape);
    }
    const char *keys_of[] = {"format", "rule"};
    const char *values[] = {"frostline mix", mix->variant->rule->name};
    fl_status status = fl_checkpoint_write_safetensors(mix->request->out, outputs->tensors, outputs->count,
                                                       keys_of, values, 2, error);
    fl_memory_free(outputs);
    return status;
}

/* Whole. */

static fl_status run(fl_mix *mix, fl_error *error) {
    FL_TRY(fl_checkpoint_open(mix->request->inputs, &mix->file, error));
    FL_TRY(refuse_strangers(mix, error));
    FL_TRY(take_sizes(mix, error));
    FL_TRY(bind_variant(mix, error));
    FL_TRY(read_inputs(mix, error));
    FL_TRY(create_mechanism(mix, error));
    FL_TRY(fl_mixer_create(mix->compute, mix->mechanism, 0, &mix->mixer, error));
    FL_TRY(join_state(mix, error));
    FL_TRY(forward(mix, error));
    FL_TRY(backward(mix, error));
    return write_outputs(mix, error);
}

static void release(fl_mix *mix) {
    for (size_t i = 0; i < INPUTS; i++) {
        fl_memory_free(mix->inputs[i]);
        fl_compute_release(mix->compute, mix->sent[i]);
    }
    for (size_t i = 0; i < 4; i++) fl_memory_free(mix->gradients[i]);
    fl_memory_free(mix->parameters);
    fl_compute_release(mix->compute, mix->initial);
    fl_compute_release(mix->compute, mix->result);
    fl_memory_free(mix->output);
    fl_memory_free(mix->state);
    fl_memory_free(mix->normaliser);
    fl_mixer_destroy(mix->mixer);
    fl_mechanism_destroy(mix->mechanism);
    fl_variant_destroy(mix->variant);
    fl_checkpoint_close(mix->file);
}

fl_status fl_mix_run(fl_compute *compute, const fl_mix_request *request, fl_mix_summary *summary,
                     fl_error *error) {
    fl_mix mix = {.request = request, .compute = compute};
    fl_status status = run(&mix, error);
    if (status == FL_OK && summary != NULL) {
        *summary = (fl_mix_summary){.shape = mix.shape,
                                    .tokens = mix.tokens,
                                    .parameters = mix.mechanism->layer_floats,
                                    .state_floats = fl_mixer_state_floats(mix.mixer),
                                    .gradients = mix.parameters != NULL};
    }
    release(&mix);
    return status;
}
