#include "harness/cli/lab_page.h"

#include "analysis/html.h"
#include "lab_page_parts.h" /* generated; in the build folder */

void fl_lab_page_write(FILE *stream) {
    fl_html_open_styled(stream, "The memory lab", (const char *)lab_style);
    fputs((const char *)lab_body, stream);
    fprintf(stream, "<script>\n%s%s</script>\n", (const char *)lab_arithmetic, (const char *)lab_script);
    fl_html_close(stream);
}
