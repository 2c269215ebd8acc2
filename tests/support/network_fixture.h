/* A model opened, widened and ready to run, for tests; and small models written on the spot. */
#ifndef FL_TESTS_SUPPORT_NETWORK_FIXTURE_H
#define FL_TESTS_SUPPORT_NETWORK_FIXTURE_H

#include <stddef.h>

#include "attn_variants/mechanism.h"
#include "attn_variants/variant.h"
#include "harness/engine/network.h"

typedef struct fl_test_network {
    fl_model *model;
    fl_compute *compute;
    fl_network *network;
} fl_test_network;

/* Fails the running test when the model cannot be opened. threads 0 = all processors. */
fl_test_network fl_test_network_open(const char *model_path, size_t threads);
void fl_test_network_close(fl_test_network *network);

/* A variant as a user writes it ("rule: kda\nwindow: 8\n"), fitted to the network, and its mechanism as initialised. */
typedef struct fl_test_mechanism {
    fl_variant *variant;
    fl_mechanism *mechanism;
} fl_test_mechanism;

fl_test_mechanism fl_test_mechanism_create(const fl_test_network *network, const char *yaml);
void fl_test_mechanism_destroy(fl_test_mechanism *mechanism);

/* A Llama-shaped checkpoint in `directory` (config.json, model.safetensors): 2 layers, 4 query heads on 2 key/value heads of
 * width 8, model width 32, MLP 48, untied head. Weights are seeded normals of the given scale. */
typedef struct fl_tiny_model_options {
    size_t vocabulary;
    const char *model_type;  /* NULL = "llama" */
    float scale;             /* of all matrices */
    const float *embedding;  /* [V][32] or NULL = random */
    const float *head;       /* [V][32] or NULL = random */
    const char *extra_config; /* further keys of config.json: ", \"rope_scaling\": {...}"; NULL = none */
} fl_tiny_model_options;

enum { FL_TINY_MODEL_DIM = 32 };

void fl_tiny_model_write(const char *directory, const fl_tiny_model_options *options);

#endif
