/* The program from outside: files in the test's folder (fixture.h), commands and what they say. */
#ifndef FL_TESTS_SUPPORT_COMMAND_FIXTURE_H
#define FL_TESTS_SUPPORT_COMMAND_FIXTURE_H

#include <stddef.h>

/* A path in the test's folder. The buffers rotate: up to eight results stay valid. */
const char *fl_inside(const char *name);

void fl_write_text(const char *path, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* [[1, ...], ...]: sequences of token ids below 320, others for another factor. */
void fl_write_ids(const char *path, size_t sequences, size_t tokens, size_t factor);

/* The folder of the tiny Llama reference model; skips the test when it is absent. */
const char *fl_reference_model(const char *test);
/* The same model with a tokenizer of single bytes, made in `folder`/model. Returns that path. */
const char *fl_write_byte_model(const char *test, const char *folder);

/* A shell command; *output (must be freed; NULL: not wanted) = stdout and stderr. Returns the exit status. */
int fl_shell(char **output, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "frostline <arguments>", likewise. */
int fl_frostline(char **output, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The command must exit with `code` and its output hold every text up to a NULL. */
void fl_expect(int code, const char *arguments, ...) __attribute__((sentinel));

#endif
