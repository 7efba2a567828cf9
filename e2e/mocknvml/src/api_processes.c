/* Who runs on a GPU: the processes of the machine file and of the state file. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "session.h"

NVML_API nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length);
NVML_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device,
                                                              unsigned int *count,
                                                              nvmlProcessInfo_t *infos);
NVML_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device,
                                                              unsigned int *count,
                                                              nvmlProcessInfo_t *infos);
NVML_API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device,
                                                               unsigned int *count,
                                                               nvmlProcessInfo_t *infos);
NVML_API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device,
                                                               unsigned int *count,
                                                               nvmlProcessInfo_t *infos);
NVML_API nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device,
                                                                 unsigned int *count,
                                                                 nvmlProcessInfo_t *infos);
NVML_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device,
                                                           unsigned int *count,
                                                           nvmlProcessInfo_v1_t *infos);
NVML_API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device,
                                                            unsigned int *count,
                                                            nvmlProcessInfo_v1_t *infos);
NVML_API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                      nvmlProcessUtilizationSample_t *samples,
                                                      unsigned int *count,
                                                      unsigned long long last_seen);

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    struct session *session;
    nvmlReturn_t answer = session_enter(__func__, &session);
    if (answer != NVML_SUCCESS)
        return answer;
    const struct process *process;
    for (unsigned int i = 0; (process = session_process(session, i)); i++) {
        if (process->pid == pid)
            return session_leave(give_text(process->name, name, length));
    }
    return session_leave(NVML_ERROR_NOT_FOUND);
}

/* Whether the driver tells the caller of a process on a device: see "driver lists_pid_namespace". */
static bool told(const struct process *process, const struct device *device)
{
    char path[32];
    if (!session_process_on(process, device))
        return false;
    if (!device->session->state.now.by_pid_namespace)
        return true;
    snprintf(path, sizeof path, "/proc/%u", process->pid);
    return access(path, F_OK) == 0;
}

static bool wanted(const struct process *process, const struct device *device,
                   enum process_kind kind)
{
    return process->kind == (unsigned int)kind && told(process, device);
}

/* Writes as many as fit and counts all; a caller requests the count with room for none. */
static nvmlReturn_t list(const struct device *device, enum process_kind kind, unsigned int *count,
                         nvmlProcessInfo_t *infos)
{
    const struct process *process;
    unsigned int room = *count;
    *count = 0;
    for (unsigned int i = 0; (process = session_process(device->session, i)); i++) {
        if (!wanted(process, device, kind))
            continue;
        if (*count < room && infos)
            infos[*count] =
                (nvmlProcessInfo_t){.pid = process->pid,
                                    .usedGpuMemory = process->used_mib * 1024ULL * 1024ULL,
                                    .gpuInstanceId = process->gpu_instance,
                                    .computeInstanceId = process->compute_instance};
        ++*count;
    }
    return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static nvmlReturn_t running(const char *function, nvmlDevice_t device, enum process_kind kind,
                            unsigned int *count, nvmlProcessInfo_t *infos)
{
    struct device found;
    nvmlReturn_t answer = session_enter_used(function, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!count || (*count && !infos))
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    return session_leave(list(&found, kind, count, infos));
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_t *infos)
{
    return running(__func__, device, PROCESS_COMPUTE, count, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_t *infos)
{
    return running(__func__, device, PROCESS_COMPUTE, count, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                      nvmlProcessInfo_t *infos)
{
    return running(__func__, device, PROCESS_GRAPHICS, count, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                      nvmlProcessInfo_t *infos)
{
    return running(__func__, device, PROCESS_GRAPHICS, count, infos);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                        nvmlProcessInfo_t *infos)
{
    return running(__func__, device, PROCESS_MPS, count, infos);
}

/* The first version has no members for a MIG device. */
static nvmlReturn_t running_v1(const char *function, nvmlDevice_t device, enum process_kind kind,
                               unsigned int *count, nvmlProcessInfo_v1_t *infos)
{
    nvmlProcessInfo_t all[MAX_PROCESSES + MAX_LATE_PROCESSES];
    unsigned int room = sizeof all / sizeof *all;
    if (!count || (*count && !infos))
        return running(function, device, kind, NULL, NULL);
    if (*count < room)
        room = *count;
    *count = room;
    nvmlReturn_t answer = running(function, device, kind, count, all);
    if (answer != NVML_SUCCESS)
        return answer;
    for (unsigned int i = 0; i < *count; i++)
        infos[i] =
            (nvmlProcessInfo_v1_t){.pid = all[i].pid, .usedGpuMemory = all[i].usedGpuMemory};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                  nvmlProcessInfo_v1_t *infos)
{
    return running_v1(__func__, device, PROCESS_COMPUTE, count, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                   nvmlProcessInfo_v1_t *infos)
{
    return running_v1(__func__, device, PROCESS_GRAPHICS, count, infos);
}

static unsigned long long microseconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
}

/* One fresh sample for every process on the GPU that works: NVML has none of the others. */
static unsigned int sample(const struct device *device, unsigned int room,
                           nvmlProcessUtilizationSample_t *samples)
{
    const struct process *process;
    unsigned int count = 0;
    for (unsigned int i = 0; (process = session_process(device->session, i)); i++) {
        if (!told(process, device) || !(process->sm_percent || process->memory_percent))
            continue;
        if (count < room)
            samples[count] = (nvmlProcessUtilizationSample_t){.pid = process->pid,
                                                              .timeStamp = microseconds_now(),
                                                              .smUtil = process->sm_percent,
                                                              .memUtil = process->memory_percent};
        count++;
    }
    return count;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long last_seen)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!count)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    if (found.gpu->mig == FEATURE_ON) /* a driver measures no single processes then */
        return session_leave(NVML_ERROR_NOT_SUPPORTED);
    unsigned int room = samples ? *count : 0;
    *count = sample(&found, room, samples);
    if (*count == 0 || last_seen >= microseconds_now())
        return session_leave(NVML_ERROR_NOT_FOUND);
    return session_leave(*count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}
