/* [driver], [numa N] and [nvswitch N]: what belongs to the machine and to no GPU. */
#include "fields.h"
#include "nvml_abi.h"
#include "sections.h"

#include <stdlib.h>
#include <string.h>

static bool read_cuda(char *value, void *target)
{
    struct driver *driver = target;
    unsigned int major, minor;
    char *dot = strchr(value, '.');
    if (!dot)
        return false;
    *dot = '\0';
    if (!text_number(value, 1, 99, &major) || !text_number(dot + 1, 0, 9, &minor))
        return false;
    driver->cuda_version = major * 1000 + minor * 10;
    return true;
}

static const struct word init_words[] = {
    {"ok", NVML_SUCCESS},
    {"driver-not-loaded", NVML_ERROR_DRIVER_NOT_LOADED},
    {"version-mismatch", NVML_ERROR_LIB_RM_VERSION_MISMATCH},
    {"no-permission", NVML_ERROR_NO_PERMISSION},
    {"unknown", NVML_ERROR_UNKNOWN},
    {NULL, 0},
};

static const struct field fields[] = {
    TEXT_FIELD(struct driver, "version", version, "a version such as 535.161.08"),
    TEXT_FIELD(struct driver, "nvml", nvml_version, "a version such as 12.535.161.08"),
    CUSTOM_FIELD("cuda", read_cuda, "a version such as 12.2"),
    WORD_FIELD(struct driver, "init", init_result, init_words,
               "ok, driver-not-loaded, version-mismatch, no-permission or unknown"),
    TEXT_FIELD(struct driver, "missing", missing, "names of functions, up to 1023 characters"),
    TEXT_FIELD(struct driver, "unsupported", unsupported,
               "names of functions, up to 1023 characters"),
};

void driver_defaults(struct driver *driver)
{
    strcpy(driver->version, "535.161.08");
    strcpy(driver->nvml_version, "12.535.161.08");
    driver->cuda_version = 12020;
    driver->init_result = NVML_SUCCESS;
}

bool driver_line(const struct source *at, char *line, struct loading *loading)
{
    return fields_assign(at, fields, sizeof fields / sizeof *fields, line,
                         &loading->machine->driver);
}

/* One part of a CPU list: "7" or "0-19". */
static bool add_cpus(char *part, struct numa_node *node)
{
    unsigned int first, last;
    char *dash = strchr(part, '-');
    if (dash)
        *dash = '\0';
    if (!text_number(part, 0, MAX_CPUS - 1, &first) ||
        !text_number(dash ? dash + 1 : part, first, MAX_CPUS - 1, &last))
        return false;
    for (unsigned int cpu = first; cpu <= last; cpu++)
        node->cpus[cpu / 8] |= (unsigned char)(1U << (cpu % 8));
    return true;
}

static bool read_cpus(char *value, void *target)
{
    struct numa_node *node = target;
    memset(node->cpus, 0, sizeof node->cpus);
    for (char *part; (part = strsep(&value, ","));) {
        if (!add_cpus(text_trim(part), node))
            return false;
    }
    return true;
}

bool numa_open(const struct source *at, struct loading *loading)
{
    if (loading->number >= MAX_NUMA_NODES)
        return source_refuse(at, "NUMA nodes go from 0 to %d", MAX_NUMA_NODES - 1);
    loading->machine->numa[loading->number].declared = true;
    return true;
}

bool numa_line(const struct source *at, char *line, struct loading *loading)
{
    static const struct field cpus[] = {
        CUSTOM_FIELD("cpus", read_cpus, "a list such as 0-19,40-59 of CPUs 0..1023"),
    };
    return fields_assign(at, cpus, 1, line, &loading->machine->numa[loading->number]);
}

bool nvswitch_open(const struct source *at, struct loading *loading)
{
    struct machine *machine = loading->machine;
    if (loading->number != machine->switch_count || loading->number >= MAX_SWITCHES)
        return source_refuse(at, "switches are numbered 0, 1, 2 ... up to %d", MAX_SWITCHES - 1);
    machine->switch_count++;
    return true;
}

static bool read_pci(char *value, void *target)
{
    return pci_parse(value, target);
}

bool nvswitch_line(const struct source *at, char *line, struct loading *loading)
{
    static const struct field pci[] = {
        CUSTOM_FIELD("pci", read_pci, "an address such as 00000000:07:00.0"),
    };
    return fields_assign(at, pci, 1, line, &loading->machine->switches[loading->number]);
}
