/* What every metric is at a time: the scenario's wave, else what follows from load and processes.
 *
 * Idle power, temperatures and the shares below are guesses of a plausible board. */
#include "fake.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

static double clamped(double x, double low, double high) {
    return x < low ? low : x > high ? high : x;
}

int is_na(const struct scenario *c, int gpu, enum metric m) {
    return c->gpu[gpu].wave[m].kind == WAVE_NA;
}

double period_start(const struct scenario *c, double t) {
    return c->sample_period_s > 0 ? floor(t / c->sample_period_s) * c->sample_period_s : t;
}

double metric_mean(const struct scenario *c, int gpu, enum metric m, double t, double span_s,
                   int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += metric_at(c, gpu, m, t - span_s * i / n);
    return sum / n;
}

static double mem_of_processes_mib(const struct scenario *c, int gpu, double t) {
    const struct gpu *g = &c->gpu[gpu];
    double sum = 4; /* an unused board shows a few MiB */
    for (int i = 0; i < g->process_count; i++) {
        const struct process *p = &g->process[i];
        if (p->mem.kind != WAVE_NA && is_active(c, p, t))
            sum += (double)process_mem_bytes(p, t) / (double)MIB;
    }
    return sum;
}

static double derived(const struct scenario *c, int gpu, enum metric m, double t) {
    const struct model *b = c->gpu[gpu].model;
    double util, share;
    switch (m) {
    case MEM: return mem_of_processes_mib(c, gpu, t);
    case POWER: /* lags the load by seconds, grows less than linearly */
        share = metric_mean(c, gpu, UTIL, t, 3, 4) / 100;
        return b->power_idle_w + (c->gpu[gpu].limit_w * 0.97 - b->power_idle_w) * pow(share, 0.8);
    case TEMP: return 29 + gpu % 4 + 37 * metric_mean(c, gpu, UTIL, t, 40, 8) / 100;
    case MEM_TEMP: return metric_at(c, gpu, TEMP, t) + 12;
    case FAN:
        return b->features & HAS_FAN ? 30 + 0.6 * (metric_at(c, gpu, TEMP, t) - 30) : 0;
    case BAR1: return 1 + metric_at(c, gpu, MEM, t) / 4096;
    case UTIL: case ENCODER: case DECODER: case JPG: case OFA: case GPM_FP64: case ECC_CORRECTED:
    case ECC_UNCORRECTED: case RETIRED_SBE: case RETIRED_DBE: case REMAP_CORRECTED:
    case REMAP_UNCORRECTED: case PCIE_REPLAY: case METRICS:
        return 0;
    default: break;
    }
    util = metric_at(c, gpu, UTIL, t);
    int idle = util < 1, full = util > 95;
    switch (m) {
    case MEM_UTIL: return util * 0.45;
    case SM_CLOCK: return idle ? b->sm_idle_mhz : full ? b->sm_mhz - 75 : b->sm_mhz;
    case MEM_CLOCK: return idle ? b->mem_idle_mhz : b->mem_mhz;
    case THROTTLE: return idle ? 0x1 : full ? 0x4 : 0; /* idle, software power cap */
    case PSTATE: return idle && b->mem_idle_mhz != b->mem_mhz ? 8 : 0;
    case PCIE_TX: return util * 9000; /* KB/s */
    case PCIE_RX: return util * 21000;
    case NVLINK_TX: case NVLINK_RX: return b->links ? util * 1.2e6 : 0; /* KiB/s, all links */
    case GPM_SM: return util * 0.78;
    case GPM_OCCUPANCY: return util * 0.42;
    case GPM_TENSOR: return util * 0.31;
    case GPM_DRAM: return util * 0.40;
    case GPM_FP32: return util * 0.12;
    case GPM_FP16: return util * 0.05;
    case GPM_INT: return util * 0.09;
    default: return 0;
    }
}

static int is_percent(enum metric m) {
    return m == UTIL || m == MEM_UTIL || (m >= ENCODER && m <= FAN) ||
           (m >= GPM_SM && m <= GPM_INT);
}

double metric_at(const struct scenario *c, int gpu, enum metric m, double t) {
    const struct gpu *g = &c->gpu[gpu];
    const struct wave *w = &g->wave[m];
    int given = w->kind != WAVE_UNSET && w->kind != WAVE_NA;
    double x = given ? wave_at(w, t, (uint)(gpu * 64 + (int)m)) : derived(c, gpu, m, t);
    if (!g->clamp) return x;
    if (is_percent(m)) return clamped(x, 0, 100);
    if (m == MEM) return clamped(x, 0, fmax(0, (double)g->total_mib - g->reserved_mib));
    return fmax(0, x);
}

/* -- counters ------------------------------------------------------------------------------ */
/* one running sum per board and metric, two more for the masks of throttling */
static struct { double t, sum; } running[MAX_GPUS][METRICS + 2];
static pthread_mutex_t running_lock = PTHREAD_MUTEX_INITIALIZER;

static double integrand(const struct scenario *c, int gpu, enum metric m, double t, uint mask) {
    double x = metric_at(c, gpu, m, t);
    return mask ? (to_uint(x) & mask) != 0 : x;
}

double integral(const struct scenario *c, int gpu, enum metric m, double t, uint mask) {
    int slot = !mask ? (int)m : mask == 0x4 ? METRICS : METRICS + 1;
    double step = fmax(0.25, t / 50000); /* the first call, days after t=0, must not take long */
    pthread_mutex_lock(&running_lock);
    double at = running[gpu][slot].t, sum = running[gpu][slot].sum;
    if (at > t) at = sum = 0; /* the clock was set back: a new scenario */
    while (at + step <= t) {
        sum += integrand(c, gpu, m, at + step / 2, mask) * step;
        at += step;
    }
    running[gpu][slot].t = at;
    running[gpu][slot].sum = sum;
    pthread_mutex_unlock(&running_lock);
    return sum + integrand(c, gpu, m, t, mask) * (t - at);
}

/* -- processes ----------------------------------------------------------------------------- */
static int exists(const struct scenario *c, uint pid) {
    return !c->reap || kill((pid_t)pid, 0) == 0 || errno == EPERM;
}

int is_active(const struct scenario *c, const struct process *p, double t) {
    return t >= p->from && t < p->to && exists(c, p->pid);
}

u64 process_mem_bytes(const struct process *p, double t) {
    return p->mem.kind == WAVE_NA ? NOT_AVAILABLE : to_u64(wave_at(&p->mem, t, p->pid) * MIB);
}

static int in_slice(const struct process *p, const struct slice *s) {
    return p->gi == s->gi && (p->ci == s->ci || p->ci == NO_ID);
}

static struct usage usage_of(const struct scenario *c, const struct gpu *g,
                             const struct process *p, double t, double share) {
    double q = period_start(c, t);
    double sm = p->sm.kind ? wave_at(&p->sm, q, p->pid) : share;
    double mem = p->mem_util.kind ? wave_at(&p->mem_util, q, p->pid) : sm * 0.45;
    return (struct usage){
        .pid = p->pid + (uint)c->pid_offset,
        .gi = g->mig_mode ? p->gi : NO_ID,
        .ci = !g->mig_mode ? NO_ID : p->ci == NO_ID ? 0 : p->ci,
        .type = p->type,
        .mem_bytes = process_mem_bytes(p, t),
        .sm = g->clamp ? clamped(sm, 0, 100) : sm,
        .mem = g->clamp ? clamped(mem, 0, 100) : mem,
        .encoder = wave_at(&p->encoder, t, 0),
        .decoder = wave_at(&p->decoder, t, 0),
    };
}

int list_usage(const struct scenario *c, int gpu, int slice, double t, const char *types,
               struct usage *out, int max) {
    const struct gpu *g = &c->gpu[gpu];
    char active[MAX_PROCESSES];
    int n = 0, active_count = 0;
    for (int i = 0; i < g->process_count; i++)
        active_count += active[i] = (char)is_active(c, &g->process[i], t);
    /* without figures of their own, processes share the board's load evenly */
    double share = active_count
                       ? metric_at(c, gpu, UTIL, period_start(c, t)) / active_count
                       : 0;
    for (int i = 0; i < g->process_count && n < max; i++) {
        const struct process *p = &g->process[i];
        if (!active[i] || !strchr(types, p->type)) continue;
        if (slice >= 0 && !in_slice(p, &g->slice[slice])) continue;
        out[n++] = usage_of(c, g, p, t, share);
    }
    return n;
}

/* -- memory and slices --------------------------------------------------------------------- */
static struct memory slice_memory(const struct scenario *c, const struct gpu *g,
                                  const struct slice *s, double t) {
    struct memory m = {.total = s->mem_mib * MIB};
    m.used = to_u64(12.5 * s->slices * (double)MIB); /* what an empty slice shows; a guess */
    for (int i = 0; i < g->process_count; i++) {
        const struct process *p = &g->process[i];
        if (in_slice(p, s) && p->mem.kind != WAVE_NA && is_active(c, p, t))
            m.used += process_mem_bytes(p, t);
    }
    if (m.used > m.total) m.used = m.total;
    return m;
}

struct memory memory_at(const struct scenario *c, int gpu, int slice, double t) {
    const struct gpu *g = &c->gpu[gpu];
    if (slice >= 0) return slice_memory(c, g, &g->slice[slice], t);
    return (struct memory){
        .total = g->total_mib * MIB,
        .reserved = g->reserved_mib * MIB,
        .used = to_u64(metric_at(c, gpu, MEM, t) * MIB),
    };
}

void slice_uuid(const struct scenario *c, int gpu, int slice, char *out, size_t n) {
    uint id = c->gpu[gpu].model->pci_id + (uint)gpu;
    uint a = hash3(id, slice, 11), b = hash3(id, slice, 12), d = hash3(id, slice, 13);
    snprintf(out, n, "MIG-%08x-%04x-5%03x-%04x-%08x%04x", a, b >> 16, b & 0xfff,
             0x8000 | d >> 18, d, a & 0xffff);
}
