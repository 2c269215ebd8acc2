/* Random numbers: xoshiro256** seeded through splitmix64. The same seed gives the same numbers on every machine. */
#ifndef FL_BASE_RANDOM_H
#define FL_BASE_RANDOM_H

#include <stdint.h>

typedef struct fl_random {
    uint64_t state[4];
} fl_random;

/* Independent streams: the same seed with another `stream` gives unrelated numbers. */
void fl_random_seed(fl_random *random, uint64_t seed, uint64_t stream);
uint64_t fl_random_next(fl_random *random);
double fl_random_uniform(fl_random *random);              /* [0, 1) with 53 bits */
double fl_random_normal(fl_random *random);               /* mean 0, variance 1 (Box-Muller, one value a call) */
uint64_t fl_random_below(fl_random *random, uint64_t n);  /* uniform in [0, n), n > 0, without modulo bias */

/* A stateless hash of up to four integers: what "random" cache routing scores tokens with. */
uint64_t fl_random_hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

#endif
