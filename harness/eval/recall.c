#include "harness/eval/recall.h"

#include <math.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/base/random.h"

/* `count` distinct ids of [first, end), in random order. */
static fl_status draw_distinct(fl_random *random, size_t first, size_t end, size_t count, int32_t *out,
                               fl_error *error) {
    const size_t range = end - first;
    if (count > range) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "recall needs %zu different token ids of %zu to %zu",
                            count, first, end);
    }
    int32_t *pool = NULL;
    FL_TRY(FL_ALLOCATE(&pool, range, error));
    for (size_t i = 0; i < range; i++) pool[i] = (int32_t)(first + i);
    for (size_t i = 0; i < count; i++) {
        const size_t j = i + (size_t)fl_random_below(random, range - i);
        out[i] = pool[j];
        pool[j] = pool[i];
    }
    fl_memory_free(pool);
    return FL_OK;
}

/* `count` of 0 .. space - 1 without replacement, x drawn with weight (x + 1)^(-0.99). */
static fl_status draw_gaps(fl_random *random, size_t space, size_t count, size_t *gaps, fl_error *error) {
    double *weights = NULL, total = 0.0;
    FL_TRY(FL_ALLOCATE(&weights, space, error));
    for (size_t x = 0; x < space; x++) total += weights[x] = 0.01 * pow((double)(x + 1), -0.99);
    for (size_t i = 0; i < count; i++) {
        double left = fl_random_uniform(random) * total;
        size_t chosen = space;
        for (size_t x = 0; x < space; x++) {
            if (weights[x] <= 0.0) continue;
            chosen = x;
            left -= weights[x];
            if (left < 0.0) break;
        }
        gaps[i] = chosen;
        total -= weights[chosen];
        weights[chosen] = 0.0;
    }
    fl_memory_free(weights);
    return FL_OK;
}

/* An item that asks after `context`: one request for each of `values`. */
static fl_status add_query(fl_task_requests *task, const fl_task_item *item, const int32_t *context,
                           size_t length, const int32_t *values, size_t value_count, fl_error *error) {
    FL_TRY(fl_task_requests_add_item(task, item, error));
    for (size_t i = 0; i < value_count; i++) {
        const fl_score_request request = {
            .context = context, .context_count = length, .continuation = values + i, .continuation_count = 1};
        FL_TRY(fl_task_requests_add(task, &request, 1, 1, error));
    }
    return FL_OK;
}

typedef struct recall_work {
    const fl_task_config *config;
    fl_task_requests *task;
    fl_random random;
    size_t middle; /* keys below, values from here on */
    size_t document;
} recall_work;

static fl_status new_block(recall_work *work, size_t count, int32_t **out, fl_error *error) {
    const int32_t *kept = NULL;
    FL_TRY(FL_ALLOCATE(out, count, error));
    return fl_task_requests_keep(work->task, *out, &kept, error);
}

static fl_status fill_mqar(recall_work *work, size_t length, const int32_t *keys, const int32_t *values,
                           const size_t *gaps, int32_t *ids, fl_error *error) {
    const fl_task_config *config = work->config;
    const size_t pairs = config->pairs;
    for (size_t i = 0; i < length; i++) {
        ids[i] = (int32_t)(config->first_token +
                           (size_t)fl_random_below(&work->random, config->vocabulary - config->first_token));
    }
    for (size_t i = 0; i < pairs; i++) {
        ids[2 * i] = keys[i];
        ids[2 * i + 1] = values[i];
        ids[2 * pairs + 2 * gaps[i]] = keys[i];
    }
    for (size_t i = 0; i < pairs; i++) {
        const fl_task_item item = {
            .document = work->document++, .gold = (int)i, .length = length, .depth = (double)NAN};
        FL_TRY(add_query(work->task, &item, ids, 2 * pairs + 2 * gaps[i] + 1, values, pairs, error));
    }
    return FL_OK;
}

static fl_status add_mqar(recall_work *work, size_t length, fl_error *error) {
    const fl_task_config *config = work->config;
    const size_t pairs = config->pairs;
    if (length % 2 != 0 || 4 * pairs > length || length > work->task->max_length) {
        return fl_error_set(
            error, FL_ERROR_ARGUMENT,
            "mqar: a length of %zu is odd, shorter than 4 x %zu pairs or longer than the model reads (%zu)",
            length, pairs, work->task->max_length);
    }
    int32_t *keys = NULL, *values = NULL, *ids = NULL;
    size_t *gaps = NULL;
    FL_TRY(new_block(work, pairs, &keys, error));
    FL_TRY(new_block(work, pairs, &values, error));
    FL_TRY(new_block(work, length, &ids, error));
    FL_TRY(draw_distinct(&work->random, config->first_token, work->middle, pairs, keys, error));
    FL_TRY(draw_distinct(&work->random, work->middle, config->vocabulary, pairs, values, error));
    FL_TRY(FL_ALLOCATE(&gaps, pairs, error));
    fl_status status = draw_gaps(&work->random, (length - 2 * pairs) / 2, pairs, gaps, error);
    if (status == FL_OK) status = fill_mqar(work, length, keys, values, gaps, ids, error);
    fl_memory_free(gaps);
    return status;
}

/* Choices of a query, older values of its key last. */
static void order_choices(const int32_t *values, size_t pairs, size_t writes, size_t key, int32_t *choices) {
    size_t count = 0, stale = pairs * writes - (writes - 1);
    choices[count++] = values[(writes - 1) * pairs + key];
    for (size_t i = 0; i < pairs * writes; i++) {
        const bool same_key = i % pairs == key, newest = i / pairs == writes - 1;
        if (same_key && newest) continue;
        choices[same_key ? stale++ : count++] = values[i];
    }
}

static fl_status add_overwritten(recall_work *work, fl_error *error) {
    const fl_task_config *config = work->config;
    const size_t pairs = config->pairs, writes = config->overwrites + 1, values_count = pairs * writes;
    const size_t written = 2 * values_count;
    if (written + 1 > work->task->max_length) {
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "associative_recall: %zu tokens are more than the %zu the model reads",
                            written + 1, work->task->max_length);
    }
    int32_t *keys = NULL, *values = NULL;
    FL_TRY(new_block(work, pairs, &keys, error));
    FL_TRY(new_block(work, values_count, &values, error));
    FL_TRY(draw_distinct(&work->random, config->first_token, work->middle, pairs, keys, error));
    FL_TRY(draw_distinct(&work->random, work->middle, config->vocabulary, values_count, values, error));
    for (size_t k = 0; k < pairs; k++) {
        int32_t *ids = NULL, *choices = NULL;
        FL_TRY(new_block(work, written + 1, &ids, error));
        FL_TRY(new_block(work, values_count, &choices, error));
        for (size_t i = 0; i < values_count; i++) {
            ids[2 * i] = keys[i % pairs];
            ids[2 * i + 1] = values[i];
        }
        ids[written] = keys[k];
        order_choices(values, pairs, writes, k, choices);
        const fl_task_item item = {.document = work->document++,
                                   .gold = 0,
                                   .length = written + 1,
                                   .depth = (double)NAN,
                                   .stale_first = values_count - (writes - 1),
                                   .stale_count = writes - 1};
        FL_TRY(add_query(work->task, &item, ids, written + 1, choices, values_count, error));
    }
    return FL_OK;
}

fl_status fl_recall_build(const fl_task_config *config, fl_task_requests *task, fl_error *error) {
    recall_work work = {.config = config,
                        .task = task,
                        .middle = config->first_token + (config->vocabulary - config->first_token) / 2};
    size_t subject = 0;
    FL_TRY(fl_task_data_add_subject(&task->set, "", &subject, error));
    const bool overwrite = config->kind->retrieval == FL_RETRIEVAL_OVERWRITE;
    const size_t lengths = overwrite ? 1 : config->lengths.count;
    for (size_t l = 0; l < lengths; l++) {
        for (size_t s = 0; s < config->samples; s++) {
            fl_random_seed(&work.random, config->seed, l * config->samples + s);
            FL_TRY(overwrite ? add_overwritten(&work, error)
                             : add_mqar(&work, config->lengths.values[l], error));
        }
    }
    return FL_OK;
}
