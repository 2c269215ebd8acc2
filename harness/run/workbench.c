#include "harness/run/workbench.h"

#include <stdint.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/base/memory_limit.h"
#include "harness/compute/load_backend.h"
#include "harness/measure/text_source.h"

static size_t widen_budget(const fl_workbench *bench) {
    if (bench->widen_memory > 0.0)
        return bench->widen_memory < 1e12 ? (size_t)(bench->widen_memory * 1048576.0) : SIZE_MAX;
    const size_t limit = fl_memory_limit();
    if (limit == SIZE_MAX) return SIZE_MAX;
    const fl_checkpoint *checkpoint = bench->model->checkpoint;
    size_t bytes = 0;
    for (size_t i = 0; i < fl_checkpoint_file_count(checkpoint); i++)
        bytes += fl_checkpoint_file_bytes(checkpoint, i);
    return fl_compute_widen_budget(limit, bytes, fl_model_parameter_count(bench->model));
}

fl_status fl_workbench_open(const char *model_path, fl_workbench *out, fl_error *error) {
    memset(out, 0, sizeof *out);
    FL_TRY(fl_model_open(model_path, &out->model, error));
    out->shape = fl_model_attention_shape(&out->model->config);
    return FL_OK;
}

void fl_workbench_unprepare(fl_workbench *bench) {
    if (bench->network != NULL) fl_network_destroy(bench->network);
    bench->network = NULL;
    fl_compute_destroy(bench->compute);
    fl_compute_destroy(bench->host);
    bench->compute = bench->host = NULL;
    bench->backend = NULL;
}

/* A device's instance, beside one of the cpu for what it lacks, which holds no weights. */
static fl_status create_on_device(fl_workbench *bench, size_t threads, fl_error *error) {
    const fl_compute_options host = {.threads = threads};
    const fl_backend_options options = {
        .memory_bytes = bench->where.memory < 1e12 ? (size_t)(bench->where.memory * 1048576.0) : 0};
    FL_TRY(fl_backend_load("cuda", &bench->backend, error));
    FL_TRY(fl_compute_create_cpu(&host, &bench->host, error));
    return fl_backend_create(bench->backend, &options, bench->host, &bench->compute, error);
}

fl_status fl_workbench_compute(fl_workbench *bench, size_t threads, fl_error *error) {
    if (bench->where.device != FL_DEVICE_CPU) {
        fl_status status = create_on_device(bench, threads, error);
        return status == FL_OK ? FL_OK : fl_error_prepend(error, status, "compute.device cuda");
    }
    const size_t widen = bench->model != NULL ? widen_budget(bench) : 0;
    const fl_compute_options options = {.threads = threads, .widen_budget_bytes = widen};
    return fl_compute_create_cpu(&options, &bench->compute, error);
}

fl_status fl_workbench_prepare(fl_workbench *bench, size_t threads, fl_error *error) {
    if (bench->network != NULL) return FL_OK;
    fl_status status = fl_workbench_compute(bench, threads, error);
    if (status == FL_OK) status = fl_network_create(bench->model, bench->compute, &bench->network, error);
    if (status != FL_OK) fl_workbench_unprepare(bench);
    return status;
}

void fl_workbench_close(fl_workbench *bench) {
    fl_workbench_unprepare(bench);
    if (bench->model != NULL) fl_model_close(bench->model);
    memset(bench, 0, sizeof *bench);
}

fl_status fl_workbench_tokenizer(const char *model_path, fl_tokenizer **out, fl_error *error) {
    char *path = NULL;
    FL_TRY(fl_text_source_tokenizer_path(model_path, &path, error));
    fl_status status = fl_tokenizer_open(path, out, error);
    fl_memory_free(path);
    return status;
}
