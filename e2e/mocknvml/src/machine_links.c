/* [links]: for every pair of GPUs the PCIe distance and the direct NVLinks. */
#include "fields.h"
#include "nvml_abi.h"
#include "sections.h"

#include <string.h>

static const struct word level_words[] = {
    {"PSB", NVML_TOPOLOGY_INTERNAL},   {"PIX", NVML_TOPOLOGY_SINGLE},
    {"PXB", NVML_TOPOLOGY_MULTIPLE},   {"PHB", NVML_TOPOLOGY_HOSTBRIDGE},
    {"NODE", NVML_TOPOLOGY_NODE},      {"SYS", NVML_TOPOLOGY_SYSTEM},
    {NULL, 0}};

/* "PIX" or "PIX NV2". */
static bool read_link(char *value, struct link *link)
{
    const char *level = text_word(&value);
    const char *nvlink = text_word(&value);
    link->given = true;
    link->nvlinks = 0;
    if (!level || !words_find(level_words, level, &link->level) || text_word(&value))
        return false;
    return !nvlink || (strncmp(nvlink, "NV", 2) == 0 &&
                       text_number(nvlink + 2, 1, NVML_NVLINK_MAX_LINKS, &link->nvlinks));
}

static bool read_pair(char *text, const struct machine *machine, unsigned int *one,
                      unsigned int *two)
{
    char *dash = strchr(text, '-');
    if (!dash || machine->gpu_count == 0)
        return false;
    *dash = '\0';
    return text_number(text_trim(text), 0, machine->gpu_count - 1, one) &&
           text_number(text_trim(dash + 1), 0, machine->gpu_count - 1, two) && *one != *two;
}

bool links_line(const struct source *at, char *line, struct loading *loading)
{
    struct machine *machine = loading->machine;
    char *key, *value;
    struct link link;
    unsigned int one, two;
    if (!fields_split(at, line, &key, &value))
        return false;
    if (!read_link(value, &link))
        return source_refuse(at, "a link is PSB, PIX, PXB, PHB, NODE or SYS, "
                                 "and may add NV1..NV36");
    if (strcmp(key, "default") == 0) {
        loading->link_default = link;
        return true;
    }
    if (!read_pair(key, machine, &one, &two))
        return source_refuse(at, "a pair is two different GPUs described above, such as 0-1");
    if (machine->links[one][two].given)
        return source_refuse(at, "the pair %u-%u is described twice", one, two);
    machine->links[one][two] = machine->links[two][one] = link;
    return true;
}

unsigned int machine_active_nvlinks(const struct machine *machine, const struct gpu *gpu)
{
    unsigned int total = gpu->nvswitch_links;
    for (unsigned int peer = 0; peer < machine->gpu_count; peer++)
        total += machine->links[gpu->index][peer].nvlinks;
    return total;
}

bool links_finish(const char *path, struct loading *loading)
{
    struct machine *machine = loading->machine;
    for (unsigned int one = 0; one < machine->gpu_count; one++) {
        struct source at = {.path = path, .line = machine->gpus[one].line};
        for (unsigned int two = 0; two < machine->gpu_count; two++) {
            if (one == two || machine->links[one][two].given)
                continue;
            if (!loading->link_default.given)
                return source_refuse(&at, "[links] has neither the pair %u-%u nor a default", one,
                                     two);
            machine->links[one][two] = loading->link_default;
        }
        unsigned int used = machine_active_nvlinks(machine, &machine->gpus[one]);
        if (used > machine->gpus[one].nvlink_slots)
            return source_refuse(&at, "gpu %u has %u NVLinks but nvlink_slots = %u", one, used,
                                 machine->gpus[one].nvlink_slots);
    }
    return true;
}
