/* tests/unit/test_admin_receive.c - bodies that are late or cut short: what the client reads and the library sees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/admin_receive.h"
#include "gateway/timers.h"

enum { OURS, THEIRS };

static int make_pair(void **state)
{
    static int pair[2];
    *state = pair;
    return socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
}

static int close_pair(void **state)
{
    int *pair = *state;
    close(pair[OURS]);
    close(pair[THEIRS]);
    return 0;
}

#define HINT "The proxy is elsewhere."

static void reads_problem(int fd, const char *status, const char *reason)
{
    static char text[4096];
    ssize_t got = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
    assert_true(got > 0);
    text[got] = '\0';
    assert_memory_equal(text, status, strlen(status));
    assert_non_null(strstr(text, "application/problem+json"));
    assert_non_null(strstr(text, reason));
    assert_non_null(strstr(text, "\r\nFencegate-Effect: not-sent\r\n"));
    assert_non_null(strstr(text, HINT));
    assert_int_equal(recv(fd, text, sizeof text, MSG_DONTWAIT), 0);
}

static void what_is_late_is_refused_once(void **state)
{
    int *pair = *state;
    struct admin_receive *list = NULL, receive = {0};
    admin_receive_begin(&list, &receive, pair[OURS], monotonic_ms());
    assert_int_equal(admin_receive_run(list, HINT), -1);
    reads_problem(pair[THEIRS], "HTTP/1.1 408 ", "request-timeout");
    char byte;
    assert_int_equal(recv(pair[OURS], &byte, 1, MSG_DONTWAIT), 0); /* what the library will find */
    assert_int_equal(admin_receive_run(list, HINT), -1);
    assert_int_equal(recv(pair[THEIRS], &byte, 1, MSG_DONTWAIT), 0);
}

static void an_end_is_believed_when_seen_twice(void **state)
{
    int *pair = *state;
    char byte;
    struct admin_receive *list = NULL, receive = {0};
    admin_receive_begin(&list, &receive, pair[OURS], monotonic_ms() + 60000);
    assert_in_range(admin_receive_run(list, HINT), 50000, 60000);
    assert_int_equal(send(pair[THEIRS], "x", 1, 0), 1);
    shutdown(pair[THEIRS], SHUT_WR);
    assert_in_range(admin_receive_run(list, HINT), 50000, 60000); /* a byte is still there */
    assert_int_equal(recv(pair[OURS], &byte, 1, MSG_DONTWAIT), 1);
    assert_int_equal(admin_receive_run(list, HINT), 0);
    assert_int_equal(recv(pair[THEIRS], &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(admin_receive_run(list, HINT), -1);
    reads_problem(pair[THEIRS], "HTTP/1.1 400 ", "malformed-request");
}

static void who_asked_nothing_is_told_nothing(void **state)
{
    int *pair = *state;
    char byte;
    struct admin_receive *list = NULL, receive = {0};
    assert_false(admin_receive_at_end(pair[OURS]));
    shutdown(pair[THEIRS], SHUT_WR);
    assert_true(admin_receive_at_end(pair[OURS]));
    admin_receive_begin(&list, &receive, pair[OURS], ADMIN_RECEIVE_IDLE);
    assert_int_equal(admin_receive_run(list, HINT), 0);
    assert_int_equal(admin_receive_run(list, HINT), -1);
    assert_int_equal(recv(pair[THEIRS], &byte, 1, MSG_DONTWAIT), -1);
}

static void the_list_holds_what_is_on_its_way(void **state)
{
    int *pair = *state;
    struct admin_receive *list = NULL, one[3] = {{0}};
    uint64_t end = monotonic_ms() + 60000;
    admin_receive_end(&one[0]); /* has not begun */
    for (size_t i = 0; i < 3; i++)
        admin_receive_begin(&list, &one[i], pair[OURS], end + i);
    admin_receive_end(&one[1]);
    admin_receive_end(&one[1]);
    assert_ptr_equal(list, &one[2]);
    assert_ptr_equal(one[2].next, &one[0]);
    admin_receive_end(&one[2]);
    assert_ptr_equal(list, &one[0]);
    admin_receive_end(&one[0]);
    assert_null(list);
    assert_int_equal(admin_receive_run(list, HINT), -1);
}

#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, make_pair, close_pair)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_PAIR(what_is_late_is_refused_once),
        WITH_PAIR(an_end_is_believed_when_seen_twice),
        WITH_PAIR(who_asked_nothing_is_told_nothing),
        WITH_PAIR(the_list_holds_what_is_on_its_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
