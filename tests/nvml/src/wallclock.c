/* LD_PRELOAD: a wall clock that tests can set, for one process and the driver in it.
 *
 * FAKE_WALL_CLOCK names a file with one double, the seconds to add; it may change at any time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile double *added;

__attribute__((constructor)) static void map_file(void) {
    const char *path = getenv("FAKE_WALL_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *p = mmap(NULL, sizeof(double), PROT_READ, MAP_SHARED, fd, 0);
    if (p != MAP_FAILED) added = p;
    close(fd);
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *t) {
    int result = (int)syscall(SYS_clock_gettime, clock, t);
    if (result || !added || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return result;
    double s = floor(*added);
    t->tv_sec += (time_t)s;
    t->tv_nsec += (long)((*added - s) * 1e9);
    if (t->tv_nsec >= 1000000000L) {
        t->tv_nsec -= 1000000000L;
        t->tv_sec++;
    }
    return 0;
}

__attribute__((visibility("default"))) int gettimeofday(struct timeval *v, void *zone) {
    struct timespec t;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &t);
    v->tv_sec = t.tv_sec;
    v->tv_usec = t.tv_nsec / 1000;
    return result;
}

__attribute__((visibility("default"))) time_t time(time_t *out) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}
