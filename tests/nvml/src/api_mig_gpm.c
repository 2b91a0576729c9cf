/* MIG instances, and the GPU performance monitoring (GPM) of Hopper and later. */
#include <stdlib.h>
#include <string.h>

#include "calls.h"

/* -- MIG ------------------------------------------------------------------------------------ */
API int nvmlDeviceGetMigMode(Handle h, uint *current, uint *pending) {
    BEGIN(h);
    REQUIRE(current && pending);
    SUPPORTED_IF(g->model->features & HAS_MIG);
    *current = *pending = (uint)g->mig_mode;
    SPOIL(current, sizeof *current);
    RETURN(SUCCESS);
}

enum { MAX_INSTANCES = 7 };
API int nvmlDeviceGetMaxMigDeviceCount(Handle h, uint *out) {
    BEGIN(h);
    REQUIRE(out);
    CLAIM_COUNT(out);
    *out = g->mig_mode ? MAX_INSTANCES : 0;
    RETURN(SUCCESS);
}
API int nvmlDeviceGetMigDeviceHandleByIndex(Handle h, uint index, Handle *out) {
    BEGIN(h);
    REQUIRE(out);
    SUPPORTED_IF(g->mig_mode);
    REQUIRE(index < MAX_INSTANCES);
    if (index >= (uint)g->slice_count) RETURN(NOT_FOUND);
    *out = slice_handle(d->gpu, (int)index);
    RETURN(SUCCESS);
}
API int nvmlDeviceIsMigDeviceHandle(Handle h, uint *out) {
    BEGIN_ANY(h);
    REQUIRE(out);
    *out = d->slice >= 0;
    RETURN(SUCCESS);
}
API int nvmlDeviceGetGpuInstanceId(Handle h, uint *out) {
    BEGIN_ANY(h);
    REQUIRE(out);
    SUPPORTED_IF(d->slice >= 0);
    *out = g->slice[d->slice].gi;
    RETURN(SUCCESS);
}
API int nvmlDeviceGetComputeInstanceId(Handle h, uint *out) {
    BEGIN_ANY(h);
    REQUIRE(out);
    SUPPORTED_IF(d->slice >= 0);
    *out = g->slice[d->slice].ci;
    RETURN(SUCCESS);
}
API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Handle h, Handle *out) {
    BEGIN_ANY(h);
    REQUIRE(out && d->slice >= 0);
    *out = board_handle(d->gpu);
    RETURN(SUCCESS);
}

#define ATTRIBUTES(function)                                                      \
    API int function(Handle h, Attributes *out) {                                 \
        BEGIN_ANY(h);                                                             \
        REQUIRE(out);                                                             \
        SUPPORTED_IF(d->slice >= 0);                                              \
        const struct slice *s = &g->slice[d->slice];                              \
        *out = (Attributes){.multiprocessorCount = s->sms,                        \
                            .sharedCopyEngineCount = s->slices,                   \
                            .sharedDecoderCount = s->slices / 2,                  \
                            .gpuInstanceSliceCount = s->slices,                   \
                            .computeInstanceSliceCount = s->slices,               \
                            .memorySizeMB = s->mem_mib};                          \
        RETURN(SUCCESS);                                                          \
    }
ATTRIBUTES(nvmlDeviceGetAttributes_v2)
ATTRIBUTES(nvmlDeviceGetAttributes)

/* -- GPM ------------------------------------------------------------------------------------ */
struct gpm_sample {
    uint magic;
    int gpu;
    double t;
};

API int nvmlGpmQueryDeviceSupport(Handle h, GpmSupport *out) {
    BEGIN_ANY(h);
    REQUIRE(out);
    if (out->version != 1) RETURN(ARGUMENT_VERSION_MISMATCH);
    out->isSupportedDevice = !!(g->model->features & HAS_GPM);
    RETURN(SUCCESS);
}
API int nvmlGpmSampleAlloc(struct gpm_sample **out) {
    BEGIN_SYSTEM();
    REQUIRE(out);
    *out = calloc(1, sizeof **out);
    if (!*out) RETURN(OUT_OF_MEMORY);
    (*out)->magic = MAGIC;
    (*out)->gpu = -1;
    RETURN(SUCCESS);
}
API int nvmlGpmSampleFree(struct gpm_sample *sample) {
    BEGIN_SYSTEM();
    REQUIRE(sample);
    free(sample);
    RETURN(SUCCESS);
}
API int nvmlGpmSampleGet(Handle h, struct gpm_sample *sample) {
    BEGIN_ANY(h);
    REQUIRE(sample);
    SUPPORTED_IF(g->model->features & HAS_GPM);
    sample->gpu = d->gpu;
    sample->t = t;
    RETURN(SUCCESS);
}
API int nvmlGpmMigSampleGet(Handle h, uint gi, struct gpm_sample *sample) {
    BEGIN(h);
    (void)gi;
    REQUIRE(sample);
    SUPPORTED_IF(g->model->features & HAS_GPM);
    sample->gpu = d->gpu;
    sample->t = t;
    RETURN(SUCCESS);
}

/* which metric a GPM id shows, and its scale; slices show the whole board's (a guess) */
static const struct {
    uint id;
    enum metric metric;
    double scale;
} GPM[] = {
    {1, UTIL, 1},         {2, GPM_SM, 1},       {3, GPM_OCCUPANCY, 1}, {4, GPM_INT, 1},
    {5, GPM_TENSOR, 1},   {6, GPM_FP64, 0.1},   {7, GPM_TENSOR, 0.97}, {10, GPM_DRAM, 1},
    {11, GPM_FP64, 1},    {12, GPM_FP32, 1},    {13, GPM_FP16, 1},     {20, PCIE_TX, 1 / 1024.0},
    {21, PCIE_RX, 1 / 1024.0}, {30, DECODER, 1}, {40, JPG, 1},         {50, OFA, 1},
    {60, NVLINK_RX, 1 / 1024.0}, {61, NVLINK_TX, 1 / 1024.0},
};
enum { DMMA = 8, IMMA = 9 }; /* tensor pipes that nothing uses */

static double mean_between(const struct scenario *c, int gpu, enum metric m, double from,
                           double to) {
    enum { POINTS = 8 };
    double sum = 0;
    for (int i = 0; i < POINTS; i++)
        sum += metric_at(c, gpu, m, from + (to - from) * (i + 0.5) / POINTS);
    return sum / POINTS;
}

static void read_gpm(const struct scenario *c, int gpu, double from, double to, GpmMetric *out) {
    out->nvmlReturn = out->metricId && out->metricId < GPM_METRIC_MAX ? NOT_SUPPORTED
                                                                      : INVALID_ARGUMENT;
    out->value = 0;
    memset(&out->metricInfo, 0, sizeof out->metricInfo);
    if (out->metricId == DMMA || out->metricId == IMMA) out->nvmlReturn = SUCCESS;
    for (size_t i = 0; i < sizeof GPM / sizeof *GPM; i++) {
        if (GPM[i].id != out->metricId || is_na(c, gpu, GPM[i].metric)) continue;
        out->nvmlReturn = SUCCESS;
        out->value = mean_between(c, gpu, GPM[i].metric, from, to) * GPM[i].scale;
        out->metricInfo.shortName = out->metricInfo.longName = (char *)METRIC_NAME[GPM[i].metric];
        out->metricInfo.unit = GPM[i].scale < 0.01 ? "MiB/sec" : "%";
    }
}

API int nvmlGpmMetricsGet(GpmMetricsGet *q) {
    struct gpm_sample *first = q ? q->sample1 : NULL, *second = q ? q->sample2 : NULL;
    BEGIN_TARGET(first && first->magic == MAGIC ? first->gpu : -1);
    REQUIRE(q);
    if (q->version != 1) RETURN(ARGUMENT_VERSION_MISMATCH);
    REQUIRE(first && second && first != second);
    REQUIRE(first->magic == MAGIC && second->magic == MAGIC && q->numMetrics <= GPM_METRIC_MAX);
    REQUIRE(first->gpu >= 0 && first->gpu == second->gpu && first->gpu < c->gpu_count);
    /* frozen, all samples have one time: then the mean is the value */
    REQUIRE(second->t > first->t || c->freeze >= 0);
    for (uint i = 0; i < q->numMetrics; i++) {
        read_gpm(c, first->gpu, first->t, second->t, &q->metrics[i]);
        SPOIL(&q->metrics[i].value, sizeof q->metrics[i].value);
    }
    CLAIM_COUNT(&q->numMetrics);
    RETURN(SUCCESS);
}
