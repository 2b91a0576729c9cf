/* What a board does now: memory, utilization, temperature, power, clocks. */
#include <string.h>

#include "calls.h"

/* -- memory -------------------------------------------------------------------------------- */
API int nvmlDeviceGetMemoryInfo(Handle h, Memory *out) {
    BEGIN_ANY(h);
    REQUIRE(out);
    MEASURED(MEM);
    SUPPORTED_IF(g->total_mib);
    struct memory m = memory_at(c, d->gpu, d->slice, t);
    *out = (Memory){m.total, m.total - m.used - m.reserved, m.used + m.reserved};
    SPOIL(out, sizeof *out);
    RETURN(SUCCESS);
}

API int nvmlDeviceGetMemoryInfo_v2(Handle h, MemoryV2 *out) {
    BEGIN_ANY(h);
    REQUIRE(out);
    /* what real drivers answer to a wrong version: gpuopenanalytics/pynvml#59 */
    if (out->version != STRUCT_VERSION(*out, 2) && !c->lenient) RETURN(FUNCTION_NOT_FOUND);
    MEASURED(MEM);
    SUPPORTED_IF(g->total_mib);
    struct memory m = memory_at(c, d->gpu, d->slice, t);
    out->total = m.total;
    out->reserved = m.reserved;
    out->used = m.used;
    out->free = m.total - m.reserved - m.used;
    SPOIL(out, sizeof *out);
    RETURN(SUCCESS);
}

API int nvmlDeviceGetBAR1MemoryInfo(Handle h, Bar1Memory *out) {
    BEGIN_ANY(h);
    REQUIRE(out);
    MEASURED(BAR1);
    u64 total = g->model->bar1_mib * MIB, used = to_u64(VALUE(BAR1) * MIB);
    if (d->slice >= 0) {
        uint slices = g->slice[d->slice].slices;
        total = total * slices / 8;
        used = 2 * MIB * slices;
    }
    if (used > total) used = total;
    *out = (Bar1Memory){total, total - used, used};
    SPOIL(out, sizeof *out);
    RETURN(SUCCESS);
}

/* -- utilization --------------------------------------------------------------------------- */
API int nvmlDeviceGetUtilizationRates(Handle h, Utilization *out) {
    BEGIN_ANY(h);
    REQUIRE(out);
    SUPPORTED_IF(!g->mig_mode);
    MEASURED(UTIL);
    *out = (Utilization){rounded(SAMPLED(UTIL)), rounded(SAMPLED(MEM_UTIL))};
    SPOIL(out, sizeof *out);
    RETURN(SUCCESS);
}

#define ENGINE(function, metric, feature)                                      \
    API int function(Handle h, uint *out, uint *period_us) {                   \
        BEGIN_ANY(h);                                                          \
        REQUIRE(out && period_us);                                             \
        SUPPORTED_IF(!g->mig_mode && (g->model->features & (feature)) == (feature)); \
        MEASURED(metric);                                                      \
        *out = rounded(SAMPLED(metric));                                       \
        *period_us = (uint)(c->sample_period_s * 1e6);                         \
        RETURN(SUCCESS);                                                       \
    }
ENGINE(nvmlDeviceGetEncoderUtilization, ENCODER, 0)
ENGINE(nvmlDeviceGetDecoderUtilization, DECODER, 0)
ENGINE(nvmlDeviceGetJpgUtilization, JPG, HAS_JPG)
ENGINE(nvmlDeviceGetOfaUtilization, OFA, HAS_OFA)

API int nvmlDeviceGetEncoderStats(Handle h, uint *sessions, uint *fps, uint *latency_us) {
    BEGIN(h);
    REQUIRE(sessions && fps && latency_us);
    *sessions = *fps = *latency_us = 0;
    RETURN(SUCCESS);
}
API int nvmlDeviceGetEncoderSessions(Handle h, uint *count, void *sessions) {
    BEGIN(h);
    (void)sessions;
    REQUIRE(count);
    *count = 0;
    RETURN(SUCCESS);
}

API int nvmlDeviceGetDynamicPstatesInfo(Handle h, DynamicPstatesInfo *out) {
    BEGIN(h);
    REQUIRE(out);
    SUPPORTED_IF(!g->mig_mode);
    memset(out, 0, sizeof *out);
    out->utilization[0].bIsPresent = out->utilization[1].bIsPresent = 1;
    out->utilization[0].percentage = to_uint(SAMPLED(UTIL));
    out->utilization[1].percentage = to_uint(SAMPLED(MEM_UTIL));
    RETURN(SUCCESS);
}

/* -- temperature and fans ------------------------------------------------------------------ */
API int nvmlDeviceGetTemperature(Handle h, uint sensor, uint *out) {
    BEGIN(h);
    REQUIRE(out && !sensor);
    MEASURED(TEMP);
    *out = rounded(VALUE(TEMP));
    RETURN(SUCCESS);
}
API int nvmlDeviceGetTemperatureV(Handle h, TemperatureV1 *out) {
    BEGIN(h);
    REQUIRE(out);
    REQUIRE_VERSION(out, 1);
    REQUIRE(!out->sensorType);
    MEASURED(TEMP);
    out->temperature = (int)rounded(VALUE(TEMP));
    RETURN(SUCCESS);
}
API int nvmlDeviceGetMarginTemperature(Handle h, MarginTemperature *out) {
    BEGIN(h);
    REQUIRE(out);
    REQUIRE_VERSION(out, 1);
    MEASURED(TEMP);
    out->marginTemperature = 87 - (int)rounded(VALUE(TEMP));
    RETURN(SUCCESS);
}
API int nvmlDeviceGetTemperatureThreshold(Handle h, uint kind, uint *out) {
    static const uint CELSIUS[] = {92, 89, 95, 85}; /* shutdown slowdown mem-max gpu-max */
    BEGIN(h);
    REQUIRE(out);
    MEASURED(TEMP);
    SUPPORTED_IF(kind < 4 && (kind != 2 || g->model->features & HAS_MEM_TEMP));
    *out = CELSIUS[kind];
    RETURN(SUCCESS);
}

#define FANS 2
BOARD_UINT(nvmlDeviceGetNumFans, g->model->features & HAS_FAN ? FANS : 0)
API int nvmlDeviceGetFanSpeed(Handle h, uint *out) {
    BEGIN(h);
    REQUIRE(out);
    SUPPORTED_IF(g->model->features & HAS_FAN);
    MEASURED(FAN);
    *out = to_uint(VALUE(FAN));
    RETURN(SUCCESS);
}
API int nvmlDeviceGetFanSpeed_v2(Handle h, uint fan, uint *out) {
    BEGIN(h);
    REQUIRE(out);
    SUPPORTED_IF(g->model->features & HAS_FAN);
    REQUIRE(fan < FANS);
    MEASURED(FAN);
    *out = to_uint(VALUE(FAN));
    RETURN(SUCCESS);
}
API int nvmlDeviceGetFanSpeedRPM(Handle h, FanSpeedInfo *out) {
    BEGIN(h);
    REQUIRE(out);
    SUPPORTED_IF(g->model->features & HAS_FAN);
    out->speed = to_uint(VALUE(FAN) * 32);
    RETURN(SUCCESS);
}

/* -- power: mW and mJ ---------------------------------------------------------------------- */
METRIC_UINT(nvmlDeviceGetPowerUsage, POWER, to_uint(VALUE(POWER) * 1000))
METRIC_UINT(nvmlDeviceGetPowerManagementMode, POWER, 1)
METRIC_UINT(nvmlDeviceGetPowerManagementLimit, POWER, g->limit_w * 1000)
METRIC_UINT(nvmlDeviceGetEnforcedPowerLimit, POWER, g->limit_w * 1000)
METRIC_UINT(nvmlDeviceGetPowerManagementDefaultLimit, POWER, g->model->power_w * 1000)
METRIC_U64(nvmlDeviceGetTotalEnergyConsumption, POWER,
           to_u64(integral(c, d->gpu, POWER, t, 0) * 1000))
API int nvmlDeviceGetPowerManagementLimitConstraints(Handle h, uint *low, uint *high) {
    BEGIN(h);
    REQUIRE(low && high);
    MEASURED(POWER);
    *low = g->model->power_min_w * 1000;
    *high = g->model->power_max_w * 1000;
    RETURN(SUCCESS);
}

/* -- clocks: MHz --------------------------------------------------------------------------- */
enum { CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEM, CLOCK_VIDEO };
static int clock_mhz(const struct scenario *c, int gpu, uint domain, int highest, double t,
                     uint *out) {
    const struct model *m = c->gpu[gpu].model;
    double sm = highest ? m->sm_mhz : metric_at(c, gpu, SM_CLOCK, t);
    if (!out || domain > CLOCK_VIDEO) return INVALID_ARGUMENT;
    if (is_na(c, gpu, SM_CLOCK) || (domain == CLOCK_MEM && !m->mem_mhz)) return NOT_SUPPORTED;
    if (domain == CLOCK_MEM) *out = highest ? m->mem_mhz : to_uint(metric_at(c, gpu, MEM_CLOCK, t));
    else *out = to_uint(domain == CLOCK_VIDEO ? sm * 0.91 : sm);
    return SUCCESS;
}
#define CLOCK(function, highest)                                   \
    API int function(Handle h, uint domain, uint *out) {           \
        BEGIN(h);                                                  \
        RETURN(clock_mhz(c, d->gpu, domain, highest, t, out));     \
    }
CLOCK(nvmlDeviceGetClockInfo, 0)
CLOCK(nvmlDeviceGetMaxClockInfo, 1)
CLOCK(nvmlDeviceGetApplicationsClock, 1)
CLOCK(nvmlDeviceGetDefaultApplicationsClock, 1)
CLOCK(nvmlDeviceGetMaxCustomerBoostClock, 1)
API int nvmlDeviceGetClock(Handle h, uint domain, uint id, uint *out) {
    BEGIN(h);
    RETURN(clock_mhz(c, d->gpu, domain, id != 0, t, out));
}
API int nvmlDeviceGetSupportedMemoryClocks(Handle h, uint *count, uint *out) {
    BEGIN(h);
    REQUIRE(count);
    int fits = *count >= 1 && out;
    *count = 1;
    if (!fits) RETURN(INSUFFICIENT_SIZE);
    out[0] = g->model->mem_mhz;
    RETURN(SUCCESS);
}

METRIC_UINT(nvmlDeviceGetPerformanceState, PSTATE, to_uint(VALUE(PSTATE)))
METRIC_UINT(nvmlDeviceGetPowerState, PSTATE, to_uint(VALUE(PSTATE)))

/* clock event reasons, once called throttle reasons */
METRIC_U64(nvmlDeviceGetCurrentClocksThrottleReasons, THROTTLE, to_u64(VALUE(THROTTLE)))
METRIC_U64(nvmlDeviceGetCurrentClocksEventReasons, THROTTLE, to_u64(VALUE(THROTTLE)))
METRIC_U64(nvmlDeviceGetSupportedClocksThrottleReasons, THROTTLE, 0x1ff)
METRIC_U64(nvmlDeviceGetSupportedClocksEventReasons, THROTTLE, 0x1ff)
API int nvmlDeviceGetViolationStatus(Handle h, uint policy, ViolationTime *out) {
    BEGIN(h);
    REQUIRE(out);
    MEASURED(THROTTLE);
    uint mask = policy == 0 ? 0x4 : policy == 1 ? 0x60 : 0; /* power, thermal */
    double s = mask ? integral(c, d->gpu, THROTTLE, t, mask) : 0;
    *out = (ViolationTime){wall_us(c, t), to_u64(s * 1e9)};
    RETURN(SUCCESS);
}
