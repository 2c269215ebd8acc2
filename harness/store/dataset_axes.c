#include "harness/store/dataset_axes.h"

#include <stdbool.h>
#include <string.h>

#include "harness/measure/measurements.h"

/* Datasets that are no measurements of a text: those below `head` whose path goes on to hold `part`. */
static const struct row {
    const char *head, *part;
    const char *axes[FL_AXES_MOST];
} rows[] = {
    {"/tasks/", "/items/", {"item", "choice"}},
    {"/tasks/", "/subjects/", {"subject"}},
    {"/baseline/", "/items/", {"item", "choice"}},
    {"/training/evaluation_", "", {"evaluation"}},
    {"/training/", "", {"step"}},
    {"/merged/nmse", "", {"run", "layer"}},
    {"/merged/", "", {"run"}},
    {"/logits", "", {"position", "token"}},
    {"/hidden", "", {"layer", "position", "channel"}},
    {"/attention_input", "", {"layer", "position", "channel"}},
    {"/attention_output", "", {"layer", "position", "channel"}},
    {"/token_log_probabilities", "", {"position"}},
    {"/ids", "", {"position"}},
};

static bool matches(const struct row *row, const char *path) {
    const size_t bytes = strlen(row->head);
    return strncmp(path, row->head, bytes) == 0 && strstr(path + bytes, row->part) != NULL;
}

void fl_dataset_axes(const char *path, size_t rank, const char *names[FL_AXES_MOST]) {
    static const char *const unknown[FL_AXES_MOST] = {"axis_0", "axis_1", "axis_2", "axis_3"};
    for (size_t i = 0; i < FL_AXES_MOST; i++) names[i] = unknown[i];
    const fl_measurement *measured = fl_measurement_of_path(path);
    if (measured != NULL) {
        for (size_t i = 0; i < rank && measured->axes[i] != '\0'; i++)
            names[i] = fl_measurement_axis_name(measured->axes[i]);
        return;
    }
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        if (!matches(&rows[r], path)) continue;
        for (size_t i = 0; i < rank && rows[r].axes[i] != NULL; i++) names[i] = rows[r].axes[i];
        return;
    }
}
