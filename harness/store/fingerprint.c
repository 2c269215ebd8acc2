#include "harness/store/fingerprint.h"

#include <stdio.h>
#include <string.h>

#include "attn_variants/attn_variant.h"
#include "harness/base/memory.h"
#include "harness/config/text_builder.h"
#include "harness/store/folder.h"
#include "harness/store/sweep.h"

static const fl_source built[] = {
#include "source_hashes.h" /* generated; in the build folder */
};

enum { NAMED = 3 }; /* changed files that are told by name */

static const char rules_folder[] = "attn_variants/";

fl_source_table fl_fingerprint_sources(void) {
    return (fl_source_table){built, sizeof built / sizeof built[0]};
}

/* Whether `path` is attn_variants/<rule>.c */
static bool is_file_of(const char *path, const char *rule) {
    const size_t folder = sizeof rules_folder - 1, name = strlen(rule);
    return strncmp(path, rules_folder, folder) == 0 && strncmp(path + folder, rule, name) == 0 &&
           strcmp(path + folder + name, ".c") == 0;
}

static bool has_file(const fl_source_table *sources, const char *rule) {
    for (size_t i = 0; i < sources->count; i++) {
        if (is_file_of(sources->rows[i].path, rule)) return true;
    }
    return false;
}

static bool is_baseline(const char *rule) {
    return strcmp(rule, "none") == 0 || strcmp(rule, "softmax") == 0;
}

bool fl_fingerprint_concerns(const fl_source_table *sources, const char *path, const char *rule) {
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        const char *owner = fl_rule_registry[i]->name;
        if (is_baseline(owner) || !is_file_of(path, owner)) continue;
        return strcmp(owner, rule) == 0 || !has_file(sources, rule);
    }
    return true;
}

/* "path hash" of every source that concerns the rule. */
static fl_status list_lines(const fl_source_table *sources, const char *rule, char ***lines, size_t *count,
                            fl_error *error) {
    FL_TRY(FL_ALLOCATE(lines, sources->count, error));
    *count = 0;
    for (size_t i = 0; i < sources->count; i++) {
        const fl_source *source = &sources->rows[i];
        if (!fl_fingerprint_concerns(sources, source->path, rule)) continue;
        fl_status status = fl_folder_format(&(*lines)[*count], error, "%s %s", source->path, source->hash);
        if (status != FL_OK) {
            fl_sweep_list_release(*lines, *count);
            return status;
        }
        (*count)++;
    }
    return FL_OK;
}

static fl_status hash_lines(char *const *lines, size_t count, fl_hash *out, fl_error *error) {
    fl_hash_stream *stream = NULL;
    FL_TRY(fl_hash_stream_create(&stream, error));
    for (size_t i = 0; i < count; i++) fl_hash_stream_add(stream, lines[i], strlen(lines[i]) + 1);
    *out = fl_hash_stream_value(stream);
    fl_hash_stream_destroy(stream);
    return FL_OK;
}

fl_status fl_fingerprint_of(const fl_source_table *sources, const char *rule, fl_hash *out, fl_error *error) {
    char **lines = NULL;
    size_t count = 0;
    FL_TRY(list_lines(sources, rule, &lines, &count, error));
    fl_status status = hash_lines(lines, count, out, error);
    fl_sweep_list_release(lines, count);
    return status;
}

fl_status fl_fingerprint_write(fl_run_file *file, const fl_source_table *sources, const char *rule,
                               fl_error *error) {
    char **lines = NULL;
    size_t count = 0;
    fl_hash hash;
    FL_TRY(list_lines(sources, rule, &lines, &count, error));
    fl_status status = hash_lines(lines, count, &hash, error);
    if (status == FL_OK)
        status = fl_run_file_write_text(file, "/provenance/fingerprint", hash.text,
                                        "XXH3-128 of /provenance/sources", error);
    if (status == FL_OK)
        status = fl_run_file_write_texts(
            file, "/provenance/sources", count, (const char *const *)lines,
            "sources that these numbers depend on, each with the first 16 digits of its SHA-256", error);
    fl_sweep_list_release(lines, count);
    return status;
}

/* Bytes of the path in "path hash". */
static size_t path_bytes(const char *line) {
    const char *space = strrchr(line, ' ');
    return space != NULL ? (size_t)(space - line) : strlen(line);
}

static int compare_paths(const char *a, const char *b) {
    const size_t a_bytes = path_bytes(a), b_bytes = path_bytes(b);
    const int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return order != 0 ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

/* Names of files that differ, gathered. */
typedef struct difference {
    fl_text_builder text;
    size_t count;
} difference;

/* A name as a name: the file may be anybody's. */
static bool is_plain(const char *name, size_t bytes) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return strspn(name, allowed) >= bytes;
}

static fl_status add_name(difference *d, const char *line, const char *what, fl_error *error) {
    const char *end = line + path_bytes(line), *name = line;
    for (const char *c = line; c < end; c++) {
        if (*c == '/') name = c + 1;
    }
    if (d->count++ >= NAMED) return FL_OK;
    const size_t bytes = (size_t)(end - name);
    const bool plain = is_plain(name, bytes);
    return fl_text_builder_format(&d->text, error, "%s%.*s%s", d->count > 1 ? ", " : "",
                                  plain ? (int)bytes : 1, plain ? name : "?", what);
}

/* Both lists are in the order of their paths. */
static fl_status compare_lists(char *const *then, size_t then_count, char *const *now, size_t now_count,
                               difference *d, fl_error *error) {
    size_t i = 0, j = 0;
    while (i < then_count || j < now_count) {
        const int order = i == then_count ? 1 : j == now_count ? -1 : compare_paths(then[i], now[j]);
        if (order < 0)
            FL_TRY(add_name(d, then[i], " (gone)", error));
        else if (order > 0)
            FL_TRY(add_name(d, now[j], " (new)", error));
        else if (strcmp(then[i], now[j]) != 0)
            FL_TRY(add_name(d, now[j], "", error));
        i += order <= 0;
        j += order >= 0;
    }
    if (d->count > NAMED) return fl_text_builder_format(&d->text, error, " and %zu more", d->count - NAMED);
    return FL_OK;
}

/* *changed = NULL when the lists are the same. */
static fl_status name_changes(char *const *then, size_t then_count, const fl_source_table *sources,
                              const char *rule, char **changed, fl_error *error) {
    char **now = NULL;
    size_t now_count = 0;
    difference d = {0};
    FL_TRY(list_lines(sources, rule, &now, &now_count, error));
    fl_status status = compare_lists(then, then_count, now, now_count, &d, error);
    if (status == FL_OK) {
        *changed = d.text.text;
        d.text = (fl_text_builder){0};
    }
    fl_text_builder_release(&d.text);
    fl_sweep_list_release(now, now_count);
    return status;
}

fl_status fl_fingerprint_compare(fl_run_reader *reader, const fl_source_table *sources, const char *rule,
                                 char **changed, fl_error *error) {
    char **then = NULL, *stored = NULL;
    size_t count = 0;
    fl_hash hash;
    *changed = NULL;
    FL_TRY(fl_fingerprint_of(sources, rule, &hash, error));
    if (fl_run_reader_text(reader, "/provenance/fingerprint", &stored, NULL) == FL_OK) {
        const bool same = strcmp(stored, hash.text) == 0;
        fl_memory_free(stored);
        if (same) return FL_OK;
    }
    if (fl_run_reader_texts(reader, "/provenance/sources", &then, &count, NULL) != FL_OK)
        return fl_memory_copy_string(changed, "code that the file does not name", error);
    fl_status status = name_changes(then, count, sources, rule, changed, error);
    fl_sweep_list_release(then, count);
    if (status == FL_OK && *changed == NULL)
        status = fl_memory_copy_string(changed, "code that the file does not name", error);
    return status;
}
