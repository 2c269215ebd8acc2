#include "harness/run/plan_estimate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/clock.h"
#include "harness/base/memory.h"
#include "harness/run/evaluation.h"
#include "harness/compute/compute.h"
#include "harness/engine/block.h"
#include "harness/engine/session.h"
#include "harness/eval/task_size.h"
#include "harness/store/run_file.h"

enum { PROBE_ROWS = 256, PROBE_COLUMNS = 1024 };
#define PROBE_SECONDS 0.2
/* A pass is not only matrix products: the share of their speed that whole passes reach. */
#define PASS_EFFICIENCY 0.8
/* Of training, in the time of such passes: measured on SmolLM2-135M (docs/training.md). Through the network:
 * forward, parts of it again, and one product for each input's gradient. Layer by layer: a frozen pass for
 * all cells that are fitted together, and each cell's own layers. */
#define NETWORK_TRAINING_PASSES 2.2
#define DIVERGENCE_PASSES 0.8 /* of kl besides: the frozen pass */
#define LAYER_FIT_SHARED_PASSES 0.6
#define LAYER_FIT_PASSES 0.6
/* Teacher forced: attention again and the output projection, besides the shared frozen pass. */
#define TEACHER_FORCED_PASSES 0.3

/* Elements of the matrices a token passes through. */
static double matrix_elements(const fl_model_config *config) {
    double dim = (double)config->model_dim, heads = (double)config->query_heads * (double)config->head_dim,
           kv_heads = (double)config->kv_heads * (double)config->head_dim;
    double layer = dim * (2 * heads + 2 * kv_heads) + 3 * dim * (double)config->mlp_dim;
    return (double)config->layers * layer + (double)config->vocabulary * dim;
}

static double training_length(const fl_train_config *train) {
    return train->sequence_length > 0 ? (double)train->sequence_length : 1024;
}

static double training_tokens(const fl_train_config *train) {
    return (double)train->steps * (double)(train->batch * train->accumulate) * training_length(train);
}

/* Operations of one token's forward pass in sequences of `length`. */
static double token_operations(const fl_model_config *config, double length) {
    double attention = 2 * (double)config->layers * (double)config->query_heads * (double)config->head_dim;
    return 2 * matrix_elements(config) + attention * length;
}

/* first: of the cells that are fitted together. */
static double training_operations(const fl_cell_work *cell, const fl_model_config *config, bool first) {
    if (!cell->parts.has_train) return 0;
    const fl_train_config *train = &cell->parts.train;
    double passes = NETWORK_TRAINING_PASSES;
    if (train->objective == FL_OBJECTIVE_KL) passes += DIVERGENCE_PASSES;
    if (train->objective == FL_OBJECTIVE_LAYER_MSE)
        passes = LAYER_FIT_PASSES + (first ? LAYER_FIT_SHARED_PASSES : 0.0);
    return passes * training_tokens(train) * token_operations(config, training_length(train));
}

/* Operations of one variant's tasks; cells that share them are looked at one after another. */
static double task_operations(fl_plan_estimate *estimate, const fl_cell_work *cell,
                              const fl_model_config *config) {
    const fl_task_config_list *tasks = &cell->parts.tasks;
    if (tasks->count == 0 || strcmp(estimate->tasks_key, cell->parts.tasks_key.text) == 0)
        return tasks->count == 0 ? 0 : estimate->task_operations;
    double operations = 0;
    for (size_t t = 0; t < tasks->count; t++) {
        fl_task_size size;
        if (fl_task_size_estimate(&tasks->items[t], &size, NULL) == FL_OK)
            operations += size.tokens * token_operations(config, size.longest);
        else
            estimate->without_tasks = true;
    }
    snprintf(estimate->tasks_key, sizeof estimate->tasks_key, "%s", cell->parts.tasks_key.text);
    estimate->task_operations = operations;
    return operations;
}

static double text_passes(const fl_measure_config *measure) {
    double passes = measure->teacher_forced ? TEACHER_FORCED_PASSES : 0;
    return passes + (measure->propagated || measure->language_model ? 1 : 0);
}

static double recorded_seconds(const char *run_file) {
    fl_run_reader *reader = NULL;
    double seconds = -1;
    if (fl_run_reader_open(run_file, &reader, NULL) != FL_OK) return seconds;
    if (fl_run_reader_number(reader, "/timing/cell", &seconds, NULL) != FL_OK) seconds = -1;
    fl_run_reader_close(reader);
    return seconds;
}

/* Mean over the group's done cells that train, or do not; negative when there is none. */
static double mean_of_done(const fl_cell_list *list, size_t group, bool trained) {
    double sum = 0;
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        const fl_cell_work *cell = &list->cells[i];
        if (cell->group != group || cell->state != FL_CELL_DONE || cell->parts.has_train != trained) continue;
        double seconds = recorded_seconds(cell->path);
        if (seconds < 0) continue;
        sum += seconds;
        count++;
    }
    return count > 0 ? sum / (double)count : -1;
}

/* The stream and the logits of a sequence. */
static double work_floats(const fl_model_config *config, double length) {
    double dim = (double)config->model_dim, heads = (double)config->query_heads * (double)config->head_dim;
    return length * ((double)config->layers * (dim + 4 * heads) + 2 * (double)config->vocabulary);
}

/* What a training keeps of a longest sequence, or (layer by layer) of all its frozen passes. */
static double training_floats(const fl_cell_work *cell, const fl_model_config *config) {
    if (!cell->parts.has_train) return 0;
    const fl_train_config *train = &cell->parts.train;
    double dim = (double)config->model_dim, heads = (double)config->query_heads * (double)config->head_dim;
    double layers = (double)config->layers, mlp = (double)config->mlp_dim, length = training_length(train);
    if (train->objective != FL_OBJECTIVE_LAYER_MSE)
        return length * (layers * (4 * dim + 6 * heads + 3 * mlp) + 2 * (double)config->vocabulary);
    double kept = training_tokens(train) * layers * 2 * dim;
    return work_floats(config, length) +
           fmin(kept, (double)(train->activation_budget * FL_MEBIBYTE) / sizeof(float));
}

/* What a cell that is measured holds: a layer's exact set with a block's tokens and its state, on the frozen
 * inputs and by itself, and the work of a block. */
static double measured_floats(const fl_cell_work *cell, const fl_model_config *config, double longest) {
    const fl_variant *variant = cell->linearised.variant;
    const fl_measure_config *measure = &cell->experiment->measure;
    double head_dim = (double)config->head_dim, timelines = measure->teacher_forced ? 1 : 0;
    double heads = (double)config->query_heads * head_dim, kv_heads = (double)config->kv_heads * head_dim;
    double block = fmin(longest, FL_SESSION_BLOCK);
    if (measure->propagated || measure->language_model) timelines++;
    double kept = block + (double)(variant->window + variant->sinks + variant->cache_budget);
    return timelines * (double)config->layers * (2 * kept * kv_heads + heads * head_dim) +
           (double)fl_block_bytes_of(config, false, 0, (size_t)block) / sizeof(float);
}

/* A group's memory: the weights, and the most of any training or of measuring a batch of its cells, one of
 * them without its linear part. */
typedef struct fl_group_memory {
    size_t measured;
    double cell, training; /* floats of the largest */
} fl_group_memory;

static void note_memory(fl_group_memory *memory, const fl_cell_work *cell, const fl_model_config *config,
                        double longest) {
    memory->measured += memory->measured < FL_EVALUATION_BATCH;
    memory->cell = fmax(memory->cell, measured_floats(cell, config, longest));
    memory->training = fmax(memory->training, training_floats(cell, config));
}

static double group_bytes(const fl_group_memory *memory, const fl_model_config *config, double longest) {
    double measuring = work_floats(config, longest) + (double)(memory->measured + 1) * memory->cell;
    return sizeof(float) * (matrix_elements(config) + fmax(measuring, memory->training));
}

void fl_plan_estimate_add(fl_plan_estimate *estimate, const fl_cell_list *list, size_t group_index,
                          const fl_cell_group *group) {
    const fl_model_config *config = &group->bench.model->config;
    const double done[2] = {mean_of_done(list, group_index, false), mean_of_done(list, group_index, true)};
    const double tokens = (double)group->text.tokens, sequences = (double)group->text.sequences.count;
    const double pass = tokens * token_operations(config, sequences > 0 ? tokens / sequences : 0);
    double longest = 0;
    size_t fitted = 0;
    fl_group_memory memory = {0};
    for (size_t i = 0; i < group->text.sequences.count; i++) {
        if ((double)group->text.sequences.lengths[i] > longest)
            longest = (double)group->text.sequences.lengths[i];
    }
    for (size_t i = 0; i < list->count; i++) {
        const fl_cell_work *cell = &list->cells[i];
        if (cell->group != group_index || cell->state != FL_CELL_PENDING) continue;
        note_memory(&memory, cell, config, longest);
        if (done[cell->parts.has_train] >= 0) {
            estimate->recorded++;
            estimate->seconds += done[cell->parts.has_train];
            continue;
        }
        /* Every 16th cell brings a frozen pass and, as a rule, a baseline; of tasks the same. */
        double shared = estimate->worked_out % FL_EVALUATION_BATCH == 0 ? 2 : 0;
        estimate->worked_out++;
        bool alone = fitted % FL_EVALUATION_BATCH == 0;
        fitted += cell->parts.has_train;
        estimate->operations += pass * (shared + text_passes(&cell->experiment->measure)) +
                                training_operations(cell, config, alone) +
                                (shared + 1) * task_operations(estimate, cell, config);
    }
    if (memory.measured > 0) estimate->bytes = fmax(estimate->bytes, group_bytes(&memory, config, longest));
}

/* Operations a second of a matrix product. */
static fl_status measure_speed(size_t threads, double *speed, fl_error *error) {
    const fl_compute_options options = {.threads = threads};
    const size_t rows = PROBE_ROWS, columns = PROBE_COLUMNS;
    fl_compute *compute = NULL;
    fl_array a = fl_array_none, b = fl_array_none, c = fl_array_none;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_compute_create_cpu(&options, &compute, error));
    FL_TRY_DONE(status, fl_compute_floats(compute, rows * columns, &a, error));
    FL_TRY_DONE(status, fl_compute_floats(compute, columns * columns, &b, error));
    FL_TRY_DONE(status, fl_compute_floats(compute, rows * columns, &c, error));
    compute->ops->fill(compute, a, rows * columns, 1.0);
    compute->ops->fill(compute, b, columns * columns, 1.0);
    double began = fl_clock_seconds(), spent = 0, operations = 0;
    do {
        compute->ops->matmul(compute, false, true, rows, columns, columns, 1.0f, a, columns, b, columns, 0.0f,
                             c, columns);
        operations += 2.0 * (double)rows * (double)columns * (double)columns;
        spent = fl_clock_seconds() - began;
    } while (spent < PROBE_SECONDS);
    *speed = operations / spent;
done:
    fl_compute_release(compute, a);
    fl_compute_release(compute, b);
    fl_compute_release(compute, c);
    if (compute != NULL) fl_compute_destroy(compute);
    return status;
}

fl_status fl_plan_estimate_seconds(const fl_plan_estimate *estimate, size_t threads, double *seconds,
                                   fl_error *error) {
    *seconds = estimate->seconds;
    if (estimate->worked_out == 0) return FL_OK;
    double speed = 0;
    FL_TRY(measure_speed(threads, &speed, error));
    *seconds += estimate->operations / (speed * PASS_EFFICIENCY);
    return FL_OK;
}
