#include "harness/config/self_generated.h"

enum { LARGEST = 1 << 30 };

#define OPTIONS(default_seed)                                                                                \
    {                                                                                                        \
        {.key = "tokens",                                                                                    \
         .type = FL_OPTION_SIZE,                                                                             \
         .offset = offsetof(fl_self_generated, tokens),                                                      \
         .default_text = "!",                                                                                \
         .minimum = 2,                                                                                       \
         .maximum = LARGEST,                                                                                 \
         .help = "how many, rounded up to whole sequences",                                                  \
         .unit = "tokens"},                                                                                  \
            {.key = "temperature",                                                                           \
             .type = FL_OPTION_NUMBER,                                                                       \
             .offset = offsetof(fl_self_generated, temperature),                                             \
             .default_text = "1.0",                                                                          \
             .minimum = 0,                                                                                   \
             .maximum = 1e6,                                                                                 \
             .help = "1: the model's own distribution; 0: the likeliest token"},                             \
            {.key = "top_p",                                                                                 \
             .type = FL_OPTION_NUMBER,                                                                       \
             .offset = offsetof(fl_self_generated, top_p),                                                   \
             .default_text = "1.0",                                                                          \
             .minimum = 1e-9,                                                                                \
             .maximum = 1,                                                                                   \
             .help = "from the likeliest tokens that reach it together"},                                    \
            {.key = "top_k",                                                                                 \
             .type = FL_OPTION_SIZE,                                                                         \
             .offset = offsetof(fl_self_generated, top_k),                                                   \
             .default_text = "0",                                                                            \
             .maximum = LARGEST,                                                                             \
             .help = "from so many of the likeliest tokens; 0 = all",                                        \
             .unit = "tokens"},                                                                              \
            {.key = "seed",                                                                                  \
             .type = FL_OPTION_SEED,                                                                         \
             .offset = offsetof(fl_self_generated, seed),                                                    \
             .default_text = default_seed,                                                                   \
             .help = "of the draws"},                                                                        \
    }

static const fl_option text_options[] = OPTIONS("1");
static const fl_option train_options[] = OPTIONS("2");

enum { OPTION_COUNT = sizeof text_options / sizeof text_options[0] };

fl_status fl_self_generated_bind(fl_self_generated *out, fl_self_generated_use use, fl_resolved *resolved,
                                 fl_error *error) {
    const fl_option_table table = {use == FL_SELF_GENERATED_TRAIN ? train_options : text_options,
                                   OPTION_COUNT, out};
    if (out->node == NULL) return FL_OK;
    return fl_options_bind(out->node, &table, 1,
                           use == FL_SELF_GENERATED_TRAIN ? "train.self_generated" : "text.self_generated",
                           resolved, error);
}

const fl_option_section *fl_self_generated_sections(size_t *count) {
    static const fl_option_section sections[] = {
        {"text.self_generated", NULL, text_options, OPTION_COUNT},
        {"train.self_generated", NULL, train_options, OPTION_COUNT},
    };
    *count = sizeof sections / sizeof sections[0];
    return sections;
}

bool fl_self_generated_same(const fl_self_generated *a, const fl_self_generated *b) {
    if (a->node == NULL || b->node == NULL) return a->node == b->node;
    return a->tokens == b->tokens && a->temperature == b->temperature && a->top_p == b->top_p &&
           a->top_k == b->top_k && a->seed == b->seed;
}
