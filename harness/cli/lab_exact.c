#include "harness/cli/lab_exact.h"

#include <math.h>

static void write_number(FILE *stream, const char *key, double value) {
    if (isnan(value))
        fprintf(stream, "\"%s\": null", key);
    else
        fprintf(stream, "\"%s\": %.17g", key, value);
}

static void write_array(FILE *stream, const char *key, const double *values, size_t count) {
    fprintf(stream, "\"%s\": [", key);
    for (size_t i = 0; i < count; i++) fprintf(stream, "%s%.17g", i > 0 ? ", " : "", values[i]);
    fputc(']', stream);
}

static void write_figure(FILE *stream, const fl_lab_exact_request *request) {
    fl_exact_figure steps[FL_EXACT_FIGURE_WRITES];
    enum { STATE = sizeof steps[0].state / sizeof(double), RECALL = sizeof steps[0].recall / sizeof(double) };
    fputs("\"figure\": {", stream);
    for (int rule = 0; rule < FL_EXACT_RULES; rule++) {
        fl_exact_lab_figure((fl_exact_rule)rule, &request->strength, request->overlap, steps);
        fprintf(stream, "%s\n  \"%s\": [", rule > 0 ? "," : "", fl_exact_rule_names[rule]);
        for (size_t step = 0; step < FL_EXACT_FIGURE_WRITES; step++) {
            fputs(step > 0 ? ",\n    {" : "\n    {", stream);
            write_array(stream, "state", steps[step].state[0], STATE);
            fputs(", ", stream);
            write_array(stream, "recall", steps[step].recall[0], RECALL);
            fputc('}', stream);
        }
        fputc(']', stream);
    }
    fputc('}', stream);
}

static void write_recall(FILE *stream, const char *rule, const fl_exact_recall *recall) {
    const struct {
        const char *key;
        double value;
    } members[] = {
        {"recall_error", recall->recall_error},
        {"to_newest", recall->to_newest},
        {"to_old", recall->to_old},
        {"to_blend", recall->to_blend},
        {"cosine", recall->cosine},
        {"cosine_old", recall->cosine_old},
        {"accuracy", recall->accuracy},
    };
    fprintf(stream, "\n      \"%s\": {", rule);
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        if (i > 0) fputs(", ", stream);
        write_number(stream, members[i].key, members[i].value);
    }
    fputc('}', stream);
}

static fl_status write_rules(FILE *stream, const fl_lab_exact_request *request, size_t pairs, bool overwrite,
                             fl_error *error) {
    fl_memory_lab_options options = request->options;
    options.overwrite = overwrite;
    fprintf(stream, ",\n    \"%s\": {", overwrite ? "overwrite" : "capacity");
    for (int rule = 0; rule < FL_EXACT_RULES; rule++) {
        fl_exact_recall recall;
        FL_TRY(fl_exact_lab_recall((fl_exact_rule)rule, &request->strength, &options, pairs, &recall, error));
        if (rule > 0) fputc(',', stream);
        write_recall(stream, fl_exact_rule_names[rule], &recall);
    }
    fputc('}', stream);
    return FL_OK;
}

static fl_status write_checks(FILE *stream, const fl_lab_exact_request *request, size_t pairs,
                              fl_error *error) {
    fl_exact_regrouped regrouped;
    FL_TRY(fl_exact_lab_regrouped(&request->options, pairs, &regrouped, error));
    fprintf(stream, "\n  {\"pairs\": %zu,\n    \"regrouped\": {", pairs);
    write_number(stream, "difference", regrouped.difference);
    fputs(", ", stream);
    write_number(stream, "length", regrouped.length);
    fputc('}', stream);
    FL_TRY(write_rules(stream, request, pairs, true, error));
    FL_TRY(write_rules(stream, request, pairs, false, error));
    fputc('}', stream);
    return FL_OK;
}

fl_status fl_lab_exact_write(FILE *stream, const fl_lab_exact_request *request, fl_error *error) {
    fputs("{", stream);
    write_figure(stream, request);
    fputs(",\n\"checks\": [", stream);
    for (size_t i = 0; i < request->count; i++) {
        if (i > 0) fputc(',', stream);
        FL_TRY(write_checks(stream, request, request->pairs[i], error));
    }
    fputs("]}\n", stream);
    return FL_OK;
}
