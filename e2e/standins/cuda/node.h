/* The part of the stand-in that several processes of one node have in common. */
#ifndef NODE_H
#define NODE_H

#include <stdbool.h>
#include <stdint.h>

enum { NODE_GPUS = 16 };

/* FAKECUDA_ROOT is set: this process is in a container of a node. */
bool node_played(void);
/* The GPUs that the container was given, in order: FAKECUDA_GPU_<index>=<uuid>. */
int node_gpus(void);
const char *node_uuid(int gpu);
/* Take bytes of a GPU; false where a limit or the GPU has no more. */
bool node_take(int gpu, uint64_t bytes);
void node_give(int gpu, uint64_t bytes);
/* Memory of a GPU, and what nobody holds of it. */
uint64_t node_memory(void);
uint64_t node_free(int gpu);
/* What a process is told of the GPU's memory. */
uint64_t node_limit(int gpu);
/* The part of the GPU's compute that work gets. */
double node_speed(int gpu, double share);
/* Somebody touched memory that is nobody's; where faults spread, others notice. */
void node_crash(int gpu);
bool node_spoiled(int gpu);
/* Memory of this process was written by somebody else. */
bool node_disturbed(int gpu);

#endif
