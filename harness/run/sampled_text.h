/* Sampled text: a config's `self_generated`, sampled once and kept beside the run files.
 *
 * The file <out>/self_generated-<recipe>.json holds rows of equal length. The recipe is the hash of
 * everything that decides the text: weights, document tokens, lengths and sampling options. It stands for the
 * text in run ids, so that a plan knows them before anything is sampled, and machines that round differently
 * agree on them. */
#ifndef FL_RUN_SAMPLED_TEXT_H
#define FL_RUN_SAMPLED_TEXT_H

#include <stddef.h>

#include "harness/base/hash.h"
#include "harness/base/progress.h"
#include "harness/base/status.h"
#include "harness/run/document_tokens.h"
#include "harness/run/workbench.h"
#include "harness/config/self_generated.h"
#include "harness/measure/text_source.h"

typedef struct fl_sampled_text {
    const fl_self_generated *config; /* borrowed */
    fl_document_tokens ends;
    size_t rows, row_tokens;
    fl_hash recipe;
} fl_sampled_text;

/* bench need only be opened; model: its identity (model/identity.h). sequence_length >= 1. */
fl_status fl_sampled_text_describe(const fl_self_generated *config, size_t sequence_length,
                                   const fl_workbench *bench, const fl_hash *model, fl_sampled_text *out,
                                   fl_error *error);

/* The text, at most `sequences` rows of it (0: all), read from the file; sampled first when that is not
 * there. out->rows is the recipe. threads is used when the bench has to be prepared. */
fl_status fl_sampled_text_load(const fl_sampled_text *text, fl_workbench *bench, const char *folder,
                               size_t sequences, size_t threads, const fl_progress *progress,
                               fl_text_source *out, fl_error *error);

/* The same without ids, for a plan: counts and lengths alone (every ids[i] is NULL). */
fl_status fl_sampled_text_outline(const fl_sampled_text *text, size_t sequences, fl_text_source *out,
                                  fl_error *error);

#endif
