#include "harness/eval/retrieval_words.h"

const char *const fl_retrieval_adjectives[FL_RETRIEVAL_ADJECTIVES] = {
    "ancient", "bitter",  "brave",  "bright", "broad",  "calm",   "careful", "cheerful", "clever", "coastal",
    "crisp",   "curious", "dusty",  "eager",  "early",  "faint",  "famous",  "fierce",   "frosty", "gentle",
    "golden",  "grand",   "hidden", "hollow", "honest", "humble", "icy",     "jolly",    "kind",   "lively",
    "lonely",  "loud",    "mellow", "misty",  "narrow", "noble",  "patient", "plain",    "polite", "proud",
    "quiet",   "rapid",   "rough",  "silent", "steady", "sunny",  "tidy",    "wooden"};

const char *const fl_retrieval_nouns[FL_RETRIEVAL_NOUNS] = {
    "anchor",   "apple",   "arrow",   "basket",   "beacon", "blanket", "bottle",  "branch",  "bridge",
    "bucket",   "button",  "candle",  "canyon",   "carpet", "castle",  "cellar",  "chapel",  "circle",
    "cloud",    "cottage", "cradle",  "desert",   "dragon", "drawer",  "engine",  "falcon",  "feather",
    "fence",    "ferry",   "forest",  "fountain", "garden", "garnet",  "glacier", "hammer",  "harbour",
    "helmet",   "hill",    "island",  "ivory",    "jacket", "kettle",  "kitchen", "ladder",  "lantern",
    "library",  "lizard",  "magnet",  "marble",   "market", "meadow",  "mirror",  "monkey",  "morning",
    "mountain", "needle",  "nest",    "orchard",  "otter",  "oven",    "paddle",  "palace",  "parrot",
    "pebble",   "pencil",  "pepper",  "pillow",   "pocket", "prairie", "quarry",  "quilt",   "rabbit",
    "ribbon",   "river",   "rocket",  "saddle",   "sailor", "salmon",  "shadow",  "shelter", "signal",
    "spider",   "spoon",   "station", "summer",   "temple", "thunder", "ticket",  "tunnel",  "turtle",
    "valley",   "village", "violin",  "wagon",    "window", "winter"};
