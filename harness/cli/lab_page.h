/* `frostline lab --page`: the memory lab as one page that needs nothing but a browser. Its parts are the files of
 * harness/cli/lab_page/, which the build puts into the program; style and frame are the report's (analysis/html.h). */
#ifndef FL_CLI_LAB_PAGE_H
#define FL_CLI_LAB_PAGE_H

#include <stdio.h>

/* Errors are the stream's. */
void fl_lab_page_write(FILE *stream);

#endif
