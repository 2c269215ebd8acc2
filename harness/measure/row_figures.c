#include "harness/measure/row_figures.h"

#include "harness/base/memory.h"

fl_status fl_row_figures_create(fl_compute *compute, size_t room, fl_row_figures *out, fl_error *error) {
    *out = (fl_row_figures){.compute = compute};
    fl_status status = FL_OK;
    FL_TRY_DONE(status, compute->ops->allocate(compute, 2 * room, FL_FLOAT64, &out->made, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->brought, 2 * room, error));
    return FL_OK;
done:
    fl_row_figures_release(out);
    return status;
}

void fl_row_figures_release(fl_row_figures *figures) {
    if (figures->compute == NULL) return;
    figures->compute->ops->release(figures->compute, figures->made);
    fl_memory_free(figures->brought);
    *figures = (fl_row_figures){0};
}

static fl_status bring(fl_row_figures *figures, size_t rows, fl_error *error) {
    return figures->compute->ops->download(figures->compute, figures->brought, figures->made, 2 * rows,
                                           error);
}

fl_status fl_row_figures_errors(fl_row_figures *figures, size_t rows, size_t columns, fl_array reference,
                                fl_array other, fl_row_errors *out, fl_error *error) {
    figures->compute->ops->row_errors(figures->compute, rows, columns, reference, other, figures->made,
                                      fl_array_from(figures->made, rows));
    *out = (fl_row_errors){figures->brought, figures->brought + rows};
    return bring(figures, rows, error);
}

fl_status fl_row_figures_moments(fl_row_figures *figures, size_t rows, size_t columns, fl_array x,
                                 fl_row_moments *out, fl_error *error) {
    figures->compute->ops->row_moments(figures->compute, rows, columns, x, figures->made,
                                       fl_array_from(figures->made, rows));
    *out = (fl_row_moments){figures->brought, figures->brought + rows};
    return bring(figures, rows, error);
}
