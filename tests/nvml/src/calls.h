/* What every NVML function does first and last: counting, handles, faults, times. */
#ifndef FAKE_NVML_CALLS_H
#define FAKE_NVML_CALLS_H

#include "fake.h"

#define API __attribute__((visibility("default")))
#define UNUSED __attribute__((unused))

/* handles are addresses of these; slice is -1 for a board */
struct handle {
    uint magic;
    int gpu, slice;
};
typedef struct handle *Handle;
#define MAGIC 0x4e564d4cu

Handle board_handle(int gpu);
Handle slice_handle(int gpu, int slice);
Handle checked_handle(void *p); /* NULL if we never gave it out; aborts if FAKE_NVML_STRICT */

enum call_kind {
    ON_BOARD,    /* a MIG handle answers INVALID_ARGUMENT: a guess */
    ON_ANY,      /* a board or a slice */
    ON_TARGET,   /* no handle yet, but about one board: rules with gpu= apply */
    ON_SYSTEM,
    ON_LIBRARY,  /* works before nvmlInit */
};

struct slot; /* one function's line in the call table */
struct call_site {
    struct slot *slot;
    int generation; /* of the scenario that `rules` was matched with */
    u64 rules;
};
struct call {
    struct slot *slot;
    const char *function;
    u64 began_ns;
    int result, gpu, slice;
    uint nth; /* call of this function: seeds garbage */
    struct verdict verdict;
    struct scenario *scenario;
    double t;
};

/* SUCCESS, or the code to return at once */
int call_begin(struct call *call, struct call_site *site, const char *function, void *handle,
               enum call_kind kind, int target_gpu);
void call_end(struct call *call);
/* devfiles.c: boards that a device cgroup forbids. A board's index counts those that are visible */
void look_at_device_files(const struct scenario *c);
int is_hidden(const struct scenario *c, int gpu);
int visible_gpu(const struct scenario *c, uint index); /* -1 when there are fewer */
int visible_index(const struct scenario *c, int gpu);

void spoil(void *out, size_t bytes, uint seed); /* never the same, no byte 0 */
int session_begin(void); /* nvmlInit: sessions nest */
int session_end(void);

/* declares c (scenario), t (its time), d (handle) and g (board), or returns */
#define BEGIN_CALL(handle, kind, target)                                                      \
    static struct call_site site_;                                                            \
    __attribute__((cleanup(call_end))) struct call call_ = {0};                               \
    if (call_begin(&call_, &site_, __func__, (void *)(handle), kind, target))                 \
        return call_.result;                                                                  \
    UNUSED struct scenario *const c = call_.scenario;                                         \
    UNUSED const double t = call_.t;                                                          \
    UNUSED const Handle d = (Handle)(handle);                                                 \
    UNUSED const struct gpu *const g = call_.gpu >= 0 ? &c->gpu[call_.gpu] : NULL

#define BEGIN(handle) BEGIN_CALL(handle, ON_BOARD, -1)
#define BEGIN_ANY(handle) BEGIN_CALL(handle, ON_ANY, -1)
#define BEGIN_TARGET(gpu) BEGIN_CALL(NULL, ON_TARGET, gpu)
#define BEGIN_SYSTEM() BEGIN_CALL(NULL, ON_SYSTEM, -1)
#define BEGIN_LIBRARY() BEGIN_CALL(NULL, ON_LIBRARY, -1)

#define RETURN(code) return (call_.result = (code))
/* faults of what is answered: a count that a rule claims, or bytes that mean nothing */
#define CLAIM_COUNT(count)                                                                    \
    do {                                                                                      \
        if (!call_.verdict.claims) break;                                                     \
        *(count) = (uint)call_.verdict.claim;                                                 \
        RETURN(call_.verdict.claim_code);                                                     \
    } while (0)
#define SPOIL(out, bytes)                                                                     \
    do {                                                                                      \
        if (call_.verdict.garbage) spoil((out), (bytes), call_.nth);            \
    } while (0)
#define REQUIRE(condition) do { if (!(condition)) RETURN(INVALID_ARGUMENT); } while (0)
#define REQUIRE_VERSION(p, n)                                                                 \
    do {                                                                                      \
        if ((p)->version != STRUCT_VERSION(*(p), n)) RETURN(ARGUMENT_VERSION_MISMATCH);       \
    } while (0)
#define SUPPORTED_IF(condition) do { if (!(condition)) RETURN(NOT_SUPPORTED); } while (0)
#define MEASURED(metric) SUPPORTED_IF(!is_na(c, d->gpu, metric))
#define VALUE(metric) metric_at(c, d->gpu, metric, t)
/* constant within one of the driver's own sampling periods, so that two reads in it agree */
#define SAMPLED(metric) metric_at(c, d->gpu, metric, period_start(c, t))
#define RETURN_TEXT(out, n, text)                                                             \
    do {                                                                                      \
        REQUIRE(out);                                                                         \
        size_t length_ = strlen(text);                                                        \
        if (length_ + 1 > (n)) RETURN(INSUFFICIENT_SIZE);                                     \
        memcpy(out, text, length_ + 1);                                                       \
        SPOIL(out, n);                                                                        \
        RETURN(SUCCESS);                                                                      \
    } while (0)

/* functions of the commonest shapes */
#define BOARD_UINT(function, expression)                                                      \
    API int function(Handle h, uint *out) {                                                   \
        BEGIN(h);                                                                             \
        REQUIRE(out);                                                                         \
        *out = (uint)(expression);                                                            \
        SPOIL(out, sizeof *out);                                                              \
        RETURN(SUCCESS);                                                                      \
    }
#define METRIC_UINT(function, metric, expression)                                             \
    API int function(Handle h, uint *out) {                                                   \
        BEGIN(h);                                                                             \
        REQUIRE(out);                                                                         \
        MEASURED(metric);                                                                     \
        *out = (uint)(expression);                                                            \
        SPOIL(out, sizeof *out);                                                              \
        RETURN(SUCCESS);                                                                      \
    }
#define METRIC_U64(function, metric, expression)                                              \
    API int function(Handle h, u64 *out) {                                                    \
        BEGIN(h);                                                                             \
        REQUIRE(out);                                                                         \
        MEASURED(metric);                                                                     \
        *out = (u64)(expression);                                                             \
        SPOIL(out, sizeof *out);                                                              \
        RETURN(SUCCESS);                                                                      \
    }
#define BOARD_TEXT(function, text)                                                            \
    API int function(Handle h, char *out, uint n) {                                           \
        BEGIN(h);                                                                             \
        RETURN_TEXT(out, n, text);                                                            \
    }

#endif
