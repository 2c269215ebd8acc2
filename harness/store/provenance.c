#define PCRE2_CODE_UNIT_WIDTH 8
#include "harness/store/provenance.h"

#include <cblas.h>
#include <cjson/cJSON.h>
#include <hdf5.h>
#include <pcre2.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include <utf8proc.h>
#include <xxhash.h>
#include <yaml.h>

#include "harness/base/memory.h"
#include "harness/compute/cpu_kernels.h"
#include "harness/config/text_builder.h"
#include "harness/store/folder.h"

#define ROW(member, description)                                                                             \
    { offsetof(fl_provenance, member), #member, description }

static const struct {
    size_t offset;
    const char *name, *description;
} rows[] = {
    ROW(code_revision, "git revision of the program; -dirty: with changes that were not committed"),
    ROW(compiler, "compiler"),
    ROW(build_configuration, "release, debug, asan, ubsan or tsan"),
    ROW(compiler_flags, "optimisation flags"),
    ROW(openblas, "OpenBLAS: version, options and kernels in use"),
    ROW(hdf5, "HDF5 version"),
    ROW(libyaml, "libyaml version"),
    ROW(cjson, "cJSON version"),
    ROW(pcre2, "PCRE2 version"),
    ROW(utf8proc, "utf8proc version"),
    ROW(xxhash, "xxHash version"),
    ROW(host, "name of the machine"),
    ROW(processor, "processor model"),
    ROW(operating_system, "operating system and kernel"),
    ROW(vector_kernels, "vector kernels in use: avx512, avx2 or baseline"),
    ROW(environment, "environment variables that change results or speed, one a line"),
    ROW(command_line, "command line"),
    ROW(working_directory, "directory that relative paths start from"),
    ROW(config_file, "path of the config file"),
    ROW(started, "time the run began, UTC"),
    ROW(finished, "time the run ended, UTC"),
    ROW(threads, "number of worker threads"),
    ROW(seeds, "all seeds of the run"),
    ROW(model, "path of the model"),
    ROW(model_configuration, "what the model's configuration says after all defaults; part of the run id"),
    ROW(weights_hash_before, "XXH3-128 of the frozen weights before the run"),
    ROW(weights_hash_after, "XXH3-128 of the frozen weights after the run"),
    ROW(tokenizer_hash, "XXH3-128 of the tokenizer"),
    ROW(text, "path of the evaluation text"),
    ROW(text_hash, "XXH3-128 of the evaluation text"),
    ROW(text_bos, "token id that every row of the evaluation text begins with, by text.bos, or none"),
    ROW(train_text, "path of the training text"),
    ROW(train_text_hash, "XXH3-128 of the training text"),
    ROW(tasks_hash, "XXH3-128 of the files of all tasks"),
    ROW(mechanism, "path of the mechanism parameters that were loaded"),
    ROW(mechanism_hash, "XXH3-128 of the mechanism parameters the measurements were made with"),
};

enum { ROWS = sizeof rows / sizeof rows[0] };

static char **member(fl_provenance *provenance, size_t row) {
    return (char **)((char *)provenance + rows[row].offset);
}

fl_status fl_provenance_set(char **slot, const char *text, fl_error *error) {
    char *copy = NULL;
    if (text != NULL) FL_TRY(fl_memory_copy_string(&copy, text, error));
    fl_memory_free(*slot);
    *slot = copy;
    return FL_OK;
}

void fl_provenance_release(fl_provenance *provenance) {
    for (size_t i = 0; i < ROWS; i++) fl_memory_free(*member(provenance, i));
    *provenance = (fl_provenance){0};
}

void fl_provenance_now(char out[FL_TIME_TEXT_BYTES]) {
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) == NULL || strftime(out, FL_TIME_TEXT_BYTES, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        out[0] = '\0';
}

static fl_status collect_program(fl_provenance *p, fl_error *error) {
#ifdef __clang__
    FL_TRY(fl_provenance_set(&p->compiler, __VERSION__, error));
#else
    FL_TRY(fl_provenance_set(&p->compiler, "gcc " __VERSION__, error));
#endif
    FL_TRY(fl_provenance_set(&p->build_configuration, FL_BUILD_CONFIG, error));
    return fl_provenance_set(&p->compiler_flags, FL_BUILD_FLAGS, error);
}

static fl_status collect_libraries(fl_provenance *p, fl_error *error) {
    char text[64] = "";
    unsigned major = 0, minor = 0, release = 0;
    FL_TRY(fl_folder_format(&p->openblas, error, "%s; kernels %s", openblas_get_config(),
                            openblas_get_corename()));
    if (H5get_libversion(&major, &minor, &release) >= 0) {
        snprintf(text, sizeof text, "%u.%u.%u", major, minor, release);
        FL_TRY(fl_provenance_set(&p->hdf5, text, error));
    }
    FL_TRY(fl_provenance_set(&p->libyaml, yaml_get_version_string(), error));
    FL_TRY(fl_provenance_set(&p->cjson, cJSON_Version(), error));
    if (pcre2_config(PCRE2_CONFIG_VERSION, NULL) <= (int)sizeof text &&
        pcre2_config(PCRE2_CONFIG_VERSION, text) > 0) {
        FL_TRY(fl_provenance_set(&p->pcre2, text, error));
    }
    FL_TRY(fl_provenance_set(&p->utf8proc, utf8proc_version(), error));
    unsigned version = XXH_versionNumber();
    snprintf(text, sizeof text, "%u.%u.%u", version / 10000, version / 100 % 100, version % 100);
    return fl_provenance_set(&p->xxhash, text, error);
}

/* "model name : ..." of /proc/cpuinfo, or "". */
static void read_processor(char *out, size_t bytes) {
    out[0] = '\0';
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL) return;
    char line[512];
    while (out[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "model name", 10) != 0) continue;
        const char *colon = strchr(line, ':');
        if (colon == NULL) continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(out, bytes, "%.*s", (int)strcspn(colon, "\n"), colon);
    }
    fclose(file);
}

static fl_status collect_machine(fl_provenance *p, fl_error *error) {
    struct utsname name;
    char processor[256];
    char directory[4096];
    if (uname(&name) == 0) {
        FL_TRY(fl_provenance_set(&p->host, name.nodename, error));
        FL_TRY(fl_folder_format(&p->operating_system, error, "%s %s %s", name.sysname, name.release,
                                name.machine));
    }
    read_processor(processor, sizeof processor);
    if (processor[0] != '\0') FL_TRY(fl_provenance_set(&p->processor, processor, error));
    FL_TRY(fl_provenance_set(&p->vector_kernels, fl_kernels_current()->name, error));
    if (getcwd(directory, sizeof directory) != NULL)
        FL_TRY(fl_provenance_set(&p->working_directory, directory, error));
    return FL_OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool matters(const char *variable) {
    static const char *const prefixes[] = {
        "FROSTLINE_",    "OPENBLAS_",    "GOTO_",         "OMP_",        "HDF5_",
        "SLURM_JOB_ID=", "SLURM_ARRAY_", "SLURM_PROCID=", "SLURM_CPUS_", "CUDA_VISIBLE_DEVICES=",
        "LC_ALL=",       "LANG=",        "MALLOC_"};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0) return true;
    }
    return false;
}

static fl_status collect_environment(fl_provenance *p, fl_error *error) {
    extern char **environ;
    size_t count = 0;
    char **found = NULL;
    while (environ[count] != NULL) count++;
    FL_TRY(FL_ALLOCATE(&found, count, error));
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (matters(environ[i])) found[used++] = environ[i];
    }
    if (used > 0) qsort(found, used, sizeof *found, compare_names);
    fl_text_builder text = {0};
    fl_status status = fl_text_builder_add(&text, "", error);
    for (size_t i = 0; i < used && status == FL_OK; i++)
        status = fl_text_builder_format(&text, error, "%s\n", found[i]);
    if (status == FL_OK) status = fl_provenance_set(&p->environment, text.text, error);
    fl_text_builder_release(&text);
    fl_memory_free(found);
    return status;
}

fl_status fl_provenance_collect(fl_provenance *out, fl_error *error) {
    *out = (fl_provenance){0};
    fl_status status = collect_program(out, error);
    if (status == FL_OK) status = collect_libraries(out, error);
    if (status == FL_OK) status = collect_machine(out, error);
    if (status == FL_OK) status = collect_environment(out, error);
    if (status != FL_OK) fl_provenance_release(out);
    return status;
}

fl_status fl_provenance_write(fl_run_file *file, const fl_provenance *provenance, fl_error *error) {
    for (size_t i = 0; i < ROWS; i++) {
        const char *text = *(char *const *)((const char *)provenance + rows[i].offset);
        char path[64];
        snprintf(path, sizeof path, "/provenance/%s", rows[i].name);
        FL_TRY(fl_run_file_write_text(file, path, text, rows[i].description, error));
    }
    return FL_OK;
}
