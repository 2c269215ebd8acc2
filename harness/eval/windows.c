#include "harness/eval/windows.h"

#include "harness/base/memory.h"

/* The window after `previous` (NULL: the first); false when there is none. */
typedef bool (*next_window)(const fl_window_options *, size_t tokens, const fl_window *previous,
                            fl_window *out);

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static bool next_rolling(const fl_window_options *options, size_t tokens, const fl_window *previous,
                         fl_window *out) {
    const size_t scored = previous == NULL ? 0 : previous->scored_end;
    if (scored >= tokens) return false;
    const size_t end = smaller(scored + options->length, tokens);
    *out = (fl_window){.scored_start = scored, .scored_end = end, .prefixed = previous == NULL};
    if (previous != NULL) out->context_start = end - options->length - 1;
    return true;
}

static bool next_chunk(const fl_window_options *options, size_t tokens, const fl_window *previous,
                       fl_window *out) {
    const bool half = options->rule == FL_WINDOWS_LLAMA_CPP;
    const size_t start = previous == NULL ? 0 : previous->scored_end;
    if (tokens - start < options->length) return false;
    *out = (fl_window){.context_start = start,
                       .scored_start = start + (half ? options->length / 2 : 0) + 1,
                       .scored_end = start + options->length,
                       .overwritten = half && options->bos};
    return true;
}

static bool next_strided(const fl_window_options *options, size_t tokens, const fl_window *previous,
                         fl_window *out) {
    if (previous != NULL && previous->scored_end == tokens) return false;
    const size_t start = previous == NULL ? 0 : previous->context_start + options->stride;
    *out = (fl_window){.context_start = start,
                       .scored_start = previous == NULL ? 1 : previous->scored_end,
                       .scored_end = smaller(start + options->length, tokens)};
    return true;
}

fl_status fl_windows_make(const fl_window_options *options, size_t tokens, fl_window **windows, size_t *count,
                          fl_error *error) {
    static const next_window rules[] = {[FL_WINDOWS_ROLLING] = next_rolling,
                                        [FL_WINDOWS_LLAMA_CPP] = next_chunk,
                                        [FL_WINDOWS_CHUNKS] = next_chunk,
                                        [FL_WINDOWS_STRIDED] = next_strided};
    const bool strided = options->rule == FL_WINDOWS_STRIDED;
    if (options->length < 2 || (strided && (options->stride == 0 || options->stride > options->length))) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "windows of %zu tokens every %zu make no sense",
                            options->length, options->stride);
    }
    const size_t step = strided ? options->stride : options->length;
    fl_window *made = NULL;
    FL_TRY(FL_ALLOCATE(&made, tokens / step + 2, error));
    *count = 0;
    if (tokens >= 2 || options->rule == FL_WINDOWS_ROLLING) {
        while (rules[options->rule](options, tokens, *count == 0 ? NULL : &made[*count - 1], &made[*count])) {
            ++*count;
        }
    }
    *windows = made;
    return FL_OK;
}
