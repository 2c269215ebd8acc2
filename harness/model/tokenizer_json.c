/* tokenizer.json of Hugging Face `tokenizers`. truncation and padding are ignored; the files beside it are
 * tokenizer_side_files.c's. Two things differ from version 0.23 on files that contradict themselves: an added
 * token keeps the id it is given (there it is numbered anew behind the vocabulary), and decodes as it is
 * written (there as it is normalised). */
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/model/json_text.h"
#include "harness/model/tokenizer_members.h"
#include "harness/model/tokenizer_parts.h"
#include "harness/model/tokenizer_side_files.h"

/* A string that may be absent or null; *out = NULL then. */
static fl_status read_optional_text(const cJSON *object, const char *where, const char *key, const char **out,
                                    fl_error *error) {
    *out = NULL;
    return fl_member_is_absent(fl_json_member(object, key)) ? FL_OK
                                                            : fl_member_text(object, where, key, out, error);
}

static fl_status read_id(const cJSON *item, const char *where, const char *what, int32_t *out,
                         fl_error *error) {
    size_t value;
    *out = 0;
    if (!fl_json_size(item, &value) || value >= FL_TOKEN_ID_LIMIT)
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: the id of \"%s\" is not an integer in 0 ... %d",
                            where, what, FL_TOKEN_ID_LIMIT - 1);
    *out = (int32_t)value;
    return FL_OK;
}

static fl_status unknown_kind(const char *where, const char *kind, fl_error *error) {
    return fl_error_set(error, FL_ERROR_UNSUPPORTED, "%s of type \"%s\" is not supported", where, kind);
}

/* Components that hold others keep them in a list; a component on its own is a list of one. Depth is bounded
 * by the JSON reader. */
typedef fl_status (*component_reader)(const cJSON *component, const char *kind, fl_tokenizer *tokenizer,
                                      fl_error *error);

static fl_status read_components(const cJSON *component, const char *where, const char *members,
                                 component_reader reader, fl_tokenizer *tokenizer, fl_error *error) {
    const char *kind;
    if (fl_member_is_absent(component)) return FL_OK;
    FL_TRY(fl_member_text(component, where, "type", &kind, error));
    if (strcmp(kind, "Sequence") != 0) return reader(component, kind, tokenizer, error);
    const cJSON *list = fl_json_member(component, members);
    if (!cJSON_IsArray(list)) return fl_member_wrong_type(where, members, "a list", error);
    const cJSON *member;
    cJSON_ArrayForEach(member, list) {
        if (fl_member_is_absent(member))
            return fl_member_wrong_type(where, members, "a list of objects", error);
        FL_TRY(read_components(member, where, members, reader, tokenizer, error));
    }
    return FL_OK;
}

/* "pattern": {"String": ...} or {"Regex": ...}. */
static fl_status read_pattern(const cJSON *component, const char *where, bool *regex, const char **out,
                              fl_error *error) {
    const cJSON *pattern = fl_json_member(component, "pattern");
    const cJSON *text = fl_json_member(pattern, "String");
    *regex = text == NULL;
    if (*regex) text = fl_json_member(pattern, "Regex");
    if (!cJSON_IsString(text)) return fl_member_wrong_type(where, "pattern", "a String or a Regex", error);
    *out = text->valuestring;
    if (**out == '\0') return fl_error_set(error, FL_ERROR_UNSUPPORTED, "%s: an empty pattern", where);
    return FL_OK;
}

static fl_status read_normaliser(const cJSON *component, const char *kind, fl_tokenizer *tokenizer,
                                 fl_error *error) {
    static const char where[] = "normalizer";
    static const struct {
        const char *kind;
        fl_text_form form;
    } forms[] = {{"NFC", FL_TEXT_NFC}, {"NFD", FL_TEXT_NFD}, {"NFKC", FL_TEXT_NFKC}, {"NFKD", FL_TEXT_NFKD}};
    fl_normaliser rule = {.kind = FL_NORMALISE_FORM};
    const char *from = NULL, *to = NULL;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (strcmp(kind, forms[i].kind) != 0) continue;
        rule.form = forms[i].form;
        return fl_tokenizer_add_normaliser(tokenizer, rule, error);
    }
    if (strcmp(kind, "Lowercase") == 0) {
        rule.kind = FL_NORMALISE_LOWER_CASE;
    } else if (strcmp(kind, "Strip") == 0) {
        rule.kind = FL_NORMALISE_STRIP;
        FL_TRY(fl_member_flag(component, where, "strip_left", false, &rule.left, error));
        FL_TRY(fl_member_flag(component, where, "strip_right", false, &rule.right, error));
    } else if (strcmp(kind, "Prepend") == 0) {
        rule.kind = FL_NORMALISE_PREPEND;
        FL_TRY(fl_member_text(component, where, "prepend", &to, error));
    } else if (strcmp(kind, "Replace") == 0) {
        bool regex;
        rule.kind = FL_NORMALISE_REPLACE;
        FL_TRY(read_pattern(component, where, &regex, &from, error));
        if (regex) return unknown_kind(where, "Replace by a regular expression", error);
        FL_TRY(fl_member_text(component, where, "content", &to, error));
    } else {
        return unknown_kind(where, kind, error);
    }
    /* The copy is made before the JSON goes; the texts are only read. */
    rule.from = (char *)(uintptr_t)from;
    rule.to = (char *)(uintptr_t)to;
    return fl_tokenizer_add_normaliser(tokenizer, rule, error);
}

static fl_status read_behaviour(const cJSON *component, const char *where, fl_split_behaviour *out,
                                fl_error *error) {
    static const char *const names[] = {[FL_SPLIT_ISOLATED] = "Isolated",
                                        [FL_SPLIT_REMOVED] = "Removed",
                                        [FL_SPLIT_CONTIGUOUS] = "Contiguous",
                                        [FL_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
                                        [FL_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext"};
    const char *name;
    FL_TRY(fl_member_text(component, where, "behavior", &name, error));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        *out = (fl_split_behaviour)i;
        if (strcmp(name, names[i]) == 0) return FL_OK;
    }
    return fl_error_set(error, FL_ERROR_UNSUPPORTED, "%s: the behavior \"%s\" is not known", where, name);
}

static fl_status read_split(const cJSON *component, fl_tokenizer *tokenizer, fl_error *error) {
    static const char where[] = "pre_tokenizer Split";
    const char *pattern;
    bool regex, invert;
    fl_split_behaviour behaviour;
    FL_TRY(read_pattern(component, where, &regex, &pattern, error));
    FL_TRY(read_behaviour(component, where, &behaviour, error));
    FL_TRY(fl_member_flag(component, where, "invert", false, &invert, error));
    return fl_tokenizer_add_split(tokenizer, regex ? FL_SPLIT_BY_PATTERN : FL_SPLIT_BY_TEXT, pattern,
                                  behaviour, invert, error);
}

/* "replacement": one character; "prepend_scheme", or the older "add_prefix_space". */
static fl_status read_metaspace(const cJSON *component, const char *where, const char **mark,
                                fl_metaspace_prefix *prefix, fl_error *error) {
    static const char *const names[] = {
        [FL_PREFIX_NEVER] = "never", [FL_PREFIX_FIRST] = "first", [FL_PREFIX_ALWAYS] = "always"};
    const char *scheme;
    bool flag;
    FL_TRY(fl_member_text(component, where, "replacement", mark, error));
    if (**mark == '\0') return fl_member_wrong_type(where, "replacement", "a character", error);
    FL_TRY(fl_member_flag(component, where, "add_prefix_space", true, &flag, error));
    *prefix = flag ? FL_PREFIX_ALWAYS : FL_PREFIX_NEVER;
    FL_TRY(read_optional_text(component, where, "prepend_scheme", &scheme, error));
    if (scheme == NULL) return FL_OK;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        *prefix = (fl_metaspace_prefix)i;
        if (strcmp(scheme, names[i]) == 0) return FL_OK;
    }
    return fl_error_set(error, FL_ERROR_UNSUPPORTED, "%s: the prepend_scheme \"%s\" is not known", where,
                        scheme);
}

static fl_status read_metaspace_steps(const cJSON *component, fl_tokenizer *tokenizer, fl_error *error) {
    static const char where[] = "pre_tokenizer Metaspace";
    const char *mark;
    fl_metaspace_prefix prefix = FL_PREFIX_NEVER;
    bool splits;
    FL_TRY(read_metaspace(component, where, &mark, &prefix, error));
    FL_TRY(fl_member_flag(component, where, "split", true, &splits, error));
    if (prefix == FL_PREFIX_FIRST && tokenizer->step_count > 0)
        return fl_error_set(error, FL_ERROR_UNSUPPORTED, "%s with prepend_scheme \"first\" behind another",
                            where);
    FL_TRY(fl_tokenizer_add_metaspace(tokenizer, mark, prefix, error));
    if (!splits) return FL_OK;
    return fl_tokenizer_add_split(tokenizer, FL_SPLIT_BY_TEXT, mark, FL_SPLIT_MERGED_WITH_NEXT, false, error);
}

static fl_status read_pre_tokenizer(const cJSON *component, const char *kind, fl_tokenizer *tokenizer,
                                    fl_error *error) {
    static const char where[] = "pre_tokenizer";
    fl_split_behaviour behaviour;
    bool flag, pattern;
    if (strcmp(kind, "ByteLevel") == 0) {
        FL_TRY(fl_member_flag(component, where, "add_prefix_space", true, &flag, error));
        FL_TRY(fl_member_flag(component, where, "use_regex", true, &pattern, error));
        return fl_tokenizer_add_byte_level(tokenizer, flag, pattern, error);
    }
    if (strcmp(kind, "Split") == 0) return read_split(component, tokenizer, error);
    if (strcmp(kind, "Metaspace") == 0) return read_metaspace_steps(component, tokenizer, error);
    if (strcmp(kind, "Digits") == 0) {
        FL_TRY(fl_member_flag(component, where, "individual_digits", false, &flag, error));
        behaviour = flag ? FL_SPLIT_ISOLATED : FL_SPLIT_CONTIGUOUS;
        return fl_tokenizer_add_split(tokenizer, FL_SPLIT_BY_NUMBER, NULL, behaviour, false, error);
    }
    if (strcmp(kind, "Punctuation") == 0) {
        behaviour = FL_SPLIT_ISOLATED;
        if (!fl_member_is_absent(fl_json_member(component, "behavior")))
            FL_TRY(read_behaviour(component, where, &behaviour, error));
        return fl_tokenizer_add_split(tokenizer, FL_SPLIT_BY_PUNCTUATION, NULL, behaviour, false, error);
    }
    return unknown_kind(where, kind, error);
}

typedef struct template_sides {
    int32_t ids[2][FL_TOKEN_TEMPLATE_MAX]; /* before and after the text */
    size_t counts[2];
    size_t side; /* 1 once the text has been placed */
} template_sides;

static fl_status add_template_ids(const cJSON *special, const char *name, template_sides *sides,
                                  fl_error *error) {
    static const char where[] = "post_processor TemplateProcessing";
    const cJSON *id, *ids = fl_json_member(fl_json_member(special, name), "ids");
    if (!cJSON_IsArray(ids))
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: special token \"%s\" has no list of ids", where,
                            name);
    cJSON_ArrayForEach(id, ids) {
        size_t *count = &sides->counts[sides->side];
        if (*count == FL_TOKEN_TEMPLATE_MAX)
            return fl_error_set(error, FL_ERROR_UNSUPPORTED, "%s: more than %d special tokens on a side",
                                where, FL_TOKEN_TEMPLATE_MAX);
        FL_TRY(read_id(id, where, name, &sides->ids[sides->side][*count], error));
        ++*count;
    }
    return FL_OK;
}

static fl_status read_template(const cJSON *component, fl_tokenizer *tokenizer, fl_error *error) {
    static const char where[] = "post_processor TemplateProcessing";
    const cJSON *piece, *single = fl_json_member(component, "single");
    template_sides sides = {0};
    if (!cJSON_IsArray(single)) return fl_member_wrong_type(where, "single", "a list", error);
    cJSON_ArrayForEach(piece, single) {
        const cJSON *token = fl_json_member(piece, "SpecialToken"), *text = fl_json_member(piece, "Sequence");
        const char *name;
        FL_TRY(fl_member_text(token != NULL ? token : text, where, "id", &name, error));
        if (token != NULL)
            FL_TRY(add_template_ids(fl_json_member(component, "special_tokens"), name, &sides, error));
        else if (sides.side == 1 || strcmp(name, "A") != 0)
            return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                                "%s: \"single\" does not hold the text exactly once", where);
        else
            sides.side = 1;
    }
    if (sides.side == 0)
        return fl_error_set(error, FL_ERROR_UNSUPPORTED, "%s: \"single\" does not hold the text exactly once",
                            where);
    return fl_tokenizer_add_template(tokenizer, sides.ids[0], sides.counts[0], sides.ids[1], sides.counts[1],
                                     error);
}

/* "cls" and "sep": [text, id]. */
static fl_status read_named_id(const cJSON *component, const char *kind, const char *key, int32_t *id,
                               fl_error *error) {
    const cJSON *item = fl_json_member(component, key);
    if (cJSON_GetArraySize(item) != 2) return fl_member_wrong_type(kind, key, "a token and its id", error);
    return read_id(item->child->next, kind, key, id, error);
}

static fl_status read_post_processor(const cJSON *component, const char *kind, fl_tokenizer *tokenizer,
                                     fl_error *error) {
    if (strcmp(kind, "ByteLevel") == 0) return FL_OK; /* it moves offsets only */
    if (strcmp(kind, "TemplateProcessing") == 0) return read_template(component, tokenizer, error);
    if (strcmp(kind, "RobertaProcessing") != 0 && strcmp(kind, "BertProcessing") != 0)
        return unknown_kind("post_processor", kind, error);
    int32_t before, after;
    FL_TRY(read_named_id(component, kind, "cls", &before, error));
    FL_TRY(read_named_id(component, kind, "sep", &after, error));
    return fl_tokenizer_add_template(tokenizer, &before, 1, &after, 1, error);
}

/* A count that may be absent. */
static fl_status read_count(const cJSON *component, const char *where, const char *key, size_t *out,
                            fl_error *error) {
    const cJSON *item = fl_json_member(component, key);
    *out = 0;
    return fl_member_is_absent(item) || fl_json_size(item, out)
               ? FL_OK
               : fl_member_wrong_type(where, key, "a count", error);
}

static fl_status read_decoder(const cJSON *component, const char *kind, fl_tokenizer *tokenizer,
                              fl_error *error) {
    static const char where[] = "decoder";
    static const struct {
        const char *name;
        fl_decoder_kind kind;
    } kinds[] = {{"ByteLevel", FL_DECODE_BYTE_LEVEL},
                 {"ByteFallback", FL_DECODE_BYTE_FALLBACK},
                 {"Fuse", FL_DECODE_FUSE},
                 {"Replace", FL_DECODE_REPLACE},
                 {"Strip", FL_DECODE_STRIP},
                 {"Metaspace", FL_DECODE_METASPACE}};
    size_t found = 0, count = sizeof kinds / sizeof kinds[0];
    while (found < count && strcmp(kind, kinds[found].name) != 0) found++;
    if (found == count) return unknown_kind(where, kind, error);
    fl_decoder decoder = {.kind = kinds[found].kind};
    const char *from = NULL, *to = NULL;
    if (decoder.kind == FL_DECODE_REPLACE) {
        bool regex;
        FL_TRY(read_pattern(component, where, &regex, &from, error));
        if (regex) return unknown_kind(where, "Replace by a regular expression", error);
        FL_TRY(fl_member_text(component, where, "content", &to, error));
    } else if (decoder.kind == FL_DECODE_STRIP) {
        FL_TRY(fl_member_text(component, where, "content", &from, error));
        FL_TRY(read_count(component, where, "start", &decoder.start, error));
        FL_TRY(read_count(component, where, "stop", &decoder.stop, error));
        if (*from == '\0') return fl_member_wrong_type(where, "content", "a character", error);
    } else if (decoder.kind == FL_DECODE_METASPACE) {
        fl_metaspace_prefix prefix = FL_PREFIX_NEVER;
        FL_TRY(read_metaspace(component, where, &from, &prefix, error));
        decoder.start = prefix != FL_PREFIX_NEVER;
    }
    decoder.from = (char *)(uintptr_t)from;
    decoder.to = (char *)(uintptr_t)to;
    return fl_tokenizer_add_decoder(tokenizer, decoder, error);
}

static fl_status read_vocabulary(const cJSON *model, fl_tokenizer *tokenizer, fl_error *error) {
    const cJSON *item, *vocabulary = fl_json_member(model, "vocab");
    if (!cJSON_IsObject(vocabulary)) return fl_member_wrong_type("model", "vocab", "an object", error);
    cJSON_ArrayForEach(item, vocabulary) {
        int32_t id;
        FL_TRY(read_id(item, "model.vocab", item->string, &id, error));
        FL_TRY(
            fl_vocabulary_add(&tokenizer->vocabulary, id, item->string, strlen(item->string), true, error));
    }
    return FL_OK;
}

static fl_status read_merge(const cJSON *item, size_t rank, fl_tokenizer *tokenizer, fl_error *error) {
    if (cJSON_IsString(item)) {
        const char *line = item->valuestring, *space = strchr(line, ' ');
        if (strncmp(line, "#version", 8) == 0) return FL_OK;
        if (space == NULL || strchr(space + 1, ' ') != NULL)
            return fl_error_set(error, FL_ERROR_FORMAT, "merge %zu, \"%s\", is not two tokens and a space",
                                rank, line);
        return fl_bpe_add_merge(&tokenizer->bpe, &tokenizer->vocabulary, rank, line, (size_t)(space - line),
                                space + 1, strlen(space + 1), error);
    }
    const cJSON *left = cJSON_IsArray(item) ? item->child : NULL, *right = left != NULL ? left->next : NULL;
    if (!cJSON_IsString(left) || !cJSON_IsString(right) || right->next != NULL)
        return fl_error_set(error, FL_ERROR_FORMAT, "merge %zu is not a pair of tokens", rank);
    return fl_bpe_add_merge(&tokenizer->bpe, &tokenizer->vocabulary, rank, left->valuestring,
                            strlen(left->valuestring), right->valuestring, strlen(right->valuestring), error);
}

static fl_status copy_affix(const cJSON *model, const char *key, char **out, fl_error *error) {
    const char *text;
    FL_TRY(read_optional_text(model, "model", key, &text, error));
    return text != NULL ? fl_memory_copy_string(out, text, error) : FL_OK;
}

static fl_status read_model(const cJSON *model, fl_tokenizer *tokenizer, fl_error *error) {
    static const char where[] = "model";
    const char *kind, *unknown;
    if (!cJSON_IsObject(model)) return fl_member_wrong_type("tokenizer", "model", "an object", error);
    FL_TRY(read_optional_text(model, where, "type", &kind, error));
    if (kind != NULL && strcmp(kind, "BPE") != 0) return unknown_kind(where, kind, error);
    fl_bpe *bpe = &tokenizer->bpe;
    FL_TRY(fl_member_flag(model, where, "ignore_merges", false, &bpe->ignore_merges, error));
    FL_TRY(fl_member_flag(model, where, "byte_fallback", false, &bpe->byte_fallback, error));
    FL_TRY(fl_member_flag(model, where, "fuse_unk", false, &bpe->fuse_unknown, error));
    FL_TRY(copy_affix(model, "continuing_subword_prefix", &bpe->continuing_prefix, error));
    FL_TRY(copy_affix(model, "end_of_word_suffix", &bpe->word_suffix, error));
    FL_TRY(read_vocabulary(model, tokenizer, error));
    FL_TRY(read_optional_text(model, where, "unk_token", &unknown, error));
    if (unknown != NULL) {
        bpe->unknown = fl_vocabulary_find(&tokenizer->vocabulary, unknown, strlen(unknown));
        if (bpe->unknown < 0)
            return fl_error_set(error, FL_ERROR_FORMAT, "model: unk_token \"%s\" is not in the vocabulary",
                                unknown);
    }
    const cJSON *item, *merges = fl_json_member(model, "merges");
    if (!cJSON_IsArray(merges)) return fl_member_wrong_type(where, "merges", "a list", error);
    size_t rank = 0;
    cJSON_ArrayForEach(item, merges) FL_TRY(read_merge(item, rank++, tokenizer, error));
    return FL_OK;
}

static fl_status read_added_token(const cJSON *item, fl_tokenizer *tokenizer, fl_error *error) {
    static const char where[] = "added_tokens";
    const char *content;
    fl_added_token token;
    FL_TRY(fl_member_added_token(item, where, false, &content, &token, error));
    FL_TRY(read_id(fl_json_member(item, "id"), where, content, &token.id, error));
    if (content[0] == '\0') return FL_OK;
    int32_t known = fl_vocabulary_find(&tokenizer->vocabulary, content, strlen(content));
    if (known >= 0 && known != token.id)
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: \"%s\" has id %d here and %d in the vocabulary",
                            where, content, (int)token.id, (int)known);
    /* The model does not know the tokens that are only added: they are found in the text, never merged. */
    if (known < 0)
        FL_TRY(fl_vocabulary_add(&tokenizer->vocabulary, token.id, content, strlen(content), false, error));
    return fl_added_append(&tokenizer->added, token, error);
}

/* Memory goes by the largest id: one that is far beyond the number of tokens is a damaged file. */
static void limit_ids(const cJSON *document, fl_vocabulary *vocabulary) {
    enum { GAPS = 1 << 16 };
    const cJSON *tokens = fl_json_member(fl_json_member(document, "model"), "vocab");
    const size_t count = (size_t)cJSON_GetArraySize(tokens) +
                         (size_t)cJSON_GetArraySize(fl_json_member(document, "added_tokens"));
    const size_t limit = 2 * count + GAPS;
    vocabulary->id_limit = limit < FL_TOKEN_ID_LIMIT ? limit : FL_TOKEN_ID_LIMIT;
}

static fl_status read_document(const cJSON *document, fl_tokenizer *tokenizer, fl_error *error) {
    if (!cJSON_IsObject(document)) return fl_error_set(error, FL_ERROR_FORMAT, "not a JSON object");
    /* The small parts first: what is not supported is then refused without reading a large vocabulary. */
    FL_TRY(read_components(fl_json_member(document, "normalizer"), "normalizer", "normalizers",
                           read_normaliser, tokenizer, error));
    FL_TRY(read_components(fl_json_member(document, "pre_tokenizer"), "pre_tokenizer", "pretokenizers",
                           read_pre_tokenizer, tokenizer, error));
    FL_TRY(read_components(fl_json_member(document, "post_processor"), "post_processor", "processors",
                           read_post_processor, tokenizer, error));
    FL_TRY(read_components(fl_json_member(document, "decoder"), "decoder", "decoders", read_decoder,
                           tokenizer, error));
    limit_ids(document, &tokenizer->vocabulary);
    FL_TRY(read_model(fl_json_member(document, "model"), tokenizer, error));
    const cJSON *item, *added = fl_json_member(document, "added_tokens");
    if (!fl_member_is_absent(added) && !cJSON_IsArray(added))
        return fl_member_wrong_type("tokenizer", "added_tokens", "a list", error);
    cJSON_ArrayForEach(item, added) FL_TRY(read_added_token(item, tokenizer, error));
    size_t bytes;
    for (size_t i = 0; i < tokenizer->before_count; i++)
        if (fl_vocabulary_text(&tokenizer->vocabulary, tokenizer->before[i], &bytes) == NULL)
            return fl_error_set(error, FL_ERROR_FORMAT, "post_processor: no token has id %d",
                                (int)tokenizer->before[i]);
    for (size_t i = 0; i < tokenizer->after_count; i++)
        if (fl_vocabulary_text(&tokenizer->vocabulary, tokenizer->after[i], &bytes) == NULL)
            return fl_error_set(error, FL_ERROR_FORMAT, "post_processor: no token has id %d",
                                (int)tokenizer->after[i]);
    return FL_OK;
}

fl_status fl_tokenizer_read_json(const char *path, const char *folder, fl_tokenizer *tokenizer,
                                 fl_error *error) {
    cJSON *document;
    FL_TRY(fl_json_read_file(path, &document, error));
    fl_status status = read_document(document, tokenizer, error);
    cJSON_Delete(document);
    if (status != FL_OK) return fl_error_prepend(error, status, "%s", path);
    bool stated[2] = {false, false};
    if (folder != NULL) FL_TRY(fl_tokenizer_read_side_files(folder, tokenizer, stated, error));
    if (!stated[0] && tokenizer->before_count > 0) tokenizer->bos = tokenizer->before[0];
    if (!stated[1] && tokenizer->after_count > 0) tokenizer->eos = tokenizer->after[0];
    return FL_OK;
}
