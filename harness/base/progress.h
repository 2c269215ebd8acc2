/* Progress: long library calls report through this, and ask whether to stop. The command line prints; the
 * library never does. Every member may be NULL. */
#ifndef FL_BASE_PROGRESS_H
#define FL_BASE_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

/* Characters of a detail, its end included. */
enum { FL_PROGRESS_DETAIL_BYTES = 160 };

typedef struct fl_progress {
    /* `stage` is a short noun phrase, the same pointer or text all through one stage; done <= total. */
    void (*report)(void *context, const char *stage, size_t done, size_t total);
    /* What there is to say of the stage at this moment ("loss 2.31, 812 tokens/s"), shown with the next
     * report. */
    void (*detail)(void *context, const char *text);
    /* true: finish as soon as nothing is lost and return FL_ERROR_CANCELLED. */
    bool (*cancelled)(void *context);
    /* Between hold true and hold false something is written that a cancelled call waits for. */
    void (*hold)(void *context, bool hold);
    void *context;
} fl_progress;

/* NULL-safe calls. */
void fl_progress_report(const fl_progress *progress, const char *stage, size_t done, size_t total);
void fl_progress_detail(const fl_progress *progress, const char *text);
bool fl_progress_cancelled(const fl_progress *progress);
void fl_progress_hold(const fl_progress *progress, bool hold);

#endif
