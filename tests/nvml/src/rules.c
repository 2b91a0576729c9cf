/* Faults. The first rule that does more than delay a call decides; delays add up. */
#include "fake.h"

#include <fnmatch.h>

u64 matching_rules(const struct scenario *c, const char *function) {
    u64 mask = 0;
    for (int i = 0; i < c->rule_count; i++)
        if (!fnmatch(c->rule[i].pattern, function, 0)) mask |= 1ULL << i;
    return mask;
}

static int holds(const struct rule *r, int gpu, int slice, double t, double session_t) {
    if (r->gpu >= 0 && r->gpu != gpu) return 0;
    if (r->level != ANY_LEVEL && (r->level == SLICE_LEVEL) != (slice >= 0)) return 0;
    return t >= r->from && (t < r->to || (r->sticky && session_t < r->to));
}

struct verdict judge(const struct scenario *c, u64 rules, int gpu, int slice, double t,
                     double session_t, uint nth) {
    struct verdict v = {.code = SUCCESS, .delay_us = c->latency_us};
    for (int i = 0; i < c->rule_count; i++) {
        const struct rule *r = &c->rule[i];
        if (!(rules >> i & 1) || !holds(r, gpu, slice, t, session_t)) continue;
        if (r->probability < 1 && hash3(nth, 77, i) / 4294967296.0 >= r->probability) continue;
        if (r->action == DELAY) {
            v.delay_us += r->delay_us;
            continue;
        }
        v.code = r->action == FAIL ? r->code : SUCCESS;
        v.hang = r->action == HANG;
        v.garbage = r->action == GARBAGE;
        v.claims = r->action == CLAIM;
        v.claim = r->claim;
        v.claim_code = r->action == CLAIM ? r->code : SUCCESS;
        break;
    }
    return v;
}
