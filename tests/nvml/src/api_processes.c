/* Who uses a board: process lists, their utilization, accounting. */
#include <math.h>
#include <string.h>

#include "calls.h"

/* -- lists: three versions of one struct, under one name over the years --------------------- */
static int running(const struct scenario *c, Handle d, double t, const char *types, int version,
                   uint *count, void *out) {
    struct usage list[MAX_PROCESSES];
    if (!count) return INVALID_ARGUMENT;
    uint n = (uint)list_usage(c, d->gpu, d->slice, t, types, list, MAX_PROCESSES);
    uint room = out ? *count : 0;
    *count = n;
    if (room < n) return INSUFFICIENT_SIZE;
    for (uint i = 0; i < n; i++) {
        const struct usage *u = &list[i];
        if (version == 1)
            ((ProcessInfoV1 *)out)[i] = (ProcessInfoV1){u->pid, u->mem_bytes};
        else
            ((ProcessInfoV2 *)out)[i] = (ProcessInfoV2){u->pid, u->mem_bytes, u->gi, u->ci};
    }
    return SUCCESS;
}

#define RUNNING(function, types, version)                               \
    API int function(Handle h, uint *count, void *out) {                \
        BEGIN_ANY(h);                                                   \
        uint room = count && out ? *count : 0;                          \
        int code = running(c, d, t, types, version, count, out);        \
        if (count) CLAIM_COUNT(count);                                  \
        if (!code) SPOIL(out, room * (version == 1 ? sizeof(ProcessInfoV1) : sizeof(ProcessInfoV2))); \
        RETURN(code);                                                   \
    }
RUNNING(nvmlDeviceGetComputeRunningProcesses, "C", 1)
RUNNING(nvmlDeviceGetComputeRunningProcesses_v2, "C", 2)
RUNNING(nvmlDeviceGetComputeRunningProcesses_v3, "C", 3)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses, "G", 1)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v2, "G", 2)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v3, "G", 3)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses, "M", 1)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses_v2, "M", 2)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses_v3, "M", 3)

API int nvmlDeviceGetRunningProcessDetailList(Handle h, ProcessDetailList *out) {
    static const char *const TYPES[] = {"C", "G", "M", "CGM"};
    BEGIN_ANY(h);
    REQUIRE(out);
    REQUIRE_VERSION(out, 1);
    REQUIRE(out->mode < 4);
    struct usage list[MAX_PROCESSES];
    uint n = (uint)list_usage(c, d->gpu, d->slice, t, TYPES[out->mode], list, MAX_PROCESSES);
    uint room = out->procArray ? out->numProcArrayEntries : 0;
    out->numProcArrayEntries = n;
    if (room < n) RETURN(INSUFFICIENT_SIZE);
    for (uint i = 0; i < n; i++)
        out->procArray[i] =
            (ProcessDetail){list[i].pid, list[i].mem_bytes, list[i].gi, list[i].ci, 0};
    RETURN(SUCCESS);
}

/* -- utilization ---------------------------------------------------------------------------- */
/* one sample a second for each process that did something, if newer than `last_us` */
static uint samples_since(const struct scenario *c, Handle d, double t, u64 last_us,
                          ProcessSampleInfo *out) {
    struct usage list[MAX_PROCESSES];
    int count = list_usage(c, d->gpu, d->slice, t, "CGM", list, MAX_PROCESSES);
    u64 stamp_us = wall_us(c, c->sample_period_s > 0 ? floor(t) : t);
    uint n = 0;
    if (stamp_us <= last_us) return 0;
    for (int i = 0; i < count; i++) {
        const struct usage *u = &list[i];
        if (u->sm < 0.5 && u->encoder < 0.5 && u->decoder < 0.5) continue;
        out[n++] = (ProcessSampleInfo){
            .timeStamp = stamp_us + (u64)i,
            .pid = u->pid,
            .smUtil = rounded(u->sm),
            .memUtil = rounded(u->mem),
            .encUtil = rounded(u->encoder),
            .decUtil = rounded(u->decoder),
        };
    }
    return n;
}

enum { BUFFER_ENTRIES = 100 }; /* the size that real drivers answer when asked for it */

API int nvmlDeviceGetProcessUtilization(Handle h, ProcessSample *out, uint *count, u64 last_us) {
    BEGIN_ANY(h);
    REQUIRE(count);
    SUPPORTED_IF(!g->mig_mode);
    ProcessSampleInfo list[MAX_PROCESSES];
    uint n = samples_since(c, d, t, last_us, list), room = out ? *count : 0;
    *count = room ? n : BUFFER_ENTRIES > n ? BUFFER_ENTRIES : n;
    CLAIM_COUNT(count);
    if (!room) RETURN(INSUFFICIENT_SIZE);
    if (!n) RETURN(NOT_FOUND);
    if (room < n) RETURN(INSUFFICIENT_SIZE);
    for (uint i = 0; i < n; i++) {
        const ProcessSampleInfo *s = &list[i];
        out[i] = (ProcessSample){s->pid,     s->timeStamp, s->smUtil,
                                 s->memUtil, s->encUtil,   s->decUtil};
    }
    SPOIL(out, n * sizeof *out);
    RETURN(SUCCESS);
}

API int nvmlDeviceGetProcessesUtilizationInfo(Handle h, ProcessSamplesInfo *out) {
    BEGIN_ANY(h);
    REQUIRE(out);
    REQUIRE_VERSION(out, 1);
    SUPPORTED_IF(!g->mig_mode);
    ProcessSampleInfo list[MAX_PROCESSES];
    uint n = samples_since(c, d, t, out->lastSeenTimeStamp, list);
    uint room = out->procUtilArray ? out->processSamplesCount : 0;
    out->processSamplesCount = room ? n : BUFFER_ENTRIES > n ? BUFFER_ENTRIES : n;
    if (!room) RETURN(INSUFFICIENT_SIZE);
    if (!n) RETURN(NOT_FOUND);
    if (room < n) RETURN(INSUFFICIENT_SIZE);
    memcpy(out->procUtilArray, list, n * sizeof *list);
    RETURN(SUCCESS);
}

/* -- accounting: what the driver remembers of every process, ended ones too ------------------ */
BOARD_UINT(nvmlDeviceGetAccountingMode, g->accounting)
BOARD_UINT(nvmlDeviceGetAccountingBufferSize, 4000)

API int nvmlDeviceGetAccountingPids(Handle h, uint *count, uint *out) {
    BEGIN(h);
    REQUIRE(count);
    SUPPORTED_IF(g->accounting);
    uint pids[MAX_PROCESSES], n = 0, room = out ? *count : 0;
    for (int i = 0; i < g->process_count; i++)
        if (t >= g->process[i].from) pids[n++] = g->process[i].pid;
    *count = n;
    if (room < n) RETURN(INSUFFICIENT_SIZE);
    if (n) memcpy(out, pids, n * sizeof *pids);
    RETURN(SUCCESS);
}

static AccountingStats account(const struct scenario *c, int gpu, const struct process *p,
                               double t) {
    enum { POINTS = 64 };
    double start = fmax(0, p->from), end = fmin(t, p->to), sm = 0;
    AccountingStats a = {0};
    for (int i = 0; i < POINTS; i++) {
        double x = start + (end - start) * i / POINTS;
        u64 mem = process_mem_bytes(p, x);
        sm += p->sm.kind ? wave_at(&p->sm, x, p->pid) : metric_at(c, gpu, UTIL, x);
        if (mem != NOT_AVAILABLE && mem > a.maxMemoryUsage) a.maxMemoryUsage = mem;
    }
    a.gpuUtilization = to_uint(sm / POINTS);
    a.memoryUtilization = to_uint(sm / POINTS * 0.45);
    a.isRunning = (uint)is_active(c, p, t);
    a.time = a.isRunning ? 0 : to_u64((end - start) * 1000); /* ms, only once it has ended */
    a.startTime = wall_us(c, start);
    return a;
}

API int nvmlDeviceGetAccountingStats(Handle h, uint pid, AccountingStats *out) {
    BEGIN(h);
    REQUIRE(out);
    SUPPORTED_IF(g->accounting);
    for (int i = 0; i < g->process_count; i++) {
        const struct process *p = &g->process[i];
        if (p->pid != pid || t < p->from) continue;
        *out = account(c, d->gpu, p, t);
        RETURN(SUCCESS);
    }
    RETURN(NOT_FOUND);
}
