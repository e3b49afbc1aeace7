/*
 * tests/bench/pace.c - calls at a fixed rate, whatever becomes of them (an open loop).
 *
 *   pace PORT PATH RATE COUNT CONNECTIONS KEYS TOKEN
 *
 * Call number i is due i/RATE seconds after the start, on any connection that is free; latency counts from when it was
 * due, so a proxy that stalls is charged for all calls that it held up. All connections are made before the first call.
 * Prints "sent" when the last call is out, then one line of JSON. Answers have to carry a Content-Length.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER_BYTES = 2048, EVENTS = 256 };

struct connection {
    int fd;
    uint64_t due;
    size_t got;
    char answer[ANSWER_BYTES];
};

static struct {
    const char *path, *token;
    uint64_t rate, count, keys;
    uint64_t begin, issued, answered, failed;
    uint32_t *latency; /* us, of each answer */
    struct connection *all, **idle;
    size_t idle_count;
    int epoll, timer;
} pace;

static void fail(const char *what)
{
    fprintf(stderr, "pace: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static void connect_all(const char *port, size_t count)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (size_t i = 0; i < count; i++) {
        struct connection *conn = &pace.all[i];
        conn->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (conn->fd < 0 || connect(conn->fd, (struct sockaddr *)&address, sizeof address) != 0)
            fail("connect");
        setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
        if (epoll_ctl(pace.epoll, EPOLL_CTL_ADD, conn->fd, &event) != 0)
            fail("epoll");
        pace.idle[pace.idle_count++] = conn;
    }
}

static void send_call(struct connection *conn, uint64_t number)
{
    static const char body[] = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    char text[1024];
    int len = snprintf(text, sizeof text,
                       "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/octet-stream\r\n"
                       "Workflow-Key: order-%08" PRIu64 "\r\nFencing-Token: %s\r\nContent-Length: %zu\r\n\r\n%s",
                       pace.path, number % pace.keys, pace.token, sizeof body - 1, body);
    conn->due = pace.begin + number * 1000000000u / pace.rate;
    conn->got = 0;
    if (send(conn->fd, text, (size_t)len, MSG_NOSIGNAL) != len)
        fail("send");
}

/* Sends all calls that are due and have a connection, then sets the timer for the next one. */
static void send_due(void)
{
    uint64_t now = now_ns();
    while (pace.issued < pace.count && pace.idle_count > 0 &&
           pace.begin + pace.issued * 1000000000u / pace.rate <= now) {
        send_call(pace.idle[--pace.idle_count], pace.issued++);
        if (pace.issued == pace.count) {
            puts("sent");
            fflush(stdout);
        }
    }
    if (pace.issued == pace.count || pace.idle_count == 0)
        return;
    uint64_t next = pace.begin + pace.issued * 1000000000u / pace.rate;
    struct itimerspec when = {.it_value = {(time_t)(next / 1000000000u), (long)(next % 1000000000u)}};
    timerfd_settime(pace.timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static bool is_whole(const struct connection *conn)
{
    const char *end = strstr(conn->answer, "\r\n\r\n"), *length = strcasestr(conn->answer, "\r\ncontent-length:");
    if (!end || !length || length > end)
        return false;
    return conn->got >= (size_t)(end + 4 - conn->answer) + strtoul(length + 17, NULL, 10);
}

static void receive(struct connection *conn)
{
    ssize_t got = recv(conn->fd, conn->answer + conn->got, ANSWER_BYTES - 1 - conn->got, 0);
    if (got <= 0)
        fail("a connection ended");
    conn->got += (size_t)got;
    conn->answer[conn->got] = '\0';
    if (!is_whole(conn)) {
        if (conn->got == ANSWER_BYTES - 1)
            fail("an answer is too long or has no length");
        return;
    }
    pace.failed += strncmp(conn->answer, "HTTP/1.1 200", 12) != 0;
    pace.latency[pace.answered++] = (uint32_t)((now_ns() - conn->due) / 1000);
    pace.idle[pace.idle_count++] = conn;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    if (argc != 8)
        return 2;
    size_t connections = strtoul(argv[5], NULL, 10);
    pace.path = argv[2], pace.rate = strtoull(argv[3], NULL, 10), pace.count = strtoull(argv[4], NULL, 10);
    pace.keys = strtoull(argv[6], NULL, 10), pace.token = argv[7];
    pace.epoll = epoll_create1(EPOLL_CLOEXEC);
    pace.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    pace.all = calloc(connections, sizeof *pace.all);
    pace.idle = calloc(connections, sizeof(struct connection *));
    pace.latency = calloc(pace.count, sizeof *pace.latency);
    if (!pace.all || !pace.idle || !pace.latency || pace.keys == 0 || pace.rate == 0)
        fail("start");
    struct epoll_event events[EVENTS] = {{.events = EPOLLIN, .data.ptr = NULL}};
    if (epoll_ctl(pace.epoll, EPOLL_CTL_ADD, pace.timer, events) != 0)
        fail("epoll");
    connect_all(argv[1], connections);
    pace.begin = now_ns() + 1000000;
    send_due();
    while (pace.answered < pace.count) {
        int count = epoll_wait(pace.epoll, events, EVENTS, 60000);
        if (count <= 0)
            fail("no answer within a minute");
        for (int i = 0; i < count; i++) {
            uint64_t ticks;
            if (events[i].data.ptr)
                receive(events[i].data.ptr);
            else if (read(pace.timer, &ticks, sizeof ticks) < 0 && errno != EAGAIN)
                fail("timer");
        }
        send_due();
    }
    qsort(pace.latency, pace.count, sizeof *pace.latency, by_size);
    printf("{\"requests\": %" PRIu64 ", \"microseconds\": %" PRIu64 ", \"p50\": %u, \"p99\": %u, \"failed\": %" PRIu64
           "}\n",
           pace.count, (now_ns() - pace.begin) / 1000, pace.latency[pace.count / 2],
           pace.latency[pace.count * 99 / 100], pace.failed);
    return 0;
}
