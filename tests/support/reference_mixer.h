/* Reference mixer: float64, one token after another, every token kept, nothing shared with the code under test but the
 * parameter table. It states the conventions once more: rules in the form of their papers, exact set by membership, scores
 * by definition. */
#ifndef FL_TESTS_SUPPORT_REFERENCE_MIXER_H
#define FL_TESTS_SUPPORT_REFERENCE_MIXER_H

#include <stddef.h>
#include <stdint.h>

#include "attn_variants/mechanism.h"

typedef struct fl_reference_call {
    const fl_mechanism *mechanism;
    size_t layer, tokens;
    const float *query, *key, *value, *input; /* [T][H][D], [T][Hkv][D] twice, [T][E] */
    double *output;                           /* [T][H][D] */
    double *state_norm;                       /* [H][T] */
    int32_t *written;                         /* [Hkv][T] */
} fl_reference_call;

void fl_reference_mixer(const fl_reference_call *call);

#endif
