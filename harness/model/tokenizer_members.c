#include "harness/model/tokenizer_members.h"

#include "harness/model/json_text.h"

fl_status fl_member_wrong_type(const char *where, const char *key, const char *wanted, fl_error *error) {
    return fl_error_set(error, FL_ERROR_FORMAT, "%s: \"%s\" is missing or not %s", where, key, wanted);
}

bool fl_member_is_absent(const cJSON *item) {
    return item == NULL || cJSON_IsNull(item);
}

fl_status fl_member_flag(const cJSON *object, const char *where, const char *key, bool fallback, bool *out,
                         fl_error *error) {
    const cJSON *item = fl_json_member(object, key);
    *out = fallback;
    if (fl_member_is_absent(item)) return FL_OK;
    if (!cJSON_IsBool(item)) return fl_member_wrong_type(where, key, "true or false", error);
    *out = cJSON_IsTrue(item);
    return FL_OK;
}

fl_status fl_member_text(const cJSON *object, const char *where, const char *key, const char **out,
                         fl_error *error) {
    const cJSON *item = fl_json_member(object, key);
    *out = "";
    if (!cJSON_IsString(item)) return fl_member_wrong_type(where, key, "a string", error);
    *out = item->valuestring;
    return FL_OK;
}

fl_status fl_member_added_token(const cJSON *object, const char *where, bool special, const char **content,
                                fl_added_token *out, fl_error *error) {
    FL_TRY(fl_member_text(object, where, "content", content, error));
    FL_TRY(fl_member_flag(object, where, "special", special, &out->special, error));
    FL_TRY(fl_member_flag(object, where, "normalized", !out->special, &out->normalized, error));
    FL_TRY(fl_member_flag(object, where, "single_word", false, &out->single_word, error));
    FL_TRY(fl_member_flag(object, where, "lstrip", false, &out->lstrip, error));
    return fl_member_flag(object, where, "rstrip", false, &out->rstrip, error);
}
