/* Filling fl_text_result: while a run goes on its arrays hold sums over tokens; fl_text_result_finish divides. */
#ifndef FL_MEASURE_TEXT_RESULT_H
#define FL_MEASURE_TEXT_RESULT_H

#include "harness/measure/moments.h"
#include "harness/measure/text_evaluation.h"

/* What all mechanisms share: the frozen model's moments and scores, and how often each position occurred. */
typedef struct fl_text_totals {
    double *position_count; /* [P] */
    fl_moments *attention;  /* [L] after the output projection */
    fl_moments *residual;   /* [L] */
    fl_moments *head;       /* [L][H] before the output projection */
    double *key_concentration, *projection_residual;      /* [L][Hkv][P] */
    double *full_position_cross_entropy, *position_scored; /* [P] */
    double full_cross_entropy;
    double *sequence_ids_hash, *sequence_tokens, *sequence_full_cross_entropy; /* [S] */
    fl_moments *sequence_attention, *sequence_residual;                        /* [S][L] */
} fl_text_totals;

fl_status fl_text_totals_create(const fl_text_evaluation_options *options, const fl_text_result *sizes,
                                fl_text_totals *out, fl_error *error);
void fl_text_totals_release(fl_text_totals *totals);

/* Allocates what the options ask for; sizes (layers, heads, positions, ...) are already set in *result. */
fl_status fl_text_result_create(const fl_text_evaluation_options *options, fl_text_result *result, fl_error *error);

/* `model_dim` = E. Turns sums into means and ratios and copies what belongs to the frozen model. */
void fl_text_result_finish(fl_text_result *result, const fl_text_totals *totals, size_t model_dim);

#endif
