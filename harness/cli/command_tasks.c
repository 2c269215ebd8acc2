/* tasks [NAME]: what tasks exist, what file each expects and what it reports. */
#include <stdio.h>
#include <string.h>

#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/cli/help.h"
#include "harness/cli/words.h"
#include "harness/config/options.h"
#include "harness/eval/readers.h"
#include "harness/eval/retrieval.h"
#include "harness/eval/task_table.h"

enum { MAX_TASKS = 128, TEXT_BYTES = 1024 };

/* The layouts of readers.h, in a user's words. */
static const struct {
    fl_reader reader;
    const char *layout;
} layouts[] = {
    {fl_read_hendrycks,
     "MMLU's folder with dev/, val/ and test/ (or the same under data/): SUBJECT_SPLIT.csv without a header, "
     "six cells a row: question, four choices, letter. Or a JSON Lines file: question, subject, choices, "
     "answer"},
    {fl_read_arc,
     "JSON Lines as published (question.stem, question.choices[].text and .label, answerKey) or as Hugging "
     "Face exports them (question or question_stem, choices.text, choices.label, answerKey)"},
    {fl_read_piqa, "JSON Lines: goal, sol1, sol2, with label in the row or in NAME-labels.lst beside it"},
    {fl_read_winogrande,
     "JSON Lines: sentence, option1, option2, answer (1 or 2); or context_options, continuation, gold"},
    {fl_read_hellaswag, "JSON Lines: ctx_a, ctx_b, activity_label, endings, label"},
    {fl_read_truthfulqa_mc1,
     "mc_task.json (mc1_targets), or TruthfulQA.csv: Best Answer against Incorrect Answers"},
    {fl_read_truthfulqa_mc2,
     "mc_task.json (mc2_targets), or TruthfulQA.csv: Correct Answers against Incorrect Answers"},
    {fl_read_lambada, "JSON Lines: text, or context and continuation"},
    {fl_read_wikitext, "a raw WikiText file, split into its pages; or JSON Lines: page"},
    {fl_read_text, "a UTF-8 text file, taken as one document"},
    {fl_read_choices,
     "JSON Lines: question, choices (a list), answer (index from 0, or letter), optionally subject"},
};

static const char *const shot_rules[] = {
    [FL_SHOTS_NONE] = "none can be asked for: the prompt is fixed",
    [FL_SHOTS_FIRST] = "0 by default; the first ones of the pool",
    [FL_SHOTS_SAMPLED] = "0 by default; drawn from the pool with Python's generator (key seed)",
};

/* What run files hold under /tasks/NAME for tasks of a form; the size and cost of every task beside it. */
static const char *const metrics[] = {
    [FL_TASK_CHOICES] = "acc, acc_stderr, acc_macro (with several subjects)",
    [FL_TASK_TRUE_MASS] = "acc (share of probability on the true answers), acc_stderr",
    [FL_TASK_LAST_WORD] = "perplexity, perplexity_stderr (bootstrap), acc, acc_stderr",
    [FL_TASK_PAGES] = "word_perplexity, byte_perplexity, bits_per_byte, log_likelihood, words, bytes",
    [FL_TASK_TEXT] = "perplexity, perplexity_stderr, cross_entropy, scored_tokens",
    [FL_TASK_RECALL] = "acc, acc_stderr, stale (older value of the asked key), acc_length_N",
    [FL_TASK_GENERATION] = "acc, acc_stderr, acc_length_N",
};

static const char *find_layout(const fl_task_kind *kind) {
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        if (kind->reader != NULL && layouts[i].reader == kind->reader) return layouts[i].layout;
    }
    return fl_retrieval_needs_prose(kind->retrieval) ? "a UTF-8 text file in which things are hidden"
                                                     : "none: made here, from the seed";
}

static void print_fact(const char *name, const char *text) {
    int written = printf("%-10s", name);
    fl_help_wrap(stdout, 10, written > 0 ? (size_t)written : 0, text);
}

static void print_files(const fl_task_kind *kind) {
    char text[TEXT_BYTES] = "";
    size_t used = 0;
    for (size_t i = 0; kind->file_names != NULL && kind->file_names[i] != NULL && used < sizeof text; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? ", " : "", kind->file_names[i]);
    if (used > 0) print_fact("folder", text);
}

static void print_metrics(const fl_task_kind *kind) {
    char text[TEXT_BYTES];
    const bool choices = kind->form == FL_TASK_CHOICES;
    snprintf(text, sizeof text, "%s%s; n, linear_share, truncated, prompt_tokens, seconds",
             metrics[kind->form],
             !choices                  ? ""
             : kind->length_normalised ? ", acc_norm (per character), acc_bytes (per byte)"
                                       : ", choice_mass (probability of all choices together)");
    print_fact("metrics", text);
}

static void print_task(const fl_task_kind *kind) {
    printf("%s\n", kind->name);
    fl_help_wrap(stdout, 2, 0, kind->summary);
    printf("\n");
    print_fact("path", find_layout(kind));
    print_files(kind);
    print_fact("shots", shot_rules[kind->shot_rule]);
    print_metrics(kind);
    printf("\n");
    const bool made = kind->reader == NULL && !fl_retrieval_needs_prose(kind->retrieval);
    printf("config    tasks: [{name: %s%s%s}]\n", kind->name, made ? "" : ", path: PATH",
           kind->shot_rule != FL_SHOTS_NONE ? ", shots: 5" : "");
    fl_help_wrap(stdout, 0, 0,
                 "\nOther keys of a task: frostline config tasks. Is a public set complete and unaltered? "
                 "frostline data check DIR.");
}

static int refuse_task(const fl_command *command, const char *name) {
    const char *names[MAX_TASKS];
    size_t count = 0;
    for (; count < MAX_TASKS && fl_words_tasks(count) != NULL; count++) names[count] = fl_words_tasks(count);
    const char *near = fl_suggest(name, names, count);
    fl_error error;
    if (near != NULL)
        fl_error_set(&error, FL_ERROR_ARGUMENT, "there is no task \"%s\"; did you mean %s?", name, near);
    else
        fl_error_set(&error, FL_ERROR_ARGUMENT, "there is no task \"%s\"; `frostline tasks` lists them",
                     name);
    return fl_command_fail(command, &error);
}

static int run(const fl_command *command, int argc, char **argv) {
    fl_positionals names;
    int code = fl_arguments_parse(command, argc, argv, NULL, &names);
    if (code >= 0) return code;
    if (names.count == 0) {
        for (size_t i = 0; i < fl_task_kind_count(); i++)
            fl_help_entry(stdout, fl_task_kind_at(i)->name, fl_task_kind_at(i)->summary);
        return FL_EXIT_OK;
    }
    const fl_task_kind *kind = fl_task_kind_find(names.items[0]);
    if (kind == NULL) return refuse_task(command, names.items[0]);
    print_task(kind);
    return FL_EXIT_OK;
}

static const fl_positional positionals[] = {
    {.name = "NAME",
     .kind = FL_VALUE_TEXT,
     .optional = true,
     .words = fl_words_tasks,
     .help = "everything about this one"},
    {0},
};

static const fl_example examples[] = {
    {.line = "frostline tasks", .what = "the tasks there are"},
    {.line = "frostline tasks mmlu", .what = "the files it expects, its shots, its metrics"},
    {0},
};

const fl_command fl_command_tasks = {
    .name = "tasks",
    .summary = "the tasks there are; with NAME, the files one expects and what it reports",
    .positionals = positionals,
    .examples = examples,
    .run = run,
};
