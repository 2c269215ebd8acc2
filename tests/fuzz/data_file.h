/* Input as a file, for readers that take a path. */
#ifndef FL_TESTS_FUZZ_INPUT_FILE_H
#define FL_TESTS_FUZZ_INPUT_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Writes `data` to a file of this process with that suffix (".gguf") and returns its path, the same at every
 * call. Ends the program when it cannot: nothing would be tested. */
const char *fl_input_file(const char *suffix, const uint8_t *data, size_t size);

#endif
