/* What a GPU measures: utilization, temperature, power, memory errors. */
#include "session.h"

NVML_API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates);
NVML_API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor,
                                               unsigned int *degrees);
NVML_API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *reading);
NVML_API nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *percent);
NVML_API nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan,
                                               unsigned int *percent);
NVML_API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts);
NVML_API nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device,
                                                      unsigned int *milliwatts);
NVML_API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int error,
                                                  unsigned int counter, unsigned long long *count);
NVML_API nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned int error,
                                                      unsigned int counter, unsigned int location,
                                                      unsigned long long *count);

enum { ERROR_CORRECTED = 0, ERROR_UNCORRECTED = 1, COUNTER_AGGREGATE = 1, LOCATION_DEVICE = 2 };

static unsigned int at_most_100(unsigned int percent)
{
    return percent > 100 ? 100 : percent;
}

/* The sum of what its processes do, so that the two can never disagree. */
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!rates)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    if (found.gpu->mig == FEATURE_ON) /* a driver measures no whole GPU then */
        return session_leave(NVML_ERROR_NOT_SUPPORTED);
    const struct process *process;
    unsigned int sm = 0, memory = 0;
    for (unsigned int i = 0; (process = session_process(found.session, i)); i++) {
        if (session_process_on(process, &found)) {
            sm += process->sm_percent;
            memory += process->memory_percent;
        }
    }
    *rates = (nvmlUtilization_t){.gpu = at_most_100(sm), .memory = at_most_100(memory)};
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor,
                                      unsigned int *degrees)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!degrees || sensor != 0) /* the only sensor of NVML is that of the GPU die */
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *degrees = found.gpu->temperature_c;
    return session_leave(NVML_SUCCESS);
}

/* All machines have GPUs without fans of their own, which NVML does not support. */
nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *percent)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    return session_leave(percent ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *percent)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    (void)fan;
    if (answer != NVML_SUCCESS)
        return answer;
    return session_leave(percent ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *reading)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!reading || reading->sensorType != 0)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    if (reading->version != NVML_TEMPERATURE_V1)
        return session_leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    reading->temperature = (int)found.gpu->temperature_c;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!milliwatts)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *milliwatts = found.gpu->power_w * 1000;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!milliwatts)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *milliwatts = found.gpu->power_limit_w * 1000;
    return session_leave(NVML_SUCCESS);
}

static nvmlReturn_t count_errors(const char *function, nvmlDevice_t device, unsigned int error,
                                 unsigned int counter, unsigned long long *count)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(function, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!count || error > ERROR_UNCORRECTED || counter > COUNTER_AGGREGATE)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    if (found.gpu->ecc != FEATURE_ON)
        return session_leave(NVML_ERROR_NOT_SUPPORTED);
    *count = error == ERROR_CORRECTED ? found.gpu->ecc_corrected : found.gpu->ecc_uncorrected;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int error,
                                         unsigned int counter, unsigned long long *count)
{
    return count_errors(__func__, device, error, counter, count);
}

/* All errors are in device memory: a machine file does not tell caches and registers apart. */
nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned int error,
                                             unsigned int counter, unsigned int location,
                                             unsigned long long *count)
{
    nvmlReturn_t answer = count_errors(__func__, device, error, counter, count);
    if (answer == NVML_SUCCESS && location != LOCATION_DEVICE)
        *count = 0;
    return answer;
}
