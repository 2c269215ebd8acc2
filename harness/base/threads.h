/* Threads: the one pool. OpenBLAS is held to one thread per call; all parallelism is ours, so two pools never fight.
 *
 * Results never depend on which worker ran an item; work is split by item, and an item's arithmetic does not depend on
 * the number of workers, unless a caller says otherwise. */
#ifndef FL_BASE_THREADS_H
#define FL_BASE_THREADS_H

#include <stddef.h>

#include "harness/base/status.h"

typedef struct fl_threads fl_threads;

/* `item` in [0, items), `worker` in [0, fl_threads_count): the index of scratch memory that only this worker uses now. */
typedef void (*fl_threads_body)(void *context, size_t item, size_t worker);

/* count 0 = number of processors this process may run on. */
fl_status fl_threads_create(size_t count, fl_threads **out, fl_error *error);
void fl_threads_destroy(fl_threads *threads);
size_t fl_threads_count(const fl_threads *threads);

/* Runs body for every item and returns when all are done; the calling thread takes part. Items are handed out in order,
 * one at a time. A call from inside a body runs its items in that worker, one after another, with that worker's index.
 * threads may be NULL (serial, worker 0). */
void fl_threads_for(fl_threads *threads, size_t items, fl_threads_body body, void *context);

#endif
