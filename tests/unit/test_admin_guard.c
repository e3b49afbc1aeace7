/* tests/unit/test_admin_guard.c - gateway/admin_guard.c: the token file, the token, Host and Origin. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "gateway/admin_guard.h"
#include "gateway/headers.h"

struct folder {
    char path[64], file[96];
};

static int setup(void **state)
{
    struct folder *folder = calloc(1, sizeof *folder);
    if (folder == NULL) {
        return -1;
    }
    strcpy(folder->path, "/tmp/admin-guard-XXXXXX");
    if (mkdtemp(folder->path) == NULL) {
        free(folder);
        return -1;
    }
    snprintf(folder->file, sizeof folder->file, "%s/admin.token", folder->path);
    *state = folder;
    return 0;
}

static int teardown(void **state)
{
    struct folder *folder = *state;
    unlink(folder->file);
    rmdir(folder->path);
    free(folder);
    return 0;
}

static void put(const char *file, const char *text, size_t len)
{
    FILE *out = fopen(file, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, len, out), len);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(chmod(file, 0600), 0);
}

static void test_makes_the_default_file_once(void **state)
{
    struct folder *folder = *state;
    struct admin_token first, second;
    struct stat info;
    char error[256];
    assert_true(admin_token_load(NULL, folder->path, &first, error, sizeof error));
    assert_int_equal(first.len, 64);
    assert_int_equal(strspn(first.text, "0123456789abcdef"), 64);
    assert_int_equal(stat(folder->file, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    assert_int_equal(info.st_size, 65);
    assert_true(admin_token_load(NULL, folder->path, &second, error, sizeof error));
    assert_int_equal(second.len, 64);
    assert_memory_equal(first.text, second.text, 64);
    unlink(folder->file);
    assert_true(admin_token_load(NULL, folder->path, &second, error, sizeof error));
    assert_memory_not_equal(first.text, second.text, 64);
}

static void test_does_not_write_through_a_link(void **state)
{
    struct folder *folder = *state;
    struct admin_token token;
    char error[256], elsewhere[96];
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", folder->path);
    assert_int_equal(symlink(elsewhere, folder->file), 0);
    assert_false(admin_token_load(NULL, folder->path, &token, error, sizeof error));
    assert_int_equal(access(elsewhere, F_OK), -1);
}

static void test_a_given_file_must_be_there(void **state)
{
    struct folder *folder = *state;
    struct admin_token token;
    char error[256];
    assert_false(admin_token_load(folder->file, folder->path, &token, error, sizeof error));
    assert_non_null(strstr(error, folder->file));
    assert_int_equal(access(folder->file, F_OK), -1);
}

static void test_cuts_one_line_end(void **state)
{
    struct folder *folder = *state;
    struct admin_token token;
    char error[256];
    static const char *const ends[] = {"", "\n", "\r\n"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char text[32];
        snprintf(text, sizeof text, "sixteen-bytes-16%s", ends[i]);
        put(folder->file, text, strlen(text));
        assert_true(admin_token_load(folder->file, "/nowhere", &token, error, sizeof error));
        assert_int_equal(token.len, 16);
        assert_true(admin_token_matches(&token, "Bearer sixteen-bytes-16"));
    }
}

static void test_refuses_bad_files(void **state)
{
    static const char *const bad[] = {"",
                                      "\n",
                                      "s",
                                      "secret-of-15-by",
                                      "secret-of-15-by\r\n",
                                      "secret-of-sixteen-bytes\n\n",
                                      "secret-of-sixteen-bytes\r",
                                      "two words of a secret",
                                      "secret-of-sixteen-b\xc3\xa4",
                                      "\xef\xbb\xbfsecret-of-sixteen-bytes",
                                      "\xff\xfes\0e\0c\0"};
    struct folder *folder = *state;
    struct admin_token token;
    char error[256], longest[CONFIG_TOKEN_MAX + 2];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put(folder->file, bad[i], strlen(bad[i]));
        error[0] = '\0';
        assert_false(admin_token_load(folder->file, folder->path, &token, error, sizeof error));
        assert_non_null(strstr(error, folder->file));
        assert_null(strstr(error, "secret"));
        assert_null(strchr(error, '\n'));
    }
    put(folder->file, bad[2], 1);
    assert_false(admin_token_load(folder->file, folder->path, &token, error, sizeof error));
    assert_non_null(strstr(error, "shorter than 16 bytes"));
    put(folder->file, "secret-of-16-by\0tes", 19);
    assert_false(admin_token_load(folder->file, folder->path, &token, error, sizeof error));
    memset(longest, 'x', sizeof longest);
    longest[CONFIG_TOKEN_MAX] = '\n';
    put(folder->file, longest, CONFIG_TOKEN_MAX + 1);
    assert_true(admin_token_load(folder->file, folder->path, &token, error, sizeof error));
    put(folder->file, longest, CONFIG_TOKEN_MAX + 2);
    assert_false(admin_token_load(folder->file, folder->path, &token, error, sizeof error));
    memset(longest, 'x', sizeof longest);
    put(folder->file, longest, CONFIG_TOKEN_MAX + 1);
    assert_false(admin_token_load(folder->file, folder->path, &token, error, sizeof error));
}

static void test_token_matches(void **state)
{
    struct admin_token token = {.text = "abc123", .len = 6}, none = {.len = 0};
    (void)state;
    assert_true(admin_token_matches(&token, "Bearer abc123"));
    assert_true(admin_token_matches(&token, "bearer  abc123"));
    assert_true(admin_token_matches(&token, "BEARER abc123 \t"));
    assert_false(admin_token_matches(&token, NULL));
    assert_false(admin_token_matches(&token, ""));
    assert_false(admin_token_matches(&token, "Bearer"));
    assert_false(admin_token_matches(&token, "Bearer "));
    assert_false(admin_token_matches(&token, "abc123"));
    assert_false(admin_token_matches(&token, "Basic abc123"));
    assert_false(admin_token_matches(&token, "Bearerabc123"));
    assert_false(admin_token_matches(&token, "Bearer abc12"));
    assert_false(admin_token_matches(&token, "Bearer abc1234"));
    assert_false(admin_token_matches(&token, "Bearer abc124"));
    assert_false(admin_token_matches(&token, "Bearer Abc123"));
    assert_false(admin_token_matches(&token, "Bearer abc123 abc123"));
    assert_false(admin_token_matches(&none, "Bearer "));
    assert_false(admin_token_matches(&none, "Bearer abc123"));
}

static void test_private_hosts(void **state)
{
    static const char *const ours[] = {"127.0.0.1",   "10.1.2.3:8081",   "[::1]:8081",         "localhost",
                                       "LOCALHOST:1", "gateway:8081",    "localhost.",         "gw.pay.svc:8081",
                                       "a.internal",  "printer.LOCAL:1", "app.localhost:8081", "localhost.:8081"};
    static const char *const foreign[] = {"evil.example",
                                          "evil.example:8081",
                                          "127.0.0.1.evil.example",
                                          "1.2.3.4.5",
                                          "localhost.example",
                                          "notlocal.example.",
                                          "svc.example:80",
                                          "evil-internal.com",
                                          "",
                                          ":8081",
                                          ".",
                                          "127.1.evil"};
    char longest[400];
    (void)state;
    assert_true(admin_host_private(NULL));
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
        if (!admin_host_private(ours[i])) {
            fail_msg("refused: %s", ours[i]);
        }
    }
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        if (admin_host_private(foreign[i])) {
            fail_msg("taken: %s", foreign[i]);
        }
    }
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_false(admin_host_private(longest));
}

static void test_named_hosts(void **state)
{
    static const char *const hosts[] = {"fencegate.ops.example", "10.0.0.1", NULL}, *const none[] = {NULL};
    (void)state;
    assert_true(admin_host_named("fencegate.ops.example", hosts));
    assert_true(admin_host_named("Fencegate.OPS.example.:8081", hosts));
    assert_true(admin_host_named("10.0.0.1:80", hosts));
    assert_false(admin_host_named("fencegate.ops.example.evil", hosts));
    assert_false(admin_host_named("x.fencegate.ops.example", hosts));
    assert_false(admin_host_named("", hosts));
    assert_false(admin_host_named(":80", hosts));
    assert_false(admin_host_named("fencegate.ops.example", none));
}

static bool of_worker(const struct config *config, const char *name)
{
    struct header_field fields[] = {{"Host", 4, "x", 1}, {name, strlen(name), "", 0}};
    return admin_fields_of_worker(config, fields, 2);
}

static void test_fields_of_workers(void **state)
{
    static const struct config_route routes[] = {{.token_header = "Fencing-Token", .key_header = "Workflow-Key"},
                                                 {.token_header = "X-Lease", .key_header = "X-Order"}};
    static const struct config config = {.routes = routes, .route_count = 2};
    static const char *const theirs[] = {"fencing-token", "Workflow-Key", "X-LEASE", "x-order", "Fencegate-Target"};
    static const char *const others[] = {"Authorization", "X-Lease2", "X", "User-Agent"};
    (void)state;
    for (size_t i = 0; i < sizeof theirs / sizeof theirs[0]; i++)
        assert_true(of_worker(&config, theirs[i]));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(of_worker(&config, others[i]));
    assert_false(of_worker(&(struct config){.route_count = 0}, "X-Lease"));
}

static void test_origins(void **state)
{
    (void)state;
    assert_true(admin_origin_same(NULL, NULL));
    assert_true(admin_origin_same(NULL, "localhost:8081"));
    assert_true(admin_origin_same("http://localhost:8081", "LocalHost:8081"));
    assert_true(admin_origin_same("https://localhost", "localhost"));
    assert_false(admin_origin_same("http://localhost:8082", "localhost:8081"));
    assert_false(admin_origin_same("http://localhost:8081", NULL));
    assert_false(admin_origin_same("http://evil.example", "localhost:8081"));
    assert_false(admin_origin_same("ftp://localhost:8081", "localhost:8081"));
    assert_false(admin_origin_same("null", "localhost:8081"));
    assert_false(admin_origin_same("", ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_makes_the_default_file_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_does_not_write_through_a_link, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_given_file_must_be_there, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cuts_one_line_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refuses_bad_files, setup, teardown),
        cmocka_unit_test(test_token_matches),
        cmocka_unit_test(test_private_hosts),
        cmocka_unit_test(test_named_hosts),
        cmocka_unit_test(test_fields_of_workers),
        cmocka_unit_test(test_origins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
