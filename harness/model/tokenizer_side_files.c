#include "harness/model/tokenizer_side_files.h"

#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/base/text_file.h"
#include "harness/model/json_text.h"
#include "harness/model/tokenizer_members.h"

/* The order in which Transformers goes through them. */
static const char *const named_keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};
enum { NAMED_KEYS = sizeof named_keys / sizeof named_keys[0] };

typedef struct side_token {
    size_t stated_id; /* where the file lists tokens by id */
    size_t place;     /* in the file */
    const char *content;
    fl_added_token token;
} side_token;

typedef struct side_files {
    cJSON *config, *map, *added; /* NULL: no such file */
    bool has_decoder;            /* the configuration lists added tokens by id */
    fl_tokenizer *tokenizer;
    fl_vocabulary contents; /* index in the list of added tokens by what they are written as */
    fl_vocabulary special;  /* what the named special tokens are written as */
    fl_vocabulary extra;    /* the same of the further ones */
    int32_t largest_id;     /* of added tokens; -1: none */
    int32_t listed;         /* added tokens that are no named ones: the first so many of the list */
} side_files;

typedef fl_status (*token_visitor)(side_files *side, const cJSON *item, const char *key, fl_error *error);

static fl_status read_optional(const char *folder, const char *name, cJSON **out, fl_error *error) {
    char *path;
    *out = NULL;
    FL_TRY(fl_path_join(folder, name, &path, error));
    fl_status status = FL_OK;
    if (fl_path_is_file(path)) status = fl_json_read_file(path, out, error);
    if (status == FL_OK && *out != NULL && !cJSON_IsObject(*out)) {
        status = fl_error_set(error, FL_ERROR_FORMAT, "%s: not a JSON object", path);
        cJSON_Delete(*out);
        *out = NULL;
    }
    fl_memory_free(path);
    return status;
}

static int32_t added_index(const side_files *side, const char *content) {
    return fl_vocabulary_find(&side->contents, content, strlen(content));
}

static fl_status note_added(side_files *side, size_t index, fl_error *error) {
    size_t bytes = 0;
    const int32_t id = side->tokenizer->added.tokens[index].id;
    const char *text = fl_vocabulary_text(&side->tokenizer->vocabulary, id, &bytes);
    if (id > side->largest_id) side->largest_id = id;
    return fl_vocabulary_add(&side->contents, (int64_t)index, text, bytes, true, error);
}

/* The id that `tokenizers` gives a token that it does not know: behind the vocabulary and behind all added
 * tokens. */
static int32_t next_id(const side_files *side) {
    const int32_t behind = (int32_t)side->tokenizer->vocabulary.indexed_count;
    return side->largest_id >= behind ? side->largest_id + 1 : behind;
}

static fl_status add_token(side_files *side, const char *content, fl_added_token token, fl_error *error) {
    fl_tokenizer *tokenizer = side->tokenizer;
    if (content[0] == '\0') return FL_OK;
    const int32_t index = added_index(side, content);
    if (index >= 0) {
        token.id = tokenizer->added.tokens[index].id;
        return fl_added_put(&tokenizer->added, token, error);
    }
    token.id = fl_vocabulary_find(&tokenizer->vocabulary, content, strlen(content));
    if (token.id < 0) {
        token.id = next_id(side);
        FL_TRY(fl_vocabulary_add(&tokenizer->vocabulary, token.id, content, strlen(content), false, error));
    }
    FL_TRY(fl_added_append(&tokenizer->added, token, error));
    return note_added(side, tokenizer->added.count - 1, error);
}

/* What a key names: special_tokens_map.json's word goes before the configuration's when no tokens are listed
 * by id. */
static const cJSON *named(const side_files *side, const char *key) {
    const cJSON *mapped = side->has_decoder ? NULL : fl_json_member(side->map, key);
    return mapped != NULL ? mapped : fl_json_member(side->config, key);
}

/* Where an object does not say whether its token is looked for in normalised text, being special decides. */
static void make_special(const cJSON *object, fl_added_token *token) {
    token->special = true;
    if (fl_member_is_absent(fl_json_member(object, "normalized"))) token->normalized = false;
}

/* A token as a text, or as an object with content and flags. */
static fl_status read_named(const cJSON *item, const char *key, const char **content, fl_added_token *out,
                            fl_error *error) {
    *out = (fl_added_token){.special = true};
    if (cJSON_IsObject(item)) {
        /* Saved with its type, an object is an AddedToken as it stands; without, it is one made special. */
        const bool as_it_stands = fl_json_member(item, "__type") != NULL;
        FL_TRY(fl_member_added_token(item, key, !as_it_stands, content, out, error));
        make_special(item, out);
        return FL_OK;
    }
    if (!cJSON_IsString(item)) return fl_member_wrong_type("special tokens", key, "a token", error);
    *content = item->valuestring;
    return FL_OK;
}

static bool is_in(const fl_vocabulary *texts, const char *text) {
    return fl_vocabulary_find(texts, text, strlen(text)) >= 0;
}

static fl_status note_text(fl_vocabulary *texts, const cJSON *item, const char *key, fl_error *error) {
    const char *content;
    fl_added_token token;
    if (fl_member_is_absent(item)) return FL_OK;
    FL_TRY(read_named(item, key, &content, &token, error));
    if (is_in(texts, content)) return FL_OK;
    return fl_vocabulary_add(texts, (int64_t)texts->count, content, strlen(content), true, error);
}

static fl_status note_special(side_files *side, const cJSON *item, const char *key, fl_error *error) {
    return note_text(&side->special, item, key, error);
}

static fl_status note_extra(side_files *side, const cJSON *item, const char *key, fl_error *error) {
    return note_text(&side->extra, item, key, error);
}

/* The list of further special tokens, under its new or its old name. A new one that is an object names
 * model-specific tokens, and leaves the old one to be the list. */
static const cJSON *extra_tokens(const side_files *side) {
    const cJSON *list = fl_json_member(side->config, "extra_special_tokens");
    if (cJSON_IsArray(list) && list->child != NULL) return list;
    list = fl_json_member(side->config, "additional_special_tokens");
    if (list == NULL && !side->has_decoder) list = fl_json_member(side->map, "additional_special_tokens");
    return list;
}

static fl_status visit_extra(side_files *side, token_visitor visit, fl_error *error) {
    const cJSON *item, *list = extra_tokens(side);
    if (!cJSON_IsArray(list)) return FL_OK;
    cJSON_ArrayForEach(item, list) FL_TRY(visit(side, item, "extra_special_tokens", error));
    return FL_OK;
}

static bool is_token_key(const char *key) {
    static const char ending[] = "_token";
    const size_t bytes = strlen(key), tail = sizeof ending - 1;
    for (size_t i = 0; i < NAMED_KEYS; i++)
        if (strcmp(key, named_keys[i]) == 0) return false;
    return bytes > tail && strcmp(key + bytes - tail, ending) == 0;
}

/* "image_token" and the like: only texts and objects are tokens there (add_bos_token is a flag). */
static fl_status visit_members(side_files *side, const cJSON *object, bool all, token_visitor visit,
                               fl_error *error) {
    const cJSON *item;
    cJSON_ArrayForEach(item, object) {
        const bool token = cJSON_IsString(item) || fl_json_member(item, "content") != NULL;
        if (token && (all || is_token_key(item->string))) FL_TRY(visit(side, item, item->string, error));
    }
    return FL_OK;
}

static fl_status visit_named(side_files *side, token_visitor visit, fl_error *error) {
    for (size_t i = 0; i < NAMED_KEYS; i++)
        FL_TRY(visit(side, named(side, named_keys[i]), named_keys[i], error));
    FL_TRY(visit_members(side, side->config, false, visit, error));
    if (!side->has_decoder) FL_TRY(visit_members(side, side->map, false, visit, error));
    const cJSON *extra = fl_json_member(side->config, "extra_special_tokens");
    return cJSON_IsObject(extra) ? visit_members(side, extra, true, visit, error) : FL_OK;
}

/* A named token that is no added token yet becomes one; of several keys that name it the last decides its
 * flags. */
static fl_status add_named(side_files *side, const cJSON *item, const char *key, fl_error *error) {
    const char *content;
    fl_added_token token;
    if (fl_member_is_absent(item)) return FL_OK;
    FL_TRY(read_named(item, key, &content, &token, error));
    const int32_t index = added_index(side, content);
    return index >= 0 && index < side->listed ? FL_OK : add_token(side, content, token, error);
}

static int compare_stated(const void *left, const void *right) {
    const side_token *a = left, *b = right;
    if (a->stated_id != b->stated_id) return a->stated_id < b->stated_id ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

/* "259": an id as a key. */
static fl_status read_key_id(const char *key, size_t *out, fl_error *error) {
    const size_t digits = strspn(key, "0123456789");
    if (digits == 0 || digits > 9 || key[digits] != '\0')
        return fl_error_set(error, FL_ERROR_FORMAT, "added_tokens_decoder: \"%.100s\" is not a token id",
                            key);
    *out = (size_t)strtoul(key, NULL, 10);
    return FL_OK;
}

static fl_status read_decoder_entry(const side_files *side, const cJSON *item, side_token *out,
                                    fl_error *error) {
    FL_TRY(read_key_id(item->string, &out->stated_id, error));
    FL_TRY(fl_member_added_token(item, "added_tokens_decoder", false, &out->content, &out->token, error));
    /* What is named as special is so whatever the list says. */
    if (is_in(&side->special, out->content)) make_special(item, &out->token);
    return FL_OK;
}

/* {"<tool>": 259}: special when named as such, or among the further special tokens. */
static fl_status read_added_entry(const side_files *side, const cJSON *item, side_token *out,
                                  fl_error *error) {
    if (!fl_json_size(item, &out->stated_id))
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "added_tokens.json: the id of \"%.100s\" is not an integer", item->string);
    out->content = item->string;
    out->token.special = is_in(&side->special, item->string) || is_in(&side->extra, item->string);
    out->token.normalized = !out->token.special;
    return FL_OK;
}

/* added_tokens.json does not speak about ids that tokenizer.json's list of added tokens has. */
static bool is_overruled(const side_files *side, const side_token *entry) {
    return !side->has_decoder && entry->stated_id < FL_TOKEN_ID_LIMIT &&
           fl_added_find(&side->tokenizer->added, (int32_t)entry->stated_id) != NULL;
}

/* Without a list by id the tokens of tokenizer.json are the list. */
static void mark_named(side_files *side) {
    fl_added_list *added = &side->tokenizer->added;
    for (size_t i = 0; i < added->count; i++) {
        size_t bytes = 0;
        const char *text = fl_vocabulary_text(&side->tokenizer->vocabulary, added->tokens[i].id, &bytes);
        if (fl_vocabulary_find(&side->special, text, bytes) >= 0) added->tokens[i].special = true;
    }
}

static fl_status add_list(side_files *side, const cJSON *list, fl_error *error) {
    side_token *entries;
    size_t count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list) count++;
    FL_TRY(FL_ALLOCATE(&entries, count, error));
    fl_status status = FL_OK;
    count = 0;
    cJSON_ArrayForEach(item, list) {
        side_token *entry = &entries[count];
        FL_TRY_DONE(status, side->has_decoder ? read_decoder_entry(side, item, entry, error)
                                              : read_added_entry(side, item, entry, error));
        entry->place = count;
        if (!is_overruled(side, entry)) count++;
    }
    qsort(entries, count, sizeof *entries, compare_stated);
    for (size_t i = 0; i < count; i++) /* of two with one id the last counts */
        if (i + 1 == count || entries[i].stated_id != entries[i + 1].stated_id)
            FL_TRY_DONE(status, add_token(side, entries[i].content, entries[i].token, error));
done:
    fl_memory_free(entries);
    return status;
}

static fl_status add_tokens(side_files *side, fl_error *error) {
    for (size_t i = 0; i < side->tokenizer->added.count; i++) FL_TRY(note_added(side, i, error));
    FL_TRY(visit_named(side, note_special, error));
    FL_TRY(visit_extra(side, note_extra, error));
    const cJSON *decoder = fl_json_member(side->config, "added_tokens_decoder");
    if (side->has_decoder && !cJSON_IsObject(decoder))
        return fl_member_wrong_type("tokenizer_config.json", "added_tokens_decoder", "an object", error);
    if (!side->has_decoder) mark_named(side);
    FL_TRY(add_list(side, side->has_decoder ? decoder : side->added, error));
    side->listed = (int32_t)side->tokenizer->added.count;
    FL_TRY(visit_named(side, add_named, error));
    const cJSON *item, *extra = extra_tokens(side);
    if (cJSON_IsArray(extra))
        cJSON_ArrayForEach(item, extra) FL_TRY(add_named(side, item, "extra_special_tokens", error));
    return FL_OK;
}

static fl_status find_named(const side_files *side, const char *key, int32_t *id, bool *stated,
                            fl_error *error) {
    const cJSON *item = named(side, key);
    const char *content;
    fl_added_token token;
    *stated = item != NULL;
    if (fl_member_is_absent(item)) return FL_OK;
    FL_TRY(read_named(item, key, &content, &token, error));
    const int32_t index = added_index(side, content);
    if (index >= 0) *id = side->tokenizer->added.tokens[index].id;
    return FL_OK;
}

static fl_status apply(side_files *side, bool stated[2], fl_error *error) {
    fl_tokenizer *tokenizer = side->tokenizer;
    FL_TRY(fl_member_flag(side->config, "tokenizer_config.json", "split_special_tokens", false,
                          &tokenizer->added.split_special, error));
    FL_TRY(add_tokens(side, error));
    FL_TRY(find_named(side, "bos_token", &tokenizer->bos, &stated[0], error));
    return find_named(side, "eos_token", &tokenizer->eos, &stated[1], error);
}

fl_status fl_tokenizer_read_side_files(const char *folder, fl_tokenizer *tokenizer, bool stated[2],
                                       fl_error *error) {
    side_files side = {.tokenizer = tokenizer, .largest_id = -1};
    fl_status status;
    FL_TRY_DONE(status, read_optional(folder, "tokenizer_config.json", &side.config, error));
    side.has_decoder = fl_json_member(side.config, "added_tokens_decoder") != NULL;
    if (!side.has_decoder) {
        FL_TRY_DONE(status, read_optional(folder, "special_tokens_map.json", &side.map, error));
        FL_TRY_DONE(status, read_optional(folder, "added_tokens.json", &side.added, error));
    }
    status = apply(&side, stated, error);
    if (status != FL_OK) fl_error_prepend(error, status, "%s: the files beside tokenizer.json", folder);
done:
    cJSON_Delete(side.config);
    cJSON_Delete(side.map);
    cJSON_Delete(side.added);
    fl_vocabulary_release(&side.contents);
    fl_vocabulary_release(&side.special);
    fl_vocabulary_release(&side.extra);
    return status;
}
