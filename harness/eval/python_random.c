#include "harness/eval/python_random.h"

#include <math.h>
#include <stdbool.h>

#include "harness/base/memory.h"

enum { WORDS = FL_PYTHON_RANDOM_WORDS, SHIFT = 397 };

static void seed_from_word(fl_python_random *random, uint32_t seed) {
    random->word[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++) {
        uint32_t last = random->word[i - 1];
        random->word[i] = 1812433253u * (last ^ last >> 30) + i;
    }
    random->next = WORDS;
}

void fl_python_random_seed(fl_python_random *random, uint64_t seed) {
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const size_t keys = key[1] != 0 ? 2 : 1;
    uint32_t *word = random->word;
    seed_from_word(random, 19650218u);
    size_t i = 1, j = 0;
    for (size_t k = WORDS; k > 0; k--) {
        word[i] = (word[i] ^ (word[i - 1] ^ word[i - 1] >> 30) * 1664525u) + key[j] + (uint32_t)j;
        if (++i == WORDS) word[0] = word[WORDS - 1], i = 1;
        if (++j == keys) j = 0;
    }
    for (size_t k = WORDS - 1; k > 0; k--) {
        word[i] = (word[i] ^ (word[i - 1] ^ word[i - 1] >> 30) * 1566083941u) - (uint32_t)i;
        if (++i == WORDS) word[0] = word[WORDS - 1], i = 1;
    }
    word[0] = 0x80000000u;
}

static void regenerate(fl_python_random *random) {
    uint32_t *word = random->word;
    for (size_t k = 0; k < WORDS; k++) {
        uint32_t y = (word[k] & 0x80000000u) | (word[(k + 1) % WORDS] & 0x7fffffffu);
        word[k] = word[(k + SHIFT) % WORDS] ^ y >> 1 ^ ((y & 1) != 0 ? 0x9908b0dfu : 0u);
    }
    random->next = 0;
}

uint32_t fl_python_random_word(fl_python_random *random) {
    if (random->next >= WORDS) regenerate(random);
    uint32_t y = random->word[random->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

double fl_python_random_uniform(fl_python_random *random) {
    uint32_t high = fl_python_random_word(random) >> 5;
    uint32_t low = fl_python_random_word(random) >> 6;
    return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0);
}

static uint64_t random_bits(fl_python_random *random, int bits) {
    if (bits <= 32) return fl_python_random_word(random) >> (32 - bits);
    uint64_t low = fl_python_random_word(random);
    return low | (uint64_t)(fl_python_random_word(random) >> (64 - bits)) << 32;
}

uint64_t fl_python_random_below(fl_python_random *random, uint64_t n) {
    int bits = 0;
    for (uint64_t rest = n; rest != 0; rest >>= 1) bits++;
    uint64_t value;
    do {
        value = random_bits(random, bits);
    } while (value >= n);
    return value;
}

static fl_status sample_from_pool(fl_python_random *random, size_t population, size_t k, size_t *chosen,
                                  fl_error *error) {
    size_t *pool = NULL;
    FL_TRY(FL_ALLOCATE(&pool, population, error));
    for (size_t i = 0; i < population; i++) pool[i] = i;
    for (size_t i = 0; i < k; i++) {
        size_t j = (size_t)fl_python_random_below(random, population - i);
        chosen[i] = pool[j];
        pool[j] = pool[population - i - 1];
    }
    fl_memory_free(pool);
    return FL_OK;
}

static bool is_among(size_t value, const size_t *chosen, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (chosen[i] == value) return true;
    }
    return false;
}

fl_status fl_python_random_sample(fl_python_random *random, size_t population, size_t k, size_t *chosen,
                                  fl_error *error) {
    if (k > population) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "cannot sample %zu of %zu", k, population);
    }
    double set_size = 21.0;
    if (k > 5) set_size += pow(4.0, ceil(log((double)k * 3.0) / log(4.0)));
    if ((double)population <= set_size) return sample_from_pool(random, population, k, chosen, error);
    for (size_t i = 0; i < k; i++) {
        size_t j;
        do {
            j = (size_t)fl_python_random_below(random, population);
        } while (is_among(j, chosen, i));
        chosen[i] = j;
    }
    return FL_OK;
}
