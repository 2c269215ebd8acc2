/* Scores: log-likelihoods of lm-evaluation-harness on the very same weights, the metrics made of them, and
 * the laws of sharing. FROSTLINE_FULL=1 scores every item of the pack instead of a few. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/eval/task.h"
#include "tests/support/fixture.h"
#include "tests/support/task_reference.h"

#define ASSERT_NEAR(x, y, bound) assert_true(fabs((x) - (y)) <= (bound))

typedef struct opened_model {
    fl_model *model;
    fl_compute *compute;
    fl_network *network;
    fl_tokenizer *tokenizer;
} opened_model;

static opened_model shared_model;

static bool full_run(void) {
    const char *value = getenv("FROSTLINE_FULL");
    return value != NULL && strcmp(value, "1") == 0;
}

static void check(fl_status status, const fl_error *error) {
    if (status != FL_OK) fail_msg("%s", error->message);
}

/* The model is opened once for all tests of this program. */
static const opened_model *opened(const char *test) {
    const char *path = fl_default_model_path();
    if (path == NULL) fl_fixture_skip(test, "the default model");
    if (shared_model.network != NULL) return &shared_model;
    fl_error error = {0};
    const fl_compute_options options = {.threads = 0, .widen_budget_bytes = SIZE_MAX};
    check(fl_model_open(path, &shared_model.model, &error), &error);
    check(fl_compute_create_cpu(&options, &shared_model.compute, &error), &error);
    check(fl_network_create(shared_model.model, shared_model.compute, &shared_model.network, &error), &error);
    check(fl_tokenizer_open(path, &shared_model.tokenizer, &error), &error);
    return &shared_model;
}

static int close_model(void **state) {
    (void)state;
    fl_network_destroy(shared_model.network);
    fl_compute_destroy(shared_model.compute);
    fl_model_close(shared_model.model);
    fl_tokenizer_close(shared_model.tokenizer);
    return 0;
}

static fl_task_result evaluated(const opened_model *model, const fl_task_config *config,
                                const fl_mechanism *mechanism) {
    fl_task_result result;
    fl_error error = {0};
    check(fl_task_run(model->network, model->tokenizer, &mechanism, 1, config, NULL, &result, &error),
          &error);
    return result;
}

static double number_of(const cJSON *object, const char *name) {
    return cJSON_GetObjectItem(object, name)->valuedouble;
}

typedef struct comparison {
    size_t items, flipped;
    double worst, worst_per_token;
} comparison;

/* Float32 itself leaves about 1e-6 a token. */
static void compare_value(double ours, double theirs, int64_t tokens, comparison *out) {
    const double difference = fabs(ours - theirs);
    out->worst = fmax(out->worst, difference);
    out->worst_per_token = fmax(out->worst_per_token, difference / (double)tokens);
    if (difference > fmax(5e-4, 2e-6 * (double)tokens)) {
        fail_msg("log-likelihood %.6f, reference %.6f (%ld tokens)", ours, theirs, (long)tokens);
    }
}

/* The reference row of an item: rows are subject after subject, `limit` each. */
static void compare_item(const fl_task_result *result, size_t item, const cJSON *row, comparison *out) {
    const cJSON *requests = cJSON_GetObjectItem(row, "requests");
    assert_int_equal(result->document[item], (int64_t)number_of(row, "doc"));
    out->items++;
    if (requests == NULL) {
        compare_value(result->log_likelihood[item], number_of(row, "ll"), result->choice_tokens[item], out);
        return;
    }
    size_t choice = 0;
    for (const cJSON *request = requests->child; request != NULL; request = request->next, choice++) {
        const size_t at = item * result->choices + choice;
        compare_value(result->log_likelihood[at], number_of(request, "ll"), result->choice_tokens[at], out);
    }
    if (result->prediction != NULL)
        out->flipped += result->prediction[item] != (int64_t)number_of(row, "pred_acc");
    if (result->prediction_norm != NULL) {
        out->flipped += result->prediction_norm[item] != (int64_t)number_of(row, "pred_acc_norm");
    }
    if (result->prediction == NULL) assert_int_equal(result->greedy[item], (int)number_of(row, "acc"));
}

/* Metrics of a complete run against scores.json. */
static void compare_metrics(const fl_reference_task *reference, const fl_task_result *result) {
    static const char *const names[] = {
        "acc",          "acc_stderr",        "acc_norm",        "acc_norm_stderr",
        "perplexity",   "perplexity_stderr", "word_perplexity", "byte_perplexity",
        "bits_per_byte"};
    char *text = fl_read_file(fl_pack_path("smollm2/scores.json"), NULL);
    cJSON *scores = cJSON_Parse(text);
    char key[64];
    snprintf(key, sizeof key, "%s%s", reference->task, reference->max_length == 1024 ? "_len1024" : "");
    const cJSON *task = cJSON_GetObjectItem(cJSON_GetObjectItem(scores, "tasks"), key);
    const cJSON *metrics = cJSON_GetObjectItem(task, "metrics");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(key, sizeof key, "%s,none", names[i]);
        const cJSON *metric = cJSON_GetObjectItem(metrics, key);
        if (!cJSON_IsNumber(metric)) continue;
        const double ours = fl_task_result_metric(result, names[i]);
        print_message("  %s %s: %.10g, reference %.10g\n", reference->task, names[i], ours,
                      metric->valuedouble);
        if (fabs(ours - metric->valuedouble) > 2e-4 * fmax(1.0, metric->valuedouble))
            fail_msg("%s differs", names[i]);
    }
    const cJSON *groups = cJSON_GetObjectItem(task, "groups");
    for (const cJSON *group = groups == NULL ? NULL : groups->child; group != NULL; group = group->next) {
        const char *colon = strrchr(group->string, ':');
        snprintf(key, sizeof key, "acc_%s", colon != NULL ? colon + 1 : group->string + strlen("mmlu_"));
        for (char *c = key; *c != '\0'; c++) *c = *c == ' ' ? '_' : *c;
        ASSERT_NEAR(fl_task_result_metric(result, key), number_of(group, "acc,none"), 1e-12);
        strcat(key, "_stderr");
        ASSERT_NEAR(fl_task_result_metric(result, key), number_of(group, "acc_stderr,none"), 1e-12);
    }
    cJSON_Delete(scores);
    fl_memory_free(text);
}

/* `limit` documents of each subject (0: all the reference has), at most `subjects` subjects. */
static comparison compare_task(const opened_model *model, const fl_reference_task *reference, double limit,
                               const char *subject, const char *test) {
    fl_task_config config = fl_reference_config(reference, test);
    const bool complete = limit == 0 && subject == NULL;
    if (limit > 0) config.limit = limit;
    if (subject != NULL) {
        fl_error error;
        check(fl_memory_copy_string(&config.subject, subject, &error), &error);
    }
    fl_task_result result = evaluated(model, &config, NULL);
    fl_json_rows *rows = fl_reference_rows(reference);
    comparison out = {0};
    size_t row = 0;
    for (size_t i = 0; i < result.count; i++) {
        /* The next row of this document (and subject, where only one was run). */
        for (;; row++) {
            assert_true(row < rows->count);
            const cJSON *of = fl_json_rows_member(rows, row, "subject");
            const bool same_subject = subject == NULL || strcmp(of->valuestring, subject) == 0;
            if (same_subject && number_of(rows->rows[row].object, "doc") == (double)result.document[i]) break;
        }
        compare_item(&result, i, rows->rows[row++].object, &out);
    }
    print_message("%s: %zu items, worst log-likelihood difference %.2e (%.1e a token), predictions differing "
                  "%zu, tokens "
                  "%zu of %zu, %.1f s\n",
                  reference->items, out.items, out.worst, out.worst_per_token, out.flipped,
                  result.counts.computed_tokens, result.counts.asked_tokens, result.counts.seconds);
    if (complete) compare_metrics(reference, &result);
    fl_json_rows_destroy(rows);
    fl_task_result_release(&result);
    fl_task_config_clear(&config);
    return out;
}

static void test_log_likelihoods_are_those_of_lm_evaluation_harness(void **state) {
    (void)state;
    const opened_model *model = opened(__func__);
    for (size_t i = 0; i < fl_reference_task_count; i++) {
        const fl_reference_task *reference = &fl_reference_tasks[i];
        const bool pages = strcmp(reference->task, "wikitext") == 0,
                   mmlu = strncmp(reference->task, "mmlu", 4) == 0;
        if ((pages || strcmp(reference->task, "arc_challenge") == 0) && !full_run()) continue;
        const comparison compared = compare_task(model, reference,
                                                 full_run() ? 0
                                                 : pages    ? 1
                                                 : mmlu     ? 2
                                                            : 5,
                                                 mmlu && !full_run() ? "anatomy" : NULL, __func__);
        assert_true(compared.flipped <= (full_run() ? 1 : 0));
    }
}

/* The sums of one definition in perplexity.json against the first `limit` windows (0: all of them). */
static void compare_windows(const opened_model *model, const char *definition, fl_windows_rule rule,
                            size_t window, size_t stride, size_t limit, const char *test) {
    const char *path = fl_pack_path("smollm2/perplexity.json"),
               *data = fl_pack_path("text/wikitext-2-raw/wiki.test.raw");
    if (path == NULL || data == NULL) fl_fixture_skip(test, "packs smollm2 and text");
    char *text = fl_read_file(path, NULL);
    cJSON *json = cJSON_Parse(text);
    const cJSON *reference = cJSON_GetObjectItem(json, definition);
    const cJSON *sums =
        cJSON_GetObjectItem(reference, rule == FL_WINDOWS_LLAMA_CPP ? "chunk_nll_sum" : "window_nll_sum");
    fl_task_config config;
    fl_error error = {0};
    check(fl_task_config_default("perplexity", data, &config, &error), &error);
    config.window_rule = rule;
    config.window = window;
    config.stride = stride;
    config.limit = (double)(limit != 0 ? limit : sums != NULL ? (size_t)cJSON_GetArraySize(sums) : 39);
    fl_task_result result = evaluated(model, &config, NULL);
    double worst = 0.0;
    for (size_t i = 0; sums != NULL && i < result.count; i++) {
        worst = fmax(worst, fabs(-result.log_likelihood[i] - cJSON_GetArrayItem(sums, (int)i)->valuedouble));
    }
    if (sums != NULL) { /* the pack has none of the strided definition */
        print_message("%s: %zu windows, worst difference of a window's sum %.2e\n", definition, result.count,
                      worst);
        assert_true(worst < 5e-3);
    }
    if (limit == 0) {
        assert_true(fl_task_result_metric(&result, "scored_tokens") == number_of(reference, "count"));
        const double ours = fl_task_result_metric(&result, "perplexity"),
                     theirs = number_of(reference, "ppl");
        print_message("  perplexity %.8f, reference %.8f\n", ours, theirs);
        ASSERT_NEAR(ours, theirs, 1e-5 * theirs);
        if (rule == FL_WINDOWS_LLAMA_CPP) {
            ASSERT_NEAR(fl_task_result_metric(&result, "perplexity_stderr"),
                        number_of(reference, "plus_minus"), 1e-5);
        }
    }
    fl_task_result_release(&result);
    fl_task_config_clear(&config);
    cJSON_Delete(json);
    fl_memory_free(text);
}

static void test_perplexities_by_every_definition_are_those_of_the_pack(void **state) {
    (void)state;
    const opened_model *model = opened(__func__);
    compare_windows(model, "llama_cpp_512", FL_WINDOWS_LLAMA_CPP, 512, 256, full_run() ? 0 : 1, __func__);
    if (!full_run()) return;
    compare_windows(model, "window_1024", FL_WINDOWS_CHUNKS, 1024, 1024, 0, __func__);
    compare_windows(model, "strided_1024_512", FL_WINDOWS_STRIDED, 1024, 512, 0, __func__);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_likelihoods_are_those_of_lm_evaluation_harness),
        cmocka_unit_test(test_perplexities_by_every_definition_are_those_of_the_pack),
    };
    return cmocka_run_group_tests(tests, NULL, close_model);
}
