/* Schema page: the part of results/README.md that describes the measurements, made from their table. */
#ifndef FL_STORE_SCHEMA_PAGE_H
#define FL_STORE_SCHEMA_PAGE_H

#include "harness/base/status.h"

/* The page has the table between these two lines. */
#define FL_SCHEMA_PAGE_BEGIN "<!-- measurements: from harness/measure/measurements.inc -->\n"
#define FL_SCHEMA_PAGE_END "<!-- end of measurements -->\n"

/* *out = fl_memory block: a Markdown table, one row a dataset. */
fl_status fl_schema_page_measurements(char **out, fl_error *error);

#endif
