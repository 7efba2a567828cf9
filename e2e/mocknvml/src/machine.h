/*
 * A machine as its description file has it: driver, GPUs, links and processes.
 *
 * A machine does not change after it is loaded; what changes while it runs is in state.h.
 */
#ifndef MOCKNVML_MACHINE_H
#define MOCKNVML_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

enum {
    MAX_GPUS = 32,
    MAX_NUMA_NODES = 64,
    MAX_SWITCHES = 16,
    MAX_MIG_DEVICES = 8,
    MAX_PROCESSES = 512,
    MAX_LATE_PROCESSES = 64,
    MAX_CPUS = 1024
};

enum feature { FEATURE_UNSUPPORTED, FEATURE_OFF, FEATURE_ON };

struct pci_address {
    unsigned int domain, bus, device;
};

struct mig_device {
    char profile[24]; /* such as 1g.5gb */
    char uuid[64];
    unsigned int gpu_instance, compute_instance;
    unsigned int memory_mib, multiprocessors;
    unsigned int gpu_slices, compute_slices; /* read from the profile */
};

struct gpu {
    bool declared;
    unsigned int line; /* of its section, for messages about the whole GPU */
    unsigned int index;
    char name[64], uuid[64], serial[28];
    unsigned int minor, memory_mib, reserved_mib;
    struct pci_address pci;
    bool pci_given;
    unsigned int pci_device_id, pci_subsystem_id;
    unsigned int board_id; /* 0: made from the PCI address */
    unsigned int numa, memory_numa, memory_numa_given;
    unsigned int architecture, cuda_major, cuda_minor;
    unsigned int persistence, compute_mode, ecc;
    unsigned int ecc_corrected, ecc_uncorrected;
    unsigned int temperature_c, power_w, power_limit_w;
    unsigned int sm_clock_mhz, memory_clock_mhz;
    unsigned int pcie_generation, pcie_width, bar1_mib;
    unsigned int nvlink_slots, nvlink_version, nvswitch_links;
    unsigned int fabric_state, fabric_clique;
    unsigned char fabric_cluster[16];
    unsigned int mig, mig_max, mig_count;
    struct mig_device mig_devices[MAX_MIG_DEVICES];
};

struct link {
    bool given;
    unsigned int level;   /* NVML_TOPOLOGY_... */
    unsigned int nvlinks; /* direct ones, GPU to GPU */
};

enum process_kind { PROCESS_COMPUTE, PROCESS_GRAPHICS, PROCESS_MPS };

struct process {
    unsigned int gpu, pid, used_mib;
    unsigned int kind;
    unsigned int gpu_instance, compute_instance; /* NVML_NO_INSTANCE outside MIG */
    unsigned int sm_percent, memory_percent;
    char name[256];
};

struct numa_node {
    bool declared;
    unsigned char cpus[MAX_CPUS / 8]; /* bit c of byte c / 8: the CPU belongs to the node */
};

struct driver {
    char version[64], nvml_version[64];
    unsigned int cuda_version; /* 12020 for 12.2 */
    unsigned int init_result;  /* what nvmlInit answers */
    char missing[1024];        /* functions an older driver does not have, blank-separated */
    char unsupported[1024];
};

struct machine {
    struct driver driver;
    unsigned int gpu_count;
    struct gpu gpus[MAX_GPUS];
    struct link links[MAX_GPUS][MAX_GPUS]; /* symmetric */
    struct numa_node numa[MAX_NUMA_NODES];
    unsigned int switch_count;
    struct pci_address switches[MAX_SWITCHES];
    unsigned int process_count;
    struct process processes[MAX_PROCESSES];
};

/* Reads a whole description; false, with the reason on stderr, leaves *machine undefined. */
bool machine_load(const char *path, struct machine *machine);

/* The GPU's direct NVLinks plus those to switches. */
unsigned int machine_active_nvlinks(const struct machine *machine, const struct gpu *gpu);

#endif
