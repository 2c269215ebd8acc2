#include "harness/base/progress.h"

void fl_progress_report(const fl_progress *progress, const char *stage, size_t done, size_t total) {
    if (progress != NULL && progress->report != NULL) progress->report(progress->context, stage, done, total);
}

void fl_progress_detail(const fl_progress *progress, const char *text) {
    if (progress != NULL && progress->detail != NULL) progress->detail(progress->context, text);
}

bool fl_progress_cancelled(const fl_progress *progress) {
    return progress != NULL && progress->cancelled != NULL && progress->cancelled(progress->context);
}

void fl_progress_hold(const fl_progress *progress, bool hold) {
    if (progress != NULL && progress->hold != NULL) progress->hold(progress->context, hold);
}
