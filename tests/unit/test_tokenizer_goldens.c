/* Real tokenizers against ids that Hugging Face gave: SmolLM2's goldens (in the tree), and the vocabularies
 * and texts of the packs where they are at hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/base/sha256.h"
#include "tests/support/fixture.h"
#include "tests/support/tokenizer_cases.h"

static fl_tokenizer *opened(const char *path) {
    fl_tokenizer *tokenizer;
    fl_error error;
    if (fl_tokenizer_open(path, &tokenizer, &error) != FL_OK) fail_msg("%s", error.message);
    return tokenizer;
}

static void test_smollm2_strings_have_their_ids_and_decode_back(void **state) {
    (void)state;
    const char *model = fl_default_model_path();
    if (model == NULL) fl_fixture_skip(__func__, "models/smollm2-135m.gguf");
    fl_tokenizer *tokenizer = opened(model);
    cJSON *item, *cases = fl_read_json_lines(fl_fixture_path("smollm2/tokenizer.jsonl"));
    int count = 0;
    cJSON_ArrayForEach(item, cases) {
        size_t bytes, decoded_bytes, id_count;
        char *text = fl_member_bytes(item, "utf8_hex", &bytes);
        char *decoded = fl_member_bytes(item, "decoded_utf8_hex", &decoded_bytes);
        int32_t *ids = fl_member_ids(item, "ids", &id_count);
        fl_assert_encodes(tokenizer, text, bytes, ids, id_count, decoded != NULL ? decoded : text,
                          decoded != NULL ? decoded_bytes : bytes);
        fl_memory_free(ids);
        fl_memory_free(decoded);
        fl_memory_free(text);
        count++;
    }
    assert_int_equal(count, 470);
    assert_int_equal(fl_tokenizer_vocabulary(tokenizer), 49152);
    assert_int_equal(fl_tokenizer_bos(tokenizer), 1);
    assert_int_equal(fl_tokenizer_eos(tokenizer), 2);
    assert_false(fl_tokenizer_adds_bos(tokenizer));
    cJSON_Delete(cases);
    fl_tokenizer_close(tokenizer);
}

static const cJSON *text_facts(const cJSON *verification, const char *name) {
    const cJSON *facts =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(verification, "tokenizer"), name);
    if (facts == NULL) fail_msg("verification.json does not know %s", name);
    return facts;
}

static void assert_long_text(const fl_tokenizer *tokenizer, const cJSON *facts, const char *path) {
    size_t bytes, count;
    int32_t *ids;
    char *text = fl_read_file(path, &bytes), sha256[FL_SHA256_TEXT_BYTES];
    assert_int_equal(fl_tokenizer_encode(tokenizer, text, bytes, false, &ids, &count, NULL), FL_OK);
    assert_int_equal(count, (size_t)cJSON_GetObjectItem(facts, "tokens")->valuedouble);
    fl_sha256_bytes(ids, count * sizeof *ids, sha256);
    assert_string_equal(sha256, cJSON_GetObjectItem(facts, "sha256_ids")->valuestring);
    char *back;
    size_t back_bytes;
    assert_int_equal(fl_tokenizer_decode(tokenizer, ids, count, false, &back, &back_bytes, NULL), FL_OK);
    assert_int_equal(back_bytes, bytes);
    assert_memory_equal(back, text, bytes);
    fl_memory_free(back);
    fl_memory_free(ids);
    fl_memory_free(text);
}

static void test_whole_books_have_the_ids_of_the_reference(void **state) {
    (void)state;
    static const char *const texts[][2] = {{"wiki.test.raw", "text/wikitext-2-raw/wiki.test.raw"},
                                           {"1342-0.txt", "text/books/1342-0.txt"},
                                           {"2701-0.txt", "text/books/2701-0.txt"},
                                           {"promessi_sposi.txt", "text/books/promessi_sposi.txt"}};
    const char *model = fl_default_model_path(), *path = fl_pack_path("smollm2/verification.json");
    if (model == NULL) fl_fixture_skip(__func__, "models/smollm2-135m.gguf");
    if (path == NULL || fl_pack_path(texts[0][1]) == NULL)
        fl_fixture_skip(__func__, "packs smollm2 and text");
    fl_tokenizer *tokenizer = opened(model);
    size_t bytes;
    char *text = fl_read_file(path, &bytes);
    cJSON *verification = cJSON_Parse(text);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_long_text(tokenizer, text_facts(verification, texts[i][0]), fl_pack_path(texts[i][1]));
    cJSON_Delete(verification);
    fl_memory_free(text);
    fl_tokenizer_close(tokenizer);
}

/* One line of a .out file as ids; *line moves to the next. */
static size_t read_ids(const char **line, int32_t *ids, size_t limit) {
    size_t count = 0;
    const char *at = *line;
    while (*at != '\n' && *at != '\0') {
        char *end;
        assert_true(count < limit);
        ids[count++] = (int32_t)strtol(at, &end, 10);
        at = end;
        while (*at == ' ') at++;
    }
    *line = *at == '\n' ? at + 1 : at;
    return count;
}

static void assert_vocabulary_cases(const char *tokenizer_path, const char *cases) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char name[200];
    size_t bytes;
    fl_tokenizer *tokenizer = opened(tokenizer_path);
    snprintf(name, sizeof name, "tokenizers/ggml-vocab/ggml-vocab-%s.gguf.inp", cases);
    char *inputs = fl_read_file(fl_pack_path(name), &bytes);
    snprintf(name, sizeof name, "tokenizers/ggml-vocab/ggml-vocab-%s.gguf.out", cases);
    char *outputs = fl_read_file(fl_pack_path(name), &bytes);
    const char *text = inputs, *line = outputs;
    int count = 0;
    for (const char *end; (end = strstr(text, separator)) != NULL; text = end + sizeof separator - 1) {
        int32_t ids[512];
        size_t id_count = read_ids(&line, ids, 512);
        fl_assert_encodes(tokenizer, text, (size_t)(end - text), ids, id_count, text, (size_t)(end - text));
        count++;
    }
    assert_int_equal(count, 46);
    fl_memory_free(inputs);
    fl_memory_free(outputs);
    fl_tokenizer_close(tokenizer);
}

static void test_vocabularies_in_gguf_files_give_their_ids(void **state) {
    (void)state;
    static const char *const names[] = {"gpt-2", "starcoder", "mpt", "falcon", "llama-spm", "phi-3"};
    if (fl_pack_path("tokenizers/SOURCE.md") == NULL) fl_fixture_skip(__func__, "pack tokenizers");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[200];
        snprintf(name, sizeof name, "tokenizers/ggml-vocab/ggml-vocab-%s.gguf", names[i]);
        assert_vocabulary_cases(fl_pack_path(name), names[i]);
    }
}

static void test_gpt2_json_gives_the_ids_of_its_gguf(void **state) {
    (void)state;
    if (fl_pack_path("tokenizers/SOURCE.md") == NULL) fl_fixture_skip(__func__, "pack tokenizers");
    assert_vocabulary_cases(fl_pack_path("tokenizers/hf-gpt2/tokenizer.json"), "gpt-2");
}

static void test_qwen3_vectors(void **state) {
    (void)state;
    const char *path = fl_pack_path("tokenizers/qwen3");
    if (path == NULL) fl_fixture_skip(__func__, "pack tokenizers");
    fl_tokenizer *tokenizer = opened(path);
    assert_vocabulary_cases(path, "qwen2"); /* Qwen2's cases hold no text that Qwen3 treats otherwise */
    FL_ASSERT_IDS(tokenizer, "Hello world", 9707, 1879);
    FL_ASSERT_IDS(tokenizer, "Question: 2+2=?\nAnswer:", 14582, 25, 220, 17, 10, 17, 28, 5267, 16141, 25);
    FL_ASSERT_IDS(tokenizer, "I'm  can'T 12345\r\n\n x", 40, 2776, 220, 646, 17323, 220, 16, 17, 18, 19, 20,
                  80823, 856);
    FL_ASSERT_IDS(tokenizer,
                  "a\xCC\x81"
                  "b",
                  58560);
    FL_ASSERT_IDS(tokenizer, " Vi\xE1\xBB\x87t", 128324);
    FL_ASSERT_IDS(tokenizer, "\xF0\x9F\x98\x80\xE2\x80\x8D!", 141334, 378, 235, 0);
    FL_ASSERT_IDS(tokenizer, "The pass key is 71432. Remember it.", 785, 1494, 1376, 374, 220, 22, 16, 19, 18,
                  17, 13, 19881, 432, 13);
    FL_ASSERT_IDS(tokenizer, "<|endoftext|>x", 151643, 87);
    FL_ASSERT_IDS(tokenizer, "</think>", 151668);
    fl_assert_encodes(tokenizer, "", 0, NULL, 0, "", 0);
    assert_int_equal(fl_tokenizer_vocabulary(tokenizer), 151669);
    assert_int_equal(fl_tokenizer_bos(tokenizer), -1);
    assert_int_equal(fl_tokenizer_eos(tokenizer), 151645);
    fl_tokenizer_close(tokenizer);
}

static void test_small_files_of_the_library_itself(void **state) {
    (void)state;
    if (fl_pack_path("tokenizers/hf-small") == NULL) fl_fixture_skip(__func__, "pack tokenizers");
    fl_tokenizer *a = opened(fl_pack_path("tokenizers/hf-small/tokenizer.json"));
    FL_ASSERT_IDS(a, "Hello world", 79, 33, 56, 63, 63, 66, 88, 66, 69, 63, 55);
    FL_ASSERT_IDS(a, "  the  cat\n", 90, 79, 79, 54, 52, 71);
    FL_ASSERT_IDS(a,
                  "a\xCC\x81"
                  "b 12",
                  79, 53, 79, 16, 17);
    FL_ASSERT_IDS(a, "the theatre, that is", 90, 90, 52, 71, 91, 12, 80, 59, 52, 71, 79, 93);
    fl_tokenizer_close(a);
    fl_tokenizer *b = opened(fl_pack_path("tokenizers/hf-small/bpe_byteLevel_minipile_5_tokens_1024.json"));
    FL_ASSERT_IDS(b, "Hello world", 384, 426, 83, 539, 389);
    FL_ASSERT_IDS(b, "  the  cat\n", 184, 228, 184, 234, 229, 179);
    FL_ASSERT_IDS(b, "\x04", 184, 0);
    FL_ASSERT_IDS(b, "the theatre, that is", 228, 228, 229, 225, 16, 301, 281);
    fl_tokenizer_close(b);
}

static void test_mistral_vectors(void **state) {
    (void)state;
    const char *path = fl_pack_path("tokenizers/mistral-7b-v0.1");
    if (path == NULL) fl_fixture_skip(__func__, "pack tokenizers");
    fl_tokenizer *tokenizer = opened(path);
    FL_ASSERT_IDS(tokenizer, "Hello world", 22557, 1526);
    FL_ASSERT_IDS(tokenizer, "Question: 2+2=?\nAnswer:", 22478, 28747, 28705, 28750, 28806, 28750, 28746,
                  28804, 13, 2820, 16981, 28747);
    FL_ASSERT_IDS(tokenizer, "I'm  can'T 12345\r\n\n x", 315, 28742, 28719, 28705, 541, 28742, 28738, 28705,
                  28740, 28750, 28770, 28781, 28782, 28801, 13, 13, 1318);
    FL_ASSERT_IDS(tokenizer,
                  "a\xCC\x81"
                  "b",
                  264, 28949, 28726);
    FL_ASSERT_IDS(tokenizer, " Vi\xE1\xBB\x87t", 28705, 11004, 29539, 28707);
    FL_ASSERT_IDS(tokenizer, "\xF0\x9F\x98\x80\xE2\x80\x8D!", 28705, 30575, 29274, 28808);
    FL_ASSERT_IDS(tokenizer, "The pass key is 71432. Remember it.", 415, 1455, 1945, 349, 28705, 28787, 28740,
                  28781, 28770, 28750, 28723, 13399, 378, 28723);
    FL_ASSERT_IDS(tokenizer, "<s>a</s> b", 1, 264, 2, 28705,
                  287); /* the mark goes before every piece of text */
    int32_t *ids;
    size_t count;
    assert_int_equal(fl_tokenizer_encode(tokenizer, "", 0, true, &ids, &count, NULL), FL_OK);
    assert_int_equal(count, 1);
    assert_int_equal(ids[0], 1);
    assert_int_equal(fl_tokenizer_bos(tokenizer), 1);
    assert_int_equal(fl_tokenizer_eos(tokenizer), 2);
    fl_memory_free(ids);
    fl_tokenizer_close(tokenizer);
}

static void test_a_sentencepiece_document_is_one_word(void **state) {
    (void)state;
    const char *path = fl_pack_path("text/wikitext-2-raw/wiki.test.raw");
    const char *vocabulary = fl_pack_path("tokenizers/ggml-vocab/ggml-vocab-phi-3.gguf");
    if (path == NULL || vocabulary == NULL) fl_fixture_skip(__func__, "packs text and tokenizers");
    fl_tokenizer *tokenizer = opened(vocabulary);
    size_t bytes, count, back_bytes;
    int32_t *ids;
    char *back, *text = fl_read_file(path, &bytes);
    assert_int_equal(fl_tokenizer_encode(tokenizer, text, bytes, false, &ids, &count, NULL), FL_OK);
    /* Llama-2 has the same pieces; llama.cpp's 655 chunks of 512 with BOS are floor(335688 / 512). */
    assert_int_equal(count, 335687);
    assert_int_equal(fl_tokenizer_decode(tokenizer, ids, count, false, &back, &back_bytes, NULL), FL_OK);
    assert_int_equal(back_bytes, bytes);
    assert_memory_equal(back, text, bytes);
    fl_memory_free(ids);
    fl_memory_free(back);
    fl_memory_free(text);
    fl_tokenizer_close(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smollm2_strings_have_their_ids_and_decode_back),
        cmocka_unit_test(test_whole_books_have_the_ids_of_the_reference),
        cmocka_unit_test(test_vocabularies_in_gguf_files_give_their_ids),
        cmocka_unit_test(test_gpt2_json_gives_the_ids_of_its_gguf),
        cmocka_unit_test(test_qwen3_vectors),
        cmocka_unit_test(test_small_files_of_the_library_itself),
        cmocka_unit_test(test_mistral_vectors),
        cmocka_unit_test(test_a_sentencepiece_document_is_one_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
