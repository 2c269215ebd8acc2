#include "analysis/figure_legend.h"

#include <stdio.h>
#include <string.h>

#include "analysis/text_width.h"

static const double sample = 22, sample_gap = 5, column_gap = 14;

enum { TEXT_BYTES = 1024 };

/* Label and note as one text. */
static const char *text_of(const fl_legend_entry *entry, char buffer[TEXT_BYTES]) {
    if (entry->note == NULL) return entry->label;
    snprintf(buffer, TEXT_BYTES, "%.*s (%s)", TEXT_BYTES - 128, entry->label, entry->note);
    return buffer;
}

enum { MOST_COLUMNS = 6 };

typedef struct layout {
    size_t columns, rows;
    double text_width; /* that a text may have */
    double left[MOST_COLUMNS], height;
    fl_page_type type;
} layout;

static double row_height(const fl_legend *legend, const layout *l, size_t row) {
    char buffer[TEXT_BYTES];
    double height = 0;
    for (size_t c = 0; c < l->columns; c++) {
        size_t i = c * l->rows + row;
        if (i >= legend->count) continue;
        double own = fl_page_text_height(text_of(&legend->entries[i], buffer), &l->type, l->text_width);
        if (own > height) height = own;
    }
    return height;
}

/* Places so many columns, each as wide as its texts; false when they do not fit. */
static bool place_columns(const fl_legend *legend, layout *l, size_t columns) {
    char buffer[TEXT_BYTES];
    double left = 0;
    l->rows = (legend->count + columns - 1) / columns;
    l->columns = (legend->count + l->rows - 1) / l->rows;
    for (size_t c = 0; c < l->columns; c++) {
        double widest = 0;
        for (size_t i = c * l->rows; i < legend->count && i < (c + 1) * l->rows; i++) {
            double own = 0;
            fl_text_lines(text_of(&legend->entries[i], buffer), l->type.size, l->text_width, &own);
            if (own > widest) widest = own;
        }
        l->left[c] = left;
        left += sample + sample_gap + 1.02 * widest + column_gap;
    }
    return left - column_gap <= legend->width;
}

static layout lay_out(const fl_legend *legend, double font) {
    layout l = {.text_width = legend->width - sample - sample_gap, .type = {.size = font}};
    size_t columns = legend->count < MOST_COLUMNS ? legend->count : MOST_COLUMNS;
    if (columns == 0) return l;
    while (!place_columns(legend, &l, columns) && columns > 1) columns--;
    for (size_t r = 0; r < l.rows; r++) l.height += row_height(legend, &l, r);
    return l;
}

double fl_legend_height(const fl_legend *legend, double font) {
    return lay_out(legend, font).height;
}

/* The middle of the first line of an entry. */
typedef struct spot {
    double x, y;
} spot;

static spot find_spot(const fl_legend *legend, const layout *l, size_t entry, double left, double top) {
    size_t row = entry % l->rows;
    for (size_t r = 0; r < row; r++) top += row_height(legend, l, r);
    return (spot){left + l->left[entry / l->rows], top + 0.65 * l->type.size};
}

void fl_legend_draw(fl_page *page, const fl_legend *legend, double left, double top) {
    char buffer[TEXT_BYTES];
    layout l = lay_out(legend, page->font);
    for (size_t i = 0; i < legend->count; i++) {
        spot at = find_spot(legend, &l, i, left, top);
        fl_page_text(page, at.x + sample + sample_gap, at.y - 0.65 * l.type.size, l.text_width,
                     text_of(&legend->entries[i], buffer), &l.type);
    }
}

void fl_legend_plot(fl_page *page, const fl_legend *legend, double left, double top) {
    FILE *stream = page->stream;
    layout l = lay_out(legend, page->font);
    for (size_t i = 0; i < legend->count; i++) {
        spot at = find_spot(legend, &l, i, left, top);
        fprintf(stream, "$sample%zu << end\n%.2f,%.2f\n%.2f,%.2f\nend\n", i, at.x, at.y, at.x + sample, at.y);
        fprintf(stream, "$middle%zu << end\n%.2f,%.2f\nend\n", i, at.x + sample / 2, at.y);
    }
    fl_page_place_whole(page);
    fputs("plot NaN", stream);
    for (size_t i = 0; i < legend->count; i++) {
        const fl_legend_entry *entry = &legend->entries[i];
        if (entry->line > 0)
            fprintf(stream, ", \\\n     $sample%zu using 1:2 with lines lc rgb '%s' dt %s lw %g", i,
                    entry->colour, entry->dash, entry->line);
        if (entry->shape > 0)
            fprintf(stream, ", \\\n     $middle%zu using 1:2 with points lc rgb '%s' pt %d ps %g", i,
                    entry->colour, entry->shape, entry->point);
    }
    fputc('\n', stream);
}
