/* Event sets: who waits for XID errors of which GPUs. */
#ifndef MOCKNVML_EVENTS_H
#define MOCKNVML_EVENTS_H

#include "nvml_abi.h"

/* Frees every set; the session's lock is held. A waiter then finds its set gone. */
void events_forget(void);

NVML_API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set);
NVML_API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set);
NVML_API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data,
                                          unsigned int timeout_ms);
NVML_API nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_v1_t *data,
                                       unsigned int timeout_ms);
NVML_API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                               nvmlEventSet_t set);
NVML_API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device,
                                                       unsigned long long *types);

#endif
