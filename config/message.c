/*
 * config/message.c - the one line that says what is wrong with a configuration and where.
 *
 * Values come from a file that holds secrets: what is shown of them is decided by the caller's choice of function.
 */
#include "config/reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"

static void put(struct conf_reader *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put_list(struct conf_reader *reader, const char *format, va_list list)
{
    size_t left = reader->error_cap - reader->error_len;
    if (reader->error_cap == 0 || left <= 1)
        return;
    int wrote = vsnprintf(reader->error + reader->error_len, left, format, list);
    if (wrote > 0)
        reader->error_len += (size_t)wrote < left ? (size_t)wrote : left - 1;
}

static void put(struct conf_reader *reader, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    put_list(reader, format, list);
    va_end(list);
}

void conf_quote(const char *text, char *out, size_t cap)
{
    size_t used = 0;
    for (const char *p = text; *p != '\0'; p++) {
        if (used + 8 > cap) { /* room for one escape, "..." and NUL */
            memcpy(out + used, "...", 3);
            used += 3;
            break;
        }
        unsigned char byte = (unsigned char)*p;
        if (byte < 0x20 || byte > 0x7E)
            used += (size_t)snprintf(out + used, 5, "\\x%02x", byte);
        else
            out[used++] = (char)byte;
    }
    out[used] = '\0';
}

static void put_path(struct conf_reader *reader, const struct conf_where *at)
{
    char quoted[CONF_QUOTED];
    if (at->parent == NULL) {
        put(reader, "$");
        return;
    }
    put_path(reader, at->parent);
    if (at->key == NULL) {
        put(reader, "[%zu]", at->index);
        return;
    }
    size_t plain = strspn(at->key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    conf_quote(at->key, quoted, sizeof(quoted));
    put(reader, plain > 0 && at->key[plain] == '\0' ? ".%s" : "[\"%s\"]", quoted);
}

/* False when an error stands already: the first one is the one to mend. */
static bool begin(struct conf_reader *reader, int line)
{
    if (reader->failed)
        return false;
    reader->failed = true;
    reader->error_len = 0;
    for (const char *p = reader->file; *p != '\0'; p++)
        put(reader, "%c", (unsigned char)*p < 0x20 || *p == 0x7F ? '?' : *p);
    if (line > 0)
        put(reader, ":%d", line);
    put(reader, ": ");
    return true;
}

void conf_fail_file(struct conf_reader *reader, int line, const char *text, const char *name)
{
    if (!begin(reader, line))
        return;
    put(reader, "%s", text);
    if (name != NULL) {
        char quoted[CONF_QUOTED];
        conf_quote(name, quoted, sizeof(quoted));
        put(reader, " \"%s\"", quoted);
    }
}

void conf_fail(struct conf_reader *reader, const struct conf_where *at, const char *format, ...)
{
    va_list list;
    if (!begin(reader, 0))
        return;
    put_path(reader, at);
    put(reader, ": ");
    va_start(list, format);
    put_list(reader, format, list);
    va_end(list);
}

void conf_remark(struct conf_reader *reader, const struct conf_where *at, const char *format, ...)
{
    char line[1024];
    va_list list;
    struct conf_reader text = {.error = line, .error_cap = sizeof(line)};
    struct config_remark *remark = conf_store_array(reader, 1, sizeof(*remark)), **end = &reader->remarks;
    put_path(&text, at);
    put(&text, ": ");
    va_start(list, format);
    put_list(&text, format, list);
    va_end(list);
    if (remark == NULL || (remark->line = conf_store_text(reader, line, text.error_len)) == NULL)
        return;
    remark->next = NULL;
    while (*end != NULL)
        end = &(*end)->next;
    *end = remark;
}

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "a number";
    case JSON_REAL: return "a number with a fraction or exponent";
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    case JSON_NULL: break;
    }
    return "null";
}

void conf_fail_type(struct conf_reader *reader, const struct conf_where *at, const json_t *value, const char *expected)
{
    conf_fail(reader, at, "expected %s, got %s", expected, type_name(value));
}

void conf_fail_value(struct conf_reader *reader, const struct conf_where *at, const json_t *value, const char *expected)
{
    char quoted[CONF_QUOTED];
    if (json_is_integer(value)) {
        conf_fail(reader, at, "expected %s, got %" JSON_INTEGER_FORMAT, expected, json_integer_value(value));
    } else if (json_is_string(value)) {
        conf_quote(json_string_value(value), quoted, sizeof(quoted));
        conf_fail(reader, at, "expected %s, got \"%s\"", expected, quoted);
    } else {
        conf_fail_type(reader, at, value, expected);
    }
}
