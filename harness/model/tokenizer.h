/* Tokenizer: text <-> ids exactly as Hugging Face `tokenizers` does it, from tokenizer.json or from GGUF
 * keys.
 *
 * Byte-level BPE (SmolLM2, GPT-2, Llama-3, Qwen2/3, Tekken, MPT and Falcon patterns, or any pattern of a
 * tokenizer.json that tokenizer_pattern.h understands) and SentencePiece-style BPE (Llama-2, Mistral, Gemma,
 * Phi-3); a pattern, normaliser, pre-tokenizer, decoder or model that is not understood is
 * FL_ERROR_UNSUPPORTED and named, never guessed. tokenizer.json is followed as written, the files beside it as
 * AutoTokenizer reads them (tokenizer_side_files.h): class names and add_bos_token change nothing (Transformers
 * 5 drops SmolLM2's digit step for the class GPT2Tokenizer). A GGUF file is read with the semantics of its family's tokenizer.json, not of
 * llama.cpp (normal forms; bytes without a token vanish before merging). Immutable after opening; encode and
 * decode are thread-safe. */
#ifndef FL_MODEL_TOKENIZER_H
#define FL_MODEL_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/base/hash.h"
#include "harness/base/status.h"

typedef struct fl_tokenizer fl_tokenizer;

/* path: a GGUF file, a tokenizer.json, a folder that holds tokenizer.json, or a safetensors file beside one;
 * what the file holds decides, not its name. FL_ERROR_FORMAT: the file breaks its rules. */
fl_status fl_tokenizer_open(const char *path, fl_tokenizer **out, fl_error *error);
void fl_tokenizer_close(fl_tokenizer *tokenizer);

/* *ids = fl_memory block of *count ids. text is any bytes (invalid UTF-8 is read as U+FFFD, as Hugging Face
 * would see it). add_special: let the tokenizer add its own BOS/EOS when it is one that does. Added tokens
 * written in the text are recognised, unless split_special_tokens makes the special ones ordinary text. */
fl_status fl_tokenizer_encode(const fl_tokenizer *tokenizer, const char *text, size_t bytes, bool add_special,
                              int32_t **ids, size_t *count, fl_error *error);

/* *text = fl_memory block, NUL-terminated; *bytes excludes the NUL. Bad UTF-8 sequences become U+FFFD. Ids
 * without a token (a model may have more rows than its tokenizer has tokens) decode to nothing; negative ones
 * are FL_ERROR_ARGUMENT. skip_special leaves out special tokens. */
fl_status fl_tokenizer_decode(const fl_tokenizer *tokenizer, const int32_t *ids, size_t count,
                              bool skip_special, char **text, size_t *bytes, fl_error *error);

size_t fl_tokenizer_vocabulary(const fl_tokenizer *tokenizer); /* 1 + largest id */
int32_t fl_tokenizer_bos(const fl_tokenizer *tokenizer);       /* -1: none */
int32_t fl_tokenizer_eos(const fl_tokenizer *tokenizer);       /* -1: none */
/* The added token that is written so; -1: none. */
int32_t fl_tokenizer_added(const fl_tokenizer *tokenizer, const char *text);
bool fl_tokenizer_adds_bos(const fl_tokenizer *tokenizer);
/* The token's stored bytes (byte-level form undone), for reports; not NUL-terminated. NULL for a gap in the
 * vocabulary. */
const char *fl_tokenizer_token(const fl_tokenizer *tokenizer, int32_t id, size_t *bytes);
/* Of everything that decides which ids a text gets. */
fl_hash fl_tokenizer_hash(const fl_tokenizer *tokenizer);

#endif
