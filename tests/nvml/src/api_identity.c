/* Who a board is: names, numbers, settings, place in the machine. */
#include <string.h>

#include "calls.h"

API int nvmlDeviceGetName(Handle h, char *out, uint n) {
    BEGIN_ANY(h);
    char text[160];
    if (d->slice < 0) snprintf(text, sizeof text, "%s", g->name);
    else snprintf(text, sizeof text, "%s MIG %s", g->name, g->slice[d->slice].profile);
    RETURN_TEXT(out, n, text);
}

API int nvmlDeviceGetUUID(Handle h, char *out, uint n) {
    BEGIN_ANY(h);
    char text[64];
    if (d->slice < 0) snprintf(text, sizeof text, "%s", g->uuid);
    else slice_uuid(c, d->gpu, d->slice, text, sizeof text);
    RETURN_TEXT(out, n, text);
}

API int nvmlDeviceGetIndex(Handle h, uint *out) {
    BEGIN_ANY(h);
    REQUIRE(out);
    *out = (uint)(d->slice >= 0 ? d->slice : visible_index(c, d->gpu));
    RETURN(SUCCESS);
}

API int nvmlDeviceGetCudaComputeCapability(Handle h, int *major, int *minor) {
    BEGIN_ANY(h);
    REQUIRE(major && minor);
    *major = (int)g->model->cc_major;
    *minor = (int)g->model->cc_minor;
    SPOIL(major, sizeof *major);
    SPOIL(minor, sizeof *minor);
    RETURN(SUCCESS);
}

API int nvmlDeviceGetComputeMode(Handle h, uint *out) {
    BEGIN_ANY(h);
    REQUIRE(out);
    *out = g->compute_mode;
    RETURN(SUCCESS);
}

BOARD_TEXT(nvmlDeviceGetSerial, g->serial)
BOARD_TEXT(nvmlDeviceGetVbiosVersion, "92.00.45.00.03")
BOARD_TEXT(nvmlDeviceGetBoardPartNumber, "692-2G506-0210-002")
BOARD_TEXT(nvmlDeviceGetInforomImageVersion, "G506.0210.00.03")
API int nvmlDeviceGetInforomVersion(Handle h, uint object, char *out, uint n) {
    BEGIN(h);
    (void)object;
    RETURN_TEXT(out, n, "2.0");
}
API int nvmlDeviceGetGspFirmwareVersion(Handle h, char *out) {
    BEGIN(h);
    RETURN_TEXT(out, sizeof c->driver, c->driver);
}
API int nvmlDeviceGetGspFirmwareMode(Handle h, uint *enabled, uint *by_default) {
    BEGIN(h);
    REQUIRE(enabled && by_default);
    *enabled = *by_default = 1;
    RETURN(SUCCESS);
}

BOARD_UINT(nvmlDeviceGetMinorNumber, g->minor)
BOARD_UINT(nvmlDeviceGetBrand, g->model->brand)
BOARD_UINT(nvmlDeviceGetArchitecture, g->model->arch)
BOARD_UINT(nvmlDeviceGetBoardId, g->bus << 8)
BOARD_UINT(nvmlDeviceGetMultiGpuBoard, 0)
BOARD_UINT(nvmlDeviceGetModuleId, d->gpu + 1)
BOARD_UINT(nvmlDeviceGetNumGpuCores, g->model->cores)
BOARD_UINT(nvmlDeviceGetMemoryBusWidth, g->model->bus_bits)
BOARD_UINT(nvmlDeviceGetIrqNum, 120 + d->gpu)
BOARD_UINT(nvmlDeviceGetBusType, 2) /* PCIe */
BOARD_UINT(nvmlDeviceGetPowerSource, 0)
BOARD_UINT(nvmlDeviceGetVirtualizationMode, 0)
BOARD_UINT(nvmlDeviceGetPersistenceMode, g->persistence)
BOARD_UINT(nvmlDeviceGetDisplayMode, 0)
BOARD_UINT(nvmlDeviceGetDisplayActive, 0)

/* -- PCI ----------------------------------------------------------------------------------- */
static PciInfo pci_info(const struct gpu *g, uint bus) {
    PciInfo p = {
        .domain = g->domain,
        .bus = bus,
        .pciDeviceId = g->model->pci_id,
        .pciSubSystemId = g->model->pci_subsystem,
    };
    snprintf(p.busIdLegacy, sizeof p.busIdLegacy, "%04X:%02X:00.0", g->domain & 0xffff, bus & 0xff);
    snprintf(p.busId, sizeof p.busId, "%08X:%02X:00.0", g->domain, bus & 0xff);
    return p;
}

/* older versions of the struct are its beginning */
#define PCI_INFO(function, bytes)               \
    API int function(Handle h, PciInfo *out) {  \
        BEGIN(h);                               \
        REQUIRE(out);                           \
        PciInfo p = pci_info(g, g->bus);        \
        memcpy(out, &p, bytes);                 \
        RETURN(SUCCESS);                        \
    }
PCI_INFO(nvmlDeviceGetPciInfo_v3, sizeof(PciInfo))
PCI_INFO(nvmlDeviceGetPciInfo_v2, 36)
PCI_INFO(nvmlDeviceGetPciInfo, 32)

API int nvmlDeviceGetPciInfoExt(Handle h, PciInfoExt *out) {
    BEGIN(h);
    REQUIRE(out);
    REQUIRE_VERSION(out, 1);
    PciInfo p = pci_info(g, g->bus);
    out->domain = p.domain;
    out->bus = p.bus;
    out->device = 0;
    out->pciDeviceId = p.pciDeviceId;
    out->pciSubSystemId = p.pciSubSystemId;
    out->baseClass = 3;
    out->subClass = 2;
    memcpy(out->busId, p.busId, sizeof out->busId);
    RETURN(SUCCESS);
}

/* -- topology: pairs of boards share a switch, halves of the machine share a socket ---------- */
static int socket_of(const struct scenario *c, int gpu) {
    return c->gpu_count > 1 && gpu >= c->gpu_count / 2;
}
BOARD_UINT(nvmlDeviceGetNumaNodeId, socket_of(c, d->gpu))

API int nvmlDeviceGetTopologyCommonAncestor(Handle h, Handle other, uint *out) {
    BEGIN(h);
    Handle e = checked_handle(other);
    REQUIRE(e && out);
    *out = d->gpu == e->gpu                               ? 0
           : d->gpu / 2 == e->gpu / 2                     ? 20
           : socket_of(c, d->gpu) == socket_of(c, e->gpu) ? 40
                                                          : 50;
    RETURN(SUCCESS);
}

API int nvmlDeviceGetP2PStatus(Handle h, Handle other, uint capability, uint *out) {
    BEGIN(h);
    REQUIRE(checked_handle(other) && out);
    *out = capability == 2 && !g->model->links ? 5 : 0;
    RETURN(SUCCESS);
}

static void cpu_set(const struct scenario *c, int gpu, uint words, unsigned long *out) {
    int count = c->gpu_count > 1 ? c->cpus / 2 : c->cpus, first = socket_of(c, gpu) * count;
    memset(out, 0, words * sizeof *out);
    for (int i = first; i < first + count; i++)
        if ((uint)i / 64 < words) out[i / 64] |= 1UL << (i % 64);
}
API int nvmlDeviceGetCpuAffinity(Handle h, uint words, unsigned long *out) {
    BEGIN(h);
    REQUIRE(out && words);
    cpu_set(c, d->gpu, words, out);
    RETURN(SUCCESS);
}
API int nvmlDeviceGetCpuAffinityWithinScope(Handle h, uint words, unsigned long *out, uint scope) {
    BEGIN(h);
    (void)scope;
    REQUIRE(out && words);
    cpu_set(c, d->gpu, words, out);
    RETURN(SUCCESS);
}
API int nvmlDeviceGetMemoryAffinity(Handle h, uint words, unsigned long *out, uint scope) {
    BEGIN(h);
    (void)scope;
    REQUIRE(out && words);
    memset(out, 0, words * sizeof *out);
    out[0] = 1UL << socket_of(c, d->gpu);
    RETURN(SUCCESS);
}

/* the far end of an NVLink: a switch, or the next board */
static int remote_end(const struct gpu *g, uint link, PciInfo *out) {
    if (!g->model->links) return NOT_SUPPORTED;
    if (link >= g->model->links || !out) return INVALID_ARGUMENT;
    *out = pci_info(g, 0xC0 + link);
    return SUCCESS;
}
API int nvmlDeviceGetNvLinkRemotePciInfo_v2(Handle h, uint link, PciInfo *out) {
    BEGIN(h);
    RETURN(remote_end(g, link, out));
}
API int nvmlDeviceGetNvLinkRemotePciInfo(Handle h, uint link, PciInfo *out) {
    BEGIN(h);
    RETURN(remote_end(g, link, out));
}
