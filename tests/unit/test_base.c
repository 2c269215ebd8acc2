/* The floor everything stands on: errors, memory, threads, hash, random numbers. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/base/child.h"
#include "harness/base/hash.h"
#include "harness/base/memory.h"
#include "harness/base/memory_limit.h"
#include "harness/base/random.h"
#include "harness/base/scratch_file.h"
#include "harness/base/status.h"
#include "harness/base/threads.h"
#include "tests/support/fixture.h"

static void test_error_keeps_the_place_when_context_is_added(void **state) {
    (void)state;
    fl_error error;
    assert_int_equal(fl_error_set(&error, FL_ERROR_FORMAT, "tensor %s: bad", "x"), FL_ERROR_FORMAT);
    assert_int_equal(fl_error_prepend(&error, FL_ERROR_FORMAT, "file %d", 7), FL_ERROR_FORMAT);
    assert_string_equal(error.message, "file 7: tensor x: bad");
    assert_int_equal(fl_error_set(NULL, FL_ERROR_IO, "nobody listens"), FL_ERROR_IO);
}

static void test_error_message_is_cut_not_overrun(void **state) {
    (void)state;
    fl_error error;
    char *text = malloc(3 * FL_ERROR_MESSAGE_BYTES);
    memset(text, 'a', 3 * FL_ERROR_MESSAGE_BYTES - 1);
    text[3 * FL_ERROR_MESSAGE_BYTES - 1] = '\0';
    fl_error_set(&error, FL_ERROR_IO, "%s", text);
    assert_int_equal(strlen(error.message), FL_ERROR_MESSAGE_BYTES - 1);
    fl_error_prepend(&error, FL_ERROR_IO, "%s", text);
    assert_int_equal(strlen(error.message), FL_ERROR_MESSAGE_BYTES - 1);
    free(text);
}

static void test_a_full_disk_is_called_so(void **state) {
    (void)state;
    assert_int_equal(fl_status_of_write(ENOSPC), FL_ERROR_DISK);
    assert_int_equal(fl_status_of_write(EACCES), FL_ERROR_IO);
    assert_string_equal(fl_disk_explanation(ENOSPC), ". The disk is full");
    assert_string_equal(fl_disk_explanation(EDQUOT), ". The quota of the disk is used up");
    assert_string_equal(fl_disk_explanation(EIO), "");
}

static void ends_well(void *context) {
    *(int *)context = 7; /* the child's copy */
}

static void crashes(void *context) {
    (void)context;
    raise(SIGSEGV);
}

static void test_a_crash_in_a_child_is_told_and_costs_nothing(void **state) {
    (void)state;
    int value = 3;
    assert_int_equal(fl_child_signal(ends_well, &value, 60), 0);
    assert_int_equal(value, 3);
    assert_int_equal(fl_child_signal(crashes, NULL, 60), SIGSEGV);
}

static void test_memory_is_aligned_zeroed_and_checked(void **state) {
    (void)state;
    float *block = NULL;
    assert_int_equal(FL_ALLOCATE(&block, 1000, NULL), FL_OK);
    assert_int_equal((uintptr_t)block % FL_MEMORY_ALIGNMENT, 0);
    for (int i = 0; i < 1000; i++) assert_true(block[i] == 0.0f);
    block[3] = 3.0f;
    assert_int_equal(FL_RESIZE(&block, 1000, 5000, NULL), FL_OK);
    assert_true(block[3] == 3.0f && block[4999] == 0.0f);
    fl_memory_free(block);
    fl_error error;
    assert_int_equal(FL_ALLOCATE(&block, SIZE_MAX / 2, &error), FL_ERROR_ARGUMENT);
    assert_null(block);
}

static void test_memory_hook_fails_the_nth_allocation_once(void **state) {
    (void)state;
    void *block = NULL;
    fl_memory_fail_at(2);
    assert_int_equal(fl_memory_allocate(&block, 1, 1, NULL), FL_OK);
    fl_memory_free(block);
    assert_int_equal(fl_memory_allocate(&block, 1, 1, NULL), FL_ERROR_MEMORY);
    assert_null(block);
    assert_int_equal(fl_memory_allocate(&block, 1, 1, NULL), FL_OK);
    fl_memory_free(block);
}

typedef struct {
    atomic_int hits[1000];
    fl_threads *threads;
    atomic_int nested;
} fl_counting;

static void count_nested(void *context, size_t item, size_t worker) {
    (void)item, (void)worker;
    atomic_fetch_add(&((fl_counting *)context)->nested, 1);
}

static void count_item(void *context, size_t item, size_t worker) {
    fl_counting *counting = context;
    assert_true(worker < fl_threads_count(counting->threads));
    atomic_fetch_add(&counting->hits[item], 1);
    if (item == 5) fl_threads_for(counting->threads, 10, count_nested, counting);
}

static void test_threads_run_every_item_once(void **state) {
    (void)state;
    for (size_t count = 1; count <= 5; count++) {
        fl_threads *threads = NULL;
        assert_int_equal(fl_threads_create(count, &threads, NULL), FL_OK);
        for (int round = 0; round < 50; round++) {
            static fl_counting counting;
            memset(&counting, 0, sizeof counting);
            counting.threads = threads;
            fl_threads_for(threads, 1000, count_item, &counting);
            for (int i = 0; i < 1000; i++) assert_int_equal(atomic_load(&counting.hits[i]), 1);
            assert_int_equal(atomic_load(&counting.nested), 10);
        }
        fl_threads_destroy(threads);
    }
}

static void test_hash_is_the_published_xxh3_and_streams(void **state) {
    (void)state;
    /* XXH3_128bits of the empty input, from the xxHash specification. */
    assert_string_equal(fl_hash_bytes("", 0).text, "99aa06d3014798d86001c324468d497f");
    fl_hash_stream *stream = NULL;
    assert_int_equal(fl_hash_stream_create(&stream, NULL), FL_OK);
    fl_hash_stream_add(stream, "frost", 5);
    fl_hash_stream_add(stream, "line", 4);
    assert_string_equal(fl_hash_stream_value(stream).text, fl_hash_bytes("frostline", 9).text);
    fl_hash_stream_destroy(stream);
    fl_error error;
    fl_hash hash;
    assert_int_equal(fl_hash_file("no/such/file", &hash, &error), FL_ERROR_IO);
    assert_non_null(strstr(error.message, "no/such/file"));
}

static void test_scratch_file_blocks_are_separate_zeroed_and_leave_no_name(void **state) {
    (void)state;
    fl_scratch_file *file = NULL;
    const char *folder = fl_temporary_directory();
    assert_int_equal(fl_scratch_file_create(folder, &file, NULL), FL_OK);
    void *blocks[20];
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(fl_scratch_file_add(file, 5000 + i, &blocks[i], NULL), FL_OK);
        for (size_t b = 0; b < 5000 + i; b++) assert_int_equal(((unsigned char *)blocks[i])[b], 0);
        memset(blocks[i], (int)i + 1, 5000 + i);
    }
    for (size_t i = 0; i < 20; i++) assert_int_equal(((unsigned char *)blocks[i])[4999], i + 1);
    assert_true(fl_scratch_file_bytes(file) >= 20 * 5000);
    assert_int_equal(rmdir(folder), 0); /* empty: the file has no name */
    fl_scratch_file_destroy(file);
    fl_error error = {0};
    assert_int_equal(fl_scratch_file_create(folder, &file, &error), FL_ERROR_IO);
    assert_non_null(strstr(error.message, folder));
    fl_temporary_remove(folder);
}

static void test_scratch_file_refuses_what_the_disk_cannot_hold(void **state) {
    (void)state;
    fl_scratch_file *file = NULL;
    fl_error error = {0};
    void *block = NULL, *kept = NULL;
    assert_int_equal(fl_scratch_file_create(NULL, &file, NULL), FL_OK);
    assert_int_equal(fl_scratch_file_add(file, 100, &kept, NULL), FL_OK);
    assert_int_equal(fl_scratch_file_add(file, SIZE_MAX, &block, &error), FL_ERROR_IO);
    assert_int_equal(fl_scratch_file_add(file, (size_t)1 << 60, &block, &error), FL_ERROR_IO);
    assert_null(block);
    ((char *)kept)[99] = 1;
    fl_scratch_file_destroy(file);
}

static void test_hash_of_a_folder_sees_names_and_contents(void **state) {
    (void)state;
    const char *folder = fl_temporary_directory();
    char path[1200];
    fl_hash empty, one, renamed, changed;
    assert_int_equal(fl_hash_path(folder, &empty, NULL), FL_OK);
    snprintf(path, sizeof path, "%s/a", folder);
    fl_write_file(path, "x", 1);
    assert_int_equal(fl_hash_path(folder, &one, NULL), FL_OK);
    fl_write_file(path, "y", 1);
    assert_int_equal(fl_hash_path(folder, &changed, NULL), FL_OK);
    fl_write_file(path, "x", 1);
    char other[1200];
    snprintf(other, sizeof other, "%s/b", folder);
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(fl_hash_path(folder, &renamed, NULL), FL_OK);
    assert_string_not_equal(empty.text, one.text);
    assert_string_not_equal(one.text, changed.text);
    assert_string_not_equal(one.text, renamed.text);
    fl_hash file, same;
    assert_int_equal(fl_hash_path(other, &file, NULL), FL_OK);
    assert_int_equal(fl_hash_file(other, &same, NULL), FL_OK);
    assert_string_equal(file.text, same.text);
    fl_error error;
    snprintf(path, sizeof path, "%s/missing", folder);
    assert_int_equal(fl_hash_path(path, &file, &error), FL_ERROR_IO);
    assert_non_null(strstr(error.message, "missing"));
    fl_temporary_remove(folder);
}

static void test_random_numbers_have_their_moments_and_repeat(void **state) {
    (void)state;
    fl_random a, b;
    fl_random_seed(&a, 1, 2);
    fl_random_seed(&b, 1, 2);
    double sum = 0, square = 0;
    for (int i = 0; i < 100000; i++) {
        double x = fl_random_normal(&a);
        assert_true(x == fl_random_normal(&b));
        sum += x;
        square += x * x;
    }
    assert_true(fabs(sum / 100000) < 0.02 && fabs(square / 100000 - 1) < 0.03);
    fl_random_seed(&b, 1, 3);
    assert_true(fl_random_next(&a) != fl_random_next(&b));
    for (int i = 0; i < 1000; i++) assert_true(fl_random_below(&a, 7) < 7);
}

/* Memory limit. */

static void write_inside(const char *root, const char *path, const char *text) {
    char command[1024];
    snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s%s')\" && printf '%s' > '%s%s'", root, path,
             text, root, path);
    assert_int_equal(fl_run_command(command, NULL), 0);
}

static void test_the_memory_limit_is_the_smallest_of_the_groups(void **state) {
    (void)state;
    const char *root = fl_temporary_directory();
    assert_true(fl_memory_limit_of_groups(root) == SIZE_MAX); /* no groups at all */
    write_inside(root, "/proc/self/cgroup", "0::/job/step\\n");
    write_inside(root, "/sys/fs/cgroup/job/step/memory.max", "max\\n");
    assert_true(fl_memory_limit_of_groups(root) == SIZE_MAX);
    write_inside(root, "/sys/fs/cgroup/job/memory.max", "419430400\\n"); /* the job's, above its step */
    assert_true(fl_memory_limit_of_groups(root) == 419430400);
    write_inside(root, "/sys/fs/cgroup/job/step/memory.max", "1000000\\n");
    assert_true(fl_memory_limit_of_groups(root) == 1000000);
    write_inside(root, "/proc/self/cgroup", "5:cpu,cpuacct:/\\n4:memory:/a\\n0::/\\n"); /* both hierarchies */
    write_inside(root, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2000000\\n");
    assert_true(fl_memory_limit_of_groups(root) == 2000000);
    write_inside(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                 "9223372036854771712\\n"); /* v1 for none */
    assert_true(fl_memory_limit_of_groups(root) == 2000000);
    write_inside(root, "/proc/self/cgroup",
                 "0::/../elsewhere\\n"); /* a container's view: only the mount counts */
    write_inside(root, "/sys/fs/cgroup/memory.max", "3000000\\n");
    assert_true(fl_memory_limit_of_groups(root) == 3000000);
    write_inside(root, "/proc/self/cgroup", "no such line\\n");
    assert_true(fl_memory_limit_of_groups(root) == SIZE_MAX);
    assert_true(fl_memory_limit() > 0);
    fl_temporary_remove(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_memory_limit_is_the_smallest_of_the_groups),
        cmocka_unit_test(test_error_keeps_the_place_when_context_is_added),
        cmocka_unit_test(test_error_message_is_cut_not_overrun),
        cmocka_unit_test(test_a_full_disk_is_called_so),
        cmocka_unit_test(test_a_crash_in_a_child_is_told_and_costs_nothing),
        cmocka_unit_test(test_memory_is_aligned_zeroed_and_checked),
        cmocka_unit_test(test_memory_hook_fails_the_nth_allocation_once),
        cmocka_unit_test(test_threads_run_every_item_once),
        cmocka_unit_test(test_hash_is_the_published_xxh3_and_streams),
        cmocka_unit_test(test_scratch_file_blocks_are_separate_zeroed_and_leave_no_name),
        cmocka_unit_test(test_scratch_file_refuses_what_the_disk_cannot_hold),
        cmocka_unit_test(test_hash_of_a_folder_sees_names_and_contents),
        cmocka_unit_test(test_random_numbers_have_their_moments_and_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
