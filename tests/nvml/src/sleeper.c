/* A stand-in for a job's process. Its arguments are free text, for `ps` to show;
 * SLEEPER_MB sets its resident MiB and SLEEPER_DUTY the percent of one CPU that it burns. */
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(void) {
    const char *mib = getenv("SLEEPER_MB"), *duty = getenv("SLEEPER_DUTY");
    double busy_ms = duty ? atof(duty) : 0; /* of every 100 ms */
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* a killed test leaves no stand-ins behind */
    if (mib) {
        size_t bytes = (size_t)atol(mib) << 20;
        volatile char *p = malloc(bytes); /* volatile: nobody reads it, and it must stay */
        for (size_t at = 0; p && at < bytes; at += 4096) p[at] = 1;
    }
    for (;;) {
        if (busy_ms <= 0) pause();
        for (double start = now_ms(); now_ms() - start < busy_ms;) {}
        usleep((useconds_t)((100 - busy_ms) * 1000));
    }
}
