/* The program itself, from outside: exit codes, messages, files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "attn_variants/attn_variant.h"
#include "harness/base/hash.h"
#include "harness/base/memory.h"
#include "harness/model/checkpoint.h"
#include "harness/store/run_file.h"
#include "tests/support/compare.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"

enum { TEXT_BYTES = 8192, PATH_BYTES = 1024 };

/* Two sequences of 40 and 24 ids below 320. */
static void write_ids(const char *path) {
    char text[TEXT_BYTES] = "[[1";
    size_t used = strlen(text);
    for (int i = 1; i < 40; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, ", %d", (i * 37 + 5) % 320);
    used += (size_t)snprintf(text + used, sizeof text - used, "], [1");
    for (int i = 1; i < 24; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, ", %d", (i * 53 + 11) % 320);
    snprintf(text + used, sizeof text - used, "]]");
    fl_write_file(path, text, strlen(text));
}

/* A config with three rules over the tiny model; returns its path. */
static const char *write_sweep(const char *model, const char *rules) {
    write_ids(fl_inside("ids.json"));
    const char *path = fl_inside("sweep.yaml");
    fl_write_text(path,
                  "name: tiny\nmodel: {path: %s}\ntext: {ids: %s}\nvariant: {window: 8, sinks: 2}\n"
                  "sweep:\n  grid:\n    variant.rule: [%s]\n",
                  model, fl_inside("ids.json"), rules);
    return path;
}

/* How many files of a folder end in `suffix`. */
static size_t count_files(const char *path, const char *suffix) {
    DIR *directory = opendir(path);
    if (directory == NULL) return 0;
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        size_t length = strlen(entry->d_name), tail = strlen(suffix);
        count += length >= tail && strcmp(entry->d_name + length - tail, suffix) == 0;
    }
    closedir(directory);
    return count;
}

static void assert_nothing_half_written(void) {
    char *listing = NULL;
    char command[PATH_BYTES + 64];
    snprintf(command, sizeof command, "find %s -name '*.h5*' -o -name '*.part'", fl_test_folder());
    fl_run_command(command, &listing);
    if (listing[0] != '\0') fail_msg("left behind: %s", listing);
    fl_memory_free(listing);
}

/* The one run file of a sweep whose output has `label` and "done" in one line. */
static const char *run_file_of(const char *output, const char *label) {
    static char path[PATH_BYTES];
    char wanted[PATH_BYTES];
    snprintf(wanted, sizeof wanted, "done: %s (", label);
    const char *line = strstr(output, wanted);
    if (line == NULL) fail_msg("no \"%s\" in:\n%s", wanted, output);
    line += strlen(wanted);
    snprintf(path, sizeof path, "%.*s", (int)strcspn(line, ")"), line);
    return path;
}

static void test_usage_errors_exit_with_2(void **state) {
    (void)state;
    fl_expect(2, "", "usage: frostline COMMAND", NULL);
    fl_expect(2, "rum", "unknown command \"rum\"", "did you mean run?", NULL);
    fl_expect(2, "run", "an argument is missing", "usage: frostline run CONFIG", NULL);
    fl_expect(2, "run a.yaml --treads 3", "unknown flag --treads; did you mean --threads?", NULL);
    fl_expect(2, "run a.yaml --threads many", "--threads needs a number, not \"many\"", NULL);
    fl_expect(2, "run a.yaml --out", "--out needs a value", NULL);
    fl_expect(2, "forward model --out x.h5", "exactly one of --ids and --text", NULL);
    fl_expect(2, "forward model --ids x.json", "--out is needed", NULL);
    fl_expect(2, "data chek x", "check|list is check or list, not \"chek\"", NULL);
    fl_expect(2, "plot x --kind nmze", "scores, hybrid or bytes, not \"nmze\"", NULL);
    fl_expect(2, "inspect a b", "one argument too many: \"b\"", NULL);
}

static void test_vector_kernels_are_chosen_by_the_environment(void **state) {
    (void)state;
    setenv("FROSTLINE_KERNELS", "baseline", 1);
    fl_expect(0, "--version", "vector kernels baseline", NULL);
    setenv("FROSTLINE_KERNELS", "sse9", 1);
    fl_expect(2, "--version", "FROSTLINE_KERNELS: unknown vector kernels \"sse9\"",
              "avx512, avx2 and baseline", NULL);
    unsetenv("FROSTLINE_KERNELS");
}

static void test_help_is_there_for_every_command(void **state) {
    (void)state;
    char *all = NULL, *output = NULL;
    assert_int_equal(fl_frostline(&all, "--help"), 0);
    size_t count = 0;
    for (const char *line = all; (line = strstr(line, "\n  ")) != NULL; line += 3) {
        if (line[3] == ' ') continue; /* a summary goes on */
        count++;
        char name[32], usage[64], example[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(line + 3, " "), line + 3);
        snprintf(usage, sizeof usage, "usage: frostline %s", name);
        snprintf(example, sizeof example, "frostline %s", name);
        assert_int_equal(fl_frostline(&output, "%s --help", name), 0);
        const char *examples = strstr(output, "\nexamples:\n");
        if (strncmp(output, usage, strlen(usage)) != 0 || examples == NULL ||
            strstr(examples, example) == NULL)
            fail_msg("%s --help has no usage or no example:\n%s", name, output);
        fl_memory_free(output);
    }
    fl_memory_free(all);
    assert_in_range(count, 14, 40);
    fl_expect(0, "--version", "frostline", "ffp-contract=off", NULL);
    fl_expect(2, "help rum", "did you mean run?", NULL);
}

/* No line of prose or of a list is wider than a terminal of 80 columns; commands to copy may be. */
static void test_help_fits_a_terminal(void **state) {
    (void)state;
    char *output = NULL;
    assert_int_equal(fl_shell(&output, "\"$FROSTLINE\" --help; \"$FROSTLINE\" run --help"), 0);
    for (char *line = strtok(output, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strncmp(line, "  frostline", 11) != 0 && strlen(line) > 80) fail_msg("too wide: %s", line);
    }
    fl_memory_free(output);
}

static void test_variants_lists_every_rule_and_suggests_near_names(void **state) {
    (void)state;
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        char arguments[64];
        fl_expect(0, "variants", fl_rule_registry[i]->name, fl_rule_registry[i]->summary, NULL);
        snprintf(arguments, sizeof arguments, "variants %s", fl_rule_registry[i]->name);
        fl_expect(0, arguments, fl_rule_registry[i]->equation, fl_rule_registry[i]->source, NULL);
    }
    fl_expect(1, "variants kdaa", "there is no rule \"kdaa\"; did you mean kda?", NULL);
}

/* The training sweep's parameters of one rule, from run files in out/. */
static fl_hash fitted_parameters(const char *config, const char *rules, const char *out) {
    char *output = NULL, path[PATH_BYTES];
    int code = fl_frostline(&output, "run %s 'sweep.grid.variant.rule=[%s]' --out %s --threads 2", config,
                            rules, fl_inside(out));
    if (code != 0) fail_msg("exit %d:\n%s", code, output);
    assert_non_null(strstr(output, "calibrated"));
    const char *run = run_file_of(output, "kda");
    snprintf(path, sizeof path, "%.*s.mechanism.safetensors", (int)(strlen(run) - strlen(".h5")), run);
    fl_memory_free(output);
    size_t bytes = 0;
    char *data = fl_read_file(path, &bytes);
    fl_hash hash = fl_hash_bytes(data, bytes);
    fl_memory_free(data);
    return hash;
}

static void test_cells_calibrated_together_are_those_calibrated_alone(void **state) {
    (void)state;
    const char *model = fl_reference_model(__func__);
    write_ids(fl_inside("ids.json"));
    const char *config = fl_inside("train.yaml");
    fl_write_text(config,
                  "name: tiny\nmodel: {path: %s}\nvariant: {window: 8, sinks: 2}\n"
                  "train: {ids: %s, objective: layer_mse, steps: 5, warmup_steps: 1}\n"
                  "sweep:\n  grid:\n    variant.rule: [gla, kda]\n",
                  model, fl_inside("ids.json"));
    fl_hash together = fitted_parameters(config, "gla, none, kda, delta", "together");
    fl_hash alone = fitted_parameters(config, "kda", "alone");
    assert_string_equal(together.text, alone.text);
    assert_int_equal(count_files(fl_inside("together"), ".h5"), 4);
    char arguments[TEXT_BYTES];
    snprintf(arguments, sizeof arguments,
             "run %s 'variant.lora={rank: 2}' train.objective=next_token --out %s --threads 2", config,
             fl_inside("adapted"));
    fl_expect(0, arguments, "adapted", NULL);
    snprintf(arguments, sizeof arguments, "run %s 'variant.lora={rank: 2}' --out %s", config,
             fl_inside("refused"));
    fl_expect(1, arguments, "layer_mse does not train variant.lora", NULL);
}

/* One entry of a dataset with one axis: the first, or the last. */
static double entry_of(const char *run, const char *dataset, bool last) {
    fl_run_reader *reader = NULL;
    double *values = NULL;
    size_t rank = 0, shape[4];
    fl_error error = {0};
    if (fl_run_reader_open(run, &reader, &error) != FL_OK) fail_msg("%s", error.message);
    assert_int_equal(fl_run_reader_doubles(reader, dataset, &values, &rank, shape, NULL), FL_OK);
    double value = values[last ? shape[0] - 1 : 0];
    fl_memory_free(values);
    fl_run_reader_close(reader);
    return value;
}

static void test_a_training_goes_on_from_a_calibrated_mechanism(void **state) {
    (void)state;
    const char *model = fl_reference_model(__func__);
    write_ids(fl_inside("ids.json"));
    const char *config = fl_inside("chain.yaml");
    fl_write_text(config,
                  "name: tiny\nmodel: {path: %s}\nvariant: {rule: gla, window: 8, sinks: 2}\n"
                  "train: {ids: %s, steps: 6, warmup_steps: 0, learning_rate: 1.0e-2, order: sequential}\n",
                  model, fl_inside("ids.json"));
    char *output = NULL, fitted[PATH_BYTES], arguments[TEXT_BYTES];
    int code =
        fl_frostline(&output, "run %s train.objective=layer_mse --out %s", config, fl_inside("layers"));
    if (code != 0) fail_msg("exit %d:\n%s", code, output);
    const char *run = run_file_of(output, "gla");
    snprintf(fitted, sizeof fitted, "%.*s.mechanism.safetensors", (int)(strlen(run) - strlen(".h5")), run);
    fl_memory_free(output);
    char ids[PATH_BYTES];
    snprintf(ids, sizeof ids, "%s", fl_inside("ids.json"));
    snprintf(arguments, sizeof arguments, "run %s train= text.ids=%s variant.mechanism=%s --out %s", config,
             ids, fitted, fl_inside("loaded"));
    fl_expect(0, arguments, "calibrated", NULL);
    double loss[2];
    for (int chained = 0; chained < 2; chained++) {
        char start[PATH_BYTES + 32] = "";
        if (chained) snprintf(start, sizeof start, "variant.mechanism=%s", fitted);
        code = fl_frostline(&output, "run %s %s --out %s", config, start, fl_inside("network"));
        if (code != 0) fail_msg("exit %d:\n%s", code, output);
        assert_non_null(strstr(output, "trained"));
        loss[chained] = entry_of(run_file_of(output, "gla"), "/training/loss", false);
        fl_memory_free(output);
    }
    assert_true(loss[1] != loss[0]);
    assert_int_equal(count_files(fl_inside("network"), ".h5"), 2);
}

static void test_the_objective_none_is_the_cell_without_training(void **state) {
    (void)state;
    const char *model = fl_reference_model(__func__);
    write_ids(fl_inside("ids.json"));
    const char *config = fl_inside("before_and_after.yaml");
    char ids[PATH_BYTES], arguments[TEXT_BYTES];
    snprintf(ids, sizeof ids, "%s", fl_inside("ids.json"));
    fl_write_text(
        config,
        "name: tiny\nmodel: {path: %s}\ntext: {ids: %s}\nvariant: {rule: gla, window: 8, sinks: 2}\n"
        "train: {ids: %s, steps: 2, warmup_steps: 0, allow_overlap: true}\n"
        "sweep: {grid: {train.objective: [none, next_token]}}\n",
        model, ids, ids);
    snprintf(arguments, sizeof arguments, "run %s --out %s", config, fl_inside("out"));
    fl_expect(0, arguments, "untrained", NULL);
    assert_int_equal(count_files(fl_inside("out"), ".h5"), 2);
    snprintf(arguments, sizeof arguments, "run %s sweep= train= --out %s", config, fl_inside("out"));
    fl_expect(0, arguments, "0 cells to measure, 1 kept from before", NULL);
    snprintf(arguments, sizeof arguments, "run %s 'sweep.grid.train.objective=[null, next_token]' --out %s",
             config, fl_inside("out"));
    fl_expect(1, arguments, "train.objective: null could mean", NULL);
    snprintf(arguments, sizeof arguments, "run %s sweep= train.objective=none text= --out %s", config,
             fl_inside("out"));
    fl_expect(1, arguments, "`{self_generated: ...}` is missing", NULL);
}

static void test_sweep_measures_every_cell_and_keeps_them_the_second_time(void **state) {
    (void)state;
    const char *model = fl_reference_model(__func__);
    const char *config = write_sweep(model, "softmax, none, kda");
    char *output = NULL, *again = NULL;
    int code = fl_frostline(&output, "run %s --out %s --threads 2", config, fl_inside("out"));
    if (code != 0) fail_msg("exit %d:\n%s", code, output);
    assert_int_equal(count_files(fl_inside("out"), ".h5"), 3);
    assert_int_equal(count_files(fl_inside("out"), ".part"), 0);
    assert_non_null(strstr(output, "\nkda "));
    assert_non_null(strstr(output, "untrained"));
    assert_non_null(strstr(output, "lin. off"));
    assert_non_null(strstr(output, "table.csv"));
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s", run_file_of(output, "kda"));
    fl_hash before, after;
    assert_int_equal(fl_hash_file(path, &before, NULL), FL_OK);
    code = fl_frostline(&again, "run %s --out %s --threads 2", config, fl_inside("out"));
    if (code != 0) fail_msg("exit %d:\n%s", code, again);
    assert_non_null(strstr(again, "0 cells to measure, 3 kept"));
    assert_int_equal(fl_hash_file(path, &after, NULL), FL_OK);
    assert_string_equal(before.text, after.text);
    fl_memory_free(output);
    fl_memory_free(again);
}

static void test_weights_widened_in_every_product_give_the_same_run(void **state) {
    (void)state;
    const char *config = write_sweep(fl_reference_model(__func__), "kda");
    static const char *const memory[] = {"0", "0.002"};
    double nmse[2];
    char id[2][16];
    for (size_t i = 0; i < 2; i++) {
        char *output = NULL, out[16];
        snprintf(out, sizeof out, "out%zu", i);
        int code =
            fl_frostline(&output, "run %s model.widen_memory=%s --out %s", config, memory[i], fl_inside(out));
        if (code != 0) fail_msg("exit %d:\n%s", code, output);
        const char *run = run_file_of(output, "kda");
        nmse[i] = entry_of(run, "/errors/propagated/residual_nmse", true);
        snprintf(id[i], sizeof id[i], "%.12s", strrchr(run, '/') + 1);
        fl_memory_free(output);
    }
    assert_string_equal(id[0], id[1]);
    assert_true(nmse[0] > 0 && fabs(nmse[0] - nmse[1]) <= 1e-5 * nmse[0]);
}

static void test_softmax_has_no_error_and_the_linear_off_baseline_is_beside_every_cell(void **state) {
    (void)state;
    const char *config = write_sweep(fl_reference_model(__func__), "softmax, none, kda");
    char *output = NULL;
    assert_int_equal(fl_frostline(&output, "run %s --out %s", config, fl_inside("out")), 0);
    fl_run_reader *reader = NULL;
    double *nmse = NULL, *off = NULL, *none = NULL;
    size_t rank = 0, shape[4];
    assert_int_equal(fl_run_reader_open(run_file_of(output, "softmax"), &reader, NULL), FL_OK);
    assert_int_equal(fl_run_reader_doubles(reader, "/errors/teacher_forced/nmse", &nmse, &rank, shape, NULL),
                     FL_OK);
    assert_int_equal(shape[0], 3);
    for (size_t l = 0; l < shape[0]; l++) assert_true(nmse[l] == 0.0);
    fl_memory_free(nmse);
    fl_run_reader_close(reader);

    assert_int_equal(fl_run_reader_open(run_file_of(output, "kda"), &reader, NULL), FL_OK);
    static const char path[] = "/baseline/linear_off/errors/teacher_forced/nmse";
    assert_int_equal(fl_run_reader_doubles(reader, path, &off, &rank, shape, NULL), FL_OK);
    assert_int_equal(fl_run_reader_doubles(reader, "/errors/teacher_forced/nmse", &nmse, &rank, shape, NULL),
                     FL_OK);
    fl_run_reader_close(reader);
    assert_int_equal(fl_run_reader_open(run_file_of(output, "none"), &reader, NULL), FL_OK);
    assert_int_equal(fl_run_reader_doubles(reader, "/errors/teacher_forced/nmse", &none, &rank, shape, NULL),
                     FL_OK);
    fl_run_reader_close(reader);
    for (size_t l = 0; l < shape[0]; l++) {
        assert_true(off[l] == none[l]);
        assert_true(nmse[l] > 0 && nmse[l] != none[l]);
    }
    fl_memory_free(nmse);
    fl_memory_free(off);
    fl_memory_free(none);
    fl_memory_free(output);
}

static void test_plan_names_the_run_ids_that_run_then_writes(void **state) {
    (void)state;
    const char *config = write_sweep(fl_reference_model(__func__), "none, gla");
    char *plan = NULL, *output = NULL;
    assert_int_equal(fl_frostline(&plan, "plan %s --out %s", config, fl_inside("out")), 0);
    assert_non_null(strstr(plan, "2 to do, 0 done"));
    assert_int_equal(access(fl_inside("out"), F_OK), -1);
    assert_int_equal(fl_frostline(&output, "run %s --out %s", config, fl_inside("out")), 0);
    const char *file = strrchr(run_file_of(output, "gla"), '/') + 1;
    char id[16];
    snprintf(id, sizeof id, "%.12s", file);
    assert_non_null(strstr(plan, id));
    fl_memory_free(plan);
    assert_int_equal(fl_frostline(&plan, "plan %s --out %s", config, fl_inside("out")), 0);
    assert_non_null(strstr(plan, "0 to do, 2 done"));
    fl_memory_free(plan);
    fl_memory_free(output);
}

static void test_overrides_beat_the_file_and_change_the_run_id(void **state) {
    (void)state;
    const char *config = write_sweep(fl_reference_model(__func__), "gla");
    char *plain = NULL, *changed = NULL;
    assert_int_equal(fl_frostline(&plain, "plan %s", config), 0);
    assert_int_equal(fl_frostline(&changed, "plan %s variant.window=9", config), 0);
    assert_string_not_equal(plain, changed);
    fl_memory_free(plain);
    fl_memory_free(changed);
    char arguments[PATH_BYTES];
    snprintf(arguments, sizeof arguments, "plan %s variant.windw=9", config);
    fl_expect(1, arguments, "windw", "command line", "window", NULL);
}

static void test_one_impossible_cell_does_not_stop_the_others(void **state) {
    (void)state;
    const char *config = write_sweep(fl_reference_model(__func__), "none, no_such_rule, kda");
    char *output = NULL;
    assert_int_equal(fl_frostline(&output, "run %s --out %s", config, fl_inside("out")), 1);
    assert_int_equal(count_files(fl_inside("out"), ".h5"), 2);
    assert_non_null(strstr(output, "1 of 3 cells failed"));
    assert_non_null(strstr(output, "no_such_rule"));
    assert_non_null(strstr(output, "sweep.yaml:"));
    fl_memory_free(output);
}

static void test_malformed_configs_are_refused_by_line(void **state) {
    (void)state;
    char arguments[2 * PATH_BYTES];
    snprintf(arguments, sizeof arguments, "run %s --out %s", fl_inside("bad.yaml"), fl_inside("out"));
    fl_write_text(fl_inside("bad.yaml"), "name: x\nmodel: {path: [}\n");
    fl_expect(1, arguments, "bad.yaml:2", NULL);
    fl_write_text(fl_inside("bad.yaml"), "name: x\nmodel: {path: m}\nvariantt: {rule: kda}\n");
    fl_expect(1, arguments, "bad.yaml:3", "variantt", "variant", NULL);
    fl_write_text(fl_inside("bad.yaml"), "name: x\nname: y\n");
    fl_expect(1, arguments, "bad.yaml:2", "name", NULL);
    unlink(fl_inside("bad.yaml"));
    fl_expect(1, arguments, "bad.yaml", NULL);
    assert_nothing_half_written();
}

static void test_missing_and_truncated_models_are_named(void **state) {
    (void)state;
    const char *model = fl_reference_model(__func__);
    char arguments[2 * PATH_BYTES], path[PATH_BYTES], command[3 * PATH_BYTES];
    const char *config = write_sweep(fl_inside("nothing_there"), "kda");
    snprintf(arguments, sizeof arguments, "run %s --out %s", config, fl_inside("out"));
    fl_expect(1, arguments, "nothing_there", NULL);
    snprintf(command, sizeof command,
             "mkdir %s && cp %s/config.json %s && head -c 100000 %s/model.safetensors > %s/model.safetensors",
             fl_inside("cut"), model, fl_inside("cut"), model, fl_inside("cut"));
    assert_int_equal(fl_run_command(command, NULL), 0);
    snprintf(path, sizeof path, "%s", fl_inside("cut"));
    write_sweep(path, "kda");
    fl_expect(1, arguments, "cut/model.safetensors", NULL);
    assert_nothing_half_written();
}

static void test_ids_outside_the_vocabulary_are_named(void **state) {
    (void)state;
    const char *model = fl_reference_model(__func__);
    const char *config = write_sweep(model, "kda");
    fl_write_text(fl_inside("ids.json"), "[[1, 2, 3], [4, 320]]");
    char arguments[3 * PATH_BYTES];
    snprintf(arguments, sizeof arguments, "run %s --out %s", config, fl_inside("out"));
    fl_expect(1, arguments, "ids.json", "list 1, entry 1", NULL);
    snprintf(arguments, sizeof arguments, "forward %s --ids %s --out %s", model, fl_inside("ids.json"),
             fl_inside("f.h5"));
    fl_expect(1, arguments, "ids.json", NULL);
    assert_nothing_half_written();
}

static void test_output_that_cannot_be_written_is_named(void **state) {
    (void)state;
    const char *model = fl_reference_model(__func__);
    const char *config = write_sweep(model, "kda");
    fl_write_text(fl_inside("file"), "in the way\n");
    char arguments[3 * PATH_BYTES];
    snprintf(arguments, sizeof arguments, "run %s --out %s/out", config, fl_inside("file"));
    fl_expect(1, arguments, "file", NULL);
    fl_write_text(fl_inside("one.json"), "[5, 6, 7]");
    snprintf(arguments, sizeof arguments, "forward %s --ids %s --out %s/x.h5", model, fl_inside("one.json"),
             fl_inside("file"));
    fl_expect(1, arguments, "/file", NULL);
    assert_nothing_half_written();
}

static void compare_dataset(fl_run_reader *reader, const char *path, const double *reference, size_t count) {
    double *data = NULL;
    size_t rank = 0, shape[4], found = 1;
    assert_int_equal(fl_run_reader_doubles(reader, path, &data, &rank, shape, NULL), FL_OK);
    for (size_t i = 0; i < rank; i++) found *= shape[i];
    assert_int_equal(found, count);
    fl_difference difference = fl_compare_doubles(data, reference, count);
    if (!(difference.largest <= 1e-4) || difference.not_finite > 0) {
        fail_msg("%s differs by %g at %zu", path, difference.largest, difference.largest_at);
    }
    fl_memory_free(data);
}

/* Datasets [parts][T][E] against one tensor a part, of which the first sequence is meant. */
static void compare_parts(fl_run_reader *reader, const fl_checkpoint *reference, const char *path,
                          const char *format, size_t parts) {
    double *all = NULL;
    size_t each = 0;
    for (size_t i = 0; i < parts; i++) {
        char name[64];
        size_t count = 0, shape[4];
        snprintf(name, sizeof name,
                 format[0] == 'h'   ? "hidden%zu"
                 : format[0] == 'i' ? "layer%zu.attn_in"
                                    : "layer%zu.attn_out",
                 i);
        double *part = fl_fixture_doubles(reference, name, &count, shape);
        each = count / shape[0];
        if (all == NULL) assert_int_equal(FL_ALLOCATE(&all, each * parts, NULL), FL_OK);
        memcpy(all + i * each, part, each * sizeof part[0]);
        fl_memory_free(part);
    }
    compare_dataset(reader, path, all, each * parts);
    fl_memory_free(all);
}

static void test_forward_matches_the_reference_in_every_dataset(void **state) {
    (void)state;
    const char *model = fl_reference_model(__func__);
    const char *reference_path = fl_fixture_or_pack("reference/llama_gqa/reference.safetensors");
    if (reference_path == NULL) fl_fixture_skip(__func__, "reference/llama_gqa/reference.safetensors");
    fl_checkpoint *reference = NULL;
    assert_int_equal(fl_checkpoint_open(reference_path, &reference, NULL), FL_OK);
    size_t count = 0, shape[4], used = 0;
    fl_memory_free(fl_fixture_doubles(reference, "input_ids", &count, shape));
    size_t sequences = shape[0], tokens = shape[1];
    int32_t *ids = fl_fixture_integers(reference, "input_ids", &count);
    char text[TEXT_BYTES];
    for (size_t t = 0; t < tokens; t++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%d", t == 0 ? "[[" : ", ", (int)ids[t]);
    snprintf(text + used, sizeof text - used, "]]");
    fl_write_file(fl_inside("ids.json"), text, strlen(text));
    fl_memory_free(ids);
    char *output = NULL;
    int code = fl_frostline(&output, "forward %s --ids %s --out %s", model, fl_inside("ids.json"),
                            fl_inside("f.h5"));
    if (code != 0) fail_msg("%s", output);
    fl_memory_free(output);

    fl_run_reader *reader = NULL;
    assert_int_equal(fl_run_reader_open(fl_inside("f.h5"), &reader, NULL), FL_OK);
    double *logits = fl_fixture_doubles(reference, "logits", &count, NULL);
    compare_dataset(reader, "/logits", logits, count / sequences);
    fl_memory_free(logits);
    double *log_probabilities = fl_fixture_doubles(reference, "token_logprobs", &count, NULL);
    compare_dataset(reader, "/token_log_probabilities", log_probabilities, count / sequences);
    fl_memory_free(log_probabilities);
    compare_parts(reader, reference, "/hidden", "hidden", 4);
    compare_parts(reader, reference, "/attention_input", "input", 3);
    compare_parts(reader, reference, "/attention_output", "output", 3);
    fl_run_reader_close(reader);
    fl_checkpoint_close(reference);
}

static void test_forward_with_a_wide_window_is_the_frozen_model(void **state) {
    (void)state;
    const char *model = fl_reference_model(__func__);
    fl_write_text(fl_inside("one.json"), "[5, 6, 7, 8, 300, 9]");
    fl_write_text(fl_inside("wide.yaml"), "name: wide\nvariant: {rule: kda, window: 64, sinks: 4}\n");
    char *output = NULL;
    int code = fl_frostline(&output, "forward %s --ids %s --out %s", model, fl_inside("one.json"),
                            fl_inside("a.h5"));
    if (code != 0) fail_msg("%s", output);
    fl_memory_free(output);
    code = fl_frostline(&output, "forward %s --ids %s --config %s --out %s", model, fl_inside("one.json"),
                        fl_inside("wide.yaml"), fl_inside("b.h5"));
    if (code != 0) fail_msg("%s", output);
    fl_memory_free(output);
    fl_run_reader *a = NULL, *b = NULL;
    double *x = NULL;
    size_t rank = 0, shape[4];
    assert_int_equal(fl_run_reader_open(fl_inside("a.h5"), &a, NULL), FL_OK);
    assert_int_equal(fl_run_reader_open(fl_inside("b.h5"), &b, NULL), FL_OK);
    assert_int_equal(fl_run_reader_doubles(a, "/logits", &x, &rank, shape, NULL), FL_OK);
    assert_int_equal(shape[0], 6);
    compare_dataset(b, "/logits", x, shape[0] * shape[1]);
    fl_memory_free(x);
    fl_run_reader_close(a);
    fl_run_reader_close(b);
}

static void test_tokenize_gives_one_list_a_line(void **state) {
    (void)state;
    const char *model = fl_default_model_path();
    if (model == NULL) fl_fixture_skip(__func__, "the default model");
    fl_write_text(fl_inside("lines"), "\"a  1\"\n\"\"\n\"Hello\\n\\n1\"\n  \"\\u0020\"\r\n");
    char *output = NULL;
    assert_int_equal(fl_frostline(&output, "tokenize %s --text %s", model, fl_inside("lines")), 0);
    assert_string_equal(output, "[81, 256, 33]\n[]\n[19556, 1116, 33]\n[216]\n");
    fl_memory_free(output);
    char arguments[2 * PATH_BYTES];
    fl_write_text(fl_inside("lines"), "\"good\"\nbad\n");
    snprintf(arguments, sizeof arguments, "tokenize %s --text %s", model, fl_inside("lines"));
    fl_expect(1, arguments, "lines:2: column 1", NULL);
    fl_write_text(fl_inside("lines"), "\"a\\qb\"\n");
    fl_expect(1, arguments, "lines:1: column 4", "escape", NULL);
}

static void test_inspect_describes_checkpoints_and_run_files(void **state) {
    (void)state;
    const char *model = fl_reference_model(__func__);
    char arguments[2 * PATH_BYTES];
    snprintf(arguments, sizeof arguments, "inspect %s/model.safetensors", model);
    fl_expect(0, arguments, "safetensors, 30 tensors", "llama, 3 layers, width 64", "F32", NULL);
    fl_write_text(fl_inside("one.json"), "[5, 6, 7]");
    assert_int_equal(
        fl_frostline(NULL, "forward %s --ids %s --out %s", model, fl_inside("one.json"), fl_inside("f.h5")),
        0);
    snprintf(arguments, sizeof arguments, "inspect %s", fl_inside("f.h5"));
    fl_expect(0, arguments, "/logits", "3 x 320", NULL);
    fl_write_text(fl_inside("neither"), "neither\n");
    snprintf(arguments, sizeof arguments, "inspect %s", fl_inside("neither"));
    fl_expect(1, arguments, "neither", NULL);
}

static void test_interrupted_run_leaves_no_half_file_and_resumes(void **state) {
    (void)state;
    const char *config = write_sweep(fl_reference_model(__func__), "none, gla, kgla, delta, kda");
    char command[3 * PATH_BYTES];
    /* Two interrupts at once: stop now. Whatever was reached, nothing half-written stays. */
    snprintf(command, sizeof command,
             "%s run %s --out %s & sleep 0.02; kill -INT $! 2>/dev/null; kill -INT $! 2>/dev/null; wait $!",
             fl_program_path(), config, fl_inside("out"));
    fl_run_command(command, NULL);
    assert_int_equal(count_files(fl_inside("out"), ".part"), 0);
    char *output = NULL;
    int code = fl_frostline(&output, "run %s --out %s", config, fl_inside("out"));
    if (code != 0) fail_msg("%s", output);
    assert_int_equal(count_files(fl_inside("out"), ".h5"), 5);
    fl_memory_free(output);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fl_test_folder_make, fl_test_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_usage_errors_exit_with_2),
        TEST(test_vector_kernels_are_chosen_by_the_environment),
        TEST(test_help_is_there_for_every_command),
        TEST(test_help_fits_a_terminal),
        TEST(test_variants_lists_every_rule_and_suggests_near_names),
        TEST(test_cells_calibrated_together_are_those_calibrated_alone),
        TEST(test_a_training_goes_on_from_a_calibrated_mechanism),
        TEST(test_the_objective_none_is_the_cell_without_training),
        TEST(test_sweep_measures_every_cell_and_keeps_them_the_second_time),
        TEST(test_weights_widened_in_every_product_give_the_same_run),
        TEST(test_softmax_has_no_error_and_the_linear_off_baseline_is_beside_every_cell),
        TEST(test_plan_names_the_run_ids_that_run_then_writes),
        TEST(test_overrides_beat_the_file_and_change_the_run_id),
        TEST(test_one_impossible_cell_does_not_stop_the_others),
        TEST(test_malformed_configs_are_refused_by_line),
        TEST(test_missing_and_truncated_models_are_named),
        TEST(test_ids_outside_the_vocabulary_are_named),
        TEST(test_output_that_cannot_be_written_is_named),
        TEST(test_forward_matches_the_reference_in_every_dataset),
        TEST(test_forward_with_a_wide_window_is_the_frozen_model),
        TEST(test_tokenize_gives_one_list_a_line),
        TEST(test_inspect_describes_checkpoints_and_run_files),
        TEST(test_interrupted_run_leaves_no_half_file_and_resumes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
