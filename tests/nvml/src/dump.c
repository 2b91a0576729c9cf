/* What the scenario says at a time, as JSON on standard output:  dump [T]
 *
 * The oracle of the tests. It takes the values where the NVML functions take them, but goes past
 * all of NVML: no handles, no structs, no binding. Units are in the names; null is `na`. */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

/* functions whose fate under the scenario's rules is told */
static const char *const FUNCTIONS[] = {
    "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetName", "nvmlDeviceGetUUID",
    "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetBAR1MemoryInfo",
    "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetDecoderUtilization", "nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetFanSpeed", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetPerformanceState", "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetPcieThroughput",
    "nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRetiredPages",
    "nvmlDeviceGetRetiredPagesPendingStatus", "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetSamples", "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetComputeMode", "nvmlDeviceGetMigMode",
    "nvmlDeviceGetAccountingMode", "nvmlDeviceGetAccountingStats", "nvmlGpmSampleGet",
    "nvmlGpmMetricsGet",
};

static void put_text(const char *text) {
    putchar('"');
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\') printf("\\%c", *p);
        else if (*p < 0x20 || *p >= 0x7f) printf("\\u%04x", *p); /* bytes as Latin-1 */
        else putchar(*p);
    }
    putchar('"');
}

static void put_mem(const char *name, u64 bytes) {
    if (bytes == NOT_AVAILABLE) printf("\"%s\":null", name);
    else printf("\"%s\":%llu", name, bytes);
}

/* the code each function would answer, where a rule fails it: -1 if it never comes back */
static void put_codes(const struct scenario *c, int gpu, int slice, double t) {
    const char *comma = "";
    printf("\"codes\":{");
    for (size_t i = 0; i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++) {
        u64 rules = matching_rules(c, FUNCTIONS[i]);
        struct verdict v = judge(c, rules, gpu, slice, t, t, 0);
        if (!v.code && !v.hang) continue;
        printf("%s\"%s\":%d", comma, FUNCTIONS[i], v.hang ? -1 : v.code);
        comma = ",";
    }
    printf("}");
}

static void put_metrics(const struct scenario *c, int gpu, double t) {
    printf("\"metrics\":{");
    for (int m = 0; m < METRICS; m++) {
        printf("%s\"%s\":", m ? "," : "", METRIC_NAME[m]);
        /* as the driver: these are constant within a sampling period */
        int sampled = m == UTIL || m == MEM_UTIL || (m >= ENCODER && m <= OFA);
        if (is_na(c, gpu, (enum metric)m)) printf("null");
        else printf("%.17g", metric_at(c, gpu, (enum metric)m, sampled ? period_start(c, t) : t));
    }
    printf("},\"energy_j\":%.17g", integral(c, gpu, POWER, t, 0));
    printf(",\"throttle_power_s\":%.17g", integral(c, gpu, THROTTLE, t, 0x4));
    printf(",\"throttle_thermal_s\":%.17g", integral(c, gpu, THROTTLE, t, 0x60));
}

static void put_processes(const struct scenario *c, int gpu, int slice, double t) {
    struct usage list[MAX_PROCESSES];
    int n = list_usage(c, gpu, slice, t, "CGM", list, MAX_PROCESSES);
    printf("\"processes\":[");
    for (int i = 0; i < n; i++) {
        const struct usage *u = &list[i];
        printf("%s{\"pid\":%u,\"type\":\"%c\",", i ? "," : "", u->pid, u->type);
        put_mem("mem_bytes", u->mem_bytes);
        printf(",\"sm_percent\":%.17g,\"mem_percent\":%.17g", u->sm, u->mem);
        printf(",\"encoder_percent\":%.17g,\"decoder_percent\":%.17g", u->encoder, u->decoder);
        if (u->gi != NO_ID) printf(",\"gi\":%u,\"ci\":%u", u->gi, u->ci);
        printf("}");
    }
    printf("]");
}

static void put_slices(const struct scenario *c, int gpu, double t) {
    const struct gpu *g = &c->gpu[gpu];
    char uuid[64];
    printf("\"slices\":[");
    for (int j = 0; j < g->slice_count; j++) {
        const struct slice *s = &g->slice[j];
        struct memory m = memory_at(c, gpu, j, t);
        slice_uuid(c, gpu, j, uuid, sizeof uuid);
        printf("%s{\"uuid\":\"%s\",\"profile\":", j ? "," : "", uuid);
        put_text(s->profile);
        printf(",\"gi\":%u,\"ci\":%u,\"sms\":%u,", s->gi, s->ci, s->sms);
        printf("\"mem_total_bytes\":%llu,\"mem_used_bytes\":%llu,", m.total, m.used);
        put_processes(c, gpu, j, t);
        printf(",");
        put_codes(c, gpu, j, t);
        printf("}");
    }
    printf("]");
}

static void put_features(uint features) {
    static const struct { const char *name; uint bit; } FEATURE[] = {
        {"mig", HAS_MIG}, {"gpm", HAS_GPM},           {"remap", HAS_REMAP},
        {"fan", HAS_FAN}, {"mem_temp", HAS_MEM_TEMP}, {"retired_pages", HAS_RETIRED_PAGES},
    };
    printf("\"features\":{");
    for (size_t i = 0; i < sizeof FEATURE / sizeof *FEATURE; i++)
        printf("\"%s\":%s,", FEATURE[i].name, features & FEATURE[i].bit ? "true" : "false");
    printf("\"ecc\":%s}", features & NO_ECC ? "false" : "true");
}

static void put_gpu(const struct scenario *c, int i, double t) {
    const struct gpu *g = &c->gpu[i];
    const struct model *b = g->model;
    struct memory m = memory_at(c, i, -1, t);
    printf("{\"index\":%d,\"name\":", i);
    put_text(g->name);
    printf(",\"uuid\":");
    put_text(g->uuid);
    printf(",\"serial\":");
    put_text(g->serial);
    printf(",\"bus_id\":\"%08X:%02X:00.0\",\"minor\":%d", g->domain, g->bus & 0xff, g->minor);
    printf(",\"mem_total_bytes\":%llu,\"mem_reserved_bytes\":%llu,\"mem_used_bytes\":%llu", m.total,
           m.reserved, m.used);
    printf(",\"power_limit_w\":%u,\"power_default_w\":%u", g->limit_w, b->power_w);
    printf(",\"sm_clock_max_mhz\":%u,\"mem_clock_max_mhz\":%u", b->sm_mhz, b->mem_mhz);
    int link_asleep = metric_at(c, i, UTIL, t) < 1 && b->mem_idle_mhz != b->mem_mhz;
    printf(",\"pcie_gen\":%u,\"pcie_gen_max\":%u,\"pcie_width\":%u,\"links\":%u",
           link_asleep ? 1 : b->pcie_gen, b->pcie_gen, b->pcie_width, b->links);
    printf(",\"pcie_counters\":%s,\"sms\":%u,", b->arch >= 9 ? "true" : "false", b->sms);
    put_features(b->features);
    printf(",\"mig_mode\":%d,\"ecc\":%u,\"persistence_mode\":%u", g->mig_mode, g->ecc,
           g->persistence);
    printf(",\"compute_mode\":%u,\"accounting_mode\":%d", g->compute_mode, g->accounting);
    printf(",\"remap_pending\":%d,\"remap_failed\":%d,\"recovery_action\":%d,", g->remap_pending,
           g->remap_failed, g->recovery_action);
    put_metrics(c, i, t);
    printf(",");
    put_processes(c, i, -1, t);
    printf(",");
    put_slices(c, i, t);
    printf(",");
    put_codes(c, i, -1, t);
    printf("}");
}

int main(int argc, char **argv) {
    const struct scenario *c = current_scenario();
    double t = argc > 1 ? atof(argv[1]) : scenario_time(c);
    struct verdict init = judge(c, matching_rules(c, "nvmlInit_v2"), -1, -1, t, t, 0);
    int init_code = init.hang ? -1 : init.code ? init.code : c->init_error;
    printf("{\"t\":%.17g,\"driver\":", t);
    put_text(c->driver);
    printf(",\"cuda\":%d,\"init\":%d,\"latency_us\":%.17g", c->cuda, init_code, c->latency_us);
    printf(",\"events\":[");
    for (int i = 0; i < c->event_count; i++)
        printf("%s{\"t\":%.17g,\"gpu\":%d,\"type\":%llu,\"data\":%llu}", i ? "," : "",
               c->event[i].t, c->event[i].gpu, c->event[i].type, c->event[i].data);
    printf("],\"devices\":[\n");
    for (int i = 0; i < c->gpu_count; i++) {
        if (i) printf(",\n");
        put_gpu(c, i, t);
    }
    printf("\n]}\n");
    return 0;
}
