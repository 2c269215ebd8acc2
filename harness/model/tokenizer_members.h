/* Members of a tokenizer's JSON files, with errors that name the part and the key. Internal to tokenizer*.c. */
#ifndef FL_MODEL_TOKENIZER_MEMBERS_H
#define FL_MODEL_TOKENIZER_MEMBERS_H

#include <stdbool.h>
#include <cjson/cJSON.h>

#include "harness/base/status.h"
#include "harness/model/tokenizer_parts.h"

/* FL_ERROR_FORMAT: `"where: "key" is missing or not wanted"`. */
fl_status fl_member_wrong_type(const char *where, const char *key, const char *wanted, fl_error *error);
/* Not there, or null. */
bool fl_member_is_absent(const cJSON *item);
/* A flag that may be absent or null. */
fl_status fl_member_flag(const cJSON *object, const char *where, const char *key, bool fallback, bool *out,
                         fl_error *error);
/* A string; the text belongs to the JSON document. */
fl_status fl_member_text(const cJSON *object, const char *where, const char *key, const char **out, fl_error *error);

/* "content" and the flags of an added token, with the defaults that `tokenizers` gives its AddedToken; the id is left alone.
 * special: what "special" is when the object does not say. */
fl_status fl_member_added_token(const cJSON *object, const char *where, bool special, const char **content,
                                fl_added_token *out, fl_error *error);

#endif
