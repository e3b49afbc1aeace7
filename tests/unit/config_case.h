/*
 * tests/unit/config_case.h - what the tests of config/ share: a folder with files to name, and loading a document.
 *
 * Documents are written with ' for " to stay readable.
 */
#ifndef FENCEGATE_TESTS_CONFIG_CASE_H
#define FENCEGATE_TESTS_CONFIG_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"

#define SECRET "sk_live_51Hxxx"

static char folder[] = "/tmp/fencegate-config-XXXXXX";
static char conf_file[128];

static void write_file(const char *name, const char *data, size_t len)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0600), 0);
}

/* A shell command in the folder. */
static void in_folder(const char *format, const char *a, const char *b, const char *c)
{
    char what[400], command[600];
    snprintf(what, sizeof what, format, a, b, c);
    snprintf(command, sizeof command, "cd '%s' && umask 077 && %s", folder, what);
    assert_int_equal(system(command), 0);
}

static void make_pair(const char *cert, const char *key)
{
    in_folder("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=unit "
              "-out %s -keyout %s 2>%s",
              cert, key, "/dev/null");
}

static void cut_file(const char *out, const char *in)
{
    in_folder("head -n 4 %2$s >%1$s", out, in, "");
}

static void join_files(const char *out, const char *first, const char *second)
{
    in_folder("cat %2$s %3$s >%1$s", out, first, second);
}

static void write_text(const char *name, const char *text)
{
    write_file(name, text, strlen(text));
}

static int set_up(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(conf_file, sizeof(conf_file), "%s/c.json", folder);
    make_pair("ca.pem", "key.pem");
    make_pair("other.pem", "other-key.pem");
    cut_file("half.pem", "ca.pem");
    cut_file("half-key.pem", "key.pem");
    write_text("hollow.pem", "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n");
    write_text("hollow-key.pem", "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n");
    join_files("chain.pem", "ca.pem", "other.pem");
    join_files("half-chain.pem", "ca.pem", "half.pem");
    join_files("both.pem", "key.pem", "ca.pem");
    write_text("empty.pem", "");
    write_text("locked.pem", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n");
    write_text("old-locked.pem", "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n");
    write_text("secret", "Bearer " SECRET "\n");
    write_text("secret-crlf", "Bearer " SECRET "\r\n");
    write_text("secret-bare", "Bearer " SECRET);
    write_text("secret-two", SECRET "\n\n");
    write_text("secret-inner", SECRET "\nX-Evil: 1");
    write_text("secret-cr", SECRET "\r");
    write_file("secret-nul", SECRET "\0x", sizeof(SECRET) + 1);
    write_text("secret-escape", "\033" SECRET);
    write_text("secret-empty", "");
    write_text("secret-mark", "\xef\xbb\xbf" SECRET "\n");
    write_file("secret-wide", "\xff\xfes\0k\0", 6);
    write_text("token", "token-of-" SECRET "\n");
    write_text("token-short", "fifteen-bytes-1\n");
    write_text("token-mark", "\xef\xbb\xbftoken-of-" SECRET "\n");
    write_text("secret-newline", "\n");
    write_text("secret-blank", " \t\n");
    char *large = malloc(20000);
    assert_non_null(large);
    memset(large, 'x', 20000);
    write_file("secret-large", large, 20000);
    write_file("secret-most", large, 16384);
    free(large);
    setenv("FG_TEST_SECRET", "env-" SECRET, 1);
    setenv("FG_TEST_EMPTY", "", 1);
    setenv("FG_TEST_LF", SECRET "\n", 1);
    unsetenv("FG_TEST_ABSENT");
    return 0;
}

static int tear_down(void **state)
{
    char command[160];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

/* Loads `text` with ' as "; NULL leaves the line in `error`. */
static const struct config *load(const char *text, char error[512])
{
    char *json = strdup(text);
    assert_non_null(json);
    for (char *p = json; *p != '\0'; p++) {
        if (*p == '\'')
            *p = '"';
    }
    write_text("c.json", json);
    free(json);
    error[0] = '\0';
    return config_load(conf_file, error, 512);
}

static inline const struct config *load_good(const char *text)
{
    char error[512];
    const struct config *config = load(text, error);
    if (config == NULL)
        fail_msg("%s: %s", text, error);
    assert_string_equal(error, "");
    return config;
}

/* `expected` is what follows "FILE: ", or "FILE" when it starts with a colon; the error may go on after it, unless
 * `expected` ends with "|". */
struct bad {
    const char *json, *expected;
};

static inline void check_bad(const struct bad *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char error[512], expected[512];
        const char *separator = rows[i].expected[0] == ':' ? "" : ": ";
        const struct config *config = load(rows[i].json, error);
        if (config != NULL)
            fail_msg("row %zu was accepted: %s", i, rows[i].json);
        snprintf(expected, sizeof(expected), "%s%s%s", conf_file, separator, rows[i].expected);
        size_t len = strlen(expected);
        bool whole = expected[len - 1] == '|';
        if (whole)
            expected[--len] = '\0';
        if (strncmp(error, expected, len) != 0 || (whole && error[len] != '\0'))
            fail_msg("row %zu: %s\n  expected: %s\n  got:      %s", i, rows[i].json, expected, error);
        if (strstr(error, SECRET) != NULL || strchr(error, '\n') != NULL)
            fail_msg("row %zu shows a secret or has two lines: %s", i, error);
    }
}
#define CHECK_BAD(rows) check_bad(rows, sizeof(rows) / sizeof((rows)[0]))

static inline void add_warning(void *arg, const char *line)
{
    char *all = arg;
    size_t used = strlen(all);
    snprintf(all + used, 1024 - used, "%s\n", line);
}

/* The one warning that `json` gives, or its beginning; NULL: none. */
static inline void warns(const char *json, const char *expected)
{
    char lines[1024] = "";
    const struct config *config = load_good(json);
    config_warnings(config, add_warning, lines);
    config_unref(&config);
    const char *end = strchr(lines, '\n');
    if (expected == NULL ? lines[0] != '\0' : end == NULL || end[1] != '\0' || strstr(lines, expected) != lines)
        fail_msg("%s\n  expected: %s\n  got:      %s", json, expected, lines);
}

#define BASE "'name': 'a', 'path': '/a', 'upstream': 'https://h.example'"
#define TOP(members) "{" members "'routes': [{" BASE "}]}"
#define ROUTE(members) "{'routes': [{" BASE ", " members "}]}"
#define FENCE(members) ROUTE("'fence': {" members "}")
#define HEADERS(members) ROUTE("'request_headers': {" members "}")
#define SET(value) HEADERS("'set': {'X-A': " value "}")
#define PATH(path) "{'routes': [{'name': 'a', 'path': '" path "', 'upstream': 'https://h.example'}]}"
#define UPSTREAM(url) "{'routes': [{'name': 'a', 'path': '/a', 'upstream': '" url "'}]}"
#define HOST(host) ROUTE("'host': '" host "'")

#endif
