/* [processes]: who runs on which GPU, and how much memory and time each one takes. */
#include "fields.h"
#include "nvml_abi.h"
#include "sections.h"

#include <string.h>

static const struct word kind_words[] = {{"compute", PROCESS_COMPUTE},
                                         {"graphics", PROCESS_GRAPHICS},
                                         {"mps", PROCESS_MPS},
                                         {NULL, 0}};

static bool read_part(const char *key, const char *value, struct process *process)
{
    if (strcmp(key, "pid") == 0)
        return text_number(value, 1, 0x7FFFFFFFU, &process->pid);
    if (strcmp(key, "used_mib") == 0)
        return text_number(value, 0, 1U << 22, &process->used_mib);
    if (strcmp(key, "type") == 0)
        return words_find(kind_words, value, &process->kind);
    if (strcmp(key, "sm") == 0)
        return text_number(value, 0, 100, &process->sm_percent);
    if (strcmp(key, "mem") == 0)
        return text_number(value, 0, 100, &process->memory_percent);
    if (strcmp(key, "gi") == 0)
        return text_number(value, 0, 255, &process->gpu_instance);
    if (strcmp(key, "ci") == 0)
        return text_number(value, 0, 255, &process->compute_instance);
    return strcmp(key, "name") == 0 && text_copy(value, process->name, sizeof process->name);
}

bool process_words(const struct source *at, char *parts, struct process *process)
{
    process->gpu_instance = NVML_NO_INSTANCE;
    process->compute_instance = NVML_NO_INSTANCE;
    for (const char *key; (key = text_word(&parts));) {
        const char *value = text_word(&parts);
        if (!value || !read_part(key, value, process))
            return source_refuse(at, "a process has no '%s %s': it is pid N used_mib N name WORD, "
                                     "and may add type compute|graphics|mps, sm N, mem N, gi N, "
                                     "ci N",
                                 key, value ? value : "");
    }
    if (!process->pid || !*process->name)
        return source_refuse(at, "a process needs a pid and a name");
    return true;
}

/* "gpu 0: pid 1234 used_mib 3743 name python3". */
bool processes_line(const struct source *at, char *line, struct loading *loading)
{
    struct machine *machine = loading->machine;
    struct process process = {0};
    char *parts = strchr(line, ':');
    if (machine->process_count == MAX_PROCESSES)
        return source_refuse(at, "there are more than %d processes", MAX_PROCESSES);
    if (!parts || strncmp(line, "gpu ", 4) != 0)
        return source_refuse(at, "a process starts with 'gpu N:'");
    *parts++ = '\0';
    if (!machine->gpu_count ||
        !text_number(text_trim(line + 4), 0, machine->gpu_count - 1, &process.gpu))
        return source_refuse(at, "'%s' is no GPU described above", line);
    if (!process_words(at, parts, &process))
        return false;
    machine->processes[machine->process_count++] = process;
    return true;
}
