/* Where a process is: what tells a claim of this machine, whose process can be looked up, from one of
 * another. */
#ifndef FL_STORE_SWEEP_PLACE_H
#define FL_STORE_SWEEP_PLACE_H

#include <stdbool.h>

enum { FL_PLACE_BYTES = 256 };

typedef struct fl_sweep_place {
    char host[FL_PLACE_BYTES];
    char machine[FL_PLACE_BYTES]; /* host, boot and process namespace: equal only where process ids mean the
                                     same */
    long process;
    unsigned long long process_start; /* clock ticks after boot; 0 when unknown. Tells a process from a later
                                         one of its id */
} fl_sweep_place;

void fl_sweep_place_here(fl_sweep_place *out);

/* Whether the process of a claim made on this same machine still lives. */
bool fl_sweep_place_lives(const fl_sweep_place *place);

#endif
