#include "harness/run/document_tokens.h"

#include <string.h>

#include "harness/base/memory.h"
#include "harness/run/workbench.h"

static int32_t within(long id, const fl_model *model) {
    return id >= 0 && (size_t)id < model->config.vocabulary ? (int32_t)id : -1;
}

/* The id that the name of a special token is read as, or -1. */
static int32_t named(const fl_tokenizer *tokenizer, const char *name) {
    int32_t *ids = NULL;
    size_t count = 0;
    const int32_t added = fl_tokenizer_added(tokenizer, name);
    if (added >= 0) return added;
    if (fl_tokenizer_encode(tokenizer, name, strlen(name), false, &ids, &count, NULL) != FL_OK) return -1;
    int32_t id = count == 1 ? ids[0] : -1;
    fl_memory_free(ids);
    return id;
}

static void add_stop(fl_document_tokens *out, int32_t id) {
    for (size_t i = 0; i < out->stop_count; i++)
        if (out->stops[i] == id) return;
    if (id >= 0) out->stops[out->stop_count++] = id;
}

fl_status fl_document_tokens_of(const fl_model *model, fl_document_tokens *out, fl_error *error) {
    const fl_model_config *config = &model->config;
    int32_t bos = within(config->bos_token, model), separator = -1, named_eos = -1;
    fl_tokenizer *tokenizer = NULL;
    if (fl_workbench_tokenizer(model->path, &tokenizer, NULL) == FL_OK) {
        separator = within(named(tokenizer, "<|endoftext|>"), model);
        if (bos < 0) bos = within(fl_tokenizer_bos(tokenizer), model);
        named_eos = within(fl_tokenizer_eos(tokenizer), model);
        fl_tokenizer_close(tokenizer);
    }
    *out = (fl_document_tokens){.start = -1};
    add_stop(out, separator);
    for (size_t i = 0; i < config->eos_count; i++) add_stop(out, within(config->eos_tokens[i], model));
    if (out->stop_count == (separator >= 0)) add_stop(out, named_eos);
    out->start = separator >= 0 ? separator : bos;
    if (out->start < 0 && out->stop_count > 0) out->start = out->stops[0];
    if (out->start >= 0) return FL_OK;
    return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                        "%s: neither the configuration nor the tokenizer names a token that text begins or "
                        "ends with",
                        model->path);
}
