/* Fuzz target: any bytes as config.json. What is accepted has sizes that fit together and finite rope
 * frequencies. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/model/config_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_ROTARY = 4096 };

static void check(const fl_model_config *config) {
    if (config->layers == 0 || config->kv_heads == 0 || config->query_heads % config->kv_heads != 0) abort();
    if (config->rope.rotary_dim > config->head_dim || config->rope.rotary_dim % 2 != 0) abort();
    if (config->rope.rotary_dim > MOST_ROTARY) return;
    float frequencies[MOST_ROTARY / 2], factor;
    fl_rope_inverse_frequencies(&config->rope, config->max_positions, 2 * config->max_positions, frequencies,
                                &factor);
    for (size_t i = 0; i < config->rope.rotary_dim / 2; i++) {
        if (isnan(frequencies[i])) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fl_model_config config;
    fl_model_parts parts;
    const fl_architecture *architecture = NULL;
    fl_error error;
    fl_status status =
        fl_config_json_parse((const char *)data, size, "fuzz.json", &config, &parts, &architecture, &error);
    if (status == FL_OK) check(&config);
    fl_memory_free(config.sliding_window);
    return 0;
}
