/* Whether a GPU has joined the fabric that NVSwitches make. */
#include <string.h>

#include "session.h"

NVML_API nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info);
NVML_API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info);

enum { FABRIC_HEALTHY = 1, VERSION_2_SIZE = 0x24 };

static nvmlReturn_t enter_fabric(const char *function, nvmlDevice_t device, struct device *found)
{
    nvmlReturn_t answer = session_enter_gpu(function, device, found);
    if (answer == NVML_SUCCESS && found->gpu->fabric_state == 0)
        return session_leave(NVML_ERROR_NOT_SUPPORTED);
    return answer;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
    struct device found;
    nvmlReturn_t answer = enter_fabric(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!info)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *info = (nvmlGpuFabricInfo_t){.status = NVML_SUCCESS,
                                  .cliqueId = found.gpu->fabric_clique,
                                  .state = (uint8_t)found.gpu->fabric_state};
    memcpy(info->clusterUuid, found.gpu->fabric_cluster, sizeof info->clusterUuid);
    return session_leave(NVML_SUCCESS);
}

/* Both versions start alike, so the shorter one is the longer one cut off. */
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info)
{
    struct device found;
    nvmlReturn_t answer = enter_fabric(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!info)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    if (info->version != NVML_FABRIC_V2 && info->version != NVML_FABRIC_V3)
        return session_leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    nvmlGpuFabricInfoV_t all = {.version = info->version,
                                .status = NVML_SUCCESS,
                                .cliqueId = found.gpu->fabric_clique,
                                .state = (uint8_t)found.gpu->fabric_state,
                                .healthSummary = FABRIC_HEALTHY};
    memcpy(all.clusterUuid, found.gpu->fabric_cluster, sizeof all.clusterUuid);
    memcpy(info, &all, info->version == NVML_FABRIC_V2 ? VERSION_2_SIZE : sizeof all);
    return session_leave(NVML_SUCCESS);
}
