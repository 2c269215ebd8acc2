#include "harness/engine/frozen_pass.h"

#include "harness/base/memory.h"
#include "harness/base/scratch_file.h"
#include "harness/engine/block.h"
#include "harness/engine/full_attention.h"

/* A sequence's inputs and outputs of all wanted layers, in their order. */
typedef struct fl_kept_sequence {
    float *activations; /* [wanted][2][T][E] of the host; NULL: not kept */
    bool in_scratch;    /* then the scratch file's */
    double *variances;  /* [wanted] */
} fl_kept_sequence;

struct fl_frozen_pass {
    const fl_network *network;
    bool *wanted;
    size_t wanted_count, end; /* one above the highest wanted layer */
    size_t sequences, memory_budget, kept_bytes, scratch_budget;
    fl_scratch_file *scratch; /* NULL: no scratch budget */
    fl_kept_sequence *kept;   /* [sequences] */
    fl_rope rope;
    fl_block block;
    fl_full_attention attention;
    fl_array stream; /* [T][E] */
    size_t stream_tokens;
};

static const fl_model_config *config_of(const fl_frozen_pass *pass) {
    return &pass->network->model->config;
}

static fl_status create(fl_frozen_pass *pass, const bool *wanted, const char *scratch_folder,
                        fl_error *error) {
    size_t layers = config_of(pass)->layers;
    FL_TRY(FL_ALLOCATE(&pass->wanted, layers, error));
    for (size_t l = 0; l < layers; l++) {
        pass->wanted[l] = wanted[l];
        if (!wanted[l]) continue;
        pass->wanted_count++;
        pass->end = l + 1;
    }
    FL_TRY(FL_ALLOCATE(&pass->kept, pass->sequences, error));
    if (pass->scratch_budget > 0) FL_TRY(fl_scratch_file_create(scratch_folder, &pass->scratch, error));
    return fl_rope_create(config_of(pass), &pass->rope, error);
}

fl_status fl_frozen_pass_create(const fl_network *network, const bool *wanted, size_t sequences,
                                const fl_frozen_budget *budget, fl_frozen_pass **out, fl_error *error) {
    *out = NULL;
    fl_frozen_pass *pass = NULL;
    FL_TRY(FL_ALLOCATE(&pass, 1, error));
    pass->network = network;
    pass->sequences = sequences;
    pass->memory_budget = budget->memory;
    pass->scratch_budget = budget->scratch;
    fl_status status = create(pass, wanted, budget->scratch_folder, error);
    if (status != FL_OK) {
        fl_frozen_pass_destroy(pass);
        return status;
    }
    *out = pass;
    return FL_OK;
}

static void forget(fl_kept_sequence *kept) {
    if (!kept->in_scratch) fl_memory_free(kept->activations);
    fl_memory_free(kept->variances);
    *kept = (fl_kept_sequence){0};
}

void fl_frozen_pass_destroy(fl_frozen_pass *pass) {
    if (pass == NULL) return;
    for (size_t i = 0; pass->kept != NULL && i < pass->sequences; i++) forget(&pass->kept[i]);
    fl_scratch_file_destroy(pass->scratch);
    fl_memory_free(pass->kept);
    fl_memory_free(pass->wanted);
    fl_compute_release(pass->network->compute, pass->stream);
    fl_rope_release(&pass->rope);
    fl_block_release(&pass->block);
    fl_full_attention_release(&pass->attention);
    fl_memory_free(pass);
}

size_t fl_frozen_pass_bytes(const fl_frozen_pass *pass) {
    const fl_model_config *config = config_of(pass);
    return pass->kept_bytes + fl_block_bytes(&pass->block, config) +
           fl_full_attention_bytes(&pass->attention, config) +
           pass->stream_tokens * config->model_dim * sizeof(float);
}

size_t fl_frozen_pass_scratch_bytes(const fl_frozen_pass *pass) {
    return pass->scratch != NULL ? fl_scratch_file_bytes(pass->scratch) : 0;
}

size_t fl_frozen_pass_bytes_of(const fl_network *network, size_t tokens) {
    const fl_model_config *config = &network->model->config;
    return fl_block_bytes_of(config, false, 0, tokens) + fl_full_attention_bytes_of(config, tokens) +
           tokens * config->model_dim * sizeof(float);
}

static fl_status reserve(fl_frozen_pass *pass, size_t tokens, fl_error *error) {
    const fl_model_config *config = config_of(pass);
    fl_rope_set_length(&pass->rope, config, tokens);
    FL_TRY(fl_block_reserve(&pass->block, pass->network, false, tokens, error));
    FL_TRY(fl_full_attention_reserve(&pass->attention, pass->network, tokens, error));
    if (tokens <= pass->stream_tokens) return FL_OK;
    fl_compute_release(pass->network->compute, pass->stream);
    pass->stream = fl_array_none;
    pass->stream_tokens = 0;
    FL_TRY(fl_compute_floats(pass->network->compute, tokens * config->model_dim, &pass->stream, error));
    pass->stream_tokens = tokens;
    return FL_OK;
}

/* Room for `floats` numbers in memory or in the scratch file; kept->activations stays NULL when the budgets
 * have none left. */
static fl_status find_room(fl_frozen_pass *pass, size_t floats, fl_kept_sequence *kept, fl_error *error) {
    if (floats <= (pass->memory_budget - pass->kept_bytes) / sizeof(float)) {
        return FL_ALLOCATE(&kept->activations, floats, error);
    }
    if (pass->scratch == NULL) return FL_OK;
    size_t used = fl_scratch_file_bytes(pass->scratch);
    if (used >= pass->scratch_budget || floats > (pass->scratch_budget - used) / sizeof(float)) return FL_OK;
    void *block = NULL;
    FL_TRY(fl_scratch_file_add(pass->scratch, floats * sizeof(float), &block, error));
    kept->activations = block;
    kept->in_scratch = true;
    return FL_OK;
}

static fl_status begin_keeping(fl_frozen_pass *pass, size_t sequence, size_t tokens, fl_kept_sequence **out,
                               fl_error *error) {
    *out = NULL;
    if (sequence >= pass->sequences) return FL_OK;
    size_t floats = 0, row = 2 * pass->wanted_count * config_of(pass)->model_dim;
    FL_TRY(fl_memory_multiply(tokens, row, &floats, "activations of a sequence", error));
    fl_kept_sequence *kept = &pass->kept[sequence];
    FL_TRY(find_room(pass, floats, kept, error));
    if (kept->activations == NULL) return FL_OK;
    fl_status status = FL_ALLOCATE(&kept->variances, pass->wanted_count, error);
    if (status != FL_OK) {
        forget(kept);
        return status;
    }
    *out = kept;
    return FL_OK;
}

static double variance_of(size_t count, const float *x) {
    double sum = 0.0, squares = 0.0;
    for (size_t i = 0; i < count; i++) {
        double value = (double)x[i];
        sum += value;
        squares += value * value;
    }
    double mean = sum / (double)count;
    return squares / (double)count - mean * mean;
}

static fl_frozen_layer view_of(const fl_frozen_pass *pass, size_t layer, size_t tokens) {
    const fl_block *block = &pass->block;
    return (fl_frozen_layer){.layer = layer,
                             .tokens = tokens,
                             .attention_input = block->attention_input,
                             .query = block->query,
                             .key = block->key,
                             .value = block->value,
                             .attention_output = block->attention_output};
}

static fl_status keep(const fl_frozen_pass *pass, fl_kept_sequence *kept, size_t place,
                      const fl_frozen_layer *view, fl_error *error) {
    size_t floats = view->tokens * config_of(pass)->model_dim;
    float *to = kept->activations + 2 * place * floats;
    fl_compute *compute = pass->network->compute;
    kept->variances[place] = view->variance;
    FL_TRY(fl_compute_download(compute, to, view->attention_input, floats, error));
    return fl_compute_download(compute, to + floats, view->attention_output, floats, error);
}

static fl_status compute(fl_frozen_pass *pass, fl_kept_sequence *kept, const int32_t *ids, size_t tokens,
                         fl_frozen_visit visit, void *context, fl_error *error) {
    const fl_network *network = pass->network;
    fl_block *block = &pass->block;
    size_t place = 0;
    FL_TRY(fl_network_embed(network, tokens, ids, pass->stream, error));
    for (size_t l = 0; l < pass->end; l++) {
        FL_TRY(fl_network_go_on(network, error));
        fl_block_project(network, l, &pass->rope, NULL, tokens, 0, pass->stream, block);
        fl_full_attention_run(&pass->attention, network, l, tokens, block);
        fl_block_attention_output(network, l, NULL, tokens, pass->stream, block);
        if (pass->wanted[l]) {
            fl_frozen_layer view = view_of(pass, l, tokens);
            view.variance =
                variance_of(tokens * config_of(pass)->model_dim, fl_array_host(block->attention_output));
            if (kept != NULL) FL_TRY(keep(pass, kept, place, &view, error));
            place++;
            FL_TRY(visit(context, &view, error));
        }
        if (l + 1 < pass->end) fl_block_feed_forward(network, l, tokens, pass->stream, block);
    }
    return FL_OK;
}

static fl_status recall(fl_frozen_pass *pass, const fl_kept_sequence *kept, size_t tokens,
                        fl_frozen_visit visit, void *context, fl_error *error) {
    size_t place = 0, floats = tokens * config_of(pass)->model_dim;
    for (size_t l = 0; l < pass->end; l++) {
        if (!pass->wanted[l]) continue;
        FL_TRY(fl_network_go_on(pass->network, error));
        fl_frozen_layer view = view_of(pass, l, tokens);
        const float *from = kept->activations + 2 * place * floats;
        fl_compute_upload(pass->network->compute, pass->block.attention_input, from, floats);
        fl_compute_upload(pass->network->compute, pass->block.attention_output, from + floats, floats);
        view.variance = kept->variances[place++];
        fl_block_project_input(pass->network, l, &pass->rope, NULL, tokens, 0, view.attention_input,
                               &pass->block);
        FL_TRY(visit(context, &view, error));
    }
    return FL_OK;
}

fl_status fl_frozen_pass_run(fl_frozen_pass *pass, size_t sequence, const int32_t *ids, size_t tokens,
                             fl_frozen_visit visit, void *context, fl_error *error) {
    FL_TRY(reserve(pass, tokens, error));
    if (sequence < pass->sequences && pass->kept[sequence].activations != NULL) {
        return recall(pass, &pass->kept[sequence], tokens, visit, context, error);
    }
    fl_kept_sequence *kept = NULL;
    FL_TRY(begin_keeping(pass, sequence, tokens, &kept, error));
    fl_status status = compute(pass, kept, ids, tokens, visit, context, error);
    if (kept == NULL) return status;
    if (status != FL_OK) {
        forget(kept);
        return status;
    }
    if (!kept->in_scratch)
        pass->kept_bytes += 2 * pass->wanted_count * tokens * config_of(pass)->model_dim * sizeof(float);
    return FL_OK;
}
