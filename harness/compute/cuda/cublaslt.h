/* cuBLASLt: our declarations of the few functions that are opened at run time (dlopen), so that its 421 MB package is not needed to
 * compile. Values and structures as in cublasLt.h of versions 11 to 13, which bench/device/cublaslt_check.cc compares with the real
 * header where there is one. */
#ifndef FL_COMPUTE_CUDA_CUBLASLT_H
#define FL_COMPUTE_CUDA_CUBLASLT_H

#include <stddef.h>
#include <stdint.h>

enum {
    FL_CUBLAS_COMPUTE_32F = 68, /* float32, no TF32 */
    FL_CUBLAS_R_32F = 0,
    FL_CUBLAS_OP_N = 0,
    FL_CUBLAS_OP_T = 1,
    FL_CUBLASLT_DESC_TRANSA = 3,
    FL_CUBLASLT_DESC_TRANSB = 4,
    FL_CUBLASLT_PREF_MAX_WORKSPACE_BYTES = 1,
    FL_CUBLASLT_ALGO_CONFIG_ID = 0,
    FL_CUBLASLT_ALGO_CONFIG_TILE_ID = 1,
    FL_CUBLASLT_ALGO_CONFIG_SPLITK_NUM = 2
};

typedef struct fl_cublaslt_algorithm {
    uint64_t data[8];
} fl_cublaslt_algorithm;

typedef struct fl_cublaslt_heuristic {
    fl_cublaslt_algorithm algorithm;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
} fl_cublaslt_heuristic;

typedef struct fl_cublaslt_functions {
    size_t (*get_version)(void);
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*desc_create)(void **desc, int compute_type, int scale_type);
    int (*desc_destroy)(void *desc);
    int (*desc_set)(void *desc, int attribute, const void *value, size_t bytes);
    int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t columns, int64_t leading);
    int (*layout_destroy)(void *layout);
    int (*preference_create)(void **preference);
    int (*preference_destroy)(void *preference);
    int (*preference_set)(void *preference, int attribute, const void *value, size_t bytes);
    int (*heuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted,
                     fl_cublaslt_heuristic *results, int *found);
    int (*matmul)(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b, void *b_layout,
                  const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
                  const fl_cublaslt_algorithm *algorithm, void *workspace, size_t workspace_bytes, void *stream);
    int (*algorithm_get)(const fl_cublaslt_algorithm *algorithm, int attribute, void *value, size_t bytes, size_t *written);
} fl_cublaslt_functions;

#endif
