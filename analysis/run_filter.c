#include "analysis/run_filter.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/config/options.h"

enum { CONDITION_BYTES = 512, KEY_BYTES = 512 };

static const char conjunction[] = " and ";

/* The run's value of a key that may lack its "variant.". */
static const char *find_value(const fl_run_entry *run, const char *key) {
    char longer[KEY_BYTES + 16];
    const char *value = fl_run_entry_value(run, key);
    if (value != NULL) return value;
    snprintf(longer, sizeof longer, "variant.%s", key);
    return fl_run_entry_value(run, longer);
}

static bool is_one_of(const char *value, const char *values) {
    size_t bytes = strlen(value);
    for (const char *at = values; at != NULL; at = strchr(at, '|'), at += at != NULL) {
        if (strcspn(at, "|") == bytes && strncmp(at, value, bytes) == 0) return true;
    }
    return false;
}

/* Splits "key=value" in place; NULL for a pattern. */
static char *split(char *condition) {
    char *equals = strchr(condition, '=');
    size_t key = equals != NULL ? (size_t)(equals - condition) : 0;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
    if (key == 0 || strspn(condition, letters) != key) return NULL;
    *equals = '\0';
    return equals + 1;
}

static fl_status refuse_key(const fl_run_set *set, const char *key, fl_error *error) {
    const fl_run_entry *first = &set->runs[0];
    const char *near = fl_suggest(key, (const char *const *)first->keys, first->key_count);
    if (near != NULL)
        return fl_error_set(error, FL_ERROR_ARGUMENT, "filter: no run has a key \"%s\"; did you mean %s?",
                            key, near);
    return fl_error_set(error, FL_ERROR_ARGUMENT, "filter: no run has a key \"%s\"", key);
}

static bool is_match(const fl_run_entry *run, const char *key, const char *wanted) {
    if (wanted == NULL) return fnmatch(key, run->label, 0) == 0;
    const char *value = find_value(run, key);
    return value != NULL && is_one_of(value, wanted);
}

/* Matching runs first, all in their order. */
static fl_status keep(fl_run_set *set, const char *key, const char *wanted, fl_error *error) {
    fl_run_entry *others = NULL;
    size_t kept = 0, left = 0;
    FL_TRY(FL_ALLOCATE(&others, set->count, error));
    for (size_t i = 0; i < set->count; i++) {
        if (is_match(&set->runs[i], key, wanted))
            set->runs[kept++] = set->runs[i];
        else
            others[left++] = set->runs[i];
    }
    memcpy(set->runs + kept, others, left * sizeof others[0]);
    fl_memory_free(others);
    set->count = kept;
    set->left_out += left;
    return FL_OK;
}

static fl_status apply_one(fl_run_set *set, char *condition, const char *filter, fl_error *error) {
    char *wanted = split(condition);
    bool known = wanted == NULL;
    for (size_t i = 0; i < set->count; i++) known = known || find_value(&set->runs[i], condition) != NULL;
    if (!known) return refuse_key(set, condition, error);
    char first[CONDITION_BYTES];
    snprintf(first, sizeof first, "%s", set->runs[0].label);
    FL_TRY(keep(set, condition, wanted, error));
    if (set->count > 0) return FL_OK;
    return fl_error_set(error, FL_ERROR_ARGUMENT, "filter \"%s\": no run is left; labels are like \"%s\"",
                        filter, first);
}

fl_status fl_run_filter_apply(fl_run_set *set, const char *filter, fl_error *error) {
    for (const char *at = filter; at != NULL;) {
        const char *end = strstr(at, conjunction);
        size_t bytes = end != NULL ? (size_t)(end - at) : strlen(at);
        char condition[CONDITION_BYTES];
        if (bytes >= sizeof condition) return fl_error_set(error, FL_ERROR_ARGUMENT, "filter: too long");
        memcpy(condition, at, bytes);
        condition[bytes] = '\0';
        FL_TRY(apply_one(set, condition, filter, error));
        at = end != NULL ? end + sizeof conjunction - 1 : NULL;
    }
    return FL_OK;
}
