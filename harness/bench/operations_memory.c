/* Copies, which must be exact. */
#include "harness/bench/operation_list.h"

#define SLOT(name_) .name = #name_, .slot = offsetof(fl_compute_ops, name_)

enum { GUARD = 3 }; /* numbers between one row and the next that must stay as they are */

typedef struct {
    size_t rows, width, to_stride, from_stride;
    fl_trial_input from, to;
    fl_array index;
} copy_case;

/* `to` as it was, but for its rows. index NULL: row i. */
static fl_status expect_rows(fl_trial *trial, const copy_case *c, const int32_t *index, fl_error *error) {
    double *expected = NULL;
    FL_TRY(fl_trial_expect(trial, "to", c->to.array, c->to.count, &expected, error));
    for (size_t i = 0; i < c->to.count; i++) expected[i] = c->to.wide[i];
    for (size_t row = 0; row < c->rows; row++) {
        const size_t source = index != NULL ? (size_t)index[row] : row;
        for (size_t i = 0; i < c->width; i++)
            expected[row * c->to_stride + i] = c->from.wide[source * c->from_stride + i];
    }
    return FL_OK;
}

static fl_status make_rows(fl_trial *trial, fl_error *error) {
    copy_case *c = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = c;
    c->rows = trial->sizes[0];
    c->width = trial->sizes[1];
    c->to_stride = c->width + GUARD;
    c->from_stride = c->width + 1;
    FL_TRY(fl_trial_normals(trial, c->rows * c->from_stride, 1.0, &c->from, error));
    FL_TRY(fl_trial_normals(trial, c->rows * c->to_stride, 1.0, &c->to, error));
    trial->bytes = 2.0 * sizeof(float) * (double)(c->rows * c->width);
    return FL_OK;
}

static fl_status make_copy(fl_trial *trial, fl_error *error) {
    FL_TRY(make_rows(trial, error));
    copy_case *c = trial->context;
    if (fl_random_below(&trial->random, 4) == 0) c->from_stride = 0; /* one row, repeated */
    return expect_rows(trial, c, NULL, error);
}

static fl_status call_copy(fl_trial *trial, fl_error *error) {
    const copy_case *c = trial->context;
    (void)error;
    trial->compute->ops->copy_rows(trial->compute, c->to.array, c->to_stride, c->from.array, c->from_stride,
                                   c->rows, c->width);
    return FL_OK;
}

static fl_status make_gather(fl_trial *trial, fl_error *error) {
    int32_t *index = NULL;
    FL_TRY(make_rows(trial, error));
    copy_case *c = trial->context;
    FL_TRY(fl_trial_block(trial, c->rows, sizeof *index, &index, error));
    for (size_t i = 0; i < c->rows; i++) index[i] = (int32_t)fl_random_below(&trial->random, c->rows);
    FL_TRY(fl_trial_integers(trial, c->rows, index, &c->index, error));
    return expect_rows(trial, c, index, error);
}

static fl_status call_gather(fl_trial *trial, fl_error *error) {
    const copy_case *c = trial->context;
    (void)error;
    trial->compute->ops->gather_rows(trial->compute, c->to.array, c->to_stride, c->from.array, c->from_stride,
                                     c->index, c->rows, c->width);
    return FL_OK;
}

static fl_status make_fill(fl_trial *trial, fl_error *error) {
    fl_trial_input *x = NULL;
    double *expected = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *x, &x, error));
    trial->context = x;
    FL_TRY(fl_trial_normals(trial, trial->sizes[0] + GUARD, 1.0, x, error));
    FL_TRY(fl_trial_expect(trial, "array", x->array, x->count, &expected, error));
    for (size_t i = 0; i < x->count; i++) expected[i] = i < trial->sizes[0] ? -2.5 : x->wide[i];
    trial->bytes = sizeof(float) * (double)trial->sizes[0];
    return FL_OK;
}

static fl_status call_fill(fl_trial *trial, fl_error *error) {
    const fl_trial_input *x = trial->context;
    (void)error;
    trial->compute->ops->fill(trial->compute, x->array, trial->sizes[0], -2.5);
    return FL_OK;
}

/* Borrowed twice: the numbers change in between, and the version with them. */
typedef struct {
    size_t count;
    float *host;
    uint64_t version;
    fl_array first, second;
} borrow_case;

static fl_status make_borrow(fl_trial *trial, fl_error *error) {
    borrow_case *c = NULL;
    double *expected[2];
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = c;
    c->count = trial->sizes[0];
    FL_TRY(fl_trial_block(trial, c->count, sizeof(float), &c->host, error));
    FL_TRY(fl_trial_array(trial, c->count, FL_FLOAT32, &c->first, error));
    FL_TRY(fl_trial_array(trial, c->count, FL_FLOAT32, &c->second, error));
    FL_TRY(fl_trial_expect(trial, "first version", c->first, c->count, &expected[0], error));
    FL_TRY(fl_trial_expect(trial, "second version", c->second, c->count, &expected[1], error));
    for (size_t i = 0; i < c->count; i++) {
        expected[0][i] = (double)i;
        expected[1][i] = (double)i + 0.5;
    }
    return FL_OK;
}

static fl_status copy_borrowed(fl_trial *trial, double offset, fl_array to, fl_error *error) {
    borrow_case *c = trial->context;
    fl_array borrowed = fl_array_none;
    for (size_t i = 0; i < c->count; i++) c->host[i] = (float)((double)i + offset);
    FL_TRY(trial->compute->ops->borrow(trial->compute, c->host, c->count, FL_FLOAT32, ++c->version, &borrowed,
                                       error));
    trial->compute->ops->copy_rows(trial->compute, to, c->count, borrowed, c->count, 1, c->count);
    return trial->compute->ops->settle(trial->compute, error);
}

static fl_status call_borrow(fl_trial *trial, fl_error *error) {
    borrow_case *c = trial->context;
    FL_TRY(copy_borrowed(trial, 0.0, c->first, error));
    FL_TRY(copy_borrowed(trial, 0.5, c->second, error));
    trial->compute->ops->forget(trial->compute, c->host);
    return FL_OK;
}

#define ROWS .sizes = {{"rows", {1, 2, 31, 200}, 512}, {"width", {1, 3, 64, 577}, 576}}, .bound = 0.0

const fl_operation fl_operations_memory[] = {
    {SLOT(copy_rows), ROWS, .make = make_copy, .call = call_copy},
    {SLOT(gather_rows), ROWS, .make = make_gather, .call = call_gather},
    {SLOT(fill), .sizes = {{"count", {1, 3, 1000, 70000}, 294912}}, .bound = 0.0, .make = make_fill,
     .call = call_fill},
    {SLOT(borrow), .sizes = {{"count", {1, 3, 576}, 576}}, .bound = 0.0, .make = make_borrow,
     .call = call_borrow},
    {SLOT(forget), .sizes = {{"count", {1, 64}, 576}}, .bound = 0.0, .make = make_borrow,
     .call = call_borrow},
    {0},
};
