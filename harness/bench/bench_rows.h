/* Bench rows: what `frostline bench` measures with and collects.
 *
 * A row is one piece of work, run once to warm up and then repeated; every repeat's seconds are kept. Work
 * shorter than a few milliseconds is looped within a repeat. A row stops repeating once it has taken
 * `patience` seconds, and one whose first run alone took that long keeps that run as its only repeat. Rates
 * are taken from the shortest repeat and from the median one.
 *
 * FLOPs are those of the row's own algorithm (bench_flops.h), so that flops / (seconds x sgemm peak) is the
 * fraction of the roofline reached; bytes are what must be read from memory at least, for rows that memory
 * bounds. Peak and bandwidth are the machine's own, measured first in the same run with as many threads
 * (bench_machine.c).
 *
 * peak_resident_bytes: high-water mark of the process's resident memory during the row (mapped model pages
 * included; set back before the row through /proc/self/clear_refs, free memory handed back first); 0 where
 * the system does not tell. */
#ifndef FL_BENCH_ROWS_H
#define FL_BENCH_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"
#include "harness/run/linearised.h"
#include "harness/run/workbench.h"

enum {
    FL_BENCH_MAX_REPEATS = 64,
    FL_BENCH_MAX_PARAMETERS = 8,
    FL_BENCH_MAX_LIST = 32, /* entries of a list a user gives */
    FL_BENCH_NAME_BYTES = 48
};

typedef struct fl_bench_parameter {
    const char *name; /* static */
    bool is_text;
    double number;
    char text[FL_BENCH_NAME_BYTES];
} fl_bench_parameter;

typedef struct fl_bench_row {
    const char *group, *name, *unit; /* static; unit: of work / seconds, or of `value` */
    size_t parameter_count;
    fl_bench_parameter parameters[FL_BENCH_MAX_PARAMETERS];
    double work;         /* of one repeat, in the numerator of `unit` */
    double flops, bytes; /* of one repeat; 0 = not counted */
    size_t repeats;      /* 0: not measured but computed from other rows, in `value` */
    double seconds[FL_BENCH_MAX_REPEATS];
    double minimum, median;     /* of seconds */
    double value, median_value; /* work / minimum, work / median */
    double peak_fraction,
        memory_fraction; /* of sgemm peak, of bandwidth, by the minimum; 0 = does not apply */
    size_t peak_resident_bytes;
} fl_bench_row;

typedef struct fl_bench_list {
    size_t count;
    size_t values[FL_BENCH_MAX_LIST];
} fl_bench_list;

typedef struct fl_bench_names {
    size_t count;
    char names[FL_BENCH_MAX_LIST][FL_BENCH_NAME_BYTES];
} fl_bench_names;

/* What the command line asks for. */
typedef struct fl_bench_settings {
    const char *model, *text, *ids, *mmlu; /* model NULL: rows without one only */
    fl_bench_list threads, lengths, long_lengths;
    fl_bench_names rows, rules, subjects;
    size_t repeats, questions, patience; /* questions: of each subject; patience: seconds */
    bool quick, shared_only, cuda;
    bool processor_time; /* of all threads together, in place of the wall clock */
} fl_bench_settings;

/* Told of rows while they are measured. Members may be NULL. */
typedef struct fl_bench_listener {
    void (*begins)(void *context, const char *label);
    void (*ends)(void *context, const char *label, const fl_bench_row *row);
    bool (*cancelled)(void *context); /* asked before every row */
    void *context;
} fl_bench_listener;

typedef struct fl_bench {
    const fl_bench_settings *settings;
    fl_bench_listener listener;
    fl_workbench work;   /* model NULL without one */
    fl_compute *compute; /* of the current thread count; the workbench's own when there is a model */
    int32_t *ids;        /* the text's tokens; NULL without a model */
    size_t id_count;
    size_t threads;
    double peak, bandwidth; /* FLOP/s and bytes/s with that many threads; 0 = not measured yet */
    size_t row_count, row_capacity;
    fl_bench_row *rows;
} fl_bench;

void fl_bench_add_text(fl_bench_row *row, const char *name, const char *text);
void fl_bench_add_number(fl_bench_row *row, const char *name, double number);

typedef fl_status (*fl_bench_body)(void *context, fl_error *error);

/* Measures body and keeps the row, with "threads" added to its parameters. *kept, which may be NULL, is a
 * copy. FL_ERROR_CANCELLED before the next row when the listener says so. */
fl_status fl_bench_measure(fl_bench *bench, const fl_bench_row *row, fl_bench_body body, void *context,
                           fl_bench_row *kept, fl_error *error);
/* For work that times its own repeats: begins a row (memory, progress), and ends it with seconds [repeats],
 * at most FL_BENCH_MAX_REPEATS of them. */
fl_status fl_bench_begin(fl_bench *bench, const fl_bench_row *row, fl_error *error);
fl_status fl_bench_end(fl_bench *bench, const fl_bench_row *row, const double *seconds, size_t repeats,
                       fl_bench_row *kept, fl_error *error);
/* A figure computed from other rows. */
fl_status fl_bench_derive(fl_bench *bench, const fl_bench_row *row, double value, fl_error *error);
void fl_bench_release_rows(fl_bench *bench);

/* Seconds of the clock that rows are measured by. */
double fl_bench_now(const fl_bench *bench);

/* A variant written as in a config ("{rule: kda, window: 56}"), fitted to the model, and its mechanism as
 * initialised. */
fl_status fl_bench_linearise(const fl_bench *bench, const char *yaml, fl_linearised *out, fl_error *error);
/* The same of a rule, over 8 sinks and a window of 56 or over nothing. */
fl_status fl_bench_linearise_rule(const fl_bench *bench, const char *rule, bool exact_set, fl_linearised *out,
                                  fl_error *error);
const char *fl_bench_exact_set_name(bool exact_set);
/* Whether the frozen model's own rows are asked for, and those of any rule beside it. */
bool fl_bench_wants_softmax(const fl_bench *bench);
bool fl_bench_wants_linear(const fl_bench *bench);
/* The rule of groups that measure only one: kda when it is among those asked for, else the first that is
 * linear, else kda. */
const char *fl_bench_one_rule(const fl_bench *bench);

/* *out = fl_memory block of `tokens` ids: the text's own, over and over. */
fl_status fl_bench_ids(const fl_bench *bench, size_t tokens, int32_t **out, fl_error *error);

/* One group of rows a file. */
fl_status fl_bench_machine(fl_bench *bench, fl_error *error);
/* The peak once more, to show how far the machine's own speed moved meanwhile. */
fl_status fl_bench_machine_again(fl_bench *bench, fl_error *error);
fl_status fl_bench_forward(fl_bench *bench, fl_error *error);
fl_status fl_bench_length(fl_bench *bench, fl_error *error);
fl_status fl_bench_kernels(fl_bench *bench, fl_error *error);
fl_status fl_bench_variants(fl_bench *bench, fl_error *error);
fl_status fl_bench_tasks(fl_bench *bench, fl_error *error);
fl_status fl_bench_training(fl_bench *bench, fl_error *error);

#endif
