#include "session.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "events.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct session the_session; /* NVML has one per process */

/* Handle numbers: away from NULL, a block per GPU; place 0 is the GPU, the others are its MIG. */
enum { HANDLE_BASE = 0x10000, HANDLE_BLOCK = 0x100 };

nvmlDevice_t handle_of_gpu(unsigned int gpu)
{
    return (nvmlDevice_t)(uintptr_t)(HANDLE_BASE + gpu * HANDLE_BLOCK);
}

nvmlDevice_t handle_of_mig(unsigned int gpu, unsigned int mig)
{
    return (nvmlDevice_t)(uintptr_t)(HANDLE_BASE + gpu * HANDLE_BLOCK + 1 + mig);
}

static bool resolve(nvmlDevice_t handle, struct device *device)
{
    uintptr_t number = (uintptr_t)handle - HANDLE_BASE; /* wraps to a huge one below the base */
    uintptr_t place = number % HANDLE_BLOCK;
    if (number / HANDLE_BLOCK >= the_session.machine.gpu_count)
        return false;
    device->session = &the_session;
    device->gpu = &the_session.machine.gpus[number / HANDLE_BLOCK];
    device->mig = place ? &device->gpu->mig_devices[(place - 1) % MAX_MIG_DEVICES] : NULL;
    return place <= device->gpu->mig_count;
}

const struct gpu *session_gpu(nvmlDevice_t handle)
{
    struct device device;
    return resolve(handle, &device) && !device.mig ? device.gpu : NULL;
}

const struct process *session_process(const struct session *session, unsigned int place)
{
    const struct machine *machine = &session->machine;
    const struct snapshot *now = &session->state.now;
    if (place < machine->process_count)
        return &machine->processes[place];
    place -= machine->process_count;
    return place < now->process_count ? &now->processes[place] : NULL;
}

bool session_process_on(const struct process *process, const struct device *device)
{
    if (process->gpu != device->gpu->index)
        return false;
    return !device->mig || (process->gpu_instance == device->mig->gpu_instance &&
                            process->compute_instance == device->mig->compute_instance);
}

/* Is the word one of the blank-separated list? */
static bool lists(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *found = list; (found = strstr(found, word)); found += length) {
        bool starts = found == list || found[-1] == ' ' || found[-1] == '\t';
        char after = found[length];
        if (starts && (after == '\0' || after == ' ' || after == '\t'))
            return true;
    }
    return false;
}

/* Functions that came with a later driver than the others, and the branch that has them first. */
static const struct {
    const char *function;
    unsigned int branch;
} newer[] = {
    {"nvmlDeviceSetMemoryLimits_v1", 615},
    {"nvmlDeviceGetMemoryLimits_v1", 615},
};

static bool too_old(const char *version, const char *function)
{
    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++) {
        if (strcmp(newer[i].function, function) == 0)
            return strtoul(version, NULL, 10) < newer[i].branch;
    }
    return false;
}

static nvmlReturn_t gate(const char *function)
{
    const struct driver *driver = &the_session.machine.driver;
    if (the_session.users == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (lists(driver->missing, function) || too_old(driver->version, function))
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    if (lists(driver->unsupported, function))
        return NVML_ERROR_NOT_SUPPORTED;
    state_refresh(&the_session.state);
    return NVML_SUCCESS;
}

nvmlReturn_t session_leave(nvmlReturn_t answer)
{
    pthread_mutex_unlock(&lock);
    return answer;
}

nvmlReturn_t session_enter(const char *function, struct session **session)
{
    pthread_mutex_lock(&lock);
    nvmlReturn_t answer = gate(function);
    *session = &the_session;
    return answer == NVML_SUCCESS ? answer : session_leave(answer);
}

nvmlReturn_t session_enter_device(const char *function, nvmlDevice_t handle, struct device *device)
{
    struct session *session;
    nvmlReturn_t answer = session_enter(function, &session);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!resolve(handle, device))
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    if (session->state.now.gpus[device->gpu->index].lost)
        return session_leave(NVML_ERROR_GPU_IS_LOST);
    return NVML_SUCCESS;
}

nvmlReturn_t session_enter_gpu(const char *function, nvmlDevice_t handle, struct device *device)
{
    nvmlReturn_t answer = session_enter_device(function, handle, device);
    if (answer == NVML_SUCCESS && device->mig)
        return session_leave(NVML_ERROR_NOT_SUPPORTED);
    return answer;
}

nvmlReturn_t session_enter_used(const char *function, nvmlDevice_t handle, struct device *device)
{
    nvmlReturn_t answer = session_enter_device(function, handle, device);
    if (answer == NVML_SUCCESS && !device->mig && device->gpu->mig == FEATURE_ON)
        return session_leave(NVML_ERROR_NO_PERMISSION);
    return answer;
}

nvmlReturn_t session_hand_out(const struct session *session, const struct gpu *gpu,
                              nvmlDevice_t *handle)
{
    if (session->state.now.gpus[gpu->index].lost)
        return NVML_ERROR_GPU_IS_LOST;
    *handle = handle_of_gpu(gpu->index);
    return NVML_SUCCESS;
}

nvmlReturn_t give_text(const char *text, char *buffer, unsigned int length)
{
    size_t size = strlen(text) + 1;
    if (!buffer)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (length < size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(buffer, text, size);
    return NVML_SUCCESS;
}

void give_pci(const struct pci_address *address, nvmlPciInfo_t *pci)
{
    *pci = (nvmlPciInfo_t){
        .domain = address->domain, .bus = address->bus, .device = address->device};
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0",
             address->domain & 0xFFFFU, address->bus & 0xFFU, address->device & 0xFFU);
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", address->domain,
             address->bus & 0xFFU, address->device & 0xFFU);
}

/* The state file stands beside the machine file unless the environment names another. */
static bool open_state(const char *machine_path)
{
    const char *path = getenv("GPUSHARE_MOCK_NVML_STATE");
    char beside[PATH_MAX + 8];
    snprintf(beside, sizeof beside, "%s.state", machine_path);
    return state_open(&the_session.state, path && *path ? path : beside, &the_session.machine);
}

/* The first nvmlInit: what a driver would find out about its machine. */
static nvmlReturn_t start(void)
{
    const char *path = getenv("GPUSHARE_MOCK_NVML_MACHINE");
    if (!path || !*path) {
        fputs("mocknvml: GPUSHARE_MOCK_NVML_MACHINE names no machine file\n", stderr);
        return NVML_ERROR_UNKNOWN;
    }
    if (!machine_load(path, &the_session.machine) || !open_state(path))
        return NVML_ERROR_UNKNOWN;
    nvmlReturn_t answer = (nvmlReturn_t)the_session.machine.driver.init_result;
    if (answer == NVML_SUCCESS && !the_session.state.now.driver_loaded)
        answer = NVML_ERROR_DRIVER_NOT_LOADED;
    if (answer != NVML_SUCCESS)
        state_close(&the_session.state);
    return answer;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags; /* they only relax what a real driver checks */
    pthread_mutex_lock(&lock);
    nvmlReturn_t answer = the_session.users ? NVML_SUCCESS : start();
    the_session.users += answer == NVML_SUCCESS;
    return session_leave(answer);
}

nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    if (the_session.users == 0)
        return session_leave(NVML_ERROR_UNINITIALIZED);
    if (--the_session.users == 0) {
        events_forget();
        state_close(&the_session.state);
    }
    return session_leave(NVML_SUCCESS);
}
