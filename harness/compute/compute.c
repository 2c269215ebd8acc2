#include "harness/compute/compute.h"

#include <cblas.h>

#include "harness/base/memory.h"
#include "harness/compute/cpu_backend.h"

static void cpu_destroy(fl_compute *compute) {
    fl_cpu *cpu = fl_cpu_of(compute);
    fl_compute_release(compute, cpu->base.spare.memory);
    fl_threads_destroy(cpu->base.threads);
    fl_memory_free(cpu->scratch);
    fl_memory_free(cpu->rotation.inverse_frequencies);
    fl_memory_free(cpu->rotation.values);
    fl_memory_free(cpu);
}

static const fl_compute_ops cpu_ops = {
    .name = "cpu",
    .allocate = fl_cpu_allocate,
    .release = fl_cpu_release,
    .upload = fl_cpu_upload,
    .download = fl_cpu_download,
    .settle = fl_cpu_settle,
    .copy_rows = fl_cpu_copy_rows,
    .gather_rows = fl_cpu_gather_rows,
    .fill = fl_cpu_fill,
    .borrow = fl_cpu_borrow,
    .forget = fl_cpu_forget,
    .weight_create = fl_cpu_weight_create,
    .weight_destroy = fl_cpu_weight_destroy,
    .linear = fl_cpu_linear,
    .linear_backward = fl_cpu_linear_backward,
    .embed = fl_cpu_embed,
    .matmul = fl_cpu_matmul,
    .rms_norm = fl_cpu_rms_norm,
    .rms_norm_backward = fl_cpu_rms_norm_backward,
    .rope = fl_cpu_rope,
    .gated_activation = fl_cpu_gated_activation,
    .gated_activation_backward = fl_cpu_gated_activation_backward,
    .add = fl_cpu_add,
    .attention = fl_cpu_attention,
    .attention_backward = fl_cpu_attention_backward,
    .recurrence = fl_cpu_recurrence,
    .recurrence_backward = fl_cpu_recurrence_backward,
    .gates = fl_cpu_gates,
    .gates_backward = fl_cpu_gates_backward,
    .prepare = fl_cpu_prepare,
    .prepare_backward = fl_cpu_prepare_backward,
    .add_bonus = fl_cpu_add_bonus,
    .own_init = fl_cpu_own_init,
    .own_steps = fl_cpu_own_steps,
    .own_steps_backward = fl_cpu_own_steps_backward,
    .own_steps_backward_bytes = fl_cpu_own_steps_backward_bytes,
    .add_heads = fl_cpu_add_heads,
    .row_lengths = fl_cpu_row_lengths,
    .token_attention = fl_cpu_token_attention,
    .recall_errors = fl_cpu_recall_errors,
    .exchange_rows = fl_cpu_exchange_rows,
    .short_conv = fl_cpu_short_conv,
    .short_conv_remember = fl_cpu_short_conv_remember,
    .short_conv_backward = fl_cpu_short_conv_backward,
    .merge = fl_cpu_merge,
    .merge_backward = fl_cpu_merge_backward,
    .row_errors = fl_cpu_row_errors,
    .row_moments = fl_cpu_row_moments,
    .first_not_finite = fl_cpu_first_not_finite,
    .subtract_squares = fl_cpu_subtract_squares,
    .scale = fl_cpu_scale,
    .key_geometry = fl_cpu_key_geometry,
    .effective_rank = fl_cpu_effective_rank,
    .logit_rows = fl_cpu_logit_rows,
    .logit_divergence = fl_cpu_logit_divergence,
    .logit_gradient = fl_cpu_logit_gradient,
    .destroy = cpu_destroy,
};

fl_status fl_cpu_reserve_scratch(fl_cpu *cpu, size_t floats, fl_error *error) {
    /* Whole pages, so that no two workers write to one cache line. */
    size_t stride = (floats + 1023) / 1024 * 1024;
    if (stride <= cpu->scratch_stride) return FL_OK;
    size_t count = 0;
    FL_TRY(fl_memory_multiply(stride, cpu->workers, &count, "scratch memory", error));
    float *fresh = NULL;
    FL_TRY(FL_ALLOCATE(&fresh, count, error));
    fl_memory_free(cpu->scratch);
    cpu->scratch = fresh;
    cpu->scratch_stride = stride;
    return FL_OK;
}

size_t fl_compute_widen_budget(size_t memory, size_t file_bytes, size_t parameters) {
    const double half = 0.5 * (double)memory, file = (double)file_bytes;
    /* A byte of widened weights spares this much of the file. */
    const double spared = file / ((double)parameters * sizeof(float));
    const double room = 0.8 * (double)memory - file;
    if (spared >= 1.0) return (size_t)half;
    if (room <= 0.0) return 0;
    return room / (1.0 - spared) < half ? (size_t)(room / (1.0 - spared)) : (size_t)half;
}

fl_status fl_compute_create_cpu(const fl_compute_options *options, fl_compute **out, fl_error *error) {
    *out = NULL;
    fl_cpu *cpu = NULL;
    FL_TRY(FL_ALLOCATE(&cpu, 1, error));
    cpu->base.ops = &cpu_ops;
    cpu->kernels = fl_kernels_current();
    cpu->widen_left = options->widen_budget_bytes;
    fl_status status = fl_threads_create(options->threads, &cpu->base.threads, error);
    if (status != FL_OK) goto failed;
    cpu->workers = fl_threads_count(cpu->base.threads);
    status = fl_cpu_reserve_scratch(cpu, FL_CPU_FIXED_SCRATCH, error);
    if (status != FL_OK) goto failed;
    status = FL_ALLOCATE(&cpu->rotation.inverse_frequencies, FL_CPU_MAX_ROTARY_PAIRS, error);
    if (status != FL_OK) goto failed;
    status = FL_ALLOCATE(&cpu->rotation.values, FL_CPU_ROTATION_TABLE, error);
    if (status != FL_OK) goto failed;
    openblas_set_num_threads(1);
    *out = &cpu->base;
    return FL_OK;
failed:
    cpu_destroy(&cpu->base);
    return status;
}

fl_status fl_compute_lend(fl_compute *compute, size_t count, fl_lent_memory *out, fl_error *error) {
    *out = (fl_lent_memory){0};
    if (compute->spare.count >= count) {
        *out = compute->spare;
        compute->spare = (fl_lent_memory){0};
        return FL_OK;
    }
    FL_TRY(fl_compute_floats(compute, count, &out->memory, error));
    out->count = count;
    return FL_OK;
}

void fl_compute_take_back(fl_compute *compute, fl_lent_memory lent) {
    fl_lent_memory smaller = lent;
    if (lent.count > compute->spare.count) {
        smaller = compute->spare;
        compute->spare = lent;
    }
    fl_compute_release(compute, smaller.memory);
}

fl_status fl_compute_floats(fl_compute *compute, size_t count, fl_array *out, fl_error *error) {
    return compute->ops->allocate(compute, count, FL_FLOAT32, out, error);
}

void fl_compute_release(fl_compute *compute, fl_array array) {
    if (fl_array_is(array)) compute->ops->release(compute, array);
}

void fl_compute_copy(fl_compute *compute, fl_array to, fl_array from, size_t count) {
    compute->ops->copy_rows(compute, to, count, from, count, 1, count);
}

void fl_compute_copy_rows(fl_compute *compute, fl_array to, size_t to_stride, fl_array from,
                          size_t from_stride, size_t rows, size_t row_count) {
    compute->ops->copy_rows(compute, to, to_stride, from, from_stride, rows, row_count);
}

void fl_compute_gather_rows(fl_compute *compute, fl_array to, size_t to_stride, fl_array from,
                            size_t from_stride, fl_array index, size_t rows, size_t row_count) {
    compute->ops->gather_rows(compute, to, to_stride, from, from_stride, index, rows, row_count);
}

void fl_compute_upload(fl_compute *compute, fl_array to, const float *host, size_t count) {
    compute->ops->upload(compute, to, host, count);
}

fl_status fl_compute_download(fl_compute *compute, float *host, fl_array from, size_t count,
                              fl_error *error) {
    return compute->ops->download(compute, host, from, count, error);
}

void fl_compute_fill(fl_compute *compute, fl_array array, size_t count, double value) {
    compute->ops->fill(compute, array, count, value);
}

void fl_compute_destroy(fl_compute *compute) {
    if (compute != NULL) compute->ops->destroy(compute);
}
