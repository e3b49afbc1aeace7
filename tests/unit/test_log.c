/* tests/unit/test_log.c - lines on standard error: JSON, one each, from any thread. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "gateway/log.h"

static FILE *capture;
static int saved_stderr;

static int capture_begin(void **state)
{
    (void)state;
    log_set_level(LOG_INFO);
    capture = tmpfile();
    saved_stderr = dup(STDERR_FILENO);
    return capture == NULL || dup2(fileno(capture), STDERR_FILENO) < 0 ? -1 : 0;
}

static int capture_end(void **state)
{
    (void)state;
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    fclose(capture);
    return 0;
}

static json_t *next_line(void)
{
    static char line[65536];
    if (fgets(line, sizeof line, capture) == NULL)
        return NULL;
    assert_true(line[strlen(line) - 1] == '\n');
    json_t *root = json_loads(line, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    assert_non_null(root);
    return root;
}

static const char *member(const json_t *root, const char *name)
{
    return json_string_value(json_object_get(root, name));
}

static void one_line(void **state)
{
    struct log_line line;
    (void)state;
    assert_true(log_begin(&line, LOG_WARN, "dropped"));
    log_string(&line, "key", "k\n\x1b\xFF", 4);
    log_string(&line, "absent", NULL, 0);
    log_cstring(&line, "absent", NULL);
    log_cstring(&line, "route", "pay");
    log_number(&line, "status", 412);
    log_id(&line, "token", UINT64_MAX);
    log_id(&line, "absent", 0);
    errno = EEXIST;
    log_end(&line);
    assert_int_equal(errno, EEXIST);
    rewind(capture);
    json_t *root = next_line();
    assert_non_null(root);
    assert_int_equal(strlen(member(root, "time")), 24);
    assert_string_equal(member(root, "level"), "warn");
    assert_string_equal(member(root, "event"), "dropped");
    assert_string_equal(member(root, "key"), "k\n\x1b\xEF\xBF\xBD");
    assert_string_equal(member(root, "route"), "pay");
    assert_int_equal(json_integer_value(json_object_get(root, "status")), 412);
    assert_string_equal(member(root, "token"), "18446744073709551615");
    assert_int_equal(json_object_size(root), 7);
    json_decref(root);
    assert_null(next_line());
}

static void levels(void **state)
{
    struct log_line line;
    (void)state;
    log_set_level(LOG_WARN);
    assert_true(log_enabled(LOG_ERROR));
    assert_true(log_enabled(LOG_WARN));
    assert_false(log_enabled(LOG_INFO));
    assert_false(log_begin(&line, LOG_INFO, "off"));
    log_message(LOG_DEBUG, "off", "not shown");
    log_message(LOG_ERROR, "on", "%s %d", "shown", 7);
    rewind(capture);
    json_t *root = next_line();
    assert_string_equal(member(root, "level"), "error");
    assert_string_equal(member(root, "message"), "shown 7");
    json_decref(root);
    assert_null(next_line());
}

/* A value of any length leaves a line of bounded length that is still JSON, cut between characters. */
static void long_values_are_cut(void **state)
{
    static char text[40000];
    struct log_line line;
    (void)state;
    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'x', sizeof text);
        for (size_t i = shift; i + 4 <= sizeof text; i += 4)
            memcpy(text + i, "\xF0\x9F\x92\xB6", 4);
        assert_true(log_begin(&line, LOG_INFO, "long"));
        log_string(&line, "path", text, sizeof text);
        log_end(&line);
    }
    memset(text, 1, sizeof text);
    log_begin(&line, LOG_INFO, "long");
    log_string(&line, "path", text, sizeof text);
    log_end(&line);
    rewind(capture);
    for (size_t i = 0; i < 5; i++) {
        json_t *root = next_line();
        const char *path = member(root, "path");
        size_t len = strlen(path);
        assert_in_range(len, 1000, 1024);
        assert_string_equal(path + len - 5, "[cut]");
        assert_null(strstr(path, "\xEF\xBF\xBD"));
        json_decref(root);
    }
}

static void beginning_again_gives_up_the_first(void **state)
{
    struct log_line first, second;
    (void)state;
    assert_true(log_begin(&first, LOG_INFO, "first"));
    log_cstring(&first, "a", "b");
    assert_true(log_begin(&second, LOG_INFO, "second"));
    log_end(&second);
    rewind(capture);
    json_t *root = next_line();
    assert_string_equal(member(root, "event"), "second");
    assert_null(json_object_get(root, "a"));
    json_decref(root);
    assert_null(next_line());
}

static void *writer(void *arg)
{
    for (int i = 0; i < 500; i++) {
        struct log_line line;
        if (!log_begin(&line, LOG_INFO, "thread"))
            continue;
        log_cstring(&line, "who", arg);
        log_number(&line, "n", (uint64_t)i);
        log_end(&line);
    }
    return NULL;
}

static void threads_do_not_mix(void **state)
{
    pthread_t threads[4];
    char name[4][2] = {"a", "b", "c", "d"};
    int lines = 0;
    json_t *root;
    (void)state;
    fcntl(STDERR_FILENO, F_SETFL, fcntl(STDERR_FILENO, F_GETFL) | O_APPEND);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, writer, name[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    rewind(capture);
    for (; (root = next_line()) != NULL; lines++) {
        assert_int_equal(json_object_size(root), 5);
        json_decref(root);
    }
    assert_int_equal(lines, 2000);
}

/* One line in every_ms; what was held back is counted once. */
static void a_rate_holds_back_and_counts(void **state)
{
    struct log_rate rate = {0};
    uint64_t skipped = 7;
    (void)state;
    assert_true(log_rate_pass(&rate, 5000, 1000, &skipped));
    assert_int_equal(skipped, 0);
    for (uint64_t now = 5000; now < 6000; now += 100)
        assert_false(log_rate_pass(&rate, now, 1000, &skipped));
    assert_true(log_rate_pass(&rate, 6000, 1000, &skipped));
    assert_int_equal(skipped, 10);
    assert_false(log_rate_pass(&rate, 6999, 1000, &skipped));
    assert_true(log_rate_pass(&rate, 9000, 1000, &skipped));
    assert_int_equal(skipped, 1);
}

struct drained {
    int fd;
    FILE *into;
};

static void *drain(void *arg)
{
    struct drained *drained = arg;
    char buffer[512];
    ssize_t n;
    while ((n = read(drained->fd, buffer, sizeof buffer)) > 0)
        fwrite(buffer, 1, (size_t)n, drained->into);
    return NULL;
}

/* A pipe that is full takes a line in parts: what arrives is whole lines all the same. */
static void slow_reader_gets_whole_lines(void **state)
{
    int ends[2], lines = 0;
    pthread_t reader;
    char value[1024];
    json_t *root;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    fcntl(ends[1], F_SETPIPE_SZ, 4096);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    struct drained drained = {.fd = ends[0], .into = capture};
    assert_int_equal(pthread_create(&reader, NULL, drain, &drained), 0);
    for (size_t i = 0; i < sizeof value; i++)
        value[i] = (char)('a' + i % 26);
    for (int i = 0; i < 50; i++) {
        struct log_line line;
        static const char *const names[] = {"v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8"};
        log_begin(&line, LOG_INFO, "big");
        for (size_t j = 0; j < 9; j++)
            log_string(&line, names[j], value, sizeof value);
        log_end(&line);
    }
    dup2(fileno(capture), STDERR_FILENO); /* closes the pipe's last writing end */
    pthread_join(reader, NULL);
    close(ends[0]);
    rewind(capture);
    for (; (root = next_line()) != NULL; lines++) {
        assert_int_equal(json_object_size(root), 12);
        assert_memory_equal(member(root, "v8"), value, sizeof value);
        json_decref(root);
    }
    assert_int_equal(lines, 50);
}

/* The log's reader is gone: the line is lost and nothing else. The process ignores SIGPIPE. */
static void lost_reader(void **state)
{
    int ends[2];
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    close(ends[0]);
    errno = 0;
    log_message(LOG_ERROR, "lost", "nobody reads this");
    assert_int_equal(errno, 0);
}

#define WITH_CAPTURE(test) cmocka_unit_test_setup_teardown(test, capture_begin, capture_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_CAPTURE(one_line),
        WITH_CAPTURE(levels),
        WITH_CAPTURE(long_values_are_cut),
        WITH_CAPTURE(beginning_again_gives_up_the_first),
        WITH_CAPTURE(threads_do_not_mix),
        WITH_CAPTURE(a_rate_holds_back_and_counts),
        WITH_CAPTURE(slow_reader_gets_whole_lines),
        WITH_CAPTURE(lost_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
