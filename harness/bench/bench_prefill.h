/* A prompt read by a session, with the logits of its last token: what forward and length rows time. */
#ifndef FL_BENCH_PREFILL_H
#define FL_BENCH_PREFILL_H

#include "harness/bench/bench_rows.h"
#include "harness/engine/session.h"

typedef struct fl_bench_prefill {
    const fl_bench *bench;
    fl_session *session;
    size_t tokens;
    int32_t *ids;  /* [T] */
    fl_array hidden; /* [E] of the last token */
    fl_array logits; /* [V] */
} fl_bench_prefill;

/* mechanism NULL: the frozen model. */
fl_status fl_bench_prefill_create(const fl_bench *bench, const fl_mechanism *mechanism, size_t tokens,
                                  fl_bench_prefill *out, fl_error *error);
void fl_bench_prefill_release(fl_bench_prefill *prefill);

/* Measures it as row `group` "prefill", with rule, exact set and tokens as parameters. */
fl_status fl_bench_prefill_measure(fl_bench *bench, const char *group, const char *rule,
                                   const char *exact_set, const fl_mechanism *mechanism, size_t tokens,
                                   fl_bench_row *kept, fl_error *error);

#endif
