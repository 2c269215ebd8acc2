/* A small sweep made by the program itself, for tests of tables, pictures and reports.
 *
 * The tiny Llama fixture with a tokenizer of single bytes; five cells (softmax, none, gla, kda trained a few
 * steps, kda with a hybrid layer kept softmax), a text, two multiple-choice tasks. Made once a test program,
 * removed at its end. */
#ifndef FL_TESTS_SUPPORT_SWEEP_FIXTURE_H
#define FL_TESTS_SUPPORT_SWEEP_FIXTURE_H

/* The folder of run files. Skips the test when the tiny model is absent; fails it when the program does. */
const char *fl_sweep_fixture(const char *test);
/* The folder with model, data and config that it was made from. */
const char *fl_sweep_fixture_folder(void);
/* A run file of it whose label (as `frostline run` prints it) contains `text`. */
const char *fl_sweep_fixture_run(const char *text);
/* Group teardown. */
int fl_sweep_fixture_remove(void **state);

/* A Python interpreter that has all of the modules ("numpy,h5py"): $FROSTLINE_PYTHON or python3. Skips the
 * test otherwise. */
const char *fl_python_with(const char *test, const char *modules);

#endif
