#include "harness/store/run_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <utf8proc.h>

#include "harness/base/memory.h"
#include "harness/store/folder.h"
#include "harness/store/hdf5_error.h"

enum { MAX_RANK = 4, DEFLATE_LEVEL = 4, MAX_CHUNK_BYTES = 1 << 20, MAX_TEXT_BYTES = 1 << 28 };
enum { MEMORY_STEP_BYTES = 1 << 20 };

struct fl_run_file {
    hid_t file;     /* in memory until it is committed: HDF5 meets no full or failing disk */
    int descriptor; /* of the temporary file */
    char *temporary, *final;
};

static void release(fl_run_file *file) {
    if (file->file >= 0) H5Fclose(file->file);
    if (file->descriptor >= 0) close(file->descriptor);
    fl_memory_free(file->temporary);
    fl_memory_free(file->final);
    fl_memory_free(file);
}

/* Objects carry no times, so that the same run writes the same bytes. */
static hid_t create_in_memory(const char *path) {
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), creation = H5Pcreate(H5P_FILE_CREATE), file = H5I_INVALID_HID;
    if (access >= 0 && creation >= 0 && H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0 &&
        H5Pset_fapl_core(access, MEMORY_STEP_BYTES, false) >= 0 &&
        H5Pset_obj_track_times(creation, false) >= 0) {
        file = H5Fcreate(path, H5F_ACC_TRUNC, creation, access);
    }
    fl_hdf5_close(access);
    fl_hdf5_close(creation);
    return file;
}

/* The name is taken at once: no permission or no room for it is known before anything is computed. */
static fl_status open_temporary(fl_run_file *file, fl_error *error) {
    file->descriptor = open(file->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file->descriptor < 0) {
        return fl_error_set(error, fl_status_of_write(errno), "%s: cannot create the file: %s%s",
                            file->temporary, strerror(errno), fl_disk_explanation(errno));
    }
    file->file = create_in_memory(file->temporary);
    if (file->file >= 0) return FL_OK;
    unlink(file->temporary);
    return fl_hdf5_error(error, FL_ERROR_IO, file->temporary, NULL, "create the file");
}

fl_status fl_run_file_create_at(const char *path, fl_run_file **out, fl_error *error) {
    *out = NULL;
    fl_hdf5_be_silent();
    fl_run_file *file = NULL;
    char *directory = NULL;
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    if (name[0] == '\0') return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: not a file name", path);
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&file, 1, error));
    file->file = H5I_INVALID_HID;
    file->descriptor = -1;
    FL_TRY_DONE(status, fl_folder_of(path, &directory, error));
    FL_TRY_DONE(status, fl_folder_create(directory, error));
    FL_TRY_DONE(status, fl_memory_copy_string(&file->final, path, error));
    FL_TRY_DONE(status, fl_folder_format(&file->temporary, error, "%s/.%s.part-%ld", directory, name,
                                         (long)getpid()));
    status = open_temporary(file, error);
done:
    fl_memory_free(directory);
    if (status != FL_OK && file != NULL)
        release(file);
    else
        *out = file;
    return status;
}

fl_status fl_run_file_create(const char *directory, const char *run_id, fl_run_file **out, fl_error *error) {
    *out = NULL;
    char *path = NULL;
    FL_TRY(fl_folder_format(&path, error, "%s/%s.h5", directory, run_id));
    fl_status status = fl_run_file_create_at(path, out, error);
    fl_memory_free(path);
    return status;
}

static fl_status failed(const fl_run_file *file, const char *path, const char *verb, fl_error *error) {
    return fl_hdf5_error(error, FL_ERROR_IO, file->final, path, verb);
}

/* Halves the slowest axes until a chunk holds at most 1 MiB: rows stay together. */
static void choose_chunk(size_t rank, const hsize_t *shape, size_t element_bytes, hsize_t *chunk) {
    double bytes = (double)element_bytes;
    for (size_t i = 0; i < rank; i++) {
        chunk[i] = shape[i];
        bytes *= (double)shape[i];
    }
    for (size_t i = 0; i < rank; i++) {
        while (bytes > MAX_CHUNK_BYTES && chunk[i] > 1) {
            bytes /= (double)chunk[i];
            chunk[i] = (chunk[i] + 1) / 2;
            bytes *= (double)chunk[i];
        }
    }
}

/* Numbers are chunked and filtered; single values, empty arrays and texts (which lie in the file's heap) are
 * not. */
static hid_t creation_list(size_t rank, const hsize_t *shape, size_t element_bytes) {
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    if (list < 0 || H5Pset_obj_track_times(list, false) < 0) return list;
    bool plain = rank == 0;
    for (size_t i = 0; i < rank; i++) plain = plain || shape[i] == 0;
    if (plain) return list;
    hsize_t chunk[MAX_RANK];
    choose_chunk(rank, shape, element_bytes, chunk);
    bool ok = H5Pset_chunk(list, (int)rank, chunk) >= 0 && H5Pset_shuffle(list) >= 0 &&
              H5Pset_deflate(list, DEFLATE_LEVEL) >= 0 && H5Pset_fletcher32(list) >= 0;
    if (ok) return list;
    H5Pclose(list);
    return H5I_INVALID_HID;
}

/* Whether every name of an absolute path is there. */
static bool exists(hid_t file, const char *path) {
    if (strcmp(path, "/") == 0) return true;
    char part[1024];
    size_t bytes = strlen(path);
    if (bytes >= sizeof part) return false;
    for (size_t i = 1; i <= bytes; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (H5Lexists(file, part, H5P_DEFAULT) <= 0) return false;
    }
    return true;
}

static fl_status check_path(const fl_run_file *file, const char *path, fl_error *error) {
    size_t bytes = strlen(path);
    bool well_formed =
        path[0] == '/' && bytes > 1 && bytes < 1024 && path[bytes - 1] != '/' && strstr(path, "//") == NULL;
    if (!well_formed)
        return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: '%s' is not an absolute path", file->final, path);
    if (exists(file->file, path)) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: %s is there already", file->final, path);
    }
    return FL_OK;
}

static hid_t links_with_groups(void) {
    hid_t list = H5Pcreate(H5P_LINK_CREATE);
    if (list < 0) return list;
    H5Pset_create_intermediate_group(list, 1);
    H5Pset_char_encoding(list, H5T_CSET_UTF8);
    return list;
}

/* *out = `text` with every byte that is not part of valid UTF-8 replaced by U+FFFD. */
static fl_status make_utf8(const char *text, char **out, fl_error *error) {
    static const char replacement[] = "\xef\xbf\xbd";
    size_t bytes = strlen(text), used = 0;
    FL_TRY(FL_ALLOCATE(out, 3 * bytes + 1, error));
    for (size_t i = 0; i < bytes;) {
        utf8proc_int32_t point = -1;
        utf8proc_ssize_t step =
            utf8proc_iterate((const utf8proc_uint8_t *)text + i, (utf8proc_ssize_t)(bytes - i), &point);
        if (step > 0) {
            memcpy(*out + used, text + i, (size_t)step);
            used += (size_t)step;
            i += (size_t)step;
        } else {
            memcpy(*out + used, replacement, 3);
            used += 3;
            i++;
        }
    }
    return FL_OK;
}

static bool write_text_attribute(hid_t object, const char *name, const char *value) {
    hid_t type = fl_hdf5_text_type(), space = H5Screate(H5S_SCALAR), attribute = H5I_INVALID_HID;
    bool ok = type >= 0 && space >= 0;
    if (ok && H5Aexists(object, name) > 0) ok = H5Adelete(object, name) >= 0;
    if (ok) attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    ok = ok && attribute >= 0 && H5Awrite(attribute, type, &value) >= 0;
    fl_hdf5_close(attribute);
    fl_hdf5_close(space);
    fl_hdf5_close(type);
    return ok;
}

static bool write_number_attribute(hid_t object, const char *name, hid_t stored, hid_t native,
                                   const void *value) {
    hid_t space = H5Screate(H5S_SCALAR), attribute = H5I_INVALID_HID;
    bool ok = space >= 0;
    if (ok && H5Aexists(object, name) > 0) ok = H5Adelete(object, name) >= 0;
    if (ok) attribute = H5Acreate2(object, name, stored, space, H5P_DEFAULT, H5P_DEFAULT);
    ok = ok && attribute >= 0 && H5Awrite(attribute, native, value) >= 0;
    fl_hdf5_close(attribute);
    fl_hdf5_close(space);
    return ok;
}

/* What a dataset is made of. */
typedef struct content {
    size_t rank;
    const size_t *shape;
    hid_t stored, native; /* types in the file and in memory */
    size_t element_bytes;
    const void *data;
    const char *units, *description;
} content;

static fl_status write_content(fl_run_file *file, const char *path, const content *c, fl_error *error) {
    if (c->data == NULL) return FL_OK;
    FL_TRY(check_path(file, path, error));
    if (c->rank > MAX_RANK)
        return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: %s: rank %zu", file->final, path, c->rank);
    hsize_t shape[MAX_RANK] = {0};
    size_t elements = 1;
    for (size_t i = 0; i < c->rank; i++) {
        shape[i] = c->shape[i];
        elements *= c->shape[i];
    }
    hid_t space = c->rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple((int)c->rank, shape, NULL);
    hid_t creation = creation_list(c->rank, shape, c->element_bytes), links = links_with_groups();
    hid_t dataset = H5I_INVALID_HID;
    if (space >= 0 && creation >= 0 && links >= 0) {
        dataset = H5Dcreate2(file->file, path, c->stored, space, links, creation, H5P_DEFAULT);
    }
    bool ok = dataset >= 0;
    if (ok && elements > 0) ok = H5Dwrite(dataset, c->native, H5S_ALL, H5S_ALL, H5P_DEFAULT, c->data) >= 0;
    ok = ok && write_text_attribute(dataset, "units", c->units != NULL ? c->units : "");
    ok = ok && write_text_attribute(dataset, "description", c->description != NULL ? c->description : "");
    fl_status status = ok ? FL_OK : failed(file, path, "write", error);
    fl_hdf5_close(dataset);
    fl_hdf5_close(links);
    fl_hdf5_close(creation);
    fl_hdf5_close(space);
    return status;
}

fl_status fl_run_file_write_doubles(fl_run_file *file, const char *path, size_t rank, const size_t *shape,
                                    const double *data, const char *units, const char *description,
                                    fl_error *error) {
    content c = {rank, shape, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, sizeof *data, data, units, description};
    return write_content(file, path, &c, error);
}

fl_status fl_run_file_write_floats(fl_run_file *file, const char *path, size_t rank, const size_t *shape,
                                   const float *data, const char *units, const char *description,
                                   fl_error *error) {
    content c = {rank, shape, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, sizeof *data, data, units, description};
    return write_content(file, path, &c, error);
}

fl_status fl_run_file_write_integers(fl_run_file *file, const char *path, size_t rank, const size_t *shape,
                                     const int64_t *data, const char *units, const char *description,
                                     fl_error *error) {
    content c = {rank, shape, H5T_STD_I64LE, H5T_NATIVE_INT64, sizeof *data, data, units, description};
    return write_content(file, path, &c, error);
}

/* Fixed width with a NUL at the end: unlike strings of variable length they are compressed and checksummed.
 */
static hid_t padded_type(size_t width) {
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && H5Tset_size(type, width) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0 &&
        H5Tset_strpad(type, H5T_STR_NULLTERM) >= 0) {
        return type;
    }
    fl_hdf5_close(type);
    return H5I_INVALID_HID;
}

static fl_status pad_texts(const fl_run_file *file, const char *path, size_t count, char **texts,
                           char **block, size_t *width, fl_error *error) {
    *width = 1;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = strlen(texts[i]);
        if (bytes >= *width) *width = bytes + 1;
    }
    if (*width > MAX_TEXT_BYTES / (count + 1)) {
        return fl_error_set(error, FL_ERROR_MEMORY, "%s: %s: %zu texts of up to %zu bytes are too large",
                            file->final, path, count, *width);
    }
    FL_TRY(FL_ALLOCATE(block, count * *width, error));
    for (size_t i = 0; i < count; i++) memcpy(*block + i * *width, texts[i], strlen(texts[i]));
    return FL_OK;
}

static fl_status write_strings(fl_run_file *file, const char *path, size_t rank, size_t count,
                               const char *const *texts, const char *description, fl_error *error) {
    char **clean = NULL, *block = NULL;
    size_t width = 0;
    hid_t type = H5I_INVALID_HID;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&clean, count, error));
    for (size_t i = 0; i < count; i++) {
        FL_TRY_DONE(status, make_utf8(texts[i] != NULL ? texts[i] : "", &clean[i], error));
    }
    FL_TRY_DONE(status, pad_texts(file, path, count, clean, &block, &width, error));
    type = padded_type(width);
    content c = {rank, &count, type, type, width, block, "", description};
    status = type < 0 ? failed(file, path, "write", error) : write_content(file, path, &c, error);
done:
    for (size_t i = 0; clean != NULL && i < count; i++) fl_memory_free(clean[i]);
    fl_memory_free(clean);
    fl_memory_free(block);
    fl_hdf5_close(type);
    return status;
}

fl_status fl_run_file_write_text(fl_run_file *file, const char *path, const char *text,
                                 const char *description, fl_error *error) {
    return text == NULL ? FL_OK : write_strings(file, path, 0, 1, &text, description, error);
}

fl_status fl_run_file_write_texts(fl_run_file *file, const char *path, size_t count, const char *const *texts,
                                  const char *description, fl_error *error) {
    return texts == NULL ? FL_OK : write_strings(file, path, 1, count, texts, description, error);
}

/* Opens the object an attribute belongs to; a missing one becomes a group. */
static fl_status open_object(fl_run_file *file, const char *path, hid_t *object, fl_error *error) {
    if (exists(file->file, path)) {
        *object = H5Oopen(file->file, path, H5P_DEFAULT);
    } else {
        FL_TRY(check_path(file, path, error));
        hid_t links = links_with_groups();
        *object = H5Gcreate2(file->file, path, links, H5P_DEFAULT, H5P_DEFAULT);
        fl_hdf5_close(links);
    }
    return *object >= 0 ? FL_OK : failed(file, path, "open", error);
}

fl_status fl_run_file_set_text(fl_run_file *file, const char *path, const char *name, const char *value,
                               fl_error *error) {
    if (strlen(value) > FL_RUN_FILE_ATTRIBUTE_BYTES) {
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "%s: %s: attribute %s has %zu bytes, more than %d: write a dataset", file->final,
                            path, name, strlen(value), FL_RUN_FILE_ATTRIBUTE_BYTES);
    }
    char *clean = NULL;
    hid_t object = H5I_INVALID_HID;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, make_utf8(value, &clean, error));
    FL_TRY_DONE(status, open_object(file, path, &object, error));
    if (!write_text_attribute(object, name, clean)) status = failed(file, path, "write the attribute", error);
done:
    fl_hdf5_close(object);
    fl_memory_free(clean);
    return status;
}

static fl_status set_number(fl_run_file *file, const char *path, const char *name, hid_t stored, hid_t native,
                            const void *value, fl_error *error) {
    hid_t object = H5I_INVALID_HID;
    FL_TRY(open_object(file, path, &object, error));
    bool ok = write_number_attribute(object, name, stored, native, value);
    fl_status status = ok ? FL_OK : failed(file, path, "write the attribute", error);
    fl_hdf5_close(object);
    return status;
}

fl_status fl_run_file_set_number(fl_run_file *file, const char *path, const char *name, double value,
                                 fl_error *error) {
    return set_number(file, path, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value, error);
}

fl_status fl_run_file_set_integer(fl_run_file *file, const char *path, const char *name, int64_t value,
                                  fl_error *error) {
    return set_number(file, path, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value, error);
}

/* *image = fl_memory block: the bytes of the HDF5 file. */
static fl_status take_image(fl_run_file *file, unsigned char **image, size_t *bytes, fl_error *error) {
    ssize_t needed = -1;
    if (H5Fflush(file->file, H5F_SCOPE_GLOBAL) >= 0) needed = H5Fget_file_image(file->file, NULL, 0);
    if (needed < 0) return failed(file, NULL, "finish the file", error);
    *bytes = (size_t)needed;
    FL_TRY(FL_ALLOCATE(image, *bytes, error));
    if (H5Fget_file_image(file->file, *image, *bytes) == needed) return FL_OK;
    return failed(file, NULL, "finish the file", error);
}

static fl_status write_image(const fl_run_file *file, const unsigned char *image, size_t bytes,
                             fl_error *error) {
    for (size_t done = 0; done < bytes;) {
        ssize_t step = write(file->descriptor, image + done, bytes - done);
        if (step < 0 && errno == EINTR) continue;
        if (step <= 0) {
            int cause = step < 0 ? errno : EIO;
            return fl_error_set(error, fl_status_of_write(cause), "%s: cannot write: %s%s", file->final,
                                strerror(cause), fl_disk_explanation(cause));
        }
        done += (size_t)step;
    }
    return FL_OK;
}

/* Network file systems may say only when a file is closed that there was no room. */
static fl_status close_temporary(fl_run_file *file, fl_error *error) {
    int closed = close(file->descriptor);
    file->descriptor = -1;
    if (closed == 0) return FL_OK;
    return fl_error_set(error, fl_status_of_write(errno), "%s: cannot close: %s%s", file->final,
                        strerror(errno), fl_disk_explanation(errno));
}

fl_status fl_run_file_commit(fl_run_file *file, fl_error *error) {
    unsigned char *image = NULL;
    size_t bytes = 0;
    fl_status status = take_image(file, &image, &bytes, error);
    if (status == FL_OK) status = write_image(file, image, bytes, error);
    if (status == FL_OK) status = close_temporary(file, error);
    if (status == FL_OK) status = fl_folder_publish(file->temporary, file->final, error);
    if (status != FL_OK) unlink(file->temporary);
    fl_memory_free(image);
    release(file);
    return status;
}

void fl_run_file_discard(fl_run_file *file) {
    if (file == NULL) return;
    unlink(file->temporary);
    release(file);
}
