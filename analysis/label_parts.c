#include "analysis/label_parts.h"

#include <string.h>

#include "harness/base/memory.h"

static const char separator[] = ", ";

size_t fl_label_part_bytes(const char *label) {
    size_t bytes = 0;
    int depth = 0;
    for (; label[bytes] != '\0'; bytes++) {
        char c = label[bytes];
        depth += c == '[' || c == '{' || c == '(';
        depth -= depth > 0 && (c == ']' || c == '}' || c == ')');
        if (depth == 0 && strncmp(label + bytes, separator, sizeof separator - 1) == 0) break;
    }
    return bytes;
}

/* The part behind the one of `bytes` at `part`; NULL at the end. */
static const char *next_part(const char *part, size_t bytes) {
    return part[bytes] == '\0' ? NULL : part + bytes + sizeof separator - 1;
}

static bool has_part(const char *label, const char *part, size_t bytes) {
    while (label != NULL) {
        size_t own = fl_label_part_bytes(label);
        if (own == bytes && memcmp(label, part, bytes) == 0) return true;
        label = next_part(label, own);
    }
    return false;
}

/* `to` has room: what is taken from a label is no longer than it. */
static void append(char *to, const char *part, size_t bytes) {
    size_t used = strlen(to);
    if (used > 0) {
        memcpy(to + used, separator, sizeof separator - 1);
        used += sizeof separator - 1;
    }
    memcpy(to + used, part, bytes);
    to[used + bytes] = '\0';
}

fl_status fl_label_parts_common(const char *const *labels, size_t count, char **out, fl_error *error) {
    const char *first = count > 0 ? labels[0] : "";
    FL_TRY(FL_ALLOCATE(out, strlen(first) + 1, error));
    for (const char *part = first; part != NULL && *part != '\0';) {
        size_t bytes = fl_label_part_bytes(part);
        bool common = true;
        for (size_t i = 1; i < count; i++) common = common && has_part(labels[i], part, bytes);
        if (common) append(*out, part, bytes);
        part = next_part(part, bytes);
    }
    return FL_OK;
}

fl_status fl_label_parts_without(const char *label, const char *taken, char **out, fl_error *error) {
    FL_TRY(FL_ALLOCATE(out, strlen(label) + 1, error));
    for (const char *part = label; part != NULL && *part != '\0';) {
        size_t bytes = fl_label_part_bytes(part);
        if (!has_part(taken, part, bytes)) append(*out, part, bytes);
        part = next_part(part, bytes);
    }
    return FL_OK;
}
