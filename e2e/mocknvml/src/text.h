/* Reading text files line by line, and telling the operator which line is wrong and why. */
#ifndef MOCKNVML_TEXT_H
#define MOCKNVML_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Where a line came from, for messages. */
struct source {
    const char *path;
    unsigned int line; /* from 1 */
};

/* Prints "mocknvml: PATH:LINE: MESSAGE" on stderr; always false, so that a reader can return it. */
bool source_refuse(const struct source *at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Handles one line: trimmed, without its comment, never empty. False stops the reading. */
typedef bool (*line_reader)(const struct source *at, char *line, void *context);

/* Feeds every line to the reader; false when the file is unreadable or a line was refused. */
bool source_read(const char *path, line_reader reader, void *context);

/* Trims blanks at both ends in place and returns the new start. */
char *text_trim(char *text);

/* Cuts the next blank-separated word off *cursor; NULL at the end. */
char *text_word(char **cursor);

/* Decimal or 0x-hexadecimal number within [least, most]; false leaves *number alone. */
bool text_number(const char *text, unsigned int least, unsigned int most, unsigned int *number);

/* Decimal number of 64 bits; false leaves *bytes alone. */
bool text_bytes(const char *text, unsigned long long *bytes);

/* Copies text that fits size bytes with its end; false when it is empty or too long. */
bool text_copy(const char *text, char *target, size_t size);

/* 8-4-4-4-12 hexadecimal digits? */
bool text_is_uuid(const char *text);

#endif
