/* The page of the memory lab, and the numbers it is held against. tests/full/lab_page.sh opens it in a
 * browser. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"

/* `frostline lab --page|--exact FILE more`, the file in the test's folder, exits with `code` and says `text`.
 */
static void expect_lab(int code, const char *flag, const char *file, const char *more, const char *text) {
    char *output = NULL;
    int got = fl_frostline(&output, "lab --%s '%s' %s", flag, fl_inside(file), more);
    if (got != code || strstr(output, text) == NULL) fail_msg("exit code %d, and says: %s", got, output);
    fl_memory_free(output);
}

static void test_page_in_docs_is_what_the_program_writes(void **state) {
    (void)state;
    expect_lab(0, "page", "lab.html", "", "");
    size_t bytes = 0, kept_bytes = 0;
    char *page = fl_read_file(fl_inside("lab.html"), &bytes);
    char *kept = fl_read_file("docs/lab.html", &kept_bytes);
    if (bytes != kept_bytes || memcmp(page, kept, bytes) != 0)
        fail_msg("docs/lab.html is not what `frostline lab --page` writes; make it anew: "
                 "build/release/frostline lab --page docs/lab.html");
    assert_true(bytes < 300000);
    assert_null(strstr(page, "src="));
    assert_null(strstr(page, "@import"));
    assert_null(strstr(page, "https://"));
    fl_memory_free(page);
    fl_memory_free(kept);
}

static double number(const cJSON *object, const char *rule, const char *key) {
    const cJSON *value = cJSON_GetObjectItem(cJSON_GetObjectItem(object, rule), key);
    assert_true(cJSON_IsNumber(value));
    return value->valuedouble;
}

static void test_exact_numbers_show_what_the_course_says(void **state) {
    (void)state;
    expect_lab(0, "exact", "exact.json", "--pairs 4,50 --trials 5", "");
    char *text = fl_read_file(fl_inside("exact.json"), NULL);
    cJSON *root = cJSON_Parse(text);
    assert_non_null(root);
    const cJSON *checks = cJSON_GetObjectItem(root, "checks"), *few = cJSON_GetArrayItem(checks, 0),
                *many = cJSON_GetArrayItem(checks, 1);
    assert_int_equal(cJSON_GetArraySize(checks), 2);
    assert_true(number(many, "regrouped", "difference") < 1e-13);
    assert_true(number(many, "regrouped", "length") > 0.5);
    const cJSON *overwrite = cJSON_GetObjectItem(few, "overwrite");
    assert_true(number(overwrite, "linear", "to_blend") < number(overwrite, "linear", "to_newest"));
    assert_true(number(overwrite, "delta", "to_newest") < number(overwrite, "delta", "to_old") / 2);
    assert_true(cJSON_IsNull(
        cJSON_GetObjectItem(cJSON_GetObjectItem(cJSON_GetObjectItem(few, "capacity"), "delta"), "to_old")));
    cJSON_Delete(root);
    fl_memory_free(text);
}

static void test_what_is_no_share_is_refused(void **state) {
    (void)state;
    expect_lab(2, "exact", "none.json", "--gate 1.5", "--gate and --beta");
    expect_lab(2, "exact", "none.json", "--overlap 1", "--overlap");
    expect_lab(1, "page", "no/such/lab.html", "", "lab.html");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page_in_docs_is_what_the_program_writes),
        cmocka_unit_test(test_exact_numbers_show_what_the_course_says),
        cmocka_unit_test(test_what_is_no_share_is_refused),
    };
    return cmocka_run_group_tests(tests, fl_test_folder_make, fl_test_folder_remove);
}
