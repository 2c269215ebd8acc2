/* Reading run files back (declared in run_file.h). The file may be anybody's: every type, rank and size is
 * checked. */
#include <hdf5.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/base/child.h"
#include "harness/base/memory.h"
#include "harness/store/hdf5_error.h"
#include "harness/store/run_file.h"

enum { MAX_RANK = 4, SHAPE_BYTES = 128 };
static const size_t max_elements = (size_t)1 << 31; /* 16 GiB of float64 */

/* Deflate packs at most 1032 bytes into one. */
static const size_t max_expansion = 1100;

/* Of a trial reading: seconds it may take, and the largest array that is read. */
enum { TRIAL_SECONDS = 120, TRIAL_BYTES = 16 << 20 };

struct fl_run_reader {
    hid_t file;
    size_t bytes; /* of the file */
    char *name;
};

/* *list: the caller's to close, after it has asked for HDF5's reasons. */
static hid_t open_file(const char *path, hid_t *list) {
    *list = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fclose_degree(*list, H5F_CLOSE_STRONG);
    return H5Fopen(path, H5F_ACC_RDONLY, *list);
}

void fl_run_reader_close(fl_run_reader *reader) {
    if (reader == NULL) return;
    H5Fclose(reader->file);
    fl_memory_free(reader->name);
    fl_memory_free(reader);
}

/* Run files have hard links only: others may lead into any file that the reader can open. */
static bool is_own_link(hid_t file, const char *path) {
    H5L_info_t info;
    return H5Lexists(file, path, H5P_DEFAULT) > 0 && H5Lget_info(file, path, &info, H5P_DEFAULT) >= 0 &&
           info.type == H5L_TYPE_HARD;
}

int fl_run_reader_has(fl_run_reader *reader, const char *path) {
    if (strcmp(path, "/") == 0) return 1;
    char part[1024];
    size_t bytes = strlen(path);
    if (bytes == 0 || bytes >= sizeof part || path[0] != '/') return 0;
    for (size_t i = 1; i <= bytes; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (!is_own_link(reader->file, part)) return 0;
    }
    return H5Oexists_by_name(reader->file, path, H5P_DEFAULT) > 0;
}

static fl_status failed(const fl_run_reader *reader, const char *path, const char *verb, fl_error *error) {
    return fl_hdf5_error(error, FL_ERROR_FORMAT, reader->name, path, verb);
}

fl_status fl_run_reader_refuse(const fl_run_reader *reader, const char *path, const char *what,
                               fl_error *error) {
    return fl_error_set(error, FL_ERROR_FORMAT, "%s: %s: %s", reader->name, path, what);
}

static bool has_known_filters(hid_t creation) {
    int count = H5Pget_nfilters(creation);
    for (int i = 0; i < count; i++) {
        unsigned flags = 0, setting = 0;
        size_t values = 0;
        H5Z_filter_t filter = H5Pget_filter2(creation, (unsigned)i, &flags, &values, NULL, 0, NULL, &setting);
        if (filter != H5Z_FILTER_DEFLATE && filter != H5Z_FILTER_SHUFFLE && filter != H5Z_FILTER_FLETCHER32)
            return false;
    }
    return count >= 0;
}

/* Whether the values can have come out of what the file stores for them. */
static bool is_covered(const fl_run_reader *reader, hid_t dataset) {
    hid_t space = H5Dget_space(dataset), type = H5Dget_type(dataset);
    hssize_t elements = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
    size_t width = type >= 0 ? H5Tget_size(type) : 0;
    hsize_t stored = H5Dget_storage_size(dataset);
    fl_hdf5_close(type);
    fl_hdf5_close(space);
    if (elements <= 0) return elements == 0;
    size_t most = stored < reader->bytes ? (size_t)stored : reader->bytes;
    return width > 0 && (size_t)elements <= most * max_expansion / width;
}

/* Values lie in the file itself, packed by filters that run files have. */
static fl_status check_storage(const fl_run_reader *reader, const char *path, hid_t dataset,
                               fl_error *error) {
    hid_t creation = H5Dget_create_plist(dataset);
    const char *fault = NULL;
    if (creation < 0)
        fault = "cannot say how it is stored";
    else if (H5Pget_layout(creation) == H5D_VIRTUAL || H5Pget_external_count(creation) != 0)
        fault = "its values lie in another file, which is not followed";
    else if (!has_known_filters(creation))
        fault = "it is packed by a filter that run files do not have";
    else if (!is_covered(reader, dataset))
        fault = "its shape says more values than the file can hold";
    fl_hdf5_close(creation);
    return fault == NULL ? FL_OK : fl_run_reader_refuse(reader, path, fault, error);
}

/* What dataset and attribute have in common. */
typedef herr_t (*read_call)(hid_t id, hid_t type, void *out);

static herr_t read_dataset(hid_t id, hid_t type, void *out) {
    return H5Dread(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out);
}

static herr_t read_attribute(hid_t id, hid_t type, void *out) {
    return H5Aread(id, type, out);
}

/* HDF5 itself can crash on a damaged file (its fuzzers find new cases every year), which no check of ours can
 * come before. So a child process opens every object and reads it: what ends that process would have ended
 * this one. */
static void read_whole(hid_t id, hid_t type, hid_t space, read_call read_values) {
    hssize_t elements = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
    size_t width = type >= 0 ? H5Tget_size(type) : 0;
    void *room = NULL;
    if (elements > 0 && width > 0 && (size_t)elements <= TRIAL_BYTES / width &&
        fl_memory_allocate(&room, (size_t)elements, width, NULL) == FL_OK)
        read_values(id, type, room);
    fl_memory_free(room);
    fl_hdf5_close(space);
    fl_hdf5_close(type);
}

static herr_t try_attribute(hid_t object, const char *name, const H5A_info_t *info, void *context) {
    (void)info, (void)context;
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    if (attribute >= 0)
        read_whole(attribute, H5Aget_type(attribute), H5Aget_space(attribute), read_attribute);
    fl_hdf5_close(attribute);
    return 0;
}

static herr_t try_object(hid_t group, const char *name, const H5O_info_t *info, void *context) {
    hid_t object = H5Oopen(group, name, H5P_DEFAULT);
    if (object < 0) return 0;
    H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, try_attribute, NULL);
    if (info->type == H5O_TYPE_DATASET && check_storage(context, name, object, NULL) == FL_OK)
        read_whole(object, H5Dget_type(object), H5Dget_space(object), read_dataset);
    H5Oclose(object);
    return 0;
}

static void read_everything(void *context) {
    fl_run_reader *reader = context;
    hid_t list, file = open_file(reader->name, &list);
    if (file < 0) return;
    H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_NATIVE, try_object, reader, H5O_INFO_BASIC);
    H5Fclose(file);
}

/* Files that this thread has tried: a report opens each many times. */
enum { TRIED_FILES = 256 };
static _Thread_local struct stat tried[TRIED_FILES];
static _Thread_local size_t tried_count;

static bool is_tried(const struct stat *file) {
    size_t known = tried_count < TRIED_FILES ? tried_count : TRIED_FILES;
    for (size_t i = 0; i < known; i++) {
        const struct stat *t = &tried[i];
        if (t->st_dev == file->st_dev && t->st_ino == file->st_ino && t->st_size == file->st_size &&
            t->st_mtim.tv_sec == file->st_mtim.tv_sec && t->st_mtim.tv_nsec == file->st_mtim.tv_nsec &&
            t->st_ctim.tv_sec == file->st_ctim.tv_sec && t->st_ctim.tv_nsec == file->st_ctim.tv_nsec)
            return true;
    }
    return false;
}

static fl_status try_reading(fl_run_reader *reader, const struct stat *file, fl_error *error) {
    if (is_tried(file)) return FL_OK;
    int ended_by = fl_child_signal(read_everything, reader, TRIAL_SECONDS);
    if (ended_by == 0) tried[tried_count++ % TRIED_FILES] = *file;
    if (ended_by == 0 || ended_by == SIGINT || ended_by == SIGTERM) return FL_OK;
    return fl_error_set(error, FL_ERROR_FORMAT, "%s: the file is damaged: %s when it is read", reader->name,
                        ended_by == SIGALRM ? "HDF5 comes to no end" : "HDF5 crashes");
}

fl_status fl_run_reader_open(const char *path, fl_run_reader **out, fl_error *error) {
    *out = NULL;
    fl_hdf5_be_silent();
    struct stat found;
    if (access(path, R_OK) != 0 || stat(path, &found) != 0)
        return fl_error_set(error, FL_ERROR_IO, "%s: cannot be read, or is not there", path);
    fl_run_reader *reader = NULL;
    FL_TRY(FL_ALLOCATE(&reader, 1, error));
    reader->bytes = (size_t)found.st_size;
    fl_status status = fl_memory_copy_string(&reader->name, path, error);
    if (status == FL_OK) status = try_reading(reader, &found, error);
    hid_t list = H5I_INVALID_HID;
    if (status == FL_OK) {
        reader->file = open_file(path, &list);
        if (reader->file < 0) status = fl_hdf5_error(error, FL_ERROR_FORMAT, path, NULL, "open");
    }
    fl_hdf5_close(list);
    if (status != FL_OK) {
        fl_memory_free(reader->name);
        fl_memory_free(reader);
        return status;
    }
    *out = reader;
    return FL_OK;
}

static fl_status open_dataset(fl_run_reader *reader, const char *path, hid_t *dataset, fl_error *error) {
    if (!fl_run_reader_has(reader, path)) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: there is no %s", reader->name, path);
    }
    *dataset = H5Dopen2(reader->file, path, H5P_DEFAULT);
    if (*dataset < 0) return failed(reader, path, "open the dataset", error);
    fl_status status = check_storage(reader, path, *dataset, error);
    if (status != FL_OK) {
        fl_hdf5_close(*dataset);
        *dataset = H5I_INVALID_HID;
    }
    return status;
}

/* Rank, shape and number of elements, at most `limit`; shape has room for MAX_RANK. */
static fl_status measure_space(const fl_run_reader *reader, const char *path, hid_t space, size_t limit,
                               size_t *rank, size_t *shape, size_t *elements, fl_error *error) {
    int dimensions = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;
    if (dimensions < 0 || H5Sget_simple_extent_type(space) == H5S_NULL)
        return fl_run_reader_refuse(reader, path, "holds no values", error);
    if (dimensions > MAX_RANK) return fl_run_reader_refuse(reader, path, "has more than 4 axes", error);
    hsize_t sizes[MAX_RANK] = {0};
    H5Sget_simple_extent_dims(space, sizes, NULL);
    *rank = (size_t)dimensions;
    *elements = 1;
    for (size_t i = 0; i < *rank; i++) {
        shape[i] = (size_t)sizes[i];
        if (shape[i] > 0 && *elements > limit / shape[i])
            return fl_run_reader_refuse(reader, path, "is too large to be read", error);
        *elements *= shape[i];
    }
    return FL_OK;
}

static bool is_number(hid_t type) {
    H5T_class_t class = H5Tget_class(type);
    return class == H5T_FLOAT || class == H5T_INTEGER;
}

fl_status fl_run_reader_doubles(fl_run_reader *reader, const char *path, double **data, size_t *rank,
                                size_t shape[4], fl_error *error) {
    *data = NULL;
    hid_t dataset = H5I_INVALID_HID;
    FL_TRY(open_dataset(reader, path, &dataset, error));
    hid_t space = H5Dget_space(dataset), type = H5Dget_type(dataset);
    double *values = NULL;
    size_t elements = 0, axes = 0, sizes[MAX_RANK] = {0};
    fl_status status = FL_OK;
    if (!is_number(type)) {
        status = fl_run_reader_refuse(reader, path, "does not hold numbers", error);
        goto done;
    }
    FL_TRY_DONE(status, measure_space(reader, path, space, max_elements, &axes, sizes, &elements, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&values, elements, error));
    if (elements > 0 && H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0) {
        status = failed(reader, path, "read", error);
        goto done;
    }
    *data = values;
    values = NULL;
    if (rank != NULL) *rank = axes;
    if (shape != NULL) memcpy(shape, sizes, sizeof sizes);
done:
    fl_memory_free(values);
    fl_hdf5_close(type);
    fl_hdf5_close(space);
    fl_hdf5_close(dataset);
    return status;
}

/* "[4][16]", "[4][*]" with a star for a length that is not known; "a single value". */
static void describe_shape(size_t rank, const size_t *shape, char *out, size_t bytes) {
    size_t used = 0;
    if (rank == 0) snprintf(out, bytes, "a single value");
    for (size_t i = 0; i < rank && used < bytes; i++) {
        const int made = shape[i] > 0 ? snprintf(out + used, bytes - used, "[%zu]", shape[i])
                                      : snprintf(out + used, bytes - used, "[*]");
        used += made > 0 ? (size_t)made : 0;
    }
}

static fl_status check_shape(const fl_run_reader *reader, const char *path, size_t rank, size_t *shape,
                             size_t own_rank, const size_t own[MAX_RANK], fl_error *error) {
    char wanted[SHAPE_BYTES], found[SHAPE_BYTES];
    bool fits = own_rank == rank;
    for (size_t i = 0; fits && i < rank; i++) fits = own[i] > 0 && (shape[i] == 0 || shape[i] == own[i]);
    if (fits) {
        if (rank > 0) memcpy(shape, own, rank * sizeof shape[0]);
        return FL_OK;
    }
    for (size_t i = 0; i < own_rank; i++) {
        if (own[i] == 0) return fl_run_reader_refuse(reader, path, "has no entries", error);
    }
    describe_shape(rank, shape, wanted, sizeof wanted);
    describe_shape(own_rank, own, found, sizeof found);
    return fl_error_set(error, FL_ERROR_FORMAT, "%s: %s: is %s, not %s as the file's other datasets say",
                        reader->name, path, found, wanted);
}

fl_status fl_run_reader_array(fl_run_reader *reader, const char *path, size_t rank, size_t *shape,
                              double **data, fl_error *error) {
    double *values = NULL;
    size_t own_rank = 0, own[MAX_RANK] = {0};
    *data = NULL;
    FL_TRY(fl_run_reader_doubles(reader, path, &values, &own_rank, own, error));
    fl_status status = check_shape(reader, path, rank, shape, own_rank, own, error);
    if (status == FL_OK)
        *data = values;
    else
        fl_memory_free(values);
    return status;
}

fl_status fl_run_reader_number(fl_run_reader *reader, const char *path, double *value, fl_error *error) {
    double *data = NULL;
    FL_TRY(fl_run_reader_array(reader, path, 0, NULL, &data, error));
    *value = data[0];
    fl_memory_free(data);
    return FL_OK;
}

static fl_status copy_bytes(const char *text, size_t bytes, char **out, fl_error *error) {
    FL_TRY(FL_ALLOCATE(out, bytes + 1, error));
    if (bytes > 0) memcpy(*out, text, bytes);
    return FL_OK;
}

static fl_status read_variable(const fl_run_reader *reader, const char *path, hid_t id, read_call read,
                               hid_t type, hid_t space, size_t count, char **texts, fl_error *error) {
    char **raw = NULL;
    FL_TRY(FL_ALLOCATE(&raw, count, error));
    fl_status status = read(id, type, raw) >= 0 ? FL_OK : failed(reader, path, "read", error);
    for (size_t i = 0; i < count && status == FL_OK; i++) {
        const char *text = raw[i] != NULL ? raw[i] : "";
        status = copy_bytes(text, strlen(text), &texts[i], error);
    }
    H5Dvlen_reclaim(type, space, H5P_DEFAULT, raw);
    fl_memory_free(raw);
    return status;
}

static fl_status read_fixed(const fl_run_reader *reader, const char *path, hid_t id, read_call read,
                            hid_t type, size_t count, char **texts, fl_error *error) {
    size_t width = H5Tget_size(type);
    if (width == 0 || width > max_elements / (count + 1))
        return fl_run_reader_refuse(reader, path, "is too large to be read", error);
    char *raw = NULL;
    FL_TRY(FL_ALLOCATE(&raw, count * width, error));
    fl_status status = read(id, type, raw) >= 0 ? FL_OK : failed(reader, path, "read", error);
    for (size_t i = 0; i < count && status == FL_OK; i++) {
        const char *text = raw + i * width;
        const char *end = memchr(text, '\0', width);
        status = copy_bytes(text, end != NULL ? (size_t)(end - text) : width, &texts[i], error);
    }
    fl_memory_free(raw);
    return status;
}

static void free_texts(char **texts, size_t count) {
    for (size_t i = 0; texts != NULL && i < count; i++) fl_memory_free(texts[i]);
    fl_memory_free(texts);
}

/* Strings of a dataset or attribute of rank 0 or 1; type and space are closed here. */
static fl_status read_texts(const fl_run_reader *reader, const char *path, hid_t id, read_call read,
                            hid_t type, hid_t space, char ***out, size_t *count, fl_error *error) {
    char **texts = NULL;
    size_t rank = 0, shape[MAX_RANK] = {0}, elements = 0;
    fl_status status = FL_OK;
    if (type < 0 || H5Tget_class(type) != H5T_STRING) {
        status = fl_run_reader_refuse(reader, path, "does not hold text", error);
        goto done;
    }
    FL_TRY_DONE(status, measure_space(reader, path, space, max_elements, &rank, shape, &elements, error));
    if (rank > 1) {
        status = fl_run_reader_refuse(reader, path, "is no list of texts", error);
        goto done;
    }
    FL_TRY_DONE(status, FL_ALLOCATE(&texts, elements, error));
    if (elements > 0) {
        status = H5Tis_variable_str(type) > 0
                     ? read_variable(reader, path, id, read, type, space, elements, texts, error)
                     : read_fixed(reader, path, id, read, type, elements, texts, error);
    }
    if (status != FL_OK) goto done;
    *out = texts;
    *count = elements;
    texts = NULL;
done:
    free_texts(texts, elements);
    fl_hdf5_close(type);
    fl_hdf5_close(space);
    return status;
}

fl_status fl_run_reader_texts(fl_run_reader *reader, const char *path, char ***texts, size_t *count,
                              fl_error *error) {
    *texts = NULL;
    *count = 0;
    hid_t dataset = H5I_INVALID_HID;
    FL_TRY(open_dataset(reader, path, &dataset, error));
    fl_status status = read_texts(reader, path, dataset, read_dataset, H5Dget_type(dataset),
                                  H5Dget_space(dataset), texts, count, error);
    fl_hdf5_close(dataset);
    return status;
}

/* The only text of a list. */
static fl_status take_single(const fl_run_reader *reader, const char *path, char **texts, size_t count,
                             char **text, fl_error *error) {
    fl_status status = count == 1 ? FL_OK : fl_run_reader_refuse(reader, path, "is not a single text", error);
    if (status == FL_OK) {
        *text = texts[0];
        texts[0] = NULL;
    }
    free_texts(texts, count);
    return status;
}

fl_status fl_run_reader_text(fl_run_reader *reader, const char *path, char **text, fl_error *error) {
    *text = NULL;
    char **texts = NULL;
    size_t count = 0;
    FL_TRY(fl_run_reader_texts(reader, path, &texts, &count, error));
    return take_single(reader, path, texts, count, text, error);
}

fl_status fl_run_reader_column(fl_run_reader *reader, const char *path, size_t count, char ***texts,
                               fl_error *error) {
    size_t own = 0;
    FL_TRY(fl_run_reader_texts(reader, path, texts, &own, error));
    if (own == count) return FL_OK;
    free_texts(*texts, own);
    *texts = NULL;
    return fl_error_set(error, FL_ERROR_FORMAT,
                        "%s: %s: holds %zu texts, not %zu as the file's other datasets say", reader->name,
                        path, own, count);
}

int fl_run_reader_has_attribute(fl_run_reader *reader, const char *path, const char *name) {
    return fl_run_reader_has(reader, path) && H5Aexists_by_name(reader->file, path, name, H5P_DEFAULT) > 0;
}

static fl_status open_attribute(fl_run_reader *reader, const char *path, const char *name, hid_t *attribute,
                                fl_error *error) {
    if (!fl_run_reader_has_attribute(reader, path, name))
        return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: %s has no attribute %s", reader->name, path, name);
    *attribute = H5Aopen_by_name(reader->file, path, name, H5P_DEFAULT, H5P_DEFAULT);
    return *attribute >= 0 ? FL_OK : failed(reader, path, "open the attribute", error);
}

fl_status fl_run_reader_attribute_text(fl_run_reader *reader, const char *path, const char *name, char **text,
                                       fl_error *error) {
    *text = NULL;
    hid_t attribute = H5I_INVALID_HID;
    FL_TRY(open_attribute(reader, path, name, &attribute, error));
    char **texts = NULL;
    size_t count = 0;
    fl_status status = read_texts(reader, path, attribute, read_attribute, H5Aget_type(attribute),
                                  H5Aget_space(attribute), &texts, &count, error);
    fl_hdf5_close(attribute);
    return status == FL_OK ? take_single(reader, path, texts, count, text, error) : status;
}

fl_status fl_run_reader_attribute_number(fl_run_reader *reader, const char *path, const char *name,
                                         double *value, fl_error *error) {
    hid_t attribute = H5I_INVALID_HID;
    FL_TRY(open_attribute(reader, path, name, &attribute, error));
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    fl_status status = FL_OK;
    if (!is_number(type) || H5Sget_simple_extent_npoints(space) != 1) {
        status = fl_run_reader_refuse(reader, path, "attribute is not a number", error);
    } else if (H5Aread(attribute, H5T_NATIVE_DOUBLE, value) < 0) {
        status = failed(reader, path, "read the attribute", error);
    }
    fl_hdf5_close(space);
    fl_hdf5_close(type);
    fl_hdf5_close(attribute);
    return status;
}

typedef struct name_list {
    char **names;
    size_t count, room;
    fl_error *error;
    fl_status status;
} name_list;

static herr_t add_name(hid_t object, const char *name, const H5A_info_t *info, void *context) {
    (void)object, (void)info;
    name_list *list = context;
    if (list->count == list->room) {
        size_t room = list->room == 0 ? 16 : 2 * list->room;
        list->status = FL_RESIZE(&list->names, list->room, room, list->error);
        if (list->status != FL_OK) return 1;
        list->room = room;
    }
    list->status = fl_memory_copy_string(&list->names[list->count], name, list->error);
    if (list->status != FL_OK) return 1;
    list->count++;
    return 0;
}

fl_status fl_run_reader_attribute_names(fl_run_reader *reader, const char *path, char ***names, size_t *count,
                                        fl_error *error) {
    *names = NULL;
    *count = 0;
    if (!fl_run_reader_has(reader, path))
        return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: there is no %s", reader->name, path);
    name_list list = {.error = error, .status = FL_OK};
    hsize_t next = 0;
    herr_t result = H5Aiterate_by_name(reader->file, path, H5_INDEX_NAME, H5_ITER_INC, &next, add_name, &list,
                                       H5P_DEFAULT);
    if (list.status == FL_OK && result < 0) list.status = failed(reader, path, "list the attributes", error);
    if (list.status != FL_OK) {
        free_texts(list.names, list.count);
        return list.status;
    }
    *names = list.names;
    *count = list.count;
    return FL_OK;
}

typedef struct visitor {
    const fl_run_reader *reader;
    fl_status (*visit)(void *context, const char *path, size_t rank, const size_t *shape, fl_error *error);
    void *context;
    fl_error *error;
    fl_status status;
} visitor;

static herr_t visit_object(hid_t file, const char *name, const H5O_info_t *info, void *context) {
    visitor *v = context;
    if (info->type != H5O_TYPE_DATASET) return 0;
    char path[1024];
    size_t bytes = strlen(name);
    if (bytes + 2 > sizeof path) return 0;
    path[0] = '/';
    memcpy(path + 1, name, bytes + 1);
    hid_t dataset = H5Dopen2(file, path, H5P_DEFAULT);
    hid_t space = dataset >= 0 ? H5Dget_space(dataset) : H5I_INVALID_HID;
    size_t rank = 0, shape[MAX_RANK] = {0}, elements = 0;
    v->status = measure_space(v->reader, path, space, SIZE_MAX, &rank, shape, &elements, v->error);
    fl_hdf5_close(space);
    fl_hdf5_close(dataset);
    if (v->status == FL_OK) v->status = v->visit(v->context, path, rank, shape, v->error);
    return v->status == FL_OK ? 0 : 1;
}

fl_status fl_run_reader_visit(fl_run_reader *reader,
                              fl_status (*visit)(void *context, const char *path, size_t rank,
                                                 const size_t *shape, fl_error *error),
                              void *context, fl_error *error) {
    visitor v = {reader, visit, context, error, FL_OK};
    herr_t result = H5Ovisit2(reader->file, H5_INDEX_NAME, H5_ITER_INC, visit_object, &v, H5O_INFO_BASIC);
    if (v.status != FL_OK) return v.status;
    return result < 0 ? failed(reader, "/", "list", error) : FL_OK;
}
