/* The driver's sample buffers and its field values. */
#include <math.h>
#include <string.h>

#include "calls.h"

/* -- sample buffers ------------------------------------------------------------------------- */
enum { BUFFER_ENTRIES = 100 }; /* a guess: 100 to 120 */
enum { TOTAL_POWER, GPU_SAMPLES, MEMORY_SAMPLES, ENC_SAMPLES, DEC_SAMPLES, SM_CLK, MEM_CLK };

API int nvmlDeviceGetSamples(Handle h, uint kind, u64 last_us, uint *value_type, uint *count,
                             Sample *out) {
    static const enum metric METRIC[] = {POWER,    UTIL,      MEM_UTIL, ENCODER, DECODER,
                                         SM_CLOCK, MEM_CLOCK, METRICS,  JPG,     OFA};
    BEGIN(h);
    REQUIRE(value_type && count && kind < sizeof METRIC / sizeof *METRIC);
    enum metric m = METRIC[kind];
    SUPPORTED_IF(m != METRICS && !(g->mig_mode && kind >= GPU_SAMPLES && kind <= DEC_SAMPLES));
    MEASURED(m);
    *value_type = VALUE_UINT;
    if (!out) {
        *count = BUFFER_ENTRIES;
        RETURN(SUCCESS);
    }
    int slow = kind != TOTAL_POWER && kind != SM_CLK && kind != MEM_CLK;
    double period_s = slow && c->sample_period_s > 0 ? c->sample_period_s : 0.1;
    double newest = floor(t / period_s) * period_s, set_s = clock_set_s();
    uint n = 0;
    for (int i = BUFFER_ENTRIES - 1; i >= 0 && n < *count; i--) {
        double x = newest - i * period_s;
        u64 at_us = stamp_us(c, x, set_s);
        if (x < 0 || at_us <= last_us) continue;
        out[n].timeStamp = at_us;
        out[n].sampleValue.ullVal = 0;
        double unit = kind == TOTAL_POWER ? 1000 : 1; /* mW */
        out[n++].sampleValue.uiVal = to_uint(metric_at(c, d->gpu, m, x) * unit);
    }
    SPOIL(out, n * sizeof *out);
    if (call_.verdict.garbage) spoil(value_type, sizeof *value_type, n);
    CLAIM_COUNT(count);
    if (!n) RETURN(NOT_FOUND); /* nothing new */
    *count = n;
    RETURN(SUCCESS);
}

/* -- field values: NVML_FI_DEV_... ----------------------------------------------------------- */
enum field {
    ECC_CURRENT = 1, ECC_PENDING, ECC_SBE_VOL, ECC_DBE_VOL, ECC_SBE_AGG, ECC_DBE_AGG,
    F_RETIRED_SBE = 29, F_RETIRED_DBE, RETIRED_PENDING,
    NVLINK_CRC_FLIT_TOTAL = 38, NVLINK_CRC_DATA_TOTAL = 45, NVLINK_REPLAY_TOTAL = 52,
    NVLINK_RECOVERY_TOTAL = 59, NVLINK_ECC_TOTAL = 160,
    VIOLATION_POWER = 74, VIOLATION_THERMAL, VIOLATION_SYNC_BOOST, VIOLATION_LAST = 81,
    MEMORY_TEMP = 82, TOTAL_ENERGY = 83,
    NVLINK_SPEED_COMMON = 90, NVLINK_LINK_COUNT = 91, PCIE_REPLAYS = 94,
    NVLINK_DATA_TX = 138, NVLINK_DATA_RX, NVLINK_RAW_TX, NVLINK_RAW_RX,
    REMAPPED_COR = 142, REMAPPED_UNC, REMAPPED_PENDING, REMAPPED_FAILURE,
    NVLINK_SPEED = 164, NVLINK_STATE = 165,
    POWER_AVERAGE = 185, POWER_INSTANT, POWER_MIN, POWER_MAX, POWER_DEFAULT, POWER_CURRENT,
    ENERGY_MJ = 191, POWER_REQUESTED = 192,
    TLIMIT_SHUTDOWN = 193, TLIMIT_SLOWDOWN, TLIMIT_MEM, TLIMIT_GPU,
    PCIE_COUNT_TX = 197, PCIE_COUNT_RX = 198,
    RECOVERY_ACTION = 230,
    FIELD_LAST = 302,
};

static void put_u64(FieldValue *f, u64 x) {
    f->valueType = VALUE_ULONGLONG;
    f->value.ullVal = x;
    f->nvmlReturn = SUCCESS;
}
static void put_uint(FieldValue *f, uint x) {
    f->valueType = VALUE_UINT;
    f->value.ullVal = 0;
    f->value.uiVal = x;
    f->nvmlReturn = SUCCESS;
}
static void put_int(FieldValue *f, int x) {
    f->valueType = VALUE_INT;
    f->value.ullVal = 0;
    f->value.siVal = x;
    f->nvmlReturn = SUCCESS;
}

#define AT(metric) metric_at(c, d->gpu, metric, t)
#define SUM(metric) integral(c, d->gpu, metric, t, 0)

static void power_field(const struct scenario *c, Handle d, double t, FieldValue *f) {
    const struct gpu *g = &c->gpu[d->gpu];
    if (is_na(c, d->gpu, POWER)) return;
    switch (f->fieldId) { /* mW, mJ */
    case POWER_AVERAGE: put_uint(f, to_uint(metric_mean(c, d->gpu, POWER, t, 1, 4) * 1000)); break;
    case POWER_INSTANT: put_uint(f, to_uint(AT(POWER) * 1000)); break;
    case POWER_MIN: put_uint(f, g->model->power_min_w * 1000); break;
    case POWER_MAX: put_uint(f, g->model->power_max_w * 1000); break;
    case POWER_DEFAULT: put_uint(f, g->model->power_w * 1000); break;
    case POWER_CURRENT: case POWER_REQUESTED: put_uint(f, g->limit_w * 1000); break;
    case TOTAL_ENERGY: case ENERGY_MJ: put_u64(f, to_u64(SUM(POWER) * 1000)); break;
    }
}

static void nvlink_field(const struct scenario *c, Handle d, double t, FieldValue *f) {
    const struct gpu *g = &c->gpu[d->gpu];
    uint id = f->fieldId, links = g->model->links;
    int all_links = f->scopeId == ~0u;
    if (!links) return;
    if (id == NVLINK_SPEED_COMMON) put_uint(f, g->model->link_mb_per_s);
    else if (id == NVLINK_LINK_COUNT) put_uint(f, links);
    else if (id == NVLINK_SPEED || id == NVLINK_STATE) {
        if (f->scopeId < links) put_uint(f, id == NVLINK_STATE ? 1 : g->model->link_mb_per_s);
    } else if (id < NVLINK_DATA_TX || id > NVLINK_RAW_RX) {
        put_u64(f, 0); /* error counters */
    } else if (!g->mig_mode) {
        if (!all_links && f->scopeId >= links) {
            f->nvmlReturn = INVALID_ARGUMENT;
            return;
        }
        /* KiB; raw counts the protocol too (a guess) */
        double kib = SUM(id == NVLINK_DATA_RX || id == NVLINK_RAW_RX ? NVLINK_RX : NVLINK_TX);
        if (id >= NVLINK_RAW_TX) kib *= 1.12;
        put_u64(f, to_u64(all_links ? kib : kib / links));
    }
}

static void health_field(const struct scenario *c, Handle d, double t, FieldValue *f) {
    const struct gpu *g = &c->gpu[d->gpu];
    uint id = f->fieldId, features = g->model->features;
    if (id <= ECC_PENDING) {
        if (!(features & NO_ECC)) put_uint(f, g->ecc);
    } else if (id <= ECC_DBE_AGG) {
        int on = g->ecc && !(features & NO_ECC) && !is_na(c, d->gpu, ECC_CORRECTED);
        int corrected = id == ECC_SBE_VOL || id == ECC_SBE_AGG;
        if (on) put_u64(f, to_u64(AT(corrected ? ECC_CORRECTED : ECC_UNCORRECTED)));
    } else if (id <= RETIRED_PENDING) {
        if (!(features & HAS_RETIRED_PAGES)) return;
        if (id == RETIRED_PENDING) put_uint(f, (uint)g->remap_pending);
        else put_u64(f, to_u64(AT(id == F_RETIRED_SBE ? RETIRED_SBE : RETIRED_DBE)));
    } else if (id == RECOVERY_ACTION) {
        put_u64(f, (u64)g->recovery_action);
    } else if (features & HAS_REMAP && !g->mig_mode) { /* as nvmlDeviceGetRemappedRows */
        put_u64(f, id == REMAPPED_COR       ? to_u64(AT(REMAP_CORRECTED))
                   : id == REMAPPED_UNC     ? to_u64(AT(REMAP_UNCORRECTED))
                   : id == REMAPPED_PENDING ? (u64)g->remap_pending
                                            : (u64)g->remap_failed);
    }
}

static void violation_field(const struct scenario *c, Handle d, double t, FieldValue *f) {
    uint mask = f->fieldId == VIOLATION_POWER ? 0x4 : 0x60;
    if (is_na(c, d->gpu, THROTTLE)) return;
    double s = f->fieldId <= VIOLATION_THERMAL ? integral(c, d->gpu, THROTTLE, t, mask) : 0;
    put_u64(f, to_u64(s * 1e9));
}

static void read_field(const struct scenario *c, Handle d, double t, FieldValue *f) {
    const struct gpu *g = &c->gpu[d->gpu];
    f->timestamp = (long long)wall_us(c, t);
    f->latencyUsec = 0;
    f->nvmlReturn = NOT_SUPPORTED;
    f->valueType = VALUE_DOUBLE;
    f->value.ullVal = 0;
    switch (f->fieldId) {
    case ECC_CURRENT ... ECC_DBE_AGG: case F_RETIRED_SBE ... RETIRED_PENDING:
    case REMAPPED_COR ... REMAPPED_FAILURE: case RECOVERY_ACTION:
        health_field(c, d, t, f);
        break;
    case NVLINK_CRC_FLIT_TOTAL: case NVLINK_CRC_DATA_TOTAL: case NVLINK_REPLAY_TOTAL:
    case NVLINK_RECOVERY_TOTAL: case NVLINK_ECC_TOTAL: case NVLINK_SPEED_COMMON:
    case NVLINK_LINK_COUNT: case NVLINK_DATA_TX ... NVLINK_RAW_RX: case NVLINK_SPEED:
    case NVLINK_STATE:
        nvlink_field(c, d, t, f);
        break;
    case POWER_AVERAGE ... POWER_REQUESTED: case TOTAL_ENERGY:
        power_field(c, d, t, f);
        break;
    case VIOLATION_POWER ... VIOLATION_LAST:
        violation_field(c, d, t, f);
        break;
    case MEMORY_TEMP:
        if (g->model->features & HAS_MEM_TEMP && !is_na(c, d->gpu, MEM_TEMP))
            put_uint(f, rounded(AT(MEM_TEMP)));
        break;
    case PCIE_REPLAYS:
        if (!is_na(c, d->gpu, PCIE_REPLAY)) put_uint(f, to_uint(AT(PCIE_REPLAY)));
        break;
    case TLIMIT_SHUTDOWN ... TLIMIT_GPU: /* Hopper and later; a guess */
        if (g->model->arch >= 9)
            put_int(f, f->fieldId == TLIMIT_SHUTDOWN ? -5 : f->fieldId == TLIMIT_SLOWDOWN ? -2 : 0);
        break;
    case PCIE_COUNT_TX: case PCIE_COUNT_RX: /* bytes, Hopper and later; the source is in KB/s */
        if (g->model->arch >= 9 && !is_na(c, d->gpu, PCIE_TX))
            put_u64(f, to_u64(SUM(f->fieldId == PCIE_COUNT_TX ? PCIE_TX : PCIE_RX) * 1024));
        break;
    default:
        if (!f->fieldId || f->fieldId > FIELD_LAST) f->nvmlReturn = INVALID_ARGUMENT;
    }
}

API int nvmlDeviceGetFieldValues(Handle h, int count, FieldValue *out) {
    BEGIN_ANY(h);
    REQUIRE(out && count > 0);
    for (int i = 0; i < count; i++) read_field(c, d, t, &out[i]);
    for (int i = 0; i < count && call_.verdict.garbage; i++) {
        uint seed = hash3(call_.nth, (uint)i, 5);
        spoil(&out[i].value, sizeof out[i].value, seed);
        out[i].nvmlReturn = SUCCESS;
        out[i].valueType = seed % 9; /* 7 and 8 do not exist */
    }
    RETURN(SUCCESS);
}
API int nvmlDeviceClearFieldValues(Handle h, int count, FieldValue *out) {
    BEGIN(h);
    REQUIRE(out && count > 0);
    for (int i = 0; i < count; i++) out[i].nvmlReturn = SUCCESS;
    RETURN(SUCCESS);
}
