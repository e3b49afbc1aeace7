/*
 * config/reader.c - the readers that tables of keys name, and the walk over an object.
 *
 * Knows types, ranges and units; which keys exist is in config.c and route_config.c.
 */
#include "config/reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/net.h"
#include "config/units.h"

char *conf_store_text(struct conf_reader *reader, const char *text, size_t len)
{
    char *copy = conf_copy(&reader->arena, text, len);
    if (copy == NULL)
        conf_fail_file(reader, 0, "out of memory", NULL);
    return copy;
}

char *conf_store_lower(struct conf_reader *reader, const char *text, size_t len)
{
    char *copy = conf_store_text(reader, text, len);
    for (char *p = copy; p != NULL && *p != '\0'; p++) {
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p - 'A' + 'a');
    }
    return copy;
}

void *conf_store_array(struct conf_reader *reader, size_t count, size_t size)
{
    void *array = conf_alloc(&reader->arena, count, size);
    if (array == NULL)
        conf_fail_file(reader, 0, "out of memory", NULL);
    return array;
}

const char *conf_store_path(struct conf_reader *reader, const char *path)
{
    if (path[0] == '/')
        return conf_store_text(reader, path, strlen(path));
    if (strncmp(path, "./", 2) == 0)
        path += 2;
    size_t folder = strlen(reader->folder), rest = strlen(path);
    bool slash = folder == 0 || reader->folder[folder - 1] != '/';
    char *joined = conf_store_array(reader, folder + rest + 2, 1);
    if (joined != NULL)
        snprintf(joined, folder + rest + 2, "%s%s%s", reader->folder, slash ? "/" : "", path);
    return joined;
}

/* How many single-byte changes lie between two names; names here are short, so rows of 40 do. */
static size_t distance(const char *a, const char *b)
{
    size_t row[40], len_a = strlen(a), len_b = strlen(b);
    if (len_a >= 40 || len_b >= 40)
        return SIZE_MAX;
    for (size_t j = 0; j <= len_b; j++)
        row[j] = j;
    for (size_t i = 1; i <= len_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= len_b; j++) {
            size_t best = diagonal + (strncasecmp(a + i - 1, b + j - 1, 1) != 0);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[len_b];
}

/* A key that resembles none: all that there are. */
static void fail_foreign(struct conf_reader *reader, const struct conf_where *at, const char *quoted,
                         const struct conf_field *fields)
{
    char names[384] = "";
    size_t len = 0;
    for (const struct conf_field *field = fields; field->name != NULL && len < sizeof names; field++)
        len += (size_t)snprintf(names + len, sizeof names - len, "%s%s", len == 0 ? "" : ", ", field->name);
    conf_fail(reader, at, "unknown key \"%s\", expected one of %s%s", quoted, names, len < sizeof names ? "" : "...");
}

static void fail_unknown(struct conf_reader *reader, const struct conf_where *at, const char *key,
                         const struct conf_field *fields)
{
    char quoted[CONF_QUOTED];
    const char *nearest = NULL;
    size_t least = 3; /* further away is another word, not a typing error */
    for (const struct conf_field *field = fields; field->name != NULL; field++) {
        size_t far = distance(key, field->name);
        if (far < least && far < strlen(field->name)) {
            least = far;
            nearest = field->name;
        }
    }
    conf_quote(key, quoted, sizeof(quoted));
    if (nearest != NULL)
        conf_fail(reader, at, "unknown key \"%s\", did you mean \"%s\"?", quoted, nearest);
    else
        fail_foreign(reader, at, quoted, fields);
}

static bool known(const char *key, const struct conf_field *fields)
{
    for (const struct conf_field *field = fields; field->name != NULL; field++) {
        if (strcmp(key, field->name) == 0)
            return true;
    }
    return false;
}

void conf_read_object(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                      const struct conf_field *field, void *to)
{
    if (value != NULL && !json_is_object(value)) {
        conf_fail_type(reader, at, value, "an object");
        return;
    }
    for (void *iter = json_object_iter(value); iter != NULL; iter = json_object_iter_next(value, iter)) {
        const char *key = json_object_iter_key(iter);
        if (!known(key, field->fields))
            fail_unknown(reader, &(struct conf_where){at, key, 0}, key, field->fields);
    }
    for (const struct conf_field *f = field->fields; f->name != NULL && !reader->failed; f++) {
        json_t *member = json_object_get(value, f->name);
        if (member == NULL && f->required)
            conf_fail(reader, at, "\"%s\" is required", f->name);
        else
            f->read(reader, &(struct conf_where){at, f->name, 0}, member, f, (char *)to + f->offset);
    }
}

static bool read_integer(struct conf_reader *reader, const struct conf_where *at, const json_t *value,
                         const struct conf_field *field, uint64_t *out)
{
    char expected[96];
    json_int_t number = json_integer_value(value);
    *out = field->fallback;
    if (value == NULL)
        return true;
    if (json_is_integer(value) && number >= 0 && (uint64_t)number >= field->min && (uint64_t)number <= field->max) {
        *out = (uint64_t)number;
        return true;
    }
    snprintf(expected, sizeof(expected), "a whole number from %" PRIu64 " to %" PRIu64, field->min, field->max);
    conf_fail_value(reader, at, value, expected);
    return false;
}

void conf_read_number(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                      const struct conf_field *field, void *to)
{
    uint64_t number;
    if (read_integer(reader, at, value, field, &number))
        *(unsigned *)to = (unsigned)number;
}

void conf_read_port(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                    const struct conf_field *field, void *to)
{
    uint64_t number;
    if (read_integer(reader, at, value, field, &number))
        *(uint16_t *)to = (uint16_t)number;
}

static void read_units(struct conf_reader *reader, const struct conf_where *at, const json_t *value,
                       const struct conf_field *field, void *to)
{
    bool size = field->read == conf_read_size;
    const struct conf_unit *units = size ? conf_size_units : conf_duration_units;
    char least[CONF_UNITS_TEXT], most[CONF_UNITS_TEXT], expected[160];
    uint64_t number = field->fallback;
    if (value == NULL || (json_is_string(value) && conf_parse_units(json_string_value(value), units, &number) &&
                          number >= field->min && number <= field->max)) {
        *(uint64_t *)to = number;
        return;
    }
    conf_format_units(field->min, units, least);
    conf_format_units(field->max, units, most);
    snprintf(expected, sizeof(expected), "a %s from %s to %s such as \"%s\" (a string: digits and one of %s)",
             size ? "size" : "duration", least, most, size ? "8MiB" : "30s", size ? "B KiB MiB GiB" : "ms s m h d");
    conf_fail_value(reader, at, value, expected);
}

void conf_read_duration(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                        const struct conf_field *field, void *to)
{
    read_units(reader, at, value, field, to);
}

void conf_read_size(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                    const struct conf_field *field, void *to)
{
    read_units(reader, at, value, field, to);
}

void conf_read_bool(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                    const struct conf_field *field, void *to)
{
    if (value != NULL && !json_is_boolean(value))
        conf_fail_value(reader, at, value, "true or false");
    else
        *(bool *)to = value != NULL ? json_is_true(value) : field->fallback != 0;
}

static bool read_index(struct conf_reader *reader, const struct conf_where *at, const json_t *value,
                       const struct conf_field *field, unsigned *out)
{
    char expected[160] = "";
    size_t used = 0;
    *out = (unsigned)field->fallback;
    if (value == NULL)
        return true;
    for (unsigned i = 0; field->choices[i] != NULL; i++) {
        if (json_is_string(value) && strcmp(json_string_value(value), field->choices[i]) == 0) {
            *out = i;
            return true;
        }
        const char *between = i == 0 ? "" : field->choices[i + 1] == NULL ? " or " : ", ";
        used += (size_t)snprintf(expected + used, sizeof(expected) - used, "%s\"%s\"", between, field->choices[i]);
    }
    conf_fail_value(reader, at, value, expected);
    return false;
}

void conf_read_choice(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                      const struct conf_field *field, void *to)
{
    unsigned index;
    if (read_index(reader, at, value, field, &index))
        memcpy(to, &index, sizeof(index)); /* enums here are as wide as unsigned: asserted where they are used */
}

void conf_read_switch(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                      const struct conf_field *field, void *to)
{
    unsigned index;
    if (read_index(reader, at, value, field, &index))
        *(bool *)to = index == 1;
}

void conf_read_address(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                       const struct conf_field *field, void *to)
{
    const char *text = value != NULL ? json_string_value(value) : field->text;
    if (text == NULL || !conf_is_ip(text))
        conf_fail_value(reader, at, value, "an IPv4 or IPv6 address (no name, no brackets, no port)");
    else
        *(const char **)to = conf_store_text(reader, text, strlen(text));
}

void conf_read_folder(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                      const struct conf_field *field, void *to)
{
    const char *text = value != NULL ? json_string_value(value) : field->text;
    if (text == NULL || text[0] == '\0')
        conf_fail_value(reader, at, value, "the path of a folder");
    else
        *(const char **)to = conf_store_path(reader, text);
}
