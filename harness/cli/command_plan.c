/* plan CONFIG: what `run` would do, without doing it; or a Slurm job that does it. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "harness/cli/arguments.h"
#include "harness/run/cell_list.h"
#include "harness/run/cell_warnings.h"
#include "harness/cli/command.h"
#include "harness/run/plan_estimate.h"
#include "harness/cli/positionals.h"
#include "harness/run/slurm_script.h"

static const char *const state_names[] = {
    [FL_CELL_PENDING] = "missing", [FL_CELL_DONE] = "done",     [FL_CELL_COMPUTED] = "done",
    [FL_CELL_DUPLICATE] = "same",  [FL_CELL_FAILED] = "failed", [FL_CELL_ELSEWHERE] = "running",
};

static const char *state_of(const fl_cell_work *cell) {
    if (cell->again) return "changed";
    return cell->stale ? "stale" : state_names[cell->state];
}

static void print_unused(const fl_experiment *experiment) {
    for (size_t i = 0; i < experiment->unused_count; i++)
        printf("%s%s", i == 0 ? "  (unused: " : ", ", experiment->unused[i]);
    if (experiment->unused_count > 0) putchar(')');
}

static void print_group(const fl_cell_list *list, size_t index, const fl_cell_group *group) {
    size_t tokens = group->text.tokens, sequences = group->text.sequences.count;
    for (size_t i = 0; i < list->count; i++) {
        const fl_cell_work *cell = &list->cells[i];
        if (cell->group != index) continue;
        printf("%-12s  %-7s  %5zu x %-7zu  %s", cell->run_id, state_of(cell), sequences,
               sequences > 0 ? tokens / sequences : 0, cell->label);
        if (cell->changed != NULL) printf("  (changed: %s)", cell->changed);
        print_unused(cell->experiment);
        putchar('\n');
        if (cell->state == FL_CELL_FAILED && cell->message != NULL) printf("%14s%s\n", "", cell->message);
    }
}

static void plan_group(fl_cell_list *list, size_t index, bool print, fl_plan_estimate *estimate) {
    fl_cell_group group;
    fl_error error;
    if (fl_cell_group_open(list, index, &group, &error) == FL_OK) {
        fl_command_note(group.bench.model->path, group.bench.model->note);
        if (print) print_group(list, index, &group);
        fl_plan_estimate_add(estimate, list, index, &group);
        fl_cell_group_close(list, index, &group);
        return;
    }
    fl_cell_group_fail(list, index, &error);
    if (print) print_group(list, index, &(fl_cell_group){0});
}

static void print_count(size_t count, const char *what) {
    if (count > 0) printf(", %zu %s", count, what);
}

static void print_counts(const fl_cell_list *list) {
    size_t stale = 0, again = 0;
    for (size_t i = 0; i < list->count; i++) {
        stale += list->cells[i].stale;
        again += list->cells[i].again;
    }
    printf("\n%zu cells: %zu to do, %zu done", list->count, fl_cell_list_count(list, FL_CELL_PENDING),
           fl_cell_list_count(list, FL_CELL_DONE));
    print_count(stale, "of those to do begun by a process that is gone");
    print_count(again, "of those to do measured before, by other code");
    print_count(fl_cell_list_count(list, FL_CELL_ELSEWHERE), "running");
    print_count(fl_cell_list_count(list, FL_CELL_FAILED), "failed or impossible");
    print_count(list->experiments->duplicates + fl_cell_list_count(list, FL_CELL_DUPLICATE),
                "the same as another");
    print_count(list->experiments->excluded, "excluded");
    printf("; %zu frozen pass%s over a text\n", list->groups, list->groups == 1 ? "" : "es");
}

static void print_duration(double seconds) {
    if (seconds < 90)
        printf("%.0f s", ceil(seconds));
    else if (seconds < 5400)
        printf("%.0f min", seconds / 60);
    else
        printf("%.1f h", seconds / 3600);
}

static fl_status print_estimate(const fl_plan_estimate *estimate, size_t threads, fl_error *error) {
    double seconds = 0;
    if (estimate->recorded + estimate->worked_out == 0) return FL_OK;
    FL_TRY(fl_plan_estimate_seconds(estimate, threads, &seconds, error));
    printf("about ");
    print_duration(seconds);
    double mebibytes = estimate->bytes / (1024.0 * 1024);
    printf(" for one worker here (%s), %.*f %s of memory%s\n",
           estimate->worked_out == 0 ? "from the cells done"
                                     : "from the sizes and this machine's speed: rough",
           mebibytes < 1024 ? 0 : 1, mebibytes < 1024 ? ceil(mebibytes) : mebibytes / 1024,
           mebibytes < 1024 ? "MiB" : "GiB",
           estimate->without_tasks ? "; tasks whose data cannot be read are not counted" : "");
    return FL_OK;
}

typedef struct plan_flags {
    const char *out;
    size_t threads, array;
    bool slurm, keep_older;
} plan_flags;

static fl_status plan(fl_cell_list *list, const fl_positionals *arguments, const plan_flags *given,
                      fl_error *error) {
    fl_plan_estimate estimate = {0};
    if (!given->slurm) printf("%-12s  %-7s  %-15s  %s\n", "run id", "state", "sequences", "cell");
    for (size_t i = 0; i < list->groups; i++) plan_group(list, i, !given->slurm, &estimate);
    if (!given->slurm) {
        print_counts(list);
        FL_TRY(fl_cell_warnings_print(stdout, list, error));
        return print_estimate(&estimate, given->threads, error);
    }
    const fl_slurm_script script = {.name = list->cells[0].experiment->name,
                                    .config = arguments->items[0],
                                    .out = given->out,
                                    .overrides = arguments->items + 1,
                                    .override_count = arguments->count - 1,
                                    .cells = fl_cell_list_count(list, FL_CELL_PENDING),
                                    .tasks = given->array,
                                    .keep_older = given->keep_older,
                                    .cpus = given->threads};
    fl_slurm_script_write(stdout, &script);
    return FL_OK;
}

/* Cells that are known not to work, on standard error when standard output is a script. */
static void warn(const fl_command *command, const fl_cell_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        const fl_cell_work *cell = &list->cells[i];
        if (cell->state != FL_CELL_FAILED) continue;
        fprintf(stderr, "frostline %s: %s: %s\n", command->name, cell->label,
                cell->message != NULL ? cell->message : "out of memory");
    }
}

static int run(const fl_command *command, int argc, char **argv) {
    plan_flags given = {.out = "results"};
    fl_positionals arguments;
    int code = fl_arguments_parse(command, argc, argv, &given, &arguments);
    if (code >= 0) return code;
    if (given.array > 0 && !given.slurm) return fl_arguments_refuse(command, "--array belongs to --slurm");
    fl_cell_list *list = NULL;
    fl_error error;
    if (fl_cell_list_load(arguments.items[0], arguments.items + 1, arguments.count - 1, given.out, &list,
                          &error) != FL_OK) {
        return fl_command_fail(command, &error);
    }
    list->outline = true;
    list->keep_older = given.keep_older;
    fl_status status = plan(list, &arguments, &given, &error);
    if (given.slurm) warn(command, list);
    code = fl_cell_list_count(list, FL_CELL_FAILED) > 0 ? FL_EXIT_FAILURE : FL_EXIT_OK;
    fl_cell_list_destroy(list);
    return status == FL_OK ? code : fl_command_fail(command, &error);
}

static const fl_flag flags[] = {
    {.name = "--out",
     .value = "DIR",
     .kind = FL_VALUE_FOLDER,
     .offset = offsetof(plan_flags, out),
     .help = "where the run files would go (default: results)"},
    {.name = "--threads",
     .value = "N",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(plan_flags, threads),
     .help = "of a worker, for the estimate and the script"},
    {.name = "--slurm", .offset = offsetof(plan_flags, slurm), .help = "print a job array script instead"},
    {.name = "--array",
     .value = "N",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(plan_flags, array),
     .help = "workers of the job array (default: at most 8)"},
    {.name = "--keep-older",
     .offset = offsetof(plan_flags, keep_older),
     .help = "results that other code has made count as done"},
    {0},
};

static const fl_example examples[] = {
    {.line = "frostline plan configs/quickstart.yaml --out results/quickstart",
     .what = "what is there, what is missing, how long it will take"},
    {.line = "frostline plan my.yaml --slurm --array 4 --threads 8 > job.sh", .what = "then: sbatch job.sh"},
    {0},
};

const fl_command fl_command_plan = {
    .name = "plan",
    .summary = "dry run: cells, run ids, what is done, time and memory; or a Slurm script",
    .positionals = fl_positionals_sweep,
    .flags = flags,
    .examples = examples,
    .help = "States: missing, running (by another process), stale (its process is gone), failed, done, "
            "changed (measured, by other code: `run` measures it anew), same (as another cell).\n"
            "--slurm prints a job array of workers that share the cells.",
    .run = run,
};
