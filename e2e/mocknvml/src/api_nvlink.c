/*
 * NVLinks one by one. A GPU numbers its links so: those to other GPUs first, in the order of
 * their indexes, then those to switches, dealt out in turn. Further slots are not connected.
 */
#include "session.h"

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                               unsigned int *active);
NVML_API nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link,
                                                 unsigned int *version);
NVML_API nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link,
                                                    unsigned int capability, unsigned int *has);
NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                          nvmlPciInfo_t *pci);
NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                          unsigned int *type);

/* The far end of a link: a GPU, a switch, or neither. */
struct far_end {
    const struct gpu *gpu;
    const struct pci_address *nvswitch;
};

static struct far_end follow(const struct machine *machine, const struct gpu *gpu,
                             unsigned int link)
{
    struct far_end end = {0};
    for (unsigned int peer = 0; peer < machine->gpu_count; peer++) {
        unsigned int links = machine->links[gpu->index][peer].nvlinks;
        if (link < links) {
            end.gpu = &machine->gpus[peer];
            return end;
        }
        link -= links;
    }
    if (link < gpu->nvswitch_links)
        end.nvswitch = &machine->switches[link % machine->switch_count];
    return end;
}

/* Enters for a slot that the GPU has. */
static nvmlReturn_t enter_slot(const char *function, nvmlDevice_t device, unsigned int link,
                               struct device *found, struct far_end *end)
{
    nvmlReturn_t answer = session_enter_gpu(function, device, found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (found->gpu->nvlink_slots == 0)
        return session_leave(NVML_ERROR_NOT_SUPPORTED);
    if (link >= found->gpu->nvlink_slots)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *end = follow(&found->session->machine, found->gpu, link);
    return NVML_SUCCESS;
}

/* Enters for a slot with something at its far end. */
static nvmlReturn_t enter_connected(const char *function, nvmlDevice_t device, unsigned int link,
                                    struct device *found, struct far_end *end)
{
    nvmlReturn_t answer = enter_slot(function, device, link, found, end);
    if (answer == NVML_SUCCESS && !end->gpu && !end->nvswitch)
        return session_leave(NVML_ERROR_NOT_SUPPORTED);
    return answer;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                      unsigned int *active)
{
    struct device found;
    struct far_end end;
    nvmlReturn_t answer = enter_slot(__func__, device, link, &found, &end);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!active)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    /* A link to a lost GPU goes down with it. */
    *active = end.gpu ? !found.session->state.now.gpus[end.gpu->index].lost : !!end.nvswitch;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link,
                                        unsigned int *version)
{
    struct device found;
    struct far_end end;
    nvmlReturn_t answer = enter_slot(__func__, device, link, &found, &end);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!version)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *version = found.gpu->nvlink_version;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link,
                                           unsigned int capability, unsigned int *has)
{
    struct device found;
    struct far_end end;
    nvmlReturn_t answer = enter_connected(__func__, device, link, &found, &end);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!has || capability >= NVML_NVLINK_CAP_COUNT)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *has = capability != NVML_NVLINK_CAP_SLI_BRIDGE;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                 nvmlPciInfo_t *pci)
{
    struct device found;
    struct far_end end;
    nvmlReturn_t answer = enter_connected(__func__, device, link, &found, &end);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!pci)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    give_pci(end.gpu ? &end.gpu->pci : end.nvswitch, pci);
    if (end.gpu)
        pci->pciDeviceId = end.gpu->pci_device_id;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                 unsigned int *type)
{
    struct device found;
    struct far_end end;
    nvmlReturn_t answer = enter_connected(__func__, device, link, &found, &end);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!type)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *type = end.gpu ? NVML_NVLINK_DEVICE_TYPE_GPU : NVML_NVLINK_DEVICE_TYPE_SWITCH;
    return session_leave(NVML_SUCCESS);
}
