#include "tests/support/pipeline_pack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cjson/cJSON.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "tests/support/fixture.h"

enum { YAML_BYTES = 1024 };

typedef struct {
    char text[YAML_BYTES];
    size_t used;
} fl_yaml;

static void say(fl_yaml *yaml, const char *key, const cJSON *value) {
    char *text = cJSON_PrintUnformatted(value);
    int wrote = snprintf(yaml->text + yaml->used, YAML_BYTES - yaml->used, "%s: ", key);
    yaml->used += (size_t)wrote;
    for (const char *c = text; *c != '\0';
         c++) { /* JSON flow style is YAML once ':' and ',' are followed by a space */
        assert_true(yaml->used + 3 < YAML_BYTES);
        if (*c == '"') continue;
        yaml->text[yaml->used++] = *c;
        if (*c == ':' || *c == ',') yaml->text[yaml->used++] = ' ';
    }
    yaml->text[yaml->used++] = '\n';
    yaml->text[yaml->used] = '\0';
    cJSON_free(text);
}

/* The manifest's description of a configuration as the `variant:` mapping a user would write. */
static void variant_yaml(const cJSON *config, fl_yaml *yaml) {
    static const char *const keys[] = {"rule", "window", "sinks", "merge",
                                       "gate", "beta",   "cache", "softmax_layers"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(config, keys[i]);
        if (value != NULL && !cJSON_IsNull(value)) say(yaml, keys[i], value);
    }
    if (strcmp(cJSON_GetObjectItemCaseSensitive(config, "rule")->valuestring, "linear") == 0) {
        say(yaml, "feature_map", cJSON_GetObjectItemCaseSensitive(config, "feature_map"));
        say(yaml, "normaliser", cJSON_GetObjectItemCaseSensitive(config, "normaliser"));
    }
    const cJSON *conv = cJSON_GetObjectItemCaseSensitive(config, "short_conv");
    if (cJSON_IsObject(conv)) { /* its numbers are loaded, so how it was drawn does not matter */
        cJSON *kernel_only = cJSON_CreateObject();
        cJSON_AddItemToObject(kernel_only, "kernel",
                              cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(conv, "kernel"), 1));
        say(yaml, "short_conv", kernel_only);
        cJSON_Delete(kernel_only);
    }
}

void fl_pipeline_load_parameters(const fl_checkpoint *file, const char *prefix, fl_mechanism *mechanism) {
    for (size_t l = 0; l < mechanism->layers; l++) {
        for (size_t i = 0; mechanism->layer[l] != NULL && i < mechanism->tensor_count; i++) {
            const fl_mechanism_tensor *tensor = &mechanism->tensors[i];
            char name[128];
            snprintf(name, sizeof name, "%slayers.%zu.%s", prefix, l, tensor->name);
            fl_tensor stored;
            fl_error error = {0};
            if (fl_fixture_has(file, name) &&
                strcmp(fl_checkpoint_lookup(file, name)->type_name, "F64") == 0) {
                float *values = fl_fixture_floats(file, name, NULL, NULL);
                memcpy(mechanism->layer[l] + tensor->offset, values, tensor->count * sizeof(float));
                fl_memory_free(values);
                continue;
            }
            if (fl_checkpoint_find(file, name, &stored, &error) != FL_OK) fail_msg("%s", error.message);
            assert_int_equal(stored.rows * stored.columns, tensor->count);
            fl_tensor_widen_rows(&stored, 0, stored.rows, mechanism->layer[l] + tensor->offset);
        }
    }
}

static void open_case(const fl_pipeline_pack *pack, const cJSON *config, const char *path,
                      fl_pipeline_case *out) {
    fl_error error = {0};
    fl_yaml yaml = {.used = 0};
    fl_document *document = NULL;
    const fl_model_config *model = &pack->under_test.model->config;
    fl_attention_shape shape = fl_model_attention_shape(model);
    snprintf(out->name, sizeof out->name, "%s", config->string);
    out->has_gradients = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(config, "has_gradients"));
    out->has_training = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(config, "has_training"));
    variant_yaml(config, &yaml);
    if (fl_document_parse_text(yaml.text, yaml.used, out->name, &document, &error) != FL_OK ||
        fl_variant_bind(fl_document_root(document), NULL, &out->variant, &error) != FL_OK ||
        fl_variant_fit(out->variant, &shape, model->layers, &error) != FL_OK ||
        fl_mechanism_create(out->variant, &shape, model->layers, &out->mechanism, &error) != FL_OK ||
        fl_checkpoint_open(path, &out->expected, &error) != FL_OK) {
        fail_msg("%s: %s\n%s", out->name, error.message, yaml.text);
    }
    fl_document_destroy(document);
    fl_pipeline_load_parameters(out->expected, "params.", out->mechanism);
}

static const char *pack_file(bool from_pack, const char *relative) {
    return from_pack ? fl_pack_path(relative) : fl_fixture_path(relative);
}

bool fl_pipeline_pack_open(const char *checkpoint, bool from_pack, fl_pipeline_pack *out) {
    char relative[256];
    *out = (fl_pipeline_pack){0};
    snprintf(relative, sizeof relative, "pipeline/%s/manifest.json", checkpoint);
    const char *path = pack_file(from_pack, relative);
    snprintf(relative, sizeof relative, "reference/%s", checkpoint);
    const char *model_path = pack_file(from_pack, relative);
    if (path == NULL || model_path == NULL) return false;
    char *text = fl_read_file(path, NULL);
    cJSON *manifest = cJSON_Parse(text);
    fl_memory_free(text);
    assert_non_null(manifest);
    out->under_test = fl_test_network_open(model_path, 0);
    snprintf(relative, sizeof relative, "pipeline/%s/common.safetensors", checkpoint);
    fl_error error = {0};
    if (fl_checkpoint_open(pack_file(from_pack, relative), &out->common, &error) != FL_OK) {
        fail_msg("%s", error.message);
    }
    const cJSON *configs = cJSON_GetObjectItemCaseSensitive(manifest, "configs"), *config = NULL;
    assert_int_equal(FL_ALLOCATE(&out->cases, cJSON_GetArraySize(configs), NULL), FL_OK);
    cJSON_ArrayForEach(config, configs) {
        snprintf(relative, sizeof relative, "pipeline/%s/%s.safetensors", checkpoint, config->string);
        open_case(out, config, pack_file(from_pack, relative), &out->cases[out->count]);
        out->count++;
    }
    cJSON_Delete(manifest);
    return true;
}

void fl_pipeline_pack_close(fl_pipeline_pack *pack) {
    for (size_t i = 0; i < pack->count; i++) {
        fl_mechanism_destroy(pack->cases[i].mechanism);
        fl_variant_destroy(pack->cases[i].variant);
        fl_checkpoint_close(pack->cases[i].expected);
    }
    fl_memory_free(pack->cases);
    fl_checkpoint_close(pack->common);
    fl_test_network_close(&pack->under_test);
    *pack = (fl_pipeline_pack){0};
}

fl_sequences fl_pipeline_sequences(const fl_pipeline_pack *pack, const char *which) {
    fl_sequences sequences = {.count = strlen(which)};
    assert_int_equal(FL_ALLOCATE(&sequences.lengths, sequences.count, NULL), FL_OK);
    assert_int_equal(FL_ALLOCATE(&sequences.ids, sequences.count, NULL), FL_OK);
    for (size_t s = 0; s < sequences.count; s++) {
        char name[32];
        snprintf(name, sizeof name, "input_ids.%c", which[s]);
        sequences.ids[s] = fl_fixture_integers(pack->common, name, &sequences.lengths[s]);
    }
    return sequences;
}
