#include "harness/store/hdf5_error.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void fl_hdf5_be_silent(void) {
    /* Where a close failed on a full disk, HDF5's exit handler would write to the dead file and crash. Every
     * file is closed by whoever opened it, so the handler has nothing else to do. Must be the first call of
     * HDF5. */
    H5dont_atexit();
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

enum { REASON_BYTES = 512 };

typedef struct reason {
    char text[REASON_BYTES];
} reason;

/* Walking upward, the first record is the innermost: it names the system's error, the outer ones repeat
 * "can't open". */
static herr_t keep_innermost(unsigned n, const H5E_error2_t *record, void *context) {
    reason *r = context;
    if (n == 0 && record->desc != NULL) snprintf(r->text, sizeof r->text, "%s", record->desc);
    return 0;
}

static const char *explanation(const char *text) {
    static const struct {
        const char *part, *meaning;
    } known[] = {
        {"lock file", ". Another process has the file open, or its file system (often NFS or Lustre) has no "
                      "locks: then set "
                      "HDF5_USE_FILE_LOCKING=FALSE"},
        {"signature", ". It is no HDF5 file, or was not finished"},
        {"truncated", ". It was not finished when it was written, or not copied whole"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strstr(text, known[i].part) != NULL) return known[i].meaning;
    }
    return "";
}

/* HDF5 passes the system's error on as its text. 0: none of a disk's. */
static int disk_error(const char *text) {
    static const int numbers[] = {ENOSPC, EDQUOT, EIO};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strstr(text, strerror(numbers[i])) != NULL) return numbers[i];
    }
    return 0;
}

fl_status fl_hdf5_error(fl_error *error, fl_status status, const char *file, const char *path,
                        const char *verb) {
    reason r = {"HDF5 gives no reason"};
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &r);
    H5Eclear2(H5E_DEFAULT);
    int disk = disk_error(r.text);
    const char *why = fl_disk_explanation(disk);
    if (status == FL_ERROR_IO && disk != 0) status = fl_status_of_write(disk);
    return fl_error_set(error, status, "%s: %s%scannot %s: %s%s", file, path != NULL ? path : "",
                        path != NULL ? ": " : "", verb, r.text, why[0] != '\0' ? why : explanation(r.text));
}

void fl_hdf5_close(hid_t id) {
    if (id < 0) return;
    switch (H5Iget_type(id)) {
    case H5I_FILE:
        H5Fclose(id);
        break;
    case H5I_GROUP:
    case H5I_DATASET:
        H5Oclose(id);
        break;
    case H5I_DATATYPE:
        H5Tclose(id);
        break;
    case H5I_DATASPACE:
        H5Sclose(id);
        break;
    case H5I_ATTR:
        H5Aclose(id);
        break;
    case H5I_GENPROP_LST:
        H5Pclose(id);
        break;
    default:
        break;
    }
}

hid_t fl_hdf5_text_type(void) {
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && (H5Tset_size(type, H5T_VARIABLE) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}
