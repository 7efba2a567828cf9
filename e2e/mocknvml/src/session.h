/*
 * The library between nvmlInit and nvmlShutdown, and the gate that every call passes.
 *
 * An entered session holds the library's lock until session_leave; no call
 * waits inside.
 */
#ifndef MOCKNVML_SESSION_H
#define MOCKNVML_SESSION_H

#include "machine.h"
#include "nvml_abi.h"
#include "state.h"

struct session {
    unsigned int users; /* nvmlInit calls not yet shut down */
    struct machine machine;
    struct state state;
};

/* What a device handle names. */
struct device {
    struct session *session;
    const struct gpu *gpu;
    const struct mig_device *mig; /* NULL for the GPU itself */
};

/*
 * Enters for the named function: answers what the driver would for a function it lacks, and sees
 * edits of the state file. Only on NVML_SUCCESS is the session entered.
 */
nvmlReturn_t session_enter(const char *function, struct session **session);

/* Enters for a GPU or a MIG device; a lost GPU answers NVML_ERROR_GPU_IS_LOST. */
nvmlReturn_t session_enter_device(const char *function, nvmlDevice_t handle,
                                  struct device *device);

/* Enters for a GPU; a MIG device's handle answers NVML_ERROR_NOT_SUPPORTED. */
nvmlReturn_t session_enter_gpu(const char *function, nvmlDevice_t handle, struct device *device);

/*
 * Enters for what the processes of a GPU or a MIG device use. A GPU with MIG on answers
 * NVML_ERROR_NO_PERMISSION: a driver gives the sums of its MIG devices to privileged callers only.
 */
nvmlReturn_t session_enter_used(const char *function, nvmlDevice_t handle, struct device *device);

/* Leaves and passes the answer on. */
nvmlReturn_t session_leave(nvmlReturn_t answer);

/* The GPU of a handle, lost or well, while the session is entered; NULL for no GPU's handle. */
const struct gpu *session_gpu(nvmlDevice_t handle);

/* The processes of the machine file and then those of the state file; NULL behind the last. */
const struct process *session_process(const struct session *session, unsigned int place);

/* Does the process run on the GPU or, where it is one, on the MIG device? */
bool session_process_on(const struct process *process, const struct device *device);

/* A handle for the GPU, or the lost GPU's error. */
nvmlReturn_t session_hand_out(const struct session *session, const struct gpu *gpu,
                              nvmlDevice_t *handle);

nvmlDevice_t handle_of_gpu(unsigned int gpu);
nvmlDevice_t handle_of_mig(unsigned int gpu, unsigned int mig);

/* Copies text into a caller's buffer as NVML does. */
nvmlReturn_t give_text(const char *text, char *buffer, unsigned int length);

/* Writes the address in NVML's two spellings; the ids of the device stay 0. */
void give_pci(const struct pci_address *address, nvmlPciInfo_t *pci);

NVML_API nvmlReturn_t nvmlInitWithFlags(unsigned int flags);
NVML_API nvmlReturn_t nvmlInit_v2(void);
NVML_API nvmlReturn_t nvmlInit(void);
NVML_API nvmlReturn_t nvmlShutdown(void);

#endif
