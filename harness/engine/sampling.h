/* Sampling: the next token from one row of logits.
 *
 * Temperature first, then top-k, then top-p over what top-k left, each renormalised, as Hugging Face orders
 * them. Top-p keeps the most probable tokens until their sum reaches p, the one that reaches it included.
 * Among equals the lowest id goes first. */
#ifndef FL_ENGINE_SAMPLING_H
#define FL_ENGINE_SAMPLING_H

#include <stddef.h>
#include <stdint.h>

typedef struct fl_sampling {
    double temperature; /* >= 0; 0 = the most probable token */
    double top_p;       /* (0, 1]; 1 = off */
    size_t top_k;       /* 0 = off */
} fl_sampling;

typedef struct fl_sampling_candidate {
    double weight;
    int32_t id;
} fl_sampling_candidate;

/* logits [V]; uniform in [0, 1); scratch [V]. Returns the token's id, or -1 when the largest logit is not
 * finite. A NaN beside finite logits counts as impossible. */
int32_t fl_sample(const fl_sampling *sampling, const float *logits, size_t vocabulary, double uniform,
                  fl_sampling_candidate *scratch);

/* Index of the largest logit, the lowest of equal ones; 0 when all are NaN. */
size_t fl_logits_best(const float *logits, size_t vocabulary);

#endif
