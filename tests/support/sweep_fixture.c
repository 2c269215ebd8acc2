#include "tests/support/sweep_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/config/text_builder.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"

enum { PATH_BYTES = 1024, COMMAND_BYTES = 4096 };

static const char *folder;
static char runs[PATH_BYTES];
static char *printed; /* what the program said */

const char *fl_sweep_fixture_folder(void) {
    return folder;
}

static void write_text(const char *name, const char *text) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    fl_write_file(path, text, strlen(text));
}

static void write_questions(const char *name, int count, int seed) {
    static const char *const words[] = {"stone", "river", "cloud", "bread", "paper", "glass", "horse"};
    fl_text_builder text = {0};
    for (int i = 0; i < count; i++) {
        int answer = (i * 5 + seed) % 4;
        assert_int_equal(fl_text_builder_format(
                             &text, NULL,
                             "{\"question\": \"Which word is number %d, given %s and %s?\", \"choices\": "
                             "[\"%s\", \"%s\", \"the %s\", \"%s\"], \"answer\": %d, \"subject\": \"%s\"}\n",
                             i, words[i % 7], words[(i + seed) % 7], words[(i + 1) % 7], words[(i + 2) % 7],
                             words[(i + 3) % 7], words[(i + 4) % 7], answer, i % 2 == 0 ? "even" : "odd"),
                         FL_OK);
    }
    write_text(name, text.text);
    fl_text_builder_release(&text);
}

static void write_ids(const char *name, int sequences, int length, int step) {
    fl_text_builder text = {0};
    for (int s = 0; s < sequences; s++) {
        for (int i = 0; i < length; i++) {
            const char *lead = i > 0 ? ", " : s > 0 ? "], [" : "[[";
            assert_int_equal(
                fl_text_builder_format(&text, NULL, "%s%d", lead, (i * i % 61 * step + s * 29 + 3) % 320),
                FL_OK);
        }
    }
    assert_int_equal(fl_text_builder_add(&text, "]]", NULL), FL_OK);
    write_text(name, text.text);
    fl_text_builder_release(&text);
}

static void write_config(void) {
    fl_text_builder text = {0};
    assert_int_equal(
        fl_text_builder_format(
            &text, NULL,
            "name: tiny\nmodel: {path: %s/model}\ntext: {ids: %s/ids.json}\nvariant: {window: 8, sinks: 2}\n"
            "train: {objective: next_token, steps: 6, warmup_steps: 2, ids: %s/train.json, order: "
            "sequential,\n"
            "        evaluate_every: 3}\n"
            "tasks:\n"
            "  - {name: multiple_choice, path: %s/questions.jsonl, label: words}\n"
            "  - {name: multiple_choice_letters, path: %s/letters.jsonl, label: letters}\n"
            "sweep:\n  list:\n"
            "    - {variant.rule: softmax}\n    - {variant.rule: none}\n    - {variant.rule: gla}\n"
            "    - {variant.rule: kda}\n    - {variant.rule: kda, variant.softmax_layers: [1]}\n",
            folder, folder, folder, folder, folder),
        FL_OK);
    write_text("sweep.yaml", text.text);
    fl_text_builder_release(&text);
}

const char *fl_sweep_fixture(const char *test) {
    if (printed != NULL) return runs;
    char command[COMMAND_BYTES];
    folder = fl_temporary_directory();
    fl_write_byte_model(test, folder);
    write_questions("questions.jsonl", 8, 3);
    write_questions("letters.jsonl", 6, 1);
    write_ids("ids.json", 2, 40, 7);
    write_ids("train.json", 3, 32, 11);
    write_config();
    snprintf(runs, sizeof runs, "%s/runs", folder);
    snprintf(command, sizeof command, "%s run %s/sweep.yaml --out %s", fl_program_path(), folder, runs);
    int code = fl_run_command(command, &printed);
    if (code != 0) fail_msg("%s", printed);
    return runs;
}

const char *fl_sweep_fixture_run(const char *text) {
    static char path[PATH_BYTES];
    for (const char *line = printed; (line = strstr(line, "done: ")) != NULL; line++) {
        const char *open = strchr(line, '('), *end = strchr(line, '\n');
        const char *found = strstr(line, text);
        if (open == NULL || found == NULL || found > open || (end != NULL && open > end)) continue;
        snprintf(path, sizeof path, "%.*s", (int)strcspn(open + 1, ")"), open + 1);
        return path;
    }
    fail_msg("no run \"%s\" in:\n%s", text, printed);
    return NULL;
}

int fl_sweep_fixture_remove(void **state) {
    (void)state;
    if (folder != NULL) fl_temporary_remove(folder);
    fl_memory_free(printed);
    folder = NULL;
    printed = NULL;
    return 0;
}

const char *fl_python_with(const char *test, const char *modules) {
    const char *python = getenv("FROSTLINE_PYTHON");
    char command[COMMAND_BYTES];
    if (python == NULL || python[0] == '\0') python = "python3";
    snprintf(command, sizeof command, "%s -c 'import %s'", python, modules);
    if (fl_run_command(command, NULL) != 0) fl_fixture_skip(test, modules);
    return python;
}
