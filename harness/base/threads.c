#define _GNU_SOURCE
#include "harness/base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "harness/base/memory.h"

struct fl_threads {
    size_t count;
    size_t started; /* helper threads that run, at most count - 1 */
    pthread_t *helpers;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_cond_t finished;
    size_t generation;
    size_t running;
    bool quit;
    fl_threads_body body;
    void *context;
    size_t items;
    atomic_size_t next;
};

typedef struct {
    fl_threads *threads;
    size_t worker;
} fl_helper_start;

/* The pool whose body this thread is running, and as which worker. */
static _Thread_local const fl_threads *inside_pool;
static _Thread_local size_t inside_worker;

static void work(fl_threads *threads, size_t worker) {
    inside_pool = threads;
    inside_worker = worker;
    for (;;) {
        size_t item = atomic_fetch_add(&threads->next, 1);
        if (item >= threads->items) break;
        threads->body(threads->context, item, worker);
    }
    inside_pool = NULL;
}

static void *helper_main(void *argument) {
    fl_helper_start start = *(fl_helper_start *)argument;
    fl_memory_free(argument);
    fl_threads *threads = start.threads;
    size_t seen = 0;
    pthread_mutex_lock(&threads->lock);
    for (;;) {
        while (threads->generation == seen && !threads->quit)
            pthread_cond_wait(&threads->wake, &threads->lock);
        if (threads->quit) break;
        seen = threads->generation;
        pthread_mutex_unlock(&threads->lock);
        work(threads, start.worker);
        pthread_mutex_lock(&threads->lock);
        if (--threads->running == 0) pthread_cond_signal(&threads->finished);
    }
    pthread_mutex_unlock(&threads->lock);
    return NULL;
}

static size_t processors_allowed(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return (size_t)CPU_COUNT(&set);
    return 1;
}

fl_status fl_threads_create(size_t count, fl_threads **out, fl_error *error) {
    *out = NULL;
    fl_threads *threads = NULL;
    FL_TRY(FL_ALLOCATE(&threads, 1, error));
    threads->count = count == 0 ? processors_allowed() : count;
    pthread_mutex_init(&threads->lock, NULL);
    pthread_cond_init(&threads->wake, NULL);
    pthread_cond_init(&threads->finished, NULL);
    fl_status status = FL_ALLOCATE(&threads->helpers, threads->count, error);
    for (size_t i = 1; status == FL_OK && i < threads->count; i++) {
        fl_helper_start *start = NULL;
        status = FL_ALLOCATE(&start, 1, error);
        if (status != FL_OK) break;
        *start = (fl_helper_start){threads, i};
        if (pthread_create(&threads->helpers[threads->started], NULL, helper_main, start) != 0) {
            fl_memory_free(start);
            status =
                fl_error_set(error, FL_ERROR_MEMORY, "cannot start thread %zu of %zu", i + 1, threads->count);
            break;
        }
        threads->started++;
    }
    if (status != FL_OK) {
        fl_threads_destroy(threads);
        return status;
    }
    *out = threads;
    return FL_OK;
}

void fl_threads_destroy(fl_threads *threads) {
    if (threads == NULL) return;
    pthread_mutex_lock(&threads->lock);
    threads->quit = true;
    pthread_cond_broadcast(&threads->wake);
    pthread_mutex_unlock(&threads->lock);
    for (size_t i = 0; i < threads->started; i++) pthread_join(threads->helpers[i], NULL);
    pthread_cond_destroy(&threads->finished);
    pthread_cond_destroy(&threads->wake);
    pthread_mutex_destroy(&threads->lock);
    fl_memory_free(threads->helpers);
    fl_memory_free(threads);
}

size_t fl_threads_count(const fl_threads *threads) {
    return threads == NULL ? 1 : threads->count;
}

void fl_threads_for(fl_threads *threads, size_t items, fl_threads_body body, void *context) {
    if (threads == NULL || threads->started == 0 || items <= 1 || inside_pool != NULL) {
        size_t worker = inside_pool == threads ? inside_worker : 0;
        for (size_t i = 0; i < items; i++) body(context, i, worker);
        return;
    }
    pthread_mutex_lock(&threads->lock);
    threads->body = body;
    threads->context = context;
    threads->items = items;
    atomic_store(&threads->next, 0);
    threads->running = threads->started;
    threads->generation++;
    pthread_cond_broadcast(&threads->wake);
    pthread_mutex_unlock(&threads->lock);
    work(threads, 0);
    pthread_mutex_lock(&threads->lock);
    while (threads->running > 0) pthread_cond_wait(&threads->finished, &threads->lock);
    pthread_mutex_unlock(&threads->lock);
}
