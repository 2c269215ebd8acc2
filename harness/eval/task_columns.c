#include "harness/eval/task_columns.h"

#include <string.h>

#define INTEGERS(member, per_choice, description)                                                            \
    { #member, offsetof(fl_task_result, member), true, per_choice, "1", description }
#define NUMBERS(member, per_choice, units, description)                                                      \
    { #member, offsetof(fl_task_result, member), false, per_choice, units, description }

static const fl_task_column columns[] = {
    INTEGERS(document, false, "index of the item's document in its subject's file"),
    INTEGERS(gold, false, "right choice; -100: none"),
    INTEGERS(prediction, false, "choice with the largest log-likelihood"),
    INTEGERS(prediction_norm, false, "choice with the largest log-likelihood per character"),
    INTEGERS(greedy, false, "1: the right continuation was the greedy one"),
    NUMBERS(correct, false, "1", "what acc is the mean of"),
    NUMBERS(correct_norm, false, "1", "what acc_norm is the mean of"),
    NUMBERS(correct_bytes, false, "1", "what acc_bytes is the mean of"),
    INTEGERS(stale, false, "1: the prediction is an older value of the asked key"),
    NUMBERS(linear_share, false, "1", "share of scored tokens whose context had reached the linear state"),
    NUMBERS(log_likelihood, true, "nat", "natural log; NaN where an item has fewer choices"),
    NUMBERS(square_sum, false, "1", "sum of the squared log-likelihoods of the scored tokens"),
    INTEGERS(choice_greedy, true, "1: the choice was the greedy continuation"),
    INTEGERS(choice_tokens, true, "scored tokens of a choice; 0 where there is none"),
    INTEGERS(choice_characters, true, "characters of a choice; 0 where there is none"),
    INTEGERS(context_tokens, false, "tokens of the longest context"),
    INTEGERS(truncated, false, "tokens cut off on the left"),
    INTEGERS(shots, false, "few-shot examples left in the prompt"),
    INTEGERS(words, false, "words of the original page"),
    INTEGERS(bytes, false, "bytes of the original page"),
    INTEGERS(length, false, "tokens asked for when the item was made"),
    NUMBERS(depth, false, "1", "where in the context the answer lies, 0 to 1"),
};

const fl_task_column *fl_task_columns(size_t *count) {
    *count = sizeof columns / sizeof columns[0];
    return columns;
}

const fl_task_column *fl_task_column_find(const char *name) {
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        if (strcmp(columns[i].name, name) == 0) return &columns[i];
    }
    return NULL;
}

void *fl_task_column_data(const fl_task_column *column, const fl_task_result *result) {
    return *(void *const *)((const char *)result + column->offset);
}

void fl_task_column_set(const fl_task_column *column, fl_task_result *result, void *data) {
    *(void **)((char *)result + column->offset) = data;
}
