/* Counting GPUs and finding one by its index, UUID, serial number or PCI address. */
#include <string.h>

#include "sections.h"
#include "session.h"

NVML_API nvmlReturn_t nvmlDeviceGetCount(unsigned int *count);
NVML_API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count);
NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device);
NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device);
NVML_API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device);
NVML_API nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device);
NVML_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device);
NVML_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device);

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    struct session *session;
    nvmlReturn_t answer = session_enter(__func__, &session);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!count)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *count = session->machine.gpu_count; /* a lost GPU still counts */
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    struct session *session;
    nvmlReturn_t answer = session_enter(__func__, &session);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!device || index >= session->machine.gpu_count)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    return session_leave(session_hand_out(session, &session->machine.gpus[index], device));
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

/* Whether the GPU is the one that the text names. */
typedef bool (*matcher)(const struct gpu *gpu, const char *text);

static bool has_uuid(const struct gpu *gpu, const char *text)
{
    return strcmp(gpu->uuid, text) == 0;
}

static bool has_serial(const struct gpu *gpu, const char *text)
{
    return strcmp(gpu->serial, text) == 0;
}

static bool has_pci(const struct gpu *gpu, const char *text)
{
    struct pci_address address;
    return pci_parse(text, &address) && memcmp(&address, &gpu->pci, sizeof address) == 0;
}

static nvmlReturn_t find(const struct session *session, matcher matches, const char *text,
                         nvmlDevice_t *device)
{
    for (unsigned int i = 0; i < session->machine.gpu_count; i++) {
        const struct gpu *gpu = &session->machine.gpus[i];
        if (matches(gpu, text))
            return session_hand_out(session, gpu, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t find_mig(const struct session *session, const char *uuid, nvmlDevice_t *device)
{
    for (unsigned int i = 0; i < session->machine.gpu_count; i++) {
        const struct gpu *gpu = &session->machine.gpus[i];
        for (unsigned int mig = 0; mig < gpu->mig_count; mig++) {
            if (strcmp(gpu->mig_devices[mig].uuid, uuid) != 0)
                continue;
            nvmlReturn_t answer = session_hand_out(session, gpu, device);
            if (answer == NVML_SUCCESS)
                *device = handle_of_mig(i, mig);
            return answer;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t enter_and_find(const char *function, matcher matches, const char *text,
                                   nvmlDevice_t *device)
{
    struct session *session;
    nvmlReturn_t answer = session_enter(function, &session);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!text || !*text || !device)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    answer = find(session, matches, text, device);
    if (answer == NVML_ERROR_NOT_FOUND && matches == has_uuid)
        answer = find_mig(session, text, device);
    return session_leave(answer);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    return enter_and_find(__func__, has_uuid, uuid, device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    return enter_and_find(__func__, has_serial, serial, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    return enter_and_find(__func__, has_pci, bus_id, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}
