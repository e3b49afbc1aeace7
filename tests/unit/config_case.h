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
#include <unistd.h>

#include "config/config.h"

#define CA_PEM "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
#define KEY_PEM "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"
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
    write_text("ca.pem", CA_PEM);
    write_text("key.pem", KEY_PEM);
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
