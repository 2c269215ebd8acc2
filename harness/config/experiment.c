#include "harness/config/experiment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/data_path.h"
#include "harness/base/hash.h"
#include "harness/base/memory.h"
#include "harness/config/expansion.h"
#include "harness/config/text_builder.h"

typedef struct top_level {
    char *name;
    const fl_node *compute, *model, *text, *variant, *train, *tasks, *measure, *sweep;
} top_level;

static const fl_option top_options[] = {
    {.key = "name",
     .type = FL_OPTION_STRING,
     .offset = offsetof(top_level, name),
     .default_text = "experiment",
     .help = "what to call it in tables and files"},
    {.key = "model",
     .type = FL_OPTION_NODE,
     .offset = offsetof(top_level, model),
     .help = "the frozen model: {path: ...}"},
    {.key = "compute",
     .type = FL_OPTION_NODE,
     .offset = offsetof(top_level, compute),
     .help = "where it is computed: {device: ..., precision: ...}"},
    {.key = "text",
     .type = FL_OPTION_NODE,
     .offset = offsetof(top_level, text),
     .help = "the evaluation text: {path: ...}, {ids: ...} or {self_generated: ...}"},
    {.key = "variant",
     .type = FL_OPTION_NODE,
     .offset = offsetof(top_level, variant),
     .help = "the rule and its interventions"},
    {.key = "train",
     .type = FL_OPTION_NODE,
     .offset = offsetof(top_level, train),
     .help = "training of the mechanism's parameters"},
    {.key = "tasks",
     .type = FL_OPTION_NODE,
     .offset = offsetof(top_level, tasks),
     .help = "list of tasks to score"},
    {.key = "measure",
     .type = FL_OPTION_NODE,
     .offset = offsetof(top_level, measure),
     .help = "which measurements to make"},
    {.key = "sweep",
     .type = FL_OPTION_NODE,
     .offset = offsetof(top_level, sweep),
     .help = "many cells from one file: grid, zip, list, exclude, labels"},
};

static const fl_option model_options[] = {
    {.key = "path",
     .type = FL_OPTION_STRING,
     .offset = offsetof(fl_experiment, model_path),
     .default_text = "!",
     .help = "a .gguf file or a Hugging Face folder"},
    {.key = "widen_memory",
     .type = FL_OPTION_NUMBER,
     .offset = offsetof(fl_experiment, widen_memory),
     .default_text = "0",
     .maximum = 1e12,
     .help = "MiB that weights widened to float32 may take; the rest is widened in every product, which is "
             "slower; 0 = half of the machine's memory, or less when the file could then not stay in memory "
             "beside them",
     .unit = "MiB"},
};

static const char *const device_choices[] = {"cpu", "cuda", NULL};
static const char *const precision_choices[] = {"exact", "fast", NULL};

static const fl_option compute_options[] = {
    {.key = "device",
     .type = FL_OPTION_CHOICE,
     .offset = offsetof(fl_compute_config, device),
     .default_text = "cpu",
     .choices = device_choices,
     .help =
         "cuda: one NVIDIA GPU, by libfrostline_cuda.so (make cuda); the same experiment, the same run id"},
    {.key = "precision",
     .type = FL_OPTION_CHOICE,
     .offset = offsetof(fl_compute_config, precision),
     .default_text = "exact",
     .choices = precision_choices,
     .help = "exact: float32 weights, activations and products; fast is not there yet"},
    {.key = "memory",
     .type = FL_OPTION_NUMBER,
     .offset = offsetof(fl_compute_config, memory),
     .default_text = "0",
     .maximum = 1e12,
     .help = "MiB of the device's memory at most; 0 = all of it but 1 GiB",
     .unit = "MiB"},
};

#define TEXT_OPTIONS(length)                                                                                 \
    {.key = "path",                                                                                          \
     .type = FL_OPTION_STRING,                                                                               \
     .offset = offsetof(fl_text_config, path),                                                               \
     .help = "a UTF-8 text file, or a folder of .txt and .jsonl files"},                                     \
        {.key = "ids",                                                                                       \
         .type = FL_OPTION_STRING,                                                                           \
         .offset = offsetof(fl_text_config, ids),                                                            \
         .help = "a JSON list of lists of token ids"},                                                       \
        {.key = "self_generated",                                                                            \
         .type = FL_OPTION_NODE,                                                                             \
         .offset = offsetof(fl_text_config, self_generated.node),                                            \
         .help = "sampled from the frozen model: {tokens: ...}"},                                            \
        {.key = "sequence_length",                                                                           \
         .type = FL_OPTION_SIZE,                                                                             \
         .offset = offsetof(fl_text_config, sequence_length),                                                \
         .default_text = length,                                                                             \
         .maximum = 1 << 24,                                                                                 \
         .help = "of one sequence; with ids 0, which is the default there: lists as they are",               \
         .unit = "tokens"},                                                                                  \
    {                                                                                                        \
        .key = "sequences", .type = FL_OPTION_SIZE, .offset = offsetof(fl_text_config, sequences),           \
        .default_text = "0", .maximum = 1 << 24, .help = "at most so many sequences; 0 = all there are",     \
        .unit = "sequences"                                                                                  \
    }

static const char *const bos_choices[] = {"auto", "true", "false", NULL};

static const fl_option text_options_for_path[] = {
    TEXT_OPTIONS("512"),
    {.key = "bos",
     .type = FL_OPTION_CHOICE,
     .offset = offsetof(fl_text_config, bos),
     .default_text = "auto",
     .choices = bos_choices,
     .help = "whether every row of a text begins with the tokenizer's beginning-of-sequence token; auto: as "
             "the tokenizer's own template has it"}};
static const fl_option text_options_for_ids[] = {TEXT_OPTIONS("0")};

static const fl_option measure_options[] = {
    {.key = "teacher_forced",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(fl_measure_config, teacher_forced),
     .default_text = "true",
     .help = "errors of every layer on the frozen model's own inputs"},
    {.key = "propagated",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(fl_measure_config, propagated),
     .default_text = "true",
     .help = "errors when linearised layers feed each other"},
    {.key = "diagnostics",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(fl_measure_config, diagnostics),
     .default_text = "true",
     .help = "key concentration, projection residual, state norm"},
    {.key = "language_model",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(fl_measure_config, language_model),
     .default_text = "true",
     .help = "perplexity, KL and agreement with the full model"},
    {.key = "self_check",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(fl_measure_config, self_check),
     .default_text = "false",
     .help = "check the exactness invariants during the run"},
    {.key = "ablate",
     .type = FL_OPTION_NODE,
     .offset = offsetof(fl_measure_config, ablate),
     .help = "parts to switch off in runs made beside this one: a list of linear, exact, convolution, gate"},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const fl_option_section *fl_experiment_sections(size_t *count) {
    static const fl_option_section sections[] = {
        {"", NULL, top_options, COUNT(top_options)},
        {"compute", NULL, compute_options, COUNT(compute_options)},
        {"model", NULL, model_options, COUNT(model_options)},
        {"text", NULL, text_options_for_path, COUNT(text_options_for_path)},
        {"measure", NULL, measure_options, COUNT(measure_options)},
    };
    *count = COUNT(sections);
    return sections;
}

static bool is_given(const fl_node *node) {
    return node != NULL && node->kind != FL_NODE_NULL;
}

static fl_status expect_kind(const fl_node *node, fl_node_kind kind, const char *what, fl_error *error) {
    if (!is_given(node) || node->kind == kind) return FL_OK;
    return fl_node_error(node, error, "%s", what);
}

static fl_status bind_text(fl_experiment *experiment, const fl_node *node, fl_error *error) {
    if (!is_given(node)) return FL_OK;
    FL_TRY(expect_kind(node, FL_NODE_MAPPING, "text: expected a mapping: {path: file} or {ids: file.json}",
                       error));
    const fl_node *own = fl_node_get(node, "self_generated");
    bool path = is_given(fl_node_get(node, "path")), ids = is_given(fl_node_get(node, "ids"));
    if (path && ids)
        return fl_node_error(fl_node_get(node, "ids"), error, "text: give path or ids, not both");
    if (is_given(own) && (path || ids))
        return fl_node_error(own, error, "text: give self_generated or %s, not both", path ? "path" : "ids");
    fl_text_config *text = &experiment->text;
    const fl_option_table table =
        path ? (fl_option_table){text_options_for_path, COUNT(text_options_for_path), text}
             : (fl_option_table){ids ? text_options_for_ids : text_options_for_path,
                                 COUNT(text_options_for_ids), text};
    if (!path && is_given(fl_node_get(node, "bos")))
        return fl_node_error(fl_node_get(node, "bos"), error, "text.bos: only a text by path is given one");
    FL_TRY(fl_options_bind(node, &table, 1, "text", experiment->resolved, error));
    FL_TRY(
        fl_self_generated_bind(&text->self_generated, FL_SELF_GENERATED_TEXT, experiment->resolved, error));
    if (!path && !ids && !is_given(own))
        return fl_node_error(node, error,
                             "text: path (a text file), ids (a JSON file) or self_generated is missing");
    if (!ids && text->sequence_length < 2) {
        return fl_node_error(fl_node_get(node, "sequence_length"), error,
                             "text.sequence_length: at least 2 with text.%s",
                             path ? "path" : "self_generated");
    }
    FL_TRY(fl_data_path_resolve(&text->path, error));
    FL_TRY(fl_data_path_resolve(&text->ids, error));
    experiment->has_text = true;
    return FL_OK;
}

static fl_status bind_measure(fl_experiment *experiment, const fl_node *node, fl_error *error) {
    fl_option_table table = {measure_options, COUNT(measure_options), &experiment->measure};
    FL_TRY(fl_options_bind(node, &table, 1, "measure", experiment->resolved, error));
    char *text = NULL;
    FL_TRY(fl_node_text(experiment->measure.ablate, &text, error));
    fl_status status = fl_resolved_add(experiment->resolved, "measure.ablate", text,
                                       experiment->measure.ablate == NULL, error);
    fl_memory_free(text);
    return status;
}

static fl_status bind_compute(fl_experiment *experiment, const fl_node *node, fl_error *error) {
    FL_TRY(expect_kind(node, FL_NODE_MAPPING, "compute: expected a mapping: {device: cpu}", error));
    fl_option_table table = {compute_options, COUNT(compute_options), &experiment->compute};
    FL_TRY(fl_options_bind(node, &table, 1, "compute", experiment->resolved, error));
    if (experiment->compute.precision != FL_PRECISION_FAST) return FL_OK;
    return fl_node_error(fl_node_get(node, "precision"), error,
                         "compute.precision: fast is not there yet; exact is");
}

static fl_status bind_model(fl_experiment *experiment, const fl_node *node, fl_error *error) {
    if (!is_given(node)) return FL_OK;
    fl_option_table table = {model_options, COUNT(model_options), experiment};
    FL_TRY(fl_options_bind(node, &table, 1, "model", experiment->resolved, error));
    return fl_data_path_resolve(&experiment->model_path, error);
}

static fl_status bind_top(fl_experiment *experiment, fl_error *error) {
    const fl_node *root = fl_document_root(experiment->document);
    if (root->kind == FL_NODE_NULL) return fl_node_error(root, error, "the config is empty");
    top_level top = {0};
    FL_TRY(fl_options_bind(root, &(fl_option_table){top_options, COUNT(top_options), &top}, 1, NULL,
                           experiment->resolved, error));
    experiment->name = top.name;
    FL_TRY(expect_kind(top.variant, FL_NODE_MAPPING, "variant: expected a mapping: {rule: ..., ...}", error));
    FL_TRY(
        expect_kind(top.train, FL_NODE_MAPPING, "train: expected a mapping: {objective: ..., ...}", error));
    FL_TRY(expect_kind(top.tasks, FL_NODE_SEQUENCE, "tasks: expected a list of mappings: [{name: ..., ...}]",
                       error));
    FL_TRY(bind_compute(experiment, top.compute, error));
    FL_TRY(bind_model(experiment, top.model, error));
    FL_TRY(bind_text(experiment, top.text, error));
    FL_TRY(bind_measure(experiment, top.measure, error));
    experiment->variant = top.variant;
    experiment->train = top.train;
    experiment->tasks = top.tasks;
    return FL_OK;
}

static void release_texts(char **texts, size_t count) {
    for (size_t i = 0; i < count; i++) fl_memory_free(texts[i]);
    fl_memory_free(texts);
}

static void destroy_experiment(fl_experiment *experiment) {
    if (experiment == NULL) return;
    fl_memory_free(experiment->name);
    fl_memory_free(experiment->model_path);
    fl_memory_free(experiment->text.path);
    fl_memory_free(experiment->text.ids);
    fl_memory_free(experiment->cell_label);
    release_texts(experiment->own_keys, experiment->own_key_count);
    release_texts(experiment->unused, experiment->unused_count);
    fl_memory_free(experiment->label);
    fl_cell_axes_release(&experiment->axes);
    fl_resolved_destroy(experiment->resolved);
    fl_document_destroy(experiment->document);
    fl_memory_free(experiment);
}

/* Takes the cell's document and label. */
static fl_status create_experiment(fl_cell *cell, fl_experiment **out, fl_error *error) {
    fl_experiment *experiment = NULL;
    FL_TRY(FL_ALLOCATE(&experiment, 1, error));
    experiment->document = cell->document;
    experiment->cell_label = cell->label;
    experiment->own_keys = cell->own_keys;
    experiment->own_key_count = cell->own_key_count;
    experiment->axes = cell->axes;
    *cell = (fl_cell){0};
    fl_status status = fl_resolved_create(&experiment->resolved, error);
    if (status == FL_OK) status = bind_top(experiment, error);
    if (status == FL_OK) {
        *out = experiment;
        return FL_OK;
    }
    if (experiment->cell_label[0] != '\0' && error != NULL) {
        size_t used = strlen(error->message);
        snprintf(error->message + used, sizeof error->message - used, " (in cell %.300s)",
                 experiment->cell_label);
    }
    destroy_experiment(experiment);
    return status;
}

fl_status fl_experiment_list_label(fl_experiment_list *list, fl_error *error) {
    fl_cell_label_source *sources = NULL;
    char **labels = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&sources, list->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&labels, list->count, error));
    for (size_t i = 0; i < list->count; i++) {
        const fl_experiment *cell = list->cells[i];
        const fl_node *rule = fl_node_get(cell->variant, "rule");
        sources[i] = (fl_cell_label_source){
            .axes = &cell->axes, .rule = rule != NULL ? rule->text : NULL, .experiment = cell->name};
    }
    FL_TRY_DONE(status, fl_cell_label_make(sources, list->count, labels, error));
    for (size_t i = 0; i < list->count; i++) {
        fl_memory_free(list->cells[i]->label);
        list->cells[i]->label = labels[i];
    }
done:
    fl_memory_free(sources);
    fl_memory_free(labels);
    return status;
}

typedef struct ranked_document {
    fl_hash hash;
    size_t index;
} ranked_document;

static int order_documents(const void *a, const void *b) {
    const ranked_document *x = a, *y = b;
    const int order = strcmp(x->hash.text, y->hash.text);
    return order != 0 ? order : (x->index > y->index) - (x->index < y->index);
}

static fl_status rank_documents(const fl_experiment_list *list, ranked_document *ranked, fl_error *error) {
    for (size_t i = 0; i < list->count; i++) {
        char *text = NULL;
        FL_TRY(fl_node_text(fl_document_root(list->cells[i]->document), &text, error));
        ranked[i] = (ranked_document){fl_hash_bytes(text, strlen(text)), i};
        fl_memory_free(text);
    }
    qsort(ranked, list->count, sizeof *ranked, order_documents);
    return FL_OK;
}

fl_status fl_experiment_list_drop_equal(fl_experiment_list *list, fl_error *error) {
    ranked_document *ranked = NULL;
    FL_TRY(FL_ALLOCATE(&ranked, list->count, error));
    fl_status status = rank_documents(list, ranked, error);
    for (size_t i = 1; i < list->count && status == FL_OK; i++) {
        if (strcmp(ranked[i].hash.text, ranked[i - 1].hash.text) != 0) continue;
        destroy_experiment(list->cells[ranked[i].index]);
        list->cells[ranked[i].index] = NULL;
    }
    fl_memory_free(ranked);
    FL_TRY(status);
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        fl_experiment *cell = list->cells[i];
        list->cells[i] = NULL;
        if (cell != NULL) list->cells[kept++] = cell;
    }
    list->duplicates += list->count - kept;
    list->count = kept;
    return FL_OK;
}

static fl_status create_list(const fl_document *document, const char *const *overrides, size_t override_count,
                             fl_experiment_list **out, fl_error *error) {
    fl_expansion *expansion = NULL;
    fl_experiment_list *list = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_expansion_create(document, overrides, override_count, &expansion, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&list, 1, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&list->cells, expansion->count, error));
    list->count = expansion->count;
    list->excluded = expansion->excluded;
    for (size_t i = 0; i < list->count; i++) {
        FL_TRY_DONE(status, create_experiment(&expansion->cells[i], &list->cells[i], error));
    }
    FL_TRY_DONE(status, fl_experiment_list_drop_equal(list, error));
    FL_TRY_DONE(status, fl_experiment_list_label(list, error));
    *out = list;
    list = NULL;
done:
    fl_experiment_list_destroy(list);
    fl_expansion_destroy(expansion);
    return status;
}

fl_status fl_experiment_load(const char *path, const char *const *overrides, size_t override_count,
                             fl_experiment_list **out, fl_error *error) {
    *out = NULL;
    fl_document *document = NULL;
    char *found = NULL;
    FL_TRY(fl_data_path_find(path, &found, error));
    fl_status status = fl_document_parse_file(found, &document, error);
    fl_memory_free(found);
    if (status == FL_OK) status = create_list(document, overrides, override_count, out, error);
    fl_document_destroy(document);
    return status;
}

fl_status fl_experiment_parse(const char *text, const char *file_name, const char *const *overrides,
                              size_t override_count, fl_experiment_list **out, fl_error *error) {
    *out = NULL;
    fl_document *document = NULL;
    FL_TRY(fl_document_parse_text(text, strlen(text), file_name, &document, error));
    fl_status status = create_list(document, overrides, override_count, out, error);
    fl_document_destroy(document);
    return status;
}

void fl_experiment_list_destroy(fl_experiment_list *list) {
    if (list == NULL) return;
    for (size_t i = 0; i < list->count; i++) destroy_experiment(list->cells[i]);
    fl_memory_free(list->cells);
    fl_memory_free(list);
}

/* Copies into `out` what the user wrote and no floor has bound, so that no difference between two files is
 * ever lost. */
static fl_status add_unbound(const fl_node *node, fl_text_builder *path, const fl_experiment *experiment,
                             fl_resolved *out, fl_error *error) {
    size_t length = path->length;
    if (node->kind == FL_NODE_NULL || fl_resolved_find(experiment->resolved, path->text) != NULL)
        return FL_OK;
    if (experiment->train == NULL && strcmp(path->text, "train") == 0) return FL_OK;
    bool inner = (node->kind == FL_NODE_MAPPING || node->kind == FL_NODE_SEQUENCE) && node->count > 0;
    if (!inner && length == 0) return FL_OK;
    if (!inner) {
        char *text = NULL;
        FL_TRY(fl_node_text(node, &text, error));
        fl_status status = fl_resolved_add(out, path->text, text, false, error);
        fl_memory_free(text);
        return status;
    }
    for (size_t i = 0; i < node->count; i++) {
        const char *dot = length > 0 ? "." : "";
        const fl_node *child = node->children[i];
        if (node->kind == FL_NODE_MAPPING)
            FL_TRY(fl_text_builder_format(path, error, "%s%s", dot, child->key));
        else
            FL_TRY(fl_text_builder_format(path, error, "%s%zu", dot, i));
        FL_TRY(add_unbound(child, path, experiment, out, error));
        path->length = length;
        path->text[length] = '\0';
    }
    return FL_OK;
}

/* Whether a key says where something lies or how it is run, not what is computed. */
static bool leaves_result_alone(const char *key) {
    static const char *const first[] = {"name", "output", "threads", "compute"};
    static const char *const last[] = {"path", "ids", "mechanism"};
    /* text.bos: the rows themselves are part of the id. */
    static const char *const whole[] = {"text.bos",
                                        "train.activation_budget",
                                        "train.scratch_budget",
                                        "train.scratch_folder",
                                        "train.memory_budget",
                                        "train.checkpoint_every",
                                        "model.widen_memory"};
    const char *dot = strrchr(key, '.');
    size_t head = strcspn(key, ".");
    for (size_t i = 0; i < COUNT(first); i++) {
        if (strlen(first[i]) == head && strncmp(key, first[i], head) == 0) return true;
    }
    for (size_t i = 0; i < COUNT(last); i++) {
        if (dot != NULL && strcmp(dot + 1, last[i]) == 0) return true;
    }
    for (size_t i = 0; i < COUNT(whole); i++) {
        if (strcmp(key, whole[i]) == 0) return true;
    }
    return false;
}

static fl_status collect_identity(const fl_experiment *experiment, fl_resolved *identity, fl_error *error) {
    fl_text_builder path = {0};
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_text_builder_add(&path, "", error));
    FL_TRY_DONE(status,
                add_unbound(fl_document_root(experiment->document), &path, experiment, identity, error));
    for (size_t i = 0; i < fl_resolved_count(experiment->resolved); i++) {
        const char *key = NULL, *value = NULL;
        fl_resolved_at(experiment->resolved, i, &key, &value, NULL);
        FL_TRY_DONE(status, fl_resolved_add(identity, key, value, false, error));
    }
done:
    fl_text_builder_release(&path);
    return status;
}

static fl_status list_excluded(const fl_resolved *identity, const char ***excluded, fl_error *error) {
    size_t count = fl_resolved_count(identity), used = 0;
    FL_TRY(FL_ALLOCATE(excluded, count + 1, error));
    for (size_t i = 0; i < count; i++) {
        const char *key = NULL;
        fl_resolved_at(identity, i, &key, NULL, NULL);
        if (leaves_result_alone(key)) (*excluded)[used++] = key;
    }
    return FL_OK;
}

fl_status fl_experiment_run_id(const fl_experiment *experiment, const char *const *content_hashes,
                               size_t count, char out[13], fl_error *error) {
    fl_resolved *identity = NULL;
    const char **excluded = NULL;
    char *text = NULL;
    fl_hash_stream *stream = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_resolved_create(&identity, error));
    FL_TRY_DONE(status, collect_identity(experiment, identity, error));
    FL_TRY_DONE(status, list_excluded(identity, &excluded, error));
    FL_TRY_DONE(status, fl_resolved_text(identity, excluded, &text, error));
    FL_TRY_DONE(status, fl_hash_stream_create(&stream, error));
    fl_hash_stream_add(stream, text, strlen(text) + 1);
    for (size_t i = 0; i < count; i++)
        fl_hash_stream_add(stream, content_hashes[i], strlen(content_hashes[i]) + 1);
    fl_hash hash = fl_hash_stream_value(stream);
    memcpy(out, hash.text, 12);
    out[12] = '\0';
done:
    fl_hash_stream_destroy(stream);
    fl_memory_free(text);
    fl_memory_free(excluded);
    fl_resolved_destroy(identity);
    return status;
}
