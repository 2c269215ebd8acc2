#include "harness/cli/positionals.h"

#include "harness/cli/words.h"

const fl_positional fl_positionals_model[] = {
    {.name = "MODEL", .kind = FL_VALUE_FILE, .help = "a .gguf file or a Hugging Face folder"},
    {0},
};

const fl_positional fl_positionals_sweep[] = {
    {.name = "CONFIG", .kind = FL_VALUE_FILE, .help = "a YAML file: one cell, or a sweep of them"},
    {.name = "KEY=VALUE",
     .kind = FL_VALUE_TEXT,
     .words = fl_words_assignments,
     .optional = true,
     .repeated = true,
     .help = "overrides a key of it, also inside: variant.window=120, text.sequences=4"},
    {0},
};
