/* plan CONFIG: what `run` would do, without doing it. */
#include <stdio.h>

#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/cli/cell_list.h"

static const char *const state_names[] = {
    [FL_CELL_PENDING] = "to do",  [FL_CELL_DONE] = "done",     [FL_CELL_COMPUTED] = "done",
    [FL_CELL_DUPLICATE] = "same", [FL_CELL_FAILED] = "failed", [FL_CELL_ELSEWHERE] = "running",
};

static void print_group(const fl_cell_list *list, size_t index, const fl_cell_group *group) {
    size_t tokens = group->text.tokens, sequences = group->text.sequences.count;
    for (size_t i = 0; i < list->count; i++) {
        const fl_cell_work *cell = &list->cells[i];
        if (cell->group != index) continue;
        printf("%-12s  %-7s  %5zu x %-7zu  %s\n", cell->run_id,
               cell->stale ? "stale" : state_names[cell->state], sequences,
               sequences > 0 ? tokens / sequences : 0, cell->label);
        if (cell->state == FL_CELL_FAILED && cell->message != NULL) printf("%14s%s\n", "", cell->message);
    }
}

static void plan_group(fl_cell_list *list, size_t index) {
    fl_cell_group group;
    fl_error error;
    if (fl_cell_group_open(list, index, &group, &error) == FL_OK) {
        print_group(list, index, &group);
        fl_cell_group_close(list, index, &group);
        return;
    }
    fl_cell_group_fail(list, index, &error);
    print_group(list, index, &(fl_cell_group){0});
}

static void print_counts(const fl_cell_list *list) {
    printf("\n%zu cells: %zu to do, %zu done, %zu cannot be run", list->count,
           fl_cell_list_count(list, FL_CELL_PENDING), fl_cell_list_count(list, FL_CELL_DONE),
           fl_cell_list_count(list, FL_CELL_FAILED));
    size_t same = list->experiments->duplicates + fl_cell_list_count(list, FL_CELL_DUPLICATE);
    if (same > 0) printf(", %zu the same as another", same);
    printf("; %zu frozen pass%s over a text\n", list->groups, list->groups == 1 ? "" : "es");
}

static int run(const fl_command *command, int argc, char **argv) {
    const char *out = "results";
    const fl_flag flags[] = {
        {"--out", "DIR", &out, NULL, NULL, "where the run files would go (default: results)"}};
    fl_positionals arguments;
    int code = fl_arguments_parse(command, argc, argv, flags, 1, 1, (size_t)argc, &arguments);
    if (code >= 0) return code;
    fl_cell_list *list = NULL;
    fl_error error;
    if (fl_cell_list_load(arguments.items[0], arguments.items + 1, arguments.count - 1, out, &list, &error) !=
        FL_OK) {
        return fl_command_fail(command, &error);
    }
    printf("%-12s  %-7s  %-15s  %s\n", "run id", "state", "sequences", "cell");
    for (size_t i = 0; i < list->groups; i++) plan_group(list, i);
    print_counts(list);
    code = fl_cell_list_count(list, FL_CELL_FAILED) > 0 ? FL_EXIT_FAILURE : FL_EXIT_OK;
    fl_cell_list_destroy(list);
    return code;
}

const fl_command fl_command_plan = {
    .name = "plan",
    .arguments = "CONFIG [key=value ...] [--out DIR]",
    .summary = "dry run: cells, run ids, which are done",
    .help = NULL,
    .run = run,
};
