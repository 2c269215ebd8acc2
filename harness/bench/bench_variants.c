/* Variants: several of them measured teacher-forced on one text from one frozen pass, against one at a time.
 */
#include "harness/bench/bench_rows.h"

#include <string.h>

#include "harness/base/memory.h"

enum { MOST = 8, TOKENS = 1024, TOKENS_QUICK = 96 };

typedef struct evaluation_case {
    const fl_bench *bench;
    fl_sequences sequences;
    size_t first, count; /* of mechanisms */
    const fl_mechanism *mechanisms[MOST];
} evaluation_case;

static fl_status run_evaluation(void *context, fl_error *error) {
    evaluation_case *c = context;
    const fl_text_evaluation_options options = {.teacher_forced = true};
    fl_text_result results[MOST];
    FL_TRY(fl_text_evaluation_run(c->bench->work.network, &c->sequences, c->mechanisms + c->first, c->count,
                                  &options, NULL, results, NULL, error));
    for (size_t i = 0; i < c->count; i++) fl_text_result_release(&results[i]);
    return FL_OK;
}

static fl_status measure(fl_bench *bench, evaluation_case *c, const char *rules, double *seconds,
                         fl_error *error) {
    fl_bench_row kept, row = {.group = "variants", .name = "teacher forced", .unit = "tokens/s"};
    row.work = (double)c->sequences.lengths[0];
    fl_bench_add_text(&row, "rules", rules);
    fl_bench_add_number(&row, "variants", (double)c->count);
    fl_bench_add_number(&row, "tokens", row.work);
    FL_TRY(fl_bench_measure(bench, &row, run_evaluation, c, &kept, error));
    *seconds = kept.minimum;
    return FL_OK;
}

static fl_status measure_counts(fl_bench *bench, evaluation_case *c, size_t have, const char *const *rules,
                                fl_error *error) {
    double alone[MOST], seconds = 0, mean = 0;
    c->count = 1;
    for (c->first = 0; c->first < have; c->first++) {
        FL_TRY(measure(bench, c, rules[c->first], &alone[c->first], error));
        mean += alone[c->first] / (double)have;
    }
    c->first = 0;
    for (c->count = 2; c->count <= have; c->count *= 2) {
        FL_TRY(measure(bench, c, "the first so many", &seconds, error));
        fl_bench_row row = {.group = "variants", .name = "together over one alone", .unit = "ratio"};
        fl_bench_add_number(&row, "variants", (double)c->count);
        FL_TRY(fl_bench_derive(bench, &row, seconds / mean, error));
    }
    return FL_OK;
}

/* The linear rules asked for, over and over until there are `wanted`. */
static size_t choose(const fl_bench *bench, size_t wanted, const char **rules) {
    const fl_bench_names *names = &bench->settings->rules;
    size_t count = 0, before = SIZE_MAX;
    while (count < wanted && count != before) {
        before = count;
        for (size_t i = 0; i < names->count && count < wanted; i++) {
            if (strcmp(names->names[i], "softmax") != 0) rules[count++] = names->names[i];
        }
    }
    while (count < wanted) rules[count++] = fl_bench_one_rule(bench);
    return count;
}

fl_status fl_bench_variants(fl_bench *bench, fl_error *error) {
    const char *rules[MOST];
    fl_linearised linearised[MOST] = {{0}};
    int32_t *ids = NULL;
    size_t tokens = bench->settings->quick ? TOKENS_QUICK : TOKENS;
    size_t have = choose(bench, bench->settings->quick ? 2 : MOST, rules);
    evaluation_case c = {.bench = bench, .sequences = {1, &tokens, &ids}};
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_bench_ids(bench, tokens, &ids, error));
    for (size_t i = 0; i < have; i++) {
        FL_TRY_DONE(status, fl_bench_linearise_rule(bench, rules[i], true, &linearised[i], error));
        c.mechanisms[i] = linearised[i].mechanism;
    }
    status = measure_counts(bench, &c, have, rules, error);
done:
    for (size_t i = 0; i < have; i++) fl_linearised_release(&linearised[i]);
    fl_memory_free(ids);
    return status;
}
