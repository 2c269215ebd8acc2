/* Workbench: a model opened and, when there is something to compute, made ready to compute with. */
#ifndef FL_RUN_WORKBENCH_H
#define FL_RUN_WORKBENCH_H

#include <stddef.h>

#include "harness/base/status.h"
#include "harness/compute/backend.h"
#include "harness/compute/compute.h"
#include "harness/config/experiment.h"
#include "harness/engine/network.h"
#include "harness/model/model.h"
#include "harness/model/tokenizer.h"

typedef struct fl_workbench {
    fl_model *model;
    fl_attention_shape shape;
    double widen_memory; /* MiB for widened weights; 0, as opened: fl_compute_widen_budget */
    fl_compute_config where; /* as opened: the cpu */
    fl_compute *host;        /* of a device's instance: what it lacks; else NULL */
    fl_compute *compute;     /* NULL until prepared */
    const fl_backend *backend; /* of a device's instance, else NULL */
    fl_network *network;
} fl_workbench;

/* Maps and checks the model: cheap. */
fl_status fl_workbench_open(const char *model_path, fl_workbench *out, fl_error *error);
/* Makes it ready to compute; nothing when it is already. threads 0: all processors. Weights are widened to
 * float32 once as far as widen_memory goes, the rest panel by panel in each product. */
fl_status fl_workbench_prepare(fl_workbench *bench, size_t threads, fl_error *error);
/* The instance alone, which needs no model. */
fl_status fl_workbench_compute(fl_workbench *bench, size_t threads, fl_error *error);
/* Network and instance go; the model stays. */
void fl_workbench_unprepare(fl_workbench *bench);
void fl_workbench_close(fl_workbench *bench);

/* The tokenizer that belongs to a model path: the .gguf itself, the folder, or the folder a .safetensors file
 * lies in. */
fl_status fl_workbench_tokenizer(const char *model_path, fl_tokenizer **out, fl_error *error);

#endif
