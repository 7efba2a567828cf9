/* The frame of a machine file: headers, and which reader gets the lines below them. */
#include "sections.h"

#include <stdlib.h>
#include <string.h>

struct section {
    const char *name;
    const char *number; /* what stands after the name: "" nothing, "N" a number, "*" a star */
    bool (*open)(const struct source *at, struct loading *loading);
    bool (*line)(const struct source *at, char *line, struct loading *loading);
};

static const struct section sections[] = {
    {"driver", "", NULL, driver_line},
    {"numa", "N", numa_open, numa_line},
    {"gpu", "*", gpu_defaults_open, gpu_line},
    {"gpu", "N", gpu_open, gpu_line},
    {"nvswitch", "N", nvswitch_open, nvswitch_line},
    {"links", "", NULL, links_line},
    {"processes", "", NULL, processes_line},
};

/* The number's range is the opener's business: here it only has to be one. */
static bool number_matches(const struct section *section, const char *number, unsigned int *value)
{
    if (*section->number == 'N')
        return number && text_number(number, 0, 9999, value);
    return strcmp(section->number, number ? number : "") == 0;
}

static bool open_section(const struct source *at, char *line, struct loading *loading)
{
    char shown[64] = "";
    strncpy(shown, line, sizeof shown - 1);
    size_t length = strlen(line);
    if (line[length - 1] != ']')
        return source_refuse(at, "a header ends with ']', got '%s'", shown);
    line[length - 1] = '\0';
    char *cursor = line + 1;
    const char *name = text_word(&cursor);
    const char *number = text_word(&cursor);
    if (!name || text_word(&cursor))
        return source_refuse(at, "'%s' is no section", shown);
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        if (strcmp(sections[i].name, name) == 0 &&
            number_matches(&sections[i], number, &loading->number)) {
            loading->section = &sections[i];
            return !sections[i].open || sections[i].open(at, loading);
        }
    }
    return source_refuse(at, "'%s' is no section", shown);
}

static bool read_line(const struct source *at, char *line, void *context)
{
    struct loading *loading = context;
    if (*line == '[')
        return open_section(at, line, loading);
    if (!loading->section)
        return source_refuse(at, "stands before the first [section]");
    return loading->section->line(at, line, loading);
}

bool machine_load(const char *path, struct machine *machine)
{
    memset(machine, 0, sizeof *machine);
    struct loading loading = {.machine = machine};
    driver_defaults(&machine->driver);
    gpu_defaults(&loading.gpu_defaults);
    return source_read(path, read_line, &loading) && gpus_finish(path, &loading) &&
           links_finish(path, &loading);
}

static bool hexadecimal(const char **cursor, size_t digits, char end, unsigned int *number)
{
    char part[16] = "0x";
    size_t length = strspn(*cursor, "0123456789abcdefABCDEF");
    if (length != digits || (*cursor)[length] != end)
        return false;
    memcpy(part + 2, *cursor, length);
    *cursor += length + 1;
    return text_number(part, 0, 0xFFFFFFFFU, number);
}

bool pci_parse(const char *text, struct pci_address *address)
{
    const char *cursor = text;
    if (!hexadecimal(&cursor, 8, ':', &address->domain) &&
        !hexadecimal(&cursor, 4, ':', &address->domain))
        return false;
    return hexadecimal(&cursor, 2, ':', &address->bus) &&
           hexadecimal(&cursor, 2, '.', &address->device) && strcmp(cursor, "0") == 0;
}
