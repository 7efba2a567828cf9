/* Modes of a GPU: compute mode (settable), persistence, ECC. */
#include <stdio.h>

#include "session.h"
#include "state_line.h"

NVML_API nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode);
NVML_API nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned int mode);
NVML_API nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int *mode);
NVML_API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current,
                                           unsigned int *pending);
NVML_API nvmlReturn_t nvmlDeviceGetDriverModel(nvmlDevice_t device, unsigned int *current,
                                               unsigned int *pending);
NVML_API nvmlReturn_t nvmlDeviceGetDriverModel_v2(nvmlDevice_t device, unsigned int *current,
                                                  unsigned int *pending);

/* Windows alone has driver models. */
static nvmlReturn_t driver_model(nvmlDevice_t device, const unsigned int *current)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu("nvmlDeviceGetDriverModel_v2", device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    return session_leave(current ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetDriverModel(nvmlDevice_t device, unsigned int *current,
                                      unsigned int *pending)
{
    (void)pending;
    return driver_model(device, current);
}

nvmlReturn_t nvmlDeviceGetDriverModel_v2(nvmlDevice_t device, unsigned int *current,
                                         unsigned int *pending)
{
    (void)pending;
    return driver_model(device, current);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!mode)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    const struct gpu_state *state = &found.session->state.now.gpus[found.gpu->index];
    *mode = state->compute_mode_given ? state->compute_mode : found.gpu->compute_mode;
    return session_leave(NVML_SUCCESS);
}

/* It goes into the state file: like a driver's mode, it holds for all processes and outlives us. */
nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned int mode)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (mode >= 4)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    if (!compute_mode_names[mode])
        return session_leave(NVML_ERROR_NOT_SUPPORTED);
    char line[64];
    snprintf(line, sizeof line, "gpu %u compute_mode %s", found.gpu->index,
             compute_mode_names[mode]);
    bool written = state_append(&found.session->state, line);
    return session_leave(written ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int *mode)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!mode)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *mode = found.gpu->persistence;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current,
                                  unsigned int *pending)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!current || !pending)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    if (found.gpu->ecc == FEATURE_UNSUPPORTED)
        return session_leave(NVML_ERROR_NOT_SUPPORTED);
    *current = *pending = found.gpu->ecc == FEATURE_ON;
    return session_leave(NVML_SUCCESS);
}
