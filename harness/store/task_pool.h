/* Task pool: results of one task from several runs as one result.
 *
 * Items are put together, in the order of subjects and documents that one evaluation of all has, and the
 * metrics and standard errors are made anew from them: nothing is averaged. Made items (no documents) are
 * told apart by their tokens. */
#ifndef FL_STORE_TASK_POOL_H
#define FL_STORE_TASK_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"
#include "harness/eval/task.h"

/* results [count] as fl_task_record_read leaves them; names [count] for messages; config: of all of them.
 * *run = fl_memory block [out->count], the result an item came from. FL_ERROR_ARGUMENT, naming two results
 * and the item, when both hold the same item: the same place and document hash in the same data, or the same
 * document hash in different data. */
fl_status fl_task_pool(const fl_task_config *config, const fl_task_result *results, const char *const *names,
                       size_t count, fl_task_result *out, int64_t **run, fl_error *error);

#endif
