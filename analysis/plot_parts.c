#include "analysis/plot_parts.h"

fl_figure_look fl_plot_look(const fl_plot_request *request) {
    return (fl_figure_look){.format = request->format, .width = request->width};
}

const char *fl_plot_title(const fl_plot_request *request, const char *own) {
    return request->title != NULL ? request->title : own;
}

void fl_plot_report(const fl_plot_request *request, const char *name) {
    if (request->drawn != NULL) request->drawn(request->context, name);
}

fl_status fl_plot_figure(const fl_plot_request *request, const fl_figure *figure, fl_error *error) {
    const fl_figure_look look = fl_plot_look(request);
    FL_TRY(fl_figure_write(figure, request->folder, &look, error));
    fl_plot_report(request, figure->name);
    return FL_OK;
}
