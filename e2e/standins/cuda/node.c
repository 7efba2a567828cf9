/*
 * The driver of a node for all its containers: who holds how much of which GPU, and which limits hold.
 *
 * Below $FAKECUDA_ROOT/cuda/<uuid> each process has a file with its pod and its bytes, which it keeps
 * locked: a file that can be locked is that of a process which has ended. Limits are those that the
 * mock of NVML keeps in $FAKECUDA_ROOT/state, by the cgroup of the pod, and for a process whose MPS
 * daemon answers those of its variables. The file $FAKECUDA_ROOT/cuda/faults has words for what is
 * broken: see README.md.
 */
#include "node.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static const uint64_t MIB = 1024 * 1024;
static struct { int index, file; pid_t pid; uint64_t held; time_t born; char uuid[64]; } own[NODE_GPUS];
static int count = -1;

static const char *root(void) { return getenv("FAKECUDA_ROOT"); }

bool node_played(void) { return root() != NULL; }

static bool fault(const char *word) {
    char path[512], text[512] = "";
    FILE *file;
    snprintf(path, sizeof path, "%s/cuda/faults", root());
    if ((file = fopen(path, "r"))) {
        size_t read = fread(text, 1, sizeof text - 1, file);
        text[read] = '\0';
        fclose(file);
    }
    return strstr(text, word) != NULL;
}

int node_gpus(void) {
    if (count >= 0)
        return count;
    count = 0;
    for (int index = 0; index < NODE_GPUS; index++) {
        char name[32];
        snprintf(name, sizeof name, "FAKECUDA_GPU_%d", index);
        const char *uuid = getenv(name);
        if (uuid) {
            own[count].index = index;
            own[count].file = -1;
            snprintf(own[count++].uuid, sizeof own[0].uuid, "%s", uuid);
        }
    }
    return count;
}

const char *node_uuid(int gpu) { return gpu < node_gpus() ? own[gpu].uuid : NULL; }

/* The UID of this pod: kubelet's mounts of every container lead through a folder of that name. */
static const char *pod(void) {
    static char uid[64];
    char line[4096], *found;
    FILE *file = uid[0] ? NULL : fopen("/proc/self/mountinfo", "r");
    while (file && fgets(line, sizeof line, file))
        if ((found = strstr(line, "/pods/")) && sscanf(found, "/pods/%40[0-9a-f-]/", uid) == 1)
            break;
    if (file)
        fclose(file);
    if (!uid[0]) {
        const char *given = getenv("FAKECUDA_POD");
        snprintf(uid, sizeof uid, "%s", given ? given : "none");
    }
    return uid;
}

static void folder_of(int gpu, char *path, size_t size) {
    snprintf(path, size, "%s/cuda/%s", root(), own[gpu].uuid);
    mkdir(path, 0777);
    chmod(path, 0777);
}

/* Lock the GPU's account; give the result to unlock. */
static int lock(int gpu) {
    char path[512];
    folder_of(gpu, path, sizeof path - 8);
    strcat(path, "/.lock");
    int file = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    fchmod(file, 0666);
    flock(file, LOCK_EX);
    return file;
}

static void unlock(int file) { close(file); }

/* Bytes that processes hold on a GPU: of all, or of this pod. Files of ended processes go. */
static uint64_t used(int gpu, const char *of, bool others) {
    char folder[512], path[800], owner[64];
    unsigned long long bytes;
    uint64_t sum = 0;
    folder_of(gpu, folder, sizeof folder);
    DIR *entries = opendir(folder);
    struct dirent *each;
    while (entries && (each = readdir(entries))) {
        if (each->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, each->d_name);
        int file = open(path, O_RDWR | O_CLOEXEC);
        if (file < 0)
            continue;
        if (flock(file, LOCK_EX | LOCK_NB) == 0) {
            unlink(path);
        } else {
            char text[128] = "";
            if (pread(file, text, sizeof text - 1, 0) > 0 &&
                sscanf(text, "%63s %llu", owner, &bytes) == 2 &&
                (!of || (strcmp(owner, of) == 0) != others))
                sum += bytes;
        }
        close(file);
    }
    if (entries)
        closedir(entries);
    return sum;
}

static void write_down(int gpu) {
    char text[128];
    if (own[gpu].file < 0 || own[gpu].pid != getpid()) { /* the first time, and after a fork */
        char path[512];
        folder_of(gpu, path, sizeof path - 16);
        strcat(path, "/p-XXXXXX");
        own[gpu].file = mkostemp(path, O_CLOEXEC);
        fchmod(own[gpu].file, 0666);
        flock(own[gpu].file, LOCK_EX);
        own[gpu].pid = getpid();
        own[gpu].born = time(NULL);
    }
    snprintf(text, sizeof text, "%s %llu\n", pod(), (unsigned long long)own[gpu].held);
    ssize_t written = ftruncate(own[gpu].file, 0) ? 0 : pwrite(own[gpu].file, text, strlen(text), 0);
    (void)written;
}

/* The hard limit of this pod's cgroup as the mock of NVML has it last; the greatest for none. */
static uint64_t of_pod(int gpu) {
    char path[512], line[2048], uid[64];
    uint64_t found = UINT64_MAX;
    snprintf(path, sizeof path, "%s/state", root());
    snprintf(uid, sizeof uid, "%s", pod());
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        int index;
        unsigned long long soft, hard;
        if (sscanf(line, "gpu %d memory_limit %llu %llu", &index, &soft, &hard) != 3 ||
            index != own[gpu].index)
            continue;
        for (char *at = line; *at; at++)
            *at = *at == '_' ? '-' : *at;
        if (strstr(line, uid))
            found = hard;
    }
    if (file)
        fclose(file);
    return fault("ignore-limit") ? UINT64_MAX : found;
}

/*
 * Whether the daemon in CUDA_MPS_PIPE_DIRECTORY answered when this process began: CUDA goes on
 * without MPS where none does.
 */
static bool behind_mps(void) {
    static int known = -1;
    if (known >= 0)
        return known;
    known = 0;
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (!folder || fault("no-mps") || strlen(folder) + 9 > sizeof at.sun_path)
        return false;
    snprintf(at.sun_path, sizeof at.sun_path, "%s/control", folder);
    int one = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    known = connect(one, (struct sockaddr *)&at, sizeof at) == 0;
    close(one);
    return known;
}

static uint64_t of_process(void) {
    const char *text = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    unsigned long long mib;
    if (!text || sscanf(text, "0=%lluM", &mib) != 1 || fault("ignore-limit") || !behind_mps())
        return UINT64_MAX;
    return mib * MIB;
}

uint64_t node_memory(void) {
    const char *text = getenv("FAKECUDA_MIB");
    return (text ? strtoull(text, NULL, 10) : 1024) * MIB;
}

bool node_take(int gpu, uint64_t bytes) {
    int held = lock(gpu);
    bool fits = used(gpu, NULL, false) + bytes <= node_memory() &&
                used(gpu, pod(), false) + bytes <= of_pod(gpu) &&
                (own[gpu].pid == getpid() ? own[gpu].held : 0) + bytes <= of_process();
    if (fits) {
        own[gpu].held = (own[gpu].pid == getpid() ? own[gpu].held : 0) + bytes;
        write_down(gpu);
    }
    unlock(held);
    return fits;
}

void node_give(int gpu, uint64_t bytes) {
    int held = lock(gpu);
    own[gpu].held -= bytes;
    write_down(gpu);
    unlock(held);
}

uint64_t node_free(int gpu) {
    int held = lock(gpu);
    uint64_t bytes = used(gpu, NULL, false);
    unlock(held);
    return bytes < node_memory() ? node_memory() - bytes : 0;
}

uint64_t node_limit(int gpu) {
    uint64_t least = node_memory(), pods = of_pod(gpu), process = of_process();
    least = pods < least ? pods : least;
    return process < least ? process : least;
}

static bool others_hold(int gpu, bool more_than_this_pod) {
    int held = lock(gpu);
    bool found = used(gpu, pod(), true) > (more_than_this_pod ? used(gpu, pod(), false) : 0);
    unlock(held);
    return found;
}

double node_speed(int gpu, double share) {
    if (share < 1 && (fault("ignore-threads") || !behind_mps()))
        share = 1;
    if (fault("slow-shares") && getenv("ALIYUN_COM_GPU_MEM_CONTAINER"))
        share /= 2;
    if (fault("crowded") && others_hold(gpu, false))
        share /= 20;
    if (fault("starve") && others_hold(gpu, true))
        share /= 20;
    return share;
}

static void crash_file(int gpu, char *path, size_t size) {
    folder_of(gpu, path, size - 16);
    strcat(path, "/.crashed");
}

void node_crash(int gpu) {
    char path[512];
    crash_file(gpu, path, sizeof path);
    if (!fault("spread"))
        return;
    FILE *file = fopen(path, "w");
    if (file)
        fclose(file);
}

/* Contexts of before the last crash on the GPU are lost where faults spread. */
bool node_spoiled(int gpu) {
    char path[512];
    struct stat crash;
    crash_file(gpu, path, sizeof path);
    if (!fault("spread") || stat(path, &crash) || own[gpu].file < 0)
        return false;
    return crash.st_mtime >= own[gpu].born;
}

bool node_disturbed(int gpu) { return fault("disturb") && others_hold(gpu, true); }
