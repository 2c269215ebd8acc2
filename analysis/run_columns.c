#include "analysis/run_columns.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/run_scores.h"
#include "harness/base/memory.h"
#include "harness/config/options.h"
#include "harness/config/text_builder.h"

enum { NAME_BYTES = 512 };

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

/* What a reader sees of a metric; others under their own names. */
static const struct reader_metric {
    const char *name, *heading, *units;
    double scale;
    bool shown; /* without being asked for */
} reader_metrics[] = {
    {"nmse", "nMSE", "", 1, true},
    {"linear_off/nmse", "nMSE, linear off", "", 1, true},
    {"perplexity", "ppl", "", 1, true},
    {"linear_off/perplexity", "ppl, linear off", "", 1, true},
    {"full_perplexity", "ppl, full", "", 1, true},
    {"kl", "KL", "nat", 1, true},
    {"linear_off/kl", "KL, linear off", "nat", 1, false},
    {"agreement", "agree", "%", 100, true},
    {"state_bytes", "state", "KiB", 1.0 / 1024, true},
    {"exact_bytes", "exact", "KiB", 1.0 / 1024, true},
    {"linear_share", "linear", "%", 100, true},
};
enum { READER_METRICS = sizeof reader_metrics / sizeof reader_metrics[0] };

static const struct reader_metric *find_reader(const char *name) {
    for (size_t i = 0; i < READER_METRICS; i++) {
        if (is(reader_metrics[i].name, name)) return &reader_metrics[i];
    }
    return NULL;
}

static const char *units_of(const char *metric) {
    fl_run_scalar scalar;
    for (size_t i = 0; fl_run_scalar_at(i, &scalar); i++) {
        if (is(scalar.name, metric)) return scalar.units;
    }
    return "1";
}

/* The table under way. */
typedef struct builder {
    const fl_run_groups *groups;
    fl_table *table;
    bool for_reader;
} builder;

static const char *text_of(const fl_run_entry *run) {
    static const char *const keys[] = {"text.path", "text.ids"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *value = fl_run_entry_value(run, keys[i]);
        if (value != NULL && !is(value, "null")) return value;
    }
    return fl_run_entry_value(run, "text.sequence_length") != NULL ? "self_generated" : NULL;
}

static const char *identity_of(const fl_run_groups *groups, size_t index, const char *name) {
    const fl_run_entry *run = fl_run_group_first(groups, index);
    if (is(name, "run_id")) return run->run_id;
    if (is(name, "name")) return run->name;
    if (is(name, "model")) return fl_run_entry_value(run, "model.path");
    if (is(name, "text")) return text_of(run);
    if (is(name, "tier")) return run->tier;
    return groups->items[index].diverged ? "diverged" : run->status;
}

static bool is_identity(const char *name) {
    static const char *const names[] = {"run_id", "label", "name", "model", "text", "tier", "status"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (is(names[i], name)) return true;
    }
    return false;
}

/* The run ids of a group, one behind the other. */
static fl_status add_run_ids(builder *b, size_t row, size_t column, fl_error *error) {
    const fl_run_group *group = &b->groups->items[row];
    fl_text_builder ids = {0};
    fl_status status = FL_OK;
    for (size_t i = 0; i < group->count && status == FL_OK; i++)
        status = fl_text_builder_format(&ids, error, "%s%s", i > 0 ? " " : "",
                                        b->groups->set->runs[group->runs[i]].run_id);
    if (status != FL_OK) {
        fl_text_builder_release(&ids);
        return status;
    }
    FL_TRY(fl_table_adopt(b->table, ids.text, error));
    fl_table_set_text(b->table, row, column, ids.text);
    return FL_OK;
}

/* The table keeps its own copy: it may outlive the groups. */
static fl_status add_label(builder *b, size_t row, size_t column, fl_error *error) {
    char *label = NULL;
    FL_TRY(fl_memory_copy_string(&label, b->groups->items[row].label, error));
    FL_TRY(fl_table_adopt(b->table, label, error));
    fl_table_set_text(b->table, row, column, label);
    return FL_OK;
}

static fl_status add_identity(builder *b, const char *name, fl_error *error) {
    size_t column = 0;
    FL_TRY(fl_table_add(b->table, name, "", true, &column, error));
    if (b->for_reader && is(name, "label")) FL_TRY(fl_table_set_heading(b->table, column, "run", error));
    for (size_t row = 0; row < b->table->rows; row++) {
        if (is(name, "run_id")) {
            FL_TRY(add_run_ids(b, row, column, error));
        } else if (is(name, "label")) {
            FL_TRY(add_label(b, row, column, error));
        } else {
            fl_table_set_text(b->table, row, column, identity_of(b->groups, row, name));
        }
    }
    return FL_OK;
}

static bool is_count(const char *name) {
    return is(name, "n") || is(name, "older") || is(name, "warnings");
}

/* What is counted of a group: its runs, whether one is older, the warnings of all. */
static double count_of(const fl_run_groups *groups, size_t index, const char *name) {
    const fl_run_group *group = &groups->items[index];
    size_t warnings = 0;
    for (size_t i = 0; i < group->count; i++) warnings += groups->set->runs[group->runs[i]].warning_count;
    return is(name, "n") ? (double)group->count : is(name, "older") ? group->older : (double)warnings;
}

static fl_status add_count(builder *b, const char *name, fl_error *error) {
    size_t column = 0;
    FL_TRY(fl_table_add(b->table, name, "", false, &column, error));
    for (size_t row = 0; row < b->table->rows; row++)
        fl_table_set_number(b->table, row, column, count_of(b->groups, row, name));
    return FL_OK;
}

static bool any_has_key(const builder *b, const char *key) {
    for (size_t row = 0; row < b->table->rows; row++) {
        if (fl_run_entry_value(fl_run_group_first(b->groups, row), key) != NULL) return true;
    }
    return false;
}

static fl_status add_key(builder *b, const char *name, const char *key, fl_error *error) {
    size_t column = 0;
    FL_TRY(fl_table_add(b->table, name, "", true, &column, error));
    for (size_t row = 0; row < b->table->rows; row++)
        fl_table_set_text(b->table, row, column, fl_run_entry_value(fl_run_group_first(b->groups, row), key));
    return FL_OK;
}

static bool any_has_metric(const builder *b, const char *metric) {
    for (size_t row = 0; row < b->table->rows; row++) {
        if (fl_run_group_metric(b->groups, row, metric).n > 0) return true;
    }
    return false;
}

/* A task's score has its standard error over items in the run file. */
static double error_of(const builder *b, size_t row, const char *metric, fl_run_spread spread) {
    char name[NAME_BYTES];
    if (spread.n > 1) return spread.sd;
    snprintf(name, sizeof name, "%s_stderr", metric);
    return fl_run_metric_value(fl_run_group_first(b->groups, row), name);
}

/* A baseline of a run without a linear part is the run itself. */
static bool is_idle(const builder *b, size_t row, const char *metric) {
    bool of_linear = strncmp(metric, "linear_off/", 11) == 0 || is(metric, "linear_share");
    return b->for_reader && of_linear && !fl_run_has_linear_part(fl_run_group_first(b->groups, row));
}

static fl_status add_metric(builder *b, const char *metric, const char *heading, fl_error *error) {
    const struct reader_metric *reader = b->for_reader ? find_reader(metric) : NULL;
    double scale = reader != NULL ? reader->scale : 1;
    size_t column = 0;
    FL_TRY(fl_table_add(b->table, metric, reader != NULL ? reader->units : units_of(metric), false, &column,
                        error));
    if (heading == NULL && reader != NULL) heading = reader->heading;
    if (heading != NULL) FL_TRY(fl_table_set_heading(b->table, column, heading, error));
    for (size_t row = 0; row < b->table->rows; row++) {
        fl_run_spread spread = fl_run_group_metric(b->groups, row, metric);
        if (spread.n == 0 || is_idle(b, row, metric)) continue;
        FL_TRY(fl_table_set_measured(b->table, row, column, scale * spread.mean,
                                     scale * error_of(b, row, metric, spread), error));
    }
    return FL_OK;
}

static fl_status add_spread(builder *b, const char *metric, fl_error *error) {
    char name[NAME_BYTES];
    size_t column = 0;
    snprintf(name, sizeof name, "%s_sd", metric);
    FL_TRY(fl_table_add(b->table, name, units_of(metric), false, &column, error));
    for (size_t row = 0; row < b->table->rows; row++) {
        fl_run_spread spread = fl_run_group_metric(b->groups, row, metric);
        if (spread.n > 1) fl_table_set_number(b->table, row, column, spread.sd);
    }
    return FL_OK;
}

static bool has_column(const builder *b, const char *name) {
    return fl_table_find(b->table, name) < b->table->column_count;
}

static fl_status add_tidy_metric(builder *b, const char *metric, fl_error *error) {
    FL_TRY(add_metric(b, metric, NULL, error));
    return fl_run_groups_any_seeds(b->groups) ? add_spread(b, metric, error) : FL_OK;
}

static fl_status refuse_column(const builder *b, const char *name, fl_error *error) {
    static const char *const always[] = {"label",  "run_id", "name", "model",      "text",
                                         "tier",   "status", "n",    "older",      "rule",
                                         "window", "sinks",  "nmse", "perplexity", "kl"};
    const fl_run_entry *run = &b->groups->set->runs[0];
    const char *near = fl_suggest(name, always, sizeof always / sizeof always[0]);
    const char **known = NULL;
    FL_TRY(FL_ALLOCATE(&known, run->metric_count + 1, error));
    for (size_t i = 0; i < run->metric_count; i++) known[i] = run->metrics[i].name;
    if (near == NULL) near = fl_suggest(name, known, run->metric_count);
    fl_memory_free(known);
    if (near != NULL)
        return fl_error_set(error, FL_ERROR_ARGUMENT, "no run has a column '%.200s'; did you mean '%s'?",
                            name, near);
    return fl_error_set(error, FL_ERROR_ARGUMENT,
                        "no run has a column '%.200s': it is a metric, a key of the configuration, or one of "
                        "label, run_id, name, model, text, tier, status, n, older, warnings",
                        name);
}

static fl_status add_wanted(builder *b, const char *name, fl_error *error) {
    char key[NAME_BYTES];
    snprintf(key, sizeof key, "variant.%s", name);
    if (has_column(b, name)) return FL_OK;
    if (is_identity(name)) return add_identity(b, name, error);
    if (is_count(name)) return add_count(b, name, error);
    if (any_has_metric(b, name))
        return b->for_reader ? add_metric(b, name, NULL, error) : add_tidy_metric(b, name, error);
    if (any_has_key(b, name)) return add_key(b, name, name, error);
    if (any_has_key(b, key)) return add_key(b, name, key, error);
    return refuse_column(b, name, error);
}

static bool is_seed(const char *key) {
    return is(key, "variant.seed") || is(key, "train.seed");
}

static fl_status add_axes(builder *b, fl_error *error) {
    static const char *const always[][2] = {
        {"variant.rule", "rule"}, {"variant.window", "window"}, {"variant.sinks", "sinks"}};
    bool seeds = fl_run_groups_any_seeds(b->groups);
    const fl_run_set *set = b->groups->set;
    for (size_t i = 0; i < 3; i++) FL_TRY(add_key(b, always[i][1], always[i][0], error));
    for (size_t i = 0; i < set->axis_count; i++) {
        const char *key = set->axes[i];
        bool known = seeds && is_seed(key);
        for (size_t k = 0; k < 3; k++) known = known || is(key, always[k][0]);
        if (!known) FL_TRY(add_key(b, key, key, error));
    }
    return FL_OK;
}

static fl_status add_every_column(builder *b, fl_error *error) {
    static const char *const identity[] = {"run_id", "label", "name", "model", "text", "tier", "status"};
    const fl_run_set *set = b->groups->set;
    for (size_t i = 0; i < sizeof identity / sizeof identity[0]; i++)
        FL_TRY(add_identity(b, identity[i], error));
    FL_TRY(add_count(b, "older", error));
    FL_TRY(add_count(b, "warnings", error));
    if (fl_run_groups_any_seeds(b->groups)) FL_TRY(add_count(b, "n", error));
    FL_TRY(add_axes(b, error));
    for (size_t r = 0; r < set->count; r++) {
        for (size_t m = 0; m < set->runs[r].metric_count; m++) {
            if (!has_column(b, set->runs[r].metrics[m].name))
                FL_TRY(add_tidy_metric(b, set->runs[r].metrics[m].name, error));
        }
    }
    return FL_OK;
}

static fl_status add_score(builder *b, const fl_run_score *score, fl_error *error) {
    char heading[NAME_BYTES];
    FL_TRY(add_metric(b, score->value, score->title, error));
    snprintf(heading, sizeof heading, "%s, full", score->task);
    if (any_has_metric(b, score->full)) FL_TRY(add_metric(b, score->full, heading, error));
    snprintf(heading, sizeof heading, "%s, linear off", score->task);
    return any_has_metric(b, score->linear_off) ? add_metric(b, score->linear_off, heading, error) : FL_OK;
}

static fl_status add_reader_columns(builder *b, fl_error *error) {
    fl_run_score *scores = NULL;
    size_t count = 0;
    FL_TRY(add_identity(b, "label", error));
    FL_TRY(add_identity(b, "tier", error));
    if (fl_run_groups_any_seeds(b->groups)) FL_TRY(add_count(b, "n", error));
    if (fl_run_set_has_older(b->groups->set)) FL_TRY(add_count(b, "older", error));
    for (size_t i = 0; i < READER_METRICS; i++) {
        if (reader_metrics[i].shown && any_has_metric(b, reader_metrics[i].name))
            FL_TRY(add_metric(b, reader_metrics[i].name, NULL, error));
    }
    FL_TRY(fl_run_scores_list(b->groups->set, &scores, &count, error));
    fl_status status = FL_OK;
    for (size_t i = 0; i < count && status == FL_OK; i++) {
        if (scores[i].task[0] != '\0') status = add_score(b, &scores[i], error);
    }
    fl_memory_free(scores);
    return status;
}

static fl_status build(builder *b, const char *const *wanted, size_t wanted_count, fl_error *error) {
    fl_status status = FL_OK;
    *b->table = (fl_table){.rows = b->groups->count};
    for (size_t i = 0; i < wanted_count && status == FL_OK; i++) status = add_wanted(b, wanted[i], error);
    if (wanted_count == 0) status = b->for_reader ? add_reader_columns(b, error) : add_every_column(b, error);
    if (status != FL_OK) fl_table_release(b->table);
    return status;
}

fl_status fl_run_columns_tidy(const fl_run_groups *groups, const char *const *wanted, size_t wanted_count,
                              fl_table *out, fl_error *error) {
    return build(&(builder){.groups = groups, .table = out}, wanted, wanted_count, error);
}

fl_status fl_run_columns_page(const fl_run_groups *groups, const char *const *wanted, size_t wanted_count,
                              fl_table *out, fl_error *error) {
    return build(&(builder){.groups = groups, .table = out, .for_reader = true}, wanted, wanted_count, error);
}

fl_status fl_run_columns_every_run(const fl_run_set *set, fl_table *out, fl_error *error) {
    fl_run_groups *groups = NULL;
    FL_TRY(fl_run_groups_make(set, true, &groups, error));
    fl_status status = fl_run_columns_tidy(groups, NULL, 0, out, error);
    fl_run_groups_destroy(groups);
    return status;
}

const char *fl_run_columns_note(const fl_table *table) {
    for (size_t c = 0; c < table->column_count; c++) {
        const double *errors = table->columns[c].errors;
        for (size_t row = 0; errors != NULL && row < table->rows; row++) {
            if (!isnan(errors[row]))
                return "Errors: the standard deviation over the n seeds of a row where n > 1, else the "
                       "standard "
                       "error over a task's items.";
        }
    }
    return "";
}
