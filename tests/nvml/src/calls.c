/* The frame round every NVML function: the call table, handles, sessions, faults. */
#include "calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* The call table as it lies in FAKE_NVML_STATS.<pid>; emulator.py reads it. */
struct slot {
    char name[96];
    u64 calls, errors, ns, first_ns, last_ns;
};
enum { MAX_SLOTS = 700 };
struct table {
    char magic[8];
    uint slots, pid;
    u64 start_ns, init_ns;
    char reserved[4064];
    struct slot slot[MAX_SLOTS];
};

static struct table local_table, *table;
static FILE *log_file;
static struct handle boards[MAX_GPUS], slices[MAX_GPUS][MAX_SLICES];
static int sessions;
static volatile double session_t; /* when the present session began, in scenario time */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static u64 monotonic_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (u64)t.tv_sec * 1000000000ULL + (u64)t.tv_nsec;
}

/* -- the call table ------------------------------------------------------------------------ */
static struct table *map_table(const char *prefix) {
    char path[512];
    snprintf(path, sizeof path, "%s.%d", prefix, getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0) return &local_table;
    void *p = MAP_FAILED;
    if (!ftruncate(fd, sizeof(struct table)))
        p = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p == MAP_FAILED ? &local_table : p;
}

static void open_table(void) { /* lock held */
    const char *prefix = getenv("FAKE_NVML_STATS"), *log = getenv("FAKE_NVML_LOG");
    table = prefix && *prefix ? map_table(prefix) : &local_table;
    if (log && *log) log_file = fopen(log, "a");
    memcpy(table->magic, "FNVMLST1", 8);
    table->pid = (uint)getpid();
    table->start_ns = monotonic_ns();
}

static struct slot *slot_of(const char *function) {
    uint i;
    pthread_mutex_lock(&lock);
    if (!table) open_table();
    for (i = 0; i < table->slots && strcmp(table->slot[i].name, function); i++) {}
    if (i == table->slots && i < MAX_SLOTS - 1) {
        snprintf(table->slot[i].name, sizeof table->slot[i].name, "%s", function);
        table->slots++;
    }
    pthread_mutex_unlock(&lock);
    return &table->slot[i];
}

/* -- which library this is: the text of the file `version` beside it, for `module` ---------- */
static const char *library_version(void) {
    static char version[80]; /* lock not held: every thread writes the same */
    char path[PATH_MAX + 16];
    Dl_info self;
    if (version[0] || !dladdr((void *)library_version, &self)) return version;
    snprintf(path, sizeof path, "%s", self.dli_fname);
    char *slash = strrchr(path, '/');
    if (!slash) return version;
    snprintf(slash + 1, sizeof path - (size_t)(slash + 1 - path), "version");
    FILE *file = fopen(path, "r");
    if (!file) return version;
    if (fscanf(file, "%79s", version) != 1) version[0] = 0;
    fclose(file);
    return version;
}

/* -- handles and sessions ------------------------------------------------------------------ */
Handle board_handle(int gpu) { return &boards[gpu]; }
Handle slice_handle(int gpu, int slice) { return &slices[gpu][slice]; }

static int is_element(const char *p, const void *array, size_t bytes) {
    const char *start = array;
    return p >= start && p < start + bytes && (size_t)(p - start) % sizeof(struct handle) == 0;
}

Handle checked_handle(void *p) {
    Handle h = p;
    if ((is_element(p, boards, sizeof boards) || is_element(p, slices, sizeof slices)) &&
        h->magic == MAGIC)
        return h;
    if (p && getenv("FAKE_NVML_STRICT")) {
        fprintf(stderr, "fake-nvml: bad handle %p\n", p);
        abort();
    }
    return NULL;
}

void spoil(void *out, size_t bytes, uint seed) {
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)out)[i] = (unsigned char)(hash3(seed, (uint)i, 99) >> 8 | 1);
}

int session_begin(void) {
    struct scenario *c = current_scenario();
    if (c->init_error) return c->init_error;
    if (c->module[0] && strcmp(c->module, library_version())) return LIB_RM_VERSION_MISMATCH;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_GPUS; i++) {
        boards[i] = (struct handle){MAGIC, i, -1};
        for (int j = 0; j < MAX_SLICES; j++) slices[i][j] = (struct handle){MAGIC, i, j};
    }
    if (sessions++ == 0) {
        session_t = scenario_time(c);
        look_at_device_files(c);
    }
    if (!table->init_ns) table->init_ns = monotonic_ns();
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int session_end(void) {
    pthread_mutex_lock(&lock);
    int result = sessions > 0 ? SUCCESS : UNINITIALIZED;
    if (sessions > 0) sessions--;
    pthread_mutex_unlock(&lock);
    return result;
}

/* -- begin and end ------------------------------------------------------------------------- */
static int resolve(struct call *call, const struct scenario *c, void *handle, enum call_kind kind,
                   int target_gpu) {
    call->gpu = call->slice = -1;
    if (kind == ON_LIBRARY) return SUCCESS;
    if (sessions <= 0) return UNINITIALIZED;
    if (kind == ON_SYSTEM) return SUCCESS;
    if (kind == ON_TARGET) {
        call->gpu = target_gpu < c->gpu_count ? target_gpu : -1;
        return SUCCESS;
    }
    Handle h = checked_handle(handle);
    if (!h || h->gpu >= c->gpu_count || h->slice >= c->gpu[h->gpu].slice_count)
        return INVALID_ARGUMENT;
    if (c->gpu[h->gpu].absent) return GPU_IS_LOST;
    call->gpu = h->gpu;
    call->slice = h->slice;
    return SUCCESS;
}

static struct verdict judge_call(struct call *call, struct call_site *site) {
    const struct scenario *c = current_scenario();
    if (site->generation != c->generation) {
        site->rules = matching_rules(c, call->function);
        site->generation = c->generation;
    }
    return judge(c, site->rules, call->gpu, call->slice, scenario_time(c), session_t,
                 call->nth);
}

int call_begin(struct call *call, struct call_site *site, const char *function, void *handle,
               enum call_kind kind, int target_gpu) {
    if (!site->slot) site->slot = slot_of(function);
    call->slot = site->slot;
    call->function = function;
    call->began_ns = monotonic_ns();
    call->nth = (uint)call->slot->calls;
    call->result = resolve(call, current_scenario(), handle, kind, target_gpu);
    if (call->result) return call->result;
    struct verdict v = call->verdict = judge_call(call, site);
    if (v.delay_us > 0) nap_us(v.delay_us);
    while (v.hang) pause(); /* for good: signals do not end it, only the end of the process */
    /* after the sleep, in which the scenario may have been replaced */
    call->scenario = current_scenario();
    call->t = scenario_time(call->scenario);
    call->result = resolve(call, call->scenario, handle, kind, target_gpu);
    if (call->result) return call->result;
    if (!v.code && kind == ON_BOARD && call->slice >= 0) v.code = INVALID_ARGUMENT;
    return call->result = v.code;
}

void call_end(struct call *call) {
    struct slot *s = call->slot;
    u64 now = monotonic_ns();
    __sync_fetch_and_add(&s->calls, 1);
    if (call->result) __sync_fetch_and_add(&s->errors, 1);
    __sync_fetch_and_add(&s->ns, now - call->began_ns);
    if (!s->first_ns) s->first_ns = call->began_ns;
    s->last_ns = now;
    if (!log_file) return;
    fprintf(log_file, "%.6f %d %s gpu=%d mig=%d ret=%d us=%.1f\n", wall_s(), getpid(),
            call->function, call->gpu, call->slice, call->result,
            (double)(now - call->began_ns) / 1e3);
    fflush(log_file);
}
