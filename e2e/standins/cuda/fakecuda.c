/*
 * A libcuda.so.1 for tests: it keeps the bookkeeping of a driver and computes nothing.
 *
 * With FAKECUDA_ROOT it is the driver of a node: see node.c. Without, memory is counted against FAKECUDA_MIB and, as an MPS client would be, against
 * CUDA_MPS_PINNED_DEVICE_MEM_LIMIT less a context of FAKECUDA_CONTEXT_MIB. Work takes time in
 * proportion to its size and to CUDA_MPS_ACTIVE_THREAD_PERCENTAGE. An address that was never given
 * out is an illegal address, which spoils the context as it does on a GPU.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "node.h"

enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, ILLEGAL_ADDRESS = 700 };
enum { PIECES = 4096 };

static const uint64_t MIB = 1024 * 1024;
static struct { uint64_t at, size; uint32_t word; int gpu; } pieces[PIECES];
static uint64_t next_address = 0x700000000000, held;
static char contexts[NODE_GPUS]; /* their addresses stand for contexts, their values count */
static double pending; /* seconds of work that nobody has waited for */
static int spoiled, reported, current; /* the GPU whose context is current */

static uint64_t number(const char *name, uint64_t without) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : without;
}

static uint64_t limit(void) {
    const char *text = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    uint64_t own = number("FAKECUDA_MIB", 1024), share = 0;
    if (text && sscanf(text, "0=%luM", &share) == 1)
        own = share - number("FAKECUDA_CONTEXT_MIB", 0);
    return own * MIB;
}

/*
 * Tell the mock of NVML and the fake of nvidia-smi, once, of a process that holds much: as a driver
 * would, with what it holds then.
 */
static void tell(uint64_t size) {
    const char *folder = getenv("FAKECUDA_PROCESSES"), *uuid = getenv("CUDA_VISIBLE_DEVICES");
    char path[4096];
    FILE *file;
    if (!folder || !uuid || size < 1024 * MIB || reported++)
        return;
    snprintf(path, sizeof path, "%s/machine.state", folder);
    if ((file = fopen(path, "a"))) {
        fprintf(file, "gpu 0 process pid %d used_mib %lu name python3\n", getpid(), size / MIB);
        fclose(file);
    }
    snprintf(path, sizeof path, "%s/processes.csv", folder);
    if ((file = fopen(path, "a"))) {
        fprintf(file, "%s, %d, %lu\n", uuid, getpid(), size / MIB);
        fclose(file);
    }
}

static int known(uint64_t address) {
    for (int i = 0; i < PIECES; i++)
        if (pieces[i].size && address >= pieces[i].at && address < pieces[i].at + pieces[i].size)
            return i;
    return -1;
}

int cuInit(unsigned flags) {
    (void)flags;
    if (getenv("FAKECUDA_NONE") || (node_played() && !node_gpus()))
        return NO_DEVICE;
    return OK;
}
int cuDriverGetVersion(int *version) { *version = 12040; return OK; }
int cuDeviceGetCount(int *count) { *count = node_played() ? node_gpus() : 1; return OK; }

int cuDeviceGet(int *device, int ordinal) {
    int count;
    cuDeviceGetCount(&count);
    *device = ordinal;
    return ordinal >= 0 && ordinal < count ? OK : INVALID;
}

int cuDeviceGetName(char *name, int size, int device) {
    const char *given = getenv("FAKECUDA_NAME");
    (void)device;
    snprintf(name, size, "%s", given ? given : "Fake GPU");
    return OK;
}

/* The uuid is that of CUDA_VISIBLE_DEVICES, as with a driver that has this GPU. */
int cuDeviceGetUuid(unsigned char *uuid, int device) {
    const char *text = node_played() ? node_uuid(device) : getenv("CUDA_VISIBLE_DEVICES");
    text = text && strlen(text) > 4 ? text + 4 : "00000000-0000-0000-0000-000000000000";
    for (int i = 0; i < 16; i++) {
        unsigned byte;
        while (*text == '-')
            text++;
        if (sscanf(text, "%2x", &byte) != 1)
            return INVALID;
        uuid[i] = byte;
        text += 2;
    }
    return OK;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    *bytes = number("FAKECUDA_MIB", 1024) * MIB;
    return OK;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    double share = number("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", 100) / 100.0;
    int reached = 16 * share < 1 ? 1 : (int)(16 * share);
    *value = attribute == 16 ? reached : attribute == 75 ? 7 : 0;
    return OK;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = &contexts[device];
    if (node_played() && !contexts[device]++)
        return node_take(device, number("FAKECUDA_CONTEXT_MIB", 0) * MIB) ? OK : OUT_OF_MEMORY;
    return OK;
}

int cuCtxSetCurrent(void *context) {
    int device = (int)((char *)context - contexts);
    if (device < 0 || device >= NODE_GPUS)
        return INVALID;
    current = device;
    return OK;
}

int cuDeviceCanAccessPeer(int *yes, int device, int other) { *yes = device != other; return OK; }
int cuCtxEnablePeerAccess(void *context, unsigned flags) { (void)context, (void)flags; return OK; }

int cuMemcpyPeer(uint64_t to, void *target, uint64_t from, void *source, size_t size) {
    (void)target, (void)source;
    pending += (double)size / 1e9 / (double)number("FAKECUDA_PEER_GB_PER_S", 20);
    return known(to) < 0 || known(from) < 0 ? INVALID : OK;
}

int cuCtxSynchronize(void) {
    struct timespec rest = {(time_t)pending, (long)((pending - (time_t)pending) * 1e9)};
    if (spoiled || (node_played() && node_spoiled(current)))
        return ILLEGAL_ADDRESS;
    nanosleep(&rest, NULL);
    pending = 0;
    return OK;
}

int cuMemAlloc_v2(uint64_t *address, size_t size) {
    if (spoiled || (node_played() && node_spoiled(current)))
        return ILLEGAL_ADDRESS;
    if (node_played() && !node_take(current, size))
        return OUT_OF_MEMORY;
    for (int i = 0; i < PIECES && (node_played() || held + size <= limit()); i++)
        if (!pieces[i].size) {
            pieces[i].gpu = current;
            pieces[i].at = *address = next_address;
            pieces[i].size = size;
            next_address += size;
            held += size;
            tell(size);
            return OK;
        }
    return OUT_OF_MEMORY;
}

int cuMemFree_v2(uint64_t address) {
    int piece = known(address);
    if (piece < 0)
        return INVALID;
    if (node_played())
        node_give(pieces[piece].gpu, pieces[piece].size);
    held -= pieces[piece].size;
    pieces[piece].size = 0;
    return OK;
}

int cuMemGetInfo_v2(size_t *available, size_t *total) {
    *total = node_played() ? node_limit(current) : limit();
    *available = *total > held ? *total - held : 0;
    if (node_played() && node_free(current) < *available)
        *available = node_free(current); /* others hold the rest of the GPU */
    return OK;
}

int cuMemsetD32_v2(uint64_t address, unsigned word, size_t count) {
    int piece = known(address);
    (void)count;
    if (piece < 0)
        return INVALID;
    pieces[piece].word = word;
    return OK;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) {
    int piece = known(from);
    if (piece < 0 || from + size > pieces[piece].at + pieces[piece].size)
        return INVALID;
    if (node_played() && node_disturbed(current))
        pieces[piece].word = 0;
    for (size_t at = 0; at + 4 <= size; at += 4)
        memcpy((char *)to + at, &pieces[piece].word, 4);
    return OK;
}

int cuModuleLoadData(void **module, const void *image) {
    *module = strstr(image, ".visible .entry burn") ? (void *)1 : (void *)2;
    return OK;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = module;
    return (*name == 'b') == (module == (void *)1) ? OK : INVALID;
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned threads,
                   unsigned threads_y, unsigned threads_z, unsigned shared, void *stream,
                   void **values, void **extra) {
    double share = number("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", 100) / 100.0;
    if (node_played())
        share = node_speed(current, share);
    uint64_t first = *(uint64_t *)values[0];
    (void)y, (void)z, (void)threads_y, (void)threads_z, (void)shared, (void)stream, (void)extra;
    if (known(first) < 0) {
        spoiled = 1;
        if (node_played())
            node_crash(current);
    }
    else if (function == (void *)1)
        pending += 1e-10 * x * threads * *(uint32_t *)values[1] / share;
    else
        pending += 1e-10 * *(uint64_t *)values[2];
    return OK;
}

int cuGetErrorName(int error, const char **name) {
    *name = error == OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == NO_DEVICE       ? "CUDA_ERROR_NO_DEVICE"
            : error == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                       : "CUDA_ERROR_INVALID_VALUE";
    return OK;
}
