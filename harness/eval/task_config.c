#include "harness/eval/task_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/data_path.h"
#include "harness/base/memory.h"

static const char *const pair_modes[] = {"lm_eval", "merged", NULL};
static const char *const precisions[] = {"auto", "float32", "float64", NULL};
static const char *const window_rules[] = {"rolling", "llama_cpp", "chunks", "strided", NULL};

#define MEMBER(name) offsetof(fl_task_config, name)

static const fl_option options[] = {
    {.key = "name",
     .type = FL_OPTION_STRING,
     .offset = MEMBER(name),
     .default_text = "!",
     .help = "which task; `frostline tasks` lists them"},
    {.key = "label",
     .type = FL_OPTION_STRING,
     .offset = MEMBER(label),
     .help = "what its results are stored under; the name by default"},
    {.key = "path",
     .type = FL_OPTION_STRING,
     .offset = MEMBER(path),
     .help = "file or folder of the data; made tasks need none, or a text to hide things in"},
    {.key = "shots_path",
     .type = FL_OPTION_STRING,
     .offset = MEMBER(shots_path),
     .help = "file few-shot examples come from"},
    {.key = "split",
     .type = FL_OPTION_STRING,
     .offset = MEMBER(split),
     .default_text = "test",
     .help = "MMLU folders: test or val"},
    {.key = "subject",
     .type = FL_OPTION_STRING,
     .offset = MEMBER(subject),
     .help = "MMLU folders: only this subject; all by default"},
    {.key = "shots",
     .type = FL_OPTION_SIZE,
     .offset = MEMBER(shots),
     .default_text = "0",
     .maximum = 1000,
     .help = "few-shot examples",
     .unit = "examples"},
    {.key = "offset",
     .type = FL_OPTION_SIZE,
     .offset = MEMBER(offset),
     .default_text = "0",
     .help = "documents of each subject to leave out at the start",
     .unit = "documents"},
    {.key = "limit",
     .type = FL_OPTION_NUMBER,
     .offset = MEMBER(limit),
     .default_text = "0",
     .maximum = 1e9,
     .help = "documents of each subject: 0 all, below 1 that share, else a number",
     .unit = "documents"},
    {.key = "seed",
     .type = FL_OPTION_SEED,
     .offset = MEMBER(seed),
     .default_text = "1234",
     .help = "of few-shot sampling and of made texts"},
    {.key = "pair_mode",
     .type = FL_OPTION_CHOICE,
     .offset = MEMBER(pair_mode),
     .default_text = "lm_eval",
     .choices = pair_modes,
     .help =
         "a continuation without a token of its own: lm_eval refuses, merged takes the last merged token"},
    {.key = "max_length",
     .type = FL_OPTION_SIZE,
     .offset = MEMBER(max_length),
     .default_text = "0",
     .help = "most tokens read at once; 0: the model's limit",
     .unit = "tokens"},
    {.key = "prefix_token",
     .type = FL_OPTION_INTEGER,
     .offset = MEMBER(prefix),
     .default_text = "-1",
     .minimum = -1,
     .maximum = 1e9,
     .help = "in front of an empty context; -1: BOS, else EOS"},
    {.key = "bootstrap",
     .type = FL_OPTION_SIZE,
     .offset = MEMBER(bootstrap),
     .default_text = "100000",
     .maximum = 1e7,
     .help = "resamples for the error of a perplexity",
     .unit = "resamples"},
    {.key = "share",
     .type = FL_OPTION_BOOL,
     .offset = MEMBER(share),
     .default_text = "true",
     .help = "run common prefixes once"},
    {.key = "log_softmax",
     .type = FL_OPTION_CHOICE,
     .offset = MEMBER(log_softmax),
     .default_text = "auto",
     .choices = precisions,
     .help = "auto: float32 as lm-evaluation-harness has it for its own tasks, else float64"},
    {.key = "definition",
     .type = FL_OPTION_CHOICE,
     .offset = MEMBER(window_rule),
     .default_text = "llama_cpp",
     .choices = window_rules,
     .help = "perplexity: how the text is cut"},
    {.key = "window",
     .type = FL_OPTION_SIZE,
     .offset = MEMBER(window),
     .default_text = "512",
     .minimum = 2,
     .maximum = 1e9,
     .help = "perplexity: tokens of a window",
     .unit = "tokens"},
    {.key = "stride",
     .type = FL_OPTION_SIZE,
     .offset = MEMBER(stride),
     .default_text = "256",
     .minimum = 1,
     .maximum = 1e9,
     .help = "perplexity, strided: tokens between windows",
     .unit = "tokens"},
    {.key = "lengths",
     .type = FL_OPTION_SIZES,
     .offset = MEMBER(lengths),
     .default_text = "[512, 1024]",
     .help = "made tasks: prompt lengths in tokens",
     .unit = "tokens"},
    {.key = "depths",
     .type = FL_OPTION_SIZE,
     .offset = MEMBER(depths),
     .default_text = "5",
     .minimum = 1,
     .maximum = 1000,
     .help = "made tasks: needle depths from 0 to 100 %",
     .unit = "depths"},
    {.key = "samples",
     .type = FL_OPTION_SIZE,
     .offset = MEMBER(samples),
     .default_text = "1",
     .minimum = 1,
     .maximum = 1e6,
     .help = "made tasks: prompts for each length and depth",
     .unit = "prompts"},
    {.key = "pairs",
     .type = FL_OPTION_SIZE,
     .offset = MEMBER(pairs),
     .default_text = "16",
     .minimum = 1,
     .maximum = 4096,
     .help = "recall: key-value pairs",
     .unit = "pairs"},
    {.key = "overwrites",
     .type = FL_OPTION_SIZE,
     .offset = MEMBER(overwrites),
     .default_text = "0",
     .maximum = 64,
     .help = "associative_recall: times every key is written anew",
     .unit = "times"},
    {.key = "vocabulary",
     .type = FL_OPTION_SIZE,
     .offset = MEMBER(vocabulary),
     .default_text = "8192",
     .minimum = 4,
     .maximum = 1e9,
     .help = "recall: token ids below this are used",
     .unit = "token ids"},
    {.key = "first_token",
     .type = FL_OPTION_SIZE,
     .offset = MEMBER(first_token),
     .default_text = "64",
     .maximum = 1e9,
     .help = "recall: token ids from here on are used",
     .unit = "token id"},
};

enum { OPTIONS = sizeof options / sizeof options[0] };

const fl_option_section *fl_task_sections(size_t *count) {
    static const fl_option_section sections[] = {{"tasks", NULL, options, OPTIONS}};
    *count = 1;
    return sections;
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
    return fl_unknown_name(node, "unknown task", name, names, count, error);
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
    FL_TRY(fl_data_path_resolve(&config->path, error));
    FL_TRY(fl_data_path_resolve(&config->shots_path, error));
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
    if (node->count > FL_TASKS_MOST)
        return fl_node_error(node, error, "tasks: a list of %zu; at most %d can be given", node->count,
                             FL_TASKS_MOST);
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
