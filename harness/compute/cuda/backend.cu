/* The table: compute.h's operations, from arrays to device pointers and to their launchers (operations.h). */
#include "harness/compute/cuda/operations.h"

#include "generated/backend_hash.h"

struct fl_weight {
    fl_tensor tensor;
    float *values; /* [rows][columns] on the device */
};

enum { WIDEN_BYTES = 32 << 20 };

static fl_status weight_create(fl_compute *compute, const fl_tensor *tensor, fl_weight **out, fl_error *error) {
    fl_cuda *device = fl_cuda_of(compute);
    *out = NULL;
    if (tensor->data == NULL || tensor->rows == 0 || tensor->columns == 0) {
        return device->services->set_error(error, FL_ERROR_ARGUMENT, "tensor %s is absent or empty and cannot be a weight",
                                           tensor->name != NULL ? tensor->name : "(unnamed)");
    }
    fl_array array;
    fl_status status = fl_cuda_allocate(compute, tensor->rows * tensor->columns, FL_FLOAT32, &array, error);
    if (status != FL_OK) return status;
    fl_weight *weight = new fl_weight();
    weight->tensor = *tensor;
    weight->values = (float *)array.at;
    size_t panel = WIDEN_BYTES / (tensor->columns * sizeof(float));
    if (panel == 0) panel = 1;
    if (panel > tensor->rows) panel = tensor->rows;
    std::vector<float> rows(panel * tensor->columns);
    for (size_t first = 0; first < tensor->rows; first += panel) {
        const size_t count = tensor->rows - first < panel ? tensor->rows - first : panel;
        device->services->widen_rows(tensor, first, count, rows.data());
        fl_cuda_upload(compute, fl_array_from(array, first * tensor->columns), rows.data(), count * tensor->columns);
    }
    *out = weight;
    return FL_OK;
}

static void weight_destroy(fl_compute *compute, fl_weight *weight) {
    if (weight == NULL) return;
    fl_cuda_give(fl_cuda_of(compute), weight->values);
    delete weight;
}

static void linear(fl_compute *compute, const fl_weight *weight, fl_array bias, size_t tokens, fl_array input, fl_array output) {
    fl_cuda *device = fl_cuda_of(compute);
    const size_t rows = weight->tensor.rows, columns = weight->tensor.columns;
    fl_cuda_matmul(device, false, true, tokens, rows, columns, 1.0f, floats(input), columns, weight->values, columns, 0.0f, floats(output), rows);
    if (fl_array_is(bias)) fl_cuda_add_bias(device, tokens, rows, floats(bias), floats(output));
}

static void linear_backward(fl_compute *compute, const fl_weight *weight, size_t tokens, fl_array gradient_output,
                            fl_array gradient_input, bool accumulate) {
    const size_t rows = weight->tensor.rows, columns = weight->tensor.columns;
    fl_cuda_matmul(fl_cuda_of(compute), false, false, tokens, columns, rows, 1.0f, floats(gradient_output), rows, weight->values, columns,
                   accumulate ? 1.0f : 0.0f, floats(gradient_input), columns);
}

static void embed(fl_compute *compute, const fl_weight *weight, size_t tokens, fl_array ids, fl_array output) {
    const size_t columns = weight->tensor.columns;
    fl_cuda_gather_rows(fl_cuda_of(compute), floats(output), columns, weight->values, columns, (const int32_t *)ids.at, tokens, columns,
                        sizeof(float));
}

static void matmul(fl_compute *compute, bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, float alpha, fl_array a,
                   size_t stride_a, fl_array b, size_t stride_b, float beta, fl_array c, size_t stride_c) {
    fl_cuda_matmul(fl_cuda_of(compute), transpose_a, transpose_b, m, n, k, alpha, floats(a), stride_a, floats(b), stride_b, beta, floats(c), stride_c);
}

static void copy_rows(fl_compute *compute, fl_array to, size_t to_stride, fl_array from, size_t from_stride, size_t rows,
                      size_t row_count) {
    fl_cuda_copy_rows(fl_cuda_of(compute), to.at, to_stride, from.at, from_stride, rows, row_count, fl_number_bytes(to.number));
}

static void gather_rows(fl_compute *compute, fl_array to, size_t to_stride, fl_array from, size_t from_stride, fl_array index,
                        size_t rows, size_t row_count) {
    fl_cuda_gather_rows(fl_cuda_of(compute), to.at, to_stride, from.at, from_stride, (const int32_t *)index.at, rows, row_count,
                        fl_number_bytes(to.number));
}

static void fill(fl_compute *compute, fl_array array, size_t count, double value) {
    fl_cuda_fill(fl_cuda_of(compute), array.at, array.number, count, value);
}

static void rms_norm(fl_compute *compute, size_t rows, size_t columns, fl_array input, fl_array weight, double epsilon,
                     fl_array output) {
    fl_cuda_rms_norm(fl_cuda_of(compute), rows, columns, floats(input), floats(weight), epsilon, floats(output));
}

static void rms_norm_backward(fl_compute *compute, size_t rows, size_t columns, fl_array input, fl_array weight,
                              double epsilon, fl_array gradient_output, fl_array gradient_input, bool accumulate) {
    fl_cuda_rms_norm_backward(fl_cuda_of(compute), rows, columns, floats(input), floats(weight), epsilon, floats(gradient_output), floats(gradient_input),
                              accumulate);
}

static void rope(fl_compute *compute, size_t tokens, size_t heads, size_t head_dim, size_t first_position, size_t rotary_dim,
                 fl_array inverse_frequencies, float attention_factor, int direction, fl_array x) {
    fl_cuda_rope(fl_cuda_of(compute), tokens, heads, head_dim, first_position, rotary_dim, floats(inverse_frequencies), attention_factor,
                 direction, floats(x));
}

static void gated_activation(fl_compute *compute, fl_activation activation, size_t count, fl_array gate, fl_array up,
                             fl_array output) {
    fl_cuda_gated_activation(fl_cuda_of(compute), activation, count, floats(gate), floats(up), floats(output));
}

static void gated_activation_backward(fl_compute *compute, fl_activation activation, size_t count, fl_array gate, fl_array up,
                                      fl_array gradient_output, fl_array gradient_gate, fl_array gradient_up) {
    fl_cuda_gated_activation_backward(fl_cuda_of(compute), activation, count, floats(gate), floats(up), floats(gradient_output), floats(gradient_gate), floats(gradient_up));
}

static void add(fl_compute *compute, size_t count, fl_array x, fl_array y) { fl_cuda_add(fl_cuda_of(compute), count, floats(x), floats(y)); }

static fl_status too_wide(fl_cuda *device, size_t key_dim, fl_error *error) {
    return device->services->set_error(error, FL_ERROR_UNSUPPORTED,
                                       "the recurrence on %s holds keys of at most 1024 numbers, not %zu: set compute.device to cpu",
                                       device->device_name.c_str(), key_dim);
}

static fl_status recurrence(fl_compute *compute, const fl_recurrence_call *call, fl_error *error) {
    fl_cuda *device = fl_cuda_of(compute);
    if (!fl_cuda_step(device, call)) return too_wide(device, call->key_dim, error);
    return fl_cuda_check(device, error);
}

static fl_status recurrence_backward(fl_compute *compute, const fl_recurrence_backward_call *call, fl_error *error) {
    fl_cuda *device = fl_cuda_of(compute);
    if (!fl_cuda_step_backward(device, call)) return too_wide(device, call->key_dim, error);
    return fl_cuda_check(device, error);
}

static fl_cuda_attention attention_of(const fl_attention_call *call) {
    fl_cuda_attention a = {};
    a.shape = call->shape;
    a.tokens = call->tokens;
    a.first_position = call->first_position;
    a.keys = call->keys;
    a.key_head_stride = call->key_head_stride;
    a.query = floats(call->query);
    a.key = floats(call->key);
    a.value = floats(call->value);
    a.position = (const int32_t *)call->position.at;
    a.expiry = (const int32_t *)call->expiry.at;
    a.lifetimes_per_head = call->lifetimes_per_head;
    a.output = floats(call->output);
    a.log_sum_exp = floats(call->log_sum_exp);
    a.largest = floats(call->largest);
    return a;
}

static void heads_too_wide(fl_cuda *device, const char *operation) {
    fl_cuda_fail(device, operation, "heads of more than 256 numbers are computed on the cpu: set compute.device to cpu");
}

static void attention(fl_compute *compute, const fl_attention_call *call) {
    fl_cuda *device = fl_cuda_of(compute);
    const fl_cuda_attention a = attention_of(call);
    if (!fl_cuda_attention_forward(device, &a)) heads_too_wide(device, "attention");
}

static void attention_backward(fl_compute *compute, const fl_attention_call *call, const fl_attention_gradients *gradients) {
    fl_cuda *device = fl_cuda_of(compute);
    const size_t rows = call->tokens * call->shape.query_heads;
    fl_cuda_attention a = attention_of(call);
    float *output = NULL, *log_sum_exp = NULL;
    a.largest = NULL;
    if (!fl_array_is(call->output) || !fl_array_is(call->log_sum_exp)) {
        a.output = output = (float *)fl_cuda_take(device, rows * call->shape.head_dim * sizeof(float), "attention_backward");
        a.log_sum_exp = log_sum_exp = (float *)fl_cuda_take(device, rows * sizeof(float), "attention_backward");
        if (!fl_cuda_attention_forward(device, &a)) heads_too_wide(device, "attention_backward");
    }
    const fl_cuda_attention_gradients g = {floats(gradients->output), floats(gradients->log_sum_exp), floats(gradients->largest),
                                           floats(gradients->query),  floats(gradients->key),         floats(gradients->value)};
    if (!fl_cuda_attention_backward(device, &a, &g)) heads_too_wide(device, "attention_backward");
    fl_cuda_give(device, output);
    fl_cuda_give(device, log_sum_exp);
}

static void gates(fl_compute *compute, const fl_gates_call *call) { fl_cuda_gates(fl_cuda_of(compute), call); }
static void gates_backward(fl_compute *compute, const fl_gates_call *call, const fl_gates_gradients *gradients) {
    fl_cuda_gates_backward(fl_cuda_of(compute), call, gradients);
}

static void short_conv(fl_compute *compute, const fl_short_conv_call *call) { fl_cuda_short_conv(fl_cuda_of(compute), call); }
static void short_conv_remember(fl_compute *compute, const fl_short_conv_call *call, fl_array history) {
    fl_cuda_short_conv_remember(fl_cuda_of(compute), call, floats(history));
}
static void short_conv_backward(fl_compute *compute, const fl_short_conv_call *call, const fl_short_conv_gradients *gradients) {
    fl_cuda_short_conv_backward(fl_cuda_of(compute), call, gradients);
}

static void add_bonus(fl_compute *compute, const fl_bonus_call *call) { fl_cuda_add_bonus(fl_cuda_of(compute), call); }
static void add_heads(fl_compute *compute, size_t tokens, size_t heads, size_t sources, size_t head_dim, fl_array x, fl_array to) {
    fl_cuda_add_heads(fl_cuda_of(compute), tokens, heads, sources, head_dim, floats(x), floats(to));
}

static void merge(fl_compute *compute, const fl_merge_call *call) { fl_cuda_merge(fl_cuda_of(compute), call); }
static void merge_backward(fl_compute *compute, const fl_merge_call *call, const fl_merge_gradients *gradients) {
    fl_cuda_merge_backward(fl_cuda_of(compute), call, gradients);
}

static void row_errors(fl_compute *compute, size_t rows, size_t columns, fl_array reference, fl_array other, fl_array squared,
                       fl_array cosine) {
    fl_cuda_row_errors(fl_cuda_of(compute), rows, columns, floats(reference), floats(other), (double *)squared.at, (double *)cosine.at);
}
static void row_moments(fl_compute *compute, size_t rows, size_t columns, fl_array x, fl_array sum, fl_array sum_squares) {
    fl_cuda_row_moments(fl_cuda_of(compute), rows, columns, floats(x), (double *)sum.at, (double *)sum_squares.at);
}
static void first_not_finite(fl_compute *compute, size_t count, fl_array x, fl_array first) {
    fl_cuda_first_not_finite(fl_cuda_of(compute), count, floats(x), (int32_t *)first.at);
}
static void subtract_squares(fl_compute *compute, size_t count, fl_array y, fl_array x, fl_array squares) {
    fl_cuda_subtract_squares(fl_cuda_of(compute), count, floats(y), floats(x), (double *)squares.at);
}
static void scale(fl_compute *compute, size_t count, float factor, fl_array x) {
    fl_cuda_scale(fl_cuda_of(compute), count, factor, floats(x));
}
static void key_geometry(fl_compute *compute, const fl_key_geometry_call *call) { fl_cuda_key_geometry(fl_cuda_of(compute), call); }
static void logit_rows(fl_compute *compute, const fl_logit_rows_call *call) { fl_cuda_logit_rows(fl_cuda_of(compute), call); }
static void logit_divergence(fl_compute *compute, const fl_logit_divergence_call *call) {
    fl_cuda_logit_divergence(fl_cuda_of(compute), call);
}
static void logit_gradient(fl_compute *compute, const fl_logit_gradient_call *call) {
    fl_cuda_logit_gradient(fl_cuda_of(compute), call);
}

static void prepare(fl_compute *compute, const fl_prepare_call *call) { fl_cuda_host_prepare(fl_cuda_of(compute), call); }
static void prepare_backward(fl_compute *compute, const fl_prepare_call *call, const fl_prepare_gradients *gradients) {
    fl_cuda_host_prepare_backward(fl_cuda_of(compute), call, gradients);
}

static void own_init(fl_compute *compute, const fl_rule_layer *rule, size_t state_floats, fl_array state) {
    fl_cuda_host_own_init(fl_cuda_of(compute), rule, state_floats, state);
}
static void own_steps(fl_compute *compute, const fl_own_steps_call *call) { fl_cuda_host_own_steps(fl_cuda_of(compute), call); }
static fl_status own_steps_backward(fl_compute *compute, const fl_own_steps_call *call, const fl_own_steps_gradients *gradients,
                                    fl_error *error) {
    return fl_cuda_host_own_steps_backward(fl_cuda_of(compute), call, gradients, error);
}
static size_t own_steps_backward_bytes(fl_compute *compute, size_t tokens, size_t state_floats) {
    return fl_cuda_host_own_steps_backward_bytes(fl_cuda_of(compute), tokens, state_floats);
}

static void row_lengths(fl_compute *compute, size_t heads, size_t rows, size_t dim, fl_array x, size_t head_stride,
                        fl_array lengths) {
    fl_cuda_row_lengths(fl_cuda_of(compute), heads, rows, dim, floats(x), head_stride, (double *)lengths.at);
}
static void token_attention(fl_compute *compute, const fl_token_attention_call *call) {
    fl_cuda_host_token_attention(fl_cuda_of(compute), call);
}
static void recall_errors(fl_compute *compute, const fl_recall_call *call) { fl_cuda_host_recall_errors(fl_cuda_of(compute), call); }
static void exchange_rows(fl_compute *compute, const fl_exchange_call *call) { fl_cuda_exchange_rows(fl_cuda_of(compute), call); }

static fl_status effective_rank(fl_compute *compute, size_t heads, size_t value_dim, size_t key_dim, fl_array state, fl_array rank,
                                fl_error *error) {
    return fl_cuda_host_effective_rank(fl_cuda_of(compute), heads, value_dim, key_dim, state, rank, error);
}

static fl_compute_ops make_table() {
    fl_compute_ops ops = {};
    ops.name = "cuda";
    ops.allocate = fl_cuda_allocate;
    ops.release = fl_cuda_release;
    ops.upload = fl_cuda_upload;
    ops.download = fl_cuda_download;
    ops.settle = fl_cuda_settle;
    ops.copy_rows = copy_rows;
    ops.gather_rows = gather_rows;
    ops.fill = fill;
    ops.borrow = fl_cuda_borrow;
    ops.forget = fl_cuda_forget;
    ops.weight_create = weight_create;
    ops.weight_destroy = weight_destroy;
    ops.linear = linear;
    ops.linear_backward = linear_backward;
    ops.embed = embed;
    ops.matmul = matmul;
    ops.rms_norm = rms_norm;
    ops.rms_norm_backward = rms_norm_backward;
    ops.rope = rope;
    ops.gated_activation = gated_activation;
    ops.gated_activation_backward = gated_activation_backward;
    ops.add = add;
    ops.attention = attention;
    ops.attention_backward = attention_backward;
    ops.recurrence = recurrence;
    ops.recurrence_backward = recurrence_backward;
    ops.gates = gates;
    ops.gates_backward = gates_backward;
    ops.add_bonus = add_bonus;
    ops.add_heads = add_heads;
    ops.short_conv = short_conv;
    ops.short_conv_remember = short_conv_remember;
    ops.short_conv_backward = short_conv_backward;
    ops.merge = merge;
    ops.merge_backward = merge_backward;
    ops.row_errors = row_errors;
    ops.row_moments = row_moments;
    ops.first_not_finite = first_not_finite;
    ops.subtract_squares = subtract_squares;
    ops.scale = scale;
    ops.key_geometry = key_geometry;
    ops.logit_rows = logit_rows;
    ops.logit_divergence = logit_divergence;
    ops.logit_gradient = logit_gradient;
    ops.prepare = prepare;
    ops.prepare_backward = prepare_backward;
    ops.own_init = own_init;
    ops.own_steps = own_steps;
    ops.own_steps_backward = own_steps_backward;
    ops.own_steps_backward_bytes = own_steps_backward_bytes;
    ops.row_lengths = row_lengths;
    ops.token_attention = token_attention;
    ops.recall_errors = recall_errors;
    ops.exchange_rows = exchange_rows;
    ops.effective_rank = effective_rank;
    ops.destroy = fl_cuda_destroy;
    return ops;
}

static fl_status create(const fl_backend_options *options, const fl_backend_services *services, fl_compute **out, fl_error *error) {
    static const fl_compute_ops table = make_table();
    return fl_cuda_create(&table, options, services, out, error);
}

static void facts(fl_compute *compute, fl_backend_facts *out) {
    const fl_cuda *device = fl_cuda_of(compute);
    out->device = device->device_name.c_str();
    out->driver = device->driver.c_str();
    out->runtime = device->runtime.c_str();
    out->products = device->products_name.c_str();
    out->algorithms = device->algorithms.c_str();
    out->on_host = device->on_host.c_str();
}

extern "C" __attribute__((visibility("default"))) fl_status fl_backend_entry(unsigned abi, const fl_backend **out) {
    static const fl_backend backend = {"cuda", FL_BACKEND_HASH, create, facts};
    *out = abi == FL_BACKEND_ABI ? &backend : NULL;
    return *out != NULL ? FL_OK : FL_ERROR_UNSUPPORTED;
}
