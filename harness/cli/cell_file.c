#include "harness/cli/cell_file.h"

#include <math.h>
#include <stdio.h>

#include "harness/cli/build_info.h"
#include "harness/store/provenance.h"
#include "harness/store/run_file.h"
#include "harness/store/run_record.h"

#define BASELINE "/baseline/linear_off/"

static fl_status write_header(fl_run_file *file, const fl_cell_file *content, fl_error *error) {
    const fl_cell_work *cell = content->cell;
    const fl_run_header header = {.run_id = cell->run_id,
                                  .name = cell->experiment->name,
                                  .cell = cell->experiment->cell_label,
                                  .status = content->result->diverged ? "diverged" : "complete",
                                  .tier = fl_cell_tier(cell)};
    FL_TRY(fl_run_record_write_header(file, &header, error));
    FL_TRY(fl_run_file_set_text(file, "/", "label", cell->label, error));
    return fl_run_record_write_config(file, cell->experiment->resolved, error);
}

static fl_status write_single(fl_run_file *file, const char *path, double value, const char *units,
                              const char *description, fl_error *error) {
    return fl_run_file_write_doubles(file, path, 0, NULL, &value, units, description, error);
}

/* What a table or a picture needs of the baseline; all of it is in the run file of the `none` cell, where
 * there is one. */
static fl_status write_baseline(fl_run_file *file, const fl_text_result *off, fl_error *error) {
    if (off == NULL) return FL_OK;
    size_t layers = off->layers, positions = off->positions;
    FL_TRY(fl_run_file_write_doubles(file, BASELINE "errors/teacher_forced/nmse", 1, &layers, off->nmse, "1",
                                     "nMSE [L] of the same variant with its linear part off", error));
    FL_TRY(fl_run_file_write_doubles(file, BASELINE "errors/teacher_forced/position_nmse", 2,
                                     (size_t[]){layers, positions}, off->position_nmse, "1",
                                     "the same by position [L][P]", error));
    FL_TRY(fl_run_file_write_doubles(file, BASELINE "errors/propagated/attention_nmse", 1, &layers,
                                     off->attention_nmse, "1", "end to end against the full model [L]",
                                     error));
    FL_TRY(write_single(file, BASELINE "memory/exact_bytes", (double)off->exact_bytes, "B",
                        "keys and values held exactly, per sequence", error));
    if (off->position_kl == NULL) return FL_OK;
    FL_TRY(write_single(file, BASELINE "language_model/perplexity", off->perplexity, "1",
                        "exp(cross_entropy)", error));
    FL_TRY(write_single(file, BASELINE "language_model/cross_entropy", off->cross_entropy, "nat",
                        "next token, whole evaluation text", error));
    FL_TRY(write_single(file, BASELINE "language_model/kl", off->kl, "nat", "KL(full || linear part off)",
                        error));
    return write_single(file, BASELINE "language_model/agreement", off->agreement, "1",
                        "share of tokens with the full model's first choice", error);
}

static fl_status fill_provenance(fl_provenance *provenance, const fl_cell_file *content, fl_error *error) {
    const fl_experiment *experiment = content->cell->experiment;
    const fl_cell_group *group = content->group;
    const fl_variant *variant = content->cell->linearised.variant;
    char threads[24], seeds[64], now[FL_TIME_TEXT_BYTES];
    snprintf(threads, sizeof threads, "%zu", fl_threads_count(group->bench.compute->threads));
    snprintf(seeds, sizeof seeds, "variant %llu", (unsigned long long)variant->seed);
    fl_provenance_now(now);
    const struct {
        char **member;
        const char *text;
    } members[] = {
        {&provenance->code_revision, fl_build_revision()},
        {&provenance->config_file, content->list->config},
        {&provenance->started, content->started},
        {&provenance->finished, now},
        {&provenance->threads, threads},
        {&provenance->seeds, seeds},
        {&provenance->model, experiment->model_path},
        {&provenance->weights_hash_before, group->weights.text},
        {&provenance->weights_hash_after, content->weights_after.text},
        {&provenance->tokenizer_hash, group->tokenizer.text[0] != '\0' ? group->tokenizer.text : NULL},
        {&provenance->text, experiment->text.path != NULL ? experiment->text.path : experiment->text.ids},
        {&provenance->text_hash, group->text.rows.text},
        {&provenance->mechanism, variant->mechanism_path},
    };
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        FL_TRY(fl_provenance_set(members[i].member, members[i].text, error));
    }
    const fl_hash mechanism = fl_mechanism_hash(content->cell->linearised.mechanism);
    return fl_provenance_set(&provenance->mechanism_hash, mechanism.text, error);
}

static fl_status write_provenance(fl_run_file *file, const fl_cell_file *content, fl_error *error) {
    fl_provenance provenance;
    FL_TRY(fl_provenance_collect(&provenance, error));
    fl_status status = fill_provenance(&provenance, content, error);
    if (status == FL_OK) status = fl_provenance_write(file, &provenance, error);
    fl_provenance_release(&provenance);
    return status;
}

static fl_status write_timing(fl_run_file *file, const fl_cell_file *content, fl_error *error) {
    FL_TRY(fl_run_record_write_seconds(
        file, "frozen", content->frozen_seconds,
        "frozen passes over the text, made once for all cells that shared them", error));
    const int64_t sharing = (int64_t)content->sharing;
    return fl_run_file_write_integers(file, "/timing/cells_sharing_frozen", 0, NULL, &sharing, "1",
                                      "cells that shared the frozen passes", error);
}

fl_status fl_cell_file_write(const fl_cell_file *content, fl_error *error) {
    fl_run_file *file = NULL;
    FL_TRY(fl_run_file_create(content->list->out, content->cell->run_id, &file, error));
    fl_status status = FL_OK;
    FL_TRY_DONE(status, write_header(file, content, error));
    FL_TRY_DONE(status, fl_run_record_write_text_result(file, content->result, error));
    FL_TRY_DONE(status, write_baseline(file, content->linear_off, error));
    FL_TRY_DONE(status, write_timing(file, content, error));
    FL_TRY_DONE(status, write_provenance(file, content, error));
    status = fl_run_file_commit(file, error);
    file = NULL;
done:
    fl_run_file_discard(file);
    return status;
}
