/* Cache routing: decisions from fixed scores (with ties), whole layers with attention mass, and how cost
 * grows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variants/cache_routing.h"
#include "attn_variants/mixer.h"
#include "harness/base/memory.h"
#include "harness/base/random.h"
#include "tests/support/arrays.h"
#include "tests/support/compare.h"
#include "tests/support/fixture.h"

static void must(fl_status status, const fl_error *error) {
    if (status != FL_OK) fail_msg("%s", error->message);
}

static cJSON *read_routing(void) {
    const char *path = fl_fixture_or_pack("pipeline/routing.json");
    if (path == NULL) fl_fixture_skip("routing", "pipeline/routing.json");
    size_t bytes = 0;
    char *text = fl_read_file(path, &bytes);
    cJSON *root = cJSON_ParseWithLength(text, bytes);
    fl_memory_free(text);
    assert_non_null(root);
    return root;
}

static size_t number(const cJSON *object, const char *key) {
    return (size_t)cJSON_GetObjectItem(object, key)->valuedouble;
}

static bool is_cached(const fl_routed_cache *cache, size_t position) {
    for (size_t slot = 0; slot < cache->used[0]; slot++) {
        if (cache->position[slot] == position) return true;
    }
    return false;
}

static void check_cached(const fl_routed_cache *cache, const cJSON *expected) {
    assert_int_equal(cache->used[0], cJSON_GetArraySize(expected));
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, expected) assert_true(is_cached(cache, (size_t)item->valuedouble));
}

/* by_heap: scores that belong to tokens; else the same scores handed over at every decision. */
static void check_decisions(const cJSON *scenario, bool by_heap) {
    fl_error error;
    fl_routed_cache cache;
    const cJSON *score = cJSON_GetObjectItem(scenario, "score_per_token");
    const cJSON *written = cJSON_GetObjectItem(scenario, "written_at_step");
    const cJSON *cached = cJSON_GetObjectItem(scenario, "cached_after_step");
    size_t window = number(scenario, "window"), sinks = number(scenario, "sinks");
    must(fl_routed_cache_create(&cache, number(scenario, "budget"), 1, &error), &error);
    for (int step = 0; step < cJSON_GetArraySize(score); step++) {
        long expected = (long)cJSON_GetArrayItem(written, step)->valuedouble, found = -1;
        if ((size_t)step >= window + sinks) {
            size_t leaving = (size_t)step - window;
            double of_leaving = cJSON_GetArrayItem(score, (int)leaving)->valuedouble;
            double scores[16] = {0.0};
            for (size_t slot = 0; slot < cache.used[0]; slot++) {
                scores[slot] = cJSON_GetArrayItem(score, (int)cache.position[slot])->valuedouble;
            }
            fl_route_step decision = by_heap ? fl_routed_cache_offer(&cache, 0, leaving, of_leaving)
                                     : fl_routed_cache_full(&cache, 0)
                                         ? fl_routed_cache_choose(&cache, 0, leaving, scores, of_leaving)
                                         : fl_routed_cache_fill(&cache, 0, leaving);
            if (decision.written != FL_POSITION_NONE) found = (long)decision.written;
        }
        if (found != expected) {
            fail_msg("%s step %d: wrote %ld, expected %ld",
                     cJSON_GetObjectItem(scenario, "name")->valuestring, step, found, expected);
        }
        check_cached(&cache, cJSON_GetArrayItem(cached, step));
    }
    fl_routed_cache_release(&cache);
}

static void test_decisions_from_fixed_scores_send_the_oldest_of_equals(void **state) {
    (void)state;
    cJSON *root = read_routing();
    const cJSON *scenario = NULL;
    size_t count = 0;
    cJSON_ArrayForEach(scenario, cJSON_GetObjectItem(root, "decisions_from_fixed_scores")) {
        check_decisions(scenario, true);
        check_decisions(scenario, false);
        count++;
    }
    assert_true(count >= 4);
    cJSON_Delete(root);
}

static void test_a_heap_of_thousands_decides_like_a_search(void **state) {
    (void)state;
    enum { BUDGET = 3000, TOKENS = 12000 };
    fl_error error;
    fl_routed_cache by_heap, by_search;
    fl_random random;
    double *score = NULL, *slots = NULL;
    fl_random_seed(&random, 4, 0);
    must(FL_ALLOCATE(&score, TOKENS, &error), &error);
    must(FL_ALLOCATE(&slots, BUDGET, &error), &error);
    must(fl_routed_cache_create(&by_heap, BUDGET, 1, &error), &error);
    must(fl_routed_cache_create(&by_search, BUDGET, 1, &error), &error);
    for (size_t token = 0; token < TOKENS; token++) {
        score[token] = (double)fl_random_below(&random, 500); /* many ties */
        if (token % 977 == 5) score[token] = NAN;
        fl_route_step a = fl_routed_cache_offer(&by_heap, 0, token, score[token]), b;
        if (fl_routed_cache_full(&by_search, 0)) {
            for (size_t slot = 0; slot < BUDGET; slot++) slots[slot] = score[by_search.position[slot]];
            b = fl_routed_cache_choose(&by_search, 0, token, slots, score[token]);
        } else {
            b = fl_routed_cache_fill(&by_search, 0, token);
        }
        assert_int_equal(a.action, b.action);
        assert_true(a.written == b.written);
    }
    fl_routed_cache_release(&by_heap);
    fl_routed_cache_release(&by_search);
    fl_memory_free(score);
    fl_memory_free(slots);
}

static void test_random_scores_depend_on_seed_layer_head_and_position(void **state) {
    (void)state;
    double base = fl_route_static_score(FL_ROUTE_RANDOM, 1, 2, 3, 4, 0.0);
    assert_true(base >= 0.0 && base < 1.0);
    assert_true(base == fl_route_static_score(FL_ROUTE_RANDOM, 1, 2, 3, 4, 0.0));
    assert_true(base != fl_route_static_score(FL_ROUTE_RANDOM, 2, 2, 3, 4, 0.0));
    assert_true(base != fl_route_static_score(FL_ROUTE_RANDOM, 1, 3, 3, 4, 0.0));
    assert_true(base != fl_route_static_score(FL_ROUTE_RANDOM, 1, 2, 4, 4, 0.0));
    assert_true(base != fl_route_static_score(FL_ROUTE_RANDOM, 1, 2, 3, 5, 0.0));
}

/* Layer cases: attention mass that does replace cached tokens. */
typedef struct layer_case {
    const char *name, *yaml;
} layer_case;

static void run_layer(const fl_checkpoint *file, const layer_case *chosen, size_t piece) {
    fl_error error;
    char name[64];
    size_t shape[4], kv_shape[4];
    snprintf(name, sizeof name, "%s.q", chosen->name);
    float *query = fl_fixture_floats(file, name, NULL, shape);
    snprintf(name, sizeof name, "%s.k", chosen->name);
    float *key = fl_fixture_floats(file, name, NULL, kv_shape);
    snprintf(name, sizeof name, "%s.v", chosen->name);
    float *value = fl_fixture_floats(file, name, NULL, NULL);
    size_t tokens = shape[0], heads = shape[1], kv_heads = kv_shape[1], head_dim = shape[2];
    fl_attention_shape attention = {heads, kv_heads, head_dim, 1, 1.0f / sqrtf((float)head_dim)};
    fl_document *document = NULL;
    fl_variant *variant = NULL;
    fl_mechanism *mechanism = NULL;
    fl_compute *compute = NULL;
    fl_mixer *mixer = NULL;
    fl_compute_options options = {.threads = 2, .widen_budget_bytes = 0};
    must(fl_document_parse_text(chosen->yaml, strlen(chosen->yaml), chosen->name, &document, &error), &error);
    must(fl_variant_bind(fl_document_root(document), NULL, &variant, &error), &error);
    must(fl_variant_fit(variant, &attention, 1, &error), &error);
    must(fl_mechanism_create(variant, &attention, 1, &mechanism, &error), &error);
    must(fl_compute_create_cpu(&options, &compute, &error), &error);
    must(fl_mixer_create(compute, mechanism, 0, &mixer, &error), &error);
    float *output = NULL;
    int32_t *written = NULL;
    must(FL_ALLOCATE(&output, tokens * heads * head_dim, &error), &error);
    must(FL_ALLOCATE(&written, kv_heads * tokens, &error), &error);
    for (size_t at = 0; at < tokens; at += piece) {
        fl_mixer_call call = {.tokens = at + piece <= tokens ? piece : tokens - at,
                              .query = fl_test_array(query + at * heads * head_dim),
                              .key = fl_test_array(key + at * kv_heads * head_dim),
                              .value = fl_test_array(value + at * kv_heads * head_dim),
                              .output = fl_test_array(output + at * heads * head_dim),
                              .written = piece >= tokens ? written : NULL};
        must(fl_mixer_forward(mixer, &call, &error), &error);
    }
    snprintf(name, sizeof name, "%s.y", chosen->name);
    double *expected = fl_fixture_doubles(file, name, NULL, NULL);
    fl_assert_close(output, expected, tokens * heads * head_dim, 1e-4, name);
    fl_memory_free(expected);
    snprintf(name, sizeof name, "%s.written", chosen->name);
    int32_t *decisions = fl_fixture_integers(file, name, NULL);
    if (piece >= tokens) assert_memory_equal(written, decisions, kv_heads * tokens * sizeof *written);
    fl_memory_free(decisions);
    snprintf(name, sizeof name, "%s.state", chosen->name);
    expected = fl_fixture_doubles(file, name, NULL, NULL);
    size_t value_dim = 0, key_dim = 0;
    const float *final = fl_test_floats(fl_mixer_state(mixer, &value_dim, &key_dim));
    for (size_t head = 0; head < heads; head++) {
        fl_assert_close(final + head * value_dim * key_dim, expected + head * head_dim * key_dim,
                        head_dim * key_dim, 1e-4, name);
    }
    fl_memory_free(expected);
    fl_memory_free(output);
    fl_memory_free(written);
    fl_memory_free(query);
    fl_memory_free(key);
    fl_memory_free(value);
    fl_mixer_destroy(mixer);
    fl_compute_destroy(compute);
    fl_mechanism_destroy(mechanism);
    fl_variant_destroy(variant);
    fl_document_destroy(document);
}

static void test_attention_mass_layers_give_the_packs_outputs_and_decisions(void **state) {
    (void)state;
    static const layer_case cases[] = {
        {"attention_mass_delta", "{rule: delta, beta: {source: constant, value: 0.5}, window: 4, sinks: 2, "
                                 "cache: {budget: 12, route: attention_mass}}"},
        {"attention_mass_shared",
         "{rule: linear, feature_map: elu1, window: 6, sinks: 1, merge: shared_normaliser, "
         "cache: {budget: 8, route: attention_mass}}"},
    };
    const char *path = fl_fixture_or_pack("pipeline/layer_cases.safetensors");
    if (path == NULL) fl_fixture_skip("attention mass layers", "pipeline/layer_cases.safetensors");
    fl_error error;
    fl_checkpoint *file = NULL;
    must(fl_checkpoint_open(path, &file, &error), &error);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run_layer(file, &cases[i], 1000);
        run_layer(file, &cases[i], 7);
        run_layer(file, &cases[i], 1);
    }
    printf("worst: layer cases %.2g\n", fl_worst_reset());
    fl_checkpoint_close(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decisions_from_fixed_scores_send_the_oldest_of_equals),
        cmocka_unit_test(test_a_heap_of_thousands_decides_like_a_search),
        cmocka_unit_test(test_random_scores_depend_on_seed_layer_head_and_position),
        cmocka_unit_test(test_attention_mass_layers_give_the_packs_outputs_and_decisions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
