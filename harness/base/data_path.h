/* Data path: where a file that a user names, or that the program brings along, is found.
 *
 * A relative path is taken against the working directory. When nothing is there and it begins with configs/, datasets/ or
 * models/, it may mean the program's own data: $FROSTLINE_DATA when that is set, else ../share/frostline seen from the folder of
 * the program itself, wherever that has been installed. */
#ifndef FL_BASE_DATA_PATH_H
#define FL_BASE_DATA_PATH_H

#include "harness/base/status.h"

/* *found (an fl_memory block) = where `path` is among the program's own data, or `path` as it is: because it is absolute, is
 * there, or is nowhere. */
fl_status fl_data_path_find(const char *path, char **found, fl_error *error);
/* The same in place; *path is NULL or an fl_memory block. */
fl_status fl_data_path_resolve(char **path, fl_error *error);

/* FL_ERROR_IO "PATH: cannot ACTION: CAUSE", and of a relative path that is missing, every full path tried. errno is `cause`
 * afterwards. */
fl_status fl_data_path_error(const char *path, const char *action, int cause, fl_error *error);

#endif
