/* Any bytes as a tokenizer.json: opening it, then encoding and decoding a fixed text when it opens. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/memory.h"
#include "harness/model/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const fl_tokenizer *tokenizer) {
    static const char text[] = "I'm  <m> can'T 12345\r\n\n x\xC2\xA0\xE4\xB8\xAD a\xCC\x81 \xFF hello";
    int32_t *ids;
    size_t count, bytes;
    char *back;
    if (fl_tokenizer_encode(tokenizer, text, sizeof text - 1, true, &ids, &count, NULL) != FL_OK) return;
    for (size_t i = 0; i < count; i++)
        if (fl_tokenizer_token(tokenizer, ids[i], &bytes) == NULL) abort();
    if (fl_tokenizer_decode(tokenizer, ids, count, false, &back, &bytes, NULL) == FL_OK) fl_memory_free(back);
    fl_memory_free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[] = "/tmp/frostline-fuzz-XXXXXX";
    int descriptor = mkstemp(path);
    if (descriptor < 0) return 0;
    FILE *file = fdopen(descriptor, "wb");
    if (file == NULL) {
        close(descriptor);
    } else {
        size_t written = fwrite(data, 1, size, file);
        fl_tokenizer *tokenizer = NULL;
        if (fclose(file) == 0 && written == size) fl_tokenizer_open(path, &tokenizer, NULL);
        if (tokenizer != NULL) use(tokenizer);
        fl_tokenizer_close(tokenizer);
    }
    unlink(path);
    return 0;
}
