/* What lies beside a tokenizer.json, read as Transformers' AutoTokenizer reads it (release 5.24, the class that follows
 * tokenizer.json): tokenizer_config.json, special_tokens_map.json, added_tokens.json. Internal to tokenizer*.c.
 *
 * tokenizer_config.json's added_tokens_decoder adds tokens and changes the flags of known ones; where there is no such list,
 * special_tokens_map.json goes before tokenizer_config.json in what it names, and added_tokens.json adds tokens. Named
 * special tokens (bos_token, ..., additional_special_tokens, any other "..._token") that are no added tokens become some. A
 * new token gets the vocabulary's id, else the next free one behind the vocabulary, whatever id the file states.
 * split_special_tokens makes special tokens in a text ordinary text. add_bos_token, add_eos_token and the class's name change
 * nothing (as there, for a folder with a tokenizer.json and the class PreTrainedTokenizerFast). */
#ifndef FL_MODEL_TOKENIZER_SIDE_FILES_H
#define FL_MODEL_TOKENIZER_SIDE_FILES_H

#include <stdbool.h>

#include "harness/base/status.h"
#include "harness/model/tokenizer_parts.h"

/* Reads what there is; no such file is no error. stated[0], stated[1]: the files say which token is BOS, EOS, or that there is
 * none. */
fl_status fl_tokenizer_read_side_files(const char *folder, fl_tokenizer *tokenizer, bool stated[2], fl_error *error);

#endif
