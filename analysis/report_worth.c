#include "analysis/report_worth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/html.h"
#include "harness/base/memory.h"

enum { MOST_NAMES = 6 };

/* What the linear part does to one run. */
typedef enum outcome { HELPS, UNTOLD, HARMS, OUTCOMES } outcome;

typedef struct gain {
    size_t contender;
    double without; /* the score with the linear part off */
    fl_interval difference;
    outcome outcome;
    bool looks_better; /* the plain figure is */
} gain;

static const fl_run_entry *run_of(const fl_report_case *c, const fl_contender *contender) {
    return fl_run_group_first(c->groups, contender->group);
}

static double without(const fl_report_case *c, const fl_contender *contender) {
    return fl_run_group_metric(c->groups, contender->group, c->score->linear_off).mean;
}

static outcome judge(const fl_report_case *c, const fl_interval *difference) {
    fl_verdict verdict = fl_interval_verdict(difference);
    if (verdict == FL_CANNOT_BE_TOLD) return UNTOLD;
    return (verdict == FL_ABOVE_ZERO) == c->score->higher_is_better ? HELPS : HARMS;
}

static fl_status find_gains(const fl_report_case *c, gain *gains, size_t *count, fl_error *error) {
    *count = 0;
    for (size_t i = 0; i < c->count; i++) {
        const fl_contender *contender = &c->contenders[i];
        gain g = {.contender = i, .without = without(c, contender)};
        if (!fl_run_has_linear_part(run_of(c, contender)) || isnan(g.without)) continue;
        FL_TRY(fl_report_against_off(c->certainty, c->score, contender->group, &g.difference, error));
        g.outcome = judge(c, &g.difference);
        g.looks_better =
            c->score->higher_is_better ? contender->score > g.without : contender->score < g.without;
        gains[(*count)++] = g;
    }
    return FL_OK;
}

static void write_names(const fl_report_case *c, const gain *gains, size_t count, outcome wanted,
                        bool looks_better) {
    size_t named = 0;
    for (size_t i = 0; i < count; i++) {
        if (gains[i].outcome != wanted || gains[i].looks_better != looks_better) continue;
        if (named < MOST_NAMES) {
            fputs(named > 0 ? "; " : ": ", c->stream);
            fl_report_run(c, c->contenders[gains[i].contender].group);
        }
        named++;
    }
    if (named > MOST_NAMES) fprintf(c->stream, " and %zu more", named - MOST_NAMES);
}

static size_t count_of(const gain *gains, size_t count, outcome wanted, bool looks_better) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += gains[i].outcome == wanted && gains[i].looks_better == looks_better;
    return found;
}

/* One line for every way that runs came out. */
static void write_tally(const fl_report_case *c, const gain *gains, size_t count) {
    static const struct {
        outcome outcome;
        bool looks_better;
        const char *what;
    } ways[] = {
        {HELPS, true, "better with the linear part, and surely so"},
        {UNTOLD, true, "better with it in the plain figures, which cannot be told from chance"},
        {UNTOLD, false, "no better with it in the plain figures, and that cannot be told from chance"},
        {HARMS, false, "better without it, and surely so"}};
    fprintf(c->stream, "<p>Of %zu variant%s with a linear part:</p>\n<ul>\n", count, count == 1 ? "" : "s");
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        size_t found = count_of(gains, count, ways[i].outcome, ways[i].looks_better);
        if (found == 0) continue;
        fprintf(c->stream, "<li>%zu %s %s", found, found == 1 ? "is" : "are", ways[i].what);
        write_names(c, gains, count, ways[i].outcome, ways[i].looks_better);
        fputs(".</li>\n", c->stream);
    }
    fputs("</ul>\n", c->stream);
}

static const gain *find_best(const fl_report_case *c, const gain *gains, size_t count) {
    const gain *best = NULL;
    for (size_t i = 0; i < count; i++) {
        double score = c->contenders[gains[i].contender].score;
        double other = best != NULL ? c->contenders[best->contender].score : score;
        bool is_better = c->score->higher_is_better ? score > other : score < other;
        if (isfinite(score) && (best == NULL || is_better)) best = &gains[i];
    }
    return best;
}

/* How many more tokens could be kept exactly in the bytes that the state takes; NaN where that is no simple
 * sum. */
static double tokens_for_state(const fl_run_entry *run) {
    static const char *const parts[] = {"variant.window", "variant.sinks", "variant.cache.budget"};
    const char *hybrid = fl_run_entry_value(run, "variant.softmax_layers");
    const char *length = fl_run_entry_value(run, "text.sequence_length");
    double tokens = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const char *value = fl_run_entry_value(run, parts[i]);
        tokens += value != NULL ? strtod(value, NULL) : 0;
    }
    bool is_full = length != NULL && strtod(length, NULL) <= tokens;
    if (hybrid == NULL || strcmp(hybrid, "[]") != 0 || is_full || !(tokens > 0)) return (double)NAN;
    return fl_run_metric_value(run, "state_bytes") / fl_run_metric_value(run, "exact_bytes") * tokens;
}

/* Is there a run without a linear part that holds as much? Then the comparison at equal bytes has been made.
 */
static bool has_rival(const fl_report_case *c, const fl_contender *with) {
    for (size_t i = 0; i < c->count; i++) {
        const fl_run_entry *run = run_of(c, &c->contenders[i]);
        if (!fl_run_has_linear_part(run) && c->contenders[i].bytes >= 0.9 * with->bytes &&
            c->contenders[i].bytes <= 1.02 * with->bytes)
            return true;
    }
    return false;
}

/* Linear off holds less: at equal bytes the state competes with a longer window. */
static void write_price(const fl_report_case *c, const fl_contender *contender) {
    const fl_run_entry *run = run_of(c, contender);
    double state = fl_run_metric_value(run, "state_bytes"), tokens = tokens_for_state(run);
    if (isnan(state)) return;
    fputs(" Linear off saves ", c->stream);
    fl_report_bytes(c->stream, state);
    fputs(" of state a sequence", c->stream);
    if (isfinite(tokens)) fprintf(c->stream, ", as much as %.0f more tokens kept exactly", tokens);
    fputs(has_rival(c, contender)
              ? "."
              : "; no run here spends these bytes on a longer window instead, so at equal bytes the "
                "question is open.",
          c->stream);
}

static void write_best(const fl_report_case *c, const gain *best) {
    const fl_contender *contender = &c->contenders[best->contender];
    static const char *const says[] = {"The best of them gains from it",
                                       "For the best of them it cannot be told",
                                       "Even the best of them is better off without it"};
    fprintf(c->stream, "<p>%s: ", says[best->outcome]);
    fl_report_run(c, contender->group);
    fputs(", ", c->stream);
    fl_report_score_name(c);
    fputc(' ', c->stream);
    fl_report_number(c->stream, contender->score);
    fputs(" with it and ", c->stream);
    fl_report_number(c->stream, best->without);
    fputs(" without (", c->stream);
    fl_report_difference(c, &best->difference);
    fputs(").", c->stream);
    write_price(c, contender);
    fputs("</p>\n", c->stream);
}

fl_status fl_report_worth_write(const fl_report_case *c, fl_error *error) {
    gain *gains = NULL;
    size_t count = 0;
    FL_TRY(FL_ALLOCATE(&gains, c->count, error));
    fl_status status = find_gains(c, gains, &count, error);
    if (status == FL_OK) {
        const gain *best = find_best(c, gains, count);
        fputs("<h2>Is the linear part worth having?</h2>\n", c->stream);
        if (count == 0)
            fputs("<p>It was not measured: no run has both a linear part and the same without it.</p>\n",
                  c->stream);
        if (best != NULL) write_best(c, best);
        if (count > 0) write_tally(c, gains, count);
    }
    fl_memory_free(gains);
    return status;
}

/* The fewest and the most runs that one row stands for. */
static void write_seeds(const fl_report_case *c) {
    size_t fewest = (size_t)-1, most = 0;
    for (size_t i = 0; i < c->count; i++) {
        size_t runs = c->groups->items[c->contenders[i].group].count;
        fewest = runs < fewest ? runs : fewest;
        most = runs > most ? runs : most;
    }
    if (most < 2) {
        fputs(" One seed a row: how far another would move a figure was not measured.", c->stream);
        return;
    }
    if (fewest == most)
        fprintf(c->stream, " %zu seeds a row", most);
    else
        fprintf(c->stream, " %zu to %zu seeds a row", fewest, most);
    fputs(": figures are mean &plusmn; standard deviation over them, and a difference is sure only when it "
          "is in "
          "every pair of seeds.",
          c->stream);
}

void fl_report_certainty_write(const fl_report_case *c) {
    const fl_interval *own = &c->certainty->perplexity[c->contenders[0].group];
    fputs("<h2>With which certainty?</h2>\n<p>", c->stream);
    if (own->known) {
        fprintf(c->stream,
                "Figures of the text rest on %zu different sequences; differences are paired over them, with "
                "%.0f&nbsp;%% bootstrap intervals. Sequences cut from one document are alike, and intervals "
                "then too narrow.",
                own->sequences, 100 * own->level);
    } else {
        fputs("Figures of the text have no intervals: ", c->stream);
        fl_html_text(c->stream, own->why_not);
        fputs(". Differences between them are what was seen, not evidence; measure 16 sequences or more "
              "(<code>text.sequences</code>) where a conclusion hangs on one.",
              c->stream);
    }
    write_seeds(c);
    fputs(" No p is corrected for the number of comparisons. <a href=\"#definitions\">Definitions</a></p>\n",
          c->stream);
}
