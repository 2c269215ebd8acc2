#include "harness/bench/bench_prefill.h"

#include "harness/base/memory.h"
#include "harness/bench/bench_flops.h"

fl_status fl_bench_prefill_create(const fl_bench *bench, const fl_mechanism *mechanism, size_t tokens,
                                  fl_bench_prefill *out, fl_error *error) {
    const fl_model_config *config = &bench->work.model->config;
    fl_status status = FL_OK;
    *out = (fl_bench_prefill){.bench = bench, .tokens = tokens};
    FL_TRY_DONE(status, fl_bench_ids(bench, tokens, &out->ids, error));
    FL_TRY_DONE(status, fl_compute_floats(bench->compute, config->model_dim, &out->hidden, error));
    FL_TRY_DONE(status, fl_compute_floats(bench->compute, config->vocabulary, &out->logits, error));
    FL_TRY_DONE(status, fl_session_create(bench->work.network, mechanism, &out->session, error));
done:
    if (status != FL_OK) fl_bench_prefill_release(out);
    return status;
}

void fl_bench_prefill_release(fl_bench_prefill *prefill) {
    fl_session_destroy(prefill->session);
    fl_memory_free(prefill->ids);
    if (prefill->bench != NULL) {
        fl_compute_release(prefill->bench->compute, prefill->hidden);
        fl_compute_release(prefill->bench->compute, prefill->logits);
    }
    *prefill = (fl_bench_prefill){0};
}

static fl_status read_prompt(void *context, fl_error *error) {
    fl_bench_prefill *p = context;
    const size_t last = p->tokens - 1;
    fl_session_reset(p->session);
    FL_TRY(fl_session_expect_length(p->session, p->tokens, error));
    FL_TRY(fl_session_forward_rows(p->session, p->ids, p->tokens, &last, 1, p->hidden, error));
    fl_network_logits(p->bench->work.network, 1, p->hidden, p->logits);
    return p->bench->compute->ops->settle(p->bench->compute, error);
}

fl_status fl_bench_prefill_measure(fl_bench *bench, const char *group, const char *rule,
                                   const char *exact_set, const fl_mechanism *mechanism, size_t tokens,
                                   fl_bench_row *kept, fl_error *error) {
    fl_bench_prefill prefill;
    fl_bench_row row = {.group = group, .name = "prefill", .unit = "tokens/s", .work = (double)tokens};
    row.flops = fl_bench_prefill_flops(bench->work.network, mechanism, tokens);
    fl_bench_add_text(&row, "rule", rule);
    fl_bench_add_text(&row, "exact_set", exact_set);
    fl_bench_add_number(&row, "tokens", (double)tokens);
    FL_TRY(fl_bench_prefill_create(bench, mechanism, tokens, &prefill, error));
    fl_status status = fl_bench_measure(bench, &row, read_prompt, &prefill, kept, error);
    fl_bench_prefill_release(&prefill);
    return status;
}
