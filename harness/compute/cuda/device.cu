/* An instance's life, memory and errors. */
#include "harness/compute/cuda/operations.h"

#include <stdio.h>

void fl_cuda_fail(fl_cuda *device, const char *operation, const char *what) {
    if (device->failed) return;
    device->failed = true;
    device->failure = std::string(operation) + ": " + what;
}

void fl_cuda_launched(fl_cuda *device, const char *operation) {
    cudaError_t status = cudaGetLastError();
    if (status == cudaSuccess && device->options.settle_each) status = cudaStreamSynchronize(device->stream);
    if (status != cudaSuccess) fl_cuda_fail(device, operation, cudaGetErrorString(status));
}

/* Few sizes, so that what is released fits what is wanted next: an eighth of a power of two apart. */
static size_t rounded(size_t bytes) {
    size_t step = 256;
    while (step * 16 < bytes) step *= 2;
    return fl_pieces(bytes > 0 ? bytes : 1, step) * step;
}

static void give_back_idle(fl_cuda *device) {
    cudaStreamSynchronize(device->stream);
    for (const std::pair<const size_t, void *> &block : device->idle) {
        cudaFree(block.second);
        device->taken -= block.first;
    }
    device->idle.clear();
}

static void *fresh(fl_cuda *device, size_t bytes) {
    void *memory = NULL;
    if (device->limit - device->taken < bytes || cudaMalloc(&memory, bytes) != cudaSuccess) {
        cudaGetLastError();
        give_back_idle(device);
        if (device->limit - device->taken < bytes || cudaMalloc(&memory, bytes) != cudaSuccess) {
            cudaGetLastError();
            return NULL;
        }
    }
    device->taken += bytes;
    return memory;
}

/* NULL without an error noted. */
static void *try_take(fl_cuda *device, size_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    const size_t size = rounded(bytes);
    std::multimap<size_t, void *>::iterator idle = device->idle.find(size);
    void *memory;
    if (idle != device->idle.end()) {
        memory = idle->second;
        device->idle.erase(idle);
    } else {
        memory = fresh(device, size);
    }
    if (memory != NULL) device->live[memory] = size;
    return memory;
}

static std::string out_of_memory(fl_cuda *device, size_t bytes) {
    char text[160];
    size_t free_bytes = 0, total = 0;
    cudaMemGetInfo(&free_bytes, &total);
    const size_t left = device->limit - device->taken;
    snprintf(text, sizeof text, "%s has no room for %.1f MB more: %.1f MB are free", device->device_name.c_str(),
             (double)bytes / 1e6, (double)(left < free_bytes ? left : free_bytes) / 1e6);
    return text;
}

void *fl_cuda_take(fl_cuda *device, size_t bytes, const char *operation) {
    if (device->failed) return NULL;
    void *memory = try_take(device, bytes);
    if (memory == NULL) fl_cuda_fail(device, operation, out_of_memory(device, bytes).c_str());
    return memory;
}

void fl_cuda_give(fl_cuda *device, void *memory) {
    std::map<void *, size_t>::iterator at = device->live.find(memory);
    if (at == device->live.end()) return;
    device->idle.insert({at->second, memory});
    device->live.erase(at);
}

fl_status fl_cuda_check(fl_cuda *device, fl_error *error) {
    if (!device->failed) return FL_OK;
    return device->services->set_error(error, FL_ERROR_UNSUPPORTED, "%s: %s", device->device_name.c_str(), device->failure.c_str());
}

fl_status fl_cuda_allocate(fl_compute *compute, size_t count, fl_number number, fl_array *out, fl_error *error) {
    fl_cuda *device = fl_cuda_of(compute);
    const size_t element = fl_number_bytes(number);
    out->at = NULL;
    out->number = number;
    fl_status status = fl_cuda_check(device, error);
    if (status != FL_OK) return status;
    out->at = count > SIZE_MAX / element ? NULL : try_take(device, count * element);
    if (out->at != NULL) return FL_OK;
    return device->services->set_error(error, FL_ERROR_MEMORY, "%s", out_of_memory(device, count * element).c_str());
}

void fl_cuda_release(fl_compute *compute, fl_array array) { fl_cuda_give(fl_cuda_of(compute), array.at); }

/* From memory that the system may page the runtime copies before it returns. */
void fl_cuda_upload(fl_compute *compute, fl_array to, const void *from, size_t count) {
    fl_cuda *device = fl_cuda_of(compute);
    if (device->failed || count == 0) return;
    const cudaError_t status =
        cudaMemcpyAsync(to.at, from, count * fl_number_bytes(to.number), cudaMemcpyHostToDevice, device->stream);
    if (status != cudaSuccess) fl_cuda_fail(device, "upload", cudaGetErrorString(status));
}

fl_status fl_cuda_settle(fl_compute *compute, fl_error *error) {
    fl_cuda *device = fl_cuda_of(compute);
    const cudaError_t status = cudaStreamSynchronize(device->stream);
    if (status != cudaSuccess) fl_cuda_fail(device, "an operation before", cudaGetErrorString(status));
    return fl_cuda_check(device, error);
}

fl_status fl_cuda_download(fl_compute *compute, void *to, fl_array from, size_t count, fl_error *error) {
    fl_cuda *device = fl_cuda_of(compute);
    if (!device->failed && count > 0) {
        const cudaError_t status =
            cudaMemcpyAsync(to, from.at, count * fl_number_bytes(from.number), cudaMemcpyDeviceToHost, device->stream);
        if (status != cudaSuccess) fl_cuda_fail(device, "download", cudaGetErrorString(status));
    }
    return fl_cuda_settle(compute, error);
}

fl_status fl_cuda_borrow(fl_compute *compute, const void *from, size_t count, fl_number number, uint64_t version, fl_array *out,
                         fl_error *error) {
    fl_cuda *device = fl_cuda_of(compute);
    const size_t bytes = count * fl_number_bytes(number);
    std::map<const void *, fl_borrowed>::iterator at = device->borrowed.find(from);
    if (at != device->borrowed.end() && at->second.bytes < bytes) {
        fl_cuda_forget(compute, from);
        at = device->borrowed.end();
    }
    if (at == device->borrowed.end()) {
        fl_array array;
        fl_status status = fl_cuda_allocate(compute, count, number, &array, error);
        if (status != FL_OK) return status;
        at = device->borrowed.insert({from, {array.at, bytes, ~version}}).first;
    }
    out->at = at->second.at;
    out->number = number;
    if (at->second.version != version) fl_cuda_upload(compute, *out, from, count);
    at->second.version = version;
    return FL_OK;
}

void fl_cuda_forget(fl_compute *compute, const void *from) {
    fl_cuda *device = fl_cuda_of(compute);
    std::map<const void *, fl_borrowed>::iterator at = device->borrowed.find(from);
    if (at == device->borrowed.end()) return;
    fl_cuda_give(device, at->second.at);
    device->borrowed.erase(at);
}

static std::string version_text(int version) {
    char text[32];
    snprintf(text, sizeof text, "%d.%d", version / 1000, version % 1000 / 10);
    return text;
}

static fl_status open_device(fl_cuda *device, fl_error *error) {
    const fl_backend_services *services = device->services;
    int count = 0, driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    device->driver = version_text(driver);
    device->runtime = version_text(runtime);
    if (driver == 0) {
        return services->set_error(error, FL_ERROR_UNSUPPORTED, "this machine has no NVIDIA driver: set compute.device to cpu");
    }
    if (driver / 1000 < runtime / 1000) {
        return services->set_error(error, FL_ERROR_UNSUPPORTED,
                                   "the NVIDIA driver is too old: it knows CUDA %s and frostline's object was made with %s; install a "
                                   "newer driver (580 or later for CUDA 13), or build with an older toolkit (make cuda NVCC=...)",
                                   device->driver.c_str(), device->runtime.c_str());
    }
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0) {
        return services->set_error(error, FL_ERROR_UNSUPPORTED, "no CUDA device can be used: %s",
                                   status != cudaSuccess ? cudaGetErrorString(status) : "there is none");
    }
    if (device->options.device < 0 || device->options.device >= count) {
        return services->set_error(error, FL_ERROR_ARGUMENT, "there is no CUDA device %d: this machine has %d, counted from 0",
                                   device->options.device, count);
    }
    cudaDeviceProp properties;
    if ((status = cudaSetDevice(device->options.device)) != cudaSuccess ||
        (status = cudaGetDeviceProperties(&properties, device->options.device)) != cudaSuccess ||
        (status = cudaStreamCreate(&device->stream)) != cudaSuccess) {
        return services->set_error(error, FL_ERROR_UNSUPPORTED, "CUDA device %d: %s", device->options.device,
                                   cudaGetErrorString(status));
    }
    device->device_name = properties.name;
    device->multiprocessors = properties.multiProcessorCount;
    if (properties.major < 8) {
        return services->set_error(error, FL_ERROR_UNSUPPORTED, "%s is of compute capability %d.%d; frostline needs 8.0 or newer",
                                   properties.name, properties.major, properties.minor);
    }
    size_t free_bytes = 0, total = 0;
    cudaMemGetInfo(&free_bytes, &total);
    const size_t margin = (size_t)1 << 30;
    device->limit = device->options.memory_bytes > 0 ? device->options.memory_bytes : free_bytes > 2 * margin ? free_bytes - margin : free_bytes / 2;
    return FL_OK;
}

void fl_cuda_destroy(fl_compute *compute) {
    fl_cuda *device = fl_cuda_of(compute);
    fl_cuda_products_close(device);
    while (!device->live.empty()) fl_cuda_give(device, device->live.begin()->first);
    if (device->device_name != "") {
        give_back_idle(device);
        cudaStreamDestroy(device->stream);
    }
    delete device;
}

fl_status fl_cuda_create(const fl_compute_ops *ops, const fl_backend_options *options, const fl_backend_services *services,
                         fl_compute **out, fl_error *error) {
    fl_cuda *device = new fl_cuda();
    *out = NULL;
    device->base.ops = ops;
    device->base.threads = services->host->threads;
    device->services_copy = *services;
    device->services = &device->services_copy;
    device->options = *options;
    fl_status status = open_device(device, error);
    if (status == FL_OK) status = fl_cuda_products_open(device, error);
    if (status != FL_OK) {
        fl_cuda_destroy(&device->base);
        return status;
    }
    *out = &device->base;
    return FL_OK;
}
