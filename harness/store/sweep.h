/* Sweep bookkeeping: which cells of an output directory are done, and who works on which.
 *
 * A cell is its run id. Its state is read from files beside one another in the directory, so several
 * processes on several machines with one shared folder agree: `<run-id>.h5` (done; it appears whole or not at
 * all), `<run-id>.claim` (being worked on),
 * `<run-id>.failed.json` (failed). A claim is made by a hard link (it appears with its text, and once) and is
 * never waited for. It is
 * stale, and may be taken over, when its process is gone (same machine) or its heartbeat is older than a
 * limit (another machine). Taking over is serialised by a POSIX lock on `.takeover.lock`, so that two
 * processes never both inherit a cell. */
#ifndef FL_STORE_SWEEP_H
#define FL_STORE_SWEEP_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"

/* Without a heartbeat for so long, a claim of another machine is stale. */
#define FL_SWEEP_STALE_SECONDS 600.0

typedef enum fl_sweep_state {
    FL_SWEEP_MISSING = 0, /* nobody has begun */
    FL_SWEEP_RUNNING,
    FL_SWEEP_STALE, /* begun by a process that is gone */
    FL_SWEEP_FAILED,
    FL_SWEEP_DONE
} fl_sweep_state;

/* "missing", "running", ... */
const char *fl_sweep_state_name(fl_sweep_state state);

/* Looks only; changes nothing. A directory that is not there holds missing cells. */
fl_status fl_sweep_state_of(const char *directory, const char *run_id, double stale_seconds,
                            fl_sweep_state *out, fl_error *error);

typedef struct fl_sweep_claim fl_sweep_claim;

typedef struct fl_sweep_policy {
    double stale_seconds; /* 0: FL_SWEEP_STALE_SECONDS */
    bool retry_failed;    /* also claim cells that have failed */
} fl_sweep_policy;

/* Claims a cell that is missing or stale (or failed). *claim = NULL with FL_OK when there is nothing to do
 * here: *state says why. Unfinished run files of the cell are deleted; its journal is kept. The directory is
 * made when it is not there. */
fl_status fl_sweep_claim_create(const char *directory, const char *run_id, const fl_sweep_policy *policy,
                                fl_sweep_claim **claim, fl_sweep_state *state, fl_error *error);

/* Measuring a finished cell anew. The old run file becomes `<run-id>.h5.older` once the cell is claimed, and
 * goes when the new one is there (`<run-id>.mechanism.safetensors` likewise): killed at any moment, the
 * directory holds one of them whole. */

/* Tells a run file from the one that replaces it. */
typedef struct fl_sweep_stamp {
    unsigned long long device, file, bytes;
    long long seconds, nanoseconds; /* of its last change */
} fl_sweep_stamp;

/* *there false: no run file. */
fl_status fl_sweep_stamp_of(const char *directory, const char *run_id, fl_sweep_stamp *out, bool *there,
                            fl_error *error);

/* Like fl_sweep_claim_create for a cell that is done, as long as its run file is the one of `replaced`: who
 * comes after another has measured it anew finds it done. replaced NULL: a cell that is done stays so. */
fl_status fl_sweep_claim_again(const char *directory, const char *run_id, const fl_sweep_policy *policy,
                               const fl_sweep_stamp *replaced, fl_sweep_claim **claim, fl_sweep_state *state,
                               fl_error *error);

/* Puts back an old run file whose successor was never finished; nothing when there is none, or when the cell
 * is done or being worked on. */
fl_status fl_sweep_restore(const char *directory, const char *run_id, const fl_sweep_policy *policy, fl_error *error);

/* Call it whenever work has gone on (every progress report will do): at most every few seconds it renews the
 * heartbeat. False when another process has taken the cell over: stop then. Thread-safe with itself no, with
 * everything else yes. */
bool fl_sweep_claim_beat(fl_sweep_claim *claim);

/* Gives the cell back: call it after the run file is committed (an old failure is forgotten) or after
 * fl_sweep_claim_fail. A cell that is neither is missing again. NULL is fine. */
fl_status fl_sweep_claim_release(fl_sweep_claim *claim, fl_error *error);

/* Records that the cell failed, durably. `log` (a file with its output) may be NULL. */
fl_status fl_sweep_claim_fail(fl_sweep_claim *claim, const fl_error *cause, const char *log, fl_error *error);

/* Deletes what processes that were killed right after finishing a cell have left beside its run file: claim,
 * journal, old failure, training state, finished stages, unfinished files, the run file it replaced. Cells that are not done or whose claim is alive
 * keep theirs. */
fl_status fl_sweep_tidy(const char *directory, double stale_seconds, fl_error *error);

/* Waits for `<directory>/.<name>.lock`, which goes when the process does: for the files that all workers of a
 * directory write (tables, pictures). Not for claims. */
fl_status fl_sweep_lock(const char *directory, const char *name, int *lock, fl_error *error);
void fl_sweep_unlock(int lock);

/* What fl_sweep_claim_fail wrote, or who holds a claim. Members are fl_memory blocks or NULL. */
typedef struct fl_sweep_note {
    char *status, *message, *log; /* of a failure */
    char *host, *time;
    double process;
} fl_sweep_note;

fl_status fl_sweep_read_failure(const char *directory, const char *run_id, fl_sweep_note *out,
                                fl_error *error);
fl_status fl_sweep_read_claim(const char *directory, const char *run_id, fl_sweep_note *out, fl_error *error);
void fl_sweep_note_release(fl_sweep_note *note);

/* Run ids of all finished runs of a directory, sorted; *ids = fl_memory block of fl_memory blocks. */
fl_status fl_sweep_list_done(const char *directory, char ***ids, size_t *count, fl_error *error);
/* Likewise those that have been begun, or failed, and have no run file. */
fl_status fl_sweep_list_unfinished(const char *directory, char ***ids, size_t *count, fl_error *error);
void fl_sweep_list_release(char **ids, size_t count);

#endif
