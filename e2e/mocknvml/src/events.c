#include "events.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "session.h"

enum { POLL_MILLISECONDS = 100 };

/* What one set wants of one GPU. */
struct registration {
    unsigned long long types; /* 0: not registered */
    size_t from;              /* XIDs before this place in the log are history */
    unsigned int losses;      /* those already reported */
};

struct event_set {
    struct event_set *next;
    uintptr_t number; /* the handle; never used twice */
    size_t position;  /* in the log of XIDs */
    struct registration gpus[MAX_GPUS];
};

static struct event_set *sets; /* under the session's lock */
static uintptr_t last_number;

static struct event_set *find(nvmlEventSet_t handle)
{
    struct event_set *set = sets;
    while (set && set->number != (uintptr_t)handle)
        set = set->next;
    return set;
}

void events_forget(void)
{
    while (sets) {
        struct event_set *set = sets;
        sets = set->next;
        free(set);
    }
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    struct session *session;
    nvmlReturn_t answer = session_enter(__func__, &session);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!set)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    struct event_set *fresh = calloc(1, sizeof *fresh);
    if (!fresh)
        return session_leave(NVML_ERROR_MEMORY);
    fresh->number = ++last_number;
    fresh->next = sets;
    sets = fresh;
    *set = (nvmlEventSet_t)fresh->number;
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    struct session *session;
    nvmlReturn_t answer = session_enter(__func__, &session);
    if (answer != NVML_SUCCESS)
        return answer;
    struct event_set *found = find(set);
    if (!found)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    struct event_set **link = &sets;
    while (*link != found)
        link = &(*link)->next;
    *link = found->next;
    free(found);
    return session_leave(NVML_SUCCESS);
}

static unsigned long long supported_types(const struct gpu *gpu)
{
    unsigned long long ecc = NVML_EVENT_SINGLE_BIT_ECC | NVML_EVENT_DOUBLE_BIT_ECC;
    return NVML_EVENT_XID_CRITICAL | (gpu->ecc == FEATURE_UNSUPPORTED ? 0 : ecc);
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!types)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    *types = supported_types(found.gpu);
    return session_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                      nvmlEventSet_t set)
{
    struct device found;
    nvmlReturn_t answer = session_enter_gpu(__func__, device, &found);
    if (answer != NVML_SUCCESS)
        return answer;
    struct event_set *into = find(set);
    if (!into)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    if (types & ~supported_types(found.gpu))
        return session_leave(NVML_ERROR_NOT_SUPPORTED);
    struct registration *registered = &into->gpus[found.gpu->index];
    if (registered->types == 0) { /* a second registration must not make seen events news again */
        registered->from = found.session->state.log.count;
        registered->losses = found.session->state.now.gpus[found.gpu->index].losses;
    }
    registered->types |= types;
    return session_leave(NVML_SUCCESS);
}

/* The next XID in the log that the set wants; false when there is none. */
static bool take_xid(struct event_set *set, const struct xid_list *log, nvmlEventData_t *data)
{
    while (set->position < log->count) {
        size_t place = set->position++;
        const struct xid_event *event = &log->events[place];
        const struct registration *registered = &set->gpus[event->gpu];
        if (!(registered->types & NVML_EVENT_XID_CRITICAL) || place < registered->from)
            continue;
        data->device = handle_of_gpu(event->gpu);
        data->eventType = NVML_EVENT_XID_CRITICAL;
        data->eventData = event->xid;
        data->gpuInstanceId = event->gpu_instance;
        data->computeInstanceId = event->compute_instance;
        return true;
    }
    return false;
}

/* Is a registered GPU lost, and was this set not reported yet? Each loss is reported once. */
static bool take_loss(struct event_set *set, const struct gpu_state *gpus)
{
    for (unsigned int gpu = 0; gpu < MAX_GPUS; gpu++) {
        struct registration *registered = &set->gpus[gpu];
        if (registered->types && gpus[gpu].losses != registered->losses) {
            registered->losses = gpus[gpu].losses;
            if (gpus[gpu].lost)
                return true;
        }
    }
    return false;
}

static nvmlReturn_t look(nvmlEventSet_t handle, nvmlEventData_t *data)
{
    struct session *session;
    nvmlReturn_t answer = session_enter("nvmlEventSetWait_v2", &session);
    if (answer != NVML_SUCCESS)
        return answer;
    struct event_set *set = find(handle);
    if (!set)
        return session_leave(NVML_ERROR_INVALID_ARGUMENT);
    if (take_xid(set, &session->state.log, data))
        return session_leave(NVML_SUCCESS);
    if (take_loss(set, session->state.now.gpus))
        return session_leave(NVML_ERROR_GPU_IS_LOST);
    return session_leave(NVML_ERROR_TIMEOUT);
}

static unsigned long long milliseconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long)now.tv_sec * 1000 + (unsigned long long)now.tv_nsec / 1000000;
}

/* The driver's library sleeps until an event comes: a measurement of idle cost makes the poll rare. */
static unsigned long long poll_milliseconds(void)
{
    const char *text = getenv("GPUSHARE_MOCK_NVML_EVENT_POLL_MS");
    unsigned long long found = text ? strtoull(text, NULL, 10) : 0;
    return found ? found : POLL_MILLISECONDS;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data,
                                 unsigned int timeout_ms)
{
    if (!data)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned long long poll = poll_milliseconds();
    unsigned long long deadline = milliseconds_now() + timeout_ms;
    for (;;) { /* a poll and not inotify: it sees replaced files and needs no watch per mount */
        nvmlReturn_t answer = look(set, data);
        unsigned long long now = milliseconds_now();
        if (answer != NVML_ERROR_TIMEOUT || now >= deadline)
            return answer;
        unsigned long long pause = deadline - now < poll ? deadline - now : poll;
        struct timespec rest = {.tv_sec = (time_t)(pause / 1000),
                                .tv_nsec = (long)(pause % 1000) * 1000 * 1000};
        nanosleep(&rest, NULL);
    }
}

/* The first version has no members for a MIG device. */
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_v1_t *data, unsigned int timeout_ms)
{
    nvmlEventData_t all;
    nvmlReturn_t answer = nvmlEventSetWait_v2(set, data ? &all : NULL, timeout_ms);
    if (answer == NVML_SUCCESS)
        *data = (nvmlEventData_v1_t){.device = all.device,
                                     .eventType = all.eventType,
                                     .eventData = all.eventData};
    return answer;
}
