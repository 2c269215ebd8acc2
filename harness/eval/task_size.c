#include "harness/eval/task_size.h"

#include <string.h>

#include "harness/base/memory.h"
#include "harness/eval/task_requests.h"
#include "harness/eval/task_texts.h"

/* Tokens of an answer that is generated, beside its prompt. */
enum { ANSWER_TOKENS = 32 };

static void add_prompt(fl_task_size *size, double computed, double length) {
    size->tokens += computed;
    if (length > size->longest) size->longest = length;
}

static void estimate_made(const fl_task_config *config, fl_task_size *out) {
    const double samples = (double)config->samples;
    if (config->kind->retrieval == FL_RETRIEVAL_OVERWRITE) {
        const double length = 2 * (double)config->pairs * (double)(config->overwrites + 1) + 1;
        add_prompt(out, samples * length, length);
        return;
    }
    const bool recall = config->kind->form == FL_TASK_RECALL;
    for (size_t l = 0; l < config->lengths.count; l++) {
        const double length = (double)config->lengths.values[l] + (recall ? 0 : ANSWER_TOKENS);
        add_prompt(out, length * samples * (recall ? 1 : (double)config->depths), length);
    }
}

/* Every window is a run of its own. */
static void estimate_text(const fl_task_config *config, const fl_task_data *set, fl_task_size *out) {
    const double tokens = (double)strlen(set->documents.items[0].piece[0]) / FL_TASK_BYTES_PER_TOKEN;
    const double window = (double)config->window;
    const double step = config->window_rule == FL_WINDOWS_STRIDED ? (double)config->stride : window;
    double windows = tokens / step;
    if (config->limit >= 1 && config->limit < windows) windows = config->limit;
    if (config->limit > 0 && config->limit < 1) windows *= config->limit;
    add_prompt(out, windows * window, window);
}

static size_t common_prefix(const char *a, const char *b) {
    size_t bytes = 0;
    while (a[bytes] != '\0' && a[bytes] == b[bytes]) bytes++;
    return bytes;
}

/* *last: the context before, replaced by this item's last one. */
static fl_status add_item(const fl_task_config *config, const fl_item_texts *item, fl_text_buffer *last,
                          fl_task_size *out, fl_error *error) {
    for (size_t i = 0; i < item->count; i++) {
        const char *context = item->context[i], *answer = item->continuation[i];
        const size_t shared = config->share && last->text != NULL ? common_prefix(context, last->text) : 0;
        const size_t bytes = strlen(context), more = answer != NULL ? strlen(answer) : 0;
        add_prompt(out, (double)(bytes - shared + more) / FL_TASK_BYTES_PER_TOKEN,
                   (double)(bytes + more) / FL_TASK_BYTES_PER_TOKEN);
        fl_text_buffer_clear(last);
        FL_TRY(fl_text_buffer_add_string(last, context, error));
    }
    return FL_OK;
}

static fl_status estimate_documents(const fl_task_config *config, fl_task_texts *texts, fl_text_buffer *last,
                                    fl_task_size *out, fl_error *error) {
    const fl_task_data *set = fl_task_texts_data(texts);
    for (size_t s = 0; s < set->subject_count; s++) {
        size_t first = 0, end = 0;
        fl_task_selected_range(config, set->subjects[s].count, &first, &end);
        for (size_t i = first; i < end; i++) {
            fl_item_texts item;
            FL_TRY(fl_task_texts_prompts(texts, set->subjects[s].name, i, &item, error));
            fl_status status = add_item(config, &item, last, out, error);
            fl_item_texts_release(&item);
            FL_TRY(status);
        }
    }
    return FL_OK;
}

fl_status fl_task_size_estimate(const fl_task_config *config, fl_task_size *out, fl_error *error) {
    *out = (fl_task_size){0};
    if (config->kind->reader == NULL) {
        estimate_made(config, out);
        return FL_OK;
    }
    fl_task_texts *texts = NULL;
    fl_text_buffer last = {0};
    FL_TRY(fl_task_texts_open(config, &texts, error));
    fl_status status = FL_OK;
    if (config->kind->form == FL_TASK_TEXT)
        estimate_text(config, fl_task_texts_data(texts), out);
    else
        status = estimate_documents(config, texts, &last, out, error);
    fl_text_buffer_release(&last);
    fl_task_texts_close(texts);
    return status;
}
