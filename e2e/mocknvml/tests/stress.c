/*
 * Many threads use the library while one rewrites the state file; built with sanitizers by the tests.
 *
 * Answers are not checked here: whatever happens must be an answer, and no race, leak or overrun.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "../src/events.h"
#include "../src/session.h"

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length);
nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned int mode);

enum { THREADS = 6, ROUNDS = 60, EDITS = 200, GPUS = 8 };

static void use_gpu(unsigned int round, nvmlEventSet_t set)
{
    nvmlDevice_t device;
    char name[96];
    if (nvmlDeviceGetHandleByIndex_v2(round % (GPUS + 1), &device) != NVML_SUCCESS)
        return;
    nvmlDeviceGetName(device, name, sizeof name);
    nvmlDeviceRegisterEvents(device, NVML_EVENT_XID_CRITICAL, set);
    if (round % 10 == 0)
        nvmlDeviceSetComputeMode(device, NVML_COMPUTEMODE_DEFAULT);
}

/* Every other set is left for nvmlShutdown to free, and some handles are nonsense. */
static void *use(void *nothing)
{
    for (unsigned int round = 0; round < ROUNDS; round++) {
        nvmlEventSet_t set = NULL;
        nvmlEventData_t data;
        char name[96];
        nvmlInit_v2();
        nvmlEventSetCreate(&set);
        use_gpu(round, set);
        nvmlEventSetWait_v2(set, &data, 1);
        nvmlDeviceGetName((nvmlDevice_t)(uintptr_t)(round * 7919U), name, sizeof name);
        if (round % 2)
            nvmlEventSetFree(set);
        nvmlShutdown();
    }
    return nothing;
}

static void *edit(void *path)
{
    for (unsigned int i = 0; i < EDITS; i++) {
        FILE *file = fopen(path, i % 50 ? "a" : "w");
        if (!file)
            abort();
        fprintf(file, "xid %u gpu %u\ngpu %u %s\n", 1 + i % 90, i % GPUS, i % GPUS,
                i % 2 ? "lost" : "recovered");
        fclose(file);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS + 1];
    char *path = getenv("GPUSHARE_MOCK_NVML_STATE");
    if (!path || nvmlInit_v2() != NVML_SUCCESS)
        return 2;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, use, NULL);
    pthread_create(&threads[THREADS], NULL, edit, path);
    for (int i = 0; i <= THREADS; i++)
        pthread_join(threads[i], NULL);
    return nvmlShutdown() == NVML_SUCCESS ? 0 : 1;
}
