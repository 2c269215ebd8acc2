/* Clock: the one monotonic clock, for how long something took. What a number means never depends on it. */
#ifndef FL_BASE_CLOCK_H
#define FL_BASE_CLOCK_H

/* Seconds since some moment that stays the same while the process runs. */
double fl_clock_seconds(void);
/* Processor time of all the process's threads together, in seconds. */
double fl_clock_processor_seconds(void);

#endif
