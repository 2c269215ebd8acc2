#include "harness/eval/task_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"

static const char *const pair_modes[] = {"lm_eval", "merged", NULL};
static const char *const precisions[] = {"auto", "float32", "float64", NULL};
static const char *const window_rules[] = {"rolling", "llama_cpp", "chunks", "strided", NULL};

#define MEMBER(name) offsetof(fl_task_config, name)

static const fl_option options[] = {
    {"name", FL_OPTION_STRING, MEMBER(name), "!", 0, 0, NULL, "which task"},
    {"label", FL_OPTION_STRING, MEMBER(label), NULL, 0, 0, NULL,
     "what its results are stored under; the name by default"},
    {"path", FL_OPTION_STRING, MEMBER(path), NULL, 0, 0, NULL, "file or folder of the data"},
    {"shots_path", FL_OPTION_STRING, MEMBER(shots_path), NULL, 0, 0, NULL,
     "file few-shot examples come from"},
    {"split", FL_OPTION_STRING, MEMBER(split), "test", 0, 0, NULL, "MMLU folders: test or val"},
    {"subject", FL_OPTION_STRING, MEMBER(subject), NULL, 0, 0, NULL, "only this subject"},
    {"shots", FL_OPTION_SIZE, MEMBER(shots), "0", 0, 1000, NULL, "few-shot examples"},
    {"offset", FL_OPTION_SIZE, MEMBER(offset), "0", 0, 0, NULL,
     "documents of each subject to leave out at the start"},
    {"limit", FL_OPTION_NUMBER, MEMBER(limit), "0", 0, 1e9, NULL,
     "documents of each subject: 0 all, below 1 that share, else a number"},
    {"seed", FL_OPTION_SEED, MEMBER(seed), "1234", 0, 0, NULL, "of few-shot sampling and of made texts"},
    {"pair_mode", FL_OPTION_CHOICE, MEMBER(pair_mode), "lm_eval", 0, 0, pair_modes,
     "a continuation without a token of its own: lm_eval refuses, merged takes the last merged token"},
    {"max_length", FL_OPTION_SIZE, MEMBER(max_length), "0", 0, 0, NULL,
     "most tokens read at once; 0: the model's limit"},
    {"prefix_token", FL_OPTION_INTEGER, MEMBER(prefix), "-1", -1, 1e9, NULL,
     "in front of an empty context; -1: BOS, else EOS"},
    {"bootstrap", FL_OPTION_SIZE, MEMBER(bootstrap), "100000", 0, 1e7, NULL,
     "resamples for the error of a perplexity"},
    {"share", FL_OPTION_BOOL, MEMBER(share), "true", 0, 0, NULL, "run common prefixes once"},
    {"log_softmax", FL_OPTION_CHOICE, MEMBER(log_softmax), "auto", 0, 0, precisions,
     "auto: float32 as lm-evaluation-harness has it for its own tasks, else float64"},
    {"definition", FL_OPTION_CHOICE, MEMBER(window_rule), "llama_cpp", 0, 0, window_rules,
     "perplexity: how the text is cut"},
    {"window", FL_OPTION_SIZE, MEMBER(window), "512", 2, 1e9, NULL, "perplexity: tokens of a window"},
    {"stride", FL_OPTION_SIZE, MEMBER(stride), "256", 1, 1e9, NULL,
     "perplexity, strided: tokens between windows"},
    {"lengths", FL_OPTION_SIZES, MEMBER(lengths), "[512, 1024]", 0, 0, NULL,
     "made tasks: prompt lengths in tokens"},
    {"depths", FL_OPTION_SIZE, MEMBER(depths), "5", 1, 1000, NULL,
     "made tasks: needle depths from 0 to 100 %"},
    {"samples", FL_OPTION_SIZE, MEMBER(samples), "1", 1, 1e6, NULL,
     "made tasks: prompts for each length and depth"},
    {"pairs", FL_OPTION_SIZE, MEMBER(pairs), "16", 1, 4096, NULL, "recall: key-value pairs"},
    {"overwrites", FL_OPTION_SIZE, MEMBER(overwrites), "0", 0, 64, NULL,
     "associative_recall: times every key is written anew"},
    {"vocabulary", FL_OPTION_SIZE, MEMBER(vocabulary), "8192", 4, 1e9, NULL,
     "recall: token ids below this are used"},
    {"first_token", FL_OPTION_SIZE, MEMBER(first_token), "64", 0, 1e9, NULL,
     "recall: token ids from here on are used"},
};

enum { OPTIONS = sizeof options / sizeof options[0] };

const fl_option *fl_task_config_options(size_t *count) {
    *count = OPTIONS;
    return options;
}

fl_log_softmax_precision fl_task_config_precision(const fl_task_config *config) {
    const fl_task_form form = config->kind->form;
    const bool theirs = form != FL_TASK_TEXT && form != FL_TASK_RECALL && form != FL_TASK_GENERATION;
    const bool single = config->log_softmax == FL_TASK_LOG_SOFTMAX_FLOAT32 ||
                        (config->log_softmax == FL_TASK_LOG_SOFTMAX_AUTO && theirs);
    return single ? FL_LOG_SOFTMAX_FLOAT32 : FL_LOG_SOFTMAX_FLOAT64;
}

void fl_task_config_clear(fl_task_config *config) {
    fl_options_release(options, OPTIONS, config);
    *config = (fl_task_config){0};
}

void fl_task_config_release(fl_task_config_list *list) {
    for (size_t i = 0; i < list->count; i++) fl_task_config_clear(&list->items[i]);
    fl_memory_free(list->items);
    *list = (fl_task_config_list){0};
}

static fl_status unknown_name(const fl_node *node, const char *name, fl_error *error) {
    const char *names[64];
    size_t count = 0;
    for (; count < fl_task_kind_count() && count < 64; count++) names[count] = fl_task_kind_at(count)->name;
    const char *near = fl_suggest(name, names, count);
    return fl_node_error(node, error, "unknown task \"%s\"%s%s%s", name,
                         near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
                         near != NULL ? "\"?" : "");
}

/* What one row of the option table cannot say. `at` may be NULL. */
static fl_status check(fl_task_config *config, const fl_node *at, fl_error *error) {
    const fl_node *name = at == NULL ? NULL : fl_node_get(at, "name");
    config->kind = fl_task_kind_find(config->name);
    if (config->kind == NULL) return unknown_name(name, config->name, error);
    if (config->limit >= 1 && config->limit != floor(config->limit)) {
        return fl_node_error(fl_node_get(at, "limit"), error, "limit is neither below 1 nor a whole number");
    }
    if (config->stride > config->window) {
        return fl_node_error(fl_node_get(at, "stride"), error, "stride %zu is larger than the window of %zu",
                             config->stride, config->window);
    }
    const bool made = config->kind->reader == NULL;
    if (config->path == NULL && (!made || fl_retrieval_needs_prose(config->kind->retrieval))) {
        return fl_node_error(at, error, "task %s needs a path", config->name);
    }
    if (config->shots > 0 && config->kind->shot_rule == FL_SHOTS_NONE) {
        return fl_node_error(fl_node_get(at, "shots"), error, "task %s has a fixed prompt and takes no shots",
                             config->name);
    }
    if (config->first_token + 4 > config->vocabulary) {
        return fl_node_error(fl_node_get(at, "first_token"), error, "no token ids from %zu to %zu",
                             config->first_token, config->vocabulary);
    }
    if (config->label == NULL) return fl_memory_copy_string(&config->label, config->name, error);
    if (config->label[0] == '\0' || strchr(config->label, '/') != NULL || config->label[0] == '.') {
        return fl_node_error(fl_node_get(at, "label"), error, "\"%s\" cannot be a label", config->label);
    }
    return FL_OK;
}

static fl_status bind_one(const fl_node *node, const char *prefix, fl_resolved *resolved,
                          fl_task_config *config, fl_error *error) {
    const fl_option_table table = {options, OPTIONS, config};
    FL_TRY(fl_options_bind(node, &table, 1, prefix, resolved, error));
    return check(config, node, error);
}

static fl_status refuse_same_label(const fl_node *node, const fl_task_config_list *list, size_t index,
                                   fl_error *error) {
    for (size_t i = 0; i < index; i++) {
        if (strcmp(list->items[i].label, list->items[index].label) != 0) continue;
        return fl_node_error(node, error, "two tasks are called \"%s\"; give one of them a label",
                             list->items[index].label);
    }
    return FL_OK;
}

fl_status fl_task_config_bind(const fl_node *node, fl_resolved *resolved, fl_task_config_list *out,
                              fl_error *error) {
    *out = (fl_task_config_list){0};
    if (node == NULL || node->kind == FL_NODE_NULL) return FL_OK;
    if (node->kind != FL_NODE_SEQUENCE) return fl_node_error(node, error, "tasks is not a list");
    FL_TRY(FL_ALLOCATE(&out->items, node->count, error));
    fl_status status = FL_OK;
    for (size_t i = 0; status == FL_OK && i < node->count; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "tasks.%zu", i);
        out->count = i + 1;
        status = node->children[i]->kind == FL_NODE_MAPPING
                     ? bind_one(node->children[i], prefix, resolved, &out->items[i], error)
                     : fl_node_error(node->children[i], error, "a task is a mapping with a name");
        if (status == FL_OK) status = refuse_same_label(node->children[i], out, i, error);
    }
    if (status != FL_OK) fl_task_config_release(out);
    return status;
}

fl_status fl_task_config_default(const char *name, const char *path, fl_task_config *out, fl_error *error) {
    *out = (fl_task_config){0};
    char name_key[] = "name", path_key[] = "path";
    fl_node name_node = {
        .kind = FL_NODE_SCALAR, .text = (char *)(uintptr_t)name, .quoted = true, .key = name_key};
    fl_node path_node = {
        .kind = FL_NODE_SCALAR, .text = (char *)(uintptr_t)path, .quoted = true, .key = path_key};
    fl_node *children[] = {&name_node, &path_node};
    const fl_node mapping = {.kind = FL_NODE_MAPPING, .count = path == NULL ? 1 : 2, .children = children};
    fl_status status = bind_one(&mapping, NULL, NULL, out, error);
    if (status != FL_OK) fl_task_config_clear(out);
    return status;
}
