/* Work that may crash in code that is not ours, done first where a crash costs nothing. */
#ifndef FL_BASE_CHILD_H
#define FL_BASE_CHILD_H

/* Runs work(context) in a child process, which then ends without any clean-up, and waits for it. Returns 0 when it came to its end,
 * the number of the signal that ended it (SIGALRM: it took longer than `seconds`), or 0 when no process can be made: then nothing
 * was learnt. The child has only the calling thread: work must not wait for others. */
int fl_child_signal(void (*work)(void *context), void *context, unsigned seconds);

#endif
