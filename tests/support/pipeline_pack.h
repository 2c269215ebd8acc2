/* One checkpoint of the `pipeline` pack (or of the part of it in tests/fixtures): its manifest's configurations as variants and
 * mechanisms with the stored parameters loaded. */
#ifndef FL_TESTS_SUPPORT_PIPELINE_PACK_H
#define FL_TESTS_SUPPORT_PIPELINE_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn_variants/mechanism.h"
#include "attn_variants/variant.h"
#include "harness/measure/text_evaluation.h"
#include "harness/model/checkpoint.h"
#include "tests/support/network_fixture.h"

typedef struct fl_pipeline_case {
    char name[64];
    bool has_gradients, has_training;
    fl_variant *variant;
    fl_mechanism *mechanism;
    fl_checkpoint *expected; /* <name>.safetensors */
} fl_pipeline_case;

typedef struct fl_pipeline_pack {
    fl_test_network under_test;
    fl_checkpoint *common;
    fl_pipeline_case *cases;
    size_t count;
} fl_pipeline_pack;

/* Opens <root>/pipeline/<checkpoint> with the model <root>/reference/<checkpoint>: from the fixtures, or from the pack.
 * false: not there. Anything else that goes wrong fails the test, naming the configuration. */
bool fl_pipeline_pack_open(const char *checkpoint, bool from_pack, fl_pipeline_pack *out);
void fl_pipeline_pack_close(fl_pipeline_pack *pack);

/* Copies the tensors <prefix>layers.<i>.<name> over the mechanism's parameters; every one must be there. */
void fl_pipeline_load_parameters(const fl_checkpoint *file, const char *prefix, fl_mechanism *mechanism);

/* Sequences of the pack: "a", "b" or "ab". */
fl_sequences fl_pipeline_sequences(const fl_pipeline_pack *pack, const char *which);

#endif
