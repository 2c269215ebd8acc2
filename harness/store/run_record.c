#include "harness/store/run_record.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/base/whole_number.h"
#include "harness/measure/measurements.h"

/* Room for a comparison's root before a dataset's path. */
enum { PATH_BYTES = 256 };

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static fl_status write_array(fl_run_file *file, const char *path, const fl_text_result *result,
                             const fl_measurement *row, const char *description, fl_error *error) {
    size_t shape[4] = {0};
    fl_measurement_shape(row, result, shape);
    return fl_run_file_write_doubles(file, path, strlen(row->axes), shape, fl_measurement_values(result, row),
                                     row->units, description, error);
}

static fl_status write_row(fl_run_file *file, const fl_text_result *result, const fl_measurement *row,
                           fl_error *error) {
    if (!fl_measurement_there(row, result)) return FL_OK;
    if (row->axes[0] != '\0') return write_array(file, row->path, result, row, row->description, error);
    const double value = fl_measurement_value(result, row);
    int64_t whole = 0;
    if (row->kind == FL_MEASUREMENT_COUNT && fl_integer_of_number(value, &whole))
        return fl_run_file_write_integers(file, row->path, 0, NULL, &whole, row->units, row->description,
                                          error);
    return fl_run_file_write_doubles(file, row->path, 0, NULL, &value, row->units, row->description, error);
}

fl_status fl_run_record_write_text_result(fl_run_file *file, const fl_text_result *result, fl_error *error) {
    size_t count = 0;
    const fl_measurement *rows = fl_measurements(&count);
    for (size_t i = 0; i < count; i++) FL_TRY(write_row(file, result, &rows[i], error));
    FL_TRY(fl_run_file_set_integer(file, "/", "diverged", result->diverged, error));
    return fl_run_file_set_text(file, "/", "diverged_at", result->diverged ? result->diverged_at : "", error);
}

/* Counts are float64 here, like the rest. */
static fl_status write_beside(fl_run_file *file, const char *root, const fl_text_result *result,
                              const fl_measurement *row, fl_error *error) {
    char path[PATH_BYTES];
    if (row->beside == NULL || !fl_measurement_there(row, result)) return FL_OK;
    snprintf(path, sizeof path, "%s%s", root, row->path);
    if (row->axes[0] != '\0') return write_array(file, path, result, row, row->beside, error);
    const double value = fl_measurement_value(result, row);
    return fl_run_file_write_doubles(file, path, 0, NULL, &value, row->units, row->beside, error);
}

fl_status fl_run_record_write_comparison(fl_run_file *file, const char *root, const fl_text_result *result,
                                         fl_error *error) {
    size_t count = 0;
    const fl_measurement *rows = fl_measurements(&count);
    for (size_t i = 0; i < count; i++) FL_TRY(write_beside(file, root, result, &rows[i], error));
    return FL_OK;
}

/* The first dataset with an axis says how long it is; the others must agree. */
static fl_status read_array(fl_run_reader *reader, const char *path, const fl_measurement *row,
                            fl_text_result *sizes, double **data, fl_error *error) {
    const size_t rank = strlen(row->axes);
    size_t shape[4] = {0};
    for (size_t i = 0; i < rank; i++) shape[i] = fl_measurement_extent(sizes, row->axes[i]);
    FL_TRY(fl_run_reader_array(reader, path, rank, shape, data, error));
    for (size_t i = 0; i < rank; i++) {
        size_t *size = fl_measurement_axis(sizes, row->axes[i]);
        if (size != NULL && *size == 0) *size = shape[i];
        if (fl_measurement_extent(sizes, row->axes[i]) == shape[i]) continue;
        fl_memory_free(*data);
        *data = NULL;
        return fl_run_reader_refuse(reader, path, "an axis is not of the length that runs have", error);
    }
    return FL_OK;
}

/* A figure that is not there was not measured; time that was not taken is none. False: no such count. */
static bool set_single(fl_text_result *out, const fl_measurement *row, const double *value) {
    if (row->kind == FL_MEASUREMENT_FIGURE) {
        const double absent = row->pooling == FL_POOL_SUM ? 0.0 : (double)NAN;
        *fl_measurement_figure(out, row) = value != NULL ? *value : absent;
    } else if (value != NULL) {
        return fl_size_of_number(*value, fl_measurement_count(out, row));
    }
    return true;
}

static fl_status read_row(fl_run_reader *reader, const char *root, const fl_measurement *row,
                          fl_text_result *out, fl_error *error) {
    char path[PATH_BYTES];
    double *data = NULL;
    const bool is_array = row->kind == FL_MEASUREMENT_ARRAY || row->kind == FL_MEASUREMENT_ALIAS;
    snprintf(path, sizeof path, "%s%s", root, row->path);
    const bool there = fl_run_reader_has(reader, path);
    if (is_array && (!there || fl_measurement_values(out, row) != NULL)) return FL_OK;
    if (there) FL_TRY(read_array(reader, path, row, out, &data, error));
    if (is_array) {
        *fl_measurement_array(out, row) = data;
        return FL_OK;
    }
    const bool fits = set_single(out, row, data);
    fl_memory_free(data);
    return fits ? FL_OK : fl_run_reader_refuse(reader, path, "is no count", error);
}

static fl_status read_rows(fl_run_reader *reader, const char *root, fl_text_result *out, fl_error *error) {
    size_t count = 0;
    const fl_measurement *rows = fl_measurements(&count);
    for (size_t i = 0; i < count; i++) FL_TRY(read_row(reader, root, &rows[i], out, error));
    return FL_OK;
}

static fl_status read_all(fl_run_reader *reader, fl_text_result *out, fl_error *error) {
    double diverged = 0.0;
    char *where = NULL;
    FL_TRY(read_rows(reader, "", out, error));
    FL_TRY(fl_run_reader_attribute_number(reader, "/", "diverged", &diverged, error));
    FL_TRY(fl_run_reader_attribute_text(reader, "/", "diverged_at", &where, error));
    out->diverged = diverged != 0.0;
    snprintf(out->diverged_at, sizeof out->diverged_at, "%s", where);
    fl_memory_free(where);
    return FL_OK;
}

fl_status fl_run_record_read_text_result(fl_run_reader *reader, fl_text_result *out, fl_error *error) {
    *out = (fl_text_result){0};
    fl_status status = read_all(reader, out, error);
    if (status != FL_OK) fl_text_result_release(out);
    return status;
}

fl_status fl_run_record_read_comparison(fl_run_reader *reader, const char *root, fl_text_result *out,
                                        fl_error *error) {
    size_t count = 0;
    const fl_measurement *rows = fl_measurements(&count);
    fl_status status = FL_OK;
    *out = (fl_text_result){0};
    for (size_t i = 0; i < count && status == FL_OK; i++) {
        if (rows[i].beside != NULL)
            status = read_row(reader, root, &rows[i], out, error);
        else if (rows[i].frozen)
            status = read_row(reader, "", &rows[i], out, error);
    }
    if (status != FL_OK) fl_text_result_release(out);
    return status;
}

fl_status fl_run_record_read_sequences(fl_run_reader *reader, const char *root, fl_text_result *out,
                                       fl_error *error) {
    size_t count = 0;
    const fl_measurement *rows = fl_measurements(&count);
    fl_status status = FL_OK;
    for (size_t i = 0; i < count && status == FL_OK; i++) {
        if (rows[i].axes[0] == 'S') status = read_row(reader, root, &rows[i], out, error);
    }
    if (status != FL_OK) fl_text_result_release(out);
    return status;
}

fl_status fl_run_record_write_seconds(fl_run_file *file, const char *name, double seconds,
                                      const char *description, fl_error *error) {
    char path[128];
    snprintf(path, sizeof path, "/timing/%s", name);
    return fl_run_file_write_doubles(file, path, 0, NULL, &seconds, "s", description, error);
}

fl_status fl_run_record_write_bytes(fl_run_file *file, const char *name, int64_t bytes,
                                    const char *description, fl_error *error) {
    char path[128];
    snprintf(path, sizeof path, "/memory/%s", name);
    return fl_run_file_write_integers(file, path, 0, NULL, &bytes, "B", description, error);
}

fl_status fl_run_record_write_header(fl_run_file *file, const fl_run_header *header, fl_error *error) {
    const char *const attributes[][2] = {{"format", FL_RUN_FORMAT},  {"run_id", header->run_id},
                                         {"name", header->name},     {"cell", header->cell},
                                         {"status", header->status}, {"tier", header->tier}};
    for (size_t i = 0; i < COUNT(attributes); i++) {
        const char *value = attributes[i][1] != NULL ? attributes[i][1] : "";
        FL_TRY(fl_run_file_set_text(file, "/", attributes[i][0], value, error));
    }
    return fl_run_file_set_integer(file, "/", "version", FL_RUN_VERSION, error);
}

fl_status fl_run_record_write_config(fl_run_file *file, const fl_resolved *resolved, fl_error *error) {
    char *text = NULL;
    const char **defaults = NULL;
    size_t count = fl_resolved_count(resolved), used = 0;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_resolved_text(resolved, NULL, &text, error));
    FL_TRY_DONE(status, fl_run_file_write_text(file, "/config", text, "resolved configuration, YAML", error));
    FL_TRY_DONE(status, FL_ALLOCATE(&defaults, count, error));
    for (size_t i = 0; i < count; i++) {
        const char *key = NULL;
        bool is_default = false;
        fl_resolved_at(resolved, i, &key, NULL, &is_default);
        if (is_default) defaults[used++] = key;
    }
    FL_TRY_DONE(status,
                fl_run_file_write_texts(file, "/config_defaults", used, defaults,
                                        "keys of the configuration whose value is the default", error));
done:
    fl_memory_free(defaults);
    fl_memory_free(text);
    return status;
}
