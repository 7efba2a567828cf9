/* Clocks, performance state and the limits of power: fixed by the machine file. */
#include "session.h"

NVML_API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned int type,
                                             unsigned int *mhz);
NVML_API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned int type,
                                                unsigned int *mhz);
NVML_API nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, unsigned int type,
                                                     unsigned int *mhz);
NVML_API nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, unsigned int *state);
NVML_API nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device,
                                                                unsigned long long *reasons);
NVML_API nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device,
                                                             unsigned long long *reasons);
NVML_API nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device,
                                                        unsigned int *milliwatts);
NVML_API nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device,
                                                               unsigned int *milliwatts);

enum { CLOCK_MEMORY = 2, CLOCK_COUNT = 4 }; /* graphics, SM, memory, video */
enum { STATE_P0 = 0 };

static nvmlReturn_t clock_of(const char *function, nvmlDevice_t device, unsigned int type,
                             unsigned int *mhz)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(function, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!mhz || type >= CLOCK_COUNT)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *mhz = type == CLOCK_MEMORY ? found.gpu->memory_clock_mhz : found.gpu->sm_clock_mhz;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *mhz)
{
    return clock_of(__func__, device, type, mhz);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *mhz)
{
    return clock_of(__func__, device, type, mhz);
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, unsigned int type,
                                            unsigned int *mhz)
{
    return clock_of(__func__, device, type, mhz);
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, unsigned int *state)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!state)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *state = STATE_P0;
    return session_leave(NVML_SUCCESS);
}

static nvmlReturn_t nothing_throttles(const char *function, nvmlDevice_t device,
                                      unsigned long long *reasons)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(function, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!reasons)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *reasons = 0;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device,
                                                       unsigned long long *reasons)
{
    return nothing_throttles(__func__, device, reasons);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device,
                                                    unsigned long long *reasons)
{
    return nothing_throttles(__func__, device, reasons);
}

static nvmlReturn_t power_limit(const char *function, nvmlDevice_t device,
                                unsigned int *milliwatts)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(function, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!milliwatts)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *milliwatts = found.gpu->power_limit_w * 1000;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
    return power_limit(__func__, device, milliwatts);
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device,
                                                      unsigned int *milliwatts)
{
    return power_limit(__func__, device, milliwatts);
}
