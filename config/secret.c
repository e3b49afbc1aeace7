/*
 * config/secret.c - reads header values and looks into the files that the configuration names.
 *
 * They are looked at when the configuration is read, not at the first call: a missing key file must stop the start,
 * or the gateway says "ready" while every call fails.
 */
#include "config/secret.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/config.h"
#include "config/file.h"

#define SECRET_MAX 16384

/* An editor's mark of an encoding, which is no part of the value and does not show. NULL: there is none. */
static const char *mark_problem(const char *value, size_t len)
{
    if (len >= 3 && memcmp(value, "\xef\xbb\xbf", 3) == 0)
        return "begins with a byte order mark (EF BB BF), which would be part of the value: save it without";
    if (len >= 2 && (memcmp(value, "\xff\xfe", 2) == 0 || memcmp(value, "\xfe\xff", 2) == 0))
        return "is UTF-16 by its byte order mark: save it as plain ASCII or UTF-8 without a mark";
    return NULL;
}

/* What is wrong with a value that goes into a header; NULL: nothing. A value of blanks counts as empty: a partner that
 * gets it would take the call for one without credentials. */
static const char *value_problem(const char *value, size_t len)
{
    bool visible = false;
    if (len > SECRET_MAX)
        return "is longer than 16384 bytes";
    if (mark_problem(value, len) != NULL)
        return mark_problem(value, len);
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)value[i];
        if (byte == '\r' || byte == '\n')
            return "has a line break (CR or LF) in it";
        if ((byte < 0x20 && byte != '\t') || byte == 0x7F)
            return "has a control character in it";
        visible = visible || (byte != ' ' && byte != '\t');
    }
    return visible ? NULL : "is empty";
}

/* One line end, of either kind. */
static size_t without_line_end(const char *data, size_t len)
{
    if (len == 0 || data[len - 1] != '\n')
        return len;
    return len > 1 && data[len - 2] == '\r' ? len - 2 : len - 1;
}

const char *config_token_problem(const char *text, size_t *len)
{
    *len = without_line_end(text, *len);
    if (mark_problem(text, *len) != NULL)
        return mark_problem(text, *len);
    if (*len == 0)
        return "is empty: write a token into the file, or remove it where the gateway made it itself";
    if (*len < CONFIG_TOKEN_MIN)
        return "is shorter than 16 bytes, which can be guessed";
    if (*len > CONFIG_TOKEN_MAX)
        return "is longer than 1024 bytes";
    for (size_t i = 0; i < *len; i++)
        if (text[i] < 0x21 || text[i] > 0x7E)
            return "must be one line of visible ASCII without blanks: a header can't carry anything else";
    return NULL;
}

/* A secret that every user of the machine can read is none; the file is used all the same, since mounted secrets often
 * are so and the mode is not always the operator's to choose. */
void conf_look_at_mode(struct conf_reader *reader, const struct conf_where *at, const char *path)
{
    struct stat info;
    char quoted[CONF_QUOTED_PATH];
    if (stat(path, &info) != 0 || (info.st_mode & (S_IROTH | S_IWOTH)) == 0)
        return;
    conf_quote(path, quoted, sizeof(quoted));
    conf_remark(reader, at, "every user of this machine can %s %s (mode %04o)",
                (info.st_mode & S_IWOTH) != 0 ? "change" : "read", quoted, (unsigned)(info.st_mode & 07777));
}

/* Reads and checks; the caller frees with conf_file_free(). NULL: failed. */
static char *read_secret_file(struct conf_reader *reader, const struct conf_where *at, const char *path, size_t *len,
                              const char *(*judge)(const char *text, size_t *len))
{
    const char *problem;
    char quoted[CONF_QUOTED_PATH];
    char *data = conf_file_read(path, SECRET_MAX + 2, len, &problem);
    conf_quote(path, quoted, sizeof(quoted));
    if (data == NULL) {
        conf_fail(reader, at, "cannot read %s: %s", quoted, problem);
        return NULL;
    }
    size_t all = *len;
    problem = judge(data, len);
    conf_look_at_mode(reader, at, path);
    if (problem == NULL)
        return data;
    conf_fail(reader, at, "the value in %s %s", quoted, problem);
    conf_file_free(data, all);
    return NULL;
}

static const char *judge_value(const char *text, size_t *len)
{
    *len = without_line_end(text, *len);
    return value_problem(text, *len);
}

static const char *value_of_file(struct conf_reader *reader, const struct conf_where *at, const char *name)
{
    size_t len;
    const char *path = conf_store_path(reader, name);
    char *data = path != NULL ? read_secret_file(reader, at, path, &len, judge_value) : NULL;
    if (data == NULL)
        return NULL;
    const char *value = conf_store_text(reader, data, len);
    conf_file_free(data, len);
    return value;
}

static const char *value_of_env(struct conf_reader *reader, const struct conf_where *at, const char *name)
{
    size_t plain = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
    char quoted[CONF_QUOTED_PATH];
    if (name[0] == '\0' || name[plain] != '\0' || (name[0] >= '0' && name[0] <= '9')) {
        conf_fail(reader, at, "expected the name of an environment variable (letters, digits, \"_\")");
        return NULL;
    }
    conf_quote(name, quoted, sizeof(quoted));
    const char *value = getenv(name);
    const char *problem = value != NULL ? value_problem(value, strlen(value)) : "is not set";
    if (problem != NULL) {
        conf_fail(reader, at, "the environment variable %s %s", quoted, problem);
        return NULL;
    }
    return conf_store_text(reader, value, strlen(value));
}

const char *conf_secret_value(struct conf_reader *reader, const struct conf_where *at, json_t *value)
{
    if (json_is_string(value)) {
        const char *problem = value_problem(json_string_value(value), json_string_length(value));
        if (problem == NULL)
            return conf_store_text(reader, json_string_value(value), json_string_length(value));
        conf_fail(reader, at, "the value %s", problem);
        return NULL;
    }
    const char *file = json_string_value(json_object_get(value, "file"));
    const char *env = json_string_value(json_object_get(value, "env"));
    if (json_object_size(value) == 1 && file != NULL && file[0] != '\0')
        return value_of_file(reader, &(struct conf_where){at, "file", 0}, file);
    if (json_object_size(value) == 1 && env != NULL)
        return value_of_env(reader, &(struct conf_where){at, "env", 0}, env);
    /* The keys of a wrong object are not shown: somebody may have written the secret there. */
    conf_fail(reader, at, "expected a string, {\"file\": \"path\"} or {\"env\": \"name\"}");
    return NULL;
}

void conf_read_token_file(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                          const struct conf_field *field, void *to)
{
    size_t len;
    (void)field;
    if (value == NULL)
        return;
    const char *name = json_string_value(value);
    if (name == NULL || name[0] == '\0') {
        conf_fail_value(reader, at, value, "the path of a file");
        return;
    }
    const char *path = conf_store_path(reader, name);
    char *data = path != NULL ? read_secret_file(reader, at, path, &len, config_token_problem) : NULL;
    if (data != NULL)
        conf_file_free(data, len);
    *(const char **)to = path;
}
