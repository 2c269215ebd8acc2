#include "analysis/figure_axis.h"

#include <math.h>
#include <string.h>

#include "analysis/text_width.h"

static const double wide_span = 20.0, least_share = 0.1, near_zero = 0.4, beside_zero = 0.05, log_room = 1e-6,
                    floor_share = 1e-6;

void fl_axis_span_add(fl_axis_span *span, const double *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        double value = values[i];
        if (!isfinite(value)) continue;
        if (span->count == 0 || value < span->least) span->least = value;
        if (span->count == 0 || value > span->most) span->most = value;
        span->count++;
        if (value <= 0) continue;
        if (span->positive == 0 || value < span->least_positive) span->least_positive = value;
        if (span->positive == 0 || value > span->most_positive) span->most_positive = value;
        span->positive++;
    }
}

bool fl_axis_span_is_wide(const fl_axis_span *span) {
    return span->positive > 0 && span->most_positive > wide_span * span->least_positive;
}

/* The nearest of 1, 2, 5, 10, 20, ... that is at least `value`. */
static double round_step(double value) {
    double power = pow(10, floor(log10(value))), ratio = value / power;
    double factor = ratio <= 1.0 + 1e-9 ? 1 : ratio <= 2.0 + 1e-9 ? 2 : ratio <= 5.0 + 1e-9 ? 5 : 10;
    return factor * power;
}

static void add_tick(fl_axis *axis, double at) {
    if (axis->tick_count == FL_AXIS_MOST_TICKS) return;
    fl_axis_tick *tick = &axis->ticks[axis->tick_count++];
    tick->at = at;
    double size = fabs(at);
    if (size >= 1e6 || (size > 0 && size < 1e-4)) {
        int power = (int)floor(log10(size) + 1e-9);
        snprintf(tick->text, sizeof tick->text, "%.4ge%d", at / pow(10, power), power);
    } else {
        snprintf(tick->text, sizeof tick->text, "%.10g", at);
    }
}

static void place_linear_ticks(fl_axis *axis, double step) {
    double first = ceil(axis->low / step - 1e-9);
    for (double k = first; k * step <= axis->high + 1e-9 * step; k += 1) {
        double at = fabs(k) < 0.5 ? 0 : k * step;
        add_tick(axis, at);
        if (axis->tick_count == FL_AXIS_MOST_TICKS) return;
    }
}

/* One place alone, of what ends where the data end: in the middle, with its number. */
static void fit_place(double at, bool whole, fl_axis *out) {
    double room = whole || !(fabs(at) > 0) ? 1 : least_share * fabs(at);
    out->low = at - room;
    out->high = at + room;
    add_tick(out, at);
}

static void fit_linear(const fl_axis_span *span, const fl_axis_wish *wish, fl_axis *out) {
    double low = span->count > 0 ? span->least : 0, high = span->count > 0 ? span->most : 1;
    double size = fmax(fabs(low), fabs(high));
    if (low > 0 && low < (wish->tight ? beside_zero : near_zero) * high) low = 0;
    if (!wish->tight && high - low < least_share * size) {
        double middle = (low + high) / 2;
        low = fmax(middle - least_share / 2 * size, low >= 0 ? 0 : -HUGE_VAL);
        high = middle + least_share / 2 * size;
    }
    if (!(high > low) && wish->tight) {
        fit_place(low, wish->whole, out);
        return;
    }
    if (!(high > low)) {
        double room = size > 0 ? least_share * size : 1;
        high += room;
        low -= low >= room ? room : 0;
    }
    double step = round_step((high - low) / (double)wish->numbers);
    if (wish->whole && step < 1) step = 1;
    out->log = false;
    out->low = wish->tight ? low : fmin(low, floor(low / step + 1e-9) * step);
    out->high = wish->tight ? high : fmax(high, ceil(high / step - 1e-9) * step);
    place_linear_ticks(out, step);
}

static const double factors[] = {1, 2, 5};

/* Ticks at the first `used` factors of every `every`-th power of ten. */
static void place_log_ticks(fl_axis *axis, size_t used, int every) {
    int first = (int)floor(log10(axis->low) + 1e-9), last = (int)ceil(log10(axis->high) - 1e-9);
    for (int power = first - ((first % every) + every) % every; power <= last; power += every) {
        for (size_t f = 0; f < used; f++) {
            double at = factors[f] * pow(10, power);
            if (at >= axis->low * (1 - 1e-9) && at <= axis->high * (1 + 1e-9)) add_tick(axis, at);
        }
    }
}

/* The next of 1, 2, 5, ... below or above; a whole decade when there are many. */
static double log_end(double value, bool below, double decades) {
    double power = pow(10, floor(log10(value) + (below ? 1e-9 : -1e-9)));
    if (decades > 4) return below ? fmin(power, value) : fmax(10 * power, value);
    double best = below ? power : 10 * power;
    for (size_t f = 0; f < 3; f++) {
        double at = factors[f] * power;
        if (below && at <= value * (1 + 1e-9)) best = at;
        if (!below && at >= value * (1 - 1e-9) && at < best) best = at;
    }
    return below ? fmin(best, value) : fmax(best, value);
}

static void fit_log(const fl_axis_span *span, const fl_axis_wish *wish, fl_axis *out) {
    /* What is so small beside the rest is rounding, and would squeeze it. */
    double least = fmax(span->least_positive, floor_share * fmin(span->most_positive, 1));
    double decades = log10(span->most_positive) - log10(least);
    out->log = true;
    out->low = wish->tight ? least : log_end(least, true, decades);
    out->high = wish->tight ? span->most_positive : log_end(span->most_positive, false, decades);
    bool fine = 3 * decades <= (double)wish->numbers + 3;
    int every = (int)ceil(decades / (double)(wish->numbers + (wish->numbers > 3 ? 2 : 0)));
    place_log_ticks(out, fine ? 3 : 1, every > 1 ? every : 1);
}

static void fit(const fl_axis_span *span, const fl_axis_wish *wish, fl_axis *out) {
    memset(out, 0, sizeof *out);
    if (wish->log && fl_axis_span_is_wide(span))
        fit_log(span, wish, out);
    else
        fit_linear(span, wish, out);
}

/* Whether neighbours have a letter's width between them. */
static bool has_room(const fl_axis *axis, const fl_axis_wish *wish) {
    for (size_t i = 1; i < axis->tick_count; i++) {
        const fl_axis_tick *a = &axis->ticks[i - 1], *b = &axis->ticks[i];
        double apart = (fl_axis_place(axis, b->at) - fl_axis_place(axis, a->at)) * wish->length;
        double half = (fl_text_width(a->text, strlen(a->text), wish->font) +
                       fl_text_width(b->text, strlen(b->text), wish->font)) /
                      2;
        if (apart < half + 0.6 * wish->font) return false;
    }
    return true;
}

void fl_axis_fit(const fl_axis_span *span, const fl_axis_wish *wish, fl_axis *out) {
    fl_axis_wish fewer = *wish;
    for (fit(span, &fewer, out); fewer.numbers > 1 && wish->length > 0 && !has_room(out, wish);
         fit(span, &fewer, out))
        fewer.numbers--;
}

void fl_axis_write(FILE *stream, const fl_axis *axis, char which, bool numbered) {
    fprintf(stream, "%s logscale %c\n", axis->log ? "set" : "unset", which);
    /* gnuplot leaves out a number that rounding puts beyond the end of a logarithmic axis. */
    double room = axis->log ? log_room : 0;
    fprintf(stream, "set %crange [%.12g:%.12g]\nset %ctics (", which, axis->low * (1 - room),
            axis->high * (1 + room), which);
    for (size_t i = 0; i < axis->tick_count; i++)
        fprintf(stream, "%s'%s' %.12g", i > 0 ? ", " : "", numbered ? axis->ticks[i].text : "",
                axis->ticks[i].at);
    fputs(")\n", stream);
}

double fl_axis_number_width(const fl_axis *axis, double size) {
    double widest = 0;
    for (size_t i = 0; i < axis->tick_count; i++) {
        double own = fl_text_width(axis->ticks[i].text, strlen(axis->ticks[i].text), size);
        if (own > widest) widest = own;
    }
    return widest;
}

double fl_axis_place(const fl_axis *axis, double value) {
    if (axis->log) return log(value / axis->low) / log(axis->high / axis->low);
    return (value - axis->low) / (axis->high - axis->low);
}
