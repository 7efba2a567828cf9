/* What belongs to the driver and to no GPU. */
#include <stddef.h>

#include "session.h"

NVML_API const char *nvmlErrorString(nvmlReturn_t result);
NVML_API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length);
NVML_API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length);
NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version);
NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version);

static const struct {
    nvmlReturn_t result;
    const char *text;
} sentences[] = {
    {NVML_SUCCESS, "The operation was successful"},
    {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
    {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
    {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
    {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
    {NVML_ERROR_NOT_FOUND, "Not Found"},
    {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
    {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
    {NVML_ERROR_TIMEOUT, "Timeout"},
    {NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
    {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
    {NVML_ERROR_RESET_REQUIRED, "GPU requires reset"},
    {NVML_ERROR_LIB_RM_VERSION_MISMATCH, "RM has detected an NVML/RM version mismatch."},
    {NVML_ERROR_MEMORY, "Insufficient Memory"},
    {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
    {NVML_ERROR_UNKNOWN, "Unknown Error"},
};

const char *nvmlErrorString(nvmlReturn_t result)
{
    for (size_t i = 0; i < sizeof sentences / sizeof *sentences; i++) {
        if (sentences[i].result == result)
            return sentences[i].text;
    }
    return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    struct session *session;
    nvmlReturn_t answer = session_enter(__func__, &session);
    if (answer != NVML_SUCCESS)
        return answer;
    return session_leave(give_text(session->machine.driver.version, version, length));
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    struct session *session;
    nvmlReturn_t answer = session_enter(__func__, &session);
    if (answer != NVML_SUCCESS)
        return answer;
    return session_leave(give_text(session->machine.driver.nvml_version, version, length));
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    struct session *session;
    nvmlReturn_t answer = session_enter(__func__, &session);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!version)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *version = (int)session->machine.driver.cuda_version;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}
