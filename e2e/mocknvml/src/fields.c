#include "fields.h"

#include <string.h>

bool words_find(const struct word *words, const char *text, unsigned int *value)
{
    for (; words->text; words++) {
        if (strcmp(words->text, text) == 0) {
            *value = words->value;
            return true;
        }
    }
    return false;
}

bool fields_split(const struct source *at, char *line, char **key, char **value)
{
    char *equals = strchr(line, '=');
    if (!equals)
        return source_refuse(at, "expects 'key = value', got '%s'", line);
    *equals = '\0';
    *key = text_trim(line);
    *value = text_trim(equals + 1);
    if (**key == '\0' || **value == '\0')
        return source_refuse(at, "has an empty %s", **key ? "value" : "key");
    return true;
}

static bool fill(const struct field *field, char *value, void *target)
{
    char *member = (char *)target + field->offset;
    switch (field->kind) {
    case FIELD_TEXT:
        return text_copy(value, member, field->size);
    case FIELD_NUMBER:
        return text_number(value, field->least, field->most, (unsigned int *)(void *)member);
    case FIELD_WORD:
        return words_find(field->words, value, (unsigned int *)(void *)member);
    case FIELD_CUSTOM:
        return field->read(value, target);
    }
    return false;
}

bool fields_assign(const struct source *at, const struct field *fields, size_t count, char *line,
                   void *target)
{
    char *key, *value;
    if (!fields_split(at, line, &key, &value))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(fields[i].key, key) != 0)
            continue;
        char shown[80]; /* a custom reader may cut the value up */
        strncpy(shown, value, sizeof shown - 1);
        shown[sizeof shown - 1] = '\0';
        if (fill(&fields[i], value, target))
            return true;
        return source_refuse(at, "'%s' expects %s, got '%s'", key, fields[i].expects, shown);
    }
    return source_refuse(at, "'%s' is no key of this section", key);
}
