#include "analysis/compare_tables.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "analysis/output_file.h"

enum { COLUMNS = 8, CELL_BYTES = 640, NUMBER_BYTES = 48 };

/* [COLUMNS]; difference: room for the heading of the fifth. */
static void fill_headings(const fl_run_comparison *c, const char *out[COLUMNS], char difference[CELL_BYTES]) {
    snprintf(difference, CELL_BYTES, "%s - %s", c->sides[1], c->sides[0]);
    const char *const names[COLUMNS] = {"cell",     "figure",        c->sides[0], c->sides[1],
                                        difference, "95 % interval", "p",         "n"};
    for (size_t k = 0; k < COLUMNS; k++) out[k] = names[k];
}

/* A set beside its own baselines. */
static bool is_own(const fl_run_comparison *c) {
    return strcmp(c->sides[1], "run") == 0;
}

static bool is_older(const fl_run_comparison *c, const fl_figure_difference *figure) {
    return c->pairs[figure->pair].first->older || c->pairs[figure->pair].second->older;
}

static void label_of(const fl_run_pair *pair, char out[CELL_BYTES]) {
    const char *mark = pair->first->older || pair->second->older ? " *" : "";
    if (strcmp(pair->first->label, pair->second->label) == 0)
        snprintf(out, CELL_BYTES, "%.300s%s", pair->first->label, mark);
    else
        snprintf(out, CELL_BYTES, "%.300s, %.300s%s", pair->first->label, pair->second->label, mark);
}

static const char *number(double value, const char *format, char out[NUMBER_BYTES]) {
    if (isnan(value))
        snprintf(out, NUMBER_BYTES, "-");
    else if (value == 0.0)
        snprintf(out, NUMBER_BYTES, "0");
    else
        snprintf(out, NUMBER_BYTES, format, value); /* the format is one of this file's */
    return out;
}

/* A difference: three digits, and thousands in full. */
static const char *signed_number(double value, char out[NUMBER_BYTES]) {
    const bool large = fabs(value) >= 1e3 && fabs(value) < 1e7;
    return number(value, large ? "%+.0f" : "%+.3g", out);
}

/* One row of the table as texts. */
static void fill_row(const fl_run_comparison *c, const fl_figure_difference *figure,
                     char cells[COLUMNS][CELL_BYTES]) {
    char low[NUMBER_BYTES], high[NUMBER_BYTES];
    const fl_interval *difference = &figure->difference;
    label_of(&c->pairs[figure->pair], cells[0]);
    snprintf(cells[1], CELL_BYTES, "%s", figure->figure);
    number(figure->first, "%.5g", cells[2]);
    number(figure->second, "%.5g", cells[3]);
    signed_number(difference->estimate, cells[4]);
    snprintf(cells[5], CELL_BYTES, "-");
    if (difference->known)
        snprintf(cells[5], CELL_BYTES, "%s .. %s", signed_number(difference->low, low),
                 signed_number(difference->high, high));
    number(difference->p, difference->p < 0.001 ? "%.0e" : "%.3f", cells[6]);
    snprintf(cells[7], CELL_BYTES, "%zu", difference->sequences);
}

/* A label is said once, above the figures of its cell. */
static bool repeats_cell(const fl_run_comparison *c, size_t figure) {
    return figure > 0 && c->figures[figure].pair == c->figures[figure - 1].pair;
}

typedef struct widths {
    int of[COLUMNS];
} widths;

static widths measure(const fl_run_comparison *c, const char *const headings[COLUMNS]) {
    widths w;
    char cells[COLUMNS][CELL_BYTES];
    for (size_t k = 0; k < COLUMNS; k++) w.of[k] = (int)strlen(headings[k]);
    for (size_t i = 0; i < c->figure_count; i++) {
        fill_row(c, &c->figures[i], cells);
        for (size_t k = 0; k < COLUMNS; k++)
            w.of[k] = (int)strlen(cells[k]) > w.of[k] ? (int)strlen(cells[k]) : w.of[k];
    }
    return w;
}

static void print_cells(const char *const cells[COLUMNS], const widths *w, FILE *stream) {
    fprintf(stream, "%-*s  %-*s", w->of[0], cells[0], w->of[1], cells[1]);
    for (size_t k = 2; k < COLUMNS; k++) fprintf(stream, "  %*s", w->of[k], cells[k]);
    fprintf(stream, "\n");
}

static const char *value_or_none(const char *value) {
    return value != NULL ? value : "none";
}

/* What says how the two differ: in every cell, as wholes. */
static void write_head(const fl_run_comparison *c, const char *const names[2], const char *bullet,
                       FILE *stream) {
    if (is_own(c)) {
        fprintf(stream, "%s%s (%zu run%s), each against %s\n", bullet, names[0], c->first->count,
                c->first->count == 1 ? "" : "s",
                strcmp(c->sides[0], "full model") == 0 ? "the full model"
                                                       : "itself with the linear part off");
        return;
    }
    fprintf(stream, "%sA: %s (%zu run%s)\n%sB: %s (%zu run%s)\n", bullet, names[0], c->first->count,
            c->first->count == 1 ? "" : "s", bullet, names[1], c->second->count,
            c->second->count == 1 ? "" : "s");
    for (size_t i = 0; i < c->key_count; i++) {
        fprintf(stream, "%s%s: %s in A, %s in B\n", bullet, c->keys[i].key, value_or_none(c->keys[i].first),
                value_or_none(c->keys[i].second));
    }
    if (c->key_count == 0)
        fprintf(stream, "%sno key of the configuration has one value in A and another in B\n", bullet);
}

static bool said_before(const fl_run_comparison *c, size_t figure) {
    for (size_t i = 0; i < figure; i++) {
        if (strcmp(c->figures[i].difference.why_not, c->figures[figure].difference.why_not) == 0) return true;
    }
    return false;
}

static void write_missing(const fl_run_comparison *c, size_t figure, const char *bullet, FILE *stream) {
    const char *why_not = c->figures[figure].difference.why_not;
    size_t count = 0;
    for (size_t i = 0; i < c->figure_count; i++)
        count += strcmp(c->figures[i].difference.why_not, why_not) == 0;
    fprintf(stream, "%s%zu of %zu rows have no interval: %s\n", bullet, count, c->figure_count, why_not);
}

static void write_tail(const fl_run_comparison *c, const char *bullet, FILE *stream) {
    bool older = false;
    for (size_t i = 0; i < c->figure_count; i++) {
        older = older || is_older(c, &c->figures[i]);
        if (!c->figures[i].difference.known && !said_before(c, i)) write_missing(c, i, bullet, stream);
    }
    for (size_t i = 0; i < c->alone_count; i++)
        fprintf(stream, "%sno partner for %s of %s (%s)\n", bullet, c->alone[i]->label,
                i < c->alone_first ? "A" : "B", c->alone[i]->run_id);
    if (c->pair_count == 0) fprintf(stream, "%sno cell of A has a partner in B\n", bullet);
    if (is_own(c) && c->figure_count == 0) fprintf(stream, "%sno run has such a baseline\n", bullet);
    if (older) fprintf(stream, "%s* made by other code than this program's\n", bullet);
    fprintf(stream,
            "%sperplexities and errors: bootstrap over the n sequences or items both have; accuracies: "
            "McNemar's exact "
            "test over the n items both have\n",
            bullet);
}

void fl_compare_tables_text(const fl_run_comparison *c, const char *const names[2], FILE *stream) {
    const char *headings[COLUMNS];
    char cells[COLUMNS][CELL_BYTES], difference[CELL_BYTES];
    fill_headings(c, headings, difference);
    const widths w = measure(c, headings);
    write_head(c, names, "", stream);
    fprintf(stream, "\n");
    if (c->figure_count > 0) print_cells(headings, &w, stream);
    for (size_t i = 0; i < c->figure_count; i++) {
        const char *row[COLUMNS];
        fill_row(c, &c->figures[i], cells);
        for (size_t k = 0; k < COLUMNS; k++) row[k] = cells[k];
        if (repeats_cell(c, i)) row[0] = "";
        print_cells(row, &w, stream);
    }
    fprintf(stream, "\n");
    write_tail(c, "", stream);
}

static void write_markdown_cell(const char *text, FILE *stream) {
    fputs("| ", stream);
    for (const char *s = text; *s != '\0'; s++) {
        if (*s == '|' || *s == '*' || *s == '_') fputc('\\', stream);
        fputc(*s, stream);
    }
    fputc(' ', stream);
}

void fl_compare_tables_markdown(const fl_run_comparison *c, const char *const names[2], FILE *stream) {
    const char *headings[COLUMNS];
    char cells[COLUMNS][CELL_BYTES], difference[CELL_BYTES];
    fill_headings(c, headings, difference);
    write_head(c, names, "* ", stream);
    fprintf(stream, "\n");
    for (size_t k = 0; k < COLUMNS; k++) write_markdown_cell(headings[k], stream);
    fprintf(stream, "|\n|---|---|---:|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < c->figure_count; i++) {
        fill_row(c, &c->figures[i], cells);
        for (size_t k = 0; k < COLUMNS; k++)
            write_markdown_cell(k == 0 && repeats_cell(c, i) ? "" : cells[k], stream);
        fprintf(stream, "|\n");
    }
    fprintf(stream, "\n");
    write_tail(c, "* ", stream);
}

static void write_csv_row(const fl_run_comparison *c, const fl_figure_difference *figure, FILE *stream) {
    const fl_run_pair *pair = &c->pairs[figure->pair];
    const fl_interval *difference = &figure->difference;
    const char *const texts[] = {pair->first->run_id, pair->second->run_id, pair->first->label,
                                 pair->second->label, figure->figure,       figure->units};
    const double numbers[] = {figure->first,    figure->second,    difference->estimate, difference->low,
                              difference->high, difference->level, difference->p};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        fl_output_csv_text(stream, texts[i]);
        fputc(',', stream);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        fl_output_csv_number(stream, numbers[i]);
        fputc(',', stream);
    }
    fprintf(stream, "%s,%zu,", figure->test, difference->sequences);
    fl_output_csv_text(stream, difference->why_not);
    fputc('\n', stream);
}

void fl_compare_tables_csv(const fl_run_comparison *c, FILE *stream) {
    fprintf(stream,
            "run_a,run_b,cell_a,cell_b,figure,units,a,b,difference,low,high,level,p,test,n,why_not\n");
    for (size_t i = 0; i < c->figure_count; i++) write_csv_row(c, &c->figures[i], stream);
}
