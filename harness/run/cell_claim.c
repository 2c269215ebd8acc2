#include "harness/run/cell_claim.h"

#include <stdint.h>
#include <string.h>

#include "harness/base/memory.h"

static fl_status open_journal(const fl_cell_list *list, fl_cell_work *cell, fl_error *error) {
    FL_TRY(fl_journal_open(list->out, cell->run_id, &cell->journal, error));
    const fl_journal_field fields[] = {{.name = "label", .text = cell->label}};
    return fl_journal_append(cell->journal, "begun", fields, 1, error);
}

fl_status fl_cell_claim(const fl_cell_list *list, fl_cell_work *cell, fl_error *error) {
    fl_sweep_state state = FL_SWEEP_MISSING;
    fl_sweep_policy policy = list->policy;
    policy.retry_failed = policy.retry_failed || cell->rerun;
    FL_TRY(fl_sweep_claim_again(list->out, cell->run_id, &policy, cell->again ? &cell->stamp : NULL,
                                &cell->claim, &state, error));
    if (cell->claim == NULL) return fl_cell_take_state(list, cell, state, error);
    fl_status status = open_journal(list, cell, error);
    if (status == FL_OK) return FL_OK;
    fl_sweep_claim_release(cell->claim, NULL);
    cell->claim = NULL;
    return status;
}

void fl_cell_journal(fl_cell_work *cell, const char *event, double seconds) {
    const fl_journal_field fields[] = {{.name = "seconds", .number = seconds}};
    if (cell->journal != NULL) fl_journal_append(cell->journal, event, fields, 1, NULL);
}

bool fl_cell_keeps(fl_cell_work *cell) {
    if (cell->claim != NULL && !cell->lost) cell->lost = !fl_sweep_claim_beat(cell->claim);
    return cell->claim != NULL && !cell->lost;
}

static void close_journal(fl_cell_work *cell) {
    /* A successor writes the journal of a lost cell. */
    fl_journal_close(cell->journal, cell->lost || cell->state != FL_CELL_COMPUTED, NULL);
    cell->journal = NULL;
}

void fl_cell_give_back(fl_cell_work *cell, const fl_error *cause) {
    fl_error error;
    close_journal(cell);
    if (cell->claim == NULL) return;
    fl_status status = FL_OK;
    if (cause != NULL && !cell->lost) status = fl_sweep_claim_fail(cell->claim, cause, NULL, &error);
    fl_status released = fl_sweep_claim_release(cell->claim, status == FL_OK ? &error : NULL);
    cell->claim = NULL;
    if (cell->lost) {
        cell->state = FL_CELL_ELSEWHERE;
    } else if (status != FL_OK || (released != FL_OK && cell->state != FL_CELL_COMPUTED)) {
        fl_cell_fail(cell, &error);
    }
    cell->lost = false;
}

size_t fl_cell_look_again(fl_cell_list *list, size_t group) {
    size_t pending = 0;
    for (size_t i = 0; i < list->count; i++) {
        fl_cell_work *cell = &list->cells[i];
        if (cell->state != FL_CELL_ELSEWHERE || (group != SIZE_MAX && cell->group != group)) continue;
        fl_sweep_state state = FL_SWEEP_RUNNING;
        fl_error error;
        fl_status status =
            fl_sweep_state_of(list->out, cell->run_id, list->policy.stale_seconds, &state, &error);
        if (status == FL_OK) status = fl_cell_take_state(list, cell, state, &error);
        if (status != FL_OK) fl_cell_fail(cell, &error);
        pending += cell->state == FL_CELL_PENDING;
    }
    return pending;
}

static void report(void *context, const char *stage, size_t done, size_t total) {
    const fl_cell_beat *beat = context;
    for (size_t i = 0; i < beat->list->count; i++) fl_cell_keeps(&beat->list->cells[i]);
    fl_progress_report(beat->outer, stage, done, total);
}

static bool cancelled(void *context) {
    const fl_cell_beat *beat = context;
    size_t held = 0, lost = 0;
    for (size_t i = 0; i < beat->list->count; i++) {
        held += beat->list->cells[i].claim != NULL;
        lost += beat->list->cells[i].lost;
    }
    return (held > 0 && lost == held) || fl_progress_cancelled(beat->outer);
}

static void detail(void *context, const char *text) {
    const fl_cell_beat *beat = context;
    fl_progress_detail(beat->outer, text);
}

static void hold(void *context, bool held) {
    const fl_cell_beat *beat = context;
    fl_progress_hold(beat->outer, held);
}

fl_progress fl_cell_beat_progress(fl_cell_beat *beat) {
    return (fl_progress){
        .report = report, .detail = detail, .cancelled = cancelled, .hold = hold, .context = beat};
}
