/* One line of a state file. */
#ifndef MOCKNVML_STATE_LINE_H
#define MOCKNVML_STATE_LINE_H

#include "state.h"
#include "text.h"

/* The reading under way. */
struct state_reading {
    struct snapshot *snapshot;
    unsigned int gpu_count;
};

/* A line_reader whose context is a struct state_reading. */
bool state_line(const struct source *at, char *line, void *context);

extern const char *const compute_mode_names[4]; /* by NVML number; NULL where there is no mode */

#endif
