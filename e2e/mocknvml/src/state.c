#include "state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state_line.h"

static struct stamp take_stamp(const char *path)
{
    struct stat found;
    struct stamp stamp = {0};
    if (stat(path, &found) == 0) {
        stamp.present = true;
        stamp.device = found.st_dev;
        stamp.inode = found.st_ino;
        stamp.size = found.st_size;
        stamp.modified = found.st_mtim;
    }
    return stamp;
}

static bool same_stamp(const struct stamp *one, const struct stamp *two)
{
    return one->present == two->present && one->device == two->device &&
           one->inode == two->inode && one->size == two->size &&
           one->modified.tv_sec == two->modified.tv_sec &&
           one->modified.tv_nsec == two->modified.tv_nsec;
}

/* XIDs up to the first difference were seen before; the rest is news. */
static size_t seen_before(const struct xid_list *old, const struct xid_list *new)
{
    size_t same = 0;
    while (same < old->count && same < new->count &&
           memcmp(&old->events[same], &new->events[same], sizeof *old->events) == 0)
        same++;
    return same;
}

static bool extend_log(struct state *state, const struct xid_list *new)
{
    size_t seen = seen_before(&state->now.xids, new);
    size_t news = new->count - seen;
    if (news == 0)
        return true;
    struct xid_event *events =
        realloc(state->log.events, (state->log.count + news) * sizeof *events);
    if (!events)
        return false;
    memcpy(events + state->log.count, new->events + seen, news * sizeof *events);
    state->log.events = events;
    state->log.count += news;
    return true;
}

/* The stamp is taken before the reading: an edit in between is seen by the next refresh. */
static bool read_again(struct state *state, struct stamp stamp)
{
    struct snapshot fresh = {.driver_loaded = true};
    struct state_reading reading = {.snapshot = &fresh, .gpu_count = state->gpu_count};
    state->stamp = stamp;
    if ((stamp.present && !source_read(state->path, state_line, &reading)) ||
        !extend_log(state, &fresh.xids)) {
        free(fresh.xids.events);
        return false;
    }
    free(state->now.xids.events);
    state->now = fresh;
    return true;
}

bool state_open(struct state *state, const char *path, const struct machine *machine)
{
    memset(state, 0, sizeof *state);
    state->gpu_count = machine->gpu_count;
    if (!text_copy(path, state->path, sizeof state->path))
        return source_refuse(&(struct source){.path = path}, "is too long a path");
    return read_again(state, take_stamp(state->path));
}

void state_refresh(struct state *state)
{
    struct stamp stamp = take_stamp(state->path);
    if (!same_stamp(&stamp, &state->stamp))
        read_again(state, stamp);
}

/* People leave the last line without its end; a line added to it must not run into it. */
static bool ends_in_line(int file)
{
    char last;
    off_t size = lseek(file, 0, SEEK_END);
    return size > 0 && pread(file, &last, 1, size - 1) == 1 && last != '\n';
}

bool state_append(struct state *state, const char *line)
{
    char text[MAX_CGROUP + 128];
    int file = open(state->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0)
        return false;
    int length = snprintf(text, sizeof text, "%s%s\n", ends_in_line(file) ? "\n" : "", line);
    bool written = write(file, text, (size_t)length) == length;
    written = close(file) == 0 && written;
    state_refresh(state);
    return written;
}

const struct memory_limit *state_limit(const struct state *state, unsigned int gpu,
                                       const char *cgroup)
{
    const struct snapshot *now = &state->now;
    for (unsigned int i = 0; i < now->limit_count; i++) {
        if (now->limits[i].gpu == gpu && strcmp(now->limits[i].cgroup, cgroup) == 0)
            return &now->limits[i];
    }
    return NULL;
}

void state_close(struct state *state)
{
    free(state->now.xids.events);
    free(state->log.events);
    memset(state, 0, sizeof *state);
}
