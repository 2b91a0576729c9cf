/* Which scenario holds now. Its files are looked at every 20 ms, and read again once changed. */
#include "fake.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOOK_EVERY_S 0.02
/* A call uses the scenario that it started with; it is freed after this many newer ones. Calls
 * never hold one while they sleep, so that even a delayed call is done with it long before. */
enum { KEPT = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct scenario *volatile current;
static struct scenario *kept[KEPT];
static int generations;
static volatile double looked_at_s;
static struct timespec scenario_mtime, override_mtime, pids_mtime;

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
double monotonic_s(void) { return seconds(CLOCK_MONOTONIC); }
double wall_s(void) { return seconds(CLOCK_REALTIME); }

void nap_us(double us) {
    struct timespec t = {(time_t)(us / 1e6), (long)(fmod(us, 1e6) * 1e3)};
    while (nanosleep(&t, &t) && errno == EINTR) {}
}

/* wall clock less monotonic clock, as this process began: a board goes on as before when somebody
 * sets the wall clock, only its time stamps follow */
static double began_at(void) {
    static double offset_s;
    if (!offset_s) offset_s = wall_s() - monotonic_s();
    return offset_s;
}

double scenario_time(const struct scenario *c) {
    return c->freeze >= 0 ? c->freeze : (began_at() + monotonic_s() - c->epoch) * c->speed;
}

double clock_set_s(void) { return round((wall_s() - monotonic_s() - began_at()) * 1e3) / 1e3; }

u64 stamp_us(const struct scenario *c, double t, double set_s) {
    return to_u64((c->epoch + t / (c->speed > 0 ? c->speed : 1) + set_s) * 1e6);
}

u64 wall_us(const struct scenario *c, double t) { return stamp_us(c, t, clock_set_s()); }

/* from the environment, else of the machine, as a test of a cluster lays it there for all */
static const char *scenario_file(void) {
    static const char MACHINE[] = "/run/fake-nvml.scn";
    const char *given = getenv("FAKE_NVML_SCENARIO");
    return given || access(MACHINE, R_OK) ? given : MACHINE;
}

static struct timespec mtime_of(const char *path) {
    struct stat s;
    struct timespec none = {0, 0};
    return path && *path && !stat(path, &s) ? s.st_mtim : none;
}

static int differ(struct timespec a, struct timespec b) {
    return a.tv_sec != b.tv_sec || a.tv_nsec != b.tv_nsec;
}

static int read_scenario(struct scenario *c, const char *path) {
    FILE *file = path && *path ? fopen(path, "r") : NULL;
    if (!file) return 0;
    parse_scenario(c, file);
    fclose(file);
    return 1;
}

static void read_pids(struct scenario *c, const char *scenario_path) {
    const char *given = getenv("FAKE_NVML_PIDS"), *slash;
    char relative[512];
    if (given && *given) {
        snprintf(c->pids_file, sizeof c->pids_file, "%s", given);
    } else if (c->pids_file[0] && c->pids_file[0] != '/' && scenario_path &&
               (slash = strrchr(scenario_path, '/'))) {
        memcpy(relative, c->pids_file, sizeof relative);
        snprintf(c->pids_file, sizeof c->pids_file, "%.*s/%s", (int)(slash - scenario_path),
                 scenario_path, relative);
    }
    pids_mtime = mtime_of(c->pids_file);
    FILE *file = c->pids_file[0] ? fopen(c->pids_file, "r") : NULL;
    if (!file) return;
    parse_pids(c, file);
    fclose(file);
}

/* 2 MB of which little is touched: mapped, so that programs are charged for that alone */
static struct scenario *new_scenario(void) {
    void *fresh = mmap(NULL, sizeof(struct scenario), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) abort();
    return fresh;
}

static void load(void) { /* lock held */
    const char *path = scenario_file(), *override = getenv("FAKE_NVML_OVERRIDE");
    const char *epoch = getenv("FAKE_NVML_EPOCH"), *freeze = getenv("FAKE_NVML_FREEZE");
    struct scenario *c = new_scenario();
    scenario_defaults(c);
    c->generation = ++generations;
    scenario_mtime = mtime_of(path);
    override_mtime = mtime_of(override);
    if (path && !strncmp(path, "preset:", 7)) {
        parse_preset(c, path + 7);
    } else if (read_scenario(c, path)) {
        if (c->epoch < 0)
            c->epoch = (double)scenario_mtime.tv_sec + (double)scenario_mtime.tv_nsec * 1e-9;
    } else {
        if (path) fprintf(stderr, "fake-nvml: cannot read %s\n", path);
        c->gpu_count = 1;
    }
    read_scenario(c, override);
    if (epoch) c->epoch = atof(epoch);
    if (freeze) c->freeze = atof(freeze);
    if (c->epoch < 0) c->epoch = floor((wall_s() - monotonic_s()) / 10) * 10; /* boot */
    read_pids(c, path);
    scenario_finish(c);
    if (kept[generations % KEPT]) munmap(kept[generations % KEPT], sizeof *c);
    kept[generations % KEPT] = c;
    __sync_synchronize();
    current = c;
}

static int files_changed(const struct scenario *c) {
    return differ(mtime_of(scenario_file()), scenario_mtime) ||
           differ(mtime_of(getenv("FAKE_NVML_OVERRIDE")), override_mtime) ||
           differ(mtime_of(c->pids_file), pids_mtime);
}

struct scenario *current_scenario(void) {
    double now = monotonic_s();
    if (current && now - looked_at_s < LOOK_EVERY_S) return current;
    pthread_mutex_lock(&lock);
    looked_at_s = now;
    if (!current || files_changed(current)) load();
    struct scenario *c = current;
    pthread_mutex_unlock(&lock);
    return c;
}

static int watch_folder_of(int fd, const char *path) {
    char folder[512] = "./";
    const char *slash = strrchr(path, '/');
    if (slash && (size_t)(slash - path) < sizeof folder - 1)
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + 1, path);
    return inotify_add_watch(fd, folder, IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE | IN_ATTRIB) >= 0;
}

int watch_scenario(void) {
    const char *paths[] = {scenario_file(), getenv("FAKE_NVML_OVERRIDE")};
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    for (int i = 0; fd >= 0 && i < 2; i++) {
        if (!paths[i] || !*paths[i] || !strncmp(paths[i], "preset:", 7)) continue;
        if (watch_folder_of(fd, paths[i])) continue;
        close(fd);
        fd = -1;
    }
    return fd;
}
