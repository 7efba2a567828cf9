/* "key = value" lines described as data: which key fills which member, and what it may hold. */
#ifndef MOCKNVML_FIELDS_H
#define MOCKNVML_FIELDS_H

#include <stdbool.h>
#include <stddef.h>

#include "text.h"

struct word {
    const char *text;
    unsigned int value;
};

enum field_kind { FIELD_TEXT, FIELD_NUMBER, FIELD_WORD, FIELD_CUSTOM };

struct field {
    const char *key;
    enum field_kind kind;
    size_t offset;                                /* of the member in the target struct */
    size_t size;                                  /* FIELD_TEXT: bytes of the member */
    unsigned int least, most;                     /* FIELD_NUMBER */
    const struct word *words;                     /* FIELD_WORD: ends with a NULL text */
    bool (*read)(char *value, void *target);      /* FIELD_CUSTOM */
    const char *expects;                          /* completes "... expects" */
};

#define TEXT_FIELD(type, key, member, expects)                                                     \
    {key,  FIELD_TEXT, offsetof(type, member), sizeof(((type *)0)->member), 0, 0, NULL,            \
     NULL, expects}
#define NUMBER_FIELD(type, key, member, least, most, expects)                                      \
    {key, FIELD_NUMBER, offsetof(type, member), 0, least, most, NULL, NULL, expects}
#define WORD_FIELD(type, key, member, words, expects)                                              \
    {key, FIELD_WORD, offsetof(type, member), 0, 0, 0, words, NULL, expects}
#define CUSTOM_FIELD(key, read, expects) {key, FIELD_CUSTOM, 0, 0, 0, 0, NULL, read, expects}

/* Splits "key = value" in place and fills the member of target that the key names. */
bool fields_assign(const struct source *at, const struct field *fields, size_t count, char *line,
                   void *target);

/* Splits "key = value" in place; both parts come back trimmed and not empty. */
bool fields_split(const struct source *at, char *line, char **key, char **value);

/* The value of a word, from a list that ends with a NULL text. */
bool words_find(const struct word *words, const char *text, unsigned int *value);

#endif
