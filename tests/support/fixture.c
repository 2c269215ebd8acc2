#define _GNU_SOURCE
#include "tests/support/fixture.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/base/memory.h"

enum { PATH_BYTES = 1024, PATH_BUFFERS = 8 };

static const char *joined(const char *root, const char *relative) {
    static char buffers[PATH_BUFFERS][PATH_BYTES];
    static int next;
    char *path = buffers[next++ % PATH_BUFFERS];
    snprintf(path, PATH_BYTES, "%s/%s", root, relative);
    return path;
}

static const char *variable(const char *name, const char *fallback) {
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : fallback;
}

const char *fl_fixture_path(const char *relative) {
    return joined(variable("FROSTLINE_FIXTURES", "tests/fixtures"), relative);
}

const char *fl_pack_path(const char *relative) {
    const char *path = joined(variable("FROSTLINE_PACKS", "build/packs"), relative);
    return access(path, R_OK) == 0 ? path : NULL;
}

const char *fl_fixture_or_pack(const char *relative) {
    const char *path = fl_fixture_path(relative);
    return access(path, R_OK) == 0 ? path : fl_pack_path(relative);
}

const char *fl_default_model_path(void) {
    const char *path = variable("FROSTLINE_MODEL", "models/smollm2-135m.gguf");
    return access(path, R_OK) == 0 ? path : NULL;
}

const char *fl_program_path(void) {
    return variable("FROSTLINE", "build/release/frostline");
}

void fl_fixture_skip(const char *test, const char *missing) {
    printf("skipped: %s: %s\n", test, missing);
    fflush(stdout);
    skip();
}

/* Not among the rotating buffers: a path that is later removed with all it holds must never turn into
 * another. */
const char *fl_temporary_directory(void) {
    static char paths[128][PATH_BYTES];
    static size_t used;
    if (used == sizeof paths / sizeof paths[0])
        fail_msg("too many temporary directories in one test program");
    char *path = paths[used++];
    snprintf(path, PATH_BYTES, "%s/frostline-test-XXXXXX", variable("TMPDIR", "/tmp"));
    if (mkdtemp(path) == NULL) fail_msg("cannot make a temporary directory: %s", path);
    return path;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk) {
    (void)status, (void)kind, (void)walk;
    return remove(path);
}

void fl_temporary_remove(const char *directory) {
    if (strstr(directory, "/frostline-test-") == NULL) fail_msg("not a temporary directory: %s", directory);
    nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *test_folder;

int fl_test_folder_make(void **state) {
    (void)state;
    test_folder = fl_temporary_directory();
    return 0;
}

int fl_test_folder_remove(void **state) {
    (void)state;
    fl_temporary_remove(test_folder);
    return 0;
}

const char *fl_test_folder(void) {
    return test_folder;
}

char *fl_read_file(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail_msg("cannot open %s", path);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *data = NULL;
    assert_int_equal(FL_ALLOCATE(&data, (size_t)size + 1, NULL), FL_OK);
    if (fread(data, 1, (size_t)size, file) != (size_t)size) fail_msg("cannot read %s", path);
    fclose(file);
    if (bytes != NULL) *bytes = (size_t)size;
    return data;
}

void fl_write_file(const char *path, const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    if (file == NULL) fail_msg("cannot write %s", path);
    if (bytes > 0 && fwrite(data, 1, bytes, file) != bytes) fail_msg("cannot write %s", path);
    fclose(file);
}

int fl_run_command(const char *command, char **output) {
    char *merged = NULL;
    if (asprintf(&merged, "( %s ) 2>&1", command) < 0) fail_msg("out of memory");
    FILE *pipe = popen(merged, "r");
    free(merged);
    if (pipe == NULL) fail_msg("cannot run %s", command);
    size_t used = 0, room = 4096;
    char *text = NULL;
    assert_int_equal(FL_ALLOCATE(&text, room, NULL), FL_OK);
    for (;;) {
        size_t got = fread(text + used, 1, room - used - 1, pipe);
        used += got;
        if (got == 0) break;
        if (used + 1 == room) {
            assert_int_equal(FL_RESIZE(&text, room, room * 2, NULL), FL_OK);
            room *= 2;
        }
    }
    text[used] = '\0';
    int status = pclose(pipe);
    if (output != NULL)
        *output = text;
    else
        fl_memory_free(text);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
