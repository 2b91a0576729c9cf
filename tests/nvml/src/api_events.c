/* Event sets: Xid errors as the scenario dates them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

#define LOOK_EVERY_S 0.02

struct event_set {
    uint magic;
    u64 mask[MAX_GPUS];
    double seen_t; /* events up to here were delivered, or lie before the set */
};

API int nvmlEventSetCreate(struct event_set **out) {
    BEGIN_SYSTEM();
    REQUIRE(out);
    *out = calloc(1, sizeof **out);
    if (!*out) RETURN(OUT_OF_MEMORY);
    (*out)->magic = MAGIC;
    (*out)->seen_t = t;
    RETURN(SUCCESS);
}
API int nvmlEventSetFree(struct event_set *set) {
    BEGIN_SYSTEM();
    REQUIRE(set);
    free(set);
    RETURN(SUCCESS);
}
METRIC_U64(nvmlDeviceGetSupportedEventTypes, UTIL, 0x19f)
API int nvmlDeviceRegisterEvents(Handle h, u64 types, struct event_set *set) {
    BEGIN(h);
    REQUIRE(set);
    set->mask[d->gpu] |= types;
    RETURN(SUCCESS);
}

static const struct event *next_event(const struct scenario *c, const struct event_set *set) {
    const struct event *next = NULL;
    double t = scenario_time(c);
    for (int i = 0; i < c->event_count; i++) {
        const struct event *e = &c->event[i];
        if (e->t <= set->seen_t || e->t > t || e->gpu < 0 || e->gpu >= c->gpu_count) continue;
        if ((set->mask[e->gpu] & e->type) && (!next || e->t < next->t)) next = e;
    }
    return next;
}

static int wait_event(struct event_set *set, uint timeout_ms, EventData *out, size_t bytes) {
    double deadline_s = monotonic_s() + timeout_ms / 1000.0;
    for (;;) {
        const struct event *e = next_event(current_scenario(), set);
        if (e) {
            EventData data = {board_handle(e->gpu), e->type, e->data, NO_ID, NO_ID};
            set->seen_t = e->t;
            memcpy(out, &data, bytes);
            return SUCCESS;
        }
        double left_s = deadline_s - monotonic_s();
        if (left_s <= 0) return TIMEOUT;
        nap_us(fmin(left_s, LOOK_EVERY_S) * 1e6);
    }
}
API int nvmlEventSetWait_v2(struct event_set *set, EventData *out, uint timeout_ms) {
    BEGIN_SYSTEM();
    REQUIRE(set && out);
    RETURN(wait_event(set, timeout_ms, out, sizeof *out));
}
API int nvmlEventSetWait(struct event_set *set, EventData *out, uint timeout_ms) {
    BEGIN_SYSTEM();
    REQUIRE(set && out);
    RETURN(wait_event(set, timeout_ms, out, offsetof(EventData, gpuInstanceId)));
}
