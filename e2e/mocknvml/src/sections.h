/* The sections of a machine file: each has one file that reads its lines. */
#ifndef MOCKNVML_SECTIONS_H
#define MOCKNVML_SECTIONS_H

#include "machine.h"
#include "text.h"

struct section;

/* What is known half-way through a file. */
struct loading {
    struct machine *machine;
    const struct section *section; /* NULL before the first header */
    struct gpu *gpu;               /* the GPU, or the defaults, that the lines fill */
    unsigned int number;           /* N of the header */
    struct gpu gpu_defaults;       /* what "[gpu *]" has set so far */
    struct link link_default;
};

/* One line inside the section. */
bool driver_line(const struct source *at, char *line, struct loading *loading);
bool numa_line(const struct source *at, char *line, struct loading *loading);
bool gpu_line(const struct source *at, char *line, struct loading *loading);
bool nvswitch_line(const struct source *at, char *line, struct loading *loading);
bool links_line(const struct source *at, char *line, struct loading *loading);
bool processes_line(const struct source *at, char *line, struct loading *loading);

/* What a header starts. */
bool gpu_open(const struct source *at, struct loading *loading);
bool gpu_defaults_open(const struct source *at, struct loading *loading);
bool numa_open(const struct source *at, struct loading *loading);
bool nvswitch_open(const struct source *at, struct loading *loading);

/* What only the whole file can show. */
bool gpus_finish(const char *path, struct loading *loading);
bool links_finish(const char *path, struct loading *loading);

/* The value of a gpu's mig_device key; the target is the struct gpu. */
bool mig_device_read(char *value, void *target);

/* "pid 1234 used_mib 3743 name python3" and what may follow; the GPU is the caller's. */
bool process_words(const struct source *at, char *parts, struct process *process);

/* Defaults before the first line. */
void driver_defaults(struct driver *driver);
void gpu_defaults(struct gpu *gpu);

/* "DDDDDDDD:BB:DD.0", the way NVML writes it; a domain of 4 digits is read too. */
bool pci_parse(const char *text, struct pci_address *address);

#endif
