/* ECC errors, retired pages, remapped rows. */
#include <string.h>

#include "calls.h"

API int nvmlDeviceGetEccMode(Handle h, uint *current, uint *pending) {
    BEGIN(h);
    REQUIRE(current && pending);
    SUPPORTED_IF(!(g->model->features & NO_ECC));
    *current = *pending = g->ecc;
    RETURN(SUCCESS);
}
BOARD_UINT(nvmlDeviceGetDefaultEccMode, 1)

#define ECC_ON(g) \
    ((g)->ecc && !((g)->model->features & NO_ECC) && !is_na(c, d->gpu, ECC_CORRECTED))

/* kind: 0 corrected, 1 uncorrected; volatile and aggregate counts are the same */
API int nvmlDeviceGetTotalEccErrors(Handle h, uint kind, uint counter, u64 *out) {
    BEGIN(h);
    (void)counter;
    REQUIRE(out && kind <= 1);
    SUPPORTED_IF(ECC_ON(g));
    *out = to_u64(VALUE(kind ? ECC_UNCORRECTED : ECC_CORRECTED));
    RETURN(SUCCESS);
}
API int nvmlDeviceGetDetailedEccErrors(Handle h, uint kind, uint counter, EccErrorCounts *out) {
    BEGIN(h);
    (void)counter;
    REQUIRE(out && kind <= 1);
    SUPPORTED_IF(ECC_ON(g));
    *out = (EccErrorCounts){.deviceMemory = to_u64(VALUE(kind ? ECC_UNCORRECTED : ECC_CORRECTED))};
    RETURN(SUCCESS);
}
API int nvmlDeviceGetMemoryErrorCounter(Handle h, uint kind, uint counter, uint place, u64 *out) {
    BEGIN(h);
    (void)counter;
    REQUIRE(out && kind <= 1 && place <= 8);
    SUPPORTED_IF(ECC_ON(g));
    int device_memory = place == 2;
    *out = device_memory ? to_u64(VALUE(kind ? ECC_UNCORRECTED : ECC_CORRECTED)) : 0;
    RETURN(SUCCESS);
}

static int retired_pages(const struct scenario *c, int gpu, double t, uint double_bit, uint *count,
                         u64 *addresses, u64 *times) {
    if (!count) return INVALID_ARGUMENT;
    if (!(c->gpu[gpu].model->features & HAS_RETIRED_PAGES)) return NOT_SUPPORTED;
    uint n = to_uint(metric_at(c, gpu, double_bit ? RETIRED_DBE : RETIRED_SBE, t));
    uint room = addresses ? *count : 0;
    *count = n;
    if (room < n) return INSUFFICIENT_SIZE;
    for (uint i = 0; i < n; i++) {
        addresses[i] = 0x1000ULL * hash3(i, (uint)gpu, double_bit);
        if (times) times[i] = wall_us(c, 0) + i;
    }
    return SUCCESS;
}
API int nvmlDeviceGetRetiredPages(Handle h, uint cause, uint *count, u64 *addresses) {
    BEGIN(h);
    RETURN(retired_pages(c, d->gpu, t, cause, count, addresses, NULL));
}
API int nvmlDeviceGetRetiredPages_v2(Handle h, uint cause, uint *count, u64 *addresses,
                                     u64 *times) {
    BEGIN(h);
    RETURN(retired_pages(c, d->gpu, t, cause, count, addresses, times));
}
API int nvmlDeviceGetRetiredPagesPendingStatus(Handle h, uint *out) {
    BEGIN(h);
    REQUIRE(out);
    SUPPORTED_IF(g->model->features & HAS_RETIRED_PAGES);
    *out = (uint)g->remap_pending;
    RETURN(SUCCESS);
}

API int nvmlDeviceGetRemappedRows(Handle h, uint *corrected, uint *uncorrected, uint *pending,
                                  uint *failed) {
    BEGIN(h);
    REQUIRE(corrected && uncorrected && pending && failed);
    SUPPORTED_IF(g->model->features & HAS_REMAP && !g->mig_mode);
    *corrected = to_uint(VALUE(REMAP_CORRECTED));
    *uncorrected = to_uint(VALUE(REMAP_UNCORRECTED));
    *pending = (uint)g->remap_pending;
    *failed = (uint)g->remap_failed;
    RETURN(SUCCESS);
}
API int nvmlDeviceGetRowRemapperHistogram(Handle h, RowRemapperHistogram *out) {
    BEGIN(h);
    REQUIRE(out);
    SUPPORTED_IF(g->model->features & HAS_REMAP);
    *out = (RowRemapperHistogram){.max = 640};
    RETURN(SUCCESS);
}
