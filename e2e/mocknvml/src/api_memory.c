/* Memory of GPUs and MIG devices: in use is what the processes take. */
#include "session.h"

NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory);
NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory);

#define MIB (1024ULL * 1024ULL)

/* Never more in use than there is: a machine file may exaggerate, a GPU cannot. */
static nvmlMemory_v2_t measure(const struct device *device)
{
    unsigned long long total = device->mig ? device->mig->memory_mib : device->gpu->memory_mib;
    unsigned long long reserved = device->mig ? 0 : device->gpu->reserved_mib;
    unsigned long long used = 0;
    const struct process *process;
    for (unsigned int i = 0; (process = session_process(device->session, i)); i++) {
        if (session_process_on(process, device))
            used += process->used_mib;
    }
    if (used > total - reserved)
        used = total - reserved;
    return (nvmlMemory_v2_t){.version = NVML_MEMORY_V2,
                             .total = total * MIB,
                             .reserved = reserved * MIB,
                             .used = used * MIB,
                             .free = (total - reserved - used) * MIB};
}

/* The first version has no member for reserved memory and counts it as used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct device found;
    nvmlReturn_t answer = session_enter_used(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!memory)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    nvmlMemory_v2_t all = measure(&found);
    *memory = (nvmlMemory_t){.total = all.total, .free = all.free, .used = all.total - all.free};
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    struct device found;
    nvmlReturn_t answer = session_enter_used(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!memory)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    if (memory->version != NVML_MEMORY_V2)
        return session_leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    *memory = measure(&found);
    return session_leave(NVML_SUCCESS);
}
