#include "analysis/report_answer.h"

#include <math.h>
#include <string.h>

#include "analysis/equal_bytes.h"
#include "analysis/html.h"
#include "analysis/report_words.h"
#include "analysis/report_worth.h"
#include "harness/base/memory.h"

enum { MOST_BUDGETS = 8 };

/* What the frozen model scores, and what it holds where a run of it is in the set. */
static void write_full_model(const fl_report_case *c) {
    const fl_run_entry *first = fl_run_group_first(c->groups, c->contenders[0].group);
    double full = c->score->full[0] != '\0' ? fl_run_metric_value(first, c->score->full) : (double)NAN;
    if (isnan(full)) return;
    fputs(" The full model: ", c->stream);
    fl_report_number(c->stream, full);
    for (size_t i = 0; i < c->groups->count; i++) {
        const fl_run_entry *run = fl_run_group_first(c->groups, i);
        const char *rule = fl_run_entry_value(run, "variant.rule");
        bool is_full = rule != NULL && strcmp(rule, "softmax") == 0 && fl_run_same_setting(run, first);
        if (!is_full || isnan(fl_run_bytes(run))) continue;
        fputs(" with ", c->stream);
        fl_report_bytes(c->stream, fl_run_bytes(run));
        break;
    }
    fputs(".", c->stream);
}

/* Whether the best is better than the next, and how sure that is. */
static fl_status write_next(const fl_report_case *c, size_t best, size_t next, fl_error *error) {
    fl_interval d;
    if (next == FL_NO_CONTENDER) return FL_OK;
    FL_TRY(fl_report_between(c->certainty, c->score, c->contenders[best].group, c->contenders[next].group, &d,
                             error));
    fputs(" Next is ", c->stream);
    fl_report_contender(c, &c->contenders[next]);
    fputs(fl_interval_verdict(&d) == FL_CANNOT_BE_TOLD
              ? ". Which of the two is better <strong>cannot be told</strong> ("
              : ". That the first is better is <strong>sure</strong> (",
          c->stream);
    fl_report_difference(c, &d);
    fputs(").", c->stream);
    return FL_OK;
}

static void write_budget_run(const fl_report_case *c, size_t contender) {
    if (contender == FL_NO_CONTENDER) {
        fputs("<td class=\"text\">&ndash;</td><td>&ndash;</td>", c->stream);
        return;
    }
    fputs("<td class=\"text\">", c->stream);
    fl_html_text(c->stream, c->groups->items[c->contenders[contender].group].label);
    fputs("</td><td>", c->stream);
    fl_report_number(c->stream, c->contenders[contender].score);
    fputs("</td>", c->stream);
}

static fl_status write_budget(const fl_report_case *c, const fl_budget *b, fl_error *error) {
    fl_interval d = {.estimate = (double)NAN, .why_not = "the only one"};
    if (b->next != FL_NO_CONTENDER)
        FL_TRY(fl_report_between(c->certainty, c->score, c->contenders[b->best].group,
                                 c->contenders[b->next].group, &d, error));
    fputs("<tr><td>", c->stream);
    fl_report_bytes(c->stream, b->bytes);
    fprintf(c->stream, "</td><td>%zu</td>", b->runs);
    write_budget_run(c, b->best);
    write_budget_run(c, b->next);
    fputs("<td class=\"text\">", c->stream);
    if (b->next != FL_NO_CONTENDER)
        fputs(fl_interval_verdict(&d) == FL_CANNOT_BE_TOLD ? "cannot be told: " : "sure: ", c->stream);
    fl_report_difference(c, &d);
    fputs("</td></tr>\n", c->stream);
    return FL_OK;
}

/* Of many budgets, those at which another run becomes the best. */
static fl_status write_budgets(const fl_report_case *c, const fl_budget *budgets, size_t count,
                               fl_error *error) {
    size_t best = FL_NO_CONTENDER;
    fputs("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Best at equal "
          "bytes\"><table>\n<thead>"
          "<tr><th scope=\"col\">at most, a sequence</th><th scope=\"col\">runs of this size</th>"
          "<th scope=\"col\" class=\"text\">best</th><th scope=\"col\">",
          c->stream);
    fl_report_score_name(c);
    fputs("</th><th scope=\"col\" class=\"text\">next</th><th scope=\"col\">", c->stream);
    fl_report_score_name(c);
    fputs("</th><th scope=\"col\" class=\"text\">is the first the better?</th></tr></thead>\n<tbody>\n",
          c->stream);
    for (size_t i = 0; i < count; i++) {
        if (count <= MOST_BUDGETS || budgets[i].best != best) FL_TRY(write_budget(c, &budgets[i], error));
        best = budgets[i].best;
    }
    fputs("</tbody></table></div>\n", c->stream);
    return FL_OK;
}

static fl_status write_best(const fl_report_case *c, fl_error *error) {
    bool higher = c->score->higher_is_better;
    fl_budget *budgets = NULL;
    size_t best = 0, next = 0, count = 0;
    fputs("<h2>Which variant is best at equal bytes?</h2>\n", c->stream);
    fl_contenders_best(c->contenders, c->count, higher, &best, &next);
    if (best == FL_NO_CONTENDER) {
        fprintf(c->stream, "<p>None: no variant has a finite %s.</p>\n", c->score->axis);
        return FL_OK;
    }
    FL_TRY(fl_budgets_find(c->contenders, c->count, higher, &budgets, &count, error));
    fl_status status = FL_OK;
    fputs(count > 1 ? "<p>Best of all sizes: " : "<p>Best: ", c->stream);
    fl_report_contender(c, &c->contenders[best]);
    fputs(".", c->stream);
    write_full_model(c);
    FL_TRY_DONE(status, write_next(c, best, next, error));
    fputs("</p>\n", c->stream);
    if (count > 1) FL_TRY_DONE(status, write_budgets(c, budgets, count, error));
    if (count == 0) fputs("<p>The run files do not say how many bytes a sequence takes.</p>\n", c->stream);
done:
    fl_memory_free(budgets);
    return status;
}

/* A task, in two sentences. */
static fl_status write_task(const fl_report_case *c, fl_error *error) {
    size_t best = 0, next = 0;
    fl_contenders_best(c->contenders, c->count, c->score->higher_is_better, &best, &next);
    if (best == FL_NO_CONTENDER) return FL_OK;
    fputs("<li>Best is ", c->stream);
    fl_report_contender(c, &c->contenders[best]);
    fputs(".", c->stream);
    write_full_model(c);
    FL_TRY(write_next(c, best, next, error));
    fputs("</li>\n", c->stream);
    return FL_OK;
}

typedef fl_status (*part)(const fl_report_case *c, fl_error *error);

static fl_status write_main(const fl_report_case *c, fl_error *error) {
    FL_TRY(write_best(c, error));
    FL_TRY(fl_report_worth_write(c, error));
    fl_report_certainty_write(c);
    return FL_OK;
}

/* Nothing where no run of the setting has the score. */
static fl_status write_case(const fl_report_certainty *certainty, const fl_run_score *score, size_t first,
                            part write, FILE *stream, fl_error *error) {
    fl_report_case c = {
        .certainty = certainty, .groups = certainty->groups, .score = score, .stream = stream};
    FL_TRY(fl_contenders_find(c.groups, first, score, &c.contenders, &c.count, error));
    fl_status status = c.count > 0 ? write(&c, error) : FL_OK;
    fl_memory_free(c.contenders);
    return status;
}

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

static void write_setting(const fl_run_entry *run, FILE *stream) {
    static const char *const keys[] = {"model.path", "text.path", "text.ids"};
    size_t written = 0;
    fputs("<h2 class=\"setting\">", stream);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *value = fl_run_entry_value(run, keys[i]);
        if (value == NULL || strcmp(value, "null") == 0) continue;
        fputs(written++ > 0 ? " on " : "", stream);
        fl_html_text(stream, last_part(value));
    }
    fputs("</h2>\n", stream);
}

static bool is_first_of_setting(const fl_run_groups *groups, size_t group) {
    for (size_t i = 0; i < group; i++) {
        if (fl_run_same_setting(fl_run_group_first(groups, i), fl_run_group_first(groups, group)))
            return false;
    }
    return true;
}

static fl_status write_scores(const fl_report_certainty *certainty, const fl_run_score *scores, size_t count,
                              size_t first, FILE *stream, fl_error *error) {
    FL_TRY(write_case(certainty, &scores[0], first, write_main, stream, error));
    if (count < 2) return FL_OK;
    fputs("<h2>And the other scores, whatever the bytes?</h2>\n<ul>\n", stream);
    for (size_t i = 1; i < count; i++)
        FL_TRY(write_case(certainty, &scores[i], first, write_task, stream, error));
    fputs("</ul>\n", stream);
    return FL_OK;
}

static bool is_any_replaced(const fl_run_groups *groups) {
    for (size_t i = 0; i < groups->count; i++) {
        const char *rule = fl_run_entry_value(fl_run_group_first(groups, i), "variant.rule");
        if (rule != NULL && strcmp(rule, "softmax") != 0) return true;
    }
    return false;
}

/* Runs without a text to read and without tasks are compared by their error. */
static const fl_run_score by_error = {.title = "nMSE, mean over layers",
                                      .axis = "nMSE",
                                      .value = "nmse",
                                      .linear_off = "linear_off/nmse",
                                      .log = true};

fl_status fl_report_answer_write(const fl_report_certainty *certainty, FILE *stream, fl_error *error) {
    const fl_run_groups *groups = certainty->groups;
    fl_run_score *scores = NULL;
    size_t count = 0, settings = 0;
    FL_TRY(fl_run_scores_list(certainty->set, &scores, &count, error));
    if (count == 0) {
        scores[0] = by_error;
        count = 1;
    }
    fl_status status = FL_OK;
    for (size_t i = 0; i < groups->count; i++) settings += is_first_of_setting(groups, i);
    fputs("<section class=\"answer\" id=\"answer\">\n", stream);
    for (size_t i = 0; i < groups->count; i++) {
        if (!is_first_of_setting(groups, i)) continue;
        if (settings > 1) write_setting(fl_run_group_first(groups, i), stream);
        FL_TRY_DONE(status, write_scores(certainty, scores, count, i, stream, error));
    }
    if (!is_any_replaced(groups))
        fputs("<p>No run here has its attention replaced: there is nothing to compare.</p>\n", stream);
    fputs("</section>\n", stream);
done:
    fl_memory_free(scores);
    return status;
}
