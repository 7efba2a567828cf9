/* How near two GPUs are to each other: PCIe distance, peer access, boards. */
#include "session.h"

NVML_API nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1,
                                                          nvmlDevice_t device2,
                                                          unsigned int *level);
NVML_API nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2,
                                             unsigned int capability, unsigned int *status);
NVML_API nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int *board);
NVML_API nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *several);
NVML_API nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device1, nvmlDevice_t device2, int *same);

/* Enters for two GPUs; the answer for the worse of the two. */
static nvmlReturn_t enter_pair(const char *function, nvmlDevice_t one, nvmlDevice_t two,
                               struct device *first, const struct gpu **second)
{
    nvmlReturn_t answer = session_enter_gpu(function, one, first);
    if (answer != NVML_SUCCESS)
        return answer;
    *second = session_gpu(two);
    if (!*second)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    if (first->session->state.now.gpus[(*second)->index].lost)
        return session_leave(NVML_ERROR_GPU_IS_LOST);
    return NVML_SUCCESS;
}

static const struct link *link_of(const struct device *one, const struct gpu *two)
{
    return &one->session->machine.links[one->gpu->index][two->index];
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2,
                                                 unsigned int *level)
{
    struct device one;
    const struct gpu *two;
    nvmlReturn_t answer = enter_pair(__func__, device1, device2, &one, &two);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!level)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *level = one.gpu == two ? NVML_TOPOLOGY_INTERNAL : link_of(&one, two)->level;
    return session_leave(NVML_SUCCESS);
}

static bool joined_by_nvlink(const struct device *one, const struct gpu *two)
{
    return link_of(one, two)->nvlinks > 0 || (one->gpu->nvswitch_links && two->nvswitch_links);
}

/* Over PCIe the root complex of one socket passes peer traffic on; between sockets nothing does. */
static unsigned int peer_status(const struct device *one, const struct gpu *two,
                                unsigned int capability)
{
    bool nvlink = joined_by_nvlink(one, two);
    bool near = link_of(one, two)->level < NVML_TOPOLOGY_SYSTEM;
    switch (capability) {
    case NVML_P2P_CAPS_INDEX_READ:
    case NVML_P2P_CAPS_INDEX_WRITE:
        return nvlink || near ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED;
    case NVML_P2P_CAPS_INDEX_PROP:
        return near ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED;
    default: /* NVLink itself, and atomics, which only it carries */
        return nvlink ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
    }
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2,
                                    unsigned int capability, unsigned int *status)
{
    struct device one;
    const struct gpu *two;
    nvmlReturn_t answer = enter_pair(__func__, device1, device2, &one, &two);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!status || one.gpu == two || capability >= NVML_P2P_CAPS_INDEX_UNKNOWN)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *status = peer_status(&one, two, capability);
    return session_leave(NVML_SUCCESS);
}

static unsigned int board_of(const struct gpu *gpu)
{
    return gpu->board_id ? gpu->board_id : gpu->pci.domain << 16 | gpu->pci.bus << 8;
}

nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int *board)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!board)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *board = board_of(found.gpu);
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *several)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!several)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    const struct machine *machine = &found.session->machine;
    *several = 0;
    for (unsigned int i = 0; i < machine->gpu_count; i++)
        *several |= i != found.gpu->index && board_of(&machine->gpus[i]) == board_of(found.gpu);
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device1, nvmlDevice_t device2, int *same)
{
    struct device one;
    const struct gpu *two;
    nvmlReturn_t answer = enter_pair(__func__, device1, device2, &one, &two);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!same)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *same = board_of(one.gpu) == board_of(two);
    return session_leave(NVML_SUCCESS);
}
