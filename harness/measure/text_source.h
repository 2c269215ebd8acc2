/* Text source: the sequences a text is measured or trained on, from token ids or from text.
 *
 * ids: a JSON file holding a list of lists of token ids; each list is one sequence, or, with a sequence length, is cut into
 * rows of that length.
 *
 * Text: a file, or a folder whose .txt and .jsonl files are read in the order of their names. A line holding only
 * <|endofdoc|> separates documents, as do files; in a .jsonl file every line is an object whose "text" is one document. Each
 * document is tokenised by itself, without special tokens of the tokenizer's own (text.bos puts its BOS before every row); between two documents stands the token
 * <|endoftext|> when the vocabulary has it, else the tokenizer's EOS, else nothing. The stream is cut into rows.
 *
 * A last row shorter than the sequence length is kept when it has at least 2 tokens. */
#ifndef FL_MEASURE_TEXT_SOURCE_H
#define FL_MEASURE_TEXT_SOURCE_H

#include <stddef.h>

#include "harness/base/hash.h"
#include "harness/base/status.h"
#include "harness/config/experiment.h"
#include "harness/measure/text_evaluation.h"
#include "harness/model/tokenizer.h"

typedef struct fl_text_source {
    fl_sequences sequences;
    size_t tokens;      /* in all sequences */
    int32_t bos;        /* what every row of a text begins with; -1: no such token. Of ids -1 */
    size_t documents;   /* of a text, as far as it was read; of ids 0 */
    fl_hash content;    /* of the bytes of the file, or of all files in order */
    fl_hash rows;       /* of the sequences themselves: lengths and ids */
} fl_text_source;

/* vocabulary: ids must be below it; errors name file, list and place in the list. sequence_length 0: lists as they are;
 * sequences: at most so many rows, 0 = all. */
fl_status fl_text_source_from_ids(const char *path, size_t vocabulary, size_t sequence_length, size_t sequences,
                                  fl_text_source *out, fl_error *error);

/* sequence_length 0: the whole text is one sequence. Tokenising stops when `sequences` rows are full. A text of fewer than 2
 * tokens is an error. */
fl_status fl_text_source_from_text(const char *path, const fl_tokenizer *tokenizer, size_t vocabulary,
                                   size_t sequence_length, size_t sequences, fl_text_source *out, fl_error *error);

/* The same with rows that each begin with the token `bos` (sequence_length counts it); -1: none. */
fl_status fl_text_source_from_text_after(const char *path, const fl_tokenizer *tokenizer, size_t vocabulary,
                                         size_t sequence_length, size_t sequences, int32_t bos, fl_text_source *out,
                                         fl_error *error);

/* What a config's `text:` asks for by path or ids (self-generated text is sampled by the caller). The model's tokenizer is opened only when there is a text file. model_path: as given to
 * fl_model_open. */
fl_status fl_text_source_load(const fl_text_config *config, const char *model_path, size_t vocabulary,
                              fl_text_source *out, fl_error *error);

/* Drops rows at the end that are shorter than sequence_length, but never the first: what a training does with a text, whose
 * last row would weigh as much as a whole one. */
fl_status fl_text_source_keep_whole_rows(fl_text_source *source, size_t sequence_length, fl_error *error);

void fl_text_source_release(fl_text_source *source);

/* The path whose tokenizer belongs to a model path: the folder of a .safetensors file, else the path itself. *out is an
 * fl_memory block. */
fl_status fl_text_source_tokenizer_path(const char *model_path, char **out, fl_error *error);

#endif
