/* Any bytes as a JSON file of token ids: read and cut, or refused with a message. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/measure/text_source.h"
#include "tests/fuzz/data_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = fl_input_file(".json", data, size);
    fl_text_source source;
    fl_error error = {.status = FL_OK};
    for (size_t length = 0; length <= 4; length += 4) {
        if (fl_text_source_from_ids(path, 1000, length, 0, &source, &error) != FL_OK) {
            assert(error.message[0] != '\0');
            continue;
        }
        for (size_t i = 0; i < source.sequences.count; i++) {
            for (size_t t = 0; t < source.sequences.lengths[i]; t++) {
                assert(source.sequences.ids[i][t] >= 0 && source.sequences.ids[i][t] < 1000);
            }
        }
        fl_text_source_release(&source);
    }
    return 0;
}
