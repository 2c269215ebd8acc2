#include "analysis/dataset_axes.h"

#include <string.h>

typedef struct row {
    const char *part; /* the path ends in this, or, when it ends in a slash, holds it */
    const char *axes[FL_AXES_MOST];
} row;

/* The first match counts. */
static const row rows[] = {
    {"/head_position_mse", {"layer", "head", "position"}},
    {"/head_nmse", {"layer", "head"}},
    {"/head_mean", {"layer", "head"}},
    {"/head_variance", {"layer", "head"}},
    {"/position_count", {"position"}},
    {"/attention_position_nmse", {"layer", "position"}},
    {"/residual_position_nmse", {"layer", "position"}},
    {"/position_nmse", {"layer", "position"}},
    {"/edges", {"layer", "edge"}},
    {"/trends/key_concentration/", {"layer", "bin"}},
    {"/trends/projection_residual/", {"layer", "bin"}},
    {"/diagnostics/gates/", {"layer", "head", "quantile"}},
    {"/diagnostics/routing/", {"layer", "kv_head", "position"}},
    {"/key_concentration", {"layer", "kv_head", "position"}},
    {"/projection_residual", {"layer", "kv_head", "position"}},
    {"/state_norm", {"layer", "head", "position"}},
    {"/effective_rank", {"layer", "head"}},
    {"/errors/", {"layer"}},
    {"/language_model/", {"position"}},
    {"/items/", {"item", "choice"}},
    {"/subjects/", {"subject"}},
    {"/training/evaluation", {"evaluation"}},
    {"/training/", {"step"}},
    {"/logits", {"position", "token"}},
    {"/hidden", {"layer", "position", "channel"}},
    {"/attention_input", {"layer", "position", "channel"}},
    {"/attention_output", {"layer", "position", "channel"}},
    {"/token_log_probabilities", {"position"}},
    {"/ids", {"position"}},
};

static int matches(const char *path, const char *part) {
    size_t bytes = strlen(path), length = strlen(part);
    if (part[length - 1] == '/' || strstr(part, "/training/") != NULL) return strstr(path, part) != NULL;
    return bytes >= length && strcmp(path + bytes - length, part) == 0;
}

void fl_dataset_axes(const char *path, size_t rank, const char *names[FL_AXES_MOST]) {
    static const char *const unknown[FL_AXES_MOST] = {"axis_0", "axis_1", "axis_2", "axis_3"};
    for (size_t i = 0; i < FL_AXES_MOST; i++) names[i] = unknown[i];
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        if (!matches(path, rows[r].part)) continue;
        for (size_t i = 0; i < rank && rows[r].axes[i] != NULL; i++) names[i] = rows[r].axes[i];
        return;
    }
}
