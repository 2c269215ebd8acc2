#include "harness/eval/scoring.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/clock.h"
#include "harness/base/memory.h"
#include "harness/engine/session.h"

enum {
    SEGMENT_TOKENS = FL_SESSION_BLOCK,
    MOST_PIECES = 64,
    HEAD_ROWS = 32,
    MOST_CREDITS = 512,
    DEFAULT_SHARE_MINIMUM = 32
};

/* One request after the cut: `inputs` tokens are read, the last `scored` rows of them predict the
 * continuation. */
typedef struct score_sequence {
    const fl_score_request *request;
    size_t skipped; /* tokens cut on the left */
    size_t inputs, scored;
    size_t index; /* in the caller's order */
} score_sequence;

struct fl_score_plan {
    size_t count, longest;
    bool share;
    size_t share_minimum;
    fl_log_softmax_precision precision;
    score_sequence *sequences; /* [count] sorted by their inputs when sharing */
    size_t *common;            /* [count] tokens shared with the sequence before; [0] = 0 */
};

static int32_t token_at(const score_sequence *sequence, size_t position) {
    const fl_score_request *request = sequence->request;
    const size_t at = position + sequence->skipped;
    return at < request->context_count ? request->context[at]
                                       : request->continuation[at - request->context_count];
}

/* Length of the common prefix of the inputs. */
static size_t common_prefix(const score_sequence *a, const score_sequence *b) {
    const size_t most = a->inputs < b->inputs ? a->inputs : b->inputs;
    size_t n = 0;
    while (n < most && token_at(a, n) == token_at(b, n)) n++;
    return n;
}

static int compare_sequences(const void *left, const void *right) {
    const score_sequence *a = left, *b = right;
    const size_t n = common_prefix(a, b);
    if (n < a->inputs && n < b->inputs) return token_at(a, n) < token_at(b, n) ? -1 : 1;
    if (a->inputs != b->inputs) return a->inputs < b->inputs ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static fl_status check_ids(const fl_score_request *request, size_t number, size_t vocabulary,
                           fl_error *error) {
    const size_t total = request->context_count + request->continuation_count;
    for (size_t i = 0; i < total; i++) {
        const int32_t id = i < request->context_count ? request->context[i]
                                                      : request->continuation[i - request->context_count];
        if (id >= 0 && (size_t)id < vocabulary) continue;
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "request %zu: token id %ld is outside the vocabulary of %zu", number, (long)id,
                            vocabulary);
    }
    return FL_OK;
}

static fl_status fill_sequences(fl_score_plan *plan, const fl_score_request *requests, size_t max_length,
                                size_t vocabulary, fl_error *error) {
    for (size_t i = 0; i < plan->count; i++) {
        const fl_score_request *request = &requests[i];
        if (request->context_count == 0 || request->continuation_count == 0) {
            return fl_error_set(error, FL_ERROR_ARGUMENT, "request %zu has no %s tokens", i,
                                request->context_count == 0 ? "context" : "continuation");
        }
        if (request->continuation_count > max_length) {
            return fl_error_set(error, FL_ERROR_ARGUMENT,
                                "request %zu: a continuation of %zu tokens, longer than the limit of %zu", i,
                                request->continuation_count, max_length);
        }
        FL_TRY(check_ids(request, i, vocabulary, error));
        const size_t total = request->context_count + request->continuation_count;
        const size_t skipped = total > max_length + 1 ? total - max_length - 1 : 0;
        plan->sequences[i] = (score_sequence){.request = request,
                                              .skipped = skipped,
                                              .inputs = total - skipped - 1,
                                              .scored = request->continuation_count,
                                              .index = i};
        if (total - skipped - 1 > plan->longest) plan->longest = total - skipped - 1;
    }
    return FL_OK;
}

fl_status fl_score_plan_create(const fl_score_request *requests, size_t count,
                               const fl_score_options *options, const fl_network *network,
                               fl_score_plan **out, fl_error *error) {
    const fl_model_config *config = &network->model->config;
    fl_score_plan *plan = NULL;
    FL_TRY(FL_ALLOCATE(&plan, 1, error));
    plan->count = count;
    plan->share = options->share && config->rope.type != FL_ROPE_DYNAMIC;
    plan->precision = options->precision;
    plan->share_minimum = options->share_minimum > 0 ? options->share_minimum : DEFAULT_SHARE_MINIMUM;
    fl_status status;
    FL_TRY_DONE(status, FL_ALLOCATE(&plan->sequences, count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&plan->common, count, error));
    const size_t max_length = options->max_length > 0 ? options->max_length : config->max_positions;
    FL_TRY_DONE(status, fill_sequences(plan, requests, max_length, config->vocabulary, error));
    if (plan->share) {
        qsort(plan->sequences, count, sizeof *plan->sequences, compare_sequences);
        for (size_t i = 1; i < count; i++)
            plan->common[i] = common_prefix(&plan->sequences[i - 1], &plan->sequences[i]);
    }
    *out = plan;
    return FL_OK;
done:
    fl_score_plan_destroy(plan);
    return status;
}

void fl_score_plan_destroy(fl_score_plan *plan) {
    if (plan == NULL) return;
    fl_memory_free(plan->sequences);
    fl_memory_free(plan->common);
    fl_memory_free(plan);
}

/* Requests lo .. hi - 1 share their first `depth` inputs, which `session` has read; `next` is the first whose
 * work is not done. */
typedef struct score_frame {
    size_t lo, hi, depth, next;
    fl_session *session;
} score_frame;

/* Inputs start .. start + tokens - 1 of requests lo .. hi - 1, which all of them share: rows `at`, at + 1,
 * ... of one forward pass. */
typedef struct score_piece {
    size_t lo, hi, start, tokens, at;
    size_t reached_from; /* the first position whose context has reached the state */
} score_piece;

/* A scored token of a request, and the row of logits that predicts it. */
typedef struct score_credit {
    fl_score *score;
    size_t row;
    int32_t target;
    bool reached;
} score_credit;

typedef struct score_work {
    const fl_score_plan *plan;
    const fl_network *network;
    const fl_mechanism *mechanism;
    fl_score *scores;
    fl_score_counts counts;
    int32_t *ids;           /* [SEGMENT_TOKENS] */
    size_t piece_count;     /* of the current pass */
    score_piece *pieces;    /* [MOST_PIECES] */
    size_t wanted_count;    /* rows of the pass that predict a scored token */
    size_t *wanted;         /* [SEGMENT_TOKENS] */
    size_t *place_of;       /* [SEGMENT_TOKENS] place of a row among them + 1, or 0 */
    fl_array hidden;        /* [SEGMENT_TOKENS][E] of the wanted rows */
    fl_array logits;        /* [HEAD_ROWS][V] */
    fl_array log_sum_exp;   /* [HEAD_ROWS] float64 */
    fl_array best;          /* [HEAD_ROWS] int32 */
    fl_array places;        /* [MOST_CREDITS] int32: of targets in the logits as one array */
    fl_array target_logits; /* [MOST_CREDITS] */
    size_t credit_count;
    score_credit *credits; /* [MOST_CREDITS] */
    score_frame *frames;
    size_t frame_count, frame_capacity;
    fl_session **spare;
    size_t spare_count;
    const fl_progress *progress;
    const char *stage;
    size_t finished;
} score_work;

static size_t first_scored(const score_sequence *sequence) {
    return sequence->inputs - sequence->scored;
}

/* Positions of the piece that predict a scored token of the request. */
static void scored_range(const score_piece *piece, const score_sequence *sequence, size_t *from, size_t *to) {
    const size_t first = first_scored(sequence), end = piece->start + piece->tokens;
    *from = first > piece->start ? first : piece->start;
    *to = sequence->inputs < end ? sequence->inputs : end;
}

/* Adds a piece to the pass: its ids, and where its rows lie. */
static void add_piece(score_work *work, size_t lo, size_t hi, size_t start, size_t tokens) {
    const score_piece *before = work->piece_count > 0 ? &work->pieces[work->piece_count - 1] : NULL;
    const size_t at = before != NULL ? before->at + before->tokens : 0;
    work->pieces[work->piece_count++] =
        (score_piece){.lo = lo, .hi = hi, .start = start, .tokens = tokens, .at = at};
    for (size_t i = 0; i < tokens; i++) work->ids[at + i] = token_at(&work->plan->sequences[lo], start + i);
    work->counts.computed_tokens += tokens;
}

/* The rows of the pass that the head is needed for. */
static void find_wanted(score_work *work) {
    work->wanted_count = 0;
    memset(work->place_of, 0, SEGMENT_TOKENS * sizeof *work->place_of);
    for (size_t k = 0; k < work->piece_count; k++) {
        const score_piece *piece = &work->pieces[k];
        for (size_t i = piece->lo; i < piece->hi; i++) {
            size_t from, to;
            scored_range(piece, &work->plan->sequences[i], &from, &to);
            for (size_t p = from; p < to; p++) work->place_of[piece->at + p - piece->start] = 1;
        }
        for (size_t row = piece->at; row < piece->at + piece->tokens; row++) {
            if (work->place_of[row] == 0) continue;
            work->wanted[work->wanted_count++] = row;
            work->place_of[row] = work->wanted_count;
        }
    }
    work->counts.head_rows += work->wanted_count;
}

/* Log-softmax of `rows` rows whose logits are there, on the host. */
static fl_status normalise_rows(score_work *work, size_t rows, double *log_sum_exp, int32_t *best,
                                fl_error *error) {
    fl_compute *compute = work->network->compute;
    const fl_logit_rows_call call = {.rows = rows,
                                     .vocabulary = work->network->model->config.vocabulary,
                                     .precision = work->plan->precision,
                                     .logits = work->logits,
                                     .log_sum_exp = work->log_sum_exp,
                                     .best = work->best};
    compute->ops->logit_rows(compute, &call);
    FL_TRY(compute->ops->download(compute, log_sum_exp, work->log_sum_exp, rows, error));
    return compute->ops->download(compute, best, work->best, rows, error);
}

/* Adds what the collected credits come to, in their order, to their requests. */
static fl_status settle_credits(score_work *work, const double *log_sum_exp, const int32_t *best,
                                fl_error *error) {
    fl_compute *compute = work->network->compute;
    const size_t vocabulary = work->network->model->config.vocabulary, count = work->credit_count;
    if (count == 0) return FL_OK;
    int32_t places[MOST_CREDITS];
    float logits[MOST_CREDITS];
    for (size_t i = 0; i < count; i++)
        places[i] = (int32_t)(work->credits[i].row * vocabulary) + work->credits[i].target;
    compute->ops->upload(compute, work->places, places, count);
    compute->ops->gather_rows(compute, work->target_logits, 1, work->logits, 1, work->places, count, 1);
    FL_TRY(compute->ops->download(compute, logits, work->target_logits, count, error));
    for (size_t i = 0; i < count; i++) {
        const score_credit *credit = &work->credits[i];
        const double value = (double)logits[i] - log_sum_exp[credit->row];
        credit->score->log_likelihood += value;
        credit->score->square_sum += value * value;
        credit->score->greedy = credit->score->greedy && best[credit->row] == credit->target;
        credit->score->tokens++;
        credit->score->reached += credit->reached;
    }
    work->credit_count = 0;
    return FL_OK;
}

/* What wanted rows first .. first + count - 1, whose logits are there, say to every request of the piece that
 * scores one of them. */
static fl_status credit_rows(score_work *work, const score_piece *piece, size_t first, size_t count,
                             const double *log_sum_exp, const int32_t *best, fl_error *error) {
    for (size_t i = piece->lo; i < piece->hi; i++) {
        const score_sequence *sequence = &work->plan->sequences[i];
        size_t from, to;
        scored_range(piece, sequence, &from, &to);
        for (size_t p = from; p < to; p++) {
            const size_t place = work->place_of[piece->at + p - piece->start] - 1;
            if (place < first || place >= first + count) continue;
            if (work->credit_count == MOST_CREDITS) FL_TRY(settle_credits(work, log_sum_exp, best, error));
            work->credits[work->credit_count++] = (score_credit){.score = &work->scores[sequence->index],
                                                                 .row = place - first,
                                                                 .target = token_at(sequence, p + 1),
                                                                 .reached = p >= piece->reached_from};
        }
    }
    return FL_OK;
}

/* Puts the wanted rows of the pass through the head, HEAD_ROWS at a time. */
static fl_status score_pass(score_work *work, fl_error *error) {
    const size_t width = work->network->model->config.model_dim;
    double log_sum_exp[HEAD_ROWS];
    int32_t best[HEAD_ROWS];
    for (size_t first = 0; first < work->wanted_count; first += HEAD_ROWS) {
        const size_t left = work->wanted_count - first, rows = left < HEAD_ROWS ? left : HEAD_ROWS;
        fl_network_logits(work->network, rows, fl_array_from(work->hidden, first * width), work->logits);
        FL_TRY(normalise_rows(work, rows, log_sum_exp, best, error));
        for (size_t k = 0; k < work->piece_count; k++)
            FL_TRY(credit_rows(work, &work->pieces[k], first, rows, log_sum_exp, best, error));
        FL_TRY(settle_credits(work, log_sum_exp, best, error));
    }
    work->piece_count = 0;
    return FL_OK;
}

/* Once the state is being written, every step writes one token: so the first step that did is known. */
static void set_reached(score_piece *piece, size_t written) {
    piece->reached_from = written == 0 ? SIZE_MAX : piece->start + piece->tokens - written;
}

/* The session reads inputs from .. to - 1 of the first request of the range, which all of them share. */
static fl_status read_shared(score_work *work, fl_session *session, size_t lo, size_t hi, size_t from,
                             size_t to, fl_error *error) {
    for (size_t start = from; start < to;) {
        const size_t tokens = to - start < SEGMENT_TOKENS ? to - start : SEGMENT_TOKENS;
        add_piece(work, lo, hi, start, tokens);
        find_wanted(work);
        FL_TRY(fl_session_forward_rows(session, work->ids, tokens, work->wanted, work->wanted_count,
                                       work->hidden, error));
        set_reached(&work->pieces[0], fl_session_tokens_written(session));
        FL_TRY(score_pass(work, error));
        start += tokens;
    }
    return FL_OK;
}

/* The pieces go on from where the session stands, side by side, and leave it there. */
static fl_status read_branches(score_work *work, fl_session *session, fl_error *error) {
    size_t tokens[MOST_PIECES], written[MOST_PIECES];
    find_wanted(work);
    for (size_t k = 0; k < work->piece_count; k++) tokens[k] = work->pieces[k].tokens;
    const fl_session_branches branches = {.count = work->piece_count,
                                          .tokens = tokens,
                                          .ids = work->ids,
                                          .row_count = work->wanted_count,
                                          .rows = work->wanted,
                                          .hidden = work->hidden,
                                          .written = written};
    FL_TRY(fl_session_forward_branches(session, &branches, error));
    for (size_t k = 0; k < work->piece_count; k++) set_reached(&work->pieces[k], written[k]);
    return score_pass(work, error);
}

static fl_status take_session(score_work *work, const fl_session *source, fl_session **out, fl_error *error) {
    if (work->spare_count == 0) {
        return source == NULL ? fl_session_create(work->network, work->mechanism, out, error)
                              : fl_session_fork(source, out, error);
    }
    fl_session *session = work->spare[work->spare_count - 1];
    if (source == NULL) {
        fl_session_reset(session);
    } else {
        FL_TRY(fl_session_copy(session, source, error));
    }
    work->spare_count--;
    *out = session;
    return FL_OK;
}

static fl_status push_frame(score_work *work, const score_frame *frame, fl_error *error) {
    if (work->frame_count == work->frame_capacity) {
        const size_t larger = work->frame_capacity == 0 ? 8 : 2 * work->frame_capacity;
        FL_TRY(FL_RESIZE(&work->frames, work->frame_capacity, larger, error));
        /* Every session ever made fits into the list of spare ones. */
        FL_TRY(FL_RESIZE(&work->spare, work->frame_capacity, larger, error));
        work->frame_capacity = larger;
    }
    work->frames[work->frame_count++] = *frame;
    return FL_OK;
}

static void pop_frame(score_work *work) {
    const score_frame *frame = &work->frames[--work->frame_count];
    if (frame->session != NULL) work->spare[work->spare_count++] = frame->session;
}

static size_t shortest_common(const fl_score_plan *plan, size_t lo, size_t hi) {
    size_t common = plan->sequences[lo].inputs;
    for (size_t i = lo + 1; i < hi; i++) common = plan->common[i] < common ? plan->common[i] : common;
    return common;
}

/* End of the group that starts at `from`: requests that still agree after `common` inputs. */
static size_t group_end(const fl_score_plan *plan, size_t from, size_t hi, size_t common) {
    size_t end = from + 1;
    while (end < hi && plan->common[end] > common) end++;
    return end;
}

static bool worth_sharing(const fl_score_plan *plan, size_t lo, size_t hi, size_t depth, size_t common) {
    if (common == depth) return false;
    size_t groups = 0;
    for (size_t at = lo; at < hi; at = group_end(plan, at, hi, common)) groups++;
    return (groups - 1) * (common - depth) >= plan->share_minimum;
}

/* Opens requests lo .. hi - 1 on a session that has read their first `depth` inputs (the frame owns it from
 * now on, whatever happens): reads on to where they part, when that pays or when they do not part at all. */
static fl_status open_frame(score_work *work, size_t lo, size_t hi, size_t depth, fl_session *session,
                            fl_error *error) {
    const fl_score_plan *plan = work->plan;
    score_frame frame = {.lo = lo, .hi = hi, .depth = depth, .next = lo, .session = session};
    fl_status status = push_frame(work, &frame, error);
    if (status != FL_OK) {
        fl_session_destroy(session);
        return status;
    }
    score_frame *top = &work->frames[work->frame_count - 1];
    const size_t common = shortest_common(plan, lo, hi);
    const bool identical = common == plan->sequences[hi - 1].inputs;
    if (!identical && !worth_sharing(plan, lo, hi, depth, common)) return FL_OK;
    FL_TRY(read_shared(work, session, lo, hi, depth, common, error));
    top->depth = common;
    while (top->next < hi && plan->sequences[top->next].inputs == common) top->next++;
    work->finished += top->next - lo;
    fl_progress_report(work->progress, work->stage, work->finished, plan->count);
    return FL_OK;
}

/* Groups of the frame from the next one on that do not part any more, as many as fit one pass, become its
 * pieces: most questions end in such a group each, too short by itself to keep the products busy. */
static void collect_last_groups(score_work *work, score_frame *frame, size_t common) {
    const fl_score_plan *plan = work->plan;
    size_t total = 0;
    while (frame->next < frame->hi && work->piece_count < MOST_PIECES) {
        const size_t lo = frame->next, end = group_end(plan, lo, frame->hi, common);
        const size_t inputs = plan->sequences[lo].inputs, tokens = inputs - frame->depth;
        if (plan->sequences[end - 1].inputs != inputs || shortest_common(plan, lo, end) != inputs) return;
        if (total + tokens > SEGMENT_TOKENS) return;
        add_piece(work, lo, end, frame->depth, tokens);
        total += tokens;
        frame->next = end;
    }
}

/* The next group of the top frame gets a frame of its own, or the frame is done. */
static fl_status advance(score_work *work, fl_error *error) {
    const fl_score_plan *plan = work->plan;
    score_frame *top = &work->frames[work->frame_count - 1];
    if (top->next == top->hi) {
        pop_frame(work);
        return FL_OK;
    }
    const size_t lo = top->next, depth = top->depth;
    /* Where nothing was read, the whole range still agrees for a few tokens: the groups part at
     * shortest_common. */
    const size_t common = shortest_common(plan, top->lo, top->hi);
    collect_last_groups(work, top, common);
    if (work->piece_count > 0) {
        FL_TRY(read_branches(work, top->session, error));
        work->finished += top->next - lo;
        fl_progress_report(work->progress, work->stage, work->finished, plan->count);
        return FL_OK;
    }
    const size_t end = group_end(plan, lo, top->hi, common);
    top->next = end;
    fl_session *session = top->session;
    if (end == top->hi) {
        top->session = NULL; /* the last group may use it up */
    } else {
        FL_TRY(take_session(work, top->session, &session, error));
    }
    return open_frame(work, lo, end, depth, session, error);
}

static fl_status run_shared(score_work *work, fl_error *error) {
    if (work->plan->count == 0) return FL_OK;
    fl_session *session = NULL;
    FL_TRY(take_session(work, NULL, &session, error));
    FL_TRY(open_frame(work, 0, work->plan->count, 0, session, error));
    while (work->frame_count > 0) {
        if (fl_progress_cancelled(work->progress))
            return fl_error_set(error, FL_ERROR_CANCELLED, "interrupted");
        FL_TRY(advance(work, error));
    }
    return FL_OK;
}

static fl_status run_alone(score_work *work, fl_error *error) {
    fl_session *session = NULL;
    FL_TRY(take_session(work, NULL, &session, error));
    fl_status status = FL_OK;
    for (size_t i = 0; status == FL_OK && i < work->plan->count; i++) {
        const size_t inputs = work->plan->sequences[i].inputs;
        fl_session_reset(session);
        status = fl_session_expect_length(session, inputs, error);
        if (status == FL_OK) status = read_shared(work, session, i, i + 1, 0, inputs, error);
        fl_progress_report(work->progress, work->stage, i + 1, work->plan->count);
        if (status == FL_OK && fl_progress_cancelled(work->progress)) {
            status = fl_error_set(error, FL_ERROR_CANCELLED, "interrupted");
        }
    }
    fl_session_destroy(session);
    return status;
}

static fl_status allocate_work(score_work *work, fl_error *error) {
    const fl_model_config *config = &work->network->model->config;
    fl_compute *compute = work->network->compute;
    const fl_compute_ops *ops = compute->ops;
    FL_TRY(FL_ALLOCATE(&work->ids, SEGMENT_TOKENS, error));
    FL_TRY(fl_compute_floats(compute, SEGMENT_TOKENS * config->model_dim, &work->hidden, error));
    FL_TRY(ops->allocate(compute, HEAD_ROWS * config->vocabulary, FL_FLOAT32, &work->logits, error));
    FL_TRY(ops->allocate(compute, HEAD_ROWS, FL_FLOAT64, &work->log_sum_exp, error));
    FL_TRY(ops->allocate(compute, HEAD_ROWS, FL_INT32, &work->best, error));
    FL_TRY(ops->allocate(compute, MOST_CREDITS, FL_INT32, &work->places, error));
    FL_TRY(ops->allocate(compute, MOST_CREDITS, FL_FLOAT32, &work->target_logits, error));
    FL_TRY(FL_ALLOCATE(&work->credits, MOST_CREDITS, error));
    FL_TRY(FL_ALLOCATE(&work->pieces, MOST_PIECES, error));
    FL_TRY(FL_ALLOCATE(&work->place_of, SEGMENT_TOKENS, error));
    return FL_ALLOCATE(&work->wanted, SEGMENT_TOKENS, error);
}

static void release_work(score_work *work) {
    fl_compute *compute = work->network->compute;
    while (work->frame_count > 0) fl_session_destroy(work->frames[--work->frame_count].session);
    while (work->spare_count > 0) fl_session_destroy(work->spare[--work->spare_count]);
    fl_memory_free(work->frames);
    fl_memory_free(work->spare);
    fl_memory_free(work->ids);
    fl_compute_release(compute, work->hidden);
    compute->ops->release(compute, work->logits);
    compute->ops->release(compute, work->log_sum_exp);
    compute->ops->release(compute, work->best);
    compute->ops->release(compute, work->places);
    compute->ops->release(compute, work->target_logits);
    fl_memory_free(work->credits);
    fl_memory_free(work->pieces);
    fl_memory_free(work->place_of);
    fl_memory_free(work->wanted);
}

fl_status fl_score_run(const fl_score_plan *plan, const fl_network *network, const fl_mechanism *mechanism,
                       const fl_progress *progress, const char *stage, fl_score *scores,
                       fl_score_counts *counts, fl_error *error) {
    score_work work = {.plan = plan,
                       .network = network,
                       .mechanism = mechanism,
                       .scores = scores,
                       .progress = progress,
                       .stage = stage};
    const double start = fl_clock_seconds();
    for (size_t i = 0; i < plan->count; i++) {
        const score_sequence *sequence = &plan->sequences[i];
        scores[sequence->index] = (fl_score){.greedy = true, .truncated = sequence->skipped};
        work.counts.asked_tokens += sequence->inputs;
    }
    fl_status status = allocate_work(&work, error);
    if (status == FL_OK) status = plan->share ? run_shared(&work, error) : run_alone(&work, error);
    release_work(&work);
    work.counts.seconds = fl_clock_seconds() - start;
    if (counts != NULL) *counts = work.counts;
    return status;
}
