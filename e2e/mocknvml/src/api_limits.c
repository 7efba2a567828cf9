/* Memory limits of a cgroup on a GPU, as drivers have them since r615. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "session.h"

NVML_API nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device,
                                                   const nvmlSetMemoryLimits_v1_t *limits);
NVML_API nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device,
                                                   nvmlGetMemoryLimits_v1_t *limits);
NVML_API nvmlReturn_t gpushareMockAllocate(nvmlDevice_t device, const char *cgroup,
                                           unsigned long long bytes);

/* The driver finds a cgroup by its path in sysfs, so it has to be there. */
static bool is_cgroup(const char *path)
{
    struct stat found;
    return path && path[0] == '/' && strlen(path) < MAX_CGROUP && !strpbrk(path, " \t\r\n#") &&
           stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

/* A GPU that is cut has no limits, its instances have none either. */
static nvmlReturn_t enter(const char *function, nvmlDevice_t device, struct device *found)
{
    nvmlReturn_t answer = session_enter_gpu(function, device, found);
    if (answer == NVML_SUCCESS && found->gpu->mig == FEATURE_ON)
        return session_leave(NVML_ERROR_NOT_SUPPORTED);
    return answer;
}

/* It goes into the state file: a limit holds for all processes and outlives the one that set it. */
nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device,
                                          const nvmlSetMemoryLimits_v1_t *limits)
{
    struct device found;
    nvmlReturn_t answer = enter(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!limits || limits->softLimit > limits->hardLimit || !is_cgroup(limits->nameSpace))
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    char line[MAX_CGROUP + 96];
    snprintf(line, sizeof line, "gpu %u memory_limit %llu %llu %s", found.gpu->index,
             limits->softLimit, limits->hardLimit, limits->nameSpace);
    bool written = state_append(&found.session->state, line);
    return session_leave(written ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION);
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
    struct device found;
    nvmlReturn_t answer = enter(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!limits || !is_cgroup(limits->nameSpace))
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    const struct memory_limit *limit =
        state_limit(&found.session->state, found.gpu->index, limits->nameSpace);
    limits->softLimit = limit ? limit->soft : 0;
    limits->hardLimit = limit ? limit->hard : NVML_DEVICE_MEMORY_LIMIT_MAX;
    limits->currentUsed = limit ? limit->used : 0;
    return session_leave(NVML_SUCCESS);
}

/* Bytes of the GPU that no cgroup uses. */
static unsigned long long unused(const struct device *found)
{
    const struct snapshot *now = &found->session->state.now;
    unsigned long long room = (unsigned long long)found->gpu->memory_mib << 20;
    for (unsigned int i = 0; i < now->limit_count; i++) {
        if (now->limits[i].gpu == found->gpu->index)
            room -= now->limits[i].used < room ? now->limits[i].used : room;
    }
    return room;
}

/*
 * What a CUDA allocation of a process in the cgroup does: no function of NVML, but the driver's side
 * of it. Out of memory beyond the hard limit or the GPU; nothing is evicted.
 */
nvmlReturn_t gpushareMockAllocate(nvmlDevice_t device, const char *cgroup,
                                  unsigned long long bytes)
{
    struct device found;
    nvmlReturn_t answer = enter("nvmlDeviceGetMemoryLimits_v1", device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!is_cgroup(cgroup))
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    const struct memory_limit *limit =
        state_limit(&found.session->state, found.gpu->index, cgroup);
    unsigned long long used = limit ? limit->used : 0;
    unsigned long long hard = limit ? limit->hard : NVML_DEVICE_MEMORY_LIMIT_MAX;
    if (bytes > unused(&found) || used > hard || bytes > hard - used)
        return session_leave(NVML_ERROR_MEMORY);
    char line[MAX_CGROUP + 96];
    snprintf(line, sizeof line, "gpu %u memory_used %llu %s", found.gpu->index, used + bytes,
             cgroup);
    bool written = state_append(&found.session->state, line);
    return session_leave(written ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION);
}
