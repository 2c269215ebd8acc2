#include "attn_variants/exact_shares.h"

#include <stdbool.h>

#include "harness/base/memory.h"

/* Floats of one share: output and log_sum_exp. */
static size_t share_floats(const fl_attention_shape *shape, size_t tokens) {
    return tokens * shape->query_heads * (shape->head_dim + 1);
}

static fl_status add_share(fl_exact_shares *shares, const fl_attention_shape *shape, size_t tokens,
                           fl_exact_share **out, fl_error *error) {
    fl_exact_share *share = &shares->shares[shares->count];
    FL_TRY(fl_compute_floats(shares->compute, share_floats(shape, tokens), &share->output, error));
    share->log_sum_exp = fl_array_from(share->output, tokens * shape->query_heads * shape->head_dim);
    shares->count++;
    *out = share;
    return FL_OK;
}

static bool agree(const fl_variant *variant, const fl_variant *other) {
    return variant->lora_rank == 0 && other->lora_rank == 0 && fl_variant_shares_exact_set(variant, other);
}

fl_status fl_exact_shares_create(fl_compute *compute, const fl_mechanism *const *mechanisms, size_t count,
                                 const fl_attention_shape *shape, size_t tokens, fl_exact_shares *out,
                                 fl_error *error) {
    *out = (fl_exact_shares){.compute = compute};
    FL_TRY(FL_ALLOCATE(&out->shares, count, error));
    FL_TRY(FL_ALLOCATE(&out->of, count, error));
    for (size_t i = 1; i < count; i++) {
        for (size_t j = 0; j < i && out->of[i] == NULL; j++) {
            if (!agree(mechanisms[i]->variant, mechanisms[j]->variant)) continue;
            if (out->of[j] == NULL) FL_TRY(add_share(out, shape, tokens, &out->of[j], error));
            out->of[i] = out->of[j];
        }
    }
    return FL_OK;
}

void fl_exact_shares_release(fl_exact_shares *shares) {
    for (size_t i = 0; i < shares->count; i++) fl_compute_release(shares->compute, shares->shares[i].output);
    fl_memory_free(shares->shares);
    fl_memory_free(shares->of);
    *shares = (fl_exact_shares){0};
}

size_t fl_exact_shares_bytes(const fl_exact_shares *shares, const fl_attention_shape *shape, size_t tokens) {
    return shares->count * share_floats(shape, tokens) * sizeof(float);
}

void fl_exact_shares_clear(fl_exact_shares *shares) {
    for (size_t i = 0; i < shares->count; i++) shares->shares[i].filled = false;
}
