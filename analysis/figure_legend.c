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

typedef struct layout {
    size_t columns, rows;
    double text_width, pitch, height;
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

static layout lay_out(const fl_legend *legend, double font) {
    char buffer[TEXT_BYTES];
    layout l = {.columns = 1, .text_width = legend->width - sample - sample_gap, .type = {.size = font}};
    double widest = 1;
    for (size_t i = 0; i < legend->count; i++) {
        double own = 0;
        fl_text_lines(text_of(&legend->entries[i], buffer), font, l.text_width, &own);
        if (own > widest) widest = own;
    }
    double entry = sample + sample_gap + 1.02 * widest + column_gap;
    l.columns = (size_t)((legend->width + column_gap) / entry);
    if (l.columns > legend->count) l.columns = legend->count;
    if (l.columns == 0) l.columns = 1;
    l.rows = (legend->count + l.columns - 1) / l.columns;
    l.columns = l.rows > 0 ? (legend->count + l.rows - 1) / l.rows : 1;
    l.pitch = entry;
    for (size_t r = 0; r < l.rows; r++) l.height += row_height(legend, &l, r);
    return l;
}

double fl_legend_height(const fl_legend *legend, double font) {
    return lay_out(legend, font).height;
}

static void draw_entry(fl_page *page, const fl_legend_entry *entry, const layout *l, double x, double y) {
    char buffer[TEXT_BYTES];
    double middle = y + 0.65 * l->type.size;
    if (entry->line > 0)
        fl_page_line(page, x, middle, x + sample, middle, entry->colour, entry->dash, entry->line);
    if (entry->shape > 0)
        fl_page_point(page, x + sample / 2, middle, entry->shape, entry->point, entry->colour);
    fl_page_text(page, x + sample + sample_gap, y, l->text_width, text_of(entry, buffer), &l->type);
}

void fl_legend_draw(fl_page *page, const fl_legend *legend, double left, double top) {
    layout l = lay_out(legend, page->font);
    for (size_t r = 0; r < l.rows; r++) {
        for (size_t c = 0; c < l.columns; c++) {
            size_t i = c * l.rows + r;
            if (i < legend->count) draw_entry(page, &legend->entries[i], &l, left + (double)c * l.pitch, top);
        }
        top += row_height(legend, &l, r);
    }
}
