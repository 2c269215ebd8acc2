#include "tests/support/cuda_device.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/compute/load_backend.h"
#include "tests/support/arrays.h"

enum { MOST_COPIES = 256 };

static fl_compute *host, *device;
static char why[FL_ERROR_MESSAGE_BYTES], path[4096];
typedef struct {
    fl_compute *compute;
    fl_array array;
} copy;
static copy copies[MOST_COPIES];
static size_t copies_count;
static bool emulated;
static void (*seed_emulation)(uint64_t seed);

/* The emulation lies beside the folder of the tests. */
static void find_object(void) {
    const size_t bytes = sizeof path;
    const char *named = getenv("FROSTLINE_TEST_CUDA");
    if (named != NULL) {
        snprintf(path, bytes, "%s", named);
        return;
    }
    const ssize_t length = readlink("/proc/self/exe", path, bytes - 1);
    path[length > 0 ? length : 0] = '\0';
    for (int level = 0; level < 2; level++) {
        char *slash = strrchr(path, '/');
        if (slash != NULL) *slash = '\0';
    }
    const size_t used = strlen(path);
    snprintf(path + used, bytes - used, "/libfrostline_cuda_emulated.so");
}

int fl_cuda_device_open(void **state) {
    (void)state;
    fl_error error = {0};
    const fl_backend *backend = NULL;
    find_object();
    emulated = getenv("FROSTLINE_TEST_CUDA") == NULL;
    if (fl_compute_create_cpu(&(fl_compute_options){2, SIZE_MAX}, &host, &error) != FL_OK) return -1;
    if (emulated && access(path, R_OK) != 0) {
        snprintf(why, sizeof why, "the emulated device was not built (it needs g++)");
        return 0;
    }
    fl_status status = fl_backend_load_file(path, &backend, &error);
    if (status == FL_OK) {
        const fl_backend_options options = {.settle_each = true};
        status = fl_backend_create(backend, &options, host, &device, &error);
    }
    if (status != FL_OK) snprintf(why, sizeof why, "%s", error.message);
    if (status != FL_OK && emulated) {
        fprintf(stderr, "%s\n", why);
        return -1;
    }
    if (emulated) {
        void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        void *symbol = object != NULL ? dlsym(object, "fl_emulation_seed") : NULL;
        memcpy(&seed_emulation, &symbol, sizeof symbol);
    }
    return 0;
}

int fl_cuda_device_close(void **state) {
    (void)state;
    fl_cuda_device_sweep();
    fl_compute_destroy(device);
    fl_compute_destroy(host);
    return 0;
}

fl_compute *fl_cuda_device(void) {
    if (device == NULL) {
        printf("skipped: cuda: %s\n", why);
        skip();
    }
    return device;
}

const char *fl_cuda_device_object(void) {
    return path;
}

void fl_cuda_device_seed(uint64_t seed) {
    if (seed_emulation != NULL) seed_emulation(seed);
}

bool fl_cuda_device_emulated(void) {
    return emulated;
}

fl_compute *fl_cuda_device_host(void) {
    return host;
}

fl_array fl_placed_array(fl_compute *compute, const void *from, fl_number number, size_t count) {
    fl_error error = {0};
    fl_array array = fl_array_none;
    assert_true(copies_count < MOST_COPIES);
    if (compute->ops->allocate(compute, count, number, &array, &error) != FL_OK)
        fail_msg("%s", error.message);
    copies[copies_count++] = (copy){compute, array};
    if (from != NULL)
        compute->ops->upload(compute, array, from, count);
    else
        compute->ops->fill(compute, array, count, 0.0);
    return array;
}

fl_array fl_placed(fl_compute *compute, const float *from, size_t count) {
    return from == NULL ? fl_array_none : fl_placed_array(compute, from, FL_FLOAT32, count);
}

fl_array fl_placed_zeros(fl_compute *compute, size_t count) {
    return fl_placed_array(compute, NULL, FL_FLOAT32, count);
}

float *fl_brought_back(fl_compute *compute, fl_array from, size_t count) {
    fl_error error = {0};
    float *to = fl_test_block(count + 1, sizeof *to);
    if (compute->ops->download(compute, to, from, count, &error) != FL_OK) fail_msg("%s", error.message);
    return to;
}

void fl_cuda_device_sweep(void) {
    while (copies_count > 0) {
        const copy *last = &copies[--copies_count];
        last->compute->ops->release(last->compute, last->array);
    }
}
