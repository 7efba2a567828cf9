/* Which CPUs and NUMA nodes are near a GPU. */
#include <limits.h>
#include <string.h>

#include "session.h"

NVML_API nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node);
NVML_API nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words,
                                                  unsigned long *nodes, unsigned int scope);
NVML_API nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words,
                                               unsigned long *cpus);
NVML_API nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int words,
                                                          unsigned long *cpus, unsigned int scope);

enum { WORD_BITS = sizeof(unsigned long) * CHAR_BIT };

/* Only where the GPU's memory is itself a NUMA node; elsewhere a driver does not support it. */
nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!node)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    if (!found.gpu->memory_numa_given)
        return session_leave(NVML_ERROR_NOT_SUPPORTED);
    *node = found.gpu->memory_numa;
    return session_leave(NVML_SUCCESS);
}

/* Sets a bit if the caller's words reach that far. */
static void set_bit(unsigned long *set, unsigned int words, unsigned int bit)
{
    if (bit / WORD_BITS < words)
        set[bit / WORD_BITS] |= 1UL << (bit % WORD_BITS);
}

static bool bad_set(const unsigned long *set, unsigned int words, unsigned int scope)
{
    return !set || words == 0 || scope > NVML_AFFINITY_SCOPE_SOCKET;
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words,
                                         unsigned long *nodes, unsigned int scope)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (bad_set(nodes, words, scope))
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    memset(nodes, 0, words * sizeof *nodes);
    set_bit(nodes, words, found.gpu->numa);
    return session_leave(NVML_SUCCESS);
}

static nvmlReturn_t cpu_affinity(const char *function, nvmlDevice_t device, unsigned int words,
                                 unsigned long *cpus, unsigned int scope)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(function, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (bad_set(cpus, words, scope))
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    const struct numa_node *node = &found.session->machine.numa[found.gpu->numa];
    if (!node->declared)
        return session_leave(NVML_ERROR_NOT_SUPPORTED);
    memset(cpus, 0, words * sizeof *cpus);
    for (unsigned int cpu = 0; cpu < MAX_CPUS; cpu++) {
        if (node->cpus[cpu / 8] & 1U << (cpu % 8))
            set_bit(cpus, words, cpu);
    }
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words,
                                      unsigned long *cpus)
{
    return cpu_affinity(__func__, device, words, cpus, NVML_AFFINITY_SCOPE_NODE);
}

/* A machine file knows no sockets of several nodes, so both scopes are the node. */
nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int words,
                                                 unsigned long *cpus, unsigned int scope)
{
    return cpu_affinity(__func__, device, words, cpus, scope);
}
