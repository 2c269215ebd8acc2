/* Sweep bookkeeping: every cell is claimed exactly once whatever processes race, die or inherit. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/store/sweep.h"
#include "harness/store/sweep_place.h"
#include "tests/support/fixture.h"

static fl_error problem;

#define OK(call)                                                                                             \
    do {                                                                                                     \
        if ((call) != FL_OK) fail_msg("%s", problem.message);                                                \
    } while (0)

static const fl_sweep_policy plain = {0};
static const fl_sweep_policy retry = {.retry_failed = true};

static const char *path_in(const char *directory, const char *id, const char *ending) {
    static char paths[4][600];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s%s", directory, id, ending);
    return path;
}

static void assert_state(const char *directory, const char *id, fl_sweep_state expected) {
    fl_sweep_state state = FL_SWEEP_MISSING;
    OK(fl_sweep_state_of(directory, id, 0, &state, &problem));
    assert_string_equal(fl_sweep_state_name(state), fl_sweep_state_name(expected));
}

static fl_sweep_claim *claim(const char *directory, const char *id, const fl_sweep_policy *policy,
                             fl_sweep_state *state) {
    fl_sweep_claim *out = NULL;
    OK(fl_sweep_claim_create(directory, id, policy, &out, state, &problem));
    return out;
}

static void touch(const char *path) {
    fl_write_file(path, "x", 1);
}

static bool is_there(const char *path) {
    return access(path, F_OK) == 0;
}

static void test_a_cell_goes_from_missing_to_running_to_done(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_sweep_state seen;
    assert_state(directory, "a", FL_SWEEP_MISSING);
    assert_state("not/there", "a", FL_SWEEP_MISSING);
    fl_sweep_claim *mine = claim(directory, "a", &plain, &seen);
    assert_non_null(mine);
    assert_state(directory, "a", FL_SWEEP_RUNNING);
    assert_null(claim(directory, "a", &plain, &seen));
    assert_int_equal(seen, FL_SWEEP_RUNNING);
    assert_true(fl_sweep_claim_beat(mine));
    touch(path_in(directory, "a", ".h5"));
    OK(fl_sweep_claim_release(mine, &problem));
    assert_state(directory, "a", FL_SWEEP_DONE);
    assert_null(claim(directory, "a", &retry, &seen));
    assert_int_equal(seen, FL_SWEEP_DONE);
    assert_false(is_there(path_in(directory, "a", ".claim")));
    fl_temporary_remove(directory);
}

static void test_a_released_cell_without_result_is_missing_again(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_sweep_state seen;
    OK(fl_sweep_claim_release(claim(directory, "a", &plain, &seen), &problem));
    assert_state(directory, "a", FL_SWEEP_MISSING);
    OK(fl_sweep_claim_release(NULL, &problem));
    fl_temporary_remove(directory);
}

static void test_a_failure_is_recorded_and_retried_only_on_request(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_sweep_state seen;
    fl_error cause;
    fl_error_set(&cause, FL_ERROR_NUMERIC, "layer 3: \"NaN\"\nand more");
    fl_sweep_claim *mine = claim(directory, "a", &plain, &seen);
    OK(fl_sweep_claim_fail(mine, &cause, "logs/a.log", &problem));
    assert_state(directory, "a", FL_SWEEP_RUNNING);
    OK(fl_sweep_claim_release(mine, &problem));
    assert_state(directory, "a", FL_SWEEP_FAILED);
    assert_null(claim(directory, "a", &plain, &seen));
    assert_int_equal(seen, FL_SWEEP_FAILED);
    fl_sweep_note note;
    OK(fl_sweep_read_failure(directory, "a", &note, &problem));
    assert_string_equal(note.status, "numeric");
    assert_string_equal(note.message, cause.message);
    assert_string_equal(note.log, "logs/a.log");
    assert_true(note.process == (double)getpid() && note.host != NULL && note.time != NULL);
    fl_sweep_note_release(&note);
    mine = claim(directory, "a", &retry, &seen);
    assert_non_null(mine);
    assert_state(directory, "a", FL_SWEEP_RUNNING);
    touch(path_in(directory, "a", ".h5"));
    OK(fl_sweep_claim_release(mine, &problem));
    assert_false(is_there(path_in(directory, "a", ".failed.json")));
    assert_int_equal(fl_sweep_read_failure(directory, "a", &note, &problem), FL_ERROR_ARGUMENT);
    fl_temporary_remove(directory);
}

/* Claims in a child that ends at once without letting go. */
static void leave_stale(const char *directory, const char *id) {
    pid_t child = fork();
    if (child == 0) {
        fl_sweep_claim *mine = NULL;
        fl_sweep_state seen;
        _exit(fl_sweep_claim_create(directory, id, &plain, &mine, &seen, NULL) == FL_OK && mine != NULL ? 0
                                                                                                        : 1);
    }
    int result = 0;
    waitpid(child, &result, 0);
    assert_int_equal(result, 0);
}

static void test_the_claim_of_a_dead_process_is_inherited(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_sweep_state seen;
    leave_stale(directory, "a");
    assert_state(directory, "a", FL_SWEEP_STALE);
    touch(path_in(directory, ".a", ".h5.part-123"));
    touch(path_in(directory, ".ab", ".h5.part-123"));
    fl_sweep_claim *mine = claim(directory, "a", &plain, &seen);
    assert_non_null(mine);
    assert_state(directory, "a", FL_SWEEP_RUNNING);
    assert_false(is_there(path_in(directory, ".a", ".h5.part-123")));
    assert_true(is_there(path_in(directory, ".ab", ".h5.part-123")));
    OK(fl_sweep_claim_release(mine, &problem));
    fl_temporary_remove(directory);
}

static void write_claim(const char *directory, const char *id, const char *machine, long process,
                        unsigned long long start, time_t age) {
    char text[1024];
    const char *path = path_in(directory, id, ".claim");
    snprintf(text, sizeof text,
             "{\"host\":\"h\",\"machine\":\"%s\",\"process\":%ld,\"process_start\":\"%llu\",\"time\":\"t\"}",
             machine, process, start);
    fl_write_file(path, text, strlen(text));
    struct timespec times[2] = {{time(NULL) - age, 0}, {time(NULL) - age, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void test_claims_of_other_machines_live_by_their_heartbeat(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_sweep_state seen;
    write_claim(directory, "fresh", "elsewhere", 1, 1, 10);
    write_claim(directory, "old", "elsewhere", 1, 1, 10000);
    assert_state(directory, "fresh", FL_SWEEP_RUNNING);
    assert_state(directory, "old", FL_SWEEP_STALE);
    OK(fl_sweep_state_of(directory, "fresh", 5, &seen, &problem));
    assert_int_equal(seen, FL_SWEEP_STALE);
    assert_null(claim(directory, "fresh", &plain, &seen));
    fl_sweep_claim *mine = claim(directory, "old", &plain, &seen);
    assert_non_null(mine);
    OK(fl_sweep_claim_release(mine, &problem));
    /* A claim whose text is not there yet was made this moment. */
    fl_write_file(path_in(directory, "empty", ".claim"), "", 0);
    assert_state(directory, "empty", FL_SWEEP_RUNNING);
    fl_sweep_note note;
    OK(fl_sweep_read_claim(directory, "fresh", &note, &problem));
    assert_string_equal(note.host, "h");
    fl_sweep_note_release(&note);
    fl_temporary_remove(directory);
}

static void test_a_later_process_with_the_same_number_does_not_keep_a_claim_alive(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_sweep_place here;
    fl_sweep_place_here(&here);
    if (here.process_start == 0) {
        fl_temporary_remove(directory);
        fl_fixture_skip("test_a_later_process_with_the_same_number_does_not_keep_a_claim_alive",
                        "/proc/<pid>/stat");
    }
    write_claim(directory, "mine", here.machine, here.process, here.process_start, 10000);
    write_claim(directory, "reused", here.machine, here.process, here.process_start + 1, 0);
    assert_state(directory, "mine", FL_SWEEP_RUNNING); /* alive, however long ago it gave a sign */
    assert_state(directory, "reused", FL_SWEEP_STALE);
    fl_temporary_remove(directory);
}

static void test_an_owner_learns_that_its_cell_was_taken_over(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_sweep_state seen;
    fl_sweep_claim *old = claim(directory, "a", &plain, &seen);
    unlink(path_in(directory, "a", ".claim"));
    fl_sweep_claim *new = claim(directory, "a", &plain, &seen);
    assert_non_null(new);
    bool held = true;
    for (int i = 0; i < 8 && held; i++) { /* the heartbeat is looked at every few seconds only */
        held = fl_sweep_claim_beat(old);
        if (held) nanosleep(&(struct timespec){1, 0}, NULL);
    }
    assert_false(held);
    OK(fl_sweep_claim_release(old, &problem));
    assert_state(directory, "a", FL_SWEEP_RUNNING); /* the new owner's claim is untouched */
    OK(fl_sweep_claim_release(new, &problem));
    fl_temporary_remove(directory);
}

enum { WORKERS = 8, CELLS = 40 };

/* Every worker walks all cells and appends the id of each it got to one file; O_APPEND keeps the lines whole.
 */
static void race(const char *directory, bool finish) {
    pid_t children[WORKERS];
    int gate[2], through[2], leave[2];
    assert_int_equal(pipe(gate) | pipe(through) | pipe(leave), 0);
    for (int w = 0; w < WORKERS; w++) {
        children[w] = fork();
        if (children[w] != 0) continue;
        char byte;
        close(gate[1]);
        close(leave[1]);
        if (read(gate[0], &byte, 1) != 0) _exit(1); /* all start when the parent closes the gate */
        int log = open(path_in(directory, "log", ".txt"), O_WRONLY | O_APPEND | O_CREAT, 0666);
        for (int c = 0; c < CELLS; c++) {
            char id[16], line[20];
            snprintf(id, sizeof id, "cell%02d", (c + w) % CELLS);
            fl_sweep_claim *mine = NULL;
            fl_sweep_state seen;
            if (fl_sweep_claim_create(directory, id, &plain, &mine, &seen, NULL) != FL_OK) _exit(2);
            if (mine == NULL) continue;
            snprintf(line, sizeof line, "%s\n", id);
            if (write(log, line, strlen(line)) != (ssize_t)strlen(line)) _exit(3);
            if (!finish) continue;
            close(open(path_in(directory, id, ".h5"), O_CREAT | O_WRONLY, 0666));
            if (fl_sweep_claim_release(mine, NULL) != FL_OK) _exit(4);
        }
        /* Claims that are not finished stay in the hands of a live process until all are through. */
        if (write(through[1], "x", 1) != 1 || read(leave[0], &byte, 1) != 0) _exit(5);
        _exit(0);
    }
    close(gate[0]);
    close(gate[1]);
    close(through[1]);
    char byte;
    for (int w = 0; w < WORKERS; w++) assert_int_equal(read(through[0], &byte, 1), 1);
    close(leave[1]);
    close(leave[0]);
    close(through[0]);
    for (int w = 0; w < WORKERS; w++) {
        int result = 0;
        waitpid(children[w], &result, 0);
        assert_int_equal(result, 0);
    }
    size_t bytes = 0;
    char *log = fl_read_file(path_in(directory, "log", ".txt"), &bytes);
    int times[CELLS] = {0};
    for (const char *line = log; *line != '\0'; line = strchr(line, '\n') + 1) times[atoi(line + 4)]++;
    for (int c = 0; c < CELLS; c++) {
        if (times[c] != 1) fail_msg("cell %d was claimed %d times", c, times[c]);
    }
    fl_memory_free(log);
}

static void test_eight_processes_claim_every_cell_exactly_once(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    race(directory, true);
    char **ids = NULL;
    size_t count = 0;
    OK(fl_sweep_list_done(directory, &ids, &count, &problem));
    assert_int_equal(count, CELLS);
    assert_string_equal(ids[0], "cell00");
    assert_string_equal(ids[CELLS - 1], "cell39");
    fl_sweep_list_release(ids, count);
    fl_temporary_remove(directory);
}

static void test_eight_processes_inherit_every_stale_cell_exactly_once(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    for (int c = 0; c < CELLS; c++) {
        char id[16];
        snprintf(id, sizeof id, "cell%02d", c);
        write_claim(directory, id, "elsewhere", 1, 1, 10000);
    }
    race(directory, false);
    fl_temporary_remove(directory);
}

static void test_only_finished_runs_are_listed(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    static const char *const names[] = {"b.h5",    "a.h5",         ".c.h5.part-7", ".h5", "d.journal.jsonl",
                                        "e.claim", "f.failed.json"};
    for (size_t i = 0; i < 7; i++) touch(path_in(directory, names[i], ""));
    char **ids = NULL;
    size_t count = 0;
    OK(fl_sweep_list_done(directory, &ids, &count, &problem));
    assert_int_equal(count, 2);
    assert_string_equal(ids[0], "a");
    assert_string_equal(ids[1], "b");
    fl_sweep_list_release(ids, count);
    OK(fl_sweep_list_done("not/there", &ids, &count, &problem));
    assert_int_equal(count, 0);
    fl_temporary_remove(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cell_goes_from_missing_to_running_to_done),
        cmocka_unit_test(test_a_released_cell_without_result_is_missing_again),
        cmocka_unit_test(test_a_failure_is_recorded_and_retried_only_on_request),
        cmocka_unit_test(test_the_claim_of_a_dead_process_is_inherited),
        cmocka_unit_test(test_claims_of_other_machines_live_by_their_heartbeat),
        cmocka_unit_test(test_a_later_process_with_the_same_number_does_not_keep_a_claim_alive),
        cmocka_unit_test(test_an_owner_learns_that_its_cell_was_taken_over),
        cmocka_unit_test(test_eight_processes_claim_every_cell_exactly_once),
        cmocka_unit_test(test_eight_processes_inherit_every_stale_cell_exactly_once),
        cmocka_unit_test(test_only_finished_runs_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
