#include "harness/eval/task_result.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/eval/task_columns.h"

void fl_task_result_release(fl_task_result *result) {
    size_t columns = 0;
    const fl_task_column *table = fl_task_columns(&columns);
    for (size_t i = 0; i < columns; i++) fl_memory_free(fl_task_column_data(&table[i], result));
    fl_memory_free(result->subject);
    fl_memory_free(result->document_hash);
    fl_memory_free(result->name);
    fl_memory_free(result->label);
    for (size_t i = 0; result->answer != NULL && i < result->count; i++) fl_memory_free(result->answer[i]);
    fl_memory_free(result->answer);
    for (size_t i = 0; i < result->subject_count; i++) fl_memory_free(result->subjects[i].name);
    fl_memory_free(result->subjects);
    *result = (fl_task_result){0};
}

static void add_metric(fl_task_result *result, const char *name, double value) {
    assert(result->metric_count < FL_TASK_MAX_METRICS); /* the tables here never get there */
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

static bool is_made(fl_task_form form) {
    return form == FL_TASK_RECALL || form == FL_TASK_GENERATION;
}

static fl_status allocate_columns(const fl_task_kind *kind, fl_task_result *result, fl_error *error) {
    const size_t count = result->count, choices = result->choices;
    FL_TRY(FL_ALLOCATE(&result->document, count, error));
    FL_TRY(FL_ALLOCATE(&result->subject, count, error));
    FL_TRY(FL_ALLOCATE(&result->document_hash, count, error));
    FL_TRY(FL_ALLOCATE(&result->gold, count, error));
    FL_TRY(FL_ALLOCATE(&result->greedy, count, error));
    FL_TRY(FL_ALLOCATE(&result->linear_share, count, error));
    FL_TRY(FL_ALLOCATE(&result->log_likelihood, count * choices, error));
    if (kind->form != FL_TASK_GENERATION) FL_TRY(FL_ALLOCATE(&result->choice_greedy, count * choices, error));
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
    if (is_made(kind->form)) {
        FL_TRY(FL_ALLOCATE(&result->length, count, error));
        FL_TRY(FL_ALLOCATE(&result->depth, count, error));
    }
    if (kind->form == FL_TASK_RECALL) FL_TRY(FL_ALLOCATE(&result->stale, count, error));
    if (kind->form == FL_TASK_TEXT) FL_TRY(FL_ALLOCATE(&result->square_sum, count, error));
    if (kind->drop_shots) FL_TRY(FL_ALLOCATE(&result->shots, count, error));
    if (kind->form != FL_TASK_PAGES) return FL_OK;
    FL_TRY(FL_ALLOCATE(&result->words, count, error));
    return FL_ALLOCATE(&result->bytes, count, error);
}

/* A made item or a window of a text has no document: its tokens stand for it. */
static fl_status hash_item(const fl_task_requests *requests, const fl_task_item *item, fl_hash *out,
                           fl_error *error) {
    *out = item->hash;
    if (out->text[0] != '\0') return FL_OK;
    fl_hash_stream *stream = NULL;
    FL_TRY(fl_hash_stream_create(&stream, error));
    for (size_t i = 0; i < item->request_count; i++) {
        const fl_score_request *request = &requests->requests[item->first_request + i];
        const size_t counts[] = {request->context_count, request->continuation_count};
        fl_hash_stream_add(stream, counts, sizeof counts);
        fl_hash_stream_add(stream, request->context, counts[0] * sizeof *request->context);
        if (counts[1] > 0)
            fl_hash_stream_add(stream, request->continuation, counts[1] * sizeof *request->continuation);
    }
    *out = fl_hash_stream_value(stream);
    fl_hash_stream_destroy(stream);
    return FL_OK;
}

static fl_status describe_items(const fl_task_requests *requests, fl_task_result *result, fl_error *error) {
    for (size_t i = 0; i < result->count; i++) {
        const fl_task_item *item = &requests->items[i];
        result->document[i] = (int64_t)item->document;
        result->subject[i] = (int64_t)item->subject;
        result->gold[i] = item->gold;
        if (result->length != NULL) result->length[i] = (int64_t)item->length;
        if (result->depth != NULL) result->depth[i] = item->depth;
        if (result->words != NULL) result->words[i] = (int64_t)item->words;
        if (result->bytes != NULL) result->bytes[i] = (int64_t)item->bytes;
        if (result->shots != NULL) result->shots[i] = (int64_t)item->shots;
        FL_TRY(hash_item(requests, item, &result->document_hash[i], error));
    }
    return FL_OK;
}

static fl_status name_subjects(const fl_task_data *set, fl_task_result *result, fl_error *error) {
    FL_TRY(FL_ALLOCATE(&result->subjects, set->subject_count, error));
    for (size_t s = 0; s < set->subject_count; s++) {
        FL_TRY(fl_memory_copy_string(&result->subjects[s].name, set->subjects[s].name, error));
        result->subject_count = s + 1;
    }
    return FL_OK;
}

fl_status fl_task_result_create(const fl_task_config *config, const fl_task_requests *requests,
                                size_t choices, fl_task_result *result, fl_error *error) {
    result->count = requests->item_count;
    result->choices = choices;
    result->data_hash = requests->set.hash;
    FL_TRY(fl_memory_copy_string(&result->name, config->name, error));
    FL_TRY(fl_memory_copy_string(&result->label, config->label, error));
    FL_TRY(allocate_columns(config->kind, result, error));
    FL_TRY(name_subjects(&requests->set, result, error));
    for (size_t i = 0; i < result->count * choices; i++) result->log_likelihood[i] = (double)NAN;
    return describe_items(requests, result, error);
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
    if (result->stale != NULL) {
        const int64_t first = (int64_t)item->stale_first, end = first + (int64_t)item->stale_count;
        result->stale[row->index] = best >= first && best < end;
    }
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
        result->choice_greedy[at] = score->greedy && (!started || result->choice_greedy[at]);
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
    if (result->square_sum != NULL) result->square_sum[row->index] = scores[item->first_request].square_sum;
    if (has_choices(form)) judge_choices(row);
    if (form == FL_TASK_LAST_WORD) result->correct[row->index] = (double)result->greedy[row->index];
}

fl_status fl_task_result_fill(const fl_task_config *config, const fl_task_requests *requests,
                              const fl_score *scores, fl_task_result *result, fl_error *error) {
    size_t choices = 1;
    for (size_t i = 0; i < requests->item_count && config->kind->form != FL_TASK_PAGES; i++) {
        if (requests->items[i].request_count > choices) choices = requests->items[i].request_count;
    }
    FL_TRY(fl_task_result_create(config, requests, choices, result, error));
    for (size_t i = 0; i < requests->item_count; i++) {
        const item_row row = {.config = config,
                              .requests = requests,
                              .item = &requests->items[i],
                              .index = i,
                              .result = result};
        fill_item(&row, scores);
    }
    return FL_OK;
}

static void add_mean(fl_task_result *result, const char *name, const double *values, size_t count) {
    char error_name[FL_METRIC_NAME_BYTES];
    snprintf(error_name, sizeof error_name, "%s_stderr", name);
    add_metric(result, name, fl_metric_mean(values, count));
    add_metric(result, error_name, fl_metric_mean_stderr(values, count));
}

static void summarise_subjects(fl_task_result *result) {
    size_t first = 0;
    for (size_t s = 0; s < result->subject_count; s++) {
        fl_task_subject_result *subject = &result->subjects[s];
        size_t end = first;
        while (end < result->count && result->subject[end] == (int64_t)s) end++;
        *subject = (fl_task_subject_result){.name = subject->name,
                                            .count = end - first,
                                            .category = fl_mmlu_category(subject->name),
                                            .acc = (double)NAN,
                                            .acc_stderr = (double)NAN,
                                            .acc_norm = (double)NAN,
                                            .acc_norm_stderr = (double)NAN};
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
        add_metric(result, name, fl_metric_group_micro(values, sizes, leaves));
        snprintf(other, sizeof other, "%s_stderr", name);
        add_metric(result, other, fl_metric_group_stderr(errors, sizes, leaves));
        snprintf(other, sizeof other, "%s_macro", name);
        if (category == NULL) add_metric(result, other, fl_metric_group_macro(values, leaves));
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
    add_metric(result, "choice_mass", sum / (double)result->count);
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
        if (count > 0.0) add_metric(result, name, sum / count);
    }
}

static void summarise_recall(const fl_task_config *config, fl_task_result *result) {
    double stale = 0.0;
    for (size_t i = 0; i < result->count; i++) stale += (double)result->stale[i];
    add_mean(result, "acc", result->correct, result->count);
    add_metric(result, "stale", stale / (double)result->count);
    add_lengths(config, result);
}

static fl_status summarise_words(const fl_task_config *config, fl_task_result *result, fl_error *error) {
    double perplexity_error = 0.0;
    FL_TRY(fl_metric_perplexity_stderr(result->log_likelihood, result->count, config->bootstrap,
                                       &perplexity_error, error));
    add_metric(result, "perplexity", fl_metric_perplexity(result->log_likelihood, result->count));
    add_metric(result, "perplexity_stderr", perplexity_error);
    add_mean(result, "acc", result->correct, result->count);
    return FL_OK;
}

static void summarise_pages(fl_task_result *result) {
    double total = 0.0, words = 0.0, bytes = 0.0;
    for (size_t i = 0; i < result->count; i++) {
        total += result->log_likelihood[i];
        words += (double)result->words[i];
        bytes += (double)result->bytes[i];
    }
    add_metric(result, "word_perplexity", exp(-total / words));
    add_metric(result, "byte_perplexity", exp(-total / bytes));
    add_metric(result, "bits_per_byte", -total / (bytes * log(2.0)));
    add_metric(result, "log_likelihood", total);
    add_metric(result, "words", words);
    add_metric(result, "bytes", bytes);
}

/* llama.cpp's error: perplexity * sqrt((mean of squares - square of the mean) / (tokens - 1)). */
static void summarise_text(fl_task_result *result) {
    double total = 0.0, squares = 0.0, tokens = 0.0;
    for (size_t i = 0; i < result->count; i++) {
        total += result->log_likelihood[i * result->choices];
        squares += result->square_sum[i];
        tokens += (double)result->choice_tokens[i * result->choices];
    }
    const double mean = -total / tokens, spread = squares / tokens - mean * mean;
    add_metric(result, "perplexity", exp(mean));
    add_metric(result, "perplexity_stderr", exp(mean) * sqrt(spread / (tokens - 1.0)));
    add_metric(result, "cross_entropy", mean);
    add_metric(result, "scored_tokens", tokens);
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
    add_metric(result, "n", (double)result->count);
    add_metric(result, "linear_share", scored > 0.0 ? reached / scored : 0.0);
    add_metric(result, "truncated", truncated);
    add_metric(result, "prompt_tokens", (double)result->counts.asked_tokens);
    add_metric(result, "computed_tokens", (double)result->counts.computed_tokens);
    add_metric(result, "seconds", result->counts.seconds);
}

fl_status fl_task_result_summarise(const fl_task_config *config, fl_task_result *result, fl_error *error) {
    const fl_task_form form = config->kind->form;
    result->metric_count = 0;
    summarise_subjects(result);
    if (form == FL_TASK_CHOICES || form == FL_TASK_TRUE_MASS)
        FL_TRY(summarise_choices(config, result, error));
    if (form == FL_TASK_RECALL) summarise_recall(config, result);
    if (form == FL_TASK_LAST_WORD) FL_TRY(summarise_words(config, result, error));
    if (form == FL_TASK_PAGES) summarise_pages(result);
    if (form == FL_TASK_TEXT) summarise_text(result);
    if (form == FL_TASK_GENERATION) {
        add_mean(result, "acc", result->correct, result->count);
        add_lengths(config, result);
    }
    add_bookkeeping(result);
    return FL_OK;
}
