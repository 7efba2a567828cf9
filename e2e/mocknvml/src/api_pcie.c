/* A GPU on its PCIe bus: generation, width, traffic and the BAR1 window. */
#include "session.h"

NVML_API nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device,
                                                         unsigned int *generation);
NVML_API nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device,
                                                          unsigned int *generation);
NVML_API nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *width);
NVML_API nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *width);
NVML_API nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int *replays);
NVML_API nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned int counter,
                                                  unsigned int *kilobytes);
NVML_API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory);

#define MIB (1024ULL * 1024ULL)
enum { COUNTER_COUNT = 2 }; /* bytes sent, bytes received */

typedef unsigned int (*figure)(const struct gpu *gpu);

static unsigned int generation_of(const struct gpu *gpu)
{
    return gpu->pcie_generation;
}

static unsigned int width_of(const struct gpu *gpu)
{
    return gpu->pcie_width;
}

static unsigned int none(const struct gpu *gpu)
{
    (void)gpu;
    return 0;
}

static nvmlReturn_t give(const char *function, nvmlDevice_t device, figure of, unsigned int *value)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(function, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!value)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *value = of(found.gpu);
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
    return give(__func__, device, generation_of, generation);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
    return give(__func__, device, generation_of, generation);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *width)
{
    return give(__func__, device, width_of, width);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *width)
{
    return give(__func__, device, width_of, width);
}

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int *replays)
{
    return give(__func__, device, none, replays);
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned int counter,
                                         unsigned int *kilobytes)
{
    return give(__func__, device, none, counter < COUNTER_COUNT ? kilobytes : NULL);
}

/* No process maps any of it. */
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    struct device found;
    nvmlReturn_t answer = session_enter_device(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!memory)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    unsigned long long total = found.gpu->bar1_mib * MIB;
    *memory = (nvmlBAR1Memory_t){.total = total, .free = total, .used = 0};
    return session_leave(NVML_SUCCESS);
}
