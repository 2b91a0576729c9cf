/* What the parts of the emulated driver share: the scenario in memory and the calls between parts.
 *
 *   waves.c     a value over time from its text form
 *   models.c    the boards
 *   parse.c     scenario text -> struct scenario
 *   scenario.c  which scenario holds now; reloads it when its files change
 *   values.c    what every metric is at a time
 *   rules.c     faults: which call fails, waits or never returns
 *   calls.h/.c  what every NVML function does first and last
 *   devfiles.c  which boards a device cgroup hides
 *   api_*.c     the NVML functions, by theme
 *   dump.c      the same values as JSON, past NVML: what tests compare with
 */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#include <stddef.h>
#include <stdio.h>

#include "abi.h"

#define MIB (1024ULL * 1024ULL)
#define NOT_AVAILABLE (~0ULL) /* NVML_VALUE_NOT_AVAILABLE, for memory of a process */
#define NO_ID (~0u)           /* no GPU or compute instance */
#define FOREVER 1e300

enum {
    MAX_GPUS = 64, /* 8 boards of 7 slices need 8, 56 plain boards need 56 */
    MAX_SLICES = 8,
    MAX_PROCESSES = 1024,
    MAX_RULES = 64, /* one bit each in a 64-bit mask */
    MAX_EVENTS = 64,
    MAX_STEPS = 24,
};

/* nvmlReturn_t */
enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    FUNCTION_NOT_FOUND = 13,
    GPU_IS_LOST = 15,
    LIB_RM_VERSION_MISMATCH = 18,
    OUT_OF_MEMORY = 20,
    ARGUMENT_VERSION_MISMATCH = 25,
};

/* -- boards -------------------------------------------------------------------------------- */
enum feature {
    HAS_MIG = 1,
    HAS_GPM = 2,
    HAS_REMAP = 4,
    HAS_RETIRED_PAGES = 8,
    HAS_JPG = 16,
    HAS_OFA = 32,
    HAS_FAN = 64,
    HAS_MEM_TEMP = 128,
    HAS_NVSWITCH = 256,
    NO_ECC = 512,
};

struct model {
    const char *key, *name;
    uint total_mib, reserved_mib;
    uint sms, cores, cc_major, cc_minor, arch, bus_bits;
    uint power_w, power_min_w, power_max_w, power_idle_w;
    uint sm_mhz, sm_idle_mhz, mem_mhz, mem_idle_mhz;
    uint pcie_gen, pcie_width;
    uint links, link_version, link_mb_per_s;
    uint bar1_mib, pci_id, pci_subsystem, brand;
    uint features;
};
const struct model *find_model(const char *key_or_name); /* or NULL */

/* -- waves --------------------------------------------------------------------------------- */
enum wave_kind {
    WAVE_UNSET,
    WAVE_CONST,
    WAVE_SINE,
    WAVE_SQUARE,
    WAVE_RAMP,
    WAVE_TRIANGLE,
    WAVE_NOISE,
    WAVE_STEPS,
    WAVE_NA, /* the driver answers NOT_SUPPORTED */
};
struct wave {
    int kind, once, steps;
    double p[6];
    float value[MAX_STEPS], seconds[MAX_STEPS];
};
void parse_wave(struct wave *w, const char *text);
double wave_at(const struct wave *w, double t, uint seed);
uint hash3(uint a, uint b, uint c);

/* -- the scenario -------------------------------------------------------------------------- */
enum metric {
    UTIL, MEM_UTIL, MEM, TEMP, MEM_TEMP, POWER, SM_CLOCK, MEM_CLOCK, ENCODER, DECODER, JPG, OFA,
    FAN, PCIE_TX, PCIE_RX, NVLINK_TX, NVLINK_RX, GPM_SM, GPM_OCCUPANCY, GPM_TENSOR, GPM_DRAM,
    GPM_FP64, GPM_FP32, GPM_FP16, GPM_INT, ECC_CORRECTED, ECC_UNCORRECTED, THROTTLE, PSTATE,
    RETIRED_SBE, RETIRED_DBE, REMAP_CORRECTED, REMAP_UNCORRECTED, BAR1, PCIE_REPLAY, METRICS
};
extern const char *const METRIC_NAME[METRICS]; /* as scenarios spell them */

struct process {
    int gpu, order;
    uint pid, gi, ci;
    char type; /* C compute, G graphics, M compute through MPS */
    struct wave mem, sm, mem_util, encoder, decoder;
    double from, to; /* alive in [from, to) */
};

struct slice { /* one MIG instance */
    uint gi, ci, slices, sms, mem_mib;
    char profile[24];
};

struct gpu {
    const struct model *model;
    char name[96], uuid[64], serial[32];
    uint bus, domain;
    int minor;
    int mig_mode, slice_count;
    struct slice slice[MAX_SLICES];
    struct wave wave[METRICS];
    uint compute_mode, persistence, ecc, limit_w;
    uint total_mib, reserved_mib;
    int total_set, reserved_set;
    int accounting, remap_pending, remap_failed, recovery_action;
    int absent;              /* unplugged: its handle is lost, and it is not enumerated */
    int clamp;               /* 0: values beyond the possible are answered as they are */
    struct process *process; /* this board's own, in the scenario's order */
    int process_count;
};

enum action { ALLOW, FAIL, DELAY, HANG, CLAIM, GARBAGE };
enum level { ANY_LEVEL, BOARD_LEVEL, SLICE_LEVEL };
struct rule {
    char pattern[80];
    enum action action;
    enum level level;
    int code, gpu;
    u64 claim;
    int sticky; /* a session from before `to` stays broken: only a new nvmlInit helps */
    double delay_us, from, to, probability;
};

struct event {
    double t;
    int gpu;
    u64 type, data;
};

struct scenario {
    int generation, gpu_count, reap, lenient, init_error, cpus, cuda, pid_offset, device_files;
    int enumerate_once; /* what is plugged in later is seen by a new session only */
    char driver[80], nvml[80], module[80], pids_file[512];
    double epoch, freeze, speed, sample_period_s, latency_us;
    struct gpu gpu[MAX_GPUS];
    struct process process[MAX_PROCESSES];
    int process_count;
    struct rule rule[MAX_RULES];
    int rule_count;
    struct event event[MAX_EVENTS];
    int event_count;
};

/* parse.c */
void scenario_defaults(struct scenario *c);
void parse_scenario(struct scenario *c, FILE *file);
void parse_preset(struct scenario *c, const char *spec); /* MODELxN */
void parse_pids(struct scenario *c, FILE *file);
void scenario_finish(struct scenario *c);

/* scenario.c: never NULL; it stays valid for the call that asked, at least */
struct scenario *current_scenario(void);
double scenario_time(const struct scenario *c);
/* A descriptor that is readable once the scenario's files may have changed; -1: there is none. */
int watch_scenario(void);
u64 wall_us(const struct scenario *c, double t);
double clock_set_s(void); /* by how much the wall clock was set since the start */
u64 stamp_us(const struct scenario *c, double t, double set_s);
double monotonic_s(void);
double wall_s(void);
void nap_us(double us);

/* -- values -------------------------------------------------------------------------------- */
double metric_at(const struct scenario *c, int gpu, enum metric m, double t);
double metric_mean(const struct scenario *c, int gpu, enum metric m, double t, double span_s,
                   int n);
int is_na(const struct scenario *c, int gpu, enum metric m);
/* start of the driver's own sampling period that t lies in */
double period_start(const struct scenario *c, double t);
/* integral of a metric since t=0 (energy, bytes); with a mask, the seconds any of its bits was
 * on */
double integral(const struct scenario *c, int gpu, enum metric m, double t, uint mask);
int is_active(const struct scenario *c, const struct process *p, double t);
u64 process_mem_bytes(const struct process *p, double t);

struct usage {
    uint pid, gi, ci;
    char type;
    u64 mem_bytes;
    double sm, mem, encoder, decoder; /* % */
};
/* processes of a board (slice < 0) or of one slice, of the given types */
int list_usage(const struct scenario *c, int gpu, int slice, double t, const char *types,
               struct usage *out, int max);

struct memory {
    u64 total, reserved, used;
};
struct memory memory_at(const struct scenario *c, int gpu, int slice, double t);
void slice_uuid(const struct scenario *c, int gpu, int slice, char *out, size_t n);

/* numbers as the driver's integers hold them: never wrapped round */
static inline uint to_uint(double x) {
    return x <= 0 ? 0 : x >= 4294967295.0 ? 0xffffffffu : (uint)x;
}
static inline u64 to_u64(double x) {
    return x <= 0 ? 0 : x >= 1.8e19 ? ~0ULL : (u64)x;
}
static inline uint rounded(double x) { return to_uint(x + 0.5); }

/* -- rules --------------------------------------------------------------------------------- */
struct verdict {
    int code, hang, garbage;
    int claims, claim_code; /* answer `claim` in place of the true count, and this code */
    u64 claim;
    double delay_us;
};
u64 matching_rules(const struct scenario *c, const char *function);
/* what happens to call number `nth` of a function at t, in a session that began at session_t */
struct verdict judge(const struct scenario *c, u64 rules, int gpu, int slice, double t,
                     double session_t, uint nth);

#endif
