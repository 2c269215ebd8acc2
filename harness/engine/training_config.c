#include "harness/engine/training.h"

#include <string.h>

#include "harness/base/data_path.h"
#include "harness/base/memory.h"

enum {
    DEFAULT_SEQUENCE_LENGTH = 1024,
    LARGEST_STEPS = 1 << 30,
    LARGEST_BATCH = 1 << 16,
    LARGEST_LENGTH = 1 << 24,
    LARGEST_BUDGET = 1 << 24
};

static const char *const objective_names[] = {"next_token", "layer_mse", "kl", "none", NULL};
static const char *const order_names[] = {"shuffled", "sequential", NULL};

#define NUMBER(name, text, low, high, what)                                                                  \
    {                                                                                                        \
        .key = #name, .type = FL_OPTION_NUMBER, .offset = offsetof(fl_train_config, name),                   \
        .default_text = (text), .minimum = (low), .maximum = (high), .help = (what)                          \
    }
#define SIZE(name, text, low, high, of, what)                                                                \
    {                                                                                                        \
        .key = #name, .type = FL_OPTION_SIZE, .offset = offsetof(fl_train_config, name),                     \
        .default_text = (text), .minimum = (low), .maximum = (high), .help = (what), .unit = (of)            \
    }

static const fl_option train_options[] = {
    {.key = "objective",
     .type = FL_OPTION_CHOICE,
     .offset = offsetof(fl_train_config, objective),
     .default_text = "next_token",
     .choices = objective_names,
     .help = "next_token: cross-entropy; layer_mse: each layer's nMSE on the frozen inputs; kl: against the "
             "frozen model; none: not fitted"},
    SIZE(steps, "200", 1, LARGEST_STEPS, "steps", "optimiser steps"),
    NUMBER(learning_rate, "2e-3", 0, 1e3, "peak learning rate"),
    NUMBER(adapter_learning_rate, "5e-4", 0, 1e3, "the same of variant.lora's tensors"),
    SIZE(warmup_steps, "100", 0, LARGEST_STEPS, "steps", "linear warm-up, then cosine to 0"),
    NUMBER(clip, "1.0", 0, 1e30, "largest global gradient norm; 0 = no clipping"),
    NUMBER(weight_decay, "0.0", 0, 1e3, "AdamW's decoupled decay"),
    NUMBER(beta1, "0.9", 0, 1, "AdamW: decay of the running mean of the gradient; below 1"),
    NUMBER(beta2, "0.999", 0, 1, "AdamW: decay of the running mean of its square; below 1"),
    NUMBER(epsilon, "1e-8", 0, 1, "AdamW: added to the root of that mean"),
    SIZE(batch, "1", 1, LARGEST_BATCH, "sequences", "sequences computed together in a step"),
    SIZE(accumulate, "1", 1, LARGEST_BATCH, "batches", "batches whose gradients are added before a step"),
    {.key = "path",
     .type = FL_OPTION_STRING,
     .offset = offsetof(fl_train_config, path),
     .help = "a text file, or a folder of .txt and .jsonl"},
    {.key = "ids",
     .type = FL_OPTION_STRING,
     .offset = offsetof(fl_train_config, ids),
     .help = "a JSON file: a list of lists of token ids"},
    {.key = "self_generated",
     .type = FL_OPTION_NODE,
     .offset = offsetof(fl_train_config, self_generated.node),
     .help = "sampled from the frozen model: {tokens: ...}"},
    SIZE(sequence_length, "0", 0, LARGEST_LENGTH, "tokens",
         "tokens a sequence; 0 = 1024 of a text, lists of ids as they are"),
    SIZE(sequences, "0", 0, LARGEST_STEPS, "sequences", "use at most so many sequences of the data; 0 = all"),
    {.key = "order",
     .type = FL_OPTION_CHOICE,
     .offset = offsetof(fl_train_config, order),
     .default_text = "shuffled",
     .choices = order_names,
     .help = "of the sequences: shuffled anew every pass, or as in the data"},
    {.key = "allow_overlap",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(fl_train_config, allow_overlap),
     .default_text = "false",
     .help = "training text may share passages with the evaluation text"},
    {.key = "seed",
     .type = FL_OPTION_SEED,
     .offset = offsetof(fl_train_config, seed),
     .default_text = "1",
     .help = "of the order"},
    SIZE(evaluate_every, "0", 0, LARGEST_STEPS, "steps", "steps between evaluations; 0 = none on the way"),
    SIZE(checkpoint_every, "50", 0, LARGEST_STEPS, "steps", "steps between checkpoints; 0 = none on the way"),
    SIZE(activation_budget, "1024", 0, LARGEST_BUDGET, "MiB",
         "MiB of activations kept where they would else be computed again (layer_mse: the frozen model's, "
         "from "
         "pass to pass over the data; else the upper layers', from forward to backward); 0 = none"),
    SIZE(scratch_budget, "0", 0, LARGEST_BUDGET, "MiB",
         "layer_mse: MiB of the same kept in a scratch file once activation_budget is used up; 0 = none"),
    {.key = "scratch_folder",
     .type = FL_OPTION_STRING,
     .offset = offsetof(fl_train_config, scratch_folder),
     .help = "folder of the scratch file; default $TMPDIR, else /tmp"},
    SIZE(memory_budget, "0", 0, LARGEST_BUDGET, "MiB",
         "MiB of activations and optimiser together, refused when too small; 0 = no limit"),
};

enum { TRAIN_OPTIONS = sizeof train_options / sizeof train_options[0] };

const fl_option_section *fl_train_sections(size_t *count) {
    static const fl_option_section sections[] = {{"train", NULL, train_options, TRAIN_OPTIONS}};
    *count = 1;
    return sections;
}

static fl_status check(const fl_node *node, fl_train_config *config, fl_error *error) {
    const bool own = config->self_generated.node != NULL;
    const fl_node *objective = fl_node_get(node, "objective");
    if (objective != NULL && objective->kind == FL_NODE_NULL) {
        return fl_node_error(objective, error,
                             "train.objective: null could mean the default or no training: write next_token "
                             "or none");
    }
    if (config->objective == FL_OBJECTIVE_NONE) return FL_OK;
    if ((config->path != NULL) + (config->ids != NULL) + own != 1) {
        return fl_node_error(node, error, "train: exactly one of path, ids and self_generated is needed");
    }
    if (config->beta1 >= 1.0 || config->beta2 >= 1.0) {
        return fl_node_error(node, error, "train: beta1 and beta2 must be below 1");
    }
    if (config->sequence_length == 1) {
        return fl_node_error(node, error, "train: a sequence_length of 1 leaves nothing to predict");
    }
    if ((config->path != NULL || own) && config->sequence_length == 0)
        config->sequence_length = DEFAULT_SEQUENCE_LENGTH;
    return FL_OK;
}

fl_status fl_train_config_bind(const fl_node *node, fl_resolved *resolved, fl_train_config *out,
                               fl_error *error) {
    *out = (fl_train_config){0};
    const fl_option_table table = {train_options, TRAIN_OPTIONS, out};
    FL_TRY(fl_options_bind(node, &table, 1, "train", resolved, error));
    fl_status status = check(node, out, error);
    if (status == FL_OK) status = fl_data_path_resolve(&out->path, error);
    if (status == FL_OK) status = fl_data_path_resolve(&out->ids, error);
    if (status == FL_OK)
        status = fl_self_generated_bind(&out->self_generated, FL_SELF_GENERATED_TRAIN, resolved, error);
    if (status != FL_OK) fl_train_config_release(out);
    return status;
}

bool fl_train_config_is_none(const fl_node *node) {
    if (node == NULL || node->count == 0) return true;
    const fl_node *objective = fl_node_get(node, "objective");
    return objective != NULL && objective->text != NULL && strcmp(objective->text, "none") == 0;
}

void fl_train_config_release(fl_train_config *config) {
    fl_options_release(train_options, TRAIN_OPTIONS, config);
    *config = (fl_train_config){0};
}

fl_fit fl_train_config_fit(const fl_train_config *config, fl_fit before) {
    fl_fit own = config->objective == FL_OBJECTIVE_LAYER_MSE ? FL_FIT_LAYERS : FL_FIT_NETWORK;
    return own > before ? own : before;
}
