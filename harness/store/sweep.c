#include "harness/store/sweep.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "harness/base/input_file.h"
#include "harness/base/memory.h"
#include "harness/store/folder.h"
#include "harness/store/provenance.h"
#include "harness/store/sweep_place.h"

/* What a cell leaves for good beside its run file, and what is added to the names of files that are being
 * replaced. */
#define MECHANISM ".mechanism.safetensors"
#define OLDER ".older"

enum { BEAT_SECONDS = 5, MAX_NOTE_BYTES = 1 << 16 };

struct fl_sweep_claim {
    int descriptor; /* of the claim file, which may meanwhile have lost its name to a successor */
    char *directory, *run_id;
    char *path;
    time_t last_beat;
};

const char *fl_sweep_state_name(fl_sweep_state state) {
    static const char *const names[] = {"missing", "running", "stale", "failed", "done"};
    return names[state];
}

static fl_status path_of(const char *directory, const char *run_id, const char *ending, char **path,
                         fl_error *error) {
    return fl_folder_format(path, error, "%s/%s%s", directory, run_id, ending);
}

static fl_status io_error(const char *path, const char *verb, fl_error *error) {
    return fl_error_set(error, fl_status_of_write(errno), "%s: cannot %s: %s%s", path, verb, strerror(errno),
                        fl_disk_explanation(errno));
}

static fl_status exists(const char *directory, const char *run_id, const char *ending, bool *out,
                        fl_error *error) {
    char *path = NULL;
    FL_TRY(path_of(directory, run_id, ending, &path, error));
    struct stat status;
    *out = stat(path, &status) == 0;
    fl_status result = *out || errno == ENOENT ? FL_OK : io_error(path, "look at", error);
    fl_memory_free(path);
    return result;
}

/* Notes are JSON objects of a few hundred bytes. *note = NULL when the file is not there; an unreadable one
 * is an empty object: it may be being written at this moment. */
static fl_status read_note(const char *path, cJSON **note, struct stat *status, fl_error *error) {
    *note = NULL;
    int descriptor;
    size_t size, bytes = 0;
    fl_status result = fl_input_open(path, &descriptor, &size, error);
    if (result != FL_OK) return result == FL_ERROR_IO && errno == ENOENT ? FL_OK : result;
    char *text = NULL;
    result = FL_ALLOCATE(&text, MAX_NOTE_BYTES, error);
    if (result == FL_OK) result = fl_input_next(descriptor, path, text, MAX_NOTE_BYTES - 1, &bytes, error);
    if (result == FL_OK && fstat(descriptor, status) != 0) result = io_error(path, "examine", error);
    close(descriptor);
    if (result == FL_OK) {
        *note = cJSON_ParseWithLength(text, bytes);
        if (*note == NULL) *note = cJSON_CreateObject();
        if (*note == NULL) result = fl_error_set(error, FL_ERROR_MEMORY, "%s: out of memory", path);
    }
    fl_memory_free(text);
    return result;
}

static const char *text_of(const cJSON *note, const char *name) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(note, name));
}

static bool place_of(const cJSON *note, fl_sweep_place *place) {
    const char *host = text_of(note, "host"), *machine = text_of(note, "machine"),
               *start = text_of(note, "process_start");
    const cJSON *process = cJSON_GetObjectItemCaseSensitive(note, "process");
    if (host == NULL || machine == NULL || start == NULL || !cJSON_IsNumber(process)) return false;
    snprintf(place->host, sizeof place->host, "%s", host);
    snprintf(place->machine, sizeof place->machine, "%s", machine);
    place->process = (long)process->valuedouble;
    place->process_start = strtoull(start, NULL, 10);
    return place->process > 0;
}

/* `now` is the time the file's times are compared with. */
static bool is_stale(const cJSON *note, const struct stat *status, time_t now, double stale_seconds) {
    fl_sweep_place place, here;
    fl_sweep_place_here(&here);
    if (place_of(note, &place) && strcmp(place.machine, here.machine) == 0)
        return !fl_sweep_place_lives(&place);
    return difftime(now, status->st_mtime) > stale_seconds;
}

static double limit_of(double stale_seconds) {
    return stale_seconds > 0.0 ? stale_seconds : FL_SWEEP_STALE_SECONDS;
}

/* Running, stale, or missing when there is no claim. */
static fl_status claim_state(const char *path, time_t now, double stale_seconds, fl_sweep_state *out,
                             fl_error *error) {
    cJSON *note = NULL;
    struct stat status;
    FL_TRY(read_note(path, &note, &status, error));
    *out = note == NULL                                  ? FL_SWEEP_MISSING
           : is_stale(note, &status, now, stale_seconds) ? FL_SWEEP_STALE
                                                         : FL_SWEEP_RUNNING;
    cJSON_Delete(note);
    return FL_OK;
}

fl_status fl_sweep_stamp_of(const char *directory, const char *run_id, fl_sweep_stamp *out, bool *there,
                            fl_error *error) {
    char *path = NULL;
    struct stat found;
    *out = (fl_sweep_stamp){0};
    FL_TRY(path_of(directory, run_id, ".h5", &path, error));
    *there = stat(path, &found) == 0;
    fl_status status = *there || errno == ENOENT ? FL_OK : io_error(path, "look at", error);
    fl_memory_free(path);
    if (status == FL_OK && *there) {
        *out = (fl_sweep_stamp){.device = found.st_dev,
                                .file = found.st_ino,
                                .bytes = (unsigned long long)found.st_size,
                                .seconds = found.st_mtim.tv_sec,
                                .nanoseconds = found.st_mtim.tv_nsec};
    }
    return status;
}

/* Whether there is a run file that stays: any but the one of `replaced`. */
static fl_status is_done(const char *directory, const char *run_id, const fl_sweep_stamp *replaced, bool *out,
                         fl_error *error) {
    fl_sweep_stamp now;
    FL_TRY(fl_sweep_stamp_of(directory, run_id, &now, out, error));
    if (*out && replaced != NULL) {
        *out = now.device != replaced->device || now.file != replaced->file || now.bytes != replaced->bytes ||
               now.seconds != replaced->seconds || now.nanoseconds != replaced->nanoseconds;
    }
    return FL_OK;
}

static fl_status state_of(const char *directory, const char *run_id, double stale_seconds,
                          const fl_sweep_stamp *replaced, fl_sweep_state *out, fl_error *error) {
    bool there = false;
    char *path = NULL;
    FL_TRY(is_done(directory, run_id, replaced, &there, error));
    if (there) {
        *out = FL_SWEEP_DONE;
        return FL_OK;
    }
    FL_TRY(path_of(directory, run_id, ".claim", &path, error));
    fl_status status = claim_state(path, time(NULL), limit_of(stale_seconds), out, error);
    fl_memory_free(path);
    if (status != FL_OK || *out != FL_SWEEP_MISSING) return status;
    FL_TRY(exists(directory, run_id, ".failed.json", &there, error));
    if (there) *out = FL_SWEEP_FAILED;
    return FL_OK;
}

fl_status fl_sweep_state_of(const char *directory, const char *run_id, double stale_seconds,
                            fl_sweep_state *out, fl_error *error) {
    return state_of(directory, run_id, stale_seconds, NULL, out, error);
}

static char *claim_text(void) {
    fl_sweep_place here;
    char start[32], now[FL_TIME_TEXT_BYTES];
    fl_sweep_place_here(&here);
    fl_provenance_now(now);
    snprintf(start, sizeof start, "%llu", here.process_start);
    cJSON *note = cJSON_CreateObject();
    bool ok = cJSON_AddStringToObject(note, "host", here.host) != NULL &&
              cJSON_AddStringToObject(note, "machine", here.machine) != NULL &&
              cJSON_AddNumberToObject(note, "process", (double)here.process) != NULL &&
              cJSON_AddStringToObject(note, "process_start", start) != NULL &&
              cJSON_AddStringToObject(note, "time", now) != NULL;
    char *text = ok ? cJSON_PrintUnformatted(note) : NULL;
    cJSON_Delete(note);
    return text;
}

static void destroy_claim(fl_sweep_claim *claim) {
    if (claim == NULL) return;
    if (claim->descriptor >= 0) close(claim->descriptor);
    fl_memory_free(claim->directory);
    fl_memory_free(claim->run_id);
    fl_memory_free(claim->path);
    fl_memory_free(claim);
}

/* The claim's text in a file of its own: *taken false when it was tidied away or made by another already. */
static fl_status write_claim(fl_sweep_claim *claim, const char *temporary, bool *taken, fl_error *error) {
    char *text = claim_text();
    size_t bytes = text != NULL ? strlen(text) : 0;
    fl_status status = FL_OK;
    *taken = false;
    if (text == NULL) return fl_error_set(error, FL_ERROR_MEMORY, "%s: out of memory", claim->path);
    claim->descriptor = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (claim->descriptor < 0) {
        status = errno == EEXIST ? FL_OK : io_error(temporary, "create", error);
    } else if (write(claim->descriptor, text, bytes) != (ssize_t)bytes) {
        status = io_error(temporary, "write", error);
        unlink(temporary);
    } else {
        *taken = true;
    }
    cJSON_free(text);
    return status;
}

/* File systems without hard links: rename would overwrite, so the name is made first, by exclusive creation.
 */
static fl_status take_without_link(fl_sweep_claim *claim, bool *taken, fl_error *error) {
    close(claim->descriptor);
    claim->descriptor = -1;
    return write_claim(claim, claim->path, taken, error);
}

/* A hard link decides: the claim appears with its text or not at all. *taken is false when somebody else was
 * faster. */
static fl_status take(fl_sweep_claim *claim, bool *taken, fl_error *error) {
    fl_sweep_place here;
    char *temporary = NULL;
    fl_sweep_place_here(&here);
    *taken = false;
    FL_TRY(fl_folder_format(&temporary, error, "%s/.%s.claim.part-%s-%ld", claim->directory, claim->run_id,
                            here.host, here.process));
    /* Left behind by a killed process that had this one's number. */
    unlink(temporary);
    fl_status status = write_claim(claim, temporary, taken, error);
    if (status == FL_OK && *taken && link(temporary, claim->path) != 0) {
        *taken = false;
        if (errno == EPERM || errno == ENOTSUP || errno == ENOSYS || errno == EMLINK)
            status = take_without_link(claim, taken, error);
        else if (errno != EEXIST && errno != ENOENT)
            status = io_error(claim->path, "create", error);
    }
    unlink(temporary);
    fl_memory_free(temporary);
    if (status == FL_OK && *taken) claim->last_beat = time(NULL);
    return status;
}

fl_status fl_sweep_lock(const char *directory, const char *name, int *lock, fl_error *error) {
    char *path = NULL;
    FL_TRY(fl_folder_format(&path, error, "%s/.%s.lock", directory, name));
    fl_status status = FL_OK;
    *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int got = -1;
    while (*lock >= 0 && (got = fcntl(*lock, F_SETLKW, &whole)) != 0 && errno == EINTR) continue;
    if (*lock < 0 || got != 0) {
        status = io_error(path, "lock", error);
        if (*lock >= 0) close(*lock);
        *lock = -1;
    }
    fl_memory_free(path);
    return status;
}

void fl_sweep_unlock(int lock) {
    if (lock >= 0) close(lock);
}

/* The file server's clock, which also dates heartbeats: ours may differ. */
static time_t server_time(int lock) {
    struct stat status;
    if (futimens(lock, NULL) != 0 || fstat(lock, &status) != 0) return time(NULL);
    return status.st_mtime;
}

/* Under the lock the claim is looked at again: another process may have inherited it since. */
static fl_status take_over(fl_sweep_claim *claim, double stale_seconds, bool *taken, fl_error *error) {
    int lock = -1;
    *taken = false;
    FL_TRY(fl_sweep_lock(claim->directory, "takeover", &lock, error));
    fl_sweep_state state = FL_SWEEP_MISSING;
    fl_status status = claim_state(claim->path, server_time(lock), stale_seconds, &state, error);
    if (status == FL_OK && state == FL_SWEEP_STALE && unlink(claim->path) != 0 && errno != ENOENT) {
        status = io_error(claim->path, "delete", error);
    }
    if (status == FL_OK && state != FL_SWEEP_RUNNING) status = take(claim, taken, error);
    fl_sweep_unlock(lock);
    return status;
}

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

/* Whether a name of the directory belongs to `run_id`; *rest = what follows the id. */
static bool is_of_run(const char *name, const char *run_id, const char **rest) {
    size_t bytes = strlen(run_id);
    if (name[0] == '.') name++;
    if (strncmp(name, run_id, bytes) != 0 || name[bytes] != '.') return false;
    *rest = name + bytes;
    return true;
}

/* Whether `rest` is a file that somebody has begun to write under a temporary name. */
static bool is_unfinished(const char *rest) {
    return starts_with(rest, ".h5.part-") || starts_with(rest, ".failed.part-") ||
           strstr(rest, ".safetensors.partial-") != NULL || strstr(rest, ".partial.part-") != NULL;
}

/* Whether `rest` has done its duty when the run file is there. */
static bool is_spent(const char *rest) {
    static const char stage[] = ".partial";
    const size_t bytes = strlen(rest), tail = sizeof stage - 1;
    if (bytes > tail && strcmp(rest + bytes - tail, stage) == 0) return true;
    return strcmp(rest, ".claim") == 0 || strcmp(rest, ".journal.jsonl") == 0 ||
           strcmp(rest, ".failed.json") == 0 || strcmp(rest, ".training.safetensors") == 0 ||
           strcmp(rest, ".h5" OLDER) == 0 || strcmp(rest, MECHANISM OLDER) == 0;
}

static void remove_files(const char *directory, const char *run_id, bool done) {
    DIR *folder = opendir(directory);
    if (folder == NULL) return;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        const char *rest = NULL;
        if (!is_of_run(entry->d_name, run_id, &rest)) continue;
        bool remove = is_unfinished(rest) || (done && (is_spent(rest) || starts_with(rest, ".claim.part-")));
        if (remove) unlinkat(dirfd(folder), entry->d_name, 0);
    }
    closedir(folder);
}

static fl_status new_claim(const char *directory, const char *run_id, fl_sweep_claim **out, fl_error *error) {
    fl_sweep_claim *claim = NULL;
    FL_TRY(FL_ALLOCATE(&claim, 1, error));
    claim->descriptor = -1;
    fl_status status = fl_memory_copy_string(&claim->directory, directory, error);
    if (status == FL_OK) status = fl_memory_copy_string(&claim->run_id, run_id, error);
    if (status == FL_OK) status = path_of(directory, run_id, ".claim", &claim->path, error);
    if (status == FL_OK)
        *out = claim;
    else
        destroy_claim(claim);
    return status;
}

/* What another process may have brought about between our look and our claim. */
static fl_status recheck(const fl_sweep_claim *claim, const fl_sweep_policy *policy,
                         const fl_sweep_stamp *replaced, fl_sweep_state *state, fl_error *error) {
    bool done = false, failed = false;
    FL_TRY(is_done(claim->directory, claim->run_id, replaced, &done, error));
    FL_TRY(exists(claim->directory, claim->run_id, ".failed.json", &failed, error));
    *state = done ? FL_SWEEP_DONE : failed && !policy->retry_failed ? FL_SWEEP_FAILED : FL_SWEEP_MISSING;
    return FL_OK;
}

static fl_status move(const fl_sweep_claim *claim, const char *from, const char *to, fl_error *error) {
    char *source = NULL, *target = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, path_of(claim->directory, claim->run_id, from, &source, error));
    FL_TRY_DONE(status, path_of(claim->directory, claim->run_id, to, &target, error));
    if (rename(source, target) != 0 && errno != ENOENT) status = io_error(source, "rename", error);
done:
    fl_memory_free(source);
    fl_memory_free(target);
    return status;
}

/* A second name, which keeps the content when the first is given to a new file. Without hard links the file
 * is moved. */
static fl_status keep(const fl_sweep_claim *claim, const char *from, const char *to, fl_error *error) {
    char *source = NULL, *target = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, path_of(claim->directory, claim->run_id, from, &source, error));
    FL_TRY_DONE(status, path_of(claim->directory, claim->run_id, to, &target, error));
    unlink(target);
    if (link(source, target) != 0 && errno != ENOENT) status = move(claim, from, to, error);
done:
    fl_memory_free(source);
    fl_memory_free(target);
    return status;
}

/* The run file last: as long as it has its name, the cell is done. A set-aside file of an earlier attempt
 * stays when there is no newer one. */
static fl_status set_aside(const fl_sweep_claim *claim, fl_error *error) {
    bool there = false;
    FL_TRY(exists(claim->directory, claim->run_id, ".h5", &there, error));
    if (!there) return FL_OK;
    FL_TRY(keep(claim, MECHANISM, MECHANISM OLDER, error));
    FL_TRY(move(claim, ".h5", ".h5" OLDER, error));
    return fl_folder_sync(claim->directory, error);
}

fl_status fl_sweep_claim_create(const char *directory, const char *run_id, const fl_sweep_policy *policy,
                                fl_sweep_claim **out, fl_sweep_state *state, fl_error *error) {
    return fl_sweep_claim_again(directory, run_id, policy, NULL, out, state, error);
}

fl_status fl_sweep_claim_again(const char *directory, const char *run_id, const fl_sweep_policy *policy,
                               const fl_sweep_stamp *replaced, fl_sweep_claim **out, fl_sweep_state *state,
                               fl_error *error) {
    *out = NULL;
    double stale_seconds = limit_of(policy->stale_seconds);
    FL_TRY(fl_folder_create(directory, error));
    FL_TRY(state_of(directory, run_id, stale_seconds, replaced, state, error));
    if (*state == FL_SWEEP_DONE || *state == FL_SWEEP_RUNNING) return FL_OK;
    if (*state == FL_SWEEP_FAILED && !policy->retry_failed) return FL_OK;

    fl_sweep_claim *claim = NULL;
    bool taken = false;
    FL_TRY(new_claim(directory, run_id, &claim, error));
    fl_status status = *state == FL_SWEEP_STALE ? take_over(claim, stale_seconds, &taken, error)
                                                : take(claim, &taken, error);
    if (status != FL_OK || !taken) {
        *state = FL_SWEEP_RUNNING;
        destroy_claim(claim);
        return status;
    }
    status = recheck(claim, policy, replaced, state, error);
    if (status == FL_OK && *state == FL_SWEEP_MISSING) status = set_aside(claim, error);
    if (status != FL_OK || *state != FL_SWEEP_MISSING) {
        fl_status released = fl_sweep_claim_release(claim, status == FL_OK ? error : NULL);
        return status == FL_OK ? released : status;
    }
    remove_files(directory, run_id, false);
    *out = claim;
    return FL_OK;
}

/* Whether the claim's name still leads to our file. */
static bool is_held(const fl_sweep_claim *claim) {
    struct stat ours, named;
    return fstat(claim->descriptor, &ours) == 0 && stat(claim->path, &named) == 0 &&
           ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

bool fl_sweep_claim_beat(fl_sweep_claim *claim) {
    time_t now = time(NULL);
    if (now >= claim->last_beat && now - claim->last_beat < BEAT_SECONDS) return true;
    claim->last_beat = now;
    futimens(claim->descriptor, NULL);
    return is_held(claim);
}

fl_status fl_sweep_claim_release(fl_sweep_claim *claim, fl_error *error) {
    if (claim == NULL) return FL_OK;
    fl_status status = FL_OK;
    bool done = false;
    char *failure = NULL;
    FL_TRY_DONE(status, exists(claim->directory, claim->run_id, ".h5", &done, error));
    FL_TRY_DONE(status, path_of(claim->directory, claim->run_id, ".failed.json", &failure, error));
    if (done && unlink(failure) != 0 && errno != ENOENT) status = io_error(failure, "delete", error);
done:
    if (is_held(claim)) {
        if (done) remove_files(claim->directory, claim->run_id, true);
        if (unlink(claim->path) != 0 && errno != ENOENT && status == FL_OK)
            status = io_error(claim->path, "delete", error);
    }
    fl_memory_free(failure);
    destroy_claim(claim);
    return status;
}

fl_status fl_sweep_restore(const char *directory, const char *run_id, const fl_sweep_policy *policy,
                           fl_error *error) {
    fl_sweep_policy any = *policy;
    fl_sweep_claim *claim = NULL;
    fl_sweep_state state = FL_SWEEP_MISSING;
    bool there = false;
    any.retry_failed = true;
    FL_TRY(exists(directory, run_id, ".h5" OLDER, &there, error));
    if (!there) return FL_OK;
    FL_TRY(fl_sweep_claim_create(directory, run_id, &any, &claim, &state, error));
    if (claim == NULL) return FL_OK;
    fl_status status = move(claim, MECHANISM OLDER, MECHANISM, error);
    if (status == FL_OK) status = move(claim, ".h5" OLDER, ".h5", error);
    fl_status released = fl_sweep_claim_release(claim, status == FL_OK ? error : NULL);
    return status == FL_OK ? released : status;
}

/* Whether a file of the directory is a trace of a finished cell that nobody works on. */
static fl_status is_trace(const char *directory, const char *name, time_t now, double stale_seconds,
                          bool *out, fl_error *error) {
    char run_id[128];
    const char *rest = NULL;
    const char *start = name[0] == '.' ? name + 1 : name;
    snprintf(run_id, sizeof run_id, "%.*s", (int)strcspn(start, "."), start);
    *out = false;
    if (run_id[0] == '\0' || !is_of_run(name, run_id, &rest)) return FL_OK;
    if (!is_unfinished(rest) && !is_spent(rest) && !starts_with(rest, ".claim.part-")) return FL_OK;
    FL_TRY(exists(directory, run_id, ".h5", out, error));
    if (!*out) return FL_OK;
    char *path = NULL;
    fl_sweep_state state = FL_SWEEP_RUNNING;
    FL_TRY(path_of(directory, run_id, ".claim", &path, error));
    fl_status status = claim_state(path, now, stale_seconds, &state, error);
    fl_memory_free(path);
    *out = status == FL_OK && state != FL_SWEEP_RUNNING;
    return status;
}

fl_status fl_sweep_tidy(const char *directory, double stale_seconds, fl_error *error) {
    int lock = -1;
    FL_TRY(fl_sweep_lock(directory, "takeover", &lock, error));
    DIR *folder = opendir(directory);
    fl_status status = folder != NULL ? FL_OK : io_error(directory, "open", error);
    const time_t now = server_time(lock);
    struct dirent *entry;
    while (status == FL_OK && (entry = readdir(folder)) != NULL) {
        bool trace = false;
        status = is_trace(directory, entry->d_name, now, limit_of(stale_seconds), &trace, error);
        if (trace) unlinkat(dirfd(folder), entry->d_name, 0);
    }
    if (folder != NULL) closedir(folder);
    fl_sweep_unlock(lock);
    return status;
}

static char *failure_text(const fl_error *cause, const char *log) {
    fl_sweep_place here;
    char now[FL_TIME_TEXT_BYTES];
    fl_sweep_place_here(&here);
    fl_provenance_now(now);
    cJSON *note = cJSON_CreateObject();
    bool ok = cJSON_AddStringToObject(note, "status", fl_status_name(cause->status)) != NULL &&
              cJSON_AddStringToObject(note, "message", cause->message) != NULL &&
              (log == NULL || cJSON_AddStringToObject(note, "log", log) != NULL) &&
              cJSON_AddStringToObject(note, "host", here.host) != NULL &&
              cJSON_AddNumberToObject(note, "process", (double)here.process) != NULL &&
              cJSON_AddStringToObject(note, "time", now) != NULL;
    char *text = ok ? cJSON_Print(note) : NULL;
    cJSON_Delete(note);
    return text;
}

static fl_status write_text(const char *path, const char *text, fl_error *error) {
    FILE *file = fopen(path, "wb");
    if (file == NULL) return io_error(path, "create", error);
    bool ok = fputs(text, file) >= 0 && fputc('\n', file) != EOF;
    ok = fclose(file) == 0 && ok;
    return ok ? FL_OK : io_error(path, "write", error);
}

fl_status fl_sweep_claim_fail(fl_sweep_claim *claim, const fl_error *cause, const char *log,
                              fl_error *error) {
    char *path = NULL, *temporary = NULL, *text = failure_text(cause, log);
    fl_status status =
        text != NULL ? FL_OK : fl_error_set(error, FL_ERROR_MEMORY, "%s: out of memory", claim->path);
    if (status != FL_OK) goto done;
    FL_TRY_DONE(status, path_of(claim->directory, claim->run_id, ".failed.json", &path, error));
    FL_TRY_DONE(status, fl_folder_format(&temporary, error, "%s/.%s.failed.part-%ld", claim->directory,
                                         claim->run_id, (long)getpid()));
    status = write_text(temporary, text, error);
    if (status == FL_OK) status = fl_folder_publish(temporary, path, error);
    if (status != FL_OK) unlink(temporary);
done:
    cJSON_free(text);
    fl_memory_free(temporary);
    fl_memory_free(path);
    return status;
}

static fl_status copy_field(const cJSON *note, const char *name, char **out, fl_error *error) {
    const char *text = text_of(note, name);
    return text == NULL ? FL_OK : fl_memory_copy_string(out, text, error);
}

static fl_status read_fields(const char *directory, const char *run_id, const char *ending,
                             fl_sweep_note *out, fl_error *error) {
    *out = (fl_sweep_note){0};
    char *path = NULL;
    cJSON *note = NULL;
    struct stat ignored;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, path_of(directory, run_id, ending, &path, error));
    FL_TRY_DONE(status, read_note(path, &note, &ignored, error));
    if (note == NULL) {
        status = fl_error_set(error, FL_ERROR_ARGUMENT, "%s: is not there", path);
        goto done;
    }
    const cJSON *process = cJSON_GetObjectItemCaseSensitive(note, "process");
    if (cJSON_IsNumber(process)) out->process = process->valuedouble;
    FL_TRY_DONE(status, copy_field(note, "status", &out->status, error));
    FL_TRY_DONE(status, copy_field(note, "message", &out->message, error));
    FL_TRY_DONE(status, copy_field(note, "log", &out->log, error));
    FL_TRY_DONE(status, copy_field(note, "host", &out->host, error));
    FL_TRY_DONE(status, copy_field(note, "time", &out->time, error));
done:
    if (status != FL_OK) fl_sweep_note_release(out);
    cJSON_Delete(note);
    fl_memory_free(path);
    return status;
}

fl_status fl_sweep_read_failure(const char *directory, const char *run_id, fl_sweep_note *out,
                                fl_error *error) {
    return read_fields(directory, run_id, ".failed.json", out, error);
}

fl_status fl_sweep_read_claim(const char *directory, const char *run_id, fl_sweep_note *out,
                              fl_error *error) {
    return read_fields(directory, run_id, ".claim", out, error);
}

void fl_sweep_note_release(fl_sweep_note *note) {
    fl_memory_free(note->status);
    fl_memory_free(note->message);
    fl_memory_free(note->log);
    fl_memory_free(note->host);
    fl_memory_free(note->time);
    *note = (fl_sweep_note){0};
}

static int compare_ids(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static fl_status add_id(char ***ids, size_t *count, size_t *room, const char *name, size_t bytes,
                        fl_error *error) {
    if (*count == *room) {
        FL_TRY(FL_RESIZE(ids, *room, *room == 0 ? 64 : 2 * *room, error));
        *room = *room == 0 ? 64 : 2 * *room;
    }
    FL_TRY(FL_ALLOCATE(&(*ids)[*count], bytes + 1, error));
    memcpy((*ids)[(*count)++], name, bytes);
    return FL_OK;
}

/* Ids of the names that end in one of `endings`, sorted, each once. */
static fl_status list_ids(const char *directory, const char *const *endings, size_t ending_count, char ***ids,
                          size_t *count, fl_error *error) {
    *ids = NULL;
    *count = 0;
    DIR *folder = opendir(directory);
    if (folder == NULL) return errno == ENOENT ? FL_OK : io_error(directory, "open", error);
    size_t room = 0;
    fl_status status = FL_OK;
    for (struct dirent *entry = readdir(folder); entry != NULL && status == FL_OK; entry = readdir(folder)) {
        size_t bytes = strlen(entry->d_name);
        for (size_t i = 0; i < ending_count && entry->d_name[0] != '.'; i++) {
            size_t tail = strlen(endings[i]);
            if (bytes <= tail || strcmp(entry->d_name + bytes - tail, endings[i]) != 0) continue;
            status = add_id(ids, count, &room, entry->d_name, bytes - tail, error);
            break;
        }
    }
    closedir(folder);
    if (status != FL_OK) {
        fl_sweep_list_release(*ids, *count);
        *ids = NULL;
        *count = 0;
        return status;
    }
    if (*count > 1) qsort(*ids, *count, sizeof **ids, compare_ids);
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        if (kept > 0 && strcmp((*ids)[i], (*ids)[kept - 1]) == 0)
            fl_memory_free((*ids)[i]);
        else
            (*ids)[kept++] = (*ids)[i];
    }
    *count = kept;
    return FL_OK;
}

fl_status fl_sweep_list_done(const char *directory, char ***ids, size_t *count, fl_error *error) {
    static const char *const endings[] = {".h5"};
    return list_ids(directory, endings, 1, ids, count, error);
}

fl_status fl_sweep_list_unfinished(const char *directory, char ***ids, size_t *count, fl_error *error) {
    static const char *const endings[] = {".claim", ".failed.json", ".journal.jsonl",
                                          ".training.safetensors"};
    FL_TRY(list_ids(directory, endings, sizeof endings / sizeof endings[0], ids, count, error));
    size_t kept = 0;
    fl_status status = FL_OK;
    for (size_t i = 0; i < *count; i++) {
        bool done = false;
        if (status == FL_OK) status = exists(directory, (*ids)[i], ".h5", &done, error);
        if (done)
            fl_memory_free((*ids)[i]);
        else
            (*ids)[kept++] = (*ids)[i];
    }
    *count = kept;
    if (status != FL_OK) {
        fl_sweep_list_release(*ids, *count);
        *ids = NULL;
        *count = 0;
    }
    return status;
}

void fl_sweep_list_release(char **ids, size_t count) {
    for (size_t i = 0; ids != NULL && i < count; i++) fl_memory_free(ids[i]);
    fl_memory_free(ids);
}
