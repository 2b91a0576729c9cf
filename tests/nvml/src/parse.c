/* Scenario text -> struct scenario. The syntax is in README.md. */
#include "fake.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const METRIC_NAME[METRICS] = {
    "util",        "memutil",     "mem",        "temp",      "mtemp",       "power",
    "smclk",       "memclk",      "enc",        "dec",       "jpg",         "ofa",
    "fan",         "pcie_tx",     "pcie_rx",    "nvlink_tx", "nvlink_rx",   "gpm_sm",
    "gpm_occ",     "gpm_tensor",  "gpm_dram",   "gpm_fp64",  "gpm_fp32",    "gpm_fp16",
    "gpm_int",     "ecc_corr",    "ecc_unc",    "throttle",  "pstate",      "retired_sbe",
    "retired_dbe", "remap_corr",  "remap_unc",  "bar1",      "pcie_replay",
};

/* `\xNN` in names: scenarios are text, what a driver answers need not be */
static void unescape(char *out, size_t n, const char *text) {
    size_t used = 0;
    while (*text && used + 1 < n) {
        uint byte;
        if (text[0] == '\\' && text[1] == 'x' && sscanf(text + 2, "%2x", &byte) == 1 && byte) {
            out[used++] = (char)byte;
            text += 4;
        } else {
            out[used++] = *text++;
        }
    }
    out[used] = 0;
}

/* the value of `key=` among blank-separated words, or NULL */
static const char *option(const char *words, const char *key, char *out, size_t n) {
    size_t length = strlen(key);
    for (const char *p = words; (p = strstr(p, key)); p += length) {
        if ((p != words && !isspace((unsigned char)p[-1])) || p[length] != '=') continue;
        p += length + 1;
        size_t used = 0;
        while (*p && !isspace((unsigned char)*p) && used + 1 < n) out[used++] = *p++;
        out[used] = 0;
        return out;
    }
    return NULL;
}

static void number_option(const char *words, const char *key, double *out) {
    char text[64];
    if (option(words, key, text, sizeof text)) *out = atof(text);
}

static void wave_option(const char *words, const char *key, struct wave *out) {
    char text[256];
    if (option(words, key, text, sizeof text)) parse_wave(out, text);
}

/* a number, `self`, `ppid`, or `@name`: a stand-in job from FAKE_NVML_STANDINS=name=pid,name=pid */
static uint parse_pid(const char *text) {
    if (!strcmp(text, "self")) return (uint)getpid();
    if (!strcmp(text, "ppid")) return (uint)getppid();
    if (*text != '@') return (uint)strtoul(text, NULL, 0);
    const char *p = getenv("FAKE_NVML_STANDINS");
    size_t length = strlen(++text);
    while (p && *p) {
        if (!strncmp(p, text, length) && p[length] == '=')
            return (uint)strtoul(p + length + 1, NULL, 10);
        p = strchr(p, ',');
        p = p ? p + 1 : NULL;
    }
    return 0; /* not started: there is no such process */
}

static struct process *new_process(struct scenario *c, int gpu, const char *pid) {
    if (c->process_count >= MAX_PROCESSES) return NULL;
    struct process *p = &c->process[c->process_count];
    memset(p, 0, sizeof *p);
    p->pid = parse_pid(pid);
    if (!p->pid) return NULL;
    p->gpu = gpu;
    p->order = c->process_count++;
    p->type = 'C';
    p->gi = p->ci = NO_ID;
    p->from = -FOREVER;
    p->to = FOREVER;
    return p;
}

/* PID mem=.. sm=.. memutil=.. enc=.. dec=.. type=C gi= ci= from= to= */
static void add_process(struct scenario *c, int gpu, const char *words) {
    char pid[32] = "", text[8];
    sscanf(words, "%31s", pid);
    struct process *p = new_process(c, gpu, pid);
    if (!p) return;
    wave_option(words, "mem", &p->mem);
    wave_option(words, "sm", &p->sm);
    wave_option(words, "memutil", &p->mem_util);
    wave_option(words, "enc", &p->encoder);
    wave_option(words, "dec", &p->decoder);
    if (option(words, "type", text, sizeof text)) p->type = text[0];
    if (option(words, "gi", text, sizeof text)) p->gi = (uint)atoi(text);
    if (option(words, "ci", text, sizeof text)) p->ci = (uint)atoi(text);
    number_option(words, "from", &p->from);
    number_option(words, "to", &p->to);
}

/* lines of "GPU PID MEM_MIB|wave [SM|-] [TYPE] [GI CI]" */
void parse_pids(struct scenario *c, FILE *file) {
    char line[512];
    while (fgets(line, sizeof line, file)) {
        char *comment = strchr(line, '#');
        if (comment) *comment = 0;
        char pid[32] = "", mem[128] = "0", sm[128] = "-", type[8] = "C";
        uint gi = NO_ID, ci = NO_ID;
        int gpu;
        if (sscanf(line, "%d %31s %127s %127s %7s %u %u", &gpu, pid, mem, sm, type, &gi, &ci) < 2)
            continue;
        struct process *p = new_process(c, gpu, pid);
        if (!p) continue;
        p->type = type[0];
        p->gi = gi;
        p->ci = ci;
        parse_wave(&p->mem, mem);
        if (strcmp(sm, "-")) parse_wave(&p->sm, sm);
    }
}

/* GI CI PROFILE, for example "2 0 3g.40gb" */
static void add_slice(struct gpu *g, const char *words) {
    if (g->slice_count >= MAX_SLICES) return;
    struct slice *s = &g->slice[g->slice_count++];
    uint gb = 10;
    s->gi = (uint)g->slice_count;
    s->slices = 1;
    snprintf(s->profile, sizeof s->profile, "1g.10gb");
    sscanf(words, "%u %u %23s", &s->gi, &s->ci, s->profile);
    sscanf(s->profile, "%ug.%ugb", &s->slices, &gb);
    s->sms = g->model->sms / 7 / 2 * 2 * s->slices;
    /* as nvidia-smi shows 1g.5gb, 1g.10gb, 2g.20gb, 3g.40gb; a guess for the others */
    s->mem_mib = gb == 5    ? 4864
                 : gb == 10 ? 9728
                 : gb == 20 ? 19968
                 : gb == 40 ? 40192
                            : gb * 1024 - gb * 1024 / 20;
    g->mig_mode = 1;
}

/* PATTERN allow | fail CODE | delay USEC | hang | claim COUNT | garbage, then
 * [gpu=N] [level=board|slice] [from=T] [to=T] [prob=P] [sticky=1] [code=C, with claim] */
static void add_rule(struct scenario *c, const char *words) {
    if (c->rule_count >= MAX_RULES) return;
    struct rule *r = &c->rule[c->rule_count];
    char action[16] = "", number[32] = "", text[16];
    memset(r, 0, sizeof *r);
    if (sscanf(words, "%79s %15s %31s", r->pattern, action, number) < 2) return;
    if (!strcmp(action, "allow")) r->action = ALLOW;
    else if (!strcmp(action, "fail")) r->action = FAIL;
    else if (!strcmp(action, "delay")) r->action = DELAY;
    else if (!strcmp(action, "hang")) r->action = HANG;
    else if (!strcmp(action, "claim")) r->action = CLAIM;
    else if (!strcmp(action, "garbage")) r->action = GARBAGE;
    else {
        fprintf(stderr, "fake-nvml: unknown action '%s'\n", action);
        return;
    }
    double gpu = -1, sticky = 0, code = r->action == CLAIM ? 0 : atof(number);
    r->delay_us = atof(number);
    r->claim = strtoull(number, NULL, 0);
    r->from = -FOREVER;
    r->to = FOREVER;
    r->probability = 1;
    number_option(words, "code", &code);
    r->code = (int)code;
    number_option(words, "gpu", &gpu);
    number_option(words, "sticky", &sticky);
    number_option(words, "from", &r->from);
    number_option(words, "to", &r->to);
    number_option(words, "prob", &r->probability);
    if (option(words, "level", text, sizeof text))
        r->level = *text == 's' ? SLICE_LEVEL : BOARD_LEVEL;
    r->gpu = (int)gpu;
    r->sticky = sticky != 0;
    c->rule_count++;
}

/* T GPU xid CODE */
static void add_event(struct scenario *c, const char *words) {
    if (c->event_count >= MAX_EVENTS) return;
    struct event *e = &c->event[c->event_count];
    char type[16] = "";
    double data = 0;
    if (sscanf(words, "%lf %d %15s %lf", &e->t, &e->gpu, type, &data) < 3) return;
    e->type = !strcmp(type, "xid") ? 8 : strtoull(type, NULL, 0);
    e->data = (u64)data;
    c->event_count++;
}

static void gpu_defaults(struct gpu *g) {
    if (g->model) return;
    g->model = find_model("A100-SXM4-80GB");
    g->minor = -1;
    g->persistence = g->ecc = 1;
    g->clamp = 1;
    g->bus = NO_ID;
}

static void set_gpu(struct scenario *c, int i, const char *key, const char *value) {
    struct gpu *g = &c->gpu[i];
    gpu_defaults(g);
    const struct { const char *key; void *out; } number[] = {
        {"bus", &g->bus},
        {"minor", &g->minor},
        {"migmode", &g->mig_mode},
        {"compute_mode", &g->compute_mode},
        {"persistence", &g->persistence},
        {"ecc", &g->ecc},
        {"limit_w", &g->limit_w},
        {"accounting", &g->accounting},
        {"remap_pending", &g->remap_pending},
        {"remap_fail", &g->remap_failed},
        {"recovery_action", &g->recovery_action},
        {"absent", &g->absent},
        {"clamp", &g->clamp},
        {"total", &g->total_mib},
        {"reserved", &g->reserved_mib},
    };
    for (size_t k = 0; k < sizeof number / sizeof *number; k++) {
        if (strcmp(key, number[k].key)) continue;
        *(int *)number[k].out = (int)strtol(value, NULL, 0);
        g->total_set |= !strcmp(key, "total");
        g->reserved_set |= !strcmp(key, "reserved");
        return;
    }
    for (int m = 0; m < METRICS; m++)
        if (!strcmp(key, METRIC_NAME[m])) {
            parse_wave(&g->wave[m], value);
            return;
        }
    if (!strcmp(key, "model")) {
        const struct model *model = find_model(value);
        if (model) g->model = model;
        else fprintf(stderr, "fake-nvml: unknown model '%s'\n", value);
    } else if (!strcmp(key, "name")) unescape(g->name, sizeof g->name, value);
    else if (!strcmp(key, "uuid")) unescape(g->uuid, sizeof g->uuid, value);
    else if (!strcmp(key, "serial")) unescape(g->serial, sizeof g->serial, value);
    else if (!strcmp(key, "proc")) add_process(c, i, value);
    else if (!strcmp(key, "mig") && atoi(value)) add_slice(g, value);
    else if (!strcmp(key, "mig")) g->mig_mode = g->slice_count = 0;
    else fprintf(stderr, "fake-nvml: unknown key '%s'\n", key);
}

static void set_system(struct scenario *c, const char *key, const char *value) {
    const struct { const char *key; double *out; } number[] = {
        {"freeze", &c->freeze},
        {"speed", &c->speed},
        {"sample_period", &c->sample_period_s},
        {"latency_us", &c->latency_us},
    };
    const struct { const char *key; int *out; } integer[] = {
        {"cuda", &c->cuda},       {"cpus", &c->cpus},
        {"reap", &c->reap},       {"lenient", &c->lenient},
        {"device_files", &c->device_files},
        {"gpus", &c->gpu_count},  {"init_error", &c->init_error},
        {"pid_offset", &c->pid_offset},
        {"enumerate_once", &c->enumerate_once},
    };
    for (size_t k = 0; k < sizeof number / sizeof *number; k++)
        if (!strcmp(key, number[k].key)) {
            *number[k].out = atof(value);
            return;
        }
    for (size_t k = 0; k < sizeof integer / sizeof *integer; k++)
        if (!strcmp(key, integer[k].key)) {
            *integer[k].out = atoi(value);
            return;
        }
    if (!strcmp(key, "driver")) snprintf(c->driver, sizeof c->driver, "%s", value);
    else if (!strcmp(key, "nvml")) snprintf(c->nvml, sizeof c->nvml, "%s", value);
    else if (!strcmp(key, "module")) snprintf(c->module, sizeof c->module, "%s", value);
    else if (!strcmp(key, "pids_file")) snprintf(c->pids_file, sizeof c->pids_file, "%s", value);
    else if (!strcmp(key, "epoch"))
        c->epoch = !strcmp(value, "boot") ? wall_s() - monotonic_s() : atof(value);
    else if (!strcmp(key, "rule")) add_rule(c, value);
    else if (!strcmp(key, "event")) add_event(c, value);
    else fprintf(stderr, "fake-nvml: unknown system key '%s'\n", key);
}

/* "0-7", "0,2", "*": the boards that the lines below speak of */
static u64 select_gpus(struct scenario *c, const char *p) {
    u64 selected = 0;
    while (*p && *p != ']') {
        long first = 0, last = c->gpu_count - 1;
        if (isdigit((unsigned char)*p)) {
            first = last = strtol(p, (char **)&p, 10);
            if (*p == '-') last = strtol(p + 1, (char **)&p, 10);
        } else if (*p++ != '*') {
            continue;
        }
        for (long i = first; i <= last && i < MAX_GPUS; i++) {
            selected |= 1ULL << i;
            if (i >= c->gpu_count) c->gpu_count = (int)i + 1;
        }
    }
    return selected;
}

static char *trim(char *text) {
    while (isspace((unsigned char)*text)) text++;
    size_t n = strlen(text);
    while (n && isspace((unsigned char)text[n - 1])) text[--n] = 0;
    return text;
}

void parse_scenario(struct scenario *c, FILE *file) {
    char line[1024];
    u64 selected = 0;
    int in_system = 1;
    while (fgets(line, sizeof line, file)) {
        char *comment = strchr(line, '#');
        if (comment) *comment = 0;
        char *key = trim(line), *value = strchr(key, '=');
        if (*key == '[') {
            in_system = !strncmp(key, "[system", 7);
            selected = !strncmp(key, "[gpu", 4) ? select_gpus(c, key + 4) : 0;
        } else if (value) {
            *value++ = 0;
            key = trim(key);
            value = trim(value);
            if (in_system) set_system(c, key, value);
            for (int i = 0; i < MAX_GPUS; i++)
                if (selected >> i & 1) set_gpu(c, i, key, value);
        }
    }
}

void parse_preset(struct scenario *c, const char *spec) {
    char model[64], text[64];
    snprintf(model, sizeof model, "%s", spec);
    char *x = strrchr(model, 'x');
    c->gpu_count = 1;
    if (x && isdigit((unsigned char)x[1])) {
        c->gpu_count = atoi(x + 1);
        *x = 0;
    }
    for (int i = 0; i < c->gpu_count && i < MAX_GPUS; i++) {
        set_gpu(c, i, "model", model);
        snprintf(text, sizeof text, "sine 55 35 %d %d", 40 + 7 * i, 5 * i);
        set_gpu(c, i, "util", text);
        uint peak_mib = c->gpu[i].model->total_mib * 8 / 10;
        snprintf(text, sizeof text, "tri 2000 %u %d", peak_mib, 90 + 10 * i);
        set_gpu(c, i, "mem", text);
    }
}

void scenario_defaults(struct scenario *c) {
    c->reap = 1;
    c->freeze = c->epoch = -1;
    c->speed = 1;
    c->sample_period_s = 1.0 / 6;
    c->cpus = 128;
    c->cuda = 13000;
    snprintf(c->driver, sizeof c->driver, "580.159.03");
}

static uint default_bus(int gpu, int gpu_count) {
    static const unsigned char OF_4[] = {0x01, 0x41, 0x81, 0xC1};
    static const unsigned char OF_8[] = {0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD};
    if (gpu_count == 8) return OF_8[gpu];
    if (gpu_count == 4) return OF_4[gpu];
    /* 0x11 is odd: 64 boards get 64 bus numbers */
    return gpu_count == 1 ? 0x18 : (0x1Au + 0x11u * (uint)gpu) & 0xff;
}

static void gpu_finish(struct scenario *c, int i) {
    struct gpu *g = &c->gpu[i];
    gpu_defaults(g);
    uint id = g->model->pci_id;
    if (!g->name[0]) snprintf(g->name, sizeof g->name, "%s", g->model->name);
    if (!g->uuid[0]) {
        uint a = hash3(i, id, 1), b = hash3(i, id, 2), d = hash3(i, id, 3), e = hash3(i, id, 4);
        snprintf(g->uuid, sizeof g->uuid, "GPU-%08x-%04x-%04x-%04x-%08x%04x", a, b >> 16,
                 b & 0xffff, d >> 16, e, d & 0xffff);
    }
    if (!g->serial[0])
        snprintf(g->serial, sizeof g->serial, "13245210%05u", hash3(i, 9, 9) % 100000);
    if (g->bus == NO_ID) g->bus = default_bus(i, c->gpu_count);
    if (g->minor < 0) g->minor = i;
    if (!g->limit_w) g->limit_w = g->model->power_w;
    if (!g->total_set) g->total_mib = g->model->total_mib;
    if (!g->reserved_set) g->reserved_mib = g->model->reserved_mib;
}

static int by_gpu(const void *a, const void *b) {
    const struct process *p = a, *q = b;
    return p->gpu != q->gpu ? p->gpu - q->gpu : p->order - q->order;
}

void scenario_finish(struct scenario *c) {
    if (c->gpu_count > MAX_GPUS) c->gpu_count = MAX_GPUS;
    for (int i = 0; i < c->gpu_count; i++) gpu_finish(c, i);
    qsort(c->process, (size_t)c->process_count, sizeof *c->process, by_gpu);
    for (int i = c->process_count - 1; i >= 0; i--) {
        int gpu = c->process[i].gpu;
        if (gpu < 0 || gpu >= c->gpu_count) continue;
        c->gpu[gpu].process = &c->process[i];
        c->gpu[gpu].process_count++;
    }
    if (!c->nvml[0]) snprintf(c->nvml, sizeof c->nvml, "%d.%.70s", c->cuda / 1000, c->driver);
}
