/* Initialisation, versions, enumeration. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"

API int nvmlInit_v2(void) { BEGIN_LIBRARY(); RETURN(session_begin()); }
API int nvmlInit(void) { BEGIN_LIBRARY(); RETURN(session_begin()); }
API int nvmlInitWithFlags(uint flags) { BEGIN_LIBRARY(); (void)flags; RETURN(session_begin()); }
API int nvmlShutdown(void) { BEGIN_LIBRARY(); RETURN(session_end()); }

API const char *nvmlErrorString(int code) {
    static const char *const TEXT[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported",
        "Insufficient Permissions", "Already Initialized", "Not Found", "Insufficient Size",
        "Insufficient External Power", "Driver Not Loaded", "Timeout", "Interrupt Request Issue",
        "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM", "GPU is lost",
        "GPU requires reset", "GPU access blocked by the operating system",
        "Driver/library version mismatch", "In use by another client", "Insufficient Memory",
        "No data",
        "The requested vgpu operation is not available on target device, because ECC is enabled",
        "Insufficient Resources", "Frequency not supported", "Argument version mismatch",
        "Deprecated", "Not ready", "GPU not found", "Invalid state",
    };
    int known = code >= 0 && code < (int)(sizeof TEXT / sizeof *TEXT);
    return known ? TEXT[code] : "Unknown Error";
}

API int nvmlSystemGetDriverVersion(char *out, uint n) {
    BEGIN_SYSTEM();
    RETURN_TEXT(out, n, c->driver);
}
API int nvmlSystemGetNVMLVersion(char *out, uint n) {
    BEGIN_SYSTEM();
    RETURN_TEXT(out, n, c->nvml);
}
#define CUDA_VERSION(function)       \
    API int function(int *out) {     \
        BEGIN_SYSTEM();              \
        REQUIRE(out);                \
        *out = c->cuda;              \
        RETURN(SUCCESS);             \
    }
CUDA_VERSION(nvmlSystemGetCudaDriverVersion)
CUDA_VERSION(nvmlSystemGetCudaDriverVersion_v2)

API int nvmlSystemGetDriverBranch(DriverBranch *out, uint n) {
    BEGIN_SYSTEM();
    (void)n;
    REQUIRE(out);
    snprintf(out->branch, sizeof out->branch, "r%.3s_00", c->driver);
    RETURN(SUCCESS);
}

API int nvmlSystemGetProcessName(uint pid, char *out, uint n) {
    BEGIN_SYSTEM();
    REQUIRE(out && n);
    char path[64], name[512];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) RETURN(NOT_FOUND);
    ssize_t length = read(fd, name, sizeof name - 1);
    close(fd);
    name[length < 0 ? 0 : length] = 0;
    snprintf(out, n, "%s", name);
    RETURN(SUCCESS);
}

#define NONE_OF_THEM(function)    \
    API int function(uint *out) { \
        BEGIN_SYSTEM();           \
        REQUIRE(out);             \
        *out = 0;                 \
        RETURN(SUCCESS);          \
    }
NONE_OF_THEM(nvmlUnitGetCount)
NONE_OF_THEM(nvmlGetExcludedDeviceCount)
API int nvmlSystemGetHicVersion(uint *out, void *entries) {
    BEGIN_SYSTEM();
    (void)entries;
    REQUIRE(out);
    *out = 0;
    RETURN(SUCCESS);
}

/* -- enumeration: the target is found first, so that rules with gpu= meet these calls too --- */
#define DEVICE_COUNT(function)       \
    API int function(uint *out) {    \
        BEGIN_SYSTEM();              \
        REQUIRE(out);                \
        *out = (uint)visible_index(c, c->gpu_count); \
        CLAIM_COUNT(out);            \
        RETURN(SUCCESS);             \
    }
DEVICE_COUNT(nvmlDeviceGetCount_v2)
DEVICE_COUNT(nvmlDeviceGetCount)

#define HANDLE_BY_INDEX(function)                           \
    API int function(uint index, Handle *out) {             \
        BEGIN_TARGET(visible_gpu(current_scenario(), index)); \
        int gpu = visible_gpu(c, index);                    \
        REQUIRE(out && gpu >= 0);                           \
        *out = board_handle(gpu);                           \
        RETURN(SUCCESS);                                    \
    }
HANDLE_BY_INDEX(nvmlDeviceGetHandleByIndex_v2)
HANDLE_BY_INDEX(nvmlDeviceGetHandleByIndex)

static Handle find_uuid(const struct scenario *c, const char *uuid) {
    char text[64];
    for (int i = 0; uuid && i < c->gpu_count; i++) {
        if (!strcmp(uuid, c->gpu[i].uuid)) return board_handle(i);
        for (int j = 0; j < c->gpu[i].slice_count; j++) {
            slice_uuid(c, i, j, text, sizeof text);
            if (!strcmp(uuid, text)) return slice_handle(i, j);
        }
    }
    return NULL;
}

static Handle find_serial(const struct scenario *c, const char *serial) {
    for (int i = 0; serial && i < c->gpu_count; i++)
        if (!strcmp(serial, c->gpu[i].serial)) return board_handle(i);
    return NULL;
}

/* [domain:]bus:device[.function], hexadecimal */
static Handle find_pci(const struct scenario *c, const char *id) {
    uint domain = 0, bus = 0, device = 0;
    if (!id) return NULL;
    if (sscanf(id, "%x:%x:%x", &domain, &bus, &device) < 3) {
        domain = 0;
        if (sscanf(id, "%x:%x", &bus, &device) < 2) return NULL;
    }
    for (int i = 0; i < c->gpu_count && !device; i++)
        if (c->gpu[i].bus == bus && c->gpu[i].domain == domain) return board_handle(i);
    return NULL;
}

static int gpu_of(Handle found) { return found ? found->gpu : -1; }

#define HANDLE_BY_TEXT(function, find)                          \
    API int function(const char *text, Handle *out) {           \
        BEGIN_TARGET(gpu_of(find(current_scenario(), text)));   \
        REQUIRE(text && out);                                   \
        *out = find(c, text);                                   \
        if (*out && is_hidden(c, (*out)->gpu)) *out = NULL;        \
        RETURN(*out ? SUCCESS : NOT_FOUND);                     \
    }
HANDLE_BY_TEXT(nvmlDeviceGetHandleByUUID, find_uuid)
HANDLE_BY_TEXT(nvmlDeviceGetHandleBySerial, find_serial)
HANDLE_BY_TEXT(nvmlDeviceGetHandleByPciBusId_v2, find_pci)
HANDLE_BY_TEXT(nvmlDeviceGetHandleByPciBusId, find_pci)
