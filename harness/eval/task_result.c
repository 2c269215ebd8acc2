#include "harness/eval/task_result.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"

void fl_task_result_release(fl_task_result *result) {
    void *columns[] = {result->document,
                       result->subject,
                       result->gold,
                       result->prediction,
                       result->prediction_norm,
                       result->greedy,
                       result->correct,
                       result->correct_norm,
                       result->correct_bytes,
                       result->linear_share,
                       result->log_likelihood,
                       result->choice_tokens,
                       result->choice_characters,
                       result->context_tokens,
                       result->truncated,
                       result->length,
                       result->depth,
                       result->name,
                       result->label};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) fl_memory_free(columns[i]);
    for (size_t i = 0; result->answer != NULL && i < result->count; i++) fl_memory_free(result->answer[i]);
    fl_memory_free(result->answer);
    for (size_t i = 0; i < result->subject_count; i++) fl_memory_free(result->subjects[i].name);
    fl_memory_free(result->subjects);
    *result = (fl_task_result){0};
}

void fl_task_result_add(fl_task_result *result, const char *name, double value) {
    assert(result->metric_count < FL_TASK_MAX_METRICS);
    if (result->metric_count == FL_TASK_MAX_METRICS) return;
    fl_task_metric *metric = &result->metrics[result->metric_count++];
    snprintf(metric->name, sizeof metric->name, "%s", name);
    metric->value = value;
}

double fl_task_result_metric(const fl_task_result *result, const char *name) {
    for (size_t i = 0; i < result->metric_count; i++) {
        if (strcmp(result->metrics[i].name, name) == 0) return result->metrics[i].value;
    }
    return (double)NAN;
}

static bool has_choices(fl_task_form form) {
    return form == FL_TASK_CHOICES || form == FL_TASK_TRUE_MASS || form == FL_TASK_RECALL;
}

static bool has_accuracy(fl_task_form form) {
    return form != FL_TASK_PAGES && form != FL_TASK_TEXT;
}

fl_status fl_task_result_create(const fl_task_config *config, size_t count, size_t choices,
                                fl_task_result *result, fl_error *error) {
    const fl_task_kind *kind = config->kind;
    const bool made = kind->form == FL_TASK_RECALL || kind->form == FL_TASK_GENERATION;
    result->count = count;
    result->choices = choices;
    FL_TRY(fl_memory_copy_string(&result->name, config->name, error));
    FL_TRY(fl_memory_copy_string(&result->label, config->label, error));
    FL_TRY(FL_ALLOCATE(&result->document, count, error));
    FL_TRY(FL_ALLOCATE(&result->subject, count, error));
    FL_TRY(FL_ALLOCATE(&result->gold, count, error));
    FL_TRY(FL_ALLOCATE(&result->greedy, count, error));
    FL_TRY(FL_ALLOCATE(&result->linear_share, count, error));
    FL_TRY(FL_ALLOCATE(&result->log_likelihood, count * choices, error));
    FL_TRY(FL_ALLOCATE(&result->choice_tokens, count * choices, error));
    FL_TRY(FL_ALLOCATE(&result->choice_characters, count * choices, error));
    FL_TRY(FL_ALLOCATE(&result->context_tokens, count, error));
    FL_TRY(FL_ALLOCATE(&result->truncated, count, error));
    if (has_choices(kind->form)) FL_TRY(FL_ALLOCATE(&result->prediction, count, error));
    if (has_accuracy(kind->form)) FL_TRY(FL_ALLOCATE(&result->correct, count, error));
    if (kind->length_normalised) {
        FL_TRY(FL_ALLOCATE(&result->prediction_norm, count, error));
        FL_TRY(FL_ALLOCATE(&result->correct_norm, count, error));
        FL_TRY(FL_ALLOCATE(&result->correct_bytes, count, error));
    }
    if (made) {
        FL_TRY(FL_ALLOCATE(&result->length, count, error));
        FL_TRY(FL_ALLOCATE(&result->depth, count, error));
    }
    for (size_t i = 0; i < count * choices; i++) result->log_likelihood[i] = (double)NAN;
    return FL_OK;
}

/* Argmax, or -1 when there is no number at all. */
static int64_t best_choice(const double *values, const double *lengths, size_t count) {
    const size_t best = fl_metric_best(values, lengths, count);
    return count == 0 || isnan(values[best]) ? -1 : (int64_t)best;
}

static double share_of_true(const double *values, const unsigned char *correct, size_t count) {
    double largest = -INFINITY, all = 0.0, good = 0.0;
    for (size_t i = 0; i < count; i++) largest = fmax(largest, values[i]);
    for (size_t i = 0; i < count; i++) {
        const double mass = exp(values[i] - largest);
        all += mass;
        good += correct[i] ? mass : 0.0;
    }
    return good / all;
}

typedef struct item_row {
    const fl_task_config *config;
    const fl_task_requests *requests;
    const fl_task_item *item;
    size_t index;
    fl_task_result *result;
} item_row;

/* Predictions and what they are worth. */
static void judge_choices(const item_row *row) {
    const fl_task_item *item = row->item;
    fl_task_result *result = row->result;
    const double *values = result->log_likelihood + row->index * result->choices;
    double characters[FL_DOCUMENT_MAX_CHOICES], bytes[FL_DOCUMENT_MAX_CHOICES];
    const int64_t best = best_choice(values, NULL, item->request_count);
    result->prediction[row->index] = best;
    result->correct[row->index] = item->gold >= 0 && best == item->gold;
    if (row->config->kind->form == FL_TASK_TRUE_MASS) {
        const double share = share_of_true(values, item->correct, item->request_count);
        result->correct[row->index] = isnan(share) ? 0.0 : share;
    }
    if (!row->config->kind->length_normalised) return;
    for (size_t i = 0; i < item->request_count; i++) {
        characters[i] = (double)row->requests->choice_characters[item->first_request + i];
        bytes[i] = (double)row->requests->choice_bytes[item->first_request + i];
    }
    const int64_t best_norm = best_choice(values, characters, item->request_count);
    const int64_t best_bytes = best_choice(values, bytes, item->request_count);
    result->prediction_norm[row->index] = best_norm;
    result->correct_norm[row->index] = item->gold >= 0 && best_norm == item->gold;
    result->correct_bytes[row->index] = item->gold >= 0 && best_bytes == item->gold;
}

/* Columns of one item. Windows of a page are added up into one column. */
static void fill_item(const item_row *row, const fl_score *scores) {
    const fl_task_item *item = row->item;
    fl_task_result *result = row->result;
    const fl_task_form form = row->config->kind->form;
    const bool summed = form == FL_TASK_PAGES;
    size_t tokens = 0, reached = 0;
    for (size_t i = 0; i < item->request_count; i++) {
        const size_t request = item->first_request + i, at = row->index * result->choices + (summed ? 0 : i);
        const fl_score *score = &scores[request];
        const int64_t context = (int64_t)row->requests->requests[request].context_count;
        const bool started = summed && i > 0;
        result->log_likelihood[at] = (started ? result->log_likelihood[at] : 0.0) + score->log_likelihood;
        result->choice_tokens[at] += (int64_t)score->tokens;
        result->choice_characters[at] = (int64_t)row->requests->choice_characters[request];
        if (context > result->context_tokens[row->index]) result->context_tokens[row->index] = context;
        if ((int64_t)score->truncated > result->truncated[row->index]) {
            result->truncated[row->index] = (int64_t)score->truncated;
        }
        tokens += score->tokens;
        reached += score->reached;
    }
    if (summed && item->request_count == 0) result->log_likelihood[row->index * result->choices] = 0.0;
    result->linear_share[row->index] = tokens > 0 ? (double)reached / (double)tokens : 0.0;
    const bool has_gold = item->gold >= 0 && (size_t)item->gold < item->request_count;
    result->greedy[row->index] = has_gold && scores[item->first_request + (size_t)item->gold].greedy;
    if (has_choices(form)) judge_choices(row);
    if (form == FL_TASK_LAST_WORD) result->correct[row->index] = (double)result->greedy[row->index];
}

fl_status fl_task_result_fill(const fl_task_config *config, const fl_task_requests *requests,
                              const fl_score *scores, fl_task_result *result, fl_error *error) {
    size_t choices = 1;
    for (size_t i = 0; i < requests->item_count && config->kind->form != FL_TASK_PAGES; i++) {
        if (requests->items[i].request_count > choices) choices = requests->items[i].request_count;
    }
    FL_TRY(fl_task_result_create(config, requests->item_count, choices, result, error));
    for (size_t i = 0; i < requests->item_count; i++) {
        const fl_task_item *item = &requests->items[i];
        result->document[i] = (int64_t)item->document;
        result->subject[i] = (int64_t)item->subject;
        result->gold[i] = item->gold;
        if (result->length != NULL) result->length[i] = (int64_t)item->length;
        if (result->depth != NULL) result->depth[i] = item->depth;
        const item_row row = {
            .config = config, .requests = requests, .item = item, .index = i, .result = result};
        fill_item(&row, scores);
    }
    return FL_OK;
}

static void add_mean(fl_task_result *result, const char *name, const double *values, size_t count) {
    char error_name[FL_METRIC_NAME_BYTES];
    snprintf(error_name, sizeof error_name, "%s_stderr", name);
    fl_task_result_add(result, name, fl_metric_mean(values, count));
    fl_task_result_add(result, error_name, fl_metric_mean_stderr(values, count));
}

static fl_status fill_subjects(const fl_task_requests *requests, fl_task_result *result, fl_error *error) {
    const size_t count = requests->set.subject_count;
    FL_TRY(FL_ALLOCATE(&result->subjects, count, error));
    size_t first = 0;
    for (size_t s = 0; s < count; s++) {
        fl_task_subject_result *subject = &result->subjects[s];
        size_t end = first;
        while (end < result->count && result->subject[end] == (int64_t)s) end++;
        *subject = (fl_task_subject_result){.count = end - first,
                                            .category = fl_mmlu_category(requests->set.subjects[s].name),
                                            .acc = (double)NAN,
                                            .acc_stderr = (double)NAN,
                                            .acc_norm = (double)NAN,
                                            .acc_norm_stderr = (double)NAN};
        FL_TRY(fl_memory_copy_string(&subject->name, requests->set.subjects[s].name, error));
        result->subject_count = s + 1;
        if (end > first && result->correct != NULL) {
            subject->acc = fl_metric_mean(result->correct + first, subject->count);
            subject->acc_stderr = fl_metric_mean_stderr(result->correct + first, subject->count);
        }
        if (end > first && result->correct_norm != NULL) {
            subject->acc_norm = fl_metric_mean(result->correct_norm + first, subject->count);
            subject->acc_norm_stderr = fl_metric_mean_stderr(result->correct_norm + first, subject->count);
        }
        first = end;
    }
    return FL_OK;
}

/* Micro mean, pooled error and macro mean over the subjects of a category (NULL: all), under `name`. */
static fl_status add_group(fl_task_result *result, const char *name, const char *category, bool norm,
                           fl_error *error) {
    const size_t most = result->subject_count;
    double *values = NULL, *errors = NULL;
    size_t *sizes = NULL, leaves = 0;
    fl_status status;
    FL_TRY_DONE(status, FL_ALLOCATE(&values, most, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&errors, most, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&sizes, most, error));
    for (size_t i = 0; i < most; i++) {
        const fl_task_subject_result *subject = &result->subjects[i];
        const bool inside =
            category == NULL || (subject->category != NULL && strcmp(category, subject->category) == 0);
        if (!inside || subject->count == 0) continue;
        values[leaves] = norm ? subject->acc_norm : subject->acc;
        errors[leaves] = norm ? subject->acc_norm_stderr : subject->acc_stderr;
        sizes[leaves++] = subject->count;
    }
    if (leaves > 0) {
        char other[FL_METRIC_NAME_BYTES];
        fl_task_result_add(result, name, fl_metric_group_micro(values, sizes, leaves));
        snprintf(other, sizeof other, "%s_stderr", name);
        fl_task_result_add(result, other, fl_metric_group_stderr(errors, sizes, leaves));
        snprintf(other, sizeof other, "%s_macro", name);
        if (category == NULL) fl_task_result_add(result, other, fl_metric_group_macro(values, leaves));
    }
done:
    fl_memory_free(values);
    fl_memory_free(errors);
    fl_memory_free(sizes);
    return status;
}

static fl_status add_subject_groups(fl_task_result *result, fl_error *error) {
    static const char *const categories[] = {"stem", "humanities", "social_sciences", "other"};
    FL_TRY(add_group(result, "acc", NULL, false, error));
    if (result->correct_norm != NULL) FL_TRY(add_group(result, "acc_norm", NULL, true, error));
    /* Only MMLU itself has groups: one of its subject names among others is a coincidence. */
    for (size_t i = 0; i < result->subject_count; i++) {
        if (result->subjects[i].category == NULL) return FL_OK;
    }
    for (size_t i = 0; i < sizeof categories / sizeof categories[0]; i++) {
        char name[FL_METRIC_NAME_BYTES];
        snprintf(name, sizeof name, "acc_%s", categories[i]);
        FL_TRY(add_group(result, name, categories[i], false, error));
    }
    return FL_OK;
}

/* Mean probability the model puts on the listed answers together: low when it does not play along. */
static void add_choice_mass(fl_task_result *result) {
    double sum = 0.0;
    for (size_t i = 0; i < result->count; i++) {
        for (size_t c = 0; c < result->choices; c++) {
            const double value = result->log_likelihood[i * result->choices + c];
            sum += isnan(value) ? 0.0 : exp(value);
        }
    }
    fl_task_result_add(result, "choice_mass", sum / (double)result->count);
}

static fl_status summarise_choices(const fl_task_config *config, fl_task_result *result, fl_error *error) {
    if (result->subject_count > 1) {
        FL_TRY(add_subject_groups(result, error));
    } else {
        add_mean(result, "acc", result->correct, result->count);
        if (result->correct_norm != NULL) add_mean(result, "acc_norm", result->correct_norm, result->count);
    }
    if (result->correct_bytes != NULL) add_mean(result, "acc_bytes", result->correct_bytes, result->count);
    if (!config->kind->length_normalised) add_choice_mass(result);
    return FL_OK;
}

/* acc_length_N for each length asked for, in order; grid points beyond the table's room are left to the
 * items. */
static void add_lengths(const fl_task_config *config, fl_task_result *result) {
    for (size_t l = 0; l < config->lengths.count && result->metric_count + 16 < FL_TASK_MAX_METRICS; l++) {
        double sum = 0.0, count = 0.0;
        for (size_t i = 0; i < result->count; i++) {
            if (result->length[i] != (int64_t)config->lengths.values[l]) continue;
            sum += result->correct[i];
            count += 1.0;
        }
        char name[FL_METRIC_NAME_BYTES];
        snprintf(name, sizeof name, "acc_length_%zu", config->lengths.values[l]);
        if (count > 0.0) fl_task_result_add(result, name, sum / count);
    }
}

static void summarise_recall(const fl_task_config *config, const fl_task_requests *requests,
                             fl_task_result *result) {
    double stale = 0.0;
    for (size_t i = 0; i < result->count; i++) {
        const fl_task_item *item = &requests->items[i];
        const int64_t first = (int64_t)item->stale_first;
        stale += result->prediction[i] >= first && result->prediction[i] < first + (int64_t)item->stale_count;
    }
    add_mean(result, "acc", result->correct, result->count);
    fl_task_result_add(result, "stale", stale / (double)result->count);
    add_lengths(config, result);
}

static fl_status summarise_words(const fl_task_config *config, fl_task_result *result, fl_error *error) {
    double perplexity_error = 0.0;
    FL_TRY(fl_metric_perplexity_stderr(result->log_likelihood, result->count, config->bootstrap,
                                       &perplexity_error, error));
    fl_task_result_add(result, "perplexity", fl_metric_perplexity(result->log_likelihood, result->count));
    fl_task_result_add(result, "perplexity_stderr", perplexity_error);
    add_mean(result, "acc", result->correct, result->count);
    return FL_OK;
}

static void summarise_pages(const fl_task_requests *requests, fl_task_result *result) {
    double total = 0.0, words = 0.0, bytes = 0.0;
    for (size_t i = 0; i < result->count; i++) {
        total += result->log_likelihood[i];
        words += (double)requests->items[i].words;
        bytes += (double)requests->items[i].bytes;
    }
    fl_task_result_add(result, "word_perplexity", exp(-total / words));
    fl_task_result_add(result, "byte_perplexity", exp(-total / bytes));
    fl_task_result_add(result, "bits_per_byte", -total / (bytes * log(2.0)));
    fl_task_result_add(result, "log_likelihood", total);
    fl_task_result_add(result, "words", words);
    fl_task_result_add(result, "bytes", bytes);
}

/* llama.cpp's error: perplexity * sqrt((mean of squares - square of the mean) / (tokens - 1)). */
static void summarise_text(const fl_task_requests *requests, const fl_score *scores, fl_task_result *result) {
    double total = 0.0, squares = 0.0, tokens = 0.0;
    for (size_t i = 0; i < requests->request_count; i++) {
        total += scores[i].log_likelihood;
        squares += scores[i].square_sum;
        tokens += (double)scores[i].tokens;
    }
    const double mean = -total / tokens, spread = squares / tokens - mean * mean;
    fl_task_result_add(result, "perplexity", exp(mean));
    fl_task_result_add(result, "perplexity_stderr", exp(mean) * sqrt(spread / (tokens - 1.0)));
    fl_task_result_add(result, "cross_entropy", mean);
    fl_task_result_add(result, "scored_tokens", tokens);
}

static void add_bookkeeping(fl_task_result *result) {
    double scored = 0.0, reached = 0.0, truncated = 0.0;
    for (size_t i = 0; i < result->count; i++) {
        double tokens = 0.0;
        for (size_t c = 0; c < result->choices; c++)
            tokens += (double)result->choice_tokens[i * result->choices + c];
        scored += tokens;
        reached += tokens * result->linear_share[i];
        truncated += result->truncated[i] > 0;
    }
    fl_task_result_add(result, "n", (double)result->count);
    fl_task_result_add(result, "linear_share", scored > 0.0 ? reached / scored : 0.0);
    fl_task_result_add(result, "truncated", truncated);
    fl_task_result_add(result, "prompt_tokens", (double)result->counts.asked_tokens);
    fl_task_result_add(result, "computed_tokens", (double)result->counts.computed_tokens);
    fl_task_result_add(result, "seconds", result->counts.seconds);
}

fl_status fl_task_result_summarise(const fl_task_config *config, const fl_task_requests *requests,
                                   const fl_score *scores, fl_task_result *result, fl_error *error) {
    const fl_task_form form = config->kind->form;
    FL_TRY(fill_subjects(requests, result, error));
    if (form == FL_TASK_CHOICES || form == FL_TASK_TRUE_MASS)
        FL_TRY(summarise_choices(config, result, error));
    if (form == FL_TASK_RECALL) summarise_recall(config, requests, result);
    if (form == FL_TASK_LAST_WORD) FL_TRY(summarise_words(config, result, error));
    if (form == FL_TASK_PAGES) summarise_pages(requests, result);
    if (form == FL_TASK_TEXT) summarise_text(requests, scores, result);
    if (form == FL_TASK_GENERATION) {
        add_mean(result, "acc", result->correct, result->count);
        add_lengths(config, result);
    }
    add_bookkeeping(result);
    return FL_OK;
}
