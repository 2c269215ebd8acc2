/* Mixer case: a variant from YAML, its mechanism with every parameter disturbed, a compute instance and random q, k, v, h. */
#ifndef FL_TESTS_SUPPORT_MIXER_CASE_H
#define FL_TESTS_SUPPORT_MIXER_CASE_H

#include <stddef.h>
#include <stdint.h>

#include "attn_variants/mixer.h"
#include "tests/support/compare.h"

enum { FL_CASE_LAYER = 1, FL_CASE_LAYERS = 2 };

typedef struct fl_mixer_case {
    fl_attention_shape shape;
    size_t tokens;
    fl_document *document;
    fl_variant *variant;
    fl_mechanism *mechanism;
    fl_compute *compute;
    float *query, *key, *value, *input;
} fl_mixer_case;

typedef struct fl_case_result {
    float *output;     /* [T][H][D] */
    float *state_norm; /* [H][T], NULL when not asked for */
    int32_t *written;  /* [Hkv][T], in one piece only: NULL when the sequence was cut */
} fl_case_result;

/* rule NULL: the registry's. Fails the test when the variant does not bind. `amplitude` scales q, k, v. */
void fl_mixer_case_open(fl_mixer_case *c, const fl_rule *rule, const char *yaml, size_t query_heads, size_t kv_heads,
                        size_t head_dim, size_t tokens, double amplitude, uint64_t seed);
void fl_mixer_case_close(fl_mixer_case *c);

fl_mixer *fl_mixer_case_mixer(const fl_mixer_case *c);
/* Appends tokens first .. first + count - 1 to a mixer; output is the whole case's. */
void fl_mixer_case_append(const fl_mixer_case *c, fl_mixer *mixer, size_t first, size_t count, fl_recurrence_mode mode,
                          float *output);
/* A fresh mixer over the whole sequence in one call. */
fl_case_result fl_mixer_case_run(const fl_mixer_case *c, fl_recurrence_mode mode, int with_norm);
/* A fresh mixer, cut into pieces of the lengths given (repeated until the end; 0 is a call of no tokens). */
fl_case_result fl_mixer_case_run_cut(const fl_mixer_case *c, const size_t *pieces, size_t count,
                                     fl_recurrence_mode mode);
void fl_case_result_free(fl_case_result *result);

/* Number of floats of an output. */
size_t fl_mixer_case_floats(const fl_mixer_case *c);

/* The float64 mixer on the same inputs: output [T][H][D], norm [H][T], written [Hkv][T], all fl_memory blocks. */
typedef struct fl_case_reference {
    double *output, *state_norm;
    int32_t *written;
} fl_case_reference;
fl_case_reference fl_mixer_case_reference(const fl_mixer_case *c);
void fl_case_reference_free(fl_case_reference *reference);

#endif
