/* Option tables: typing, ranges, suggestions, defaults, and the resolved configuration. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/config/options.h"
#include "harness/config/text_builder.h"

typedef struct settings {
    bool flag;
    size_t size;
    int64_t integer;
    uint64_t seed;
    double number;
    char *text, *label;
    int route;
    fl_size_list sizes;
    const fl_node *node;
} settings;

static const char *const routes[] = {"self_recall", "key_norm", "recency", NULL};

static const fl_option options[] = {
    {.key = "flag",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(settings, flag),
     .default_text = "true",
     .help = "a switch"},
    {.key = "window",
     .type = FL_OPTION_SIZE,
     .offset = offsetof(settings, size),
     .default_text = "56",
     .maximum = 4096,
     .help = "tokens"},
    {.key = "integer",
     .type = FL_OPTION_INTEGER,
     .offset = offsetof(settings, integer),
     .default_text = "-3",
     .minimum = -10,
     .maximum = 10,
     .help = "a whole number"},
    {.key = "seed", .type = FL_OPTION_SEED, .offset = offsetof(settings, seed), .help = "a seed"},
    {.key = "learning_rate",
     .type = FL_OPTION_NUMBER,
     .offset = offsetof(settings, number),
     .default_text = "2.0e-3",
     .maximum = 1,
     .help = "step size"},
    {.key = "text", .type = FL_OPTION_STRING, .offset = offsetof(settings, text), .help = "any text"},
    {.key = "label",
     .type = FL_OPTION_STRING,
     .offset = offsetof(settings, label),
     .default_text = "none",
     .help = "text with a default"},
    {.key = "route",
     .type = FL_OPTION_CHOICE,
     .offset = offsetof(settings, route),
     .default_text = "recency",
     .choices = routes,
     .help = "what is kept"},
    {.key = "layers",
     .type = FL_OPTION_SIZES,
     .offset = offsetof(settings, sizes),
     .default_text = "[1, 2]",
     .maximum = 63,
     .help = "layers"},
    {.key = "node", .type = FL_OPTION_NODE, .offset = offsetof(settings, node), .help = "anything"},
};
enum { OPTIONS = sizeof options / sizeof options[0] };

static fl_status bind(const char *text, settings *out, fl_resolved *resolved, fl_document **document,
                      fl_error *error) {
    *document = NULL;
    FL_TRY(fl_document_parse_text(text, strlen(text), "a.yaml", document, error));
    fl_option_table table = {options, OPTIONS, out};
    return fl_options_bind(fl_document_root(*document), &table, 1, "variant", resolved, error);
}

static void assert_bound(const char *text, settings *out, fl_document **document) {
    fl_error error = {0};
    if (bind(text, out, NULL, document, &error) != FL_OK) fail_msg("%s: %s", text, error.message);
}

static void assert_refused(const char *text, const char *message) {
    settings s;
    memset(&s, 0xa5, sizeof s);
    fl_document *document = NULL;
    fl_error error = {0};
    if (bind(text, &s, NULL, &document, &error) != FL_ERROR_ARGUMENT)
        fail_msg("accepted or misreported: %s", text);
    if (strncmp(error.message, message, strlen(message)) != 0)
        fail_msg("expected '%s', got '%s'", message, error.message);
    assert_null(s.text);
    assert_null(s.label);
    assert_null(s.sizes.values);
    fl_document_destroy(document);
}

static void test_defaults_fill_what_is_not_written(void **state) {
    (void)state;
    static const char *const empties[] = {"", "{}", "flag:\nwindow: ~\ntext: null\nnode:\n"};
    for (size_t i = 0; i < 3; i++) {
        settings s;
        fl_document *document = NULL;
        assert_bound(empties[i], &s, &document);
        assert_true(s.flag);
        assert_int_equal(s.size, 56);
        assert_int_equal(s.integer, -3);
        assert_true(s.number == 2.0e-3);
        assert_null(s.text);
        assert_string_equal(s.label, "none");
        assert_int_equal(s.route, 2);
        assert_int_equal(s.sizes.count, 2);
        assert_int_equal(s.sizes.values[1], 2);
        assert_null(s.node);
        fl_options_release(options, OPTIONS, &s);
        assert_null(s.label);
        fl_document_destroy(document);
    }
}

static void test_values_are_typed_by_the_table(void **state) {
    (void)state;
    settings s;
    fl_document *document = NULL;
    assert_bound(
        "flag: false\nwindow: 0\ninteger: -10\nseed: 18446744073709551615\nlearning_rate: 1e-3\ntext: 010\n"
        "label: no\nroute: 'key_norm'\nlayers: []\nnode: {a: 1}\n",
        &s, &document);
    assert_false(s.flag);
    assert_int_equal(s.size, 0);
    assert_int_equal(s.integer, -10);
    assert_true(s.seed == UINT64_MAX);
    assert_true(s.number == 0.001);
    assert_string_equal(s.text, "010");
    assert_string_equal(s.label, "no");
    assert_int_equal(s.route, 1);
    assert_int_equal(s.sizes.count, 0);
    assert_non_null(fl_node_get(s.node, "a"));
    fl_options_release(options, OPTIONS, &s);
    fl_document_destroy(document);
}

static void test_every_form_of_a_number_is_read(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double value;
    } numbers[] = {{"learning_rate: 1e-3", 1e-3},  {"learning_rate: 1E-3", 1e-3},
                   {"learning_rate: .5", 0.5},     {"learning_rate: 1.", 1.0},
                   {"learning_rate: +0.25", 0.25}, {"learning_rate: 2.0e-03", 2e-3},
                   {"learning_rate: 0", 0.0},      {"learning_rate: 1e-300", 1e-300}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        settings s;
        fl_document *document = NULL;
        assert_bound(numbers[i].text, &s, &document);
        assert_true(s.number == numbers[i].value);
        fl_options_release(options, OPTIONS, &s);
        fl_document_destroy(document);
    }
}

static void test_the_whole_scalar_must_be_the_number(void **state) {
    (void)state;
    assert_refused("learning_rate: 1e-3x",
                   "a.yaml:1:16: learning_rate: expected a number, but '1e-3x' is not a number");
    assert_refused("learning_rate: 1 2", "a.yaml:1:16: ");
    assert_refused("learning_rate: 1e", "a.yaml:1:16: ");
    assert_refused("learning_rate: .", "a.yaml:1:16: ");
    assert_refused("learning_rate: 0x1", "a.yaml:1:16: ");
    assert_refused(
        "learning_rate: 1_0",
        "a.yaml:1:16: learning_rate: expected a number, but '1_0' is not a number (no underscores");
    assert_refused("learning_rate: 010",
                   "a.yaml:1:16: learning_rate: expected a number, but '010' has a leading zero");
    assert_refused("learning_rate: 00.5", "a.yaml:1:16: ");
    assert_refused("learning_rate: .nan",
                   "a.yaml:1:16: learning_rate: expected a number, but '.nan' is not finite");
    assert_refused("learning_rate: -.inf", "a.yaml:1:16: ");
    assert_refused("learning_rate: inf", "a.yaml:1:16: ");
    assert_refused("learning_rate: 1e999",
                   "a.yaml:1:16: learning_rate: expected a number, but '1e999' is too large");
    assert_refused("learning_rate: 1e-999",
                   "a.yaml:1:16: learning_rate: expected a number, but '1e-999' is too small");
    assert_refused("learning_rate: '0.5'",
                   "a.yaml:1:16: learning_rate: expected a number, but \"0.5\" is text in quotes");
    assert_refused("learning_rate: [1]", "a.yaml:1:16: learning_rate: expected a number, found a list");
}

static void test_whole_numbers_are_strict(void **state) {
    (void)state;
    assert_refused("window: 010",
                   "a.yaml:1:9: window: expected a whole number, 0 or more, but '010' has a leading zero");
    assert_refused("window: -1",
                   "a.yaml:1:9: window: expected a whole number, 0 or more, but '-1' has a sign");
    assert_refused("window: 1e3", "a.yaml:1:9: ");
    assert_refused("window: 5.0", "a.yaml:1:9: ");
    assert_refused(
        "window: 18446744073709551616",
        "a.yaml:1:9: window: expected a whole number, 0 or more, but '18446744073709551616' does not fit");
    assert_refused("window: wide", "a.yaml:1:9: ");
    assert_refused("seed: 18446744073709551616", "a.yaml:1:7: ");
    assert_refused("seed: -1", "a.yaml:1:7: ");
    assert_refused("integer: 9223372036854775808", "a.yaml:1:10: ");
    assert_refused("layers: [1, x]", "a.yaml:1:13: expected a whole number");
    assert_refused("layers: 3", "a.yaml:1:9: layers: expected a list of whole numbers, found '3'");
}

static void test_yaml_1_1_booleans_are_not_booleans(void **state) {
    (void)state;
    static const char *const words[] = {"no", "yes", "on", "off", "y", "n", "1", "0", "'true'", "tRUE"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        fl_text_builder text = {0};
        fl_text_builder_format(&text, NULL, "flag: %s", words[i]);
        assert_refused(text.text, "a.yaml:1:7: flag: expected true or false, ");
        fl_text_builder_release(&text);
    }
}

static void test_ranges_are_inclusive_and_named(void **state) {
    (void)state;
    settings s;
    fl_document *document = NULL;
    assert_bound("{window: 4096, integer: 10, learning_rate: 1, layers: [63]}", &s, &document);
    fl_options_release(options, OPTIONS, &s);
    fl_document_destroy(document);
    assert_refused("window: 4097", "a.yaml:1:9: window: 4097 is above the maximum 4096");
    assert_refused("integer: -11", "a.yaml:1:10: integer: -11 is below the minimum -10");
    assert_refused("learning_rate: 1.0001", "a.yaml:1:16: learning_rate: 1.0001 is above the maximum 1");
    assert_refused("layers: [64]", "a.yaml:1:10: value: 64 is above the maximum 63");
}

static void test_unknown_key_names_its_line_and_the_nearest_key(void **state) {
    (void)state;
    assert_refused("flag: true\nwindwo: 3\n",
                   "a.yaml:2:1: unknown key 'variant.windwo'; did you mean 'window'?");
    assert_refused("Learning-Rate: 3\n",
                   "a.yaml:1:1: unknown key 'variant.Learning-Rate'; did you mean 'learning_rate'?");
    assert_refused("zzzzzz: 3\n",
                   "a.yaml:1:1: unknown key 'variant.zzzzzz'; known are: flag, window, integer, seed, ");
}

static void test_unknown_choice_names_the_choices(void **state) {
    (void)state;
    assert_refused("route: recensy",
                   "a.yaml:1:8: route: expected one of self_recall, key_norm, recency, but 'recensy' is "
                   "none of them; did you mean 'recency'?");
    assert_refused("route: [recency]",
                   "a.yaml:1:8: route: expected one of self_recall, key_norm, recency, found a list");
}

static void test_a_failure_releases_what_was_bound_before(void **state) {
    (void)state;
    assert_refused("{text: hello, layers: [1, 2, 3], label: x, learning_rate: bad}", "a.yaml:1:59: ");
}

static void test_a_list_where_a_mapping_belongs_is_refused(void **state) {
    (void)state;
    assert_refused("[1, 2]", "a.yaml:1:1: expected a mapping (key: value), found a list");
}

static void test_required_key_is_asked_for_with_its_help(void **state) {
    (void)state;
    static const fl_option required[] = {
        {.key = "path", .type = FL_OPTION_STRING, .offset = 0, .default_text = "!", .help = "a model file"}};
    static const char *const texts[] = {"{}", "{path: }"};
    for (size_t i = 0; i < 2; i++) {
        char *path = NULL;
        fl_document *document = NULL;
        fl_error error = {0};
        assert_int_equal(fl_document_parse_text(texts[i], strlen(texts[i]), "a.yaml", &document, NULL),
                         FL_OK);
        fl_option_table table = {required, 1, &path};
        assert_int_equal(fl_options_bind(fl_document_root(document), &table, 1, "model", NULL, &error),
                         FL_ERROR_ARGUMENT);
        assert_non_null(strstr(error.message, "model.path is missing: a model file"));
        assert_non_null(strstr(error.message, "a.yaml:1:"));
        fl_document_destroy(document);
    }
}

static void test_two_tables_share_one_mapping(void **state) {
    (void)state;
    struct {
        size_t depth;
    } other;
    settings s;
    static const fl_option more[] = {{.key = "depth",
                                      .type = FL_OPTION_SIZE,
                                      .offset = 0,
                                      .default_text = "4",
                                      .minimum = 1,
                                      .help = "depth without a maximum"}};
    fl_option_table tables[] = {{options, OPTIONS, &s}, {more, 1, &other}};
    fl_document *document = NULL;
    const char *text = "{depth: 7000, window: 3}";
    assert_int_equal(fl_document_parse_text(text, strlen(text), "a.yaml", &document, NULL), FL_OK);
    assert_int_equal(fl_options_bind(fl_document_root(document), tables, 2, "", NULL, NULL), FL_OK);
    assert_int_equal(other.depth, 7000);
    assert_int_equal(s.size, 3);
    fl_options_release(options, OPTIONS, &s);
    fl_document_destroy(document);
}

static void test_resolved_has_every_key_with_its_default_mark(void **state) {
    (void)state;
    settings s;
    fl_resolved *resolved = NULL;
    fl_document *document = NULL;
    assert_int_equal(fl_resolved_create(&resolved, NULL), FL_OK);
    assert_int_equal(
        bind("{learning_rate: 1.0e-3, label: 'true', layers: [3]}", &s, resolved, &document, NULL), FL_OK);
    char *text = NULL;
    assert_int_equal(fl_resolved_text(resolved, NULL, &text, NULL), FL_OK);
    assert_string_equal(
        text,
        "variant:\n  flag: true\n  integer: -3\n  label: \"true\"\n  layers: [3]\n  learning_rate: 0.001\n"
        "  route: recency\n  seed: 0\n  text: null\n  window: 56\n");
    for (size_t i = 0; i < fl_resolved_count(resolved); i++) {
        const char *key = NULL;
        bool is_default = false;
        fl_resolved_at(resolved, i, &key, NULL, &is_default);
        bool given = strstr("variant.learning_rate variant.label variant.layers", key) != NULL;
        assert_int_equal(is_default, !given);
    }
    assert_string_equal(fl_resolved_find(resolved, "variant.window"), "56");
    assert_null(fl_resolved_find(resolved, "variant"));
    fl_memory_free(text);
    fl_options_release(options, OPTIONS, &s);
    fl_resolved_destroy(resolved);
    fl_document_destroy(document);
}

static void test_resolved_text_nests_lists_and_leaves_out_prefixes(void **state) {
    (void)state;
    fl_resolved *resolved = NULL;
    assert_int_equal(fl_resolved_create(&resolved, NULL), FL_OK);
    static const char *const pairs[][2] = {
        {"tasks.10.name", "k"}, {"tasks.2.name", "c"}, {"tasks.0.name", "a"}, {"tasks.1.shots", "5"},
        {"model.path", "x"},    {"a-b", "1"},          {"a.b", "2"},          {"modelled", "3"}};
    for (size_t i = 0; i < 8; i++) fl_resolved_add(resolved, pairs[i][0], pairs[i][1], false, NULL);
    for (int i = 3; i < 10; i++) {
        char key[32];
        snprintf(key, sizeof key, "tasks.%d", i);
        fl_resolved_add(resolved, key, "null", false, NULL);
    }
    static const char *const excluded[] = {"model", NULL};
    char *text = NULL;
    assert_int_equal(fl_resolved_text(resolved, excluded, &text, NULL), FL_OK);
    assert_string_equal(
        text,
        "a:\n  b: 2\na-b: 1\nmodelled: 3\ntasks:\n  -\n    name: a\n  -\n    shots: 5\n  -\n    name: c\n"
        "  - null\n  - null\n  - null\n  - null\n  - null\n  - null\n  - null\n  -\n    name: k\n");
    fl_document *document = NULL;
    assert_int_equal(fl_document_parse_text(text, strlen(text), "again", &document, NULL), FL_OK);
    assert_int_equal(fl_node_find(fl_document_root(document), "tasks")->count, 11);
    fl_document_destroy(document);
    fl_memory_free(text);
    fl_resolved_destroy(resolved);
}

static void test_the_latest_value_of_a_key_wins(void **state) {
    (void)state;
    fl_resolved *resolved = NULL;
    assert_int_equal(fl_resolved_create(&resolved, NULL), FL_OK);
    fl_resolved_add(resolved, "a", "1", true, NULL);
    fl_resolved_add(resolved, "a", "2", false, NULL);
    assert_string_equal(fl_resolved_find(resolved, "a"), "2");
    fl_resolved_add(resolved, "a.b", "3", false, NULL);
    assert_null(fl_resolved_find(resolved, "a"));
    fl_resolved_add(resolved, "a", "4", false, NULL);
    assert_int_equal(fl_resolved_count(resolved), 1);
    assert_int_equal(fl_resolved_add(resolved, "", "4", false, NULL), FL_ERROR_ARGUMENT);
    fl_resolved_destroy(resolved);
}

static void test_suggestions_are_near_or_none(void **state) {
    (void)state;
    static const char *const names[] = {"variant", "train", "tasks", "text"};
    assert_string_equal(fl_suggest("vairant", names, 4), "variant");
    assert_string_equal(fl_suggest("Train", names, 4), "train");
    assert_string_equal(fl_suggest("test", names, 4), "text");
    assert_null(fl_suggest("zebra", names, 4));
    assert_null(fl_suggest("", names, 4));
    char text[200];
    memset(text, 'a', 199);
    text[199] = '\0';
    assert_null(fl_suggest(text, names, 4));
}

static void test_single_values_are_read_for_other_floors(void **state) {
    (void)state;
    fl_document *document = NULL;
    const char *text = "{a: 5, b: 0.5, c: true, d: key_norm}";
    assert_int_equal(fl_document_parse_text(text, strlen(text), "a.yaml", &document, NULL), FL_OK);
    const fl_node *root = fl_document_root(document);
    size_t size = 0;
    double number = 0;
    bool flag = false;
    int route = 0;
    fl_error error;
    assert_int_equal(fl_node_to_size(fl_node_get(root, "a"), 1, 5, &size, NULL), FL_OK);
    assert_int_equal(fl_node_to_size(fl_node_get(root, "a"), 6, 9, &size, &error), FL_ERROR_ARGUMENT);
    assert_string_equal(error.message, "a.yaml:1:5: a: 5 is not between 6 and 9");
    assert_int_equal(fl_node_to_number(fl_node_get(root, "b"), 0, 1, &number, NULL), FL_OK);
    assert_int_equal(fl_node_to_number(fl_node_get(root, "b"), 0, 0.25, &number, NULL), FL_ERROR_ARGUMENT);
    assert_int_equal(fl_node_to_bool(fl_node_get(root, "c"), &flag, NULL), FL_OK);
    assert_int_equal(fl_node_to_choice(fl_node_get(root, "d"), routes, &route, NULL), FL_OK);
    assert_true(size == 5 && number == 0.5 && flag && route == 1);
    fl_document_destroy(document);
}

static void test_no_allocation_failure_is_lost(void **state) {
    (void)state;
    bool finished = false;
    for (size_t n = 1; !finished && n < 1000; n++) {
        settings s;
        fl_resolved *resolved = NULL;
        fl_document *document = NULL;
        char *text = NULL;
        memset(&s, 0, sizeof s);
        fl_memory_fail_at(n);
        fl_status status = fl_resolved_create(&resolved, NULL);
        if (status == FL_OK) status = bind("{text: hello, layers: [1, 2]}", &s, resolved, &document, NULL);
        if (status == FL_OK) status = fl_resolved_text(resolved, NULL, &text, NULL);
        fl_memory_fail_at(0);
        finished = status == FL_OK;
        if (!finished) assert_int_equal(status, FL_ERROR_MEMORY);
        fl_memory_free(text);
        fl_options_release(options, OPTIONS, &s);
        fl_resolved_destroy(resolved);
        fl_document_destroy(document);
    }
    assert_true(finished);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_fill_what_is_not_written),
        cmocka_unit_test(test_values_are_typed_by_the_table),
        cmocka_unit_test(test_every_form_of_a_number_is_read),
        cmocka_unit_test(test_the_whole_scalar_must_be_the_number),
        cmocka_unit_test(test_whole_numbers_are_strict),
        cmocka_unit_test(test_yaml_1_1_booleans_are_not_booleans),
        cmocka_unit_test(test_ranges_are_inclusive_and_named),
        cmocka_unit_test(test_unknown_key_names_its_line_and_the_nearest_key),
        cmocka_unit_test(test_unknown_choice_names_the_choices),
        cmocka_unit_test(test_a_failure_releases_what_was_bound_before),
        cmocka_unit_test(test_a_list_where_a_mapping_belongs_is_refused),
        cmocka_unit_test(test_required_key_is_asked_for_with_its_help),
        cmocka_unit_test(test_two_tables_share_one_mapping),
        cmocka_unit_test(test_resolved_has_every_key_with_its_default_mark),
        cmocka_unit_test(test_resolved_text_nests_lists_and_leaves_out_prefixes),
        cmocka_unit_test(test_the_latest_value_of_a_key_wins),
        cmocka_unit_test(test_suggestions_are_near_or_none),
        cmocka_unit_test(test_single_values_are_read_for_other_floors),
        cmocka_unit_test(test_no_allocation_failure_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
