/* MIG: whether a GPU is cut up, and the devices it is cut into. Cutting itself is not offered. */
#include "session.h"

NVML_API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current,
                                           unsigned int *pending);
NVML_API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count);
NVML_API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                          nvmlDevice_t *mig);
NVML_API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig,
                                                                   nvmlDevice_t *device);
NVML_API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig);
NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id);
NVML_API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id);
NVML_API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device,
                                                 nvmlDeviceAttributes_t *attributes);

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current,
                                  unsigned int *pending)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!current || !pending)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    if (found.gpu->mig == FEATURE_UNSUPPORTED)
        return session_leave(NVML_ERROR_NOT_SUPPORTED);
    *current = *pending = found.gpu->mig == FEATURE_ON;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!count)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *count = found.gpu->mig == FEATURE_UNSUPPORTED ? 0 : found.gpu->mig_max;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *mig)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (found.gpu->mig == FEATURE_UNSUPPORTED)
        return session_leave(NVML_ERROR_NOT_SUPPORTED);
    if (!mig || index >= found.gpu->mig_max)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    if (index >= found.gpu->mig_count)
        return session_leave(NVML_ERROR_NOT_FOUND);
    *mig = handle_of_mig(found.gpu->index, index);
    return session_leave(NVML_SUCCESS);
}

/* Enters for a MIG device; a whole GPU answers as a driver does. */
static nvmlReturn_t enter_mig(const char *function, nvmlDevice_t mig, struct device *found)
{
    nvmlReturn_t answer = session_enter_device(function, mig, found);
    if (answer == NVML_SUCCESS && !found->mig)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    return answer;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
    struct device found;
    nvmlReturn_t answer = enter_mig(__func__, mig, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!device)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *device = handle_of_gpu(found.gpu->index);
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
    struct device found;
    nvmlReturn_t answer = session_enter_device(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!is_mig)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *is_mig = found.mig != NULL;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
    struct device found;
    nvmlReturn_t answer = enter_mig(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!id)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *id = found.mig->gpu_instance;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
    struct device found;
    nvmlReturn_t answer = enter_mig(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!id)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *id = found.mig->compute_instance;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    struct device found;
    nvmlReturn_t answer = enter_mig(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!attributes)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = found.mig->multiprocessors,
        .sharedCopyEngineCount = found.mig->gpu_slices,
        .gpuInstanceSliceCount = found.mig->gpu_slices,
        .computeInstanceSliceCount = found.mig->compute_slices,
        .memorySizeMB = found.mig->memory_mib};
    return session_leave(NVML_SUCCESS);
}
