#include "harness/base/random.h"

#include <math.h>

static uint64_t splitmix(uint64_t *x) {
    uint64_t z = (*x += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t rotate_left(uint64_t x, int k) {
    return (x << k) | (x >> (64 - k));
}

void fl_random_seed(fl_random *random, uint64_t seed, uint64_t stream) {
    uint64_t x = seed;
    uint64_t mixed = splitmix(&x) ^ (stream * UINT64_C(0xd1342543de82ef95));
    for (int i = 0; i < 4; i++) random->state[i] = splitmix(&mixed);
}

uint64_t fl_random_next(fl_random *random) {
    uint64_t *s = random->state;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double fl_random_uniform(fl_random *random) {
    return (double)(fl_random_next(random) >> 11) * 0x1.0p-53;
}

double fl_random_normal(fl_random *random) {
    double u = 1.0 - fl_random_uniform(random);
    double v = fl_random_uniform(random);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586476925 * v);
}

uint64_t fl_random_below(fl_random *random, uint64_t n) {
    uint64_t threshold = (0 - n) % n;
    for (;;) {
        uint64_t x = fl_random_next(random);
        if (x >= threshold) return x % n;
    }
}

uint64_t fl_random_hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    uint64_t x = a;
    uint64_t h = splitmix(&x);
    x = h ^ b;
    h = splitmix(&x);
    x = h ^ c;
    h = splitmix(&x);
    x = h ^ d;
    return splitmix(&x);
}
