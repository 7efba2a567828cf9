/* What a compute GPU has and nobody here uses: video engines, a display, accounting. */
#include "session.h"

NVML_API nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *percent,
                                                      unsigned int *period_us);
NVML_API nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *percent,
                                                      unsigned int *period_us);
NVML_API nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, unsigned int *on);
NVML_API nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, unsigned int *on);
NVML_API nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, unsigned int *on);
NVML_API nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device,
                                                        unsigned int *processes);
NVML_API nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned int *brand);

enum { PERIOD_US = 167000, ACCOUNTED_PROCESSES = 4000, BRAND_TESLA = 2 };

static nvmlReturn_t give(const char *function, nvmlDevice_t device, unsigned int value,
                         unsigned int *target)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(function, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!target)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *target = value;
    return session_leave(NVML_SUCCESS);
}

static nvmlReturn_t idle(const char *function, nvmlDevice_t device, unsigned int *percent,
                         unsigned int *period_us)
{
    nvmlReturn_t answer = give(function, device, 0, period_us ? percent : NULL);
    if (answer == NVML_SUCCESS)
        *period_us = PERIOD_US;
    return answer;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *percent,
                                             unsigned int *period_us)
{
    return idle(__func__, device, percent, period_us);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *percent,
                                             unsigned int *period_us)
{
    return idle(__func__, device, percent, period_us);
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, unsigned int *on)
{
    return give(__func__, device, 0, on);
}

nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, unsigned int *on)
{
    return give(__func__, device, 0, on);
}

nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, unsigned int *on)
{
    return give(__func__, device, 0, on);
}

nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned int *processes)
{
    return give(__func__, device, ACCOUNTED_PROCESSES, processes);
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned int *brand)
{
    return give(__func__, device, BRAND_TESLA, brand);
}
