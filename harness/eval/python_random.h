/* Python's `random.Random`, to the bit: few-shot samples and bootstrap errors of lm-evaluation-harness come
 * from it.
 *
 * MT19937 seeded through init_by_array with the absolute value of the integer seed, 53-bit random(),
 * getrandbits with rejection for randbelow, and the two branches of sample(). CPython 3.11's behaviour. */
#ifndef FL_EVAL_PYTHON_RANDOM_H
#define FL_EVAL_PYTHON_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"

enum { FL_PYTHON_RANDOM_WORDS = 624 };

typedef struct fl_python_random {
    uint32_t word[FL_PYTHON_RANDOM_WORDS];
    size_t next;
} fl_python_random;

void fl_python_random_seed(fl_python_random *random, uint64_t seed);
uint32_t fl_python_random_word(fl_python_random *random);
double fl_python_random_uniform(fl_python_random *random); /* [0, 1) */
/* Uniform in [0, n), n > 0. */
uint64_t fl_python_random_below(fl_python_random *random, uint64_t n);

/* chosen [k] = sample(range(population), k), distinct, in Python's order. k > population: FL_ERROR_ARGUMENT.
 */
fl_status fl_python_random_sample(fl_python_random *random, size_t population, size_t k, size_t *chosen,
                                  fl_error *error);

#endif
