#include "harness/model/gguf_split.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"

enum { SUFFIX_BYTES = 20 }; /* "-00001-of-00003.gguf" */

fl_status fl_gguf_split_check(const fl_gguf *gguf, size_t part, size_t expected, size_t *count,
                              fl_error *error) {
    uint64_t number = 0, total = 1;
    const char *path = fl_gguf_path(gguf);
    if (fl_gguf_has(gguf, "split.count") && !fl_gguf_find_unsigned(gguf, "split.count", &total)) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: key split.count is not a whole number", path);
    }
    if (fl_gguf_has(gguf, "split.no") && !fl_gguf_find_unsigned(gguf, "split.no", &number)) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: key split.no is not a whole number", path);
    }
    if (total == 0) total = 1;
    if (total > FL_GGUF_MAX_PARTS) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: key split.count: %" PRIu64 " parts", path, total);
    }
    if (number != part || (expected > 0 && total != expected)) {
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "%s: says it is part %" PRIu64 " of %" PRIu64 ", expected part %zu%s", path,
                            number + 1, total, part + 1, part == 0 ? " (name the first part)" : "");
    }
    *count = (size_t)total;
    return FL_OK;
}

fl_status fl_gguf_split_path(const char *first, size_t part, size_t count, char **out, fl_error *error) {
    char suffix[2 * SUFFIX_BYTES];
    size_t length = strlen(first);
    snprintf(suffix, sizeof suffix, "-00001-of-%05zu.gguf", count);
    if (length < SUFFIX_BYTES || strcmp(first + length - SUFFIX_BYTES, suffix) != 0) {
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "%s: is the first of %zu parts, so its name must end in %s", first, count,
                            suffix);
    }
    FL_TRY(FL_ALLOCATE(out, length + 1, error));
    snprintf(*out, length + 1, "%.*s-%05zu-of-%05zu.gguf", (int)(length - SUFFIX_BYTES), first, part + 1,
             count);
    return FL_OK;
}
