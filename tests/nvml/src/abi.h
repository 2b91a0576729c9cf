/* NVML's structs as the emulator fills them (x86-64 and aarch64 Linux).
 *
 * Member names are NVML's own; layout.inc lists them, and the checks compare every one with
 * nvml.h (make check) and with the official Python binding (test_emulator.py).
 */
#ifndef FAKE_NVML_ABI_H
#define FAKE_NVML_ABI_H

typedef unsigned int uint;
typedef unsigned long long u64;

typedef struct { uint gpu, memory; } Utilization;

typedef struct { u64 total, free, used; } Memory;
typedef struct { uint version; u64 total, reserved, free, used; } MemoryV2;
typedef struct { u64 bar1Total, bar1Free, bar1Used; } Bar1Memory;

typedef struct {
    char busIdLegacy[16];
    uint domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} PciInfo;

typedef struct {
    uint version, domain, bus, device, pciDeviceId, pciSubSystemId, baseClass, subClass;
    char busId[32];
} PciInfoExt;

typedef struct { uint pid; u64 usedGpuMemory; } ProcessInfoV1;

typedef struct { /* v2 and v3 share it */
    uint pid;
    u64 usedGpuMemory;
    uint gpuInstanceId, computeInstanceId;
} ProcessInfoV2;

typedef struct {
    uint pid;
    u64 usedGpuMemory;
    uint gpuInstanceId, computeInstanceId;
    u64 usedGpuCcProtectedMemory;
} ProcessDetail;

typedef struct {
    uint version, mode, numProcArrayEntries;
    ProcessDetail *procArray;
} ProcessDetailList;

typedef struct { uint pid; u64 timeStamp; uint smUtil, memUtil, encUtil, decUtil; } ProcessSample;

typedef struct {
    u64 timeStamp;
    uint pid, smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil;
} ProcessSampleInfo;

typedef struct {
    uint version, processSamplesCount;
    u64 lastSeenTimeStamp;
    ProcessSampleInfo *procUtilArray;
} ProcessSamplesInfo;

typedef struct {
    uint gpuUtilization, memoryUtilization;
    u64 maxMemoryUsage, time, startTime;
    uint isRunning, reserved[5];
} AccountingStats;

enum { VALUE_DOUBLE = 0, VALUE_UINT = 1, VALUE_ULONG = 2, VALUE_ULONGLONG = 3, VALUE_INT = 5 };
typedef union {
    double dVal;
    int siVal;
    uint uiVal;
    unsigned long ulVal;
    u64 ullVal;
    long long sllVal;
    unsigned short usVal;
} Value;

typedef struct { u64 timeStamp; Value sampleValue; } Sample;

typedef struct {
    uint fieldId, scopeId;
    long long timestamp, latencyUsec;
    uint valueType;
    int nvmlReturn;
    Value value;
} FieldValue;

typedef struct { u64 referenceTime, violationTime; } ViolationTime;
typedef struct { uint version, sensorType; int temperature; } TemperatureV1;
typedef struct { uint version; int marginTemperature; } MarginTemperature;
typedef struct { uint version, fan, speed; } FanSpeedInfo;

typedef struct {
    uint multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount;
    uint sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    u64 memorySizeMB;
} Attributes;

typedef struct { u64 l1Cache, l2Cache, deviceMemory, registerFile; } EccErrorCounts;
typedef struct { uint max, high, partial, low, none; } RowRemapperHistogram;

typedef struct {
    uint metricId;
    int nvmlReturn;
    double value;
    struct { char *shortName, *longName, *unit; } metricInfo;
} GpmMetric;

#define GPM_METRIC_MAX 333
typedef struct {
    uint version, numMetrics;
    void *sample1, *sample2;
    GpmMetric metrics[GPM_METRIC_MAX];
} GpmMetricsGet;

typedef struct { uint version, isSupportedDevice; } GpmSupport;

typedef struct {
    void *device;
    u64 eventType, eventData;
    uint gpuInstanceId, computeInstanceId;
} EventData;

typedef struct { /* bIsPresent is a bit field of one bit: alone in its word */
    uint flags;
    struct { uint bIsPresent, percentage, incThreshold, decThreshold; } utilization[8];
} DynamicPstatesInfo;

typedef struct { uint version; char branch[80]; } DriverBranch;

/* versioned structs carry their size and version: NVML_STRUCT_VERSION of nvml.h */
#define STRUCT_VERSION(type, n) ((uint)(sizeof(type) | (uint)(n) << 24))

#endif
