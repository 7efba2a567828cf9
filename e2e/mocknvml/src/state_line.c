#include "state_line.h"

#include <stdlib.h>
#include <string.h>

#include "nvml_abi.h"
#include "sections.h"

const char *const compute_mode_names[4] = {"default", NULL, "prohibited", "exclusive-process"};

static bool read_gpu(const char *word, const struct state_reading *reading, unsigned int *gpu)
{
    return word && reading->gpu_count && text_number(word, 0, reading->gpu_count - 1, gpu);
}

static bool set_compute_mode(const char *name, struct gpu_state *state)
{
    for (unsigned int mode = 0; name && mode < 4; mode++) {
        if (compute_mode_names[mode] && strcmp(compute_mode_names[mode], name) == 0) {
            state->compute_mode = mode;
            state->compute_mode_given = true;
            return true;
        }
    }
    return false;
}

/* By NVML number. */
static const char *const recovery_names[] = {"none", "reset", "reboot", "drain-p2p",
                                             "drain-and-reset"};

static bool set_recovery(const char *name, struct gpu_state *state)
{
    for (unsigned int action = 0; name && action < sizeof recovery_names / sizeof *recovery_names;
         action++) {
        if (strcmp(recovery_names[action], name) == 0) {
            state->recovery = action;
            return true;
        }
    }
    return false;
}

/* What follows "gpu N process". */
static bool add_process(const struct source *at, char *rest, unsigned int gpu,
                        struct snapshot *snapshot)
{
    if (snapshot->process_count == MAX_LATE_PROCESSES)
        return false;
    struct process *process = &snapshot->processes[snapshot->process_count];
    *process = (struct process){.gpu = gpu};
    if (!process_words(at, rest, process))
        return false;
    snapshot->process_count++;
    return true;
}

/* The entry of a GPU and a cgroup, made without limit where there is none; NULL when full. */
static struct memory_limit *find_limit(struct snapshot *snapshot, unsigned int gpu,
                                       const char *cgroup)
{
    for (unsigned int i = 0; i < snapshot->limit_count; i++) {
        struct memory_limit *limit = &snapshot->limits[i];
        if (limit->gpu == gpu && strcmp(limit->cgroup, cgroup) == 0)
            return limit;
    }
    if (snapshot->limit_count == MAX_LIMITS)
        return NULL;
    struct memory_limit *limit = &snapshot->limits[snapshot->limit_count];
    *limit = (struct memory_limit){.gpu = gpu, .hard = NVML_DEVICE_MEMORY_LIMIT_MAX};
    if (!text_copy(cgroup, limit->cgroup, sizeof limit->cgroup))
        return NULL;
    snapshot->limit_count++;
    return limit;
}

/* An entry without a limit and without use is none, so that ended pods leave room for others. */
static void drop_if_idle(struct snapshot *snapshot, struct memory_limit *limit)
{
    if (!limit->soft && !limit->used && limit->hard == NVML_DEVICE_MEMORY_LIMIT_MAX)
        *limit = snapshot->limits[--snapshot->limit_count];
}

/* What follows "gpu N memory_limit": "SOFT HARD CGROUP"; after memory_used: "BYTES CGROUP". */
static bool limit_words(char *rest, unsigned int gpu, bool used, struct snapshot *snapshot)
{
    unsigned long long first, hard = 0;
    const char *word = text_word(&rest);
    if (!word || !text_bytes(word, &first))
        return false;
    if (!used && (!(word = text_word(&rest)) || !text_bytes(word, &hard)))
        return false;
    const char *cgroup = text_word(&rest);
    struct memory_limit *limit = cgroup && *cgroup == '/' && !text_word(&rest)
                                     ? find_limit(snapshot, gpu, cgroup)
                                     : NULL;
    if (!limit)
        return false;
    if (used) {
        limit->used = first;
    } else {
        limit->soft = first;
        limit->hard = hard;
    }
    drop_if_idle(snapshot, limit);
    return true;
}

/* The words between "gpu N" and the end of a line that tell one thing of the GPU itself. */
static bool gpu_state_words(const char *what, char *rest, struct gpu_state *state)
{
    if (strcmp(what, "compute_mode") == 0)
        return set_compute_mode(text_word(&rest), state) && !text_word(&rest);
    if (strcmp(what, "recovery") == 0)
        return set_recovery(text_word(&rest), state) && !text_word(&rest);
    if (strcmp(what, "lost") == 0)
        state->losses += !state->lost;
    else if (strcmp(what, "recovered") != 0)
        return false;
    state->lost = strcmp(what, "lost") == 0;
    return !text_word(&rest);
}

/* What follows "gpu": its number, and a line of its state, a process or a memory limit. */
static bool gpu_words(const struct source *at, char *rest, struct state_reading *reading)
{
    unsigned int gpu;
    if (!read_gpu(text_word(&rest), reading, &gpu))
        return false;
    const char *what = text_word(&rest);
    if (!what)
        return false;
    if (strcmp(what, "process") == 0)
        return add_process(at, rest, gpu, reading->snapshot);
    if (strcmp(what, "memory_limit") == 0 || strcmp(what, "memory_used") == 0)
        return limit_words(rest, gpu, strcmp(what, "memory_used") == 0, reading->snapshot);
    return gpu_state_words(what, rest, &reading->snapshot->gpus[gpu]);
}

static bool add_xid(struct xid_list *list, struct xid_event event)
{
    struct xid_event *events = realloc(list->events, (list->count + 1) * sizeof *events);
    if (!events)
        return false;
    events[list->count++] = event;
    list->events = events;
    return true;
}

/* "xid X gpu N", and for a MIG device "gi N ci N" after it. */
static bool xid_words(char *rest, struct state_reading *reading)
{
    struct xid_event event = {.gpu_instance = NVML_NO_INSTANCE,
                              .compute_instance = NVML_NO_INSTANCE};
    const char *xid = text_word(&rest);
    const char *gpu = text_word(&rest);
    if (!xid || !text_number(xid, 1, 0xFFFF, &event.xid) || !gpu || strcmp(gpu, "gpu") != 0 ||
        !read_gpu(text_word(&rest), reading, &event.gpu))
        return false;
    for (const char *key; (key = text_word(&rest));) {
        bool gi = strcmp(key, "gi") == 0;
        const char *value = text_word(&rest);
        if ((!gi && strcmp(key, "ci") != 0) || !value ||
            !text_number(value, 0, 255, gi ? &event.gpu_instance : &event.compute_instance))
            return false;
    }
    return add_xid(&reading->snapshot->xids, event);
}

static bool driver_words(char *rest, struct state_reading *reading)
{
    const char *what = text_word(&rest);
    if (!what || text_word(&rest))
        return false;
    if (strcmp(what, "lists_pid_namespace") == 0)
        return reading->snapshot->by_pid_namespace = true;
    reading->snapshot->driver_loaded = strcmp(what, "loaded") == 0;
    return reading->snapshot->driver_loaded || strcmp(what, "unloaded") == 0;
}

bool state_line(const struct source *at, char *line, void *context)
{
    struct state_reading *reading = context;
    char shown[80] = "";
    strncpy(shown, line, sizeof shown - 1);
    char *rest = line;
    const char *subject = text_word(&rest);
    bool good = false;
    if (subject && strcmp(subject, "gpu") == 0)
        good = gpu_words(at, rest, reading);
    else if (subject && strcmp(subject, "xid") == 0)
        good = xid_words(rest, reading);
    else if (subject && strcmp(subject, "driver") == 0)
        good = driver_words(rest, reading);
    return good || source_refuse(at, "'%s' is not one of: gpu N lost; gpu N recovered; gpu N "
                                     "compute_mode MODE; gpu N recovery ACTION; gpu N process pid P "
                                     "used_mib M name WORD ...; gpu N memory_limit SOFT HARD CGROUP; "
                                     "gpu N memory_used BYTES CGROUP; xid X gpu N [gi N ci N]; driver loaded; "
                                     "driver unloaded; driver lists_pid_namespace (N below %u)",
                                 shown, reading->gpu_count);
}
