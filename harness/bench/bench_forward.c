/* Forward: prompts of several lengths, with the frozen softmax and with each rule, alone and over an exact
 * set. */
#include <string.h>

#include "harness/bench/bench_prefill.h"

static fl_status measure_rule(fl_bench *bench, const char *rule, bool exact_set, fl_error *error) {
    const fl_bench_list *lengths = &bench->settings->lengths;
    fl_linearised linearised;
    FL_TRY(fl_bench_linearise_rule(bench, rule, exact_set, &linearised, error));
    fl_status status = FL_OK;
    for (size_t i = 0; status == FL_OK && i < lengths->count; i++)
        status = fl_bench_prefill_measure(bench, "forward", rule, fl_bench_exact_set_name(exact_set),
                                          linearised.mechanism, lengths->values[i], NULL, error);
    fl_linearised_release(&linearised);
    return status;
}

fl_status fl_bench_forward(fl_bench *bench, fl_error *error) {
    const fl_bench_settings *settings = bench->settings;
    for (size_t r = 0; r < settings->rules.count; r++) {
        const char *rule = settings->rules.names[r];
        if (strcmp(rule, "softmax") != 0) {
            FL_TRY(measure_rule(bench, rule, false, error));
            FL_TRY(measure_rule(bench, rule, true, error));
            continue;
        }
        for (size_t i = 0; i < settings->lengths.count; i++)
            FL_TRY(fl_bench_prefill_measure(bench, "forward", rule, "all", NULL, settings->lengths.values[i],
                                            NULL, error));
    }
    return FL_OK;
}
