/* bench [MODEL]: how fast this machine runs the project, beside what the machine can do. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/output_file.h"
#include "harness/base/memory.h"
#include "harness/base/threads.h"
#include "harness/bench/bench_report.h"
#include "harness/bench/bench_rows.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/cli/console.h"
#include "harness/cli/words.h"
#include "harness/measure/text_source.h"

enum { MAX_THREADS = 1024, MAX_TOKENS = 1 << 24, TEXT_TOKENS = 1 << 16 };

static const struct {
    const char *name;
    bool needs_model;
    fl_status (*run)(fl_bench *bench, fl_error *error);
} groups[] = {
    {"machine", false, fl_bench_machine},  {"forward", true, fl_bench_forward},
    {"length", true, fl_bench_length},     {"kernels", false, fl_bench_kernels},
    {"variants", true, fl_bench_variants}, {"tasks", true, fl_bench_tasks},
    {"training", true, fl_bench_training},
};

enum { GROUPS = sizeof groups / sizeof groups[0] };

/* Lists as they are written: parts between commas. */

typedef struct bench_lists {
    const char *rows, *rules, *subjects, *threads, *lengths, *long_lengths;
} bench_lists;

static int parse_names(const fl_command *command, const char *flag, const char *text, fl_bench_names *out) {
    out->count = 0;
    for (;;) {
        size_t length = strcspn(text, ",");
        if (length == 0) return fl_arguments_refuse(command, "%s: an empty name in the list", flag);
        if (length >= FL_BENCH_NAME_BYTES || out->count == FL_BENCH_MAX_LIST)
            return fl_arguments_refuse(command, "%s: a name or the list is too long", flag);
        snprintf(out->names[out->count++], FL_BENCH_NAME_BYTES, "%.*s", (int)length, text);
        if (text[length] == '\0') return -1;
        text += length + 1;
    }
}

static int parse_sizes(const fl_command *command, const char *flag, const char *text, size_t most,
                       fl_bench_list *out) {
    fl_bench_names parts;
    int code = parse_names(command, flag, text, &parts);
    if (code >= 0) return code;
    out->count = parts.count;
    for (size_t i = 0; i < parts.count; i++) {
        char *end = NULL;
        errno = 0;
        unsigned long long number = strtoull(parts.names[i], &end, 10);
        if (parts.names[i][0] < '0' || parts.names[i][0] > '9' || *end != '\0' || errno != 0 || number == 0 ||
            number > most) {
            return fl_arguments_refuse(command, "%s: \"%s\" is not a number from 1 to %zu", flag,
                                       parts.names[i], most);
        }
        out->values[i] = (size_t)number;
    }
    return -1;
}

static int compare_sizes(const void *a, const void *b) {
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* Group of that name, or GROUPS. */
static size_t find_group(const char *name) {
    size_t i = 0;
    while (i < GROUPS && strcmp(groups[i].name, name) != 0) i++;
    return i;
}

static int check_rows(const fl_command *command, const fl_bench_settings *settings) {
    const char *names[GROUPS];
    for (size_t i = 0; i < GROUPS; i++) names[i] = groups[i].name;
    for (size_t i = 0; i < settings->rows.count; i++) {
        const char *name = settings->rows.names[i];
        size_t group = find_group(name);
        const char *near = fl_suggest(name, names, GROUPS);
        if (group == GROUPS && near != NULL)
            return fl_arguments_refuse(command, "--rows: no rows \"%s\"; did you mean %s?", name, near);
        if (group == GROUPS) return fl_arguments_refuse(command, "--rows: no rows \"%s\"", name);
        if (groups[group].needs_model && settings->model == NULL)
            return fl_arguments_refuse(command, "rows %s need a MODEL", name);
    }
    return -1;
}

static int check_rules(const fl_command *command, const fl_bench_settings *settings) {
    const char *names[256];
    size_t count = 0;
    for (const fl_rule *const *rule = fl_rule_registry; *rule != NULL && count < 256; rule++)
        names[count++] = (*rule)->name;
    for (size_t i = 0; i < settings->rules.count; i++) {
        const char *name = settings->rules.names[i];
        if (fl_rule_find(name) != NULL) continue;
        const char *near = fl_suggest(name, names, count);
        if (near == NULL) return fl_arguments_refuse(command, "--rules: no rule \"%s\"", name);
        return fl_arguments_refuse(command, "--rules: no rule \"%s\"; did you mean %s?", name, near);
    }
    return -1;
}

/* 1 and as many as there are processors; quick: the latter only. */
static fl_status default_threads(fl_bench_settings *settings, fl_error *error) {
    fl_threads *all = NULL;
    FL_TRY(fl_threads_create(0, &all, error));
    size_t count = fl_threads_count(all);
    fl_threads_destroy(all);
    fl_bench_list *list = &settings->threads;
    list->count = 0;
    if (!settings->quick && count > 1) list->values[list->count++] = 1;
    list->values[list->count++] = count;
    return FL_OK;
}

static int fill_lists(const fl_command *command, const bench_lists *lists, fl_bench_settings *settings) {
    bool quick = settings->quick, model = settings->model != NULL;
    const char *rows = model ? "machine,forward,length,kernels,variants,tasks,training" : "machine,kernels";
    const char *rules =
        quick ? "softmax,gla,kda" : "softmax,gla,kgla,delta,gated_delta,kda,linear,decay,gated,hedgehog";
    const char *subjects = lists->subjects;
    if (subjects == NULL && quick && settings->mmlu == NULL) subjects = "arithmetic";
    int code = parse_names(command, "--rows", lists->rows != NULL ? lists->rows : rows, &settings->rows);
    if (code < 0)
        code = parse_names(command, "--rules", lists->rules != NULL ? lists->rules : rules, &settings->rules);
    if (code < 0 && subjects != NULL)
        code = parse_names(command, "--subjects", subjects, &settings->subjects);
    const char *lengths = quick ? "64" : "128,512,1024,4096",
               *longs = quick ? "64,192" : "1024,4096,16384,65536";
    if (code < 0)
        code = parse_sizes(command, "--lengths", lists->lengths != NULL ? lists->lengths : lengths,
                           MAX_TOKENS, &settings->lengths);
    if (code < 0)
        code =
            parse_sizes(command, "--long-lengths", lists->long_lengths != NULL ? lists->long_lengths : longs,
                        MAX_TOKENS, &settings->long_lengths);
    if (code < 0 && lists->threads != NULL)
        code = parse_sizes(command, "--threads", lists->threads, MAX_THREADS, &settings->threads);
    if (code < 0) code = check_rows(command, settings);
    if (code < 0) code = check_rules(command, settings);
    if (code >= 0) return code;
    qsort(settings->long_lengths.values, settings->long_lengths.count, sizeof(size_t), compare_sizes);
    if (settings->mmlu == NULL) settings->mmlu = fl_arguments_input("datasets/questions");
    return -1;
}

static int check_numbers(const fl_command *command, fl_bench_settings *settings) {
    if (settings->repeats == 0) settings->repeats = settings->quick ? 2 : 5;
    if (settings->patience == 0) settings->patience = settings->quick ? 1 : 60;
    if (settings->questions == 0) settings->questions = settings->quick ? 1 : 10;
    if (settings->repeats > FL_BENCH_MAX_REPEATS)
        return fl_arguments_refuse(command, "--repeats is at most %d", FL_BENCH_MAX_REPEATS);
    if (settings->ids != NULL && settings->text != NULL)
        return fl_arguments_refuse(command, "give --text or --ids, not both");
    if (settings->ids == NULL && settings->text == NULL)
        settings->text = fl_arguments_input("datasets/calibration.txt");
    return -1;
}

/* Work. */

static fl_status load_ids(fl_bench *bench, fl_error *error) {
    const fl_bench_settings *settings = bench->settings;
    size_t vocabulary = bench->work.model->config.vocabulary;
    fl_text_source source;
    if (settings->ids != NULL) {
        FL_TRY(fl_text_source_from_ids(settings->ids, vocabulary, 0, 1, &source, error));
    } else {
        fl_tokenizer *tokenizer = NULL;
        FL_TRY(fl_workbench_tokenizer(settings->model, &tokenizer, error));
        fl_status status =
            fl_text_source_from_text(settings->text, tokenizer, vocabulary, TEXT_TOKENS, 1, &source, error);
        fl_tokenizer_close(tokenizer);
        FL_TRY(status);
    }
    bench->id_count = source.sequences.lengths[0];
    bench->ids = source.sequences.ids[0];
    source.sequences.ids[0] = NULL;
    fl_text_source_release(&source);
    return FL_OK;
}

static bool is_asked(const fl_bench_settings *settings, const char *group) {
    for (size_t i = 0; i < settings->rows.count; i++) {
        if (strcmp(settings->rows.names[i], group) == 0) return true;
    }
    return false;
}

static fl_status run_groups(fl_bench *bench, fl_error *error) {
    FL_TRY(fl_bench_machine(bench, error)); /* always: the rest is measured against it */
    for (size_t i = 1; i < GROUPS; i++) {
        if (!is_asked(bench->settings, groups[i].name)) continue;
        fl_status status = groups[i].run(bench, error);
        if (status != FL_OK) return fl_error_prepend(error, status, "rows %s", groups[i].name);
    }
    return fl_bench_machine_again(bench, error);
}

static fl_status run_with_threads(fl_bench *bench, size_t threads, fl_error *error) {
    FL_TRY(bench->work.model != NULL ? fl_workbench_prepare(&bench->work, threads, error)
                                     : fl_workbench_compute(&bench->work, threads, error));
    bench->compute = bench->work.compute;
    bench->threads = fl_threads_count(bench->compute->threads);
    fl_status status = run_groups(bench, error);
    bench->compute = NULL;
    fl_workbench_unprepare(&bench->work);
    return status;
}

static fl_status run_bench(fl_bench *bench, fl_error *error) {
    const fl_bench_settings *settings = bench->settings;
    if (settings->model != NULL) {
        FL_TRY(fl_workbench_open(settings->model, &bench->work, error));
        fl_command_note(settings->model, bench->work.model->note);
        FL_TRY(load_ids(bench, error));
    }
    bench->work.where.device = settings->cuda ? FL_DEVICE_CUDA : FL_DEVICE_CPU;
    for (size_t i = 0; i < settings->threads.count; i++)
        FL_TRY(run_with_threads(bench, settings->threads.values[i], error));
    return FL_OK;
}

/* What was measured until a failure or an interrupt is told as well. */
static fl_status report(const fl_bench *bench, fl_output_file *json, fl_error *error) {
    fl_bench_print_table(bench, stdout);
    if (json->stream == NULL || bench->row_count == 0) return FL_OK;
    FL_TRY(fl_bench_print_json(bench, json->stream, error));
    return fl_output_file_close(json, error);
}

/* A row is a line: what is measured, then what came out. */

static void begin_line(void *context, const char *label) {
    fl_console *console = context;
    fl_console_end_line(console);
    fputs(label, stderr);
    console->line_open = true;
}

static void end_line(void *context, const char *label, const fl_bench_row *row) {
    fl_console *console = context;
    if (!console->line_open) begin_line(console, label);
    fprintf(stderr, ": %.4g %s", row->value, row->unit);
    if (row->peak_fraction > 0) fprintf(stderr, ", %.1f %% of peak", 100 * row->peak_fraction);
    fl_console_end_line(console);
}

static bool interrupted(void *context) {
    (void)context;
    return fl_interrupts_seen() > 0;
}

static int bench_and_report(const fl_command *command, const fl_bench_settings *settings, const char *path) {
    fl_console console = {0};
    fl_bench bench = {.settings = settings, .listener = {begin_line, end_line, interrupted, &console}};
    fl_error error = {0}, writing = {0};
    fl_output_file json = {0};
    /* Opened before the work, so that an output that cannot be written is known at once. */
    if (path != NULL && fl_output_file_open(path, &json, &error) != FL_OK)
        return fl_command_fail(command, &error);
    fl_status status = run_bench(&bench, &error);
    fl_console_end_line(&console);
    fl_status reported = report(&bench, &json, &writing);
    fl_output_file_discard(&json);
    fl_bench_release_rows(&bench);
    fl_memory_free(bench.ids);
    fl_workbench_close(&bench.work);
    if (reported != FL_OK) fl_command_fail(command, &writing);
    if (status != FL_OK) return fl_command_fail(command, &error);
    return reported == FL_OK ? FL_EXIT_OK : FL_EXIT_FAILURE;
}

typedef struct bench_flags {
    fl_bench_settings settings;
    bench_lists lists;
    const char *json;
} bench_flags;

static const char *group_names(size_t index) {
    return index < GROUPS ? groups[index].name : NULL;
}

static int run(const fl_command *command, int argc, char **argv) {
    bench_flags given = {0};
    fl_positionals model;
    int code = fl_arguments_parse(command, argc, argv, &given, &model);
    if (code >= 0) return code;
    fl_bench_settings settings = given.settings;
    if (model.count > 0) settings.model = model.items[0];
    code = fill_lists(command, &given.lists, &settings);
    if (code < 0) code = check_numbers(command, &settings);
    if (code >= 0) return code;
    fl_error error;
    if (settings.threads.count == 0 && default_threads(&settings, &error) != FL_OK)
        return fl_command_fail(command, &error);
    fl_interrupts_install(false);
    return bench_and_report(command, &settings, given.json);
}

static const fl_flag flags[] = {
    {.name = "--rows",
     .value = "LIST",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(bench_flags, lists.rows),
     .words = group_names,
     .help = "machine, forward, length, kernels, variants, tasks, training (default: all)"},
    {.name = "--threads",
     .value = "LIST",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(bench_flags, lists.threads),
     .help = "thread counts (default: 1 and all processors)"},
    {.name = "--cuda",
     .offset = offsetof(bench_flags, settings.cuda),
     .help = "on an NVIDIA GPU (compute.device: cuda); the machine rows stay the processor's"},
    {.name = "--repeats",
     .value = "N",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(bench_flags, settings.repeats),
     .help = "of every row, after a warm-up (default: 5)"},
    {.name = "--rules",
     .value = "LIST",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(bench_flags, lists.rules),
     .words = fl_words_rules,
     .help = "softmax (the frozen model) and rules (default: softmax and the nine common ones)"},
    {.name = "--lengths",
     .value = "LIST",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(bench_flags, lists.lengths),
     .help = "tokens of the forward rows (default: 128,512,1024,4096)"},
    {.name = "--long-lengths",
     .value = "LIST",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(bench_flags, lists.long_lengths),
     .help = "tokens of the length rows (default: 1024,4096,16384,65536)"},
    {.name = "--text",
     .value = "FILE",
     .kind = FL_VALUE_FILE,
     .input = true,
     .offset = offsetof(bench_flags, settings.text),
     .help = "what is read, over and over (default: datasets/calibration.txt)"},
    {.name = "--ids",
     .value = "FILE.json",
     .kind = FL_VALUE_FILE,
     .input = true,
     .offset = offsetof(bench_flags, settings.ids),
     .help = "the same as a list of lists of token ids"},
    {.name = "--mmlu",
     .value = "DIR",
     .kind = FL_VALUE_FOLDER,
     .input = true,
     .offset = offsetof(bench_flags, settings.mmlu),
     .help = "questions in MMLU's layout (default: datasets/questions)"},
    {.name = "--subjects",
     .value = "LIST",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(bench_flags, lists.subjects),
     .help = "of them (default: all)"},
    {.name = "--shared-only",
     .offset = offsetof(bench_flags, settings.shared_only),
     .help = "tasks: leave out the rows that run every request by itself, the slowest of all"},
    {.name = "--questions",
     .value = "N",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(bench_flags, settings.questions),
     .help = "of each subject (default: 10)"},
    {.name = "--patience",
     .value = "SECONDS",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(bench_flags, settings.patience),
     .help = "that a row goes on repeating for at most (default: 60)"},
    {.name = "--processor-time",
     .offset = offsetof(bench_flags, settings.processor_time),
     .help = "count all threads' processor time instead: for a machine that is busy otherwise"},
    {.name = "--quick",
     .offset = offsetof(bench_flags, settings.quick),
     .help = "everything once, and small: a test, not a measurement"},
    {.name = "--json",
     .value = "FILE",
     .kind = FL_VALUE_FILE,
     .offset = offsetof(bench_flags, json),
     .help = "all of it, with every repeat"},
    {0},
};

static const fl_positional positionals[] = {
    {.name = "MODEL",
     .kind = FL_VALUE_FILE,
     .optional = true,
     .help = "a .gguf file or a Hugging Face folder; none: machine and kernels only"},
    {0},
};

static const fl_example examples[] = {
    {.line = "frostline bench models/smollm2-135m.gguf", .what = "everything, some ten minutes"},
    {.line = "frostline bench models/smollm2-135m.gguf --rows forward --lengths 512 --threads 2",
     .what = "one row"},
    {0},
};

const fl_command fl_command_bench = {
    .name = "bench",
    .summary = "measures this machine and how much of it each part of the work uses",
    .positionals = positionals,
    .flags = flags,
    .examples = examples,
    .help = "Each thread count begins with the machine's own sgemm peak and memory bandwidth; the other rows "
            "say what share of them they reach, counted on their own algorithm's arithmetic "
            "(docs/performance.md). Nothing else should run meanwhile: the last sgemm row of a thread count "
            "shows whether the machine held its speed.",
    .run = run,
};
