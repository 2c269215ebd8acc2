/* Tokenizer keys of GGUF files, built byte by byte: families, token types, BOS, and keys that are missing or
 * wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/model/tokenizer_text.h"
#include "tests/support/checkpoint_builder.h"
#include "tests/support/fixture.h"
#include "tests/support/tokenizer_cases.h"

enum { TYPE_I32 = 5, TYPE_F32 = 6, TYPE_BOOL = 7, TYPE_STRING = 8, TYPE_ARRAY = 9 };
enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 };

/* What a test changes; 0 or NULL: the usual. The tokens are the 256 byte-level characters, then he 256, hello
 * 257, <s> 258 (control), <tool> 259 (user-defined), [PAD260] (normal), one that is unused 261. */
typedef struct gguf_parts {
    const char *model;       /* gpt2 */
    const char *pre;         /* gpt-2; "-": the key is left out */
    const char *merge;       /* the second of two, "h e"; "-": no merges key */
    const char *extra_token; /* one more, 262 */
    int extra_types;         /* more (or fewer) token types than tokens */
    int bos, eos;            /* 0: no key */
    int add_bos;             /* 0: no key, 1: true, 2: false, 3: not a boolean */
    int scores;              /* so many of them; 0: no key */
    bool squeezes;           /* remove_extra_whitespaces */
    bool without_tokens, tokens_of_numbers;
} gguf_parts;

static void add_array(fl_bytes *out, const char *key, uint32_t type, size_t count) {
    fl_gguf_add_text(out, key);
    fl_bytes_add_u32(out, TYPE_ARRAY);
    fl_bytes_add_u32(out, type);
    fl_bytes_add_u64(out, count);
}

static size_t add_tokens(fl_bytes *out, const gguf_parts *parts) {
    size_t count = 262 + (parts->extra_token != NULL);
    if (parts->tokens_of_numbers) {
        add_array(out, "tokenizer.ggml.tokens", TYPE_I32, 1);
        fl_bytes_add_u32(out, 7);
        return 1;
    }
    static const char *const others[] = {"he", "hello", "<s>", "<tool>", "[PAD260]", "x\x01"};
    add_array(out, "tokenizer.ggml.tokens", TYPE_STRING, count);
    for (int byte = 0; byte < 256; byte++) {
        fl_text_buffer text = {0};
        fl_text_append_character(&text, fl_text_byte_character((uint8_t)byte), NULL);
        fl_gguf_add_text(out, text.bytes);
        fl_text_release(&text);
    }
    for (int i = 0; i < 6; i++) fl_gguf_add_text(out, others[i]);
    if (parts->extra_token != NULL) fl_gguf_add_text(out, parts->extra_token);
    return count;
}

static void add_types(fl_bytes *out, size_t count) {
    static const uint32_t others[] = {NORMAL, NORMAL, CONTROL, USER_DEFINED, NORMAL, UNUSED};
    add_array(out, "tokenizer.ggml.token_type", TYPE_I32, count);
    for (size_t id = 0; id < count; id++)
        fl_bytes_add_u32(out, id >= 256 && id < 262 ? others[id - 256] : NORMAL);
}

static fl_status open_gguf(gguf_parts parts, fl_tokenizer **tokenizer, fl_error *error) {
    fl_bytes pairs = {0}, file = {0};
    size_t count = 1, tokens = 0;
    fl_gguf_add_string(&pairs, "tokenizer.ggml.model", parts.model != NULL ? parts.model : "gpt2");
    if (parts.pre == NULL || strcmp(parts.pre, "-") != 0) {
        fl_gguf_add_string(&pairs, "tokenizer.ggml.pre", parts.pre != NULL ? parts.pre : "gpt-2");
        count++;
    }
    if (!parts.without_tokens) {
        tokens = add_tokens(&pairs, &parts);
        add_types(&pairs, (size_t)((int)tokens + parts.extra_types));
        count += 2;
    }
    if (parts.merge == NULL || strcmp(parts.merge, "-") != 0) {
        add_array(&pairs, "tokenizer.ggml.merges", TYPE_STRING, 2);
        fl_gguf_add_text(&pairs, "h e");
        fl_gguf_add_text(&pairs, parts.merge != NULL ? parts.merge : "h e");
        count++;
    }
    if (parts.bos != 0) fl_gguf_add_u32(&pairs, "tokenizer.ggml.bos_token_id", (uint32_t)parts.bos);
    if (parts.eos != 0) fl_gguf_add_u32(&pairs, "tokenizer.ggml.eos_token_id", (uint32_t)parts.eos);
    count += (size_t)(parts.bos != 0) + (parts.eos != 0) + (parts.add_bos != 0);
    if (parts.scores > 0) {
        add_array(&pairs, "tokenizer.ggml.scores", TYPE_F32, (size_t)parts.scores);
        for (int id = 0; id < parts.scores; id++) fl_bytes_add_f32(&pairs, -(float)id);
        count++;
    }
    if (parts.squeezes) {
        fl_gguf_add_text(&pairs, "tokenizer.ggml.remove_extra_whitespaces");
        fl_bytes_add_u32(&pairs, TYPE_BOOL);
        fl_bytes_add_u8(&pairs, 1);
        count++;
    }
    if (parts.add_bos == 3) fl_gguf_add_u32(&pairs, "tokenizer.ggml.add_bos_token", 1);
    if (parts.add_bos == 1 || parts.add_bos == 2) {
        fl_gguf_add_text(&pairs, "tokenizer.ggml.add_bos_token");
        fl_bytes_add_u32(&pairs, TYPE_BOOL);
        fl_bytes_add_u8(&pairs, parts.add_bos == 1);
    }
    fl_build_gguf(&file, &pairs, count, NULL, 0, 32);
    const char *folder = fl_temporary_directory();
    fl_status status = fl_tokenizer_open(fl_put_file(folder, "vocabulary.gguf", &file), tokenizer, error);
    fl_temporary_remove(folder);
    fl_bytes_free(&pairs);
    fl_bytes_free(&file);
    return status;
}

static fl_tokenizer *opened(gguf_parts parts) {
    fl_tokenizer *tokenizer;
    fl_error error;
    if (open_gguf(parts, &tokenizer, &error) != FL_OK) fail_msg("%s", error.message);
    return tokenizer;
}

static void test_token_types_say_what_is_matched_in_text(void **state) {
    (void)state;
    fl_tokenizer *tokenizer = opened((gguf_parts){0});
    FL_ASSERT_IDS(tokenizer, "he<s>he <tool>", 256, 258, 256, ' ', 259);
    FL_ASSERT_IDS(tokenizer, "[PAD260]", '[', 'P', 'A', 'D', '2', '6', '0', ']');
    static const int32_t ids[] = {258, 256, 259};
    char *text;
    size_t bytes;
    assert_int_equal(fl_tokenizer_decode(tokenizer, ids, 3, true, &text, &bytes, NULL), FL_OK);
    assert_string_equal(text, "he<tool>"); /* control tokens are special, user-defined ones are not */
    fl_memory_free(text);
    assert_int_equal(fl_tokenizer_bos(tokenizer), -1); /* never invented */
    assert_int_equal(fl_tokenizer_eos(tokenizer), -1);
    assert_false(fl_tokenizer_adds_bos(tokenizer));
    fl_tokenizer_close(tokenizer);
}

static void test_families_bring_their_pipeline(void **state) {
    (void)state;
    fl_tokenizer *gpt2 = opened((gguf_parts){0});
    FL_ASSERT_IDS(gpt2, "a\xCC\x81", 'a', 0xCC, 0x81);
    fl_tokenizer_close(gpt2);
    fl_tokenizer *qwen2 = opened((gguf_parts){.pre = "qwen2"});
    FL_ASSERT_IDS(qwen2, "a\xCC\x81", 0xC3, 0xA1);
    fl_tokenizer_close(qwen2);
    /* hello is a token that no merge makes. */
    fl_tokenizer *llama = opened((gguf_parts){.pre = "llama-bpe", .bos = 258});
    FL_ASSERT_IDS(llama, "hello", 257);
    assert_true(fl_tokenizer_adds_bos(llama));
    fl_tokenizer_close(llama);
    fl_tokenizer *smollm = opened((gguf_parts){.pre = "smollm"});
    FL_ASSERT_IDS(smollm, "hello", 256, 'l', 'l', 'o');
    fl_tokenizer_close(smollm);
}

static void test_the_file_decides_whether_bos_is_added(void **state) {
    (void)state;
    fl_tokenizer *off = opened((gguf_parts){.pre = "llama-bpe", .bos = 258, .add_bos = 2});
    assert_false(fl_tokenizer_adds_bos(off));
    assert_int_equal(fl_tokenizer_bos(off), 258);
    fl_tokenizer_close(off);
    fl_tokenizer *on = opened((gguf_parts){.bos = 258, .add_bos = 1});
    int32_t *ids;
    size_t count;
    assert_int_equal(fl_tokenizer_encode(on, "he", 2, true, &ids, &count, NULL), FL_OK);
    assert_int_equal(count, 2);
    assert_int_equal(ids[0], 258);
    fl_memory_free(ids);
    fl_tokenizer_close(on);
}

static void test_sentencepiece_merges_follow_the_scores(void **state) {
    (void)state;
    /* The mark for a space is not in this vocabulary: it is unknown, and unknown is token 0 unless the file
     * says so. */
    fl_tokenizer *tokenizer = opened((gguf_parts){.model = "llama", .pre = "-", .merge = "-", .scores = 262});
    FL_ASSERT_IDS(tokenizer, "he<s>", 0, 256, 258);
    assert_true(fl_tokenizer_adds_bos(tokenizer));
    assert_int_equal(fl_tokenizer_bos(tokenizer), 1);
    assert_int_equal(fl_tokenizer_eos(tokenizer), 2);
    fl_tokenizer_close(tokenizer);
}

static void test_missing_and_wrong_keys_are_named(void **state) {
    (void)state;
    static const struct {
        gguf_parts parts;
        fl_status status;
        const char *named;
    } cases[] = {
        {{.model = "llama"}, FL_ERROR_FORMAT, "tokenizer.ggml.scores"},
        {{.model = "llama", .scores = 100}, FL_ERROR_FORMAT, "tokenizer.ggml.scores"},
        {{.model = "llama", .scores = 262, .squeezes = true},
         FL_ERROR_UNSUPPORTED,
         "remove_extra_whitespaces"},
        {{.model = "llama", .without_tokens = true}, FL_ERROR_FORMAT, "tokenizer.ggml.tokens"},
        {{.model = "rwkv"}, FL_ERROR_UNSUPPORTED, "\"rwkv\""},
        {{.pre = "-"}, FL_ERROR_FORMAT, "tokenizer.ggml.pre"},
        {{.pre = "default"}, FL_ERROR_UNSUPPORTED, "\"default\""},
        {{.pre = "gpt-20"}, FL_ERROR_UNSUPPORTED, "\"gpt-20\""},
        {{.without_tokens = true}, FL_ERROR_FORMAT, "tokenizer.ggml.tokens"},
        {{.tokens_of_numbers = true}, FL_ERROR_FORMAT, "tokenizer.ggml.tokens"},
        {{.merge = "-"}, FL_ERROR_FORMAT, "tokenizer.ggml.merges"},
        {{.merge = "h zz"}, FL_ERROR_FORMAT, "\"zz\""},
        {{.merge = "he"}, FL_ERROR_FORMAT, "element 1"},
        {{.merge = ""}, FL_ERROR_FORMAT, "element 1"},
        {{.extra_token = "he"}, FL_ERROR_FORMAT, "\"he\""},
        {{.extra_token = "\xFF"}, FL_ERROR_FORMAT, "element 262"},
        {{.extra_types = 1}, FL_ERROR_FORMAT, "token_type"},
        {{.extra_types = -1}, FL_ERROR_FORMAT, "token_type"},
        {{.bos = 262}, FL_ERROR_FORMAT, "bos_token_id"},
        {{.eos = -1}, FL_ERROR_FORMAT, "eos_token_id"},
        {{.add_bos = 1}, FL_ERROR_FORMAT, "bos_token_id"},
        {{.add_bos = 3, .bos = 258}, FL_ERROR_FORMAT, "add_bos_token"},
        {{.pre = "llama-bpe"}, FL_ERROR_FORMAT, "bos_token_id"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fl_tokenizer *tokenizer;
        fl_error error = {.message = ""};
        fl_status status = open_gguf(cases[i].parts, &tokenizer, &error);
        if (status != cases[i].status)
            fail_msg("case %zu: %s (%s)", i, fl_status_name(status), error.message);
        assert_null(tokenizer);
        if (strstr(error.message, cases[i].named) == NULL || strstr(error.message, "vocabulary.gguf") == NULL)
            fail_msg("case %zu: \"%s\" does not name %s and the file", i, error.message, cases[i].named);
    }
}

static void test_a_file_without_tokenizer_keys_says_so(void **state) {
    (void)state;
    fl_bytes pairs = {0}, file = {0};
    fl_gguf_add_string(&pairs, "general.architecture", "llama");
    fl_build_gguf(&file, &pairs, 1, NULL, 0, 32);
    const char *folder = fl_temporary_directory();
    fl_tokenizer *tokenizer;
    fl_error error;
    assert_int_equal(fl_tokenizer_open(fl_put_file(folder, "bare.gguf", &file), &tokenizer, &error),
                     FL_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "no tokenizer"));
    assert_int_equal(fl_tokenizer_open("absent.gguf", &tokenizer, &error), FL_ERROR_IO);
    fl_temporary_remove(folder);
    fl_bytes_free(&pairs);
    fl_bytes_free(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token_types_say_what_is_matched_in_text),
        cmocka_unit_test(test_families_bring_their_pipeline),
        cmocka_unit_test(test_the_file_decides_whether_bos_is_added),
        cmocka_unit_test(test_sentencepiece_merges_follow_the_scores),
        cmocka_unit_test(test_missing_and_wrong_keys_are_named),
        cmocka_unit_test(test_a_file_without_tokenizer_keys_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
