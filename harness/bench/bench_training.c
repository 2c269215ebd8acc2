/* Training: tokens a second of each objective, step by step. Every step reads another sequence; layer_mse
 * goes over the same ones again, with what the frozen model gave in memory. */
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/bench/bench_rows.h"
#include "harness/engine/training.h"

enum { TOKENS = 512, TOKENS_QUICK = 96, YAML_BYTES = 256, MOST_STEPS = 2 * (FL_BENCH_MAX_REPEATS + 1) };

typedef struct step_times {
    const fl_bench *bench;
    double start;
    size_t count;
    double seconds[MOST_STEPS];
} step_times;

static void on_step(void *context, const fl_training_history *history) {
    (void)history;
    step_times *times = context;
    double now = fl_bench_now(times->bench);
    if (times->count < MOST_STEPS) times->seconds[times->count++] = now - times->start;
    times->start = fl_bench_now(times->bench);
}

static fl_status bind_config(const char *objective, size_t steps, size_t tokens, fl_train_config *out,
                             fl_error *error) {
    char yaml[YAML_BYTES];
    fl_document *document = NULL;
    /* The data is given to the run itself; the path only has to be there. */
    snprintf(yaml, sizeof yaml,
             "{objective: %s, steps: %zu, sequence_length: %zu, path: bench, order: sequential, "
             "checkpoint_every: 0, warmup_steps: 0, learning_rate: 1e-4}",
             objective, steps, tokens);
    FL_TRY(fl_document_parse_text(yaml, strlen(yaml), "bench", &document, error));
    fl_status status = fl_train_config_bind(fl_document_root(document), NULL, out, error);
    fl_document_destroy(document);
    return status;
}

static fl_status train(fl_bench *bench, const char *objective, size_t steps, const fl_sequences *sequences,
                       fl_mechanism *mechanism, step_times *times, fl_error *error) {
    fl_train_config config;
    fl_training_history history = {0};
    FL_TRY(bind_config(objective, steps, sequences->lengths[0], &config, error));
    const fl_training_hooks hooks = {.step = on_step, .context = times};
    const fl_training_options options = {
        .config = &config, .sequences = sequences, .identity = "bench", .hooks = &hooks};
    *times = (step_times){.bench = bench, .start = fl_bench_now(bench)};
    fl_status status = fl_training_run(bench->work.network, mechanism, &options, &history, error);
    fl_training_history_release(&history);
    fl_train_config_release(&config);
    if (status == FL_OK && times->count < steps)
        return fl_error_set(error, FL_ERROR_NUMERIC, "bench: training with %s diverged in step %zu",
                            objective, times->count);
    return status;
}

/* layer_mse runs twice over the data. The first step of all is a warm-up. */
static fl_status measure(fl_bench *bench, const char *objective, const fl_sequences *sequences,
                         fl_error *error) {
    const char *rule = fl_bench_one_rule(bench);
    bool again = strcmp(objective, "layer_mse") == 0;
    size_t steps = sequences->count;
    fl_linearised linearised;
    step_times times;
    fl_bench_row row = {.group = "training", .name = "step", .unit = "tokens/s"};
    row.work = (double)sequences->lengths[0];
    fl_bench_add_text(&row, "objective", objective);
    fl_bench_add_text(&row, "rule", rule);
    fl_bench_add_number(&row, "tokens", row.work);
    FL_TRY(fl_bench_linearise_rule(bench, rule, true, &linearised, error));
    fl_status status = fl_bench_begin(bench, &row, error);
    if (status == FL_OK)
        status = train(bench, objective, again ? 2 * steps : steps, sequences, linearised.mechanism, &times,
                       error);
    fl_linearised_release(&linearised);
    FL_TRY(status);
    FL_TRY(fl_bench_end(bench, &row, times.seconds + 1, steps - 1, NULL, error));
    if (!again) return FL_OK;
    fl_bench_add_text(&row, "frozen_pass", "kept");
    return fl_bench_end(bench, &row, times.seconds + steps, steps - 1, NULL, error);
}

static fl_status make_sequences(const fl_bench *bench, fl_sequences *out, fl_error *error) {
    size_t tokens = bench->settings->quick ? TOKENS_QUICK : TOKENS, count = bench->settings->repeats + 1;
    int32_t *all = NULL;
    FL_TRY(FL_ALLOCATE(&out->lengths, count, error));
    FL_TRY(FL_ALLOCATE(&out->ids, count, error));
    out->count = count;
    FL_TRY(fl_bench_ids(bench, count * tokens, &all, error));
    fl_status status = FL_OK;
    for (size_t i = 0; status == FL_OK && i < count; i++) {
        out->lengths[i] = tokens;
        status = FL_ALLOCATE(&out->ids[i], tokens, error);
        if (status == FL_OK) memcpy(out->ids[i], all + i * tokens, tokens * sizeof *all);
    }
    fl_memory_free(all);
    return status;
}

fl_status fl_bench_training(fl_bench *bench, fl_error *error) {
    static const char *const objectives[] = {"layer_mse", "next_token", "kl"};
    fl_sequences sequences = {0};
    fl_status status = make_sequences(bench, &sequences, error);
    for (size_t i = 0; status == FL_OK && i < sizeof objectives / sizeof objectives[0]; i++)
        status = measure(bench, objectives[i], &sequences, error);
    fl_sequences_release(&sequences);
    return status;
}
