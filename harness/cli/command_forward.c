/* forward MODEL: one pass over one sequence, everything kept. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cjson/cJSON.h>

#include "harness/base/memory.h"
#include "harness/cli/arguments.h"
#include "harness/base/build_info.h"
#include "harness/cli/command.h"
#include "harness/run/linearised.h"
#include "harness/cli/positionals.h"
#include "harness/run/workbench.h"
#include "harness/config/experiment.h"
#include "harness/engine/session.h"
#include "harness/measure/text_source.h"
#include "harness/model/json_text.h"
#include "harness/store/run_file.h"

typedef struct forward_request {
    const char *model, *ids, *text, *config, *out;
    size_t threads;
} forward_request;

/* What one pass leaves behind. */
typedef struct forward_trace {
    fl_compute *compute; /* borrowed */
    size_t tokens, layers, model_dim, vocabulary;
    int32_t *ids;                              /* [T] */
    float *hidden;                             /* [L+1][T][E] */
    float *attention_input, *attention_output; /* [L][T][E] */
    float *logits;                             /* [T][V] */
    double *log_probabilities;                 /* [T-1] */
} forward_trace;

static void release_trace(forward_trace *trace) {
    fl_memory_free(trace->ids);
    fl_memory_free(trace->hidden);
    fl_memory_free(trace->attention_input);
    fl_memory_free(trace->attention_output);
    fl_memory_free(trace->logits);
    fl_memory_free(trace->log_probabilities);
}

static fl_status allocate_trace(forward_trace *trace, fl_error *error) {
    size_t rows = trace->tokens * trace->model_dim, all = 0, logits = 0;
    FL_TRY(fl_memory_multiply(rows, trace->layers + 1, &all, "hidden states", error));
    FL_TRY(fl_memory_multiply(trace->tokens, trace->vocabulary, &logits, "logits", error));
    FL_TRY(FL_ALLOCATE(&trace->hidden, all, error));
    FL_TRY(FL_ALLOCATE(&trace->attention_input, all - rows, error));
    FL_TRY(FL_ALLOCATE(&trace->attention_output, all - rows, error));
    FL_TRY(FL_ALLOCATE(&trace->logits, logits, error));
    return FL_ALLOCATE(&trace->log_probabilities, trace->tokens, error);
}

static fl_status keep_layer(void *context, const fl_layer_view *view, fl_error *error) {
    forward_trace *trace = context;
    const size_t row = trace->model_dim, count = view->tokens * row;
    const size_t at = (view->layer * trace->tokens + view->first_position) * row;
    FL_TRY(fl_compute_download(trace->compute, trace->attention_input + at, view->attention_input, count,
                               error));
    FL_TRY(fl_compute_download(trace->compute, trace->attention_output + at, view->attention_output, count,
                               error));
    /* The last row of hidden states is the one after the final norm, as Hugging Face counts. */
    if (view->layer + 1 == trace->layers) return FL_OK;
    return fl_compute_download(trace->compute, trace->hidden + at + trace->tokens * row, view->residual,
                               count, error);
}

/* What a pass over the whole sequence leaves with the instance. */
typedef struct forward_arrays {
    fl_array embedded, final; /* [T][E] */
    fl_array logits;          /* [T][V] */
    fl_array log_sum_exp;     /* [T] float64 */
} forward_arrays;

static fl_status allocate_arrays(const forward_trace *trace, forward_arrays *arrays, fl_error *error) {
    const size_t rows = trace->tokens * trace->model_dim, logits = trace->tokens * trace->vocabulary;
    FL_TRY(fl_compute_floats(trace->compute, rows, &arrays->embedded, error));
    FL_TRY(fl_compute_floats(trace->compute, rows, &arrays->final, error));
    FL_TRY(fl_compute_floats(trace->compute, logits, &arrays->logits, error));
    return trace->compute->ops->allocate(trace->compute, trace->tokens, FL_FLOAT64, &arrays->log_sum_exp,
                                         error);
}

/* Of each token but the first, given what comes before it. */
static fl_status score_tokens(forward_trace *trace, const forward_arrays *arrays, fl_error *error) {
    const size_t rows = trace->tokens - 1;
    double *shift = NULL;
    const fl_logit_rows_call call = {.rows = rows,
                                     .vocabulary = trace->vocabulary,
                                     .logits = arrays->logits,
                                     .log_sum_exp = arrays->log_sum_exp};
    trace->compute->ops->logit_rows(trace->compute, &call);
    FL_TRY(FL_ALLOCATE(&shift, trace->tokens, error));
    const fl_status status =
        trace->compute->ops->download(trace->compute, shift, arrays->log_sum_exp, rows, error);
    for (size_t t = 0; status == FL_OK && t < rows; t++) {
        const size_t target = (size_t)trace->ids[t + 1];
        trace->log_probabilities[t] = (double)trace->logits[t * trace->vocabulary + target] - shift[t];
    }
    fl_memory_free(shift);
    return status;
}

static fl_status bring_trace(forward_trace *trace, const forward_arrays *arrays, fl_error *error) {
    const size_t rows = trace->tokens * trace->model_dim;
    FL_TRY(fl_compute_download(trace->compute, trace->hidden, arrays->embedded, rows, error));
    FL_TRY(fl_compute_download(trace->compute, trace->hidden + trace->layers * rows, arrays->final, rows,
                               error));
    return fl_compute_download(trace->compute, trace->logits, arrays->logits,
                               trace->tokens * trace->vocabulary, error);
}

static fl_status compute_trace(const fl_workbench *bench, const fl_mechanism *mechanism, forward_trace *trace,
                               fl_error *error) {
    fl_session *session = NULL;
    forward_arrays arrays = {0};
    const fl_session_observer observer = {.layer = keep_layer, .context = trace};
    fl_status status = FL_OK;
    trace->compute = bench->network->compute;
    FL_TRY_DONE(status, allocate_trace(trace, error));
    FL_TRY_DONE(status, allocate_arrays(trace, &arrays, error));
    FL_TRY_DONE(status, fl_session_create(bench->network, mechanism, &session, error));
    FL_TRY_DONE(status, fl_session_forward(session, trace->ids, trace->tokens, arrays.embedded, arrays.final,
                                           &observer, error));
    fl_network_logits(bench->network, trace->tokens, arrays.final, arrays.logits);
    FL_TRY_DONE(status, bring_trace(trace, &arrays, error));
    FL_TRY_DONE(status, score_tokens(trace, &arrays, error));
done:
    fl_session_destroy(session);
    fl_compute_release(trace->compute, arrays.embedded);
    fl_compute_release(trace->compute, arrays.final);
    fl_compute_release(trace->compute, arrays.logits);
    fl_compute_release(trace->compute, arrays.log_sum_exp);
    return status;
}

static fl_status write_ids(fl_run_file *file, const int32_t *ids, size_t count, fl_error *error) {
    int64_t *wide = NULL;
    FL_TRY(FL_ALLOCATE(&wide, count, error));
    for (size_t i = 0; i < count; i++) wide[i] = ids[i];
    fl_status status = fl_run_file_write_integers(file, "/ids", 1, &count, wide, "token",
                                                  "token ids of the sequence", error);
    fl_memory_free(wide);
    return status;
}

static fl_status write_trace(fl_run_file *file, const forward_request *request, const forward_trace *trace,
                             fl_error *error) {
    size_t T = trace->tokens, L = trace->layers, E = trace->model_dim, V = trace->vocabulary;
    size_t predictions = T - 1;
    FL_TRY(fl_run_file_set_text(file, "/", "model", request->model, error));
    FL_TRY(fl_run_file_set_text(file, "/", "revision", fl_build_revision(), error));
    FL_TRY(write_ids(file, trace->ids, T, error));
    FL_TRY(fl_run_file_write_floats(file, "/logits", 2, (size_t[]){T, V}, trace->logits, "nat",
                                    "next-token logits [T][V]", error));
    FL_TRY(fl_run_file_write_doubles(file, "/token_log_probabilities", 1, &predictions,
                                     trace->log_probabilities, "nat",
                                     "log probability of token t + 1 after tokens 0..t [T-1]", error));
    FL_TRY(fl_run_file_write_floats(
        file, "/hidden", 3, (size_t[]){L + 1, T, E}, trace->hidden, "1",
        "residual stream [L+1][T][D]: 0 the embedding, l after layer l - 1, and the last "
        "after the final norm (Hugging Face's hidden_states)",
        error));
    FL_TRY(fl_run_file_write_floats(file, "/attention_input", 3, (size_t[]){L, T, E}, trace->attention_input,
                                    "1", "input of each attention block, after the input norm [L][T][D]",
                                    error));
    return fl_run_file_write_floats(
        file, "/attention_output", 3, (size_t[]){L, T, E}, trace->attention_output, "1",
        "output of each attention block, after the output projection and before the "
        "residual is added [L][T][D]",
        error);
}

/* [1, 2, 3] beside the usual [[1, 2, 3]]: *out stays empty when the file is not a flat list. */
static fl_status read_flat_ids(const char *path, size_t vocabulary, int32_t **out, size_t *count,
                               fl_error *error) {
    cJSON *root = NULL;
    FL_TRY(fl_json_read_file(path, &root, error));
    fl_status status = FL_OK;
    *count = 0;
    if (cJSON_IsArray(root) && cJSON_IsNumber(root->child)) {
        status = FL_ALLOCATE(out, (size_t)cJSON_GetArraySize(root), error);
        for (const cJSON *item = root->child; status == FL_OK && item != NULL; item = item->next) {
            size_t id = 0;
            if (fl_json_size(item, &id) && id < vocabulary) {
                (*out)[(*count)++] = (int32_t)id;
            } else {
                status = fl_error_set(error, FL_ERROR_FORMAT, "%s: entry %zu: not a token id from 0 to %zu",
                                      path, *count, vocabulary - 1);
            }
        }
    }
    cJSON_Delete(root);
    return status;
}

static fl_status load_ids(const forward_request *request, const fl_workbench *bench, forward_trace *trace,
                          fl_error *error) {
    size_t vocabulary = bench->model->config.vocabulary;
    FL_TRY(read_flat_ids(request->ids, vocabulary, &trace->ids, &trace->tokens, error));
    if (trace->tokens > 0) return FL_OK;
    fl_text_source source;
    FL_TRY(fl_text_source_from_ids(request->ids, vocabulary, 0, 0, &source, error));
    fl_status status = FL_OK;
    if (source.sequences.count == 1) {
        trace->tokens = source.sequences.lengths[0];
        trace->ids = source.sequences.ids[0];
        source.sequences.ids[0] = NULL;
    } else {
        status = fl_error_set(error, FL_ERROR_ARGUMENT, "%s: holds %zu sequences; forward takes one",
                              request->ids, source.sequences.count);
    }
    fl_text_source_release(&source);
    return status;
}

static fl_status load_text(const forward_request *request, const fl_workbench *bench, forward_trace *trace,
                           fl_error *error) {
    fl_tokenizer *tokenizer = NULL;
    fl_text_source source;
    FL_TRY(fl_workbench_tokenizer(request->model, &tokenizer, error));
    fl_status status = fl_text_source_from_text(request->text, tokenizer, bench->model->config.vocabulary, 0,
                                                0, &source, error);
    fl_tokenizer_close(tokenizer);
    if (status != FL_OK) return status;
    trace->tokens = source.sequences.lengths[0];
    trace->ids = source.sequences.ids[0];
    source.sequences.ids[0] = NULL;
    fl_text_source_release(&source);
    return FL_OK;
}

static fl_status load_variant(const forward_request *request, const fl_workbench *bench,
                              const forward_trace *trace, fl_linearised *out, fl_error *error) {
    int32_t *rows[] = {trace->ids};
    size_t lengths[] = {trace->tokens};
    const fl_sequences sequence = {.count = 1, .lengths = lengths, .ids = rows};
    return fl_linearised_load(request->config, bench, &sequence, out, error);
}

static fl_status forward(const forward_request *request, fl_error *error) {
    fl_workbench bench;
    fl_linearised linearised = {0};
    forward_trace trace = {0};
    fl_run_file *file = NULL;
    FL_TRY(fl_workbench_open(request->model, &bench, error));
    fl_command_note(request->model, bench.model->note);
    fl_status status = FL_OK;
    FL_TRY_DONE(status, request->ids != NULL ? load_ids(request, &bench, &trace, error)
                                             : load_text(request, &bench, &trace, error));
    FL_TRY_DONE(status, fl_workbench_prepare(&bench, request->threads, error));
    if (request->config != NULL)
        FL_TRY_DONE(status, load_variant(request, &bench, &trace, &linearised, error));
    trace.layers = bench.model->config.layers;
    trace.model_dim = bench.model->config.model_dim;
    trace.vocabulary = bench.model->config.vocabulary;
    /* Opened before the work, so that an output that cannot be written is known at once. */
    FL_TRY_DONE(status, fl_run_file_create_at(request->out, &file, error));
    FL_TRY_DONE(status, compute_trace(&bench, linearised.mechanism, &trace, error));
    FL_TRY_DONE(status, write_trace(file, request, &trace, error));
    status = fl_run_file_commit(file, error);
    file = NULL;
done:
    fl_run_file_discard(file);
    release_trace(&trace);
    fl_linearised_release(&linearised);
    fl_workbench_close(&bench);
    return status;
}

static int run(const fl_command *command, int argc, char **argv) {
    forward_request request = {0};
    fl_positionals model;
    int code = fl_arguments_parse(command, argc, argv, &request, &model);
    if (code >= 0) return code;
    request.model = model.items[0];
    fl_error error;
    return forward(&request, &error) == FL_OK ? FL_EXIT_OK : fl_command_fail(command, &error);
}

static const fl_flag flags[] = {
    {.name = "--ids",
     .value = "FILE.json",
     .kind = FL_VALUE_FILE,
     .input = true,
     .offset = offsetof(forward_request, ids),
     .need = FL_NEED_EITHER,
     .help = "the sequence: a list of token ids"},
    {.name = "--text",
     .value = "FILE",
     .kind = FL_VALUE_FILE,
     .input = true,
     .offset = offsetof(forward_request, text),
     .need = FL_NEED_EITHER,
     .help = "the sequence: a text, tokenised whole"},
    {.name = "--config",
     .value = "CONFIG",
     .kind = FL_VALUE_FILE,
     .input = true,
     .offset = offsetof(forward_request, config),
     .help = "linearise with this config's variant (one cell)"},
    {.name = "--out",
     .value = "FILE.h5",
     .kind = FL_VALUE_FILE,
     .offset = offsetof(forward_request, out),
     .need = FL_NEED_ALWAYS,
     .help = "where the result goes"},
    {.name = "--threads",
     .value = "N",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(forward_request, threads),
     .help = "0, the default: all processors"},
    {0},
};

static const fl_example examples[] = {
    {.line = "frostline forward models/smollm2-135m.gguf --text datasets/reading.txt --out pass.h5",
     .what = "logits and hidden states of the frozen model"},
    {.line = "frostline forward models/smollm2-135m.gguf --ids ids.json --config my.yaml --out linear.h5",
     .what = "the same of a linearised one"},
    {0},
};

const fl_command fl_command_forward = {
    .name = "forward",
    .summary = "one model pass over one sequence, everything kept in HDF5",
    .positionals = fl_positionals_model,
    .flags = flags,
    .examples = examples,
    .help = "Datasets: /ids [T], /logits [T][V], /token_log_probabilities [T-1], /hidden [L+1][T][D], "
            "/attention_input and /attention_output [L][T][D]. /hidden follows Hugging Face: its last row is "
            "after the final norm.",
    .run = run,
};
