/* Memory limit: how much memory this process may use, which in a job or a container is less than the machine has. */
#ifndef FL_BASE_MEMORY_LIMIT_H
#define FL_BASE_MEMORY_LIMIT_H

#include <stddef.h>

/* Bytes: the smallest of the machine's memory, the address-space limit (RLIMIT_AS) and what the control groups of the process
 * and of their parents allow (cgroup v2 memory.max, v1 memory.limit_in_bytes). SIZE_MAX where none of them is known. */
size_t fl_memory_limit(void);

/* The same for a tree that stands for the machine's root folder ("" in production): for tests. Only the control groups. */
size_t fl_memory_limit_of_groups(const char *root);

#endif
