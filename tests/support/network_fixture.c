#include "tests/support/network_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/base/random.h"
#include "tests/support/fixture.h"

enum {
    LAYERS = 2,
    HEADS = 4,
    KV_HEADS = 2,
    HEAD_DIM = 8,
    MLP_DIM = 48,
    E = FL_TINY_MODEL_DIM,
    MOST_TENSORS = 32
};

fl_test_network fl_test_network_open(const char *model_path, size_t threads) {
    fl_error error = {0};
    fl_test_network out = {0};
    fl_compute_options options = {.threads = threads, .widen_budget_bytes = SIZE_MAX};
    if (fl_model_open(model_path, &out.model, &error) != FL_OK) fail_msg("%s", error.message);
    if (fl_compute_create_cpu(&options, &out.compute, &error) != FL_OK) fail_msg("%s", error.message);
    if (fl_network_create(out.model, out.compute, &out.network, &error) != FL_OK)
        fail_msg("%s", error.message);
    return out;
}

void fl_test_network_close(fl_test_network *network) {
    fl_network_destroy(network->network);
    fl_compute_destroy(network->compute);
    fl_model_close(network->model);
    *network = (fl_test_network){0};
}

fl_test_mechanism fl_test_mechanism_create(const fl_test_network *network, const char *yaml) {
    fl_error error = {0};
    fl_test_mechanism out = {0};
    fl_document *document = NULL;
    const fl_attention_shape *shape = &network->network->shape;
    size_t layers = network->model->config.layers;
    if (fl_document_parse_text(yaml, strlen(yaml), "variant", &document, &error) != FL_OK ||
        fl_variant_bind(fl_document_root(document), NULL, &out.variant, &error) != FL_OK ||
        fl_variant_fit(out.variant, shape, layers, &error) != FL_OK ||
        fl_mechanism_create(out.variant, shape, layers, &out.mechanism, &error) != FL_OK) {
        fail_msg("%s\n%s", error.message, yaml);
    }
    fl_document_destroy(document);
    return out;
}

void fl_test_mechanism_destroy(fl_test_mechanism *mechanism) {
    fl_mechanism_destroy(mechanism->mechanism);
    fl_variant_destroy(mechanism->variant);
    *mechanism = (fl_test_mechanism){0};
}

typedef struct {
    fl_checkpoint_write_tensor tensors[MOST_TENSORS];
    char names[MOST_TENSORS][96];
    float *blocks[MOST_TENSORS];
    size_t count;
    fl_random random;
} fl_tiny_writer;

/* data NULL: a vector (rows 0) of ones, a matrix of seeded normals times `scale`. */
static void add(fl_tiny_writer *writer, const char *name, size_t rows, size_t columns, float scale,
                const float *data) {
    size_t i = writer->count++, elements = (rows == 0 ? 1 : rows) * columns;
    assert_true(i < MOST_TENSORS);
    snprintf(writer->names[i], sizeof writer->names[i], "%s", name);
    assert_int_equal(FL_ALLOCATE(&writer->blocks[i], elements, NULL), FL_OK);
    for (size_t e = 0; e < elements; e++) {
        writer->blocks[i][e] = data != NULL ? data[e]
                               : rows == 0  ? 1.0f
                                            : scale * (float)fl_random_normal(&writer->random);
    }
    writer->tensors[i] = (fl_checkpoint_write_tensor){.name = writer->names[i],
                                                      .data = writer->blocks[i],
                                                      .rank = rows == 0 ? 1 : 2,
                                                      .shape = {rows == 0 ? columns : rows, columns}};
}

static void add_layer(fl_tiny_writer *writer, size_t layer, float scale) {
    const struct {
        const char *name;
        size_t rows, columns;
    } parts[] = {
        {"input_layernorm", 0, E},
        {"post_attention_layernorm", 0, E},
        {"self_attn.q_proj", HEADS * HEAD_DIM, E},
        {"self_attn.k_proj", KV_HEADS * HEAD_DIM, E},
        {"self_attn.v_proj", KV_HEADS * HEAD_DIM, E},
        {"self_attn.o_proj", E, HEADS * HEAD_DIM},
        {"mlp.gate_proj", MLP_DIM, E},
        {"mlp.up_proj", MLP_DIM, E},
        {"mlp.down_proj", E, MLP_DIM},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.%zu.%s.weight", layer, parts[i].name);
        add(writer, name, parts[i].rows, parts[i].columns, scale, NULL);
    }
}

static void write_config(const char *directory, const fl_tiny_model_options *options) {
    char path[1024], text[2048];
    snprintf(path, sizeof path, "%s/config.json", directory);
    snprintf(text, sizeof text,
             "{\"model_type\": \"%s\", \"hidden_size\": %d, "
             "\"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
             "\"head_dim\": %d, "
             "\"intermediate_size\": %d, \"vocab_size\": %zu, \"max_position_embeddings\": 64, "
             "\"rms_norm_eps\": 1e-6, "
             "\"rope_theta\": 100.0, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false%s}",
             options->model_type != NULL ? options->model_type : "llama", E, LAYERS, HEADS, KV_HEADS,
             HEAD_DIM, MLP_DIM, options->vocabulary,
             options->extra_config != NULL ? options->extra_config : "");
    fl_write_file(path, text, strlen(text));
}

void fl_tiny_model_write(const char *directory, const fl_tiny_model_options *options) {
    fl_tiny_writer writer = {.count = 0};
    fl_error error = {0};
    char path[1024];
    fl_random_seed(&writer.random, 7, 0);
    add(&writer, "model.embed_tokens.weight", options->vocabulary, E, 1.0f, options->embedding);
    for (size_t l = 0; l < LAYERS; l++) add_layer(&writer, l, options->scale);
    add(&writer, "model.norm.weight", 0, E, 1.0f, NULL);
    add(&writer, "lm_head.weight", options->vocabulary, E, 0.3f, options->head);
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    fl_status status =
        fl_checkpoint_write_safetensors(path, writer.tensors, writer.count, NULL, NULL, 0, &error);
    for (size_t i = 0; i < writer.count; i++) fl_memory_free(writer.blocks[i]);
    if (status != FL_OK) fail_msg("%s", error.message);
    write_config(directory, options);
}
