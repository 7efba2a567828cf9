/* The calls of NVML by which a container of a node reads the free memory of a GPU. */
#include <string.h>

#include "node.h"

enum { OK = 0, NOT_FOUND = 6 };

int nvmlInit_v2(void) { return OK; }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    for (int gpu = 0; node_played() && gpu < node_gpus(); gpu++)
        if (strcmp(node_uuid(gpu), uuid) == 0) {
            *handle = (char *)NULL + gpu + 1;
            return OK;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long sizes[3]) {
    int gpu = (int)((char *)handle - (char *)NULL) - 1;
    sizes[0] = node_memory();
    sizes[1] = node_free(gpu);
    sizes[2] = sizes[0] - sizes[1];
    return OK;
}
