#include "harness/bench/bench_report.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/base/threads.h"
#include "harness/base/build_info.h"
#include "harness/store/provenance.h"

enum { LINE_BYTES = 192, LABEL_WIDTH = 78 };

/* Table. */

static int append(char *out, size_t bytes, int used, const char *text) {
    if (used < 0 || (size_t)used >= bytes) return used;
    return used + snprintf(out + used, bytes - (size_t)used, "%s", text);
}

/* "prefill rule kda, exact_set none, tokens 512" */
static void label_of(const fl_bench_row *row, char *out, size_t bytes) {
    int used = append(out, bytes, 0, row->name);
    for (size_t i = 0; i < row->parameter_count; i++) {
        const fl_bench_parameter *p = &row->parameters[i];
        char text[2 * FL_BENCH_NAME_BYTES];
        if (strcmp(p->name, "threads") == 0) continue;
        if (p->is_text) {
            snprintf(text, sizeof text, "%s %s %s", i > 0 ? "," : "", p->name, p->text);
        } else {
            snprintf(text, sizeof text, "%s %s %.6g", i > 0 ? "," : "", p->name, p->number);
        }
        used = append(out, bytes, used, text);
    }
}

static double threads_of(const fl_bench_row *row) {
    for (size_t i = 0; i < row->parameter_count; i++) {
        if (strcmp(row->parameters[i].name, "threads") == 0) return row->parameters[i].number;
    }
    return 0;
}

static void print_percent(FILE *stream, double fraction) {
    if (fraction > 0) {
        fprintf(stream, " %7.1f %%", 100 * fraction);
    } else {
        fprintf(stream, " %9s", "");
    }
}

static void print_row(FILE *stream, const fl_bench_row *row) {
    char label[LINE_BYTES];
    label_of(row, label, sizeof label);
    fprintf(stream, "  %-*s", LABEL_WIDTH, label);
    if (row->repeats > 0) {
        fprintf(stream, " %11.4f %11.4f", 1e3 * row->minimum, 1e3 * row->median);
    } else {
        fprintf(stream, " %11s %11s", "", "");
    }
    fprintf(stream, " %10.5g %-11s", row->value, row->unit);
    print_percent(stream, row->peak_fraction);
    print_percent(stream, row->memory_fraction);
    if (row->peak_resident_bytes > 0) fprintf(stream, " %9.0f", (double)row->peak_resident_bytes / (1 << 20));
    fputc('\n', stream);
}

void fl_bench_print_table(const fl_bench *bench, FILE *stream) {
    const fl_bench_row *before = NULL;
    for (size_t i = 0; i < bench->row_count; i++) {
        const fl_bench_row *row = &bench->rows[i];
        if (before == NULL || threads_of(row) != threads_of(before) ||
            strcmp(row->group, before->group) != 0) {
            char title[LINE_BYTES];
            snprintf(title, sizeof title, "%s, %g thread%s", row->group, threads_of(row),
                     threads_of(row) == 1 ? "" : "s");
            fprintf(stream, "%s%-*s %11s %11s %22s %9s %9s %9s\n", i > 0 ? "\n" : "", LABEL_WIDTH + 2, title,
                    "min ms", "median ms", "best rate  ", "of sgemm", "of memory", "peak MiB");
        }
        print_row(stream, row);
        before = row;
    }
}

/* JSON. Every call may fail for want of memory: then the object it was for is NULL, and so is the text. */

static void add_text(cJSON *object, const char *name, const char *text) {
    if (text != NULL && text[0] != '\0') cJSON_AddStringToObject(object, name, text);
}

static void add_positive(cJSON *object, const char *name, double number) {
    if (number > 0 && isfinite(number)) cJSON_AddNumberToObject(object, name, number);
}

static void add_sizes(cJSON *object, const char *name, const fl_bench_list *list) {
    cJSON *array = cJSON_AddArrayToObject(object, name);
    for (size_t i = 0; i < list->count; i++)
        cJSON_AddItemToArray(array, cJSON_CreateNumber((double)list->values[i]));
}

static void add_names(cJSON *object, const char *name, const fl_bench_names *list) {
    cJSON *array = cJSON_AddArrayToObject(object, name);
    for (size_t i = 0; i < list->count; i++) cJSON_AddItemToArray(array, cJSON_CreateString(list->names[i]));
}

static fl_status add_machine(cJSON *root, fl_error *error) {
    fl_provenance provenance;
    FL_TRY(fl_provenance_collect(&provenance, error));
    cJSON *machine = cJSON_AddObjectToObject(root, "machine");
    add_text(machine, "processor", provenance.processor);
    add_text(machine, "operating_system", provenance.operating_system);
    fl_threads *all = NULL;
    if (fl_threads_create(0, &all, NULL) == FL_OK)
        add_positive(machine, "processors", (double)fl_threads_count(all));
    fl_threads_destroy(all);
    add_text(machine, "vector_kernels", provenance.vector_kernels);
    add_text(machine, "openblas", provenance.openblas);
    add_text(machine, "compiler", fl_build_compiler());
    add_text(machine, "compiler_flags", fl_build_flags());
    add_text(machine, "build", fl_build_config());
    add_text(machine, "revision", fl_build_revision());
    char now[FL_TIME_TEXT_BYTES];
    fl_provenance_now(now);
    add_text(machine, "time", now);
    fl_provenance_release(&provenance);
    return FL_OK;
}

static void add_settings(cJSON *root, const fl_bench_settings *settings) {
    cJSON *object = cJSON_AddObjectToObject(root, "settings");
    add_text(object, "model", settings->model);
    if (settings->model != NULL) {
        add_text(object, "text", settings->ids != NULL ? settings->ids : settings->text);
        add_text(object, "mmlu", settings->mmlu);
    }
    add_names(object, "rows", &settings->rows);
    add_names(object, "rules", &settings->rules);
    add_names(object, "subjects", &settings->subjects);
    add_sizes(object, "threads", &settings->threads);
    add_sizes(object, "lengths", &settings->lengths);
    add_sizes(object, "long_lengths", &settings->long_lengths);
    cJSON_AddNumberToObject(object, "repeats", (double)settings->repeats);
    cJSON_AddNumberToObject(object, "questions", (double)settings->questions);
    cJSON_AddNumberToObject(object, "patience", (double)settings->patience);
    cJSON_AddBoolToObject(object, "quick", settings->quick);
    add_text(object, "clock", settings->processor_time ? "processor" : "wall");
}

static cJSON *row_object(const fl_bench_row *row) {
    cJSON *object = cJSON_CreateObject();
    add_text(object, "group", row->group);
    add_text(object, "name", row->name);
    cJSON *parameters = cJSON_AddObjectToObject(object, "parameters");
    for (size_t i = 0; i < row->parameter_count; i++) {
        const fl_bench_parameter *p = &row->parameters[i];
        if (p->is_text) {
            cJSON_AddStringToObject(parameters, p->name, p->text);
        } else {
            cJSON_AddNumberToObject(parameters, p->name, p->number);
        }
    }
    add_text(object, "unit", row->unit);
    cJSON_AddNumberToObject(object, "value", row->value);
    if (row->repeats > 0) {
        cJSON_AddNumberToObject(object, "median_value", row->median_value);
        cJSON_AddItemToObject(object, "seconds", cJSON_CreateDoubleArray(row->seconds, (int)row->repeats));
        cJSON_AddNumberToObject(object, "minimum_seconds", row->minimum);
        cJSON_AddNumberToObject(object, "median_seconds", row->median);
    }
    add_positive(object, "work", row->work);
    add_positive(object, "flops", row->flops);
    add_positive(object, "fraction_of_peak", row->peak_fraction);
    add_positive(object, "bytes", row->bytes);
    add_positive(object, "fraction_of_bandwidth", row->memory_fraction);
    add_positive(object, "peak_resident_bytes", (double)row->peak_resident_bytes);
    return object;
}

fl_status fl_bench_print_json(const fl_bench *bench, FILE *stream, fl_error *error) {
    cJSON *root = cJSON_CreateObject();
    char *text = NULL;
    fl_status status = add_machine(root, error);
    if (status == FL_OK) {
        add_settings(root, bench->settings);
        cJSON *rows = cJSON_AddArrayToObject(root, "rows");
        for (size_t i = 0; i < bench->row_count; i++) cJSON_AddItemToArray(rows, row_object(&bench->rows[i]));
        text = cJSON_Print(root);
        if (text == NULL) status = fl_error_set(error, FL_ERROR_MEMORY, "bench: out of memory for JSON");
    }
    if (status == FL_OK) fprintf(stream, "%s\n", text);
    cJSON_free(text);
    cJSON_Delete(root);
    return status;
}
