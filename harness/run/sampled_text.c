#include "harness/run/sampled_text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/base/memory.h"
#include "harness/run/id_lists.h"
#include "harness/engine/generation.h"

enum { PATH_BYTES = 4096, RECIPE_BYTES = 512 };

fl_status fl_sampled_text_describe(const fl_self_generated *config, size_t sequence_length,
                                   const fl_workbench *bench, const fl_hash *model, fl_sampled_text *out,
                                   fl_error *error) {
    *out = (fl_sampled_text){.config = config, .row_tokens = sequence_length};
    out->rows = (config->tokens + sequence_length - 1) / sequence_length;
    FL_TRY(fl_document_tokens_of(bench->model, &out->ends, error));
    char recipe[RECIPE_BYTES];
    int used = snprintf(recipe, sizeof recipe, "%s %zu x %zu t=%.17g p=%.17g k=%zu s=%" PRIu64 " from %d to",
                        model->text, out->rows, out->row_tokens, config->temperature, config->top_p,
                        config->top_k, config->seed, (int)out->ends.start);
    for (size_t i = 0; i < out->ends.stop_count; i++)
        used += snprintf(recipe + used, sizeof recipe - (size_t)used, " %d", (int)out->ends.stops[i]);
    out->recipe = fl_hash_bytes(recipe, (size_t)used);
    return FL_OK;
}

static fl_status sample(const fl_sampled_text *text, const fl_workbench *bench, const char *path,
                        const fl_progress *progress, fl_error *error) {
    const fl_generation_options options = {
        .sequences = text->rows,
        .tokens = text->row_tokens,
        .sampling = {text->config->temperature, text->config->top_p, text->config->top_k},
        .seed = text->config->seed,
        .prompt = &text->ends.start,
        .prompt_tokens = 1,
        .stops = text->ends.stops,
        .stop_count = text->ends.stop_count,
        .progress = progress,
    };
    fl_sequences sequences;
    FL_TRY(fl_generate_sampled(bench->network, NULL, &options, &sequences, error));
    fl_status status = fl_id_lists_write(path, &sequences, error);
    fl_sequences_release(&sequences);
    return status;
}

/* A file that a failing machine emptied is as good as none. */
static bool is_sampled(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && !(S_ISREG(status.st_mode) && status.st_size == 0);
}

fl_status fl_sampled_text_load(const fl_sampled_text *text, fl_workbench *bench, const char *folder,
                               size_t sequences, size_t threads, const fl_progress *progress,
                               fl_text_source *out, fl_error *error) {
    char path[PATH_BYTES];
    int used = snprintf(path, sizeof path, "%s/self_generated-%s.json", folder, text->recipe.text);
    if (used < 0 || used >= PATH_BYTES) return fl_error_set(error, FL_ERROR_ARGUMENT, "--out: path too long");
    if (!is_sampled(path)) {
        FL_TRY(fl_workbench_prepare(bench, threads, error));
        FL_TRY(sample(text, bench, path, progress, error));
    }
    FL_TRY(fl_text_source_from_ids(path, bench->model->config.vocabulary, text->row_tokens, sequences, out,
                                   error));
    out->rows = text->recipe;
    return FL_OK;
}

fl_status fl_sampled_text_outline(const fl_sampled_text *text, size_t sequences, fl_text_source *out,
                                  fl_error *error) {
    *out = (fl_text_source){.rows = text->recipe};
    size_t rows = sequences > 0 && sequences < text->rows ? sequences : text->rows;
    fl_status status = FL_ALLOCATE(&out->sequences.lengths, rows, error);
    if (status == FL_OK) status = FL_ALLOCATE(&out->sequences.ids, rows, error);
    if (status != FL_OK) {
        fl_text_source_release(out);
        return status;
    }
    out->sequences.count = rows;
    for (size_t i = 0; i < rows; i++) out->sequences.lengths[i] = text->row_tokens;
    out->tokens = rows * text->row_tokens;
    return FL_OK;
}
