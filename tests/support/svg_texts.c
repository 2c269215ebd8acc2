#include "tests/support/svg_texts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "analysis/text_width.h"
#include "harness/base/memory.h"
#include "tests/support/fixture.h"

/* Of the font size: letters above and below their middle, and what rounding may take. */
static const double above = 0.75, below = 0.22, slack = 0.75;

static void place(fl_svg_text *text, double x, double y, double size, const char *anchor, bool upright,
                  bool bold) {
    double width = fl_text_width(text->text, strlen(text->text), size) * (bold ? 1.1 : 1);
    double start = strncmp(anchor, "middle", 6) == 0 ? -width / 2
                   : strncmp(anchor, "end", 3) == 0  ? -width
                                                     : 0;
    if (upright) {
        text->left = x - above * size;
        text->right = x + below * size;
        text->bottom = y - start;
        text->top = text->bottom - width;
    } else {
        text->left = x + start;
        text->right = text->left + width;
        text->top = y - above * size;
        text->bottom = y + below * size;
    }
}

/* One group "<g transform=... font-size=... text-anchor=...> <text>...</text>"; false when it says nothing.
 */
static bool read_text(const char *group, const char *element, fl_svg_text *out) {
    const char *size = strstr(group, "font-size=\""), *anchor = strstr(group, "text-anchor=\"");
    const char *bold = strstr(group, "font-weight=\"bold\""), *end = strstr(element, "</text>");
    const char *first = strchr(element, '>') + 1; /* runs of spaces come with an attribute */
    double x = 0, y = 0;
    if (size == NULL || anchor == NULL || end == NULL || end == first) return false;
    if (sscanf(group, "<g transform=\"translate(%lf,%lf)", &x, &y) != 2) fail_msg("no place in %.80s", group);
    snprintf(out->text, sizeof out->text, "%.*s", (int)(end - first), first);
    const char *rotated = strstr(group, "rotate(");
    place(out, x, y, strtod(size + strlen("font-size=\""), NULL), anchor + strlen("text-anchor=\""),
          rotated != NULL && rotated < element, bold != NULL && bold < element);
    return true;
}

void fl_svg_texts_read(const char *path, fl_svg_text **texts, size_t *count, double *width, double *height) {
    char *svg = fl_read_file(path, NULL);
    const char *box = strstr(svg, "viewBox=\"0 0 ");
    if (box == NULL || sscanf(box, "viewBox=\"0 0 %lf %lf", width, height) != 2)
        fail_msg("%s: no size", path);
    *count = 0;
    *texts = NULL;
    for (const char *at = svg; (at = strstr(at, "<text")) != NULL; at++) {
        const char *group = at;
        while (group > svg && strncmp(group, "<g transform", 12) != 0) group--;
        assert_int_equal(FL_RESIZE(texts, *count, *count + 1, NULL), FL_OK);
        *count += read_text(group, at, &(*texts)[*count]);
    }
    fl_memory_free(svg);
}

static bool meet(const fl_svg_text *a, const fl_svg_text *b) {
    return a->left + slack < b->right && b->left + slack < a->right && a->top + slack < b->bottom &&
           b->top + slack < a->bottom;
}

void fl_svg_texts_check(const char *path) {
    fl_svg_text *texts = NULL;
    size_t count = 0;
    double width = 0, height = 0;
    fl_svg_texts_read(path, &texts, &count, &width, &height);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        const fl_svg_text *text = &texts[i];
        if (text->left < 0 || text->right > width || text->top < 0 || text->bottom > height)
            fail_msg("%s: \"%s\" is clipped: %g to %g, %g to %g of %g x %g", path, text->text, text->left,
                     text->right, text->top, text->bottom, width, height);
        for (size_t j = 0; j < i; j++) {
            if (meet(text, &texts[j]))
                fail_msg("%s: \"%s\" is written over \"%s\"", path, text->text, texts[j].text);
        }
    }
    fl_memory_free(texts);
}

bool fl_svg_texts_have(const char *path, const char *text) {
    fl_svg_text *texts = NULL;
    size_t count = 0;
    double width = 0, height = 0;
    bool found = false;
    fl_svg_texts_read(path, &texts, &count, &width, &height);
    for (size_t i = 0; i < count; i++) found = found || strcmp(texts[i].text, text) == 0;
    fl_memory_free(texts);
    return found;
}
