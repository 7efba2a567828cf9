/* Who a GPU is: name, UUID, numbers, PCI address, architecture. */
#include <stdio.h>
#include <string.h>

#include "session.h"

NVML_API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length);
NVML_API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length);
NVML_API nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length);
NVML_API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index);
NVML_API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor);
NVML_API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci);
NVML_API nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci);
NVML_API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major,
                                                         int *minor);
NVML_API nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture);

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    struct device found;
    nvmlReturn_t answer = session_enter_device(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    char full[96];
    snprintf(full, sizeof full, "%s%s%s", found.gpu->name, found.mig ? " MIG " : "",
             found.mig ? found.mig->profile : "");
    return session_leave(give_text(full, name, length));
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    struct device found;
    nvmlReturn_t answer = session_enter_device(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    return session_leave(
        give_text(found.mig ? found.mig->uuid : found.gpu->uuid, uuid, length));
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!*found.gpu->serial) /* as on GPUs without an InfoROM */
        return session_leave(NVML_ERROR_NOT_SUPPORTED);
    return session_leave(give_text(found.gpu->serial, serial, length));
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    struct device found;
    nvmlReturn_t answer = session_enter_device(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!index)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *index = found.mig ? (unsigned int)(found.mig - found.gpu->mig_devices) : found.gpu->index;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!minor)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *minor = found.gpu->minor;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    struct device found;
    nvmlReturn_t answer = session_enter_device(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!pci)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    give_pci(&found.gpu->pci, pci);
    pci->pciDeviceId = found.gpu->pci_device_id;
    pci->pciSubSystemId = found.gpu->pci_subsystem_id;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci)
{
    struct device found;
    nvmlPciInfo_t info;
    nvmlReturn_t answer = session_enter_device(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!pci)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    if (pci->version != NVML_PCI_INFO_EXT_V1)
        return session_leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    give_pci(&found.gpu->pci, &info);
    *pci = (nvmlPciInfoExt_t){.version = NVML_PCI_INFO_EXT_V1,
                              .domain = info.domain,
                              .bus = info.bus,
                              .device = info.device,
                              .pciDeviceId = found.gpu->pci_device_id,
                              .pciSubSystemId = found.gpu->pci_subsystem_id,
                              .baseClass = 3, /* display controller ... */
                              .subClass = 2}; /* ... of the 3D kind */
    memcpy(pci->busId, info.busId, sizeof pci->busId);
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    struct device found;
    nvmlReturn_t answer = session_enter_device(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!major || !minor)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *major = (int)found.gpu->cuda_major;
    *minor = (int)found.gpu->cuda_minor;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture)
{
    struct device found;
    nvmlReturn_t answer = session_enter_device(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!architecture)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *architecture = found.gpu->architecture;
    return session_leave(NVML_SUCCESS);
}
