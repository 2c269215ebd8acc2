/* config.json and GGUF keys: each key is read or refused by name; rope frequencies against their formulas. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <cjson/cJSON.h>

#include "harness/base/memory.h"
#include "harness/model/config_gguf.h"
#include "harness/model/config_json.h"
#include "harness/model/model_config.h"
#include "tests/support/checkpoint_builder.h"
#include "tests/support/fixture.h"

typedef struct parsed {
    fl_model_config config;
    fl_model_parts parts;
    const fl_architecture *architecture;
    fl_status status;
    fl_error error;
} parsed;

static void parse_text(const char *text, parsed *out) {
    memset(out, 0, sizeof *out);
    const char *path = fl_put_text(fl_test_folder(), "config.json", text);
    out->status = fl_config_json_read(path, &out->config, &out->parts, &out->architecture, &out->error);
}

static void release(parsed *out) {
    fl_memory_free(out->config.sliding_window);
}

static const char llama[] =
    "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":320,\"hidden_size\":"
    "64,"
    "\"intermediate_size\":160,\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
    "\"head_dim\":32,"
    "\"hidden_act\":\"silu\",\"max_position_embeddings\":512,\"rms_norm_eps\":1e-05,\"tie_word_embeddings\":"
    "true,"
    "\"rope_theta\":500000.0,\"bos_token_id\":1,\"eos_token_id\":2,\"attention_bias\":false,\"mlp_bias\":"
    "false,"
    "\"attention_dropout\":0.0,\"initializer_range\":0.02,\"use_cache\":true,\"torch_dtype\":\"bfloat16\","
    "\"dtype\":\"bfloat16\",\"pretraining_tp\":1,\"transformers_version\":\"4.40.0\",\"something_new\":7}";

/* `base` with the members of `changes` put in (or, where their value is the text "REMOVE", taken out). */
static void parse_changed(const char *base, const char *changes, parsed *out) {
    cJSON *document = cJSON_Parse(base), *change = cJSON_Parse(changes);
    if (document == NULL || change == NULL) fail_msg("the test's own JSON is broken: %s", changes);
    for (const cJSON *item = change->child; item != NULL; item = item->next) {
        cJSON_DeleteItemFromObjectCaseSensitive(document, item->string);
        if (cJSON_IsString(item) && strcmp(item->valuestring, "REMOVE") == 0) continue;
        cJSON_AddItemToObject(document, item->string, cJSON_Duplicate(item, true));
    }
    char *text = cJSON_Print(document);
    parse_text(text, out);
    cJSON_free(text);
    cJSON_Delete(document);
    cJSON_Delete(change);
}

static void parse_good(const char *base, const char *changes, parsed *out) {
    parse_changed(base, changes, out);
    if (out->status != FL_OK) fail_msg("%s: %s", changes, out->error.message);
}

static void assert_refused(const char *base, const char *changes, fl_status status, const char *first,
                           const char *second) {
    parsed out;
    parse_changed(base, changes, &out);
    release(&out);
    if (out.status == FL_OK) fail_msg("%s was accepted (expected: %s)", changes, first);
    if (out.status != status)
        fail_msg("%s: status %s: %s", changes, fl_status_name(out.status), out.error.message);
    if (strstr(out.error.message, first) == NULL ||
        (second != NULL && strstr(out.error.message, second) == NULL)) {
        fail_msg("%s: \"%s\" or \"%s\" is not in: %s", changes, first, second, out.error.message);
    }
    if (strstr(out.error.message, "config.json") == NULL)
        fail_msg("no file is named in: %s", out.error.message);
}

static void test_a_full_config_gives_the_stated_numbers(void **state) {
    (void)state;
    parsed out;
    parse_good(llama, "{}", &out);
    const fl_model_config *config = &out.config;
    assert_string_equal(config->architecture, "llama");
    assert_true(config->layers == 3 && config->model_dim == 64 && config->query_heads == 4 &&
                config->kv_heads == 2);
    assert_true(config->head_dim == 32 && config->mlp_dim == 160 && config->vocabulary == 320 &&
                config->max_positions == 512);
    assert_true(config->norm_epsilon == 1e-5 && config->tied_head && !config->query_key_norm);
    assert_true(config->attention_scale == (float)(1.0 / sqrt(32.0)));
    assert_true(config->rope.type == FL_ROPE_DEFAULT && config->rope.theta == 500000.0 &&
                config->rope.rotary_dim == 32);
    assert_true(config->bos_token == 1 && config->eos_token == 2);
    assert_true(config->sliding_window[0] == 0 && config->sliding_window[2] == 0);
    release(&out);
}

/* Equality of everything that could change the computation. */
static bool same_config(const parsed *a, const parsed *b) {
    fl_model_config x = a->config, y = b->config;
    if (x.layers != y.layers || memcmp(x.sliding_window, y.sliding_window, x.layers * sizeof(size_t)) != 0)
        return false;
    x.sliding_window = y.sliding_window = NULL;
    return memcmp(&x, &y, sizeof x) == 0 && memcmp(&a->parts, &b->parts, sizeof a->parts) == 0;
}

/* Every key that is read, with another value: the configuration differs or the file is refused. */
static void test_every_key_that_is_read_changes_something_or_is_refused(void **state) {
    (void)state;
    static const char *const changes[] = {
        "{\"vocab_size\":321}",
        "{\"hidden_size\":128}",
        "{\"intermediate_size\":161}",
        "{\"num_hidden_layers\":4}",
        "{\"num_attention_heads\":8}",
        "{\"num_key_value_heads\":4}",
        "{\"num_key_value_heads\":null}",
        "{\"head_dim\":16}",
        "{\"head_dim\":null}",
        "{\"head_dim\":\"REMOVE\"}",
        "{\"hidden_act\":\"gelu\"}",
        "{\"hidden_act\":\"gelu_pytorch_tanh\"}",
        "{\"hidden_act\":\"relu\"}",
        "{\"max_position_embeddings\":513}",
        "{\"rms_norm_eps\":1e-6}",
        "{\"rms_norm_eps\":\"REMOVE\"}",
        "{\"tie_word_embeddings\":false}",
        "{\"tie_word_embeddings\":\"REMOVE\"}",
        "{\"attention_bias\":true}",
        "{\"mlp_bias\":true}",
        "{\"rope_theta\":10000.0}",
        "{\"rope_theta\":\"REMOVE\"}",
        "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}",
        "{\"rope_parameters\":{\"rope_type\":\"dynamic\",\"factor\":2}}",
        "{\"partial_rotary_factor\":0.5}",
        "{\"sliding_window\":16}",
        "{\"use_sliding_window\":true}",
        "{\"bos_token_id\":5}",
        "{\"eos_token_id\":[7,8]}",
        "{\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\"]}",
        "{\"model_type\":\"mistral\"}",
        "{\"model_type\":\"qwen2\"}",
        "{\"architectures\":[\"LlamaForSequenceClassification\"]}",
        "{\"text_config\":{\"hidden_size\":128}}"};
    parsed original;
    parse_good(llama, "{}", &original);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        parsed changed;
        parse_changed(llama, changes[i], &changed);
        if (changed.status == FL_OK && same_config(&original, &changed))
            fail_msg("%s changed nothing", changes[i]);
        release(&changed);
    }
    release(&original);
}

static void test_absent_keys_take_the_defaults_of_their_class(void **state) {
    (void)state;
    static const char bare[] =
        "{\"model_type\":\"llama\",\"vocab_size\":10,\"hidden_size\":64,\"intermediate_size\":20,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":8}";
    parsed out;
    parse_good(bare, "{}", &out);
    assert_true(out.config.kv_heads == 8 && out.config.head_dim == 8 && out.config.max_positions == 2048);
    assert_true(out.config.norm_epsilon == 1e-6 && out.config.rope.theta == 10000.0 && !out.config.tied_head);
    assert_true(out.config.bos_token == 1 && out.config.eos_token == 2 && !out.parts.input_bias);
    release(&out);
    parse_good(bare, "{\"model_type\":\"mistral\"}", &out);
    assert_true(out.config.kv_heads == 8 && out.config.sliding_window[0] == 4096 &&
                out.config.sliding_window[1] == 4096);
    release(&out);
    parse_good(bare, "{\"model_type\":\"qwen2\",\"num_attention_heads\":32}", &out);
    assert_true(out.parts.input_bias && !out.parts.output_bias && out.config.sliding_window[1] == 0);
    assert_true(out.config.bos_token == -1 && out.config.eos_token == -1 && out.config.kv_heads == 32);
    release(&out);
    parse_good(bare, "{\"model_type\":\"qwen3\",\"num_key_value_heads\":null}", &out);
    assert_true(out.config.head_dim == 128 && out.config.query_key_norm && out.parts.query_key_norm);
    assert_true(!out.parts.input_bias && out.config.kv_heads == 8);
    release(&out);
    parse_good(bare, "{\"model_type\":\"qwen3\",\"num_key_value_heads\":4,\"attention_bias\":true}", &out);
    assert_true(out.parts.input_bias && out.parts.output_bias && !out.parts.mlp_bias);
    release(&out);
    static const char *const required[] = {"vocab_size",        "hidden_size",         "intermediate_size",
                                           "num_hidden_layers", "num_attention_heads", "model_type"};
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++) {
        char change[64], expected[64];
        snprintf(change, sizeof change, "{\"%s\":\"REMOVE\"}", required[i]);
        snprintf(expected, sizeof expected, "key %s: is missing", required[i]);
        assert_refused(bare, change, FL_ERROR_FORMAT, expected, NULL);
    }
}

static void test_values_that_make_no_sense_are_refused_by_key(void **state) {
    (void)state;
    static const struct {
        const char *change, *expected;
    } cases[] = {
        {"{\"vocab_size\":0}", "key vocab_size: is not a whole number from 1"},
        {"{\"vocab_size\":1e18}", "key vocab_size"},
        {"{\"hidden_size\":64.5}", "key hidden_size"},
        {"{\"hidden_size\":\"64\"}", "key hidden_size"},
        {"{\"hidden_size\":-64}", "key hidden_size"},
        {"{\"num_hidden_layers\":1000000000}", "key num_hidden_layers"},
        {"{\"num_attention_heads\":true}", "key num_attention_heads"},
        {"{\"num_key_value_heads\":3}", "key num_key_value_heads: 3 does not divide 4"},
        {"{\"num_key_value_heads\":0}", "key num_key_value_heads"},
        {"{\"head_dim\":null,\"hidden_size\":66}", "key head_dim"},
        {"{\"head_dim\":15}", "15 rotary dimensions are not an even number"},
        {"{\"rms_norm_eps\":0}", "key rms_norm_eps: is not above 0"},
        {"{\"rms_norm_eps\":\"1e-5\"}", "key rms_norm_eps"},
        {"{\"tie_word_embeddings\":1}", "key tie_word_embeddings: is not true or false"},
        {"{\"rope_theta\":0}", "key rope_theta"},
        {"{\"rope_theta\":1}", "key rope_theta"},
        {"{\"rope_scaling\":4}", "key rope_scaling: is not an object"},
        {"{\"rope_scaling\":{\"type\":\"linear\"}}", "key rope_scaling.factor: is missing"},
        {"{\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}", "key rope_scaling.factor: is not above 0"},
        {"{\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"2\"}}", "key rope_scaling.factor"},
        {"{\"rope_scaling\":{\"type\":\"linear\",\"rope_type\":\"yarn\",\"factor\":2}}",
         "given twice with different values"},
        {"{\"rope_scaling\":{\"type\":\"llama3\",\"factor\":2,\"low_freq_factor\":4,\"high_freq_factor\":1}}",
         "high_freq_factor: is not above low_freq_factor"},
        {"{\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2},\"rope_parameters\":{\"rope_type\":"
         "\"default\"}}",
         "given twice with different values"},
        {"{\"rope_parameters\":{\"rope_theta\":10000.0}}",
         "key rope_theta: is given twice with different values"},
        {"{\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":1e300}}",
         "key rope_scaling.factor: is not above 0 and of a sensible size"},
        {"{\"rope_theta\":1e300}", "key rope_theta: is not above 0 and of a sensible size"},
        {"{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"mscale\":-1}}", "key rope_scaling.mscale"},
        {"{\"partial_rotary_factor\":2}", "key partial_rotary_factor: is above 1"},
        {"{\"bos_token_id\":\"<s>\"}", "key bos_token_id: is not a token id"},
        {"{\"eos_token_id\":[]}", "key eos_token_id"},
        {"{\"layer_types\":[\"full_attention\"]}",
         "key layer_types: is not a list with one entry for each layer"},
        {"{\"architectures\":[]}", "key architectures"},
        {"{\"architectures\":\"LlamaForCausalLM\"}", "key architectures"},
        {"{\"model_type\":7}", "key model_type: is not text"},
        {"{\"text_config\":[1]}", "not an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_refused(llama, cases[i].change, FL_ERROR_FORMAT, cases[i].expected, NULL);
    }
}

static void test_what_is_not_understood_is_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *change, *expected;
    } cases[] = {
        {"{\"model_type\":\"gemma3_text\"}",
         "model_type \"gemma3_text\" is not supported (supported: llama, mistral, qwen2, qwen3"},
        {"{\"architectures\":[\"LlamaForTokenClassification\"]}", "LlamaForTokenClassification"},
        {"{\"hidden_act\":\"relu2\"}", "activation \"relu2\""},
        {"{\"quantization_config\":{\"bits\":4}}", "key quantization_config: not understood"},
        {"{\"attn_logit_softcapping\":50.0}", "key attn_logit_softcapping"},
        {"{\"final_logit_softcapping\":30.0}", "key final_logit_softcapping"},
        {"{\"attention_multiplier\":0.015}", "key attention_multiplier"},
        {"{\"embedding_multiplier\":12}", "key embedding_multiplier"},
        {"{\"residual_multiplier\":0.22}", "key residual_multiplier"},
        {"{\"logits_scaling\":8}", "key logits_scaling"},
        {"{\"query_pre_attn_scalar\":256}", "key query_pre_attn_scalar"},
        {"{\"num_local_experts\":8}", "key num_local_experts"},
        {"{\"no_rope_layers\":[1,1,0]}", "key no_rope_layers"},
        {"{\"attention_sinks\":true}", "key attention_sinks"},
        {"{\"attention_something_new\":3}", "key attention_something_new"},
        {"{\"attn_temperature\":3}", "key attn_temperature"},
        {"{\"rope_local_base_freq\":10000}", "key rope_local_base_freq"},
        {"{\"rope_interleaved\":true}", "key rope_interleaved"},
        {"{\"sliding_window\":4096}", "key sliding_window: this architecture has no window"},
        {"{\"use_sliding_window\":true}", "key use_sliding_window"},
        {"{\"partial_rotary_factor\":0.5}",
         "key partial_rotary_factor: this architecture rotates whole heads"},
        {"{\"rope_scaling\":{\"type\":\"longrope\",\"factor\":2}}",
         "rope type \"longrope\" is not supported"},
        {"{\"rope_scaling\":{\"rope_type\":\"mrope\",\"mrope_section\":[1,2]}}", "rope type \"mrope\""},
        {"{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"alpha\":1}}",
         "key rope_scaling.alpha: not understood with rope type \"linear\""},
        {"{\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2,\"beta_fast\":1}}",
         "key rope_scaling.beta_fast"},
        {"{\"rope_parameters\":{\"rope_type\":\"default\",\"factor\":8}}",
         "key rope_parameters.factor: not understood with rope type \"default\""},
        {"{\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"},\"sliding_attention\":{\"rope_"
         "type\":\"default\",\"rope_theta\":10000}}}",
         "rope that differs between layer types"},
        {"{\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"},\"sliding_attention\":null}}",
         "key rope_parameters.sliding_attention: layers without rope"},
        {"{\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"},\"rope_theta\":10000}}",
         "key rope_parameters.rope_theta: is not a known layer type"},
        {"{\"layer_types\":[\"full_attention\",\"linear_attention\",\"full_attention\"]}",
         "layer 1 is of type \"linear_attention\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_refused(llama, cases[i].change, FL_ERROR_UNSUPPORTED, cases[i].expected, NULL);
    }
    /* The same keys when they say "not in use", and keys that say nothing about the computation. */
    parsed out;
    parse_good(
        llama,
        "{\"attn_logit_softcapping\":null,\"quantization_config\":null,\"num_local_experts\":0,\"attention_"
        "sinks\":false,"
        "\"sliding_window\":null,\"use_sliding_window\":false,\"rope_scaling\":null,\"layer_types\":null,"
        "\"attention_dropout\":0.1,\"chat_template\":\"x\",\"pad_token_id\":0,"
        "\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\"]}",
        &out);
    release(&out);
    assert_refused(
        llama, "{\"model_type\":\"qwen2\",\"architectures\":[\"Qwen2ForCausalLM\"],\"attention_bias\":false}",
        FL_ERROR_UNSUPPORTED, "key attention_bias: this architecture always has", NULL);
    assert_refused(llama, "{\"model_type\":\"mistral\",\"architectures\":null,\"attention_bias\":true}",
                   FL_ERROR_UNSUPPORTED, "key attention_bias: this architecture has no such biases", NULL);
    assert_refused(llama, "{\"model_type\":\"qwen3\",\"architectures\":null,\"mlp_bias\":true}",
                   FL_ERROR_UNSUPPORTED, "key mlp_bias: this architecture has no such biases", NULL);
}

static void test_broken_json_is_refused_with_line_and_column(void **state) {
    (void)state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"{\"model_type\":\n  \"llama\",,}", "config.json:2:"},
        {"{\"model_type\":\"llama\",\"model_type\":\"llama\"}", "duplicate key \"model_type\""},
        {"{} x", "config.json:1:4"},
        {"{\"a\":\"\\u0000\"}", "config.json:1:7"},
        {"[]", "not an object"},
        {"nonsense", "config.json:1:1"},
        {"\"text\"", "not an object"},
        {"{\"model_type\":\"llama\",\"vocab_size\":10,\"hidden_size\":8,\"intermediate_size\":9,\"num_hidden_"
         "layers\":1,"
         "\"num_attention_heads\":2,\"rms_norm_eps\":1e999}",
         "key rms_norm_eps: is not a finite number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        parsed out;
        parse_text(cases[i].text, &out);
        assert_int_equal(out.status, FL_ERROR_FORMAT);
        if (strstr(out.error.message, cases[i].expected) == NULL) fail_msg("%s", out.error.message);
    }
}

static void test_sliding_windows_follow_each_architecture(void **state) {
    (void)state;
    static const char mistral[] = "{\"model_type\":\"mistral\",\"architectures\":null}";
    parsed out;
    parse_changed(llama, mistral, &out);
    assert_true(out.status == FL_OK && out.config.sliding_window[2] == 4096);
    release(&out);
    parse_good(llama, "{\"model_type\":\"mistral\",\"architectures\":null,\"sliding_window\":null}", &out);
    assert_true(out.config.sliding_window[0] == 0);
    release(&out);
    parse_good(llama, "{\"model_type\":\"mistral\",\"architectures\":null,\"sliding_window\":17}", &out);
    assert_true(out.config.sliding_window[0] == 17 && out.config.sliding_window[2] == 17);
    release(&out);
    assert_refused(llama, "{\"model_type\":\"mistral\",\"architectures\":null,\"sliding_window\":0}",
                   FL_ERROR_FORMAT, "key sliding_window", NULL);
    assert_refused(llama,
                   "{\"model_type\":\"mistral\",\"architectures\":null,\"sliding_window\":17,"
                   "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"sliding_attention\"]}",
                   FL_ERROR_UNSUPPORTED, "slides in all layers or in none", NULL);

#define QWEN "{\"model_type\":\"qwen2\",\"architectures\":null,\"attention_bias\":null,"
    parse_good(llama, QWEN "\"sliding_window\":64}", &out);
    assert_true(out.config.sliding_window[2] == 0);
    release(&out);
    parse_good(llama, QWEN "\"use_sliding_window\":true,\"sliding_window\":64,\"max_window_layers\":1}",
               &out);
    assert_true(out.config.sliding_window[0] == 0 && out.config.sliding_window[1] == 64 &&
                out.config.sliding_window[2] == 64);
    release(&out);
    parse_good(llama, QWEN "\"use_sliding_window\":true,\"sliding_window\":64}", &out);
    assert_true(out.config.sliding_window[2] == 0); /* 28 full layers by default */
    release(&out);
    parse_good(llama,
               QWEN "\"use_sliding_window\":true,\"sliding_window\":64,\"max_window_layers\":0,"
                    "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\"]}",
               &out);
    assert_true(out.config.sliding_window[0] == 64 && out.config.sliding_window[1] == 0 &&
                out.config.sliding_window[2] == 64);
    release(&out);
    assert_refused(llama,
                   QWEN "\"sliding_window\":64,\"layer_types\":[\"sliding_attention\",\"full_attention\","
                        "\"full_attention\"]}",
                   FL_ERROR_FORMAT, "names a sliding layer, but no window is in use", NULL);
}

static void test_a_nested_text_config_is_read_and_must_agree(void **state) {
    (void)state;
    static const char outer[] =
        "{\"model_type\":\"llava\",\"architectures\":[\"LlavaForConditionalGeneration\"],"
        "\"image_token_index\":5,\"vision_config\":{\"hidden_size\":9}}";
    char change[2048];
    parsed out;
    snprintf(change, sizeof change, "{\"text_config\":%s}", llama);
    parse_good(outer, change, &out);
    assert_true(out.config.model_dim == 64 && out.config.rope.theta == 500000.0);
    release(&out);
    snprintf(change, sizeof change, "{\"hidden_size\":65,\"text_config\":%s}", llama);
    assert_refused(outer, change, FL_ERROR_FORMAT, "key hidden_size: the top level and text_config disagree",
                   NULL);
    snprintf(change, sizeof change, "{\"rope_theta\":1e4,\"text_config\":%s}", llama);
    assert_refused(outer, change, FL_ERROR_FORMAT, "key rope_theta: the top level and text_config disagree",
                   NULL);
    snprintf(change, sizeof change,
             "{\"hidden_size\":64,\"final_logit_softcapping\":30.0,\"text_config\":%s}", llama);
    assert_refused(outer, change, FL_ERROR_UNSUPPORTED, "key final_logit_softcapping", NULL);
}

static void test_every_spelling_of_rope_gives_the_same(void **state) {
    (void)state;
    static const char *const spellings[] = {
        "{\"rope_theta\":1e4,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0}}",
        "{\"rope_theta\":1e4,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":4}}",
        "{\"rope_theta\":1e4,\"rope_scaling\":{\"type\":\"linear\",\"rope_type\":\"linear\",\"factor\":4}}",
        "{\"rope_theta\":\"REMOVE\",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4,\"rope_"
        "theta\":10000.0}}",
        "{\"rope_theta\":10000,\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4,\"rope_theta\":"
        "10000.0}}",
        "{\"rope_theta\":\"REMOVE\",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\","
        "\"factor\":4,"
        "\"rope_theta\":10000.0}}}",
        "{\"rope_theta\":\"REMOVE\",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4,\"partial_"
        "rotary_factor\":1.0}}",
    };
    parsed first;
    parse_good(llama, spellings[0], &first);
    assert_true(first.config.rope.type == FL_ROPE_LINEAR && first.config.rope.factor == 4.0);
    for (size_t i = 1; i < sizeof spellings / sizeof spellings[0]; i++) {
        parsed out;
        parse_good(llama, spellings[i], &out);
        if (!same_config(&first, &out)) fail_msg("%s", spellings[i]);
        release(&out);
    }
    release(&first);
}

static void test_yarn_keys_are_all_read(void **state) {
    (void)state;
    parsed out;
    parse_good(
        llama,
        "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":128,\"beta_"
        "fast\":16,"
        "\"beta_slow\":2,\"mscale\":0.7,\"mscale_all_dim\":0.3,\"attention_factor\":1.5,\"truncate\":false}}",
        &out);
    const fl_rope_config *rope = &out.config.rope;
    assert_true(rope->type == FL_ROPE_YARN && rope->factor == 4 && rope->original_max_positions == 128);
    assert_true(rope->beta_fast == 16 && rope->beta_slow == 2 && rope->mscale == 0.7 &&
                rope->mscale_all_dim == 0.3);
    assert_true(rope->attention_factor == 1.5 && !rope->truncate);
    release(&out);
    /* Absent: the original length is the present one; with it and no factor, the factor is their ratio. */
    parse_good(llama, "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}}", &out);
    assert_true(out.config.rope.original_max_positions == 512 && out.config.rope.beta_fast == 32 &&
                out.config.rope.truncate);
    release(&out);
    parse_good(llama, "{\"rope_scaling\":{\"type\":\"yarn\",\"original_max_position_embeddings\":128}}",
               &out);
    assert_true(out.config.rope.factor == 4.0);
    release(&out);
    parse_good(llama,
               "{\"original_max_position_embeddings\":64,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}}",
               &out);
    assert_true(out.config.rope.original_max_positions == 64);
    release(&out);
}

enum { ROTARY = 64, HALF = ROTARY / 2 };

static fl_rope_config rope_of(fl_rope_type type, double theta, double factor) {
    return (fl_rope_config){.type = type,
                            .theta = theta,
                            .rotary_dim = ROTARY,
                            .factor = factor,
                            .low_frequency_factor = 1,
                            .high_frequency_factor = 4,
                            .original_max_positions = 256,
                            .beta_fast = 32,
                            .beta_slow = 1,
                            .truncate = true};
}

/* The published formula in float64, independent of the order of operations. */
static double exact_frequency(const fl_rope_config *rope, size_t i, double low, double high) {
    double plain = pow(rope->theta, -2.0 * (double)i / ROTARY), pi = acos(-1.0);
    if (rope->type == FL_ROPE_LINEAR) return plain / rope->factor;
    if (rope->type == FL_ROPE_LLAMA3) {
        double wave = 2 * pi / plain;
        double smooth = (rope->original_max_positions / wave - rope->low_frequency_factor) /
                        (rope->high_frequency_factor - rope->low_frequency_factor);
        if (wave < rope->original_max_positions / rope->high_frequency_factor) return plain;
        if (wave > rope->original_max_positions / rope->low_frequency_factor) return plain / rope->factor;
        return (1 - smooth) * plain / rope->factor + smooth * plain;
    }
    if (rope->type == FL_ROPE_YARN) {
        double ramp = fmin(fmax(((double)i - low) / (high - low), 0.0), 1.0);
        return plain / rope->factor * ramp + plain * (1 - ramp);
    }
    return plain;
}

static void assert_frequencies(const fl_rope_config *rope, double low, double high, double attention) {
    float found[HALF], factor = 0.0f;
    fl_rope_inverse_frequencies(rope, 512, 16, found, &factor);
    for (size_t i = 0; i < HALF; i++) {
        double expected = exact_frequency(rope, i, low, high);
        if (fabs((double)found[i] - expected) <= 6e-7 * expected) continue;
        fail_msg("type %d, frequency %zu: %.9g, expected %.9g", (int)rope->type, i, (double)found[i],
                 expected);
    }
    if (fabs((double)factor - attention) > 1e-6)
        fail_msg("attention factor %g, expected %g", (double)factor, attention);
}

static void test_rope_frequencies_follow_their_formulas(void **state) {
    (void)state;
    static const double thetas[] = {10000.0, 100000.0, 500000.0, 1e6};
    for (size_t i = 0; i < 4; i++) {
        fl_rope_config rope = rope_of(FL_ROPE_DEFAULT, thetas[i], 1);
        assert_frequencies(&rope, 0, 1, 1.0);
        rope = rope_of(FL_ROPE_LINEAR, thetas[i], 4);
        assert_frequencies(&rope, 0, 1, 1.0);
        rope = rope_of(FL_ROPE_LLAMA3, thetas[i], 8);
        assert_frequencies(&rope, 0, 1, 1.0);
    }
    /* YaRN, theta 10000, original length 256: rotations 32 and 1 fall at dimensions 0.84 and 12.88 of 32. */
    double pi = acos(-1.0), scale = ROTARY / (2 * log(10000.0));
    double low = scale * log(256 / (32 * 2 * pi)), high = scale * log(256 / (2 * pi));
    assert_true(low > 0.8 && low < 0.9 && high > 12.8 && high < 12.9);
    fl_rope_config rope = rope_of(FL_ROPE_YARN, 10000.0, 4);
    assert_frequencies(&rope, floor(low), ceil(high), 0.1 * log(4) + 1);
    rope.truncate = false;
    assert_frequencies(&rope, low, high, 0.1 * log(4) + 1);
    rope.truncate = true;
    rope.attention_factor = 1.25;
    assert_frequencies(&rope, floor(low), ceil(high), 1.25);
    rope.attention_factor = 0;
    rope.mscale = 0.7;
    assert_frequencies(&rope, floor(low), ceil(high),
                       0.1 * log(4) + 1); /* one of the two alone does nothing */
    rope.mscale_all_dim = 0.3;
    assert_frequencies(&rope, floor(low), ceil(high), (0.07 * log(4) + 1) / (0.03 * log(4) + 1));
    rope.factor = 0.5;
    assert_frequencies(&rope, floor(low), ceil(high), 1.0);
    /* The range is clamped to [0, d - 1], and an empty one is opened. */
    rope = rope_of(FL_ROPE_YARN, 10000.0, 4);
    rope.original_max_positions = 16;
    assert_frequencies(&rope, 0, ceil(scale * log(16 / (2 * pi))), 0.1 * log(4) + 1);
    rope.original_max_positions = 1e12;
    assert_frequencies(&rope, floor(scale * log(1e12 / (64 * pi))), ROTARY - 1, 0.1 * log(4) + 1);
    rope.beta_fast = 1e12 / (2 * pi);
    rope.beta_slow = rope.beta_fast;
    assert_frequencies(&rope, 0, 0.001, 0.1 * log(4) + 1);
}

static void test_dynamic_rope_stretches_only_beyond_its_length(void **state) {
    (void)state;
    fl_rope_config rope = rope_of(FL_ROPE_DYNAMIC, 10000.0, 3), plain = rope_of(FL_ROPE_DEFAULT, 10000.0, 1);
    float found[HALF], expected[HALF], factor;
    fl_rope_inverse_frequencies(&plain, 512, 16, expected, &factor);
    fl_rope_inverse_frequencies(&rope, 512, 512, found, &factor);
    assert_memory_equal(found, expected, sizeof found);
    fl_rope_inverse_frequencies(&rope, 512, 1536, found, &factor);
    double theta = 10000.0 * pow(3.0 * 1536 / 512 - 2.0, 64.0 / 62.0);
    for (size_t i = 0; i < HALF; i++) {
        double exact = pow(theta, -2.0 * (double)i / ROTARY);
        assert_true(fabs((double)found[i] - exact) <= 6e-7 * exact);
    }
    assert_true(factor == 1.0f);
}

static void test_divisors_divide(void **state) {
    (void)state;
    float divisors[HALF], plain[HALF], found[HALF], factor;
    fl_rope_config rope = rope_of(FL_ROPE_DEFAULT, 10000.0, 1);
    fl_rope_inverse_frequencies(&rope, 512, 16, plain, &factor);
    for (size_t i = 0; i < HALF; i++) divisors[i] = 1.0f + (float)i / 4;
    rope.divisors = divisors;
    fl_rope_inverse_frequencies(&rope, 512, 16, found, &factor);
    for (size_t i = 0; i < HALF; i++) assert_true(found[i] == plain[i] / divisors[i]);
}

/* The pairs of a small llama; `skip` leaves one key out. */
static size_t add_gguf_pairs(fl_bytes *out, const char *skip) {
    static const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {{"llama.context_length", 512},      {"llama.embedding_length", 64},
                 {"llama.block_count", 3},           {"llama.feed_forward_length", 160},
                 {"llama.attention.head_count", 4},  {"llama.attention.head_count_kv", 2},
                 {"llama.rope.dimension_count", 16}, {"llama.vocab_size", 320},
                 {"tokenizer.ggml.bos_token_id", 1}};
    size_t count = 2;
    fl_gguf_add_string(out, "general.architecture", "llama");
    fl_gguf_add_f32(out, "llama.rope.freq_base", 50000.0f);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (skip != NULL && strcmp(skip, sizes[i].key) == 0) continue;
        fl_gguf_add_u32(out, sizes[i].key, sizes[i].value);
        count++;
    }
    if (skip != NULL && strcmp(skip, "llama.attention.layer_norm_rms_epsilon") == 0) return count;
    fl_gguf_add_f32(out, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    return count + 1;
}

static void parse_gguf(fl_bytes *pairs, size_t count, parsed *out) {
    fl_bytes file = {0};
    fl_gguf *gguf = NULL;
    size_t skipped = 0;
    memset(out, 0, sizeof *out);
    fl_build_gguf(&file, pairs, count, NULL, 0, 32);
    assert_int_equal(fl_gguf_open(fl_put_file(fl_test_folder(), "config.gguf", &file), &gguf, &out->error),
                     FL_OK);
    out->status = fl_config_gguf_read(gguf, &out->config, &out->architecture, &skipped, &out->error);
    fl_gguf_close(gguf);
    fl_bytes_free(&file);
    fl_bytes_free(pairs);
}

static void test_gguf_keys_give_the_stated_numbers(void **state) {
    (void)state;
    fl_bytes pairs = {0};
    parsed out;
    size_t count = add_gguf_pairs(&pairs, NULL);
    parse_gguf(&pairs, count, &out);
    if (out.status != FL_OK) fail_msg("%s", out.error.message);
    const fl_model_config *config = &out.config;
    assert_string_equal(config->architecture, "llama");
    assert_true(config->layers == 3 && config->model_dim == 64 && config->query_heads == 4 &&
                config->kv_heads == 2);
    assert_true(config->head_dim == 16 && config->mlp_dim == 160 && config->vocabulary == 320 &&
                config->max_positions == 512);
    assert_true((float)config->norm_epsilon == 1e-5f && config->rope.theta == 50000.0 &&
                config->rope.rotary_dim == 16);
    assert_true(config->bos_token == 1 && config->eos_token == -1 && config->sliding_window[2] == 0);
    release(&out);
}

static void test_missing_gguf_keys_are_named(void **state) {
    (void)state;
    static const char *const required[] = {
        "llama.context_length",      "llama.embedding_length",     "llama.block_count",
        "llama.feed_forward_length", "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"};
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++) {
        fl_bytes pairs = {0};
        parsed out;
        size_t count = add_gguf_pairs(&pairs, required[i]);
        parse_gguf(&pairs, count, &out);
        assert_int_equal(out.status, FL_ERROR_FORMAT);
        if (strstr(out.error.message, required[i]) == NULL ||
            strstr(out.error.message, "is missing") == NULL) {
            fail_msg("%s", out.error.message);
        }
        release(&out);
    }
}

static void add_scaling(fl_bytes *out, const char *type, float factor) {
    fl_gguf_add_string(out, "llama.rope.scaling.type", type);
    fl_gguf_add_f32(out, "llama.rope.scaling.factor", factor);
}
static size_t add_unknown(fl_bytes *out) {
    return fl_gguf_add_u32(out, "llama.attention.sinks", 4), 1;
}
static size_t add_experts(fl_bytes *out) {
    return fl_gguf_add_u32(out, "llama.expert_count", 8), 1;
}
static size_t add_longrope(fl_bytes *out) {
    return add_scaling(out, "longrope", 2.0f), 2;
}
static size_t add_value_length(fl_bytes *out) {
    return fl_gguf_add_u32(out, "llama.attention.value_length", 8), 1;
}
static size_t add_rope_sections(fl_bytes *out) {
    return fl_gguf_add_u32(out, "llama.rope.dimension_sections", 8), 1;
}
static size_t add_logit_scale(fl_bytes *out) {
    return fl_gguf_add_f32(out, "llama.logit_scale", 8.0f), 1;
}

static void test_gguf_keys_that_are_not_understood_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        size_t (*add)(fl_bytes *out);
        const char *expected;
    } cases[] = {{add_unknown, "key llama.attention.sinks: not understood"},
                 {add_experts, "key llama.expert_count: mixtures of experts"},
                 {add_longrope, "key llama.rope.scaling.type: \"longrope\" is not supported"},
                 {add_value_length, "key llama.attention.value_length"},
                 {add_rope_sections, "key llama.rope.dimension_sections"},
                 {add_logit_scale, "key llama.logit_scale"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fl_bytes pairs = {0};
        parsed out;
        size_t count = cases[i].add(&pairs);
        count += add_gguf_pairs(&pairs, NULL);
        parse_gguf(&pairs, count, &out);
        assert_int_equal(out.status, FL_ERROR_UNSUPPORTED);
        if (strstr(out.error.message, cases[i].expected) == NULL) fail_msg("%s", out.error.message);
        release(&out);
    }
    fl_bytes pairs = {0};
    parsed out;
    fl_gguf_add_string(&pairs, "general.architecture", "gemma3");
    parse_gguf(&pairs, 1, &out);
    assert_int_equal(out.status, FL_ERROR_UNSUPPORTED);
    assert_non_null(strstr(out.error.message, "\"gemma3\" is not supported"));
    parse_gguf(&pairs, 0, &out);
    assert_int_equal(out.status, FL_ERROR_FORMAT);
    assert_non_null(strstr(out.error.message, "general.architecture is missing"));
}

static void test_gguf_rope_scaling_and_windows_are_read(void **state) {
    (void)state;
    fl_bytes pairs = {0};
    parsed out;
    add_scaling(&pairs, "yarn", 4.0f);
    fl_gguf_add_u32(&pairs, "llama.rope.scaling.original_context_length", 128);
    fl_gguf_add_f32(&pairs, "llama.rope.scaling.attn_factor", 2.0f);
    fl_gguf_add_u32(&pairs, "llama.attention.sliding_window", 32);
    size_t count = 5 + add_gguf_pairs(&pairs, NULL);
    parse_gguf(&pairs, count, &out);
    if (out.status != FL_OK) fail_msg("%s", out.error.message);
    const fl_rope_config *rope = &out.config.rope;
    assert_true(rope->type == FL_ROPE_YARN && rope->factor == 4.0 && rope->original_max_positions == 128);
    assert_true(fabs(rope->attention_factor - 2.0 * (0.1 * log(4) + 1)) < 1e-12 && rope->truncate);
    assert_true(out.config.sliding_window[0] == 32 && out.config.sliding_window[2] == 32);
    release(&out);
    fl_gguf_add_f32(&pairs, "llama.rope.scale_linear", 2.0f);
    count = 1 + add_gguf_pairs(&pairs, NULL);
    parse_gguf(&pairs, count, &out);
    assert_true(out.status == FL_OK && out.config.rope.type == FL_ROPE_LINEAR &&
                out.config.rope.factor == 2.0);
    release(&out);
}

static void add_head_counts(fl_bytes *out, uint32_t last) {
    fl_gguf_add_text(out, "llama.attention.head_count_kv");
    fl_bytes_add_u32(out, 9);
    fl_bytes_add_u32(out, 4);
    fl_bytes_add_u64(out, 3);
    fl_bytes_add_u32(out, 2), fl_bytes_add_u32(out, 2), fl_bytes_add_u32(out, last);
}

static void test_gguf_values_per_layer_must_be_equal(void **state) {
    (void)state;
    fl_bytes pairs = {0};
    parsed out;
    add_head_counts(&pairs, 2);
    size_t count = 1 + add_gguf_pairs(&pairs, "llama.attention.head_count_kv");
    parse_gguf(&pairs, count, &out);
    assert_true(out.status == FL_OK && out.config.kv_heads == 2);
    release(&out);
    add_head_counts(&pairs, 4);
    count = 1 + add_gguf_pairs(&pairs, "llama.attention.head_count_kv");
    parse_gguf(&pairs, count, &out);
    assert_int_equal(out.status, FL_ERROR_UNSUPPORTED);
    assert_non_null(
        strstr(out.error.message, "llama.attention.head_count_kv: values that differ between layers"));
    release(&out);
}

static void test_running_out_of_memory_leaves_nothing_behind(void **state) {
    (void)state;
    for (size_t n = 1;; n++) {
        parsed out;
        memset(&out, 0, sizeof out);
        const char *path = fl_put_text(fl_test_folder(), "config.json", llama);
        fl_memory_fail_at(n);
        out.status = fl_config_json_read(path, &out.config, &out.parts, &out.architecture, &out.error);
        fl_memory_fail_at(0);
        release(&out);
        if (out.status == FL_OK) break;
        assert_int_equal(out.status, FL_ERROR_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_full_config_gives_the_stated_numbers),
        cmocka_unit_test(test_every_key_that_is_read_changes_something_or_is_refused),
        cmocka_unit_test(test_absent_keys_take_the_defaults_of_their_class),
        cmocka_unit_test(test_values_that_make_no_sense_are_refused_by_key),
        cmocka_unit_test(test_what_is_not_understood_is_refused_by_name),
        cmocka_unit_test(test_broken_json_is_refused_with_line_and_column),
        cmocka_unit_test(test_sliding_windows_follow_each_architecture),
        cmocka_unit_test(test_a_nested_text_config_is_read_and_must_agree),
        cmocka_unit_test(test_every_spelling_of_rope_gives_the_same),
        cmocka_unit_test(test_yarn_keys_are_all_read),
        cmocka_unit_test(test_rope_frequencies_follow_their_formulas),
        cmocka_unit_test(test_dynamic_rope_stretches_only_beyond_its_length),
        cmocka_unit_test(test_divisors_divide),
        cmocka_unit_test(test_gguf_keys_give_the_stated_numbers),
        cmocka_unit_test(test_missing_gguf_keys_are_named),
        cmocka_unit_test(test_gguf_keys_that_are_not_understood_are_refused_by_name),
        cmocka_unit_test(test_gguf_rope_scaling_and_windows_are_read),
        cmocka_unit_test(test_gguf_values_per_layer_must_be_equal),
        cmocka_unit_test(test_running_out_of_memory_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, fl_test_folder_make, fl_test_folder_remove);
}
