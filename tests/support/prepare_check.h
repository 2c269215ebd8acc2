/* Checks a rule's prepare_backward against five-point finite differences of its prepare, for one head with random inputs and
 * parameters. */
#ifndef FL_TESTS_SUPPORT_PREPARE_CHECK_H
#define FL_TESTS_SUPPORT_PREPARE_CHECK_H

#include <stdint.h>

#include "attn_variants/attn_variant.h"

/* yaml: the rule's options. Returns the largest difference over all inputs and parameters, each divided by the largest
 * gradient of its kind (query, key, value, gate, beta, each parameter). Fails the test when the options do not bind. */
double fl_prepare_check(const fl_rule *rule, const char *yaml, uint64_t seed);

#endif
