/* Values that NVML gives by number: of these only the recovery that a GPU needs after an error. */
#include <stdlib.h>

#include "session.h"

NVML_API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count,
                                               nvmlFieldValue_t *values);

enum { RECOVERY_ACTION_BRANCH = 565 }; /* the first driver that reports it */

static bool reports_recovery(const struct session *session)
{
    return strtoul(session->machine.driver.version, NULL, 10) >= RECOVERY_ACTION_BRANCH;
}

static void answer_field(const struct device *device, nvmlFieldValue_t *field)
{
    field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    field->value.ullVal = device->session->state.now.gpus[device->gpu->index].recovery;
    field->nvmlReturn = NVML_SUCCESS;
    if (field->fieldId != NVML_FI_DEV_GET_GPU_RECOVERY_ACTION || !reports_recovery(device->session))
        field->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (count <= 0 || !values)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < count; i++)
        answer_field(&found, &values[i]);
    return session_leave(NVML_SUCCESS);
}
