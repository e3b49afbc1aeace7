/*
 * config/reader.h - from JSON values to members of a structure, by tables.
 *
 * One table row per key: its name, type, range, default and where it goes. Nothing else knows a key or a default.
 * The first error sticks: it is written once, with file and JSON path, and later steps may run on or return early;
 * the caller looks at `failed` once, at the end.
 */
#ifndef FENCEGATE_CONFIG_READER_H
#define FENCEGATE_CONFIG_READER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/arena.h"

struct config_remark;

struct conf_reader {
    struct conf_arena arena; /* what the structure points to */
    const char *file;        /* as given, for messages */
    const char *folder;      /* absolute; relative paths start here */
    char *error;
    size_t error_cap, error_len;
    bool failed;
    struct config_remark *remarks; /* in the arena */
};

/* A place in the document, on the stack of the functions that walk it. */
struct conf_where {
    const struct conf_where *parent; /* NULL: the root, "$" */
    const char *key;                 /* NULL: an array element */
    size_t index;
};

struct conf_field {
    const char *name; /* NULL ends a table */
    /* Checks `value` and stores it in the member at `to`. `value` is NULL when the key is absent: store the default. */
    void (*read)(struct conf_reader *reader, const struct conf_where *at, json_t *value, const struct conf_field *field,
                 void *to);
    size_t offset;                   /* of the member, from the start of the structure the table is for */
    uint64_t min, max;               /* numbers, durations, sizes */
    uint64_t fallback;               /* default of numbers, durations, sizes, booleans; of a choice its index */
    const char *text;                /* default of texts; NULL: absent */
    const char *const *choices;      /* NULL-terminated */
    const struct conf_field *fields; /* of an object; their offsets count from the same start + `offset` */
    bool required;
};

/* Writes "FILE: PATH: ..." unless an error stands already. Never pass it a secret. */
void conf_fail(struct conf_reader *reader, const struct conf_where *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "expected `expected`, got ..." with the value, shortened and escaped. Not for values that can hold a secret. */
void conf_fail_value(struct conf_reader *reader, const struct conf_where *at, const json_t *value,
                     const char *expected);
/* The same with the value's type only. */
void conf_fail_type(struct conf_reader *reader, const struct conf_where *at, const json_t *value, const char *expected);
/* The same before there is a document: "FILE: ..." or, with a line, "FILE:LINE: ...". */
void conf_fail_file(struct conf_reader *reader, int line, const char *text, const char *name);

/* A warning about what stands at `at`; for config_warnings(). */
void conf_remark(struct conf_reader *reader, const struct conf_where *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* `text` cut to `cap` and with all but printable ASCII escaped, so that no value can forge a line. */
#define CONF_QUOTED 80 /* for keys and values */
#define CONF_QUOTED_PATH 1024
void conf_quote(const char *text, char *out, size_t cap);

char *conf_store_text(struct conf_reader *reader, const char *text, size_t len);  /* NULL: failed (no memory) */
char *conf_store_lower(struct conf_reader *reader, const char *text, size_t len); /* the same; A-Z become a-z */
void *conf_store_array(struct conf_reader *reader, size_t count, size_t size);    /* the same */
/* A file name of the configuration as an absolute path. */
const char *conf_store_path(struct conf_reader *reader, const char *path);

/* Readers for tables; the member's type in brackets. */
#define CONF_READER(name)                                                                                              \
    void name(struct conf_reader *reader, const struct conf_where *at, json_t *value, const struct conf_field *field,  \
              void *to)
CONF_READER(conf_read_object);   /* by field->fields; refuses unknown keys */
CONF_READER(conf_read_number);   /* [unsigned] */
CONF_READER(conf_read_port);     /* [uint16_t] */
CONF_READER(conf_read_duration); /* [uint64_t] milliseconds */
CONF_READER(conf_read_size);     /* [uint64_t] bytes */
CONF_READER(conf_read_bool);     /* [bool] */
CONF_READER(conf_read_choice);   /* [enum] the index in field->choices */
CONF_READER(conf_read_switch);   /* [bool] the same for two choices */
CONF_READER(conf_read_address);  /* [const char *] an IP address */
CONF_READER(conf_read_folder);   /* [const char *] an absolute path, not looked at */

#endif
