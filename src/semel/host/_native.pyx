# cython: language_level=3, boundscheck=False
"""A few native threads that flush and read files and never take the GIL.

A Python thread that does nothing but fsync slows a socket loop 2.4 times, because it competes for the GIL at every call.
These threads know nothing of Python: jobs go in through a bounded ring, (id, errno) comes out through another, and an
eventfd wakes the loop.
"""

cdef extern from *:
    """
    #include <errno.h>
    #include <pthread.h>
    #include <signal.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/eventfd.h>
    #include <unistd.h>

    enum { SEMEL_FDATASYNC = 1, SEMEL_FSYNC = 2, SEMEL_WARM = 3, SEMEL_CLOSE = 4 };
    #define SEMEL_SCRATCH_BYTES (256 * 1024)
    #define SEMEL_MAX_THREADS 16

    typedef struct { uint64_t id; int kind; int fd; int64_t position; int64_t length; } semel_job;
    typedef struct { uint64_t id; int error; } semel_done;

    /* `unfinished` counts jobs from submit to collect and never exceeds `capacity`, so neither ring can overflow.
       The owner and every thread hold one reference each; whoever lets go last frees, so that a pool which is dropped
       without close() never pulls memory from under a thread. */
    typedef struct {
        pthread_mutex_t mutex;
        pthread_cond_t wake;
        semel_job *jobs;
        semel_done *done;
        size_t capacity, first_job, waiting, first_done, finished, unfinished;
        int references, stopping, event_fd, threads;
        pthread_t thread[SEMEL_MAX_THREADS];
    } semel_pool;

    /* How often the process was forked on its way here. `getpid` would tell a child as well, by a system call each time. */
    static int semel_forks;
    static void semel_forked(void) { semel_forks++; }
    static void semel_count_forks(void) { pthread_atfork(NULL, NULL, semel_forked); }

    static void semel_pool_release(semel_pool *pool) {
        pthread_mutex_lock(&pool->mutex);
        int left = --pool->references;
        pthread_mutex_unlock(&pool->mutex);
        if (left > 0) return;
        close(pool->event_fd);
        pthread_cond_destroy(&pool->wake);
        pthread_mutex_destroy(&pool->mutex);
        free(pool->jobs);
        free(pool->done);
        free(pool);
    }

    static int semel_do(const semel_job *job, char *scratch) {
        if (job->kind == SEMEL_FDATASYNC) return fdatasync(job->fd) ? errno : 0;
        if (job->kind == SEMEL_FSYNC) return fsync(job->fd) ? errno : 0;
        if (job->kind == SEMEL_CLOSE) return close(job->fd) ? errno : 0;
        int64_t position = job->position, left = job->length;
        while (left > 0) {
            ssize_t got = pread(job->fd, scratch, left < SEMEL_SCRATCH_BYTES ? left : SEMEL_SCRATCH_BYTES, position);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) return errno;
            if (got == 0) break;
            position += got;
            left -= got;
        }
        return 0;
    }

    static void semel_finish(semel_pool *pool, uint64_t id, int error) { /* with the mutex held */
        semel_done *slot = &pool->done[(pool->first_done + pool->finished++) % pool->capacity];
        slot->id = id;
        slot->error = error;
    }

    static void *semel_thread(void *argument) {
        semel_pool *pool = argument;
        char *scratch = malloc(SEMEL_SCRATCH_BYTES);
        pthread_mutex_lock(&pool->mutex);
        for (;;) {
            while (pool->waiting == 0 && !pool->stopping) pthread_cond_wait(&pool->wake, &pool->mutex);
            if (pool->stopping) break;
            semel_job job = pool->jobs[pool->first_job];
            pool->first_job = (pool->first_job + 1) % pool->capacity;
            pool->waiting--;
            pthread_mutex_unlock(&pool->mutex);
            int error = scratch ? semel_do(&job, scratch) : ENOMEM;
            pthread_mutex_lock(&pool->mutex);
            semel_finish(pool, job.id, error);
            if (pool->finished == 1) { /* the loop has nothing to collect yet: wake it; else it is awake already */
                uint64_t one = 1;
                /* Without the mutex, which the loop will want. It may have collected meanwhile, and then finds nothing. */
                pthread_mutex_unlock(&pool->mutex);
                ssize_t ignored = write(pool->event_fd, &one, sizeof one);
                (void)ignored;
                pthread_mutex_lock(&pool->mutex);
            }
        }
        pthread_mutex_unlock(&pool->mutex);
        free(scratch);
        semel_pool_release(pool);
        return NULL;
    }

    static void semel_pool_stop(semel_pool *pool) {
        pthread_mutex_lock(&pool->mutex);
        pool->stopping = 1;
        while (pool->waiting > 0) { /* what no thread has begun is cancelled, but a descriptor given to us is closed */
            semel_job *job = &pool->jobs[pool->first_job];
            if (job->kind == SEMEL_CLOSE) close(job->fd);
            semel_finish(pool, job->id, job->kind == SEMEL_CLOSE ? 0 : ECANCELED);
            pool->first_job = (pool->first_job + 1) % pool->capacity;
            pool->waiting--;
        }
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->mutex);
    }

    static semel_pool *semel_pool_start(int threads, size_t capacity) { /* NULL and errno when it cannot */
        semel_pool *pool = calloc(1, sizeof *pool);
        if (!pool) return NULL;
        pool->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        pool->jobs = calloc(capacity, sizeof *pool->jobs);
        pool->done = calloc(capacity, sizeof *pool->done);
        pool->capacity = capacity;
        pool->references = 1;
        pthread_mutex_init(&pool->mutex, NULL);
        pthread_cond_init(&pool->wake, NULL);
        int error = pool->event_fd < 0 ? errno : (!pool->jobs || !pool->done) ? ENOMEM : 0;
        if (!error) { /* signals are for Python's main thread */
            sigset_t all, before;
            sigfillset(&all);
            pthread_sigmask(SIG_SETMASK, &all, &before);
            for (; pool->threads < threads && !error; pool->threads += !error) {
                pthread_mutex_lock(&pool->mutex);
                error = pthread_create(&pool->thread[pool->threads], NULL, semel_thread, pool);
                pool->references += !error;
                pthread_mutex_unlock(&pool->mutex);
            }
            pthread_sigmask(SIG_SETMASK, &before, NULL);
        }
        if (!error) return pool;
        semel_pool_stop(pool);
        for (int i = 0; i < pool->threads; i++) pthread_detach(pool->thread[i]);
        semel_pool_release(pool);
        errno = error;
        return NULL;
    }

    static int semel_pool_submit(semel_pool *pool, uint64_t id, int kind, int fd, int64_t position, int64_t length) {
        int error = 0;
        pthread_mutex_lock(&pool->mutex);
        if (pool->stopping) error = ECANCELED;
        else if (pool->unfinished == pool->capacity) error = EAGAIN;
        else {
            semel_job *slot = &pool->jobs[(pool->first_job + pool->waiting++) % pool->capacity];
            slot->id = id; slot->kind = kind; slot->fd = fd; slot->position = position; slot->length = length;
            pool->unfinished++;
        }
        pthread_mutex_unlock(&pool->mutex);
        if (!error) pthread_cond_signal(&pool->wake); /* without the mutex, which the thread wants at once */
        return error;
    }

    static size_t semel_pool_collect(semel_pool *pool, semel_done *into, size_t room) {
        uint64_t count;
        pthread_mutex_lock(&pool->mutex);
        size_t taken = pool->finished < room ? pool->finished : room;
        for (size_t i = 0; i < taken; i++) into[i] = pool->done[(pool->first_done + i) % pool->capacity];
        pool->first_done = (pool->first_done + taken) % pool->capacity;
        pool->finished -= taken;
        pool->unfinished -= taken;
        if (pool->finished == 0) { /* under the mutex, so that no wake-up is lost between a finish and this read */
            ssize_t ignored = read(pool->event_fd, &count, sizeof count);
            (void)ignored;
        }
        pthread_mutex_unlock(&pool->mutex);
        return taken;
    }

    static void semel_pool_join(semel_pool *pool) {
        for (int i = 0; i < pool->threads; i++) pthread_join(pool->thread[i], NULL);
    }

    static void semel_pool_detach(semel_pool *pool) {
        for (int i = 0; i < pool->threads; i++) pthread_detach(pool->thread[i]);
    }
    """
    ctypedef unsigned long long uint64_t
    ctypedef long long int64_t
    ctypedef struct semel_done:
        uint64_t id
        int error
    ctypedef struct semel_pool:
        int event_fd
        size_t capacity
    int semel_forks
    void semel_count_forks()
    enum: SEMEL_FDATASYNC, SEMEL_FSYNC, SEMEL_WARM, SEMEL_CLOSE, SEMEL_MAX_THREADS
    semel_pool *semel_pool_start(int threads, size_t capacity) nogil
    int semel_pool_submit(semel_pool *pool, uint64_t id, int kind, int fd, int64_t position, int64_t length) nogil
    size_t semel_pool_collect(semel_pool *pool, semel_done *into, size_t room) nogil
    void semel_pool_stop(semel_pool *pool) nogil
    void semel_pool_join(semel_pool *pool) nogil
    void semel_pool_detach(semel_pool *pool) nogil
    void semel_pool_release(semel_pool *pool) nogil

from libc.errno cimport EAGAIN, errno

import os

FDATASYNC = SEMEL_FDATASYNC
FSYNC = SEMEL_FSYNC
WARM = SEMEL_WARM
CLOSE = SEMEL_CLOSE

semel_count_forks()


cdef class NativePool:
    """Threads, their rings and their eventfd. Owned by one process: a forked child has none of the threads."""

    cdef semel_pool *_pool
    cdef int _forks
    cdef uint64_t _last_id

    def __cinit__(self, int threads, size_t capacity):
        if not 1 <= threads <= SEMEL_MAX_THREADS or not 1 <= capacity <= 1 << 20:
            raise ValueError(f"a pool cannot have {threads} threads and room for {capacity} jobs")
        self._forks = semel_forks
        self._pool = semel_pool_start(threads, capacity)
        if self._pool is NULL:
            raise OSError(errno, os.strerror(errno))

    def __dealloc__(self):
        # Without close(): the threads finish what they are doing and free the pool; nothing waits for them.
        if self._pool is not NULL and self._forks == semel_forks:
            semel_pool_stop(self._pool)
            semel_pool_detach(self._pool)
            semel_pool_release(self._pool)

    cdef semel_pool *_usable(self) except NULL:
        if self._pool is NULL:
            raise ValueError("the pool is closed")
        if self._forks != semel_forks:
            raise RuntimeError("the pool belongs to the parent of this forked process")
        return self._pool

    def fileno(self) -> int:
        """The eventfd that becomes readable when there is something to collect."""
        return self._usable().event_fd

    def submit(self, int kind, int fd, int64_t position=0, int64_t length=0) -> int:
        """Queue a job and return its id, or 0 when the ring is full. The descriptor must stay open until collected."""
        cdef int error
        if kind < SEMEL_FDATASYNC or kind > SEMEL_CLOSE:
            raise ValueError(f"unknown kind of job {kind}")
        error = semel_pool_submit(self._usable(), self._last_id + 1, kind, fd, position, length)
        if error == EAGAIN:
            return 0
        if error:
            raise OSError(error, os.strerror(error))
        self._last_id += 1
        return self._last_id

    def collect(self) -> list:
        """The jobs that ended since the last call: (id, errno), errno 0 for success."""
        cdef semel_done taken[64]
        cdef size_t count, i
        cdef semel_pool *pool = self._usable()
        ended = []
        while True:
            count = semel_pool_collect(pool, taken, 64)
            for i in range(count):
                ended.append((taken[i].id, taken[i].error))
            if count < 64:
                return ended

    def close(self) -> list:
        """Wait for running jobs, cancel the others (ECANCELED), and return what was not collected yet."""
        if self._pool is NULL or self._forks != semel_forks:
            return []
        with nogil:
            semel_pool_stop(self._pool)
            semel_pool_join(self._pool)
        ended = self.collect()
        semel_pool_release(self._pool)
        self._pool = NULL
        return ended
