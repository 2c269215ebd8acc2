/* Replays a fuzz target's corpus without a fuzzer: one test a file, in cmocka's words, so that run_tests.sh
 * counts them.
 *
 * usage: fuzz_NAME [FILE|FOLDER...]      (default: tests/fuzz/corpus/NAME)
 * A file that crashes the target ends the program in the middle of its test, which is how it is found. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PATH_BYTES = 1024, MAX_FILES = 4096 };

static int by_name(const void *a, const void *b) {
    return strcmp(a, b);
}

static size_t collect(const char *path, char (*files)[PATH_BYTES], size_t count) {
    struct stat status;
    if (stat(path, &status) != 0) return count;
    if (!S_ISDIR(status.st_mode)) {
        if (count < MAX_FILES) snprintf(files[count++], PATH_BYTES, "%s", path);
        return count;
    }
    DIR *directory = opendir(path);
    if (directory == NULL) return count;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL && count < MAX_FILES;) {
        if (entry->d_name[0] == '.') continue;
        if (snprintf(files[count], PATH_BYTES, "%s/%s", path, entry->d_name) < PATH_BYTES) count++;
    }
    closedir(directory);
    return count;
}

static int replay(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return -1;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    /* Exactly as large as the input, so that a sanitizer sees the first byte read beyond it. */
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    int result = -1;
    if (data != NULL && size >= 0 && fread(data, 1, (size_t)size, file) == (size_t)size) {
        result = LLVMFuzzerTestOneInput(data, (size_t)size);
    }
    free(data);
    fclose(file);
    return result;
}

int main(int argc, char **argv) {
    char(*files)[PATH_BYTES] = calloc(MAX_FILES, sizeof *files);
    if (files == NULL) return 1;
    size_t count = 0;
    for (int i = 1; i < argc; i++) count = collect(argv[i], files, count);
    if (argc < 2) {
        const char *name = strrchr(argv[0], '/') != NULL ? strrchr(argv[0], '/') + 1 : argv[0];
        if (strncmp(name, "fuzz_", 5) == 0) name += 5;
        char folder[PATH_BYTES];
        snprintf(folder, sizeof folder, "tests/fuzz/corpus/%s", name);
        count = collect(folder, files, count);
    }
    qsort(files, count, sizeof *files, by_name);
    printf("[==========] Running %zu test(s).\n", count);
    int failed = 0;
    for (size_t i = 0; i < count; i++) {
        printf("[ RUN      ] %s\n", files[i]);
        fflush(stdout);
        int result = replay(files[i]);
        printf("%s %s\n", result == 0 ? "[       OK ]" : "[  FAILED  ]", files[i]);
        failed += result != 0;
    }
    free(files);
    return failed > 0;
}
