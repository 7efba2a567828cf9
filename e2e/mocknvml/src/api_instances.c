/*
 * GPU instances and compute instances of MIG: the two layers that a MIG device is made of.
 *
 * They follow from the mig_device lines of the machine file, so only profiles that occur there are
 * supported. A profile's id is its number in NVML's list; slices are placed in the file's order.
 */
#include "session.h"

typedef struct nvmlGpuInstance_st *nvmlGpuInstance_t;
typedef struct nvmlComputeInstance_st *nvmlComputeInstance_t;

typedef struct {
    unsigned int start, size; /* slices */
} nvmlPlacement_t;

typedef struct {
    unsigned int id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount;
    unsigned int copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount;
    unsigned long long memorySizeMB;
} nvmlGpuInstanceProfileInfo_t;

typedef struct {
    nvmlDevice_t device;
    unsigned int id, profileId;
    nvmlPlacement_t placement;
} nvmlGpuInstanceInfo_t;

typedef struct {
    unsigned int id, sliceCount, instanceCount, multiprocessorCount;
    unsigned int sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount;
    unsigned int sharedJpegCount, sharedOfaCount;
} nvmlComputeInstanceProfileInfo_t;

typedef struct {
    nvmlDevice_t device;
    nvmlGpuInstance_t gpuInstance;
    unsigned int id, profileId;
    nvmlPlacement_t placement; /* from version 2 on */
} nvmlComputeInstanceInfo_t;

_Static_assert(sizeof(nvmlGpuInstanceProfileInfo_t) == 48, "nvmlGpuInstanceProfileInfo_t");
_Static_assert(sizeof(nvmlGpuInstanceInfo_t) == 24, "nvmlGpuInstanceInfo_t");
_Static_assert(sizeof(nvmlComputeInstanceProfileInfo_t) == 36, "nvmlComputeInstanceProfileInfo_t");
_Static_assert(sizeof(nvmlComputeInstanceInfo_t) == 32, "nvmlComputeInstanceInfo_t");

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile,
                                                          nvmlGpuInstanceProfileInfo_t *info);
NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
                                                   nvmlGpuInstance_t *instance);
NVML_API nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance,
                                             nvmlGpuInstanceInfo_t *info);
NVML_API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(
    nvmlGpuInstance_t instance, unsigned int profile, unsigned int engine_profile,
    nvmlComputeInstanceProfileInfo_t *info);
NVML_API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance,
                                                            unsigned int id,
                                                            nvmlComputeInstance_t *compute);
NVML_API nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute,
                                                    nvmlComputeInstanceInfo_t *info);

/* Instance handles are those of a MIG device in them, each kind in a range of its own. */
enum { GPU_INSTANCES = 0x1000000, COMPUTE_INSTANCES = 0x2000000 };

/* Slices of NVML's profiles, by number; those above have the same slices and other engines. */
static const unsigned int SLICES[] = {1, 2, 3, 4, 7, 8, 6};
enum { PLAIN_PROFILES = 7, GPU_PROFILES = 18, COMPUTE_PROFILES = 9 };

static unsigned int profile_of(unsigned int slices)
{
    unsigned int profile = 0;
    while (profile < PLAIN_PROFILES && SLICES[profile] != slices)
        profile++;
    return profile;
}

/* Is this the first device of its GPU instance in the file's order? */
static bool opens_instance(const struct gpu *gpu, const struct mig_device *mig)
{
    for (const struct mig_device *each = gpu->mig_devices; each < mig; each++)
        if (each->gpu_instance == mig->gpu_instance)
            return false;
    return true;
}

static const struct mig_device *end_of(const struct gpu *gpu)
{
    return gpu->mig_devices + gpu->mig_count;
}

/* Enters for the MIG device behind an instance's handle. */
static nvmlReturn_t enter_instance(const char *function, const void *handle, unsigned int range,
                                   struct device *found)
{
    nvmlDevice_t mig = (nvmlDevice_t)((uintptr_t)handle - range);
    nvmlReturn_t answer = session_enter_device(function, mig, found);
    if (answer == NVML_SUCCESS && !found->mig)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    return answer;
}

static uintptr_t number_of(const struct gpu *gpu, const struct mig_device *mig)
{
    return (uintptr_t)handle_of_mig(gpu->index, (unsigned int)(mig - gpu->mig_devices));
}

static nvmlGpuInstance_t gpu_instance_of(const struct gpu *gpu, const struct mig_device *mig)
{
    const struct mig_device *first = gpu->mig_devices;
    while (first->gpu_instance != mig->gpu_instance)
        first++;
    return (nvmlGpuInstance_t)(number_of(gpu, first) + GPU_INSTANCES);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile,
                                                 nvmlGpuInstanceProfileInfo_t *info)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!info || profile >= GPU_PROFILES)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    nvmlGpuInstanceProfileInfo_t reported = {.id = profile};
    for (const struct mig_device *mig = found.gpu->mig_devices; mig < end_of(found.gpu); mig++) {
        if (profile_of(mig->gpu_slices) != profile || !opens_instance(found.gpu, mig))
            continue;
        reported.sliceCount = reported.copyEngineCount = mig->gpu_slices;
        reported.multiprocessorCount = mig->multiprocessors;
        reported.memorySizeMB = mig->memory_mib;
        reported.instanceCount++;
    }
    if (profile >= PLAIN_PROFILES || !reported.instanceCount)
        return session_leave(NVML_ERROR_NOT_SUPPORTED);
    *info = reported;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
                                          nvmlGpuInstance_t *instance)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!instance)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    for (const struct mig_device *mig = found.gpu->mig_devices; mig < end_of(found.gpu); mig++) {
        if (mig->gpu_instance != id)
            continue;
        *instance = gpu_instance_of(found.gpu, mig);
        return session_leave(NVML_SUCCESS);
    }
    return session_leave(NVML_ERROR_NOT_FOUND);
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
    struct device found;
    nvmlReturn_t answer = enter_instance(__func__, instance, GPU_INSTANCES, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!info)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *info = (nvmlGpuInstanceInfo_t){.device = handle_of_gpu(found.gpu->index),
                                    .id = found.mig->gpu_instance,
                                    .profileId = profile_of(found.mig->gpu_slices),
                                    .placement.size = found.mig->gpu_slices};
    for (const struct mig_device *each = found.gpu->mig_devices; each < found.mig; each++)
        if (opens_instance(found.gpu, each))
            info->placement.start += each->gpu_slices;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance,
                                                          unsigned int profile,
                                                          unsigned int engine_profile,
                                                          nvmlComputeInstanceProfileInfo_t *info)
{
    struct device found;
    nvmlReturn_t answer = enter_instance(__func__, instance, GPU_INSTANCES, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!info || profile >= COMPUTE_PROFILES || engine_profile)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    nvmlComputeInstanceProfileInfo_t reported = {.id = profile};
    for (const struct mig_device *mig = found.gpu->mig_devices; mig < end_of(found.gpu); mig++) {
        bool within = mig->gpu_instance == found.mig->gpu_instance;
        if (!within || profile_of(mig->compute_slices) != profile)
            continue;
        reported.sliceCount = mig->compute_slices;
        reported.multiprocessorCount = mig->multiprocessors;
        reported.sharedCopyEngineCount = mig->gpu_slices;
        reported.instanceCount++;
    }
    if (profile >= PLAIN_PROFILES || !reported.instanceCount)
        return session_leave(NVML_ERROR_NOT_SUPPORTED);
    *info = reported;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id,
                                                   nvmlComputeInstance_t *compute)
{
    struct device found;
    nvmlReturn_t answer = enter_instance(__func__, instance, GPU_INSTANCES, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!compute)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    for (const struct mig_device *mig = found.gpu->mig_devices; mig < end_of(found.gpu); mig++) {
        if (mig->gpu_instance != found.mig->gpu_instance || mig->compute_instance != id)
            continue;
        *compute = (nvmlComputeInstance_t)(number_of(found.gpu, mig) + COMPUTE_INSTANCES);
        return session_leave(NVML_SUCCESS);
    }
    return session_leave(NVML_ERROR_NOT_FOUND);
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute,
                                           nvmlComputeInstanceInfo_t *info)
{
    struct device found;
    nvmlReturn_t answer = enter_instance(__func__, compute, COMPUTE_INSTANCES, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!info)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *info = (nvmlComputeInstanceInfo_t){.device = handle_of_gpu(found.gpu->index),
                                        .gpuInstance = gpu_instance_of(found.gpu, found.mig),
                                        .id = found.mig->compute_instance,
                                        .profileId = profile_of(found.mig->compute_slices),
                                        .placement.size = found.mig->compute_slices};
    return session_leave(NVML_SUCCESS);
}
