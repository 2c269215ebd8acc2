/* Folder: what atomic writing needs of the file system. */
#ifndef FL_STORE_FOLDER_H
#define FL_STORE_FOLDER_H

#include "harness/base/status.h"

/* Makes a directory and those above it; one that is there is fine. */
fl_status fl_folder_create(const char *path, fl_error *error);
/* Makes and deletes a file in it: whether there is permission and room is known before anything is computed for it. */
fl_status fl_folder_check_writable(const char *path, fl_error *error);
/* *out = fl_memory block: `path` without its last name ("." when it has only one). */
fl_status fl_folder_of(const char *path, char **out, fl_error *error);
/* *out = fl_memory block: printf into a string of its own. */
fl_status fl_folder_format(char **out, fl_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Makes a file's or a directory's content durable. */
fl_status fl_folder_sync(const char *path, fl_error *error);
/* Gives a finished file its final name: syncs it, renames it, syncs the directory. */
fl_status fl_folder_publish(const char *temporary, const char *final, fl_error *error);

#endif
