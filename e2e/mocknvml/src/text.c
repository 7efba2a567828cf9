#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool source_refuse(const struct source *at, const char *format, ...)
{
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    /* One call, so that lines of several threads do not mix. */
    fprintf(stderr, "mocknvml: %s:%u: %s\n", at->path, at->line, message);
    return false;
}

char *text_trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        end--;
    *end = '\0';
    return text;
}

char *text_word(char **cursor)
{
    char *word;
    do
        word = strsep(cursor, " \t");
    while (word && *word == '\0');
    return word;
}

bool text_number(const char *text, unsigned int least, unsigned int most, unsigned int *number)
{
    bool hexadecimal = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    const char *digits = hexadecimal ? text + 2 : text;
    if (!isxdigit((unsigned char)*digits)) /* strtoull would take a sign or a blank */
        return false;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(digits, &end, hexadecimal ? 16 : 10);
    if (errno || end == digits || *end || value < least || value > most)
        return false;
    *number = (unsigned int)value;
    return true;
}

bool text_bytes(const char *text, unsigned long long *bytes)
{
    char *end;
    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || *end)
        return false;
    *bytes = value;
    return true;
}

bool text_copy(const char *text, char *target, size_t size)
{
    size_t length = strlen(text);
    if (length == 0 || length >= size)
        return false;
    memcpy(target, text, length + 1);
    return true;
}

bool text_is_uuid(const char *text)
{
    for (size_t i = 0; i < 36; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? text[i] != '-' : !isxdigit((unsigned char)text[i]))
            return false;
    }
    return text[36] == '\0';
}

/* A comment starts at a # that opens the line or follows a blank. */
static void cut_comment(char *line)
{
    for (char *hash = strchr(line, '#'); hash; hash = strchr(hash + 1, '#')) {
        if (hash == line || isspace((unsigned char)hash[-1])) {
            *hash = '\0';
            return;
        }
    }
}

/* NVML's own texts are ASCII, and programs decode them as such. */
static bool plain(const char *line)
{
    for (; *line; line++) {
        unsigned char byte = (unsigned char)*line;
        if (!isprint(byte) && byte != '\t')
            return false;
    }
    return true;
}

static bool read_line(const struct source *at, char *buffer, size_t length, line_reader reader,
                      void *context)
{
    if (strlen(buffer) != length)
        return source_refuse(at, "holds a NUL byte: this is not a text file");
    cut_comment(buffer);
    char *line = text_trim(buffer);
    if (!plain(line))
        return source_refuse(at, "holds a character that is not plain ASCII");
    return *line == '\0' || reader(at, line, context);
}

bool source_read(const char *path, line_reader reader, void *context)
{
    struct source at = {.path = path, .line = 0};
    FILE *file = fopen(path, "re");
    if (!file)
        return source_refuse(&at, "cannot be opened: %s", strerror(errno));
    char *buffer = NULL;
    size_t room = 0;
    bool good = true;
    errno = 0;
    for (ssize_t length; good && (length = getline(&buffer, &room, file)) >= 0;) {
        at.line++;
        good = read_line(&at, buffer, (size_t)length, reader, context);
        errno = 0;
    }
    if (good && ferror(file))
        good = source_refuse(&at, "cannot be read: %s", strerror(errno));
    free(buffer);
    fclose(file);
    return good;
}
