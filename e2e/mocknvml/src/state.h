/*
 * What changes while a machine runs: lost GPUs, XID errors, compute modes, processes, a driver.
 *
 * The truth is a small text file that anybody may edit; every process that uses the library sees
 * the same. Not thread safe: the session's lock protects it.
 */
#ifndef MOCKNVML_STATE_H
#define MOCKNVML_STATE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#include "machine.h"

enum { MAX_LIMITS = 512, MAX_CGROUP = 256 };

struct gpu_state {
    bool lost;
    unsigned int losses; /* how often it went from well to lost */
    bool compute_mode_given;
    unsigned int compute_mode;
    unsigned int recovery; /* NVML's number of the action that the GPU needs; 0 for none */
};

struct xid_event {
    unsigned int gpu, xid;
    unsigned int gpu_instance, compute_instance; /* NVML_NO_INSTANCE for the whole GPU */
};

struct xid_list {
    struct xid_event *events;
    size_t count;
};

/* Memory of one GPU for the processes below one cgroup, in bytes. */
struct memory_limit {
    unsigned int gpu;
    unsigned long long soft, hard, used;
    char cgroup[MAX_CGROUP];
};

/* One reading of the file. */
struct snapshot {
    bool driver_loaded;
    bool by_pid_namespace; /* a caller is told of the processes of its PID namespace alone */
    struct gpu_state gpus[MAX_GPUS];
    struct xid_list xids;
    unsigned int process_count; /* beside those of the machine file */
    struct process processes[MAX_LATE_PROCESSES];
    unsigned int limit_count;
    struct memory_limit limits[MAX_LIMITS];
};

/* Enough of a stat to notice an edit. */
struct stamp {
    bool present;
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified;
};

struct state {
    char path[PATH_MAX];
    unsigned int gpu_count;
    struct stamp stamp;
    struct snapshot now;
    struct xid_list log; /* every XID seen since the state was opened; positions in it stay valid */
};

/* First reading; false, with the reason on stderr, when the file is there but wrong. */
bool state_open(struct state *state, const char *path, const struct machine *machine);

/* Reads the file again if it was edited. A wrong edit is reported on stderr and changes nothing. */
void state_refresh(struct state *state);

/* Adds a line to the file, so that other processes see it too; false when it cannot be written. */
bool state_append(struct state *state, const char *line);

/* The ledger's entry of a GPU and a cgroup; NULL where nothing was set and nothing is used. */
const struct memory_limit *state_limit(const struct state *state, unsigned int gpu,
                                       const char *cgroup);

void state_close(struct state *state);

#endif
