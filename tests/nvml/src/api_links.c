/* PCIe and NVLink. */
#include <string.h>

#include "calls.h"

API int nvmlDeviceGetPcieThroughput(Handle h, uint counter, uint *out) { /* KB/s */
    BEGIN(h);
    REQUIRE(out && counter <= 1);
    enum metric m = counter ? PCIE_RX : PCIE_TX;
    MEASURED(m);
    *out = to_uint(VALUE(m));
    RETURN(SUCCESS);
}

/* boards whose memory clock sleeps at idle slow their link down as well */
static uint current_gen(const struct scenario *c, int gpu, double t) {
    const struct model *m = c->gpu[gpu].model;
    int asleep = metric_at(c, gpu, UTIL, t) < 1 && m->mem_idle_mhz != m->mem_mhz;
    return asleep ? 1 : m->pcie_gen;
}
METRIC_UINT(nvmlDeviceGetMaxPcieLinkGeneration, PCIE_TX, g->model->pcie_gen)
METRIC_UINT(nvmlDeviceGetGpuMaxPcieLinkGeneration, PCIE_TX, g->model->pcie_gen)
METRIC_UINT(nvmlDeviceGetPcieLinkMaxSpeed, PCIE_TX, g->model->pcie_gen)
METRIC_UINT(nvmlDeviceGetMaxPcieLinkWidth, PCIE_TX, g->model->pcie_width)
METRIC_UINT(nvmlDeviceGetCurrPcieLinkGeneration, PCIE_TX, current_gen(c, d->gpu, t))
METRIC_UINT(nvmlDeviceGetCurrPcieLinkWidth, PCIE_TX, g->model->pcie_width)
METRIC_UINT(nvmlDeviceGetPcieReplayCounter, PCIE_REPLAY, to_uint(VALUE(PCIE_REPLAY)))
BOARD_UINT(nvmlDeviceGetPcieSpeed, 2500u << g->model->pcie_gen)

#define LINK_UINT(function, expression)                     \
    API int function(Handle h, uint link, uint *out) {      \
        BEGIN(h);                                           \
        SUPPORTED_IF(g->model->links);                      \
        REQUIRE(out && link < g->model->links);             \
        *out = (uint)(expression);                          \
        RETURN(SUCCESS);                                    \
    }
LINK_UINT(nvmlDeviceGetNvLinkState, !g->mig_mode)
LINK_UINT(nvmlDeviceGetNvLinkVersion, g->model->link_version)
LINK_UINT(nvmlDeviceGetNvLinkRemoteDeviceType, g->model->features & HAS_NVSWITCH ? 2 : 0)
API int nvmlDeviceGetNvLinkCapability(Handle h, uint link, uint capability, uint *out) {
    BEGIN(h);
    SUPPORTED_IF(g->model->links);
    REQUIRE(out && link < g->model->links && capability <= 5);
    *out = capability != 4;
    RETURN(SUCCESS);
}
API int nvmlDeviceGetNvLinkErrorCounter(Handle h, uint link, uint counter, u64 *out) {
    BEGIN(h);
    (void)counter;
    SUPPORTED_IF(g->model->links);
    REQUIRE(out && link < g->model->links);
    *out = 0;
    RETURN(SUCCESS);
}
API int nvmlDeviceGetNvLinkUtilizationCounter(Handle h, uint link, uint counter, u64 *rx, u64 *tx) {
    BEGIN(h);
    (void)counter;
    REQUIRE(rx && tx);
    SUPPORTED_IF(g->model->arch == 5 && link < g->model->links); /* Volta; later: field values */
    *rx = to_u64(integral(c, d->gpu, NVLINK_RX, t, 0) / g->model->links);
    *tx = to_u64(integral(c, d->gpu, NVLINK_TX, t, 0) / g->model->links);
    RETURN(SUCCESS);
}
