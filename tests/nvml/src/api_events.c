/* Event sets: Xid errors as the scenario dates them. A wait sleeps as the real driver's does. */
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"

#define LOOK_EVERY_S 0.02

struct event_set {
    uint magic;
    u64 mask[MAX_GPUS];
    double seen_t; /* events up to here were delivered, or lie before the set */
    int changes;   /* readable once the scenario's files may have changed */
};

API int nvmlEventSetCreate(struct event_set **out) {
    BEGIN_SYSTEM();
    REQUIRE(out);
    *out = calloc(1, sizeof **out);
    if (!*out) RETURN(OUT_OF_MEMORY);
    (*out)->magic = MAGIC;
    (*out)->seen_t = t;
    (*out)->changes = watch_scenario();
    RETURN(SUCCESS);
}
API int nvmlEventSetFree(struct event_set *set) {
    BEGIN_SYSTEM();
    REQUIRE(set);
    if (set->changes >= 0) close(set->changes);
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

/* the earliest event after those that were delivered, be it still to come */
static const struct event *next_event(const struct scenario *c, const struct event_set *set) {
    const struct event *next = NULL;
    for (int i = 0; i < c->event_count; i++) {
        const struct event *e = &c->event[i];
        if (e->t <= set->seen_t || e->gpu < 0 || e->gpu >= c->gpu_count) continue;
        if ((set->mask[e->gpu] & e->type) && (!next || e->t < next->t)) next = e;
    }
    return next;
}

/* Sleep until the scenario's files change, `most_s` at most; without a watch only for a moment. */
static void sleep_until_change(const struct event_set *set, double most_s) {
    struct pollfd changes = {set->changes, POLLIN, 0};
    char notes[4096];
    if (set->changes < 0) most_s = fmin(most_s, LOOK_EVERY_S);
    if (poll(&changes, 1, (int)ceil(most_s * 1e3)) <= 0) return;
    if (read(set->changes, notes, sizeof notes) < 0) return;
    nap_us(LOOK_EVERY_S * 1e6); /* as the scenario's files are looked at no more often */
}

static int wait_event(struct event_set *set, uint timeout_ms, EventData *out, size_t bytes) {
    double deadline_s = monotonic_s() + timeout_ms / 1000.0;
    for (;;) {
        const struct scenario *c = current_scenario();
        const struct event *e = next_event(c, set);
        double left_s = deadline_s - monotonic_s();
        double t = scenario_time(c);
        if (e && e->t <= t) {
            EventData data = {board_handle(e->gpu), e->type, e->data, NO_ID, NO_ID};
            set->seen_t = e->t;
            memcpy(out, &data, bytes);
            return SUCCESS;
        }
        if (left_s <= 0) return TIMEOUT;
        if (e && c->freeze < 0 && c->speed > 0) left_s = fmin(left_s, (e->t - t) / c->speed);
        sleep_until_change(set, left_s);
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
