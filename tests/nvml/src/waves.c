/* Waves: one value over time. The text forms are in README.md. */
#include "fake.h"

#include <math.h>
#include <string.h>
#include <strings.h>
#include <stdlib.h>

uint hash3(uint a, uint b, uint c) {
    uint h = a * 2654435761u ^ (b + 0x9e3779b9u) * 40503u ^ c * 2246822519u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    h *= 3266489917u;
    return h ^ h >> 16;
}

static double phase_in(double t, double period) {
    double x = fmod(t, period);
    return x < 0 ? x + period : x;
}

static double steps_at(const struct wave *w, double t) {
    double total = 0;
    for (int i = 0; i < w->steps; i++) total += w->seconds[i];
    double x = !w->once && total > 0 ? phase_in(t, total) : t;
    for (int i = 0; i < w->steps; i++) {
        if (x < w->seconds[i]) return w->value[i];
        x -= w->seconds[i];
    }
    return w->steps ? w->value[w->steps - 1] : 0;
}

double wave_at(const struct wave *w, double t, uint seed) {
    const double *p = w->p;
    double x;
    switch (w->kind) {
    case WAVE_CONST:
        return p[0];
    case WAVE_SINE: /* mean amplitude period phase */
        return p[0] + p[1] * sin(2 * M_PI * (t + p[3]) / p[2]);
    case WAVE_SQUARE: /* low high period duty phase: high first */
        return phase_in(t + p[4], p[2]) < p[2] * (p[3] > 0 ? p[3] : 0.5) ? p[1] : p[0];
    case WAVE_RAMP: /* low high period phase */
        x = (t + p[3]) / p[2];
        x = w->once ? fmin(1, fmax(0, x)) : x - floor(x);
        return p[0] + (p[1] - p[0]) * x;
    case WAVE_TRIANGLE: /* low high period phase */
        x = phase_in(t + p[3], p[2]) / p[2];
        return p[0] + (p[1] - p[0]) * (x < 0.5 ? 2 * x : 2 - 2 * x);
    case WAVE_NOISE: /* mean amplitude step: the same in every process, whoever asks */
        x = hash3((uint)(long)floor(t / p[2]), seed, 7) / 2147483648.0 - 1;
        return p[0] + p[1] * x;
    case WAVE_STEPS:
        return steps_at(w, t);
    }
    return 0;
}

static int kind_of(const char *word) {
    static const char *const WORD[] = {"",     "const", "sine",  "square",
                                       "ramp", "tri",   "noise", "steps"};
    for (int k = WAVE_CONST; k <= WAVE_STEPS; k++)
        if (!strcasecmp(word, WORD[k])) return k;
    return WAVE_UNSET;
}

static void parse_step(struct wave *w, const char *word) { /* VALUE:SECONDS */
    if (w->steps >= MAX_STEPS) return;
    const char *colon = strchr(word, ':');
    w->value[w->steps] = strtod(word, NULL);
    w->seconds[w->steps++] = colon ? strtod(colon + 1, NULL) : 10;
}

void parse_wave(struct wave *w, const char *text) {
    char copy[512], *rest;
    snprintf(copy, sizeof copy, "%s", text);
    memset(w, 0, sizeof *w);
    char *word = strtok_r(copy, " \t,", &rest);
    if (!word) return;
    if (!strcasecmp(word, "na") || !strcmp(word, "-")) {
        w->kind = WAVE_NA;
        return;
    }
    size_t length = strlen(word);
    if (word[length - 1] == '!') {
        w->once = 1;
        word[length - 1] = 0;
    }
    w->kind = kind_of(word);
    if (!w->kind) {
        w->kind = WAVE_CONST;
        w->p[0] = strtod(word, NULL);
        return;
    }
    for (int i = 0; (word = strtok_r(NULL, " \t,", &rest));) {
        if (w->kind == WAVE_STEPS) parse_step(w, word);
        else if (i < 6) w->p[i++] = strtod(word, NULL);
    }
    if (w->kind != WAVE_CONST && w->p[2] <= 0) w->p[2] = w->kind == WAVE_NOISE ? 1 : 60;
}
