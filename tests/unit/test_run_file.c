/* Run files: what is written is read back by us, h5py and h5dump; nothing unfinished ever carries the final
 * name. */
#include <dirent.h>
#include <fcntl.h>
#include <hdf5.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/base/random.h"
#include "harness/config/text_builder.h"
#include "harness/store/run_file.h"
#include "tests/support/fixture.h"

static const char *path_in(const char *directory, const char *name) {
    static char paths[4][600];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

static size_t count_entries(const char *directory) {
    DIR *d = opendir(directory);
    assert_non_null(d);
    size_t count = 0;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    }
    closedir(d);
    return count;
}

static fl_run_file *create(const char *directory, const char *id) {
    fl_run_file *file = NULL;
    fl_error error = {0};
    if (fl_run_file_create(directory, id, &file, &error) != FL_OK) fail_msg("%s", error.message);
    return file;
}

static fl_error problem;

#define OK(call)                                                                                             \
    do {                                                                                                     \
        if ((call) != FL_OK) fail_msg("%s", problem.message);                                                \
    } while (0)

enum { ROWS = 300, COLUMNS = 700 };

/* A file with everything in it: a table of two axes with NaN and infinity, floats, integers, texts,
 * attributes. */
static void write_sample(const char *directory, const char *id) {
    fl_run_file *file = create(directory, id);
    double *table = NULL;
    assert_int_equal(FL_ALLOCATE(&table, ROWS * COLUMNS, NULL), FL_OK);
    for (size_t i = 0; i < ROWS * COLUMNS; i++) table[i] = (double)i / 7.0;
    table[1] = NAN;
    table[2] = INFINITY;
    table[3] = -INFINITY;
    static const float floats[2][3] = {{1.5f, 2.5f, 3.5f}, {NAN, 5.5f, 6.5f}};
    static const int64_t integers[3] = {INT64_MIN, 0, INT64_MAX};
    static const char *const texts[] = {"größe", "", "日本"};
    double scalar = 0.1;
    OK(fl_run_file_write_doubles(file, "/errors/teacher_forced/nmse", 2, (size_t[]){ROWS, COLUMNS}, table,
                                 "1", "relative error", &problem));
    OK(fl_run_file_write_doubles(file, "/language_model/kl", 0, NULL, &scalar, "nat", "divergence",
                                 &problem));
    OK(fl_run_file_write_floats(file, "/floats", 2, (size_t[]){2, 3}, &floats[0][0], "1", "floats",
                                &problem));
    OK(fl_run_file_write_integers(file, "/integers", 1, (size_t[]){3}, integers, "1", "integers", &problem));
    OK(fl_run_file_write_doubles(file, "/empty", 2, (size_t[]){0, 5}, &scalar, "1", "nothing", &problem));
    OK(fl_run_file_write_doubles(file, "/absent", 1, (size_t[]){3}, NULL, "1", "not asked for", &problem));
    OK(fl_run_file_write_text(file, "/config", "variant:\n  rule: kda\n", "resolved configuration",
                              &problem));
    OK(fl_run_file_write_texts(file, "/texts", 3, texts, "some texts", &problem));
    OK(fl_run_file_set_text(file, "/", "run_id", id, &problem));
    OK(fl_run_file_set_text(file, "/", "status", "running", &problem));
    OK(fl_run_file_set_text(file, "/", "status", "complete", &problem));
    OK(fl_run_file_set_integer(file, "/", "version", 1, &problem));
    OK(fl_run_file_set_number(file, "/tasks/mmlu", "acc", 0.25, &problem));
    OK(fl_run_file_set_text(file, "/tasks/mmlu", "bad_bytes", "a\xff\xfe z", &problem));
    OK(fl_run_file_commit(file, &problem));
    fl_memory_free(table);
}

static void test_what_is_written_is_read_back(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    write_sample(directory, "0123456789ab");
    assert_int_equal(count_entries(directory), 1);
    fl_run_reader *reader = NULL;
    OK(fl_run_reader_open(path_in(directory, "0123456789ab.h5"), &reader, &problem));
    double *data = NULL;
    size_t rank = 9, shape[4];
    OK(fl_run_reader_doubles(reader, "/errors/teacher_forced/nmse", &data, &rank, shape, &problem));
    assert_true(rank == 2 && shape[0] == ROWS && shape[1] == COLUMNS);
    assert_true(isnan(data[1]) && data[2] == INFINITY && data[3] == -INFINITY);
    for (size_t i = 4; i < ROWS * COLUMNS; i++) assert_true(data[i] == (double)i / 7.0);
    fl_memory_free(data);
    OK(fl_run_reader_doubles(reader, "/language_model/kl", &data, &rank, shape, &problem));
    assert_true(rank == 0 && data[0] == 0.1);
    fl_memory_free(data);
    OK(fl_run_reader_doubles(reader, "/floats", &data, NULL, NULL, &problem));
    assert_true(data[0] == 1.5 && isnan(data[3]) && data[5] == 6.5);
    fl_memory_free(data);
    OK(fl_run_reader_doubles(reader, "/empty", &data, &rank, shape, &problem));
    assert_true(rank == 2 && shape[0] == 0 && shape[1] == 5);
    fl_memory_free(data);
    char *text = NULL, **texts = NULL;
    size_t count = 0;
    OK(fl_run_reader_text(reader, "/config", &text, &problem));
    assert_string_equal(text, "variant:\n  rule: kda\n");
    fl_memory_free(text);
    OK(fl_run_reader_texts(reader, "/texts", &texts, &count, &problem));
    assert_int_equal(count, 3);
    assert_string_equal(texts[0], "größe");
    assert_string_equal(texts[1], "");
    for (size_t i = 0; i < count; i++) fl_memory_free(texts[i]);
    fl_memory_free(texts);
    OK(fl_run_reader_attribute_text(reader, "/", "status", &text, &problem));
    assert_string_equal(text, "complete");
    fl_memory_free(text);
    OK(fl_run_reader_attribute_text(reader, "/tasks/mmlu", "bad_bytes", &text, &problem));
    assert_string_equal(text, "a\xef\xbf\xbd\xef\xbf\xbd z");
    fl_memory_free(text);
    double number = 0;
    OK(fl_run_reader_attribute_number(reader, "/tasks/mmlu", "acc", &number, &problem));
    assert_true(number == 0.25);
    assert_true(fl_run_reader_has(reader, "/tasks/mmlu") && fl_run_reader_has(reader, "/"));
    assert_false(fl_run_reader_has(reader, "/absent") || fl_run_reader_has(reader, "/a/b") ||
                 fl_run_reader_has(reader, "x"));
    fl_run_reader_close(reader);
    fl_temporary_remove(directory);
}

static fl_status collect(void *context, const char *path, size_t rank, const size_t *shape, fl_error *error) {
    return fl_text_builder_format(context, error, "%s %zu %zu\n", path, rank, rank > 0 ? shape[0] : 0);
}

static fl_status stop(void *context, const char *path, size_t rank, const size_t *shape, fl_error *error) {
    (void)context, (void)rank, (void)shape;
    return fl_error_set(error, FL_ERROR_CANCELLED, "stopped at %s", path);
}

static void test_datasets_are_visited_in_name_order(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    write_sample(directory, "a");
    fl_run_reader *reader = NULL;
    OK(fl_run_reader_open(path_in(directory, "a.h5"), &reader, &problem));
    fl_text_builder seen = {0};
    OK(fl_run_reader_visit(reader, collect, &seen, &problem));
    assert_string_equal(
        seen.text, "/config 0 0\n/empty 2 0\n/errors/teacher_forced/nmse 2 300\n/floats 2 2\n/integers 1 3\n"
                   "/language_model/kl 0 0\n/texts 1 3\n");
    fl_text_builder_release(&seen);
    fl_error error = {0};
    assert_int_equal(fl_run_reader_visit(reader, stop, NULL, &error), FL_ERROR_CANCELLED);
    assert_string_equal(error.message, "stopped at /config");
    fl_run_reader_close(reader);
    fl_temporary_remove(directory);
}

static void test_wrong_questions_get_clear_errors(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    write_sample(directory, "a");
    fl_run_reader *reader = NULL;
    OK(fl_run_reader_open(path_in(directory, "a.h5"), &reader, &problem));
    fl_error error = {0};
    double *data = NULL, number = 0;
    char *text = NULL;
    assert_int_equal(fl_run_reader_doubles(reader, "/nothing", &data, NULL, NULL, &error), FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "there is no /nothing"));
    assert_int_equal(fl_run_reader_doubles(reader, "/config", &data, NULL, NULL, &error), FL_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "/config: does not hold numbers"));
    assert_int_equal(fl_run_reader_doubles(reader, "/errors", &data, NULL, NULL, &error), FL_ERROR_FORMAT);
    assert_int_equal(fl_run_reader_text(reader, "/floats", &text, &error), FL_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "/floats: does not hold text"));
    assert_int_equal(fl_run_reader_text(reader, "/texts", &text, &error), FL_ERROR_FORMAT);
    assert_int_equal(fl_run_reader_attribute_text(reader, "/", "nothing", &text, &error), FL_ERROR_ARGUMENT);
    assert_int_equal(fl_run_reader_attribute_text(reader, "/", "version", &text, &error), FL_ERROR_FORMAT);
    assert_int_equal(fl_run_reader_attribute_number(reader, "/", "status", &number, &error), FL_ERROR_FORMAT);
    assert_int_equal(fl_run_reader_attribute_number(reader, "/no", "status", &number, &error),
                     FL_ERROR_ARGUMENT);
    assert_null(data);
    assert_null(text);
    fl_run_reader_close(reader);
    fl_temporary_remove(directory);
}

static void test_a_path_is_written_once_and_must_be_absolute(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_run_file *file = create(directory, "a");
    double x = 1;
    fl_error error = {0};
    OK(fl_run_file_write_doubles(file, "/x/y", 0, NULL, &x, "1", "", &problem));
    assert_int_equal(fl_run_file_write_doubles(file, "/x/y", 0, NULL, &x, "1", "", &error),
                     FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "/x/y is there already"));
    static const char *const bad[] = {"", "/", "x", "/x/", "//x", "/a//b"};
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(fl_run_file_write_doubles(file, bad[i], 0, NULL, &x, "1", "", &error),
                         FL_ERROR_ARGUMENT);
    }
    assert_int_equal(fl_run_file_write_doubles(file, "/x/y/z", 0, NULL, &x, "1", "", &error), FL_ERROR_IO);
    assert_int_equal(fl_run_file_write_doubles(file, "/r", 5, (size_t[]){1, 1, 1, 1, 1}, &x, "1", "", &error),
                     FL_ERROR_ARGUMENT);
    OK(fl_run_file_commit(file, &problem));
    fl_temporary_remove(directory);
}

static void test_a_large_attribute_is_sent_to_a_dataset(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_run_file *file = create(directory, "a");
    char *text = NULL;
    assert_int_equal(FL_ALLOCATE(&text, 100001, NULL), FL_OK);
    memset(text, 'x', 100000);
    fl_error error = {0};
    assert_int_equal(fl_run_file_set_text(file, "/", "environment", text, &error), FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "write a dataset"));
    OK(fl_run_file_write_text(file, "/environment", text, "long", &problem));
    OK(fl_run_file_commit(file, &problem));
    char *again = NULL;
    fl_run_reader *reader = NULL;
    OK(fl_run_reader_open(path_in(directory, "a.h5"), &reader, &problem));
    OK(fl_run_reader_text(reader, "/environment", &again, &problem));
    assert_string_equal(again, text);
    fl_memory_free(again);
    fl_memory_free(text);
    fl_run_reader_close(reader);
    fl_temporary_remove(directory);
}

static void test_discard_leaves_nothing(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_run_file *file = create(path_in(directory, "deep/er"), "a");
    double x = 1;
    OK(fl_run_file_write_doubles(file, "/x", 0, NULL, &x, "1", "", &problem));
    assert_int_equal(count_entries(path_in(directory, "deep/er")), 1);
    fl_run_file_discard(file);
    fl_run_file_discard(NULL);
    assert_int_equal(count_entries(path_in(directory, "deep/er")), 0);
    fl_temporary_remove(directory);
}

static void test_the_final_name_appears_only_at_commit_and_replaces_what_was_there(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    const char *final = path_in(directory, "a.h5");
    fl_write_file(final, "old", 3);
    fl_run_file *file = create(directory, "a");
    struct stat status;
    assert_int_equal(stat(final, &status), 0);
    assert_int_equal(status.st_size, 3);
    OK(fl_run_file_commit(file, &problem));
    assert_int_equal(stat(final, &status), 0);
    assert_true(status.st_size > 3);
    assert_int_equal(count_entries(directory), 1);
    fl_temporary_remove(directory);
}

static void test_the_same_content_is_the_same_bytes(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    write_sample(path_in(directory, "one"), "a");
    sleep(1); /* a time stamp inside would differ */
    write_sample(path_in(directory, "two"), "a");
    size_t first_bytes = 0, second_bytes = 0;
    char *first = fl_read_file(path_in(directory, "one/a.h5"), &first_bytes);
    char *second = fl_read_file(path_in(directory, "two/a.h5"), &second_bytes);
    assert_int_equal(first_bytes, second_bytes);
    assert_memory_equal(first, second, first_bytes);
    fl_memory_free(first);
    fl_memory_free(second);
    fl_temporary_remove(directory);
}

static void test_a_directory_that_cannot_be_made_is_an_io_error(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_write_file(path_in(directory, "file"), "x", 1);
    fl_run_file *file = NULL;
    fl_error error = {0};
    assert_int_equal(fl_run_file_create(path_in(directory, "file/below"), "a", &file, &error), FL_ERROR_IO);
    assert_null(file);
    assert_non_null(strstr(error.message, "file"));
    assert_int_equal(fl_run_file_create_at(path_in(directory, ""), &file, &error), FL_ERROR_ARGUMENT);
    fl_temporary_remove(directory);
}

static void test_missing_foreign_and_truncated_files_are_told_apart(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_run_reader *reader = NULL;
    fl_error error = {0};
    assert_int_equal(fl_run_reader_open(path_in(directory, "no.h5"), &reader, &error), FL_ERROR_IO);
    fl_write_file(path_in(directory, "text.h5"), "this is no HDF5 file", 20);
    assert_int_equal(fl_run_reader_open(path_in(directory, "text.h5"), &reader, &error), FL_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "no HDF5 file"));
    write_sample(directory, "a");
    size_t bytes = 0;
    char *whole = fl_read_file(path_in(directory, "a.h5"), &bytes);
    fl_write_file(path_in(directory, "half.h5"), whole, bytes / 2);
    assert_int_equal(fl_run_reader_open(path_in(directory, "half.h5"), &reader, &error), FL_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "not finished"));
    assert_null(reader);
    fl_memory_free(whole);
    fl_temporary_remove(directory);
}

static void test_a_file_cut_anywhere_is_refused(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    write_sample(directory, "a");
    size_t bytes = 0;
    char *whole = fl_read_file(path_in(directory, "a.h5"), &bytes);
    fl_random random;
    fl_random_seed(&random, 7, 0);
    for (int round = 0; round < 100; round++) {
        size_t kept = round < 20 ? bytes - 1 - (size_t)round : (size_t)fl_random_below(&random, bytes);
        fl_write_file(path_in(directory, "cut.h5"), whole, kept);
        fl_run_reader *reader = NULL;
        assert_int_equal(fl_run_reader_open(path_in(directory, "cut.h5"), &reader, NULL), FL_ERROR_FORMAT);
        assert_null(reader);
    }
    fl_memory_free(whole);
    fl_temporary_remove(directory);
}

static void test_a_flipped_bit_in_the_numbers_is_noticed(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    write_sample(directory, "a");
    const char *path = path_in(directory, "a.h5");
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t dataset = H5Dopen2(file, "/integers", H5P_DEFAULT);
    hid_t space = H5Dget_space(dataset);
    haddr_t address = 0;
    hsize_t stored = 0, offset[1];
    unsigned mask = 0;
    assert_true(H5Dget_chunk_info(dataset, space, 0, offset, &mask, &address, &stored) >= 0);
    H5Sclose(space);
    H5Dclose(dataset);
    H5Fclose(file);
    size_t bytes = 0;
    char *whole = fl_read_file(path, &bytes);
    whole[address + stored / 2] ^= 4;
    fl_write_file(path, whole, bytes);
    fl_run_reader *reader = NULL;
    OK(fl_run_reader_open(path, &reader, &problem));
    double *data = NULL;
    fl_error error = {0};
    assert_int_equal(fl_run_reader_doubles(reader, "/integers", &data, NULL, NULL, &error), FL_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "/integers: cannot read: "));
    OK(fl_run_reader_doubles(reader, "/floats", &data, NULL, NULL, &problem));
    fl_memory_free(data);
    fl_run_reader_close(reader);
    fl_memory_free(whole);
    fl_temporary_remove(directory);
}

static void test_a_lock_is_explained(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    write_sample(directory, "a");
    /* Another process with the file open for writing, as HDF5 itself locks it. */
    int ready[2], quit[2];
    assert_int_equal(pipe(ready) | pipe(quit), 0);
    pid_t child = fork();
    if (child == 0) {
        hid_t file = H5Fopen(path_in(directory, "a.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
        char byte = file >= 0;
        if (write(ready[1], &byte, 1) != 1 || read(quit[0], &byte, 1) != 1) _exit(1);
        _exit(0);
    }
    char byte = 0;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    fl_run_reader *reader = NULL;
    fl_error error = {0};
    fl_status status = fl_run_reader_open(path_in(directory, "a.h5"), &reader, &error);
    assert_int_equal(write(quit[1], &byte, 1), 1);
    waitpid(child, NULL, 0);
    assert_int_equal(status, FL_ERROR_FORMAT);
    if (strstr(error.message, "HDF5_USE_FILE_LOCKING") == NULL) fail_msg("%s", error.message);
    fl_temporary_remove(directory);
}

/* A limit on file size stands for a full disk. In a child, which ends as a program does: what HDF5 still
 * holds must not crash it. A smaller file fits afterwards. */
static void test_a_full_disk_leaves_nothing_behind(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        struct rlimit limit = {20000, 20000};
        setrlimit(RLIMIT_FSIZE, &limit);
        fl_run_file *file = NULL;
        if (fl_run_file_create(directory, "a", &file, NULL) != FL_OK) _exit(2);
        double *noise = NULL;
        size_t count = 100000;
        if (FL_ALLOCATE(&noise, count, NULL) != FL_OK) _exit(3);
        fl_random random;
        fl_random_seed(&random, 1, 0);
        for (size_t i = 0; i < count; i++) noise[i] = fl_random_normal(&random);
        fl_error error = {0};
        fl_status status = fl_run_file_write_doubles(file, "/noise", 1, &count, noise, "1", "", &error);
        if (status == FL_OK)
            status = fl_run_file_commit(file, &error);
        else
            fl_run_file_discard(file);
        if (status != FL_ERROR_IO || strstr(error.message, "a.h5: cannot write: ") == NULL) _exit(4);
        if (fl_run_file_create(directory, "b", &file, NULL) != FL_OK) _exit(5);
        if (fl_run_file_commit(file, NULL) != FL_OK || unlink(path_in(directory, "b.h5")) != 0) _exit(6);
        fl_memory_free(noise);
        exit(0);
    }
    int result = 0;
    waitpid(child, &result, 0);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
    assert_int_equal(count_entries(directory), 0);
    fl_temporary_remove(directory);
}

static void test_chunks_and_filters_are_as_promised(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    write_sample(directory, "a");
    hid_t file = H5Fopen(path_in(directory, "a.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t dataset = H5Dopen2(file, "/errors/teacher_forced/nmse", H5P_DEFAULT);
    hid_t list = H5Dget_create_plist(dataset);
    hsize_t chunk[2];
    assert_int_equal(H5Pget_layout(list), H5D_CHUNKED);
    assert_int_equal(H5Pget_chunk(list, 2, chunk), 2);
    hsize_t bytes = chunk[0] * chunk[1] * 8;
    assert_true(bytes <= 1 << 20 && bytes >= 10 << 10);
    assert_int_equal(chunk[1], COLUMNS);
    static const H5Z_filter_t filters[] = {H5Z_FILTER_SHUFFLE, H5Z_FILTER_DEFLATE, H5Z_FILTER_FLETCHER32};
    assert_int_equal(H5Pget_nfilters(list), 3);
    for (unsigned i = 0; i < 3; i++) {
        unsigned flags = 0, config = 0;
        size_t values = 0;
        assert_int_equal(H5Pget_filter2(list, i, &flags, &values, NULL, 0, NULL, &config), filters[i]);
    }
    H5Pclose(list);
    H5Dclose(dataset);
    dataset = H5Dopen2(file, "/language_model/kl", H5P_DEFAULT);
    list = H5Dget_create_plist(dataset);
    assert_int_equal(H5Pget_layout(list), H5D_CONTIGUOUS);
    H5Pclose(list);
    H5Dclose(dataset);
    H5Fclose(file);
    fl_temporary_remove(directory);
}

static const char *python(void) {
    const char *name = getenv("FROSTLINE_PYTHON");
    return name != NULL && name[0] != '\0' ? name : "python3";
}

static void test_h5py_reads_it_without_help(void **state) {
    (void)state;
    char command[2000];
    snprintf(command, sizeof command, "%s -c 'import h5py'", python());
    if (fl_run_command(command, NULL) != 0)
        fl_fixture_skip("test_h5py_reads_it_without_help", "Python with h5py");
    const char *directory = fl_temporary_directory();
    write_sample(directory, "a");
    static const char script[] =
        "import h5py, sys, math\n"
        "f = h5py.File(sys.argv[1], 'r')\n"
        "d = f['errors/teacher_forced/nmse']\n"
        "assert d.shape == (300, 700) and d.dtype == 'float64' and d.compression == 'gzip'\n"
        "assert d.shuffle and d.fletcher32 and math.isnan(d[0, 1]) and d[0, 2] == math.inf\n"
        "assert d.attrs['units'] == '1' and d.attrs['description'] == 'relative error'\n"
        "assert f['language_model/kl'][()] == 0.1 and f['floats'].dtype == 'float32'\n"
        "assert list(f['integers']) == [-2**63, 0, 2**63 - 1] and f['empty'].shape == (0, 5)\n"
        "assert f['config'].asstr()[()] == 'variant:\\n  rule: kda\\n'\n"
        "assert list(f['texts'].asstr()[:]) == ['gr\\u00f6\\u00dfe', '', '\\u65e5\\u672c']\n"
        "assert f.attrs['status'] == 'complete' and f.attrs['version'] == 1 and f['tasks/mmlu'].attrs['acc'] "
        "== 0.25\n"
        "print('fine')\n";
    fl_write_file(path_in(directory, "check.py"), script, strlen(script));
    snprintf(command, sizeof command, "%s %s %s", python(), path_in(directory, "check.py"),
             path_in(directory, "a.h5"));
    char *output = NULL;
    if (fl_run_command(command, &output) != 0 || strstr(output, "fine") == NULL) fail_msg("%s", output);
    fl_memory_free(output);
    fl_temporary_remove(directory);
}

static void test_h5dump_reads_it_without_help(void **state) {
    (void)state;
    if (fl_run_command("h5dump --version", NULL) != 0)
        fl_fixture_skip("test_h5dump_reads_it_without_help", "h5dump");
    const char *directory = fl_temporary_directory();
    write_sample(directory, "a");
    char command[2000], *output = NULL;
    snprintf(command, sizeof command, "h5dump -A %s && h5dump -d /texts -d /floats %s",
             path_in(directory, "a.h5"), path_in(directory, "a.h5"));
    int status = fl_run_command(command, &output);
    if (status != 0) fail_msg("%s", output);
    assert_non_null(strstr(output, "CSET H5T_CSET_UTF8"));
    assert_non_null(strstr(output, "\"relative error\""));
    assert_non_null(strstr(output, "STRSIZE 8;"));
    assert_non_null(strstr(output, "6.5"));
    fl_memory_free(output);
    fl_temporary_remove(directory);
}

static hid_t add_dataset(hid_t file, const char *name, hsize_t count, hid_t creation) {
    hid_t space = H5Screate_simple(1, &count, NULL);
    hid_t dataset = H5Dcreate2(file, name, H5T_IEEE_F64LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    assert_true(dataset >= 0);
    H5Dclose(dataset);
    H5Sclose(space);
    return creation;
}

static void expect_refusal(fl_run_reader *reader, const char *path, fl_status status, const char *text) {
    double *data = NULL;
    fl_error error = {0};
    assert_int_equal(fl_run_reader_doubles(reader, path, &data, NULL, NULL, &error), status);
    if (strstr(error.message, text) == NULL) fail_msg("%s", error.message);
    assert_null(data);
}

/* A stranger's file leads to other files, or says more than it holds. */
static void test_a_file_neither_leads_elsewhere_nor_says_more_than_it_holds(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    write_sample(directory, "a");
    write_sample(directory, "b");
    hid_t file = H5Fopen(path_in(directory, "a.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t outside = H5Pcreate(H5P_DATASET_CREATE), late = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t chunk = 1024;
    assert_true(H5Pset_external(outside, "/etc/passwd", 0, 80) >= 0);
    assert_true(H5Pset_chunk(late, 1, &chunk) >= 0);
    H5Pclose(add_dataset(file, "/outside", 10, outside));
    H5Pclose(add_dataset(file, "/huge", (hsize_t)1 << 30, late));
    assert_true(H5Lcreate_external(path_in(directory, "b.h5"), "/floats", file, "/linked", H5P_DEFAULT,
                                   H5P_DEFAULT) >= 0);
    assert_true(H5Lcreate_soft("/linked", file, "/soft", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    H5Fclose(file);
    fl_run_reader *reader = NULL;
    OK(fl_run_reader_open(path_in(directory, "a.h5"), &reader, &problem));
    expect_refusal(reader, "/outside", FL_ERROR_FORMAT, "/outside: its values lie in another file");
    expect_refusal(reader, "/huge", FL_ERROR_FORMAT, "/huge: its shape says more values than the file");
    expect_refusal(reader, "/linked", FL_ERROR_ARGUMENT, "there is no /linked");
    expect_refusal(reader, "/soft", FL_ERROR_ARGUMENT, "there is no /soft");
    fl_run_reader_close(reader);
    fl_temporary_remove(directory);
}

/* Each ends HDF5 1.10 by SIGSEGV where it is opened; another version may read it, or refuse it. */
static void test_files_that_crash_hdf5_are_damaged_files(void **state) {
    (void)state;
    static const char *const names[] = {"crash-open", "crash-list", "crash-read"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char relative[64];
        snprintf(relative, sizeof relative, "run_files/%s.h5", names[i]);
        fl_run_reader *reader = NULL;
        fl_error error = {0};
        if (fl_run_reader_open(fl_fixture_path(relative), &reader, &error) == FL_OK) {
            fl_run_reader_close(reader);
            continue;
        }
        assert_int_equal(error.status, FL_ERROR_FORMAT);
        assert_non_null(strstr(error.message, names[i]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read_back),
        cmocka_unit_test(test_datasets_are_visited_in_name_order),
        cmocka_unit_test(test_wrong_questions_get_clear_errors),
        cmocka_unit_test(test_a_path_is_written_once_and_must_be_absolute),
        cmocka_unit_test(test_a_large_attribute_is_sent_to_a_dataset),
        cmocka_unit_test(test_discard_leaves_nothing),
        cmocka_unit_test(test_the_final_name_appears_only_at_commit_and_replaces_what_was_there),
        cmocka_unit_test(test_the_same_content_is_the_same_bytes),
        cmocka_unit_test(test_a_directory_that_cannot_be_made_is_an_io_error),
        cmocka_unit_test(test_missing_foreign_and_truncated_files_are_told_apart),
        cmocka_unit_test(test_a_file_cut_anywhere_is_refused),
        cmocka_unit_test(test_a_flipped_bit_in_the_numbers_is_noticed),
        cmocka_unit_test(test_a_file_neither_leads_elsewhere_nor_says_more_than_it_holds),
        cmocka_unit_test(test_a_lock_is_explained),
        cmocka_unit_test(test_a_full_disk_leaves_nothing_behind),
        cmocka_unit_test(test_chunks_and_filters_are_as_promised),
        cmocka_unit_test(test_h5py_reads_it_without_help),
        cmocka_unit_test(test_h5dump_reads_it_without_help),
        cmocka_unit_test(test_files_that_crash_hdf5_are_damaged_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
