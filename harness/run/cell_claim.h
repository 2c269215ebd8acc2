/* Cell claim: who works on a cell, kept in the output directory so that several processes and machines share
 * a sweep (harness/store/sweep.h), and the journal of what the cell has finished.
 *
 * A cell is claimed before anything is computed for it and given back when its run file is there, when it
 * failed (recorded: the next run skips it unless told otherwise) or when the run is interrupted. */
#ifndef FL_RUN_CELL_CLAIM_H
#define FL_RUN_CELL_CLAIM_H

#include <stdbool.h>

#include "harness/base/progress.h"
#include "harness/run/cell_list.h"

/* Claims a pending cell and opens its journal; cell->claim stays NULL, with FL_OK, when there is nothing to
 * do here: the state says why. */
fl_status fl_cell_claim(const fl_cell_list *list, fl_cell_work *cell, fl_error *error);

/* A line of the cell's journal: an event ("training", "text", "tasks") and the seconds it took. The journal
 * is a comfort: failing to write it fails nothing. */
void fl_cell_journal(fl_cell_work *cell, const char *event, double seconds);

/* False when another process has taken the cell over (this one was silent for too long). Marks it so. */
bool fl_cell_keeps(fl_cell_work *cell);

/* Gives the cell back, as its state says: computed, failed (with `cause` recorded), or as it was. NULL cause:
 * not failed. What cannot be written is the cell's failure. */
void fl_cell_give_back(fl_cell_work *cell, const fl_error *cause);

/* Looks again at cells that other processes worked on: those finished become done, those given up pending.
 * group SIZE_MAX: of all groups. Returns how many became pending. */
size_t fl_cell_look_again(fl_cell_list *list, size_t group);

/* Progress that also renews the claims held. Cancels when `outer` says so or when every claim is lost. */
typedef struct fl_cell_beat {
    fl_cell_list *list;
    const fl_progress *outer;
} fl_cell_beat;

fl_progress fl_cell_beat_progress(fl_cell_beat *beat);

#endif
