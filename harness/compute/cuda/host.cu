/* Operations that run on the host: their arrays are downloaded, the cpu's operation runs on the copies, and what it wrote is uploaded.
 * Each is noted by name (fl_backend_facts.on_host). */
#include "harness/compute/cuda/operations.h"

namespace {

/* The copies of one operation. */
class host_copies {
  public:
    host_copies(fl_cuda *device, const char *operation) : device_(device), failed_(device->failed) {
        const std::string name = std::string(operation) + " ";
        if (device->on_host.find(name) == std::string::npos) device->on_host += name;
    }

    /* A copy on the host; `written`: it goes back in done(). */
    fl_array of(fl_array array, size_t count, bool written) {
        if (!fl_array_is(array) || failed_) return array;
        const size_t bytes = count * fl_number_bytes(array.number);
        copies_.push_back({array, count, written, std::vector<unsigned char>(bytes + 1)});
        failed_ = fl_cuda_download(&device_->base, copies_.back().bytes.data(), array, count, NULL) != FL_OK;
        return fl_array{copies_.back().bytes.data(), array.number};
    }
    fl_array read(fl_array array, size_t count) { return of(array, count, false); }
    fl_array write(fl_array array, size_t count) { return of(array, count, true); }

    fl_write_rows rows(const fl_write_layout &layout, const fl_write_rows &from, bool written) {
        fl_write_rows to = from;
        for (int part = 0; part < FL_WRITE_PARTS; part++) {
            to.part[part] = of(from.part[part], layout.heads * from.rows * layout.width[part], written);
        }
        return to;
    }

    /* Whether everything is there and the operation may run. */
    bool ready() const { return !failed_; }
    void done() {
        for (const copy &c : copies_) {
            if (c.written && !failed_) fl_cuda_upload(&device_->base, c.array, c.bytes.data(), c.count);
        }
    }
    fl_compute *host() const { return device_->services->host; }

  private:
    struct copy {
        fl_array array;
        size_t count;
        bool written;
        std::vector<unsigned char> bytes;
    };
    fl_cuda *device_;
    bool failed_;
    std::list<copy> copies_; /* which do not move */
};

fl_prepare_call prepare_copies(host_copies &copies, const fl_prepare_call *call, bool forward) {
    const size_t tokens = call->tokens, heads = call->rule->heads, dim = call->rule->head_dim;
    fl_prepare_call c = *call;
    c.query = copies.read(call->query, tokens * heads * dim);
    c.key = copies.read(call->key, tokens * call->key_heads * dim);
    c.value = copies.read(call->value, tokens * call->key_heads * dim);
    c.gate = copies.read(call->gate, tokens * heads * call->gate_width);
    c.beta = copies.read(call->beta, tokens * heads);
    for (size_t i = 0; i < FL_RULE_MAX_FACTORS; i++) {
        c.factors[i] = copies.read(call->factors[i], tokens * heads * call->factor_width[i]);
    }
    c.bonus = copies.of(call->bonus, tokens * heads * dim, forward);
    if (!forward) return c;
    c.read = copies.write(call->read, heads * tokens * call->layout.micro_steps * call->layout.key_dim);
    c.written = copies.rows(call->layout, call->written, true);
    return c;
}

} // namespace

void fl_cuda_host_prepare(fl_cuda *device, const fl_prepare_call *call) {
    host_copies copies(device, "prepare");
    const fl_prepare_call c = prepare_copies(copies, call, true);
    if (copies.ready()) copies.host()->ops->prepare(copies.host(), &c);
    copies.done();
}

void fl_cuda_host_prepare_backward(fl_cuda *device, const fl_prepare_call *call, const fl_prepare_gradients *gradients) {
    host_copies copies(device, "prepare_backward");
    const size_t tokens = call->tokens, heads = call->rule->heads, dim = call->rule->head_dim, m = call->layout.micro_steps;
    const fl_prepare_call c = prepare_copies(copies, call, false);
    fl_prepare_gradients g = *gradients;
    g.read = copies.write(gradients->read, heads * tokens * m * call->layout.key_dim);
    const fl_write_rows written = copies.rows(call->layout, *gradients->written, false);
    g.written = &written;
    g.output = copies.read(gradients->output, heads * tokens * m * call->layout.value_dim);
    g.query = copies.write(gradients->query, tokens * heads * dim);
    g.key = copies.write(gradients->key, tokens * heads * dim);
    g.value = copies.write(gradients->value, tokens * heads * dim);
    g.gate = copies.write(gradients->gate, tokens * heads * call->gate_width);
    g.beta = copies.write(gradients->beta, tokens * heads);
    for (size_t i = 0; i < FL_RULE_MAX_FACTORS; i++) {
        g.factors[i] = copies.write(gradients->factors[i], tokens * heads * call->factor_width[i]);
    }
    g.row_of = copies.read(gradients->row_of, gradients->kv_heads * tokens);
    if (copies.ready()) copies.host()->ops->prepare_backward(copies.host(), &c, &g);
    copies.done();
}

void fl_cuda_host_own_init(fl_cuda *device, const fl_rule_layer *rule, size_t state_floats, fl_array state) {
    host_copies copies(device, "own_init");
    const fl_array own = copies.write(state, rule->heads * state_floats);
    if (copies.ready()) copies.host()->ops->own_init(copies.host(), rule, state_floats, own);
    copies.done();
}

static fl_own_steps_call own_copies(host_copies &copies, const fl_own_steps_call *call, bool forward) {
    const size_t heads = call->rule->heads, rows = heads * call->tokens;
    fl_own_steps_call c = *call;
    c.query = copies.read(call->query, rows * call->rule->head_dim);
    c.written = copies.rows(call->layout, call->written, false);
    c.positions = copies.read(call->positions, call->kv_heads * call->tokens);
    c.state = copies.of(call->state, heads * call->state_floats, forward);
    if (!forward) return c;
    c.output = copies.write(call->output, rows * call->rule->head_dim);
    c.state_norm = copies.write(call->state_norm, rows);
    return c;
}

void fl_cuda_host_own_steps(fl_cuda *device, const fl_own_steps_call *call) {
    host_copies copies(device, "own_steps");
    const fl_own_steps_call c = own_copies(copies, call, true);
    if (copies.ready()) copies.host()->ops->own_steps(copies.host(), &c);
    copies.done();
}

fl_status fl_cuda_host_own_steps_backward(fl_cuda *device, const fl_own_steps_call *call, const fl_own_steps_gradients *gradients,
                                          fl_error *error) {
    host_copies copies(device, "own_steps_backward");
    const size_t rows = call->rule->heads * call->tokens;
    const fl_own_steps_call c = own_copies(copies, call, false);
    fl_own_steps_gradients g = *gradients;
    g.output = copies.read(gradients->output, rows * call->rule->head_dim);
    g.query = copies.write(gradients->query, rows * call->rule->head_dim);
    const fl_write_rows written = copies.rows(call->layout, *gradients->written, true);
    g.written = &written;
    if (!copies.ready()) return fl_cuda_check(device, error);
    const fl_status status = copies.host()->ops->own_steps_backward(copies.host(), &c, &g, error);
    copies.done();
    return status;
}

size_t fl_cuda_host_own_steps_backward_bytes(fl_cuda *device, size_t tokens, size_t state_floats) {
    fl_compute *host = device->services->host;
    return host->ops->own_steps_backward_bytes(host, tokens, state_floats);
}

void fl_cuda_host_token_attention(fl_cuda *device, const fl_token_attention_call *call) {
    host_copies copies(device, "token_attention");
    const fl_attention_shape &s = call->shape;
    const size_t keys = s.kv_heads > 0 ? (s.kv_heads - 1) * call->key_head_stride + call->keys * s.head_dim : 0;
    fl_token_attention_call c = *call;
    c.query = copies.read(call->query, s.query_heads * s.head_dim);
    c.key = copies.read(call->key, keys);
    c.value = copies.read(call->value, keys);
    if (s.kv_heads > 0) c.expiry = copies.read(call->expiry, (s.kv_heads - 1) * call->expiry_head_stride + call->keys);
    c.weights = copies.write(call->weights, s.query_heads * call->keys);
    c.output = copies.write(call->output, s.query_heads * s.head_dim);
    c.log_sum_exp = copies.write(call->log_sum_exp, s.query_heads);
    if (copies.ready()) copies.host()->ops->token_attention(copies.host(), &c);
    copies.done();
}

void fl_cuda_host_recall_errors(fl_cuda *device, const fl_recall_call *call) {
    host_copies copies(device, "recall_errors");
    const size_t heads = call->layout.heads;
    fl_recall_call c = *call;
    c.cached = copies.rows(call->layout, call->cached, false);
    c.state = copies.read(call->state, heads * call->state_floats);
    c.read = copies.write(call->read, heads * call->candidates * call->layout.micro_steps * call->layout.value_dim);
    c.errors = copies.write(call->errors, heads * call->candidates);
    if (copies.ready()) copies.host()->ops->recall_errors(copies.host(), &c);
    copies.done();
}

fl_status fl_cuda_host_effective_rank(fl_cuda *device, size_t heads, size_t value_dim, size_t key_dim, fl_array state, fl_array rank,
                                      fl_error *error) {
    host_copies copies(device, "effective_rank");
    const fl_array own = copies.read(state, heads * value_dim * key_dim), to = copies.write(rank, heads);
    if (!copies.ready()) return fl_cuda_check(device, error);
    const fl_status status = copies.host()->ops->effective_rank(copies.host(), heads, value_dim, key_dim, own, to, error);
    copies.done();
    return status;
}
