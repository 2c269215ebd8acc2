#include "analysis/export.h"

#include <math.h>
#include <string.h>

#include "analysis/npz.h"
#include "analysis/output_file.h"
#include "analysis/run_summary.h"
#include "harness/base/memory.h"
#include "harness/store/run_record.h"

const char *const fl_export_format_names[] = {"csv", "json", "npz", "tex", NULL};

enum { AXIS_NAME_BYTES = 32 };

/* A dataset of one run: numbers or, for rank 1, texts. */
typedef struct dataset {
    size_t rank, shape[4], count;
    double *numbers;
    char **texts;
    size_t text_count;
} dataset;

static void release_dataset(dataset *data) {
    fl_memory_free(data->numbers);
    for (size_t i = 0; i < data->text_count; i++) fl_memory_free(data->texts[i]);
    fl_memory_free(data->texts);
    memset(data, 0, sizeof *data);
}

static fl_status read_dataset(const fl_run_entry *run, const char *path, dataset *out, fl_error *error) {
    memset(out, 0, sizeof *out);
    fl_run_reader *reader = NULL;
    FL_TRY(fl_run_reader_open(run->path, &reader, error));
    fl_status status = fl_run_reader_doubles(reader, path, &out->numbers, &out->rank, out->shape, error);
    if (status != FL_OK && fl_run_reader_has(reader, path)) {
        status = fl_run_reader_texts(reader, path, &out->texts, &out->text_count, error);
        out->rank = 1;
        out->shape[0] = out->text_count;
    }
    fl_run_reader_close(reader);
    out->count = 1;
    for (size_t i = 0; i < out->rank; i++) out->count *= out->shape[i];
    return status;
}

/* "layer", "head", ... of a known dataset; "axis0", ... of others. */
static void axis_name(const char *path, size_t axis, char out[AXIS_NAME_BYTES]) {
    static const struct {
        char letter;
        const char *name;
    } names[] = {{'L', "layer"},    {'H', "head"}, {'N', "kv_head"}, {'P', "position"},
                 {'Q', "quantile"}, {'E', "edge"}, {'B', "bin"}};
    const char *letters = fl_run_record_axes(path);
    snprintf(out, AXIS_NAME_BYTES, "axis%zu", axis);
    if (axis >= strlen(letters)) return;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].letter == letters[axis]) snprintf(out, AXIS_NAME_BYTES, "%s", names[i].name);
    }
}

static void csv_axes(FILE *stream, const fl_run_set *set, const fl_run_entry *run) {
    fputs(run != NULL ? run->run_id : "run_id", stream);
    for (size_t i = 0; i < set->axis_count; i++) {
        const char *value =
            run != NULL ? fl_run_entry_value(run, set->axes[i]) : fl_run_set_short_key(set->axes[i]);
        fputc(',', stream);
        fl_output_csv_text(stream, value != NULL ? value : "");
    }
}

static void csv_dataset_header(FILE *stream, const fl_run_set *set, const char *path, size_t rank) {
    csv_axes(stream, set, NULL);
    for (size_t i = 0; i < rank; i++) {
        char name[AXIS_NAME_BYTES];
        axis_name(path, i, name);
        fprintf(stream, ",%s", name);
    }
    fputs(",value\n", stream);
}

static void csv_dataset_rows(FILE *stream, const fl_run_set *set, const fl_run_entry *run,
                             const dataset *data) {
    for (size_t i = 0; i < data->count; i++) {
        csv_axes(stream, set, run);
        size_t stride = data->count;
        for (size_t axis = 0, rest = i; axis < data->rank; axis++) {
            stride /= data->shape[axis];
            fprintf(stream, ",%zu", rest / stride);
            rest %= stride;
        }
        fputc(',', stream);
        if (data->texts != NULL)
            fl_output_csv_text(stream, data->texts[i]);
        else
            fl_output_exact(stream, data->numbers[i]);
        fputc('\n', stream);
    }
}

static void json_number(FILE *stream, double number) {
    if (isfinite(number))
        fl_output_exact(stream, number);
    else
        fputs("null", stream);
}

static void json_text(FILE *stream, const char *text) {
    fputc('"', stream);
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\')
            fprintf(stream, "\\%c", byte);
        else if (byte < 0x20)
            fprintf(stream, "\\u%04x", byte);
        else
            fputc(byte, stream);
    }
    fputc('"', stream);
}

/* The value of a configuration key: numbers and booleans as such, everything else as text. */
static void json_value(FILE *stream, const char *value) {
    static const char digits[] = "0123456789";
    size_t sign = value[0] == '-';
    bool number = value[sign] != '\0' && strchr(digits, value[sign]) != NULL &&
                  value[strspn(value, "-+.eE0123456789")] == '\0';
    if (number || strcmp(value, "true") == 0 || strcmp(value, "false") == 0 || strcmp(value, "null") == 0) {
        fputs(value, stream);
    } else {
        json_text(stream, value);
    }
}

static void json_run_head(FILE *stream, const fl_run_entry *run) {
    fputs("    {\"run_id\": ", stream);
    json_text(stream, run->run_id);
    fputs(", \"tier\": ", stream);
    json_text(stream, run->tier);
    fputs(", \"config\": {", stream);
    for (size_t i = 0; i < run->key_count; i++) {
        if (i > 0) fputs(", ", stream);
        json_text(stream, run->keys[i]);
        fputs(": ", stream);
        json_value(stream, run->values[i]);
    }
    fputc('}', stream);
}

/* Nested lists, opened and closed where an index of an axis starts and ends. */
static void json_array(FILE *stream, const dataset *data) {
    if (data->rank > 0 && data->count == 0) fputs("[]", stream);
    for (size_t i = 0; i < data->count; i++) {
        size_t stride = 1, opening = 0, closing = 0;
        for (size_t axis = data->rank; axis > 0; axis--) {
            stride *= data->shape[axis - 1];
            opening += i % stride == 0;
            closing += (i + 1) % stride == 0;
        }
        if (i > 0) fputs(", ", stream);
        for (size_t k = 0; k < opening; k++) fputc('[', stream);
        if (data->texts != NULL)
            json_text(stream, data->texts[i]);
        else
            json_number(stream, data->numbers[i]);
        for (size_t k = 0; k < closing; k++) fputc(']', stream);
    }
}

static fl_status write_npz(const fl_run_set *set, const dataset *data, FILE *stream, fl_error *error) {
    fl_npz_array *arrays = NULL;
    FL_TRY(FL_ALLOCATE(&arrays, set->count, error));
    fl_status status = FL_OK;
    for (size_t i = 0; i < set->count; i++) {
        arrays[i] =
            (fl_npz_array){.name = set->runs[i].run_id, .rank = data[i].rank, .data = data[i].numbers};
        memcpy(arrays[i].shape, data[i].shape, sizeof arrays[i].shape);
        if (data[i].texts != NULL) {
            status = fl_error_set(error, FL_ERROR_UNSUPPORTED,
                                  "NPZ holds numbers only; use csv or json for texts");
        }
    }
    if (status == FL_OK) status = fl_npz_write(stream, arrays, set->count, error);
    fl_memory_free(arrays);
    return status;
}

static void write_dataset(const fl_run_set *set, const char *path, const dataset *data,
                          fl_export_format format, FILE *stream) {
    if (format == FL_EXPORT_CSV) {
        csv_dataset_header(stream, set, path, data[0].rank);
        for (size_t i = 0; i < set->count; i++) csv_dataset_rows(stream, set, &set->runs[i], &data[i]);
        return;
    }
    fputs("{\"dataset\": ", stream);
    json_text(stream, path);
    fputs(", \"runs\": [\n", stream);
    for (size_t i = 0; i < set->count; i++) {
        json_run_head(stream, &set->runs[i]);
        fputs(", \"value\": ", stream);
        json_array(stream, &data[i]);
        fputs(i + 1 < set->count ? "},\n" : "}\n", stream);
    }
    fputs("]}\n", stream);
}

fl_status fl_export_dataset(const fl_run_set *set, const char *path, fl_export_format format, FILE *stream,
                            fl_error *error) {
    if (format == FL_EXPORT_TEX) {
        return fl_error_set(error, FL_ERROR_UNSUPPORTED, "tex is for tables; a dataset is csv, json or npz");
    }
    dataset *data = NULL;
    FL_TRY(FL_ALLOCATE(&data, set->count, error));
    fl_status status = FL_OK;
    for (size_t i = 0; i < set->count; i++) {
        status = read_dataset(&set->runs[i], path, &data[i], error);
        if (status == FL_OK && data[i].rank != data[0].rank) {
            status = fl_error_set(error, FL_ERROR_ARGUMENT, "%s: %s has another rank than in the other runs",
                                  set->runs[i].path, path);
        }
        if (status != FL_OK) goto done;
    }
    if (format == FL_EXPORT_NPZ)
        status = write_npz(set, data, stream, error);
    else
        write_dataset(set, path, data, format, stream);
done:
    for (size_t i = 0; i < set->count; i++) release_dataset(&data[i]);
    fl_memory_free(data);
    return status;
}

/* Columns of the summary table. */
static const struct {
    const char *name, *heading; /* heading: LaTeX */
    size_t offset;
} columns[] = {
    {"nmse", "nMSE", offsetof(fl_run_summary, nmse)},
    {"nmse_linear_off", "lin.\\ off", offsetof(fl_run_summary, off_nmse)},
    {"propagated_nmse", "prop.\\ nMSE", offsetof(fl_run_summary, propagated_nmse)},
    {"perplexity", "ppl", offsetof(fl_run_summary, perplexity)},
    {"perplexity_linear_off", "lin.\\ off", offsetof(fl_run_summary, off_perplexity)},
    {"full_perplexity", "full", offsetof(fl_run_summary, full_perplexity)},
    {"kl", "KL", offsetof(fl_run_summary, kl)},
    {"agreement", "agree", offsetof(fl_run_summary, agreement)},
    {"linear_share", "linear", offsetof(fl_run_summary, linear_share)},
    {"state_bytes", "state B", offsetof(fl_run_summary, state_bytes)},
    {"exact_bytes", "exact B", offsetof(fl_run_summary, exact_bytes)},
    {"training_loss", "loss", offsetof(fl_run_summary, training_loss)},
};
enum { COLUMN_COUNT = sizeof columns / sizeof columns[0] };

static double column_value(const fl_run_summary *summary, size_t column) {
    return *(const double *)((const char *)summary + columns[column].offset);
}

static const struct {
    const char *name;
    size_t offset;
} task_columns[] = {
    {"acc", offsetof(fl_task_summary, acc)},
    {"acc_stderr", offsetof(fl_task_summary, acc_stderr)},
    {"acc_norm", offsetof(fl_task_summary, acc_norm)},
    {"perplexity", offsetof(fl_task_summary, perplexity)},
    {"full_acc", offsetof(fl_task_summary, full_acc)},
    {"linear_off_acc", offsetof(fl_task_summary, off_acc)},
    {"minus_linear_off", offsetof(fl_task_summary, off_difference)},
    {"minus_linear_off_stderr", offsetof(fl_task_summary, off_difference_stderr)},
};
enum { TASK_COLUMN_COUNT = sizeof task_columns / sizeof task_columns[0] };

static double task_value(const fl_task_summary *task, size_t column) {
    return *(const double *)((const char *)task + task_columns[column].offset);
}

static const fl_task_summary *find_task(const fl_run_summary *summary, const char *label) {
    for (size_t i = 0; i < summary->task_count; i++) {
        if (strcmp(summary->tasks[i].label, label) == 0) return &summary->tasks[i];
    }
    return NULL;
}

/* Task columns follow the first run's tasks and those that later runs add. */
static bool is_first_with(const fl_run_summary *summaries, size_t run, size_t task) {
    for (size_t i = 0; i < run; i++) {
        if (find_task(&summaries[i], summaries[run].tasks[task].label) != NULL) return false;
    }
    return true;
}

/* Calls for every task column of the whole set; row NULL: the header. */
static void csv_tasks(FILE *stream, const fl_run_set *set, const fl_run_summary *summaries,
                      const fl_run_summary *row) {
    for (size_t i = 0; i < set->count; i++) {
        for (size_t t = 0; t < summaries[i].task_count; t++) {
            if (!is_first_with(summaries, i, t)) continue;
            const char *label = summaries[i].tasks[t].label;
            const fl_task_summary *task = row != NULL ? find_task(row, label) : NULL;
            for (size_t c = 0; c < TASK_COLUMN_COUNT; c++) {
                fputc(',', stream);
                if (row == NULL)
                    fprintf(stream, "%s.%s", label, task_columns[c].name);
                else
                    fl_output_exact(stream, task != NULL ? task_value(task, c) : NAN);
            }
        }
    }
}

static void summary_csv(FILE *stream, const fl_run_set *set, const fl_run_summary *summaries) {
    csv_axes(stream, set, NULL);
    fputs(",tier,status", stream);
    for (size_t c = 0; c < COLUMN_COUNT; c++) fprintf(stream, ",%s", columns[c].name);
    csv_tasks(stream, set, summaries, NULL);
    fputc('\n', stream);
    for (size_t i = 0; i < set->count; i++) {
        csv_axes(stream, set, &set->runs[i]);
        fprintf(stream, ",%s,%s", set->runs[i].tier, set->runs[i].status);
        for (size_t c = 0; c < COLUMN_COUNT; c++) {
            fputc(',', stream);
            fl_output_exact(stream, column_value(&summaries[i], c));
        }
        csv_tasks(stream, set, summaries, &summaries[i]);
        fputc('\n', stream);
    }
}

static void summary_json(FILE *stream, const fl_run_set *set, const fl_run_summary *summaries) {
    fputs("{\"runs\": [\n", stream);
    for (size_t i = 0; i < set->count; i++) {
        json_run_head(stream, &set->runs[i]);
        fputs(", \"status\": ", stream);
        json_text(stream, set->runs[i].status);
        for (size_t c = 0; c < COLUMN_COUNT; c++) {
            fprintf(stream, ", \"%s\": ", columns[c].name);
            json_number(stream, column_value(&summaries[i], c));
        }
        fputs(", \"tasks\": {", stream);
        for (size_t t = 0; t < summaries[i].task_count; t++) {
            if (t > 0) fputs(", ", stream);
            json_text(stream, summaries[i].tasks[t].label);
            for (size_t c = 0; c < TASK_COLUMN_COUNT; c++) {
                fprintf(stream, "%s\"%s\": ", c == 0 ? ": {" : ", ", task_columns[c].name);
                json_number(stream, task_value(&summaries[i].tasks[t], c));
            }
            fputc('}', stream);
        }
        fputs(i + 1 < set->count ? "}},\n" : "}}\n", stream);
    }
    fputs("]}\n", stream);
}

static void tex_text(FILE *stream, const char *text) {
    for (; *text != '\0'; text++) {
        if (strchr("&%$#_{}", *text) != NULL) fputc('\\', stream);
        if (strchr("\\^~", *text) != NULL)
            fputs(*text == '\\' ? "\\textbackslash{}" : "\\textasciitilde{}", stream);
        else
            fputc(*text, stream);
    }
}

static void tex_number(FILE *stream, double value) {
    if (isnan(value))
        fputs("--", stream);
    else if (isinf(value))
        fputs("$\\infty$", stream);
    else if (value != 0 && (fabs(value) >= 1e5 || fabs(value) < 1e-4))
        fprintf(stream, "%.2e", value);
    else
        fprintf(stream, "%.4g", value);
}

/* Columns that no run has are left out. */
static void summary_tex(FILE *stream, const fl_run_set *set, const fl_run_summary *summaries) {
    bool used[COLUMN_COUNT] = {false};
    for (size_t c = 0; c < COLUMN_COUNT; c++) {
        for (size_t i = 0; i < set->count; i++) used[c] = used[c] || !isnan(column_value(&summaries[i], c));
    }
    fputs("\\begin{tabular}{ll", stream);
    for (size_t c = 0; c < COLUMN_COUNT; c++) fputs(used[c] ? "r" : "", stream);
    fputs("}\n\\toprule\nrun & tier", stream);
    for (size_t c = 0; c < COLUMN_COUNT; c++) {
        if (used[c]) fprintf(stream, " & %s", columns[c].heading);
    }
    fputs(" \\\\\n\\midrule\n", stream);
    for (size_t i = 0; i < set->count; i++) {
        tex_text(stream, set->runs[i].label);
        fprintf(stream, " & %s", set->runs[i].tier);
        for (size_t c = 0; c < COLUMN_COUNT; c++) {
            if (!used[c]) continue;
            fputs(" & ", stream);
            tex_number(stream, column_value(&summaries[i], c));
        }
        fputs(" \\\\\n", stream);
    }
    fputs("\\bottomrule\n\\end{tabular}\n", stream);
}

fl_status fl_export_summary(const fl_run_set *set, fl_export_format format, FILE *stream, fl_error *error) {
    if (format == FL_EXPORT_NPZ) {
        return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                            "npz is for one dataset; a table is csv, json or tex");
    }
    fl_run_summary *summaries = NULL;
    FL_TRY(FL_ALLOCATE(&summaries, set->count, error));
    fl_status status = FL_OK;
    for (size_t i = 0; i < set->count; i++) {
        FL_TRY_DONE(status, fl_run_summary_read(set->runs[i].path, &summaries[i], error));
    }
    if (format == FL_EXPORT_CSV)
        summary_csv(stream, set, summaries);
    else if (format == FL_EXPORT_JSON)
        summary_json(stream, set, summaries);
    else
        summary_tex(stream, set, summaries);
done:
    for (size_t i = 0; i < set->count; i++) fl_run_summary_release(&summaries[i]);
    fl_memory_free(summaries);
    return status;
}

/* Columns of the tidy table: [L][P], or [L][heads][P] whose mean over heads is taken. */
static const struct {
    const char *name, *path;
} tidy_columns[] = {
    {"nmse", "/errors/teacher_forced/position_nmse"},
    {"propagated_attention_nmse", "/errors/propagated/attention_position_nmse"},
    {"propagated_residual_nmse", "/errors/propagated/residual_position_nmse"},
    {"key_concentration", "/diagnostics/key_concentration"},
    {"projection_residual", "/diagnostics/projection_residual"},
    {"state_norm", "/diagnostics/state_norm"},
};
enum { TIDY_COUNT = sizeof tidy_columns / sizeof tidy_columns[0] };

static double tidy_value(const dataset *data, size_t layer, size_t position) {
    if (data->numbers == NULL || data->rank < 2) return NAN;
    size_t positions = data->shape[data->rank - 1], heads = data->rank == 3 ? data->shape[1] : 1;
    if (layer >= data->shape[0] || position >= positions) return NAN;
    double sum = 0;
    for (size_t h = 0; h < heads; h++) sum += data->numbers[(layer * heads + h) * positions + position];
    return sum / (double)heads;
}

static void tidy_rows(FILE *stream, const fl_run_set *set, const fl_run_entry *run,
                      const dataset data[TIDY_COUNT]) {
    size_t layers = 0, positions = 0;
    for (size_t c = 0; c < TIDY_COUNT; c++) {
        if (data[c].numbers == NULL || data[c].rank < 2) continue;
        layers = data[c].shape[0];
        positions = data[c].shape[data[c].rank - 1];
    }
    for (size_t l = 0; l < layers; l++) {
        for (size_t p = 0; p < positions; p++) {
            csv_axes(stream, set, run);
            fprintf(stream, ",%s,%zu,%zu", run->tier, l, p);
            for (size_t c = 0; c < TIDY_COUNT; c++) {
                fputc(',', stream);
                fl_output_exact(stream, tidy_value(&data[c], l, p));
            }
            fputc('\n', stream);
        }
    }
}

static fl_status tidy_run(FILE *stream, const fl_run_set *set, const fl_run_entry *run, fl_error *error) {
    fl_run_reader *reader = NULL;
    dataset data[TIDY_COUNT] = {{0}};
    FL_TRY(fl_run_reader_open(run->path, &reader, error));
    fl_status status = FL_OK;
    for (size_t c = 0; status == FL_OK && c < TIDY_COUNT; c++) {
        if (!fl_run_reader_has(reader, tidy_columns[c].path)) continue;
        status = fl_run_reader_doubles(reader, tidy_columns[c].path, &data[c].numbers, &data[c].rank,
                                       data[c].shape, error);
    }
    fl_run_reader_close(reader);
    if (status == FL_OK) tidy_rows(stream, set, run, data);
    for (size_t c = 0; c < TIDY_COUNT; c++) release_dataset(&data[c]);
    return status;
}

fl_status fl_export_tidy(const fl_run_set *set, FILE *stream, fl_error *error) {
    csv_axes(stream, set, NULL);
    fputs(",tier,layer,position", stream);
    for (size_t c = 0; c < TIDY_COUNT; c++) fprintf(stream, ",%s", tidy_columns[c].name);
    fputc('\n', stream);
    for (size_t i = 0; i < set->count; i++) FL_TRY(tidy_run(stream, set, &set->runs[i], error));
    return FL_OK;
}
