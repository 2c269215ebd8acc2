#include "harness/engine/training_state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/memory.h"
#include "harness/model/checkpoint.h"

enum { NAME_BYTES = 96, NUMBER_BYTES = 26, KINDS = 3 };

static const char FORMAT[] = "frostline training 1";

/* The three things stored per tensor and where they live. */
static const char *const prefixes[KINDS] = {"", "optimiser.first.", "optimiser.second."};

static float *block_of(const fl_mechanism *mechanism, const fl_adamw *adamw, size_t kind, size_t layer) {
    return kind == 0   ? mechanism->layer[layer]
           : kind == 1 ? adamw->first->layer[layer]
                       : adamw->second->layer[layer];
}

static void tensor_name(char *name, size_t kind, size_t layer, const fl_mechanism_tensor *tensor) {
    snprintf(name, NAME_BYTES, "%slayers.%zu.%s", prefixes[kind], layer, tensor->name);
}

/* Numbers as text that gives the same bits back. */
static fl_status numbers_text(const double *numbers, size_t count, char **out, fl_error *error) {
    FL_TRY(FL_ALLOCATE(out, count * NUMBER_BYTES + 1, error));
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        used += (size_t)snprintf(*out + used, NUMBER_BYTES, i == 0 ? "%.17g" : " %.17g", numbers[i]);
    }
    return FL_OK;
}

/* Exactly `count` numbers. */
static fl_status read_numbers(const fl_checkpoint *file, const char *path, const char *key, size_t count,
                              double *numbers, fl_error *error) {
    const char *text = fl_checkpoint_metadata(file, key);
    size_t i = 0;
    while (text != NULL && *text != '\0' && i < count) {
        char *end = NULL;
        numbers[i++] = strtod(text, &end);
        if (end == text) break;
        text = end;
    }
    if (text != NULL && *text == '\0' && i == count) return FL_OK;
    return fl_error_set(error, FL_ERROR_FORMAT, "%s: metadata %s does not hold %zu numbers", path, key,
                        count);
}

typedef struct {
    fl_checkpoint_write_tensor *tensors;
    char (*names)[NAME_BYTES];
    size_t count;
} fl_state_tensors;

static fl_status list_tensors(const fl_mechanism *mechanism, const fl_adamw *adamw, fl_state_tensors *list,
                              fl_error *error) {
    size_t most = KINDS * mechanism->layers * mechanism->tensor_count;
    FL_TRY(FL_ALLOCATE(&list->tensors, most, error));
    FL_TRY(FL_ALLOCATE(&list->names, most, error));
    for (size_t kind = 0; kind < KINDS; kind++) {
        for (size_t l = 0; l < mechanism->layers; l++) {
            for (size_t i = 0; mechanism->layer[l] != NULL && i < mechanism->tensor_count; i++) {
                const fl_mechanism_tensor *tensor = &mechanism->tensors[i];
                fl_checkpoint_write_tensor *out = &list->tensors[list->count];
                tensor_name(list->names[list->count], kind, l, tensor);
                out->name = list->names[list->count++];
                out->data = block_of(mechanism, adamw, kind, l) + tensor->offset;
                out->rank = tensor->rank;
                memcpy(out->shape, tensor->shape, tensor->rank * sizeof(size_t));
            }
        }
    }
    return FL_OK;
}

enum {
    META_FORMAT,
    META_IDENTITY,
    META_COUNTS,
    META_LOSS,
    META_NORM,
    META_RATE,
    META_STEPS,
    META_VALUES,
    METADATA
};

static const char *const metadata_keys[METADATA] = {
    "format",        "identity",      "counts",          "loss",
    "gradient_norm", "learning_rate", "evaluation_step", "evaluation_value"};

static fl_status history_texts(const fl_training_history *history, char **texts, fl_error *error) {
    const double counts[] = {(double)history->steps, (double)history->evaluations,
                             (double)history->tokens_seen, history->seconds};
    double *steps = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&steps, history->evaluations, error));
    for (size_t i = 0; i < history->evaluations; i++) steps[i] = (double)history->evaluation_step[i];
    FL_TRY_DONE(status, numbers_text(counts, 4, &texts[META_COUNTS], error));
    FL_TRY_DONE(status, numbers_text(history->loss, history->steps, &texts[META_LOSS], error));
    FL_TRY_DONE(status, numbers_text(history->gradient_norm, history->steps, &texts[META_NORM], error));
    FL_TRY_DONE(status, numbers_text(history->learning_rate, history->steps, &texts[META_RATE], error));
    FL_TRY_DONE(status, numbers_text(steps, history->evaluations, &texts[META_STEPS], error));
    FL_TRY_DONE(status,
                numbers_text(history->evaluation_value, history->evaluations, &texts[META_VALUES], error));
done:
    fl_memory_free(steps);
    return status;
}

fl_status fl_training_state_save(const char *path, const char *identity, const fl_mechanism *mechanism,
                                 const fl_adamw *adamw, const fl_training_history *history, fl_error *error) {
    fl_state_tensors list = {0};
    char *texts[METADATA] = {0};
    const char *values[METADATA];
    fl_status status = FL_OK;
    FL_TRY_DONE(status, list_tensors(mechanism, adamw, &list, error));
    FL_TRY_DONE(status, history_texts(history, texts, error));
    for (size_t i = 0; i < METADATA; i++) values[i] = texts[i];
    values[META_FORMAT] = FORMAT;
    values[META_IDENTITY] = identity != NULL ? identity : "";
    status = fl_checkpoint_write_safetensors(path, list.tensors, list.count, metadata_keys, values, METADATA,
                                             error);
done:
    for (size_t i = 0; i < METADATA; i++) fl_memory_free(texts[i]);
    fl_memory_free(list.tensors);
    fl_memory_free(list.names);
    return status;
}

static fl_status check_identity(const fl_checkpoint *file, const char *path, const char *identity,
                                fl_error *error) {
    const char *format = fl_checkpoint_metadata(file, metadata_keys[META_FORMAT]);
    if (format == NULL || strcmp(format, FORMAT) != 0) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: not a training checkpoint (format \"%s\" expected)",
                            path, FORMAT);
    }
    const char *stored = fl_checkpoint_metadata(file, metadata_keys[META_IDENTITY]);
    if (stored == NULL) stored = "";
    if (strcmp(stored, identity != NULL ? identity : "") == 0) return FL_OK;
    return fl_error_set(
        error, FL_ERROR_ARGUMENT,
        "%s: this checkpoint belongs to another training (\"%s\", not \"%s\"); move it away to start "
        "afresh",
        path, stored, identity != NULL ? identity : "");
}

static fl_status read_history(const fl_checkpoint *file, const char *path, size_t planned,
                              fl_training_history *history, fl_error *error) {
    double counts[4];
    double *steps = NULL;
    fl_status status = FL_OK;
    FL_TRY(read_numbers(file, path, metadata_keys[META_COUNTS], 4, counts, error));
    size_t room = planned + 1;
    if (!(counts[0] >= 0 && counts[0] <= (double)planned && counts[1] >= 0 && counts[1] <= (double)room &&
          counts[2] >= 0 && counts[2] < 9e15 && counts[3] >= 0)) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: metadata counts do not fit a training of %zu steps",
                            path, planned);
    }
    history->steps = (size_t)counts[0];
    history->evaluations = (size_t)counts[1];
    history->tokens_seen = (size_t)counts[2];
    history->seconds = counts[3];
    FL_TRY_DONE(status,
                read_numbers(file, path, metadata_keys[META_LOSS], history->steps, history->loss, error));
    FL_TRY_DONE(status, read_numbers(file, path, metadata_keys[META_NORM], history->steps,
                                     history->gradient_norm, error));
    FL_TRY_DONE(status, read_numbers(file, path, metadata_keys[META_RATE], history->steps,
                                     history->learning_rate, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&steps, history->evaluations, error));
    FL_TRY_DONE(status,
                read_numbers(file, path, metadata_keys[META_STEPS], history->evaluations, steps, error));
    FL_TRY_DONE(status, read_numbers(file, path, metadata_keys[META_VALUES], history->evaluations,
                                     history->evaluation_value, error));
    for (size_t i = 0; i < history->evaluations; i++) {
        if (!(steps[i] >= 0 && steps[i] <= (double)planned)) {
            status =
                fl_error_set(error, FL_ERROR_FORMAT, "%s: metadata evaluation_step is out of range", path);
            goto done;
        }
        history->evaluation_step[i] = (size_t)steps[i];
    }
done:
    fl_memory_free(steps);
    return status;
}

/* Two passes over the tensors: all are checked before the first is copied. */
static fl_status read_tensors(const fl_checkpoint *file, const char *path, bool copy, fl_mechanism *mechanism,
                              fl_adamw *adamw, fl_error *error) {
    for (size_t kind = 0; kind < KINDS; kind++) {
        for (size_t l = 0; l < mechanism->layers; l++) {
            for (size_t i = 0; mechanism->layer[l] != NULL && i < mechanism->tensor_count; i++) {
                const fl_mechanism_tensor *expected = &mechanism->tensors[i];
                char name[NAME_BYTES];
                fl_tensor tensor;
                tensor_name(name, kind, l, expected);
                FL_TRY(fl_checkpoint_find(file, name, &tensor, error));
                bool same = tensor.rank == expected->rank && tensor.type == FL_DTYPE_F32;
                for (size_t a = 0; same && a < expected->rank; a++)
                    same = tensor.shape[a] == expected->shape[a];
                if (!same) {
                    return fl_error_set(error, FL_ERROR_FORMAT,
                                        "%s: tensor %s does not have this mechanism's shape", path, name);
                }
                if (!copy) continue;
                memcpy(block_of(mechanism, adamw, kind, l) + expected->offset, tensor.data,
                       expected->count * sizeof(float));
            }
        }
    }
    return FL_OK;
}

fl_status fl_training_state_load(const char *path, const char *identity, size_t planned,
                                 fl_mechanism *mechanism, fl_adamw *adamw, fl_training_history *history,
                                 fl_error *error) {
    fl_checkpoint *file = NULL;
    fl_status status = FL_OK;
    FL_TRY(fl_checkpoint_open(path, &file, error));
    FL_TRY_DONE(status, check_identity(file, path, identity, error));
    FL_TRY_DONE(status, read_tensors(file, path, false, mechanism, adamw, error));
    FL_TRY_DONE(status, read_history(file, path, planned, history, error));
    FL_TRY_DONE(status, read_tensors(file, path, true, mechanism, adamw, error));
    adamw->steps = history->steps;
done:
    fl_checkpoint_close(file);
    return status;
}

fl_status fl_training_discard_other(const char *checkpoint_path, const char *identity, fl_error *error) {
    fl_checkpoint *file = NULL;
    if (access(checkpoint_path, F_OK) != 0 || fl_checkpoint_open(checkpoint_path, &file, NULL) != FL_OK)
        return FL_OK;
    const char *stored = fl_checkpoint_metadata(file, metadata_keys[META_IDENTITY]);
    const bool other = stored != NULL && strcmp(stored, identity) != 0;
    fl_checkpoint_close(file);
    if (!other || unlink(checkpoint_path) == 0) return FL_OK;
    return fl_error_set(error, FL_ERROR_IO, "%s: cannot delete: %s", checkpoint_path, strerror(errno));
}
