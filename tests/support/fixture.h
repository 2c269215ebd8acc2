/* Where tests find their data, and what they do when it is not there.
 *
 * Fixtures are in the tree (tests/fixtures, $FROSTLINE_FIXTURES). Packs are larger data that a clone may lack: $FROSTLINE_PACKS
 * or build/packs. A test that needs a missing pack, model or program calls fl_fixture_skip, which prints
 * "skipped: <test>: <what is missing>" and skips. */
#ifndef FL_TESTS_SUPPORT_FIXTURE_H
#define FL_TESTS_SUPPORT_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/model/checkpoint.h"

/* Path of a file under tests/fixtures. The buffers rotate: up to eight results stay valid. */
const char *fl_fixture_path(const char *relative);
/* Path of a file of a pack ("reference/llama_gqa/config.json"), or NULL when it is not there. */
const char *fl_pack_path(const char *relative);
/* Fixture when it is in the tree, else pack, else NULL. */
const char *fl_fixture_or_pack(const char *relative);
/* models/smollm2-135m.gguf ($FROSTLINE_MODEL), or NULL. */
const char *fl_default_model_path(void);
/* build/<config>/frostline ($FROSTLINE). */
const char *fl_program_path(void);

/* Calls cmocka's skip() after saying why; does not return. Use inside a test function. */
void fl_fixture_skip(const char *test, const char *missing);

/* A fresh empty directory under $TMPDIR, removed with everything in it by fl_temporary_remove. The
 * string stays valid. */
const char *fl_temporary_directory(void);
void fl_temporary_remove(const char *directory);
/* Set-up and tear-down of a test, or of a group: a folder of its own. */
int fl_test_folder_make(void **state);
int fl_test_folder_remove(void **state);
const char *fl_test_folder(void);

/* Whole file as an fl_memory block with a NUL behind it. Fails the test when unreadable. */
char *fl_read_file(const char *path, size_t *bytes);
void fl_write_file(const char *path, const void *data, size_t bytes);

/* Numeric tensors of any safetensors dtype as float64 (fixtures hold float32, float64, int32, uint8). The block is fl_memory.
 * Fails the test when the name is missing. shape may be NULL. */
double *fl_fixture_doubles(const fl_checkpoint *checkpoint, const char *name, size_t *count, size_t shape[4]);
float *fl_fixture_floats(const fl_checkpoint *checkpoint, const char *name, size_t *count, size_t shape[4]);
int32_t *fl_fixture_integers(const fl_checkpoint *checkpoint, const char *name, size_t *count);
bool fl_fixture_has(const fl_checkpoint *checkpoint, const char *name);

/* Runs a shell command; *output (fl_memory, NUL-terminated) = stdout and stderr together. Returns the exit status. */
int fl_run_command(const char *command, char **output);

#endif
