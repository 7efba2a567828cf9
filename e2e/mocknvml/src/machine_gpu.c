/* [gpu N] and [gpu *]: the keys of a GPU, and the checks over all GPUs. */
#include "fields.h"
#include "nvml_abi.h"
#include "sections.h"

#include <string.h>

static const struct word feature_words[] = {
    {"unsupported", FEATURE_UNSUPPORTED}, {"off", FEATURE_OFF}, {"on", FEATURE_ON}, {NULL, 0}};
static const struct word switch_words[] = {{"off", 0}, {"on", 1}, {NULL, 0}};
static const struct word compute_mode_words[] = {
    {"default", NVML_COMPUTEMODE_DEFAULT},
    {"prohibited", NVML_COMPUTEMODE_PROHIBITED},
    {"exclusive-process", NVML_COMPUTEMODE_EXCLUSIVE_PROCESS},
    {NULL, 0}};
static const struct word architecture_words[] = {
    {"kepler", 2}, {"maxwell", 3}, {"pascal", 4}, {"volta", 5},      {"turing", 6},
    {"ampere", 7}, {"ada", 8},     {"hopper", 9}, {"blackwell", 10}, {NULL, 0}};
static const struct word fabric_words[] = {
    {"unsupported", 0}, {"not-started", 1}, {"in-progress", 2}, {"completed", 3}, {NULL, 0}};

static bool read_pci(char *value, void *target)
{
    struct gpu *gpu = target;
    gpu->pci_given = pci_parse(value, &gpu->pci);
    return gpu->pci_given;
}

static bool read_compute_capability(char *value, void *target)
{
    struct gpu *gpu = target;
    char *dot = strchr(value, '.');
    if (!dot)
        return false;
    *dot = '\0';
    return text_number(value, 1, 99, &gpu->cuda_major) &&
           text_number(dot + 1, 0, 9, &gpu->cuda_minor);
}

static bool read_memory_numa(char *value, void *target)
{
    struct gpu *gpu = target;
    gpu->memory_numa_given = text_number(value, 0, MAX_NUMA_NODES - 1, &gpu->memory_numa);
    return gpu->memory_numa_given;
}

static bool read_uuid(char *value, void *target)
{
    struct gpu *gpu = target;
    return strncmp(value, "GPU-", 4) == 0 && text_is_uuid(value + 4) &&
           text_copy(value, gpu->uuid, sizeof gpu->uuid);
}

static bool read_fabric_cluster(char *value, void *target)
{
    struct gpu *gpu = target;
    if (!text_is_uuid(value))
        return false;
    for (size_t byte = 0; byte < sizeof gpu->fabric_cluster; value += 2) {
        if (*value == '-')
            value++;
        unsigned int number = 0;
        char digits[5] = {'0', 'x', value[0], value[1], '\0'};
        text_number(digits, 0, 255, &number);
        gpu->fabric_cluster[byte++] = (unsigned char)number;
    }
    return true;
}

static const struct field fields[] = {
    TEXT_FIELD(struct gpu, "name", name, "a product name of 1 to 63 characters"),
    CUSTOM_FIELD("uuid", read_uuid, "GPU- and 8-4-4-4-12 hexadecimal digits"),
    TEXT_FIELD(struct gpu, "serial", serial, "a serial number of 1 to 27 characters"),
    NUMBER_FIELD(struct gpu, "minor", minor, 0, 255, "a number 0..255"),
    NUMBER_FIELD(struct gpu, "memory_mib", memory_mib, 1, 1U << 22, "MiB, 1..4194304"),
    NUMBER_FIELD(struct gpu, "reserved_mib", reserved_mib, 0, 1U << 22, "MiB, 0..4194304"),
    CUSTOM_FIELD("pci", read_pci, "an address such as 00000000:3B:00.0"),
    NUMBER_FIELD(struct gpu, "pci_device_id", pci_device_id, 0, 0xFFFFFFFFU, "a 32 bit number"),
    NUMBER_FIELD(struct gpu, "pci_subsystem_id", pci_subsystem_id, 0, 0xFFFFFFFFU,
                 "a 32 bit number"),
    NUMBER_FIELD(struct gpu, "board_id", board_id, 1, 0xFFFFFFFFU, "a number from 1"),
    NUMBER_FIELD(struct gpu, "numa", numa, 0, MAX_NUMA_NODES - 1, "a NUMA node 0..63"),
    CUSTOM_FIELD("memory_numa", read_memory_numa, "a NUMA node 0..63"),
    WORD_FIELD(struct gpu, "architecture", architecture, architecture_words,
               "kepler, maxwell, pascal, volta, turing, ampere, ada, hopper or blackwell"),
    CUSTOM_FIELD("compute_capability", read_compute_capability, "a version such as 8.0"),
    WORD_FIELD(struct gpu, "persistence", persistence, switch_words, "on or off"),
    WORD_FIELD(struct gpu, "compute_mode", compute_mode, compute_mode_words,
               "default, prohibited or exclusive-process"),
    WORD_FIELD(struct gpu, "ecc", ecc, feature_words, "unsupported, off or on"),
    NUMBER_FIELD(struct gpu, "ecc_corrected", ecc_corrected, 0, 1U << 30, "a count of errors"),
    NUMBER_FIELD(struct gpu, "ecc_uncorrected", ecc_uncorrected, 0, 1U << 30, "a count of errors"),
    NUMBER_FIELD(struct gpu, "temperature_c", temperature_c, 0, 150, "degrees Celsius, 0..150"),
    NUMBER_FIELD(struct gpu, "power_w", power_w, 0, 10000, "watts, 0..10000"),
    NUMBER_FIELD(struct gpu, "power_limit_w", power_limit_w, 0, 10000, "watts, 0..10000"),
    NUMBER_FIELD(struct gpu, "sm_clock_mhz", sm_clock_mhz, 1, 10000, "megahertz, 1..10000"),
    NUMBER_FIELD(struct gpu, "memory_clock_mhz", memory_clock_mhz, 1, 20000,
                 "megahertz, 1..20000"),
    NUMBER_FIELD(struct gpu, "pcie_generation", pcie_generation, 1, 7, "a number 1..7"),
    NUMBER_FIELD(struct gpu, "pcie_width", pcie_width, 1, 32, "lanes, 1..32"),
    NUMBER_FIELD(struct gpu, "bar1_mib", bar1_mib, 1, 1U << 22, "MiB, 1..4194304"),
    NUMBER_FIELD(struct gpu, "nvlink_slots", nvlink_slots, 0, NVML_NVLINK_MAX_LINKS,
                 "a number 0..36"),
    NUMBER_FIELD(struct gpu, "nvlink_version", nvlink_version, 1, 255, "a number 1..255"),
    NUMBER_FIELD(struct gpu, "nvswitch_links", nvswitch_links, 0, NVML_NVLINK_MAX_LINKS,
                 "a number 0..36"),
    WORD_FIELD(struct gpu, "fabric", fabric_state, fabric_words,
               "unsupported, not-started, in-progress or completed"),
    NUMBER_FIELD(struct gpu, "fabric_clique", fabric_clique, 0, 0x7FFFFFFFU, "a number"),
    CUSTOM_FIELD("fabric_cluster", read_fabric_cluster, "8-4-4-4-12 hexadecimal digits"),
    WORD_FIELD(struct gpu, "mig", mig, feature_words, "unsupported, off or on"),
    NUMBER_FIELD(struct gpu, "mig_max", mig_max, 1, MAX_MIG_DEVICES, "a number 1..8"),
    CUSTOM_FIELD("mig_device", mig_device_read,
                 "PROFILE uuid MIG-... gi N ci N memory_mib N [sm N], at most 8 of them"),
};

void gpu_defaults(struct gpu *gpu)
{
    gpu->temperature_c = 35;
    gpu->power_w = 30;
    gpu->power_limit_w = 300;
    gpu->sm_clock_mhz = 1500;
    gpu->memory_clock_mhz = 5000;
    gpu->pcie_generation = 3;
    gpu->pcie_width = 16;
    gpu->bar1_mib = 256;
    gpu->cuda_major = 7;
    gpu->cuda_minor = 5;
    gpu->architecture = 6;
    gpu->nvlink_version = 1;
    gpu->mig_max = 7;
}

bool gpu_defaults_open(const struct source *at, struct loading *loading)
{
    (void)at;
    loading->gpu = &loading->gpu_defaults;
    return true;
}

bool gpu_open(const struct source *at, struct loading *loading)
{
    if (loading->number >= MAX_GPUS)
        return source_refuse(at, "GPUs go from 0 to %d", MAX_GPUS - 1);
    struct gpu *gpu = &loading->machine->gpus[loading->number];
    if (gpu->declared)
        return source_refuse(at, "gpu %u is described twice", loading->number);
    *gpu = loading->gpu_defaults;
    gpu->declared = true;
    gpu->line = at->line;
    gpu->index = loading->number;
    gpu->minor = loading->number; /* what a machine has unless the file specifies otherwise */
    loading->machine->gpu_count++;
    loading->gpu = gpu;
    return true;
}

bool gpu_line(const struct source *at, char *line, struct loading *loading)
{
    return fields_assign(at, fields, sizeof fields / sizeof *fields, line, loading->gpu);
}
