/* Tasks: MMLU-style questions after five worked examples, with and without sharing the prompts' common
 * beginnings. A repeat is everything from opening the files to the scores. */
#include <string.h>

#include "harness/base/memory.h"
#include "harness/bench/bench_rows.h"
#include "harness/eval/task.h"

enum { SHOTS = 5 };

typedef struct task_case {
    const fl_bench *bench;
    const fl_tokenizer *tokenizer;
    const fl_mechanism *mechanism;
    bool share, count_only;
    size_t questions; /* set by the run */
} task_case;

/* subject NULL: all there are. */
static fl_status open_subject(const task_case *c, const char *subject, fl_task **out, fl_error *error) {
    const fl_bench_settings *settings = c->bench->settings;
    fl_task_config config;
    FL_TRY(fl_task_config_default("mmlu", settings->mmlu, &config, error));
    config.shots = SHOTS;
    config.limit = (double)settings->questions;
    config.share = c->share;
    fl_status status = FL_OK;
    if (subject != NULL) status = fl_memory_copy_string(&config.subject, subject, error);
    if (status == FL_OK) status = fl_task_open(&config, c->bench->work.network, c->tokenizer, out, error);
    fl_task_config_clear(&config);
    return status;
}

static fl_status run_subject(task_case *c, const char *subject, fl_error *error) {
    fl_task *task = NULL;
    fl_task_result result;
    FL_TRY(open_subject(c, subject, &task, error));
    c->questions += fl_task_item_count(task);
    fl_status status = c->count_only ? FL_OK : fl_task_evaluate(task, c->mechanism, NULL, &result, error);
    if (status == FL_OK && !c->count_only) fl_task_result_release(&result);
    fl_task_close(task);
    return status;
}

static fl_status run_subjects(void *context, fl_error *error) {
    task_case *c = context;
    const fl_bench_names *subjects = &c->bench->settings->subjects;
    c->questions = 0;
    if (subjects->count == 0) return run_subject(c, NULL, error);
    for (size_t i = 0; i < subjects->count; i++) FL_TRY(run_subject(c, subjects->names[i], error));
    return FL_OK;
}

static fl_status count_questions(task_case *c, fl_error *error) {
    c->count_only = true;
    FL_TRY(run_subjects(c, error));
    c->count_only = false;
    if (c->questions > 0) return FL_OK;
    return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: no questions", c->bench->settings->mmlu);
}

static fl_status measure(fl_bench *bench, task_case *c, const char *rule, bool share, fl_bench_row *kept,
                         fl_error *error) {
    c->share = share;
    fl_bench_row row = {
        .group = "tasks", .name = "mmlu", .unit = "questions/s", .work = (double)c->questions};
    fl_bench_add_text(&row, "rule", rule);
    fl_bench_add_number(&row, "shots", SHOTS);
    fl_bench_add_number(&row, "questions", row.work);
    fl_bench_add_text(&row, "prefixes", share ? "shared" : "each alone");
    return fl_bench_measure(bench, &row, run_subjects, c, kept, error);
}

static fl_status measure_softmax(fl_bench *bench, task_case *c, fl_error *error) {
    fl_bench_row shared, alone;
    FL_TRY(measure(bench, c, "softmax", true, &shared, error));
    if (bench->settings->shared_only) return FL_OK;
    FL_TRY(measure(bench, c, "softmax", false, &alone, error));
    fl_bench_row row = {.group = "tasks", .name = "gain of sharing", .unit = "ratio"};
    return fl_bench_derive(bench, &row, alone.minimum / shared.minimum, error);
}

static fl_status measure_linear(fl_bench *bench, task_case *c, fl_error *error) {
    fl_linearised linearised;
    const char *rule = fl_bench_one_rule(bench);
    FL_TRY(fl_bench_linearise_rule(bench, rule, true, &linearised, error));
    c->mechanism = linearised.mechanism;
    fl_status status = measure(bench, c, rule, true, NULL, error);
    fl_linearised_release(&linearised);
    return status;
}

fl_status fl_bench_tasks(fl_bench *bench, fl_error *error) {
    fl_tokenizer *tokenizer = NULL;
    FL_TRY(fl_workbench_tokenizer(bench->settings->model, &tokenizer, error));
    task_case c = {.bench = bench, .tokenizer = tokenizer};
    fl_status status = count_questions(&c, error);
    if (status == FL_OK && fl_bench_wants_softmax(bench)) status = measure_softmax(bench, &c, error);
    if (status == FL_OK && fl_bench_wants_linear(bench)) status = measure_linear(bench, &c, error);
    fl_tokenizer_close(tokenizer);
    return status;
}
