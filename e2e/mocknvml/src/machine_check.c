/* What only the whole machine file can show: gaps, absent keys, two GPUs with one identity. */
#include "sections.h"

#include <string.h>

static const char *absent_key(const struct gpu *gpu)
{
    if (!*gpu->name)
        return "name";
    if (!*gpu->uuid)
        return "uuid";
    if (!gpu->memory_mib)
        return "memory_mib";
    return gpu->pci_given ? NULL : "pci";
}

static bool check_gpu(const struct source *at, const struct machine *machine,
                       const struct gpu *gpu)
{
    const char *absent = absent_key(gpu);
    if (absent)
        return source_refuse(at, "gpu %u has no %s", gpu->index, absent);
    if (gpu->reserved_mib > gpu->memory_mib)
        return source_refuse(at, "gpu %u reserves more memory than it has", gpu->index);
    if (gpu->mig_count && gpu->mig != FEATURE_ON)
        return source_refuse(at, "gpu %u has MIG devices but not 'mig = on'", gpu->index);
    if (gpu->mig_count > gpu->mig_max)
        return source_refuse(at, "gpu %u has more MIG devices than its mig_max", gpu->index);
    if (gpu->nvswitch_links && !machine->switch_count)
        return source_refuse(at, "gpu %u has nvswitch_links but there is no [nvswitch 0]",
                             gpu->index);
    return true;
}

static bool check_pair(const struct source *at, const struct gpu *one, const struct gpu *two)
{
    const char *same = NULL;
    if (strcmp(one->uuid, two->uuid) == 0)
        same = "uuid";
    else if (one->minor == two->minor)
        same = "minor";
    else if (memcmp(&one->pci, &two->pci, sizeof one->pci) == 0)
        same = "pci";
    if (!same)
        return true;
    return source_refuse(at, "gpu %u and gpu %u have the same %s", one->index, two->index, same);
}

bool gpus_finish(const char *path, struct loading *loading)
{
    const struct machine *machine = loading->machine;
    for (unsigned int i = 0; i < machine->gpu_count; i++) {
        const struct gpu *gpu = &machine->gpus[i];
        struct source at = {.path = path, .line = gpu->line};
        if (!gpu->declared)
            return source_refuse(&at, "gpu %u is missing: GPUs are numbered without a gap", i);
        if (!check_gpu(&at, machine, gpu))
            return false;
        for (unsigned int other = 0; other < i; other++) {
            if (!check_pair(&at, &machine->gpus[other], gpu))
                return false;
        }
    }
    return true;
}
