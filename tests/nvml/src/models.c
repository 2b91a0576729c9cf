/* The boards. Memory, clocks, power limits and PCI ids are public figures; guesses are named. */
#include "fake.h"

#include <string.h>
#include <strings.h>

#define DATACENTRE_MIG (HAS_MIG | HAS_REMAP | HAS_JPG | HAS_OFA | HAS_MEM_TEMP | HAS_NVSWITCH)

/* reserved_mib is a guess except for A100-SXM4-80GB (904); so are power_idle_w and sm_idle_mhz */
static const struct model MODELS[] = {
    {.key = "H200", .name = "NVIDIA H200", .total_mib = 143771, .reserved_mib = 606,
     .sms = 132, .cores = 16896, .cc_major = 9, .arch = 9, .bus_bits = 6144,
     .power_w = 700, .power_min_w = 200, .power_max_w = 700, .power_idle_w = 75,
     .sm_mhz = 1980, .sm_idle_mhz = 345, .mem_mhz = 3201, .mem_idle_mhz = 3201,
     .pcie_gen = 5, .pcie_width = 16, .links = 18, .link_version = 4, .link_mb_per_s = 26562,
     .bar1_mib = 262144, .pci_id = 0x233510DE, .pci_subsystem = 0x18BE10DE, .brand = 14,
     .features = DATACENTRE_MIG | HAS_GPM},
    {.key = "H100-SXM5-80GB", .name = "NVIDIA H100 80GB HBM3", .total_mib = 81559,
     .reserved_mib = 551, .sms = 132, .cores = 16896, .cc_major = 9, .arch = 9, .bus_bits = 5120,
     .power_w = 700, .power_min_w = 200, .power_max_w = 700, .power_idle_w = 70,
     .sm_mhz = 1980, .sm_idle_mhz = 345, .mem_mhz = 2619, .mem_idle_mhz = 2619,
     .pcie_gen = 5, .pcie_width = 16, .links = 18, .link_version = 4, .link_mb_per_s = 26562,
     .bar1_mib = 131072, .pci_id = 0x233010DE, .pci_subsystem = 0x16C110DE, .brand = 14,
     .features = DATACENTRE_MIG | HAS_GPM},
    {.key = "A100-SXM4-80GB", .name = "NVIDIA A100-SXM4-80GB", .total_mib = 81920,
     .reserved_mib = 904, .sms = 108, .cores = 6912, .cc_major = 8, .arch = 7, .bus_bits = 5120,
     .power_w = 400, .power_min_w = 100, .power_max_w = 400, .power_idle_w = 55,
     .sm_mhz = 1410, .sm_idle_mhz = 210, .mem_mhz = 1593, .mem_idle_mhz = 1593,
     .pcie_gen = 4, .pcie_width = 16, .links = 12, .link_version = 3, .link_mb_per_s = 25781,
     .bar1_mib = 131072, .pci_id = 0x20B210DE, .pci_subsystem = 0x147F10DE, .brand = 14,
     .features = DATACENTRE_MIG},
    {.key = "A100-SXM4-40GB", .name = "NVIDIA A100-SXM4-40GB", .total_mib = 40960,
     .reserved_mib = 591, .sms = 108, .cores = 6912, .cc_major = 8, .arch = 7, .bus_bits = 5120,
     .power_w = 400, .power_min_w = 100, .power_max_w = 400, .power_idle_w = 50,
     .sm_mhz = 1410, .sm_idle_mhz = 210, .mem_mhz = 1215, .mem_idle_mhz = 1215,
     .pcie_gen = 4, .pcie_width = 16, .links = 12, .link_version = 3, .link_mb_per_s = 25781,
     .bar1_mib = 65536, .pci_id = 0x20B010DE, .pci_subsystem = 0x134F10DE, .brand = 14,
     .features = DATACENTRE_MIG},
    {.key = "A40", .name = "NVIDIA A40", .total_mib = 46068, .reserved_mib = 566,
     .sms = 84, .cores = 10752, .cc_major = 8, .cc_minor = 6, .arch = 7, .bus_bits = 384,
     .power_w = 300, .power_min_w = 100, .power_max_w = 300, .power_idle_w = 30,
     .sm_mhz = 1740, .sm_idle_mhz = 210, .mem_mhz = 7251, .mem_idle_mhz = 405,
     .pcie_gen = 4, .pcie_width = 16, .links = 4, .link_version = 3, .link_mb_per_s = 14062,
     .bar1_mib = 65536, .pci_id = 0x223510DE, .pci_subsystem = 0x145A10DE, .brand = 14,
     .features = HAS_REMAP | HAS_FAN},
    {.key = "L40S", .name = "NVIDIA L40S", .total_mib = 46068, .reserved_mib = 620,
     .sms = 142, .cores = 18176, .cc_major = 8, .cc_minor = 9, .arch = 8, .bus_bits = 384,
     .power_w = 350, .power_min_w = 100, .power_max_w = 350, .power_idle_w = 35,
     .sm_mhz = 2520, .sm_idle_mhz = 210, .mem_mhz = 9001, .mem_idle_mhz = 405,
     .pcie_gen = 4, .pcie_width = 16,
     .bar1_mib = 65536, .pci_id = 0x26B910DE, .pci_subsystem = 0x185110DE, .brand = 14,
     .features = HAS_REMAP | HAS_JPG | HAS_OFA | HAS_FAN},
    {.key = "V100-SXM2-32GB", .name = "Tesla V100-SXM2-32GB", .total_mib = 32768,
     .reserved_mib = 257, .sms = 80, .cores = 5120, .cc_major = 7, .arch = 5, .bus_bits = 4096,
     .power_w = 300, .power_min_w = 150, .power_max_w = 300, .power_idle_w = 42,
     .sm_mhz = 1530, .sm_idle_mhz = 135, .mem_mhz = 877, .mem_idle_mhz = 877,
     .pcie_gen = 3, .pcie_width = 16, .links = 6, .link_version = 2, .link_mb_per_s = 25781,
     .bar1_mib = 32768, .pci_id = 0x1DB510DE, .pci_subsystem = 0x124910DE, .brand = 2,
     .features = HAS_RETIRED_PAGES | HAS_MEM_TEMP},
    {.key = "T4", .name = "Tesla T4", .total_mib = 15360, .reserved_mib = 449,
     .sms = 40, .cores = 2560, .cc_major = 7, .cc_minor = 5, .arch = 6, .bus_bits = 256,
     .power_w = 70, .power_min_w = 60, .power_max_w = 70, .power_idle_w = 10,
     .sm_mhz = 1590, .sm_idle_mhz = 300, .mem_mhz = 5001, .mem_idle_mhz = 405,
     .pcie_gen = 3, .pcie_width = 16,
     .bar1_mib = 256, .pci_id = 0x1EB810DE, .pci_subsystem = 0x12A210DE, .brand = 2,
     .features = HAS_RETIRED_PAGES},
    {.key = "RTX3090", .name = "NVIDIA GeForce RTX 3090", .total_mib = 24576, .reserved_mib = 308,
     .sms = 82, .cores = 10496, .cc_major = 8, .cc_minor = 6, .arch = 7, .bus_bits = 384,
     .power_w = 350, .power_min_w = 100, .power_max_w = 366, .power_idle_w = 25,
     .sm_mhz = 2100, .sm_idle_mhz = 210, .mem_mhz = 9751, .mem_idle_mhz = 405,
     .pcie_gen = 4, .pcie_width = 16, .links = 4, .link_version = 3, .link_mb_per_s = 14062,
     .bar1_mib = 256, .pci_id = 0x220410DE, .pci_subsystem = 0x147D10DE, .brand = 5,
     .features = HAS_FAN | NO_ECC},
    /* unified memory: no memory of its own, so memory info answers NOT_SUPPORTED */
    {.key = "GB10", .name = "NVIDIA GB10",
     .sms = 48, .cores = 6144, .cc_major = 12, .cc_minor = 1, .arch = 10, .bus_bits = 256,
     .power_w = 140, .power_min_w = 60, .power_max_w = 140, .power_idle_w = 5,
     .sm_mhz = 3003, .sm_idle_mhz = 208,
     .pcie_gen = 5, .pcie_width = 16, .pci_id = 0x2E1210DE, .pci_subsystem = 0x000010DE,
     .brand = 14},
};
#define MODEL_COUNT (sizeof MODELS / sizeof *MODELS)

const struct model *find_model(const char *key_or_name) {
    for (size_t i = 0; i < MODEL_COUNT; i++)
        if (!strcasecmp(key_or_name, MODELS[i].key) || !strcasecmp(key_or_name, MODELS[i].name))
            return &MODELS[i];
    for (size_t i = 0; i < MODEL_COUNT; i++)
        if (!strncasecmp(key_or_name, MODELS[i].key, strlen(key_or_name))) return &MODELS[i];
    return NULL;
}
