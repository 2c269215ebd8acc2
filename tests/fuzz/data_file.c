#include "tests/fuzz/data_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char path[256];

static void remove_file(void) {
    unlink(path);
}

const char *fl_input_file(const char *suffix, const uint8_t *data, size_t size) {
    if (path[0] == '\0') {
        const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
        snprintf(path, sizeof path, "%s/frostline-fuzz-%ld%s", folder, (long)getpid(), suffix);
        atexit(remove_file);
    }
    FILE *file = fopen(path, "wb");
    if (file == NULL || (size > 0 && fwrite(data, 1, size, file) != size) || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
    return path;
}
