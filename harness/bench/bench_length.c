/* Length: the whole model's cost of a token as the text grows, with a linear rule and with full softmax, and
 * where the two cross. */
#include <string.h>

#include "harness/bench/bench_prefill.h"

enum { SOFTMAX_TOKENS = 16384 /* beyond, full softmax tries anyone's patience */ };

typedef struct curve {
    size_t count;
    double tokens[FL_BENCH_MAX_LIST], seconds[FL_BENCH_MAX_LIST]; /* seconds: of one token */
} curve;

static fl_status measure_curve(fl_bench *bench, const char *rule, const char *exact_set,
                               const fl_mechanism *mechanism, size_t most, curve *out, fl_error *error) {
    const fl_bench_list *lengths = &bench->settings->long_lengths;
    out->count = 0;
    for (size_t i = 0; i < lengths->count; i++) {
        fl_bench_row row;
        if (lengths->values[i] > most) continue;
        FL_TRY(fl_bench_prefill_measure(bench, "length", rule, exact_set, mechanism, lengths->values[i], &row,
                                        error));
        out->tokens[out->count] = row.work;
        out->seconds[out->count++] = row.minimum / row.work;
    }
    return FL_OK;
}

/* Largest over smallest cost of a token: 1 = constant. */
static fl_status derive_spread(fl_bench *bench, const char *rule, const curve *linear, fl_error *error) {
    double least = linear->seconds[0], most = least;
    for (size_t i = 1; i < linear->count; i++) {
        if (linear->seconds[i] < least) least = linear->seconds[i];
        if (linear->seconds[i] > most) most = linear->seconds[i];
    }
    fl_bench_row row = {.group = "length", .name = "largest over smallest cost of a token", .unit = "ratio"};
    fl_bench_add_text(&row, "rule", rule);
    return fl_bench_derive(bench, &row, most / least, error);
}

/* Softmax's cost of a token is a line in the length, so between (and beyond) two lengths the difference is
 * one. */
static fl_status derive_crossover(fl_bench *bench, const char *rule, const curve *linear,
                                  const curve *softmax, fl_error *error) {
    size_t count = linear->count < softmax->count ? linear->count : softmax->count;
    if (count < 2) return FL_OK;
    fl_bench_row row = {.group = "length", .name = "crossover with full softmax", .unit = "tokens"};
    fl_bench_add_text(&row, "rule", rule);
    double behind = softmax->seconds[0] - linear->seconds[0];
    if (behind >= 0) {
        fl_bench_add_text(&row, "found", "at the shortest length or below");
        return fl_bench_derive(bench, &row, linear->tokens[0], error);
    }
    size_t i = 1;
    while (i + 1 < count && softmax->seconds[i] < linear->seconds[i]) i++;
    double ahead = softmax->seconds[i] - linear->seconds[i];
    behind = softmax->seconds[i - 1] - linear->seconds[i - 1];
    if (ahead <= behind) return FL_OK; /* the two do not approach each other */
    fl_bench_add_text(&row, "found", ahead >= 0 ? "between two lengths" : "beyond the longest, extrapolated");
    double step = linear->tokens[i] - linear->tokens[i - 1];
    return fl_bench_derive(bench, &row, linear->tokens[i - 1] - behind * step / (ahead - behind), error);
}

fl_status fl_bench_length(fl_bench *bench, fl_error *error) {
    const char *rule = fl_bench_one_rule(bench);
    curve linear, softmax;
    fl_linearised linearised;
    FL_TRY(fl_bench_linearise_rule(bench, rule, true, &linearised, error));
    fl_status status = measure_curve(bench, rule, fl_bench_exact_set_name(true), linearised.mechanism,
                                     SIZE_MAX, &linear, error);
    fl_linearised_release(&linearised);
    FL_TRY(status);
    FL_TRY(derive_spread(bench, rule, &linear, error));
    FL_TRY(measure_curve(bench, "softmax", "all", NULL, SOFTMAX_TOKENS, &softmax, error));
    return derive_crossover(bench, rule, &linear, &softmax, error);
}
