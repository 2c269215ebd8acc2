#include "harness/bench/operation_list.h"

#include <string.h>

static const fl_operation *const lists[] = {fl_operations_memory,    fl_operations_dense,
                                            fl_operations_attention, fl_operations_mixer,
                                            fl_operations_rows,      fl_operations_statistics};

const fl_operation *fl_operation_at(size_t index) {
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++) {
        for (const fl_operation *operation = lists[l]; operation->name != NULL; operation++) {
            if (index-- == 0) return operation;
        }
    }
    return NULL;
}

size_t fl_operation_used_by_all(const size_t **slots) {
    static const size_t used[] = {
        offsetof(fl_compute_ops, name),          offsetof(fl_compute_ops, allocate),
        offsetof(fl_compute_ops, release),       offsetof(fl_compute_ops, upload),
        offsetof(fl_compute_ops, download),      offsetof(fl_compute_ops, settle),
        offsetof(fl_compute_ops, weight_create), offsetof(fl_compute_ops, weight_destroy),
        offsetof(fl_compute_ops, destroy),       offsetof(fl_compute_ops, own_steps_backward_bytes),
    };
    *slots = used;
    return sizeof used / sizeof used[0];
}

void fl_operation_draw(const fl_operation *operation, fl_random *random, size_t sizes[FL_OPERATION_SIZES]) {
    for (size_t i = 0; i < FL_OPERATION_SIZES && operation->sizes[i].name != NULL; i++) {
        const size_t *edges = operation->sizes[i].edges;
        size_t count = 1;
        while (count < FL_OPERATION_EDGES && edges[count] != 0) count++;
        sizes[i] = edges[fl_random_below(random, count)];
    }
}

bool fl_operation_present(const fl_operation *operation, const fl_compute *compute) {
    void (*function)(void) = NULL;
    memcpy(&function, (const char *)compute->ops + operation->slot, sizeof function);
    return function != NULL;
}

/* So that a case does not change with its place in the table. */
static uint64_t stream_of(const fl_operation *operation) {
    uint64_t hash = 0;
    for (const char *c = operation->name; *c != '\0'; c++) hash = fl_random_hash(hash, (uint64_t)*c, 0, 0);
    return hash;
}

fl_status fl_operation_begin(const fl_operation *operation, fl_compute *compute, const size_t *sizes,
                             uint64_t seed, fl_trial *trial, fl_error *error) {
    memset(trial, 0, sizeof *trial);
    trial->compute = compute;
    trial->sizes = sizes;
    fl_random_seed(&trial->random, seed, stream_of(operation));
    const fl_status status = operation->make(trial, error);
    return status == FL_OK ? FL_OK : fl_error_prepend(error, status, "operation %s", operation->name);
}
