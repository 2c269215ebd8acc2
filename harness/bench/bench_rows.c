#include "harness/bench/bench_rows.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "harness/base/clock.h"
#include "harness/base/memory.h"
#include "harness/config/node.h"

#define SHORTEST_REPEAT 0.02 /* seconds that the work of one repeat is looped for */
#define SHORTEST_QUICK 0.001

enum { MAX_LOOPS = 100000, LABEL_BYTES = 256, YAML_BYTES = 128 };

static fl_bench_parameter *next_parameter(fl_bench_row *row, const char *name) {
    assert(row->parameter_count < FL_BENCH_MAX_PARAMETERS);
    fl_bench_parameter *parameter = &row->parameters[row->parameter_count++];
    *parameter = (fl_bench_parameter){.name = name};
    return parameter;
}

void fl_bench_add_text(fl_bench_row *row, const char *name, const char *text) {
    fl_bench_parameter *parameter = next_parameter(row, name);
    parameter->is_text = true;
    snprintf(parameter->text, sizeof parameter->text, "%s", text);
}

void fl_bench_add_number(fl_bench_row *row, const char *name, double number) {
    next_parameter(row, name)->number = number;
}

double fl_bench_now(const fl_bench *bench) {
    return bench->settings->processor_time ? fl_clock_processor_seconds() : fl_clock_seconds();
}

/* Memory. */

static void restart_high_water(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (file == NULL) return;
    fputs("5\n", file);
    fclose(file);
}

static size_t high_water(void) {
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    unsigned long long kilobytes = 0;
    if (file == NULL) return 0;
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "VmHWM: %llu kB", &kilobytes) == 1) break;
    }
    fclose(file);
    return (size_t)kilobytes * 1024;
}

/* Rows. */

static void label_of(const fl_bench_row *row, char *out, size_t bytes) {
    int used = snprintf(out, bytes, "%s %s", row->group, row->name);
    for (size_t i = 0; i < row->parameter_count && used > 0 && (size_t)used < bytes; i++) {
        const fl_bench_parameter *p = &row->parameters[i];
        used += p->is_text ? snprintf(out + used, bytes - (size_t)used, " %s=%s", p->name, p->text)
                           : snprintf(out + used, bytes - (size_t)used, " %s=%.6g", p->name, p->number);
    }
}

static void tell_beginning(const fl_bench *bench, const fl_bench_row *row) {
    char label[LABEL_BYTES];
    label_of(row, label, sizeof label);
    if (bench->listener.begins != NULL) bench->listener.begins(bench->listener.context, label);
}

static void tell_end(const fl_bench *bench, const fl_bench_row *row) {
    char label[LABEL_BYTES];
    label_of(row, label, sizeof label);
    if (bench->listener.ends != NULL) bench->listener.ends(bench->listener.context, label, row);
}

static int compare_numbers(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarise(const fl_bench *bench, fl_bench_row *row) {
    double sorted[FL_BENCH_MAX_REPEATS];
    size_t n = row->repeats;
    memcpy(sorted, row->seconds, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_numbers);
    row->minimum = sorted[0];
    row->median = n % 2 == 1 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
    row->value = row->work / row->minimum;
    row->median_value = row->work / row->median;
    if (row->flops > 0 && bench->peak > 0) row->peak_fraction = row->flops / row->minimum / bench->peak;
    if (row->bytes > 0 && bench->bandwidth > 0)
        row->memory_fraction = row->bytes / row->minimum / bench->bandwidth;
}

static fl_status keep(fl_bench *bench, const fl_bench_row *row, fl_error *error) {
    if (bench->row_count == bench->row_capacity) {
        size_t larger = bench->row_capacity == 0 ? 64 : 2 * bench->row_capacity;
        FL_TRY(FL_RESIZE(&bench->rows, bench->row_capacity, larger, error));
        bench->row_capacity = larger;
    }
    bench->rows[bench->row_count++] = *row;
    tell_end(bench, row);
    return FL_OK;
}

void fl_bench_release_rows(fl_bench *bench) {
    fl_memory_free(bench->rows);
    bench->rows = NULL;
    bench->row_count = bench->row_capacity = 0;
}

fl_status fl_bench_begin(fl_bench *bench, const fl_bench_row *row, fl_error *error) {
    const fl_bench_listener *listener = &bench->listener;
    if (listener->cancelled != NULL && listener->cancelled(listener->context))
        return fl_error_set(error, FL_ERROR_CANCELLED, "interrupted");
    tell_beginning(bench, row);
    restart_high_water();
    return FL_OK;
}

fl_status fl_bench_end(fl_bench *bench, const fl_bench_row *row, const double *seconds, size_t repeats,
                       fl_bench_row *kept, fl_error *error) {
    assert(repeats > 0 && repeats <= FL_BENCH_MAX_REPEATS);
    fl_bench_row done = *row;
    done.peak_resident_bytes = high_water();
    fl_bench_add_number(&done, "threads", (double)bench->threads);
    done.repeats = repeats;
    memcpy(done.seconds, seconds, repeats * sizeof *seconds);
    summarise(bench, &done);
    if (kept != NULL) *kept = done;
    return keep(bench, &done, error);
}

fl_status fl_bench_derive(fl_bench *bench, const fl_bench_row *row, double value, fl_error *error) {
    fl_bench_row done = *row;
    fl_bench_add_number(&done, "threads", (double)bench->threads);
    done.value = done.median_value = value;
    return keep(bench, &done, error);
}

static fl_status time_loops(const fl_bench *bench, size_t loops, fl_bench_body body, void *context,
                            double *seconds, fl_error *error) {
    double start = fl_bench_now(bench);
    for (size_t i = 0; i < loops; i++) FL_TRY(body(context, error));
    *seconds = fmax((fl_bench_now(bench) - start) / (double)loops, 1e-9);
    return FL_OK;
}

fl_status fl_bench_measure(fl_bench *bench, const fl_bench_row *row, fl_bench_body body, void *context,
                           fl_bench_row *kept, fl_error *error) {
    const fl_bench_settings *settings = bench->settings;
    double seconds[FL_BENCH_MAX_REPEATS], first = 0,
                                          shortest = settings->quick ? SHORTEST_QUICK : SHORTEST_REPEAT;
    FL_TRY(fl_bench_begin(bench, row, error));
    double start = fl_clock_seconds(), patience = (double)settings->patience;
    FL_TRY(time_loops(bench, 1, body, context, &first, error));
    if (fl_clock_seconds() - start >= patience) return fl_bench_end(bench, row, &first, 1, kept, error);
    size_t loops = (size_t)fmin(ceil(shortest / first), MAX_LOOPS), repeats = 0;
    start = fl_clock_seconds();
    do {
        FL_TRY(time_loops(bench, loops, body, context, &seconds[repeats++], error));
    } while (repeats < settings->repeats && fl_clock_seconds() - start < patience);
    return fl_bench_end(bench, row, seconds, repeats, kept, error);
}

/* What several groups need. */

fl_status fl_bench_linearise(const fl_bench *bench, const char *yaml, fl_linearised *out, fl_error *error) {
    fl_document *document = NULL;
    *out = (fl_linearised){0};
    const fl_model_config *config = &bench->work.model->config;
    FL_TRY(fl_document_parse_text(yaml, strlen(yaml), "bench", &document, error));
    fl_status status = fl_variant_bind(fl_document_root(document), NULL, &out->variant, error);
    fl_document_destroy(document);
    if (status == FL_OK) status = fl_variant_fit(out->variant, &bench->work.shape, config->layers, error);
    if (status == FL_OK)
        status =
            fl_mechanism_create(out->variant, &bench->work.shape, config->layers, &out->mechanism, error);
    if (status != FL_OK) fl_linearised_release(out);
    return status;
}

fl_status fl_bench_linearise_rule(const fl_bench *bench, const char *rule, bool exact_set, fl_linearised *out,
                                  fl_error *error) {
    char yaml[YAML_BYTES];
    snprintf(yaml, sizeof yaml, "{rule: %s, window: %d, sinks: %d}", rule, exact_set ? 56 : 0,
             exact_set ? 8 : 0);
    return fl_bench_linearise(bench, yaml, out, error);
}

const char *fl_bench_exact_set_name(bool exact_set) {
    return exact_set ? "8 + 56" : "none";
}

static size_t softmax_among(const fl_bench_names *rules) {
    size_t found = 0;
    for (size_t i = 0; i < rules->count; i++) found += strcmp(rules->names[i], "softmax") == 0;
    return found;
}

bool fl_bench_wants_softmax(const fl_bench *bench) {
    return softmax_among(&bench->settings->rules) > 0;
}

bool fl_bench_wants_linear(const fl_bench *bench) {
    return softmax_among(&bench->settings->rules) < bench->settings->rules.count;
}

const char *fl_bench_one_rule(const fl_bench *bench) {
    const fl_bench_names *rules = &bench->settings->rules;
    const char *first = NULL;
    for (size_t i = 0; i < rules->count; i++) {
        const char *name = rules->names[i];
        if (strcmp(name, "kda") == 0) return name;
        if (first == NULL && strcmp(name, "softmax") != 0) first = name;
    }
    return first != NULL ? first : "kda";
}

fl_status fl_bench_ids(const fl_bench *bench, size_t tokens, int32_t **out, fl_error *error) {
    FL_TRY(FL_ALLOCATE(out, tokens, error));
    for (size_t i = 0; i < tokens; i++) (*out)[i] = bench->ids[i % bench->id_count];
    return FL_OK;
}
