/*
 * gateway/upstream_link.c - connections to partners: made by libcurl, read and written by us, kept for the next call.
 *
 * The name is looked up (resolver.c); libcurl gets its addresses, tries them, connects and does TLS, then hands over
 * (CURLOPT_CONNECT_ONLY). It never sees a request, so it can't send one twice. Without TLS we keep a descriptor of our
 * own and let libcurl go; with TLS its handle stays in the multi handle until the link is closed: taken out, libcurl
 * would close the connection.
 *
 * An idle link is watched: whatever comes on it (a close, or bytes nobody asked for) is its end. A link is used again
 * only for the route, the settings and the target that it was made for: another route may allow other addresses.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "gateway/request.h"
#include "gateway/resolver.h"
#include "gateway/settings.h"
#include "gateway/upstream_int.h"
#include "gateway/webhook.h"

enum {
    /* Below the idle limit of the servers in use (Node.js: 5 s), else they close just as we send. */
    IDLE_MS = 4000,
    /* Both together: a changed DNS answer is followed within a minute. */
    LIFETIME_MS = 45 * 1000,
    DNS_CACHE_S = 10,
    CA_CACHE_S = 60,
    CA_SMALL = 16 * 1024, /* bytes of a file of authorities that is read for each link */
    NAME_CAP = 512,
};

/* What TLS remembers from one link to the next: sessions, which spare a look at the certificate, and (in the multi
 * handle) the authorities of a ca_file. A reload forgets both: the files may hold something else by now. */
struct tls_memory {
    CURLSH *share;
    uint64_t settings; /* their number */
    uint64_t since_ms; /* 0: since the start */
    unsigned users;    /* links and, while it is the newest, the upstream */
};

static void on_idle_timer(struct timer *timer);

void link_pool_init(struct upstream *upstream)
{
    upstream->idle_timer.fire = on_idle_timer;
}

/* ---- what TLS remembers ---- */

static void drop_tls_memory(struct tls_memory **which)
{
    struct tls_memory *memory = *which;
    *which = NULL;
    if (memory == NULL || --memory->users > 0)
        return;
    if (memory->share != NULL)
        curl_share_cleanup(memory->share);
    free(memory);
}

static struct tls_memory *new_tls_memory(uint64_t settings, uint64_t since_ms)
{
    struct tls_memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL)
        return NULL;
    *memory = (struct tls_memory){curl_share_init(), settings, since_ms, 1};
    if (memory->share == NULL ||
        curl_share_setopt(memory->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION) != CURLSHE_OK)
        drop_tls_memory(&memory);
    return memory;
}

/* Requests from before a reload may still connect after it: they read the same files. NULL: no memory. */
static struct tls_memory *hold_tls_memory(struct upstream *upstream, const struct settings *settings)
{
    if (upstream->tls_memory == NULL || upstream->tls_memory->settings < settings->number) {
        uint64_t since_ms = upstream->tls_memory == NULL ? 0 : upstream->worker->now_ms;
        struct tls_memory *newer = new_tls_memory(settings->number, since_ms);
        if (newer == NULL)
            return NULL;
        drop_tls_memory(&upstream->tls_memory);
        upstream->tls_memory = newer;
    }
    upstream->tls_memory->users++;
    return upstream->tls_memory;
}

/* Reading the system's authorities holds the loop up for some 40 ms. libcurl keeps one file of them in mind, if there
 * is no folder beside it; a small one is not worth its place. In seconds: what was read before a reload has run out. */
static long ca_cache_timeout(const struct link *link)
{
    struct stat file;
    const char *own = link->route->tls_ca_file;
    uint64_t seconds = (link->upstream->worker->now_ms - link->tls_memory->since_ms) / 1000;
    if (own != NULL && stat(own, &file) == 0 && file.st_size <= CA_SMALL)
        return 0;
    return seconds < CA_CACHE_S ? (long)seconds : (long)CA_CACHE_S;
}

/* Has the system all its authorities in one file? Then the folder has the same ones. */
static bool has_bundle(CURL *easy)
{
    const char *bundle = NULL;
    return curl_easy_getinfo(easy, CURLINFO_CAINFO, &bundle) == CURLE_OK && bundle != NULL && access(bundle, R_OK) == 0;
}

void link_pool_free(struct upstream *upstream)
{
    drop_tls_memory(&upstream->tls_memory);
}

/* ---- idle links ---- */

static const char *origin_of(const struct request *request)
{
    return request->webhook != NULL ? request->webhook->origin : request->route->config->upstream_origin;
}

static size_t chain_of(const struct config_route *route, const char *origin)
{
    size_t hash = (uintptr_t)route / sizeof *route;
    for (; *origin != '\0'; origin++)
        hash = hash * 31 + (unsigned char)*origin;
    return hash % IDLE_CHAINS;
}

static void set_idle_timer(struct upstream *upstream)
{
    if (upstream->idle_first == NULL)
        timer_clear(&upstream->worker->timers, &upstream->idle_timer);
    else
        timer_set(&upstream->worker->timers, &upstream->idle_timer, upstream->idle_first->idle_since_ms + IDLE_MS);
}

static void leave_idle(struct link *link)
{
    struct upstream *upstream = link->upstream;
    struct link **chain = &upstream->idle[link->chain];
    *(link->prev_same == NULL ? chain : &link->prev_same->next_same) = link->next_same;
    if (link->next_same != NULL)
        link->next_same->prev_same = link->prev_same;
    *(link->prev_idle == NULL ? &upstream->idle_first : &link->prev_idle->next_idle) = link->next_idle;
    *(link->next_idle == NULL ? &upstream->idle_last : &link->next_idle->prev_idle) = link->prev_idle;
    link->next_same = link->prev_same = link->next_idle = link->prev_idle = NULL;
    upstream->idle_count--;
}

static void close_idle(struct link *link)
{
    leave_idle(link);
    link_close(&link);
}

/* The last one that fell idle comes first: the others may reach their age. */
void link_put(struct link *link)
{
    struct upstream *upstream = link->upstream;
    struct link **chain = &upstream->idle[link->chain];
    uint64_t now = upstream->worker->now_ms;
    link->call = NULL;
    link->used = true;
    if (now - link->born_ms >= LIFETIME_MS || upstream->broken) {
        link_close(&link);
        return;
    }
    link->idle_since_ms = now;
    link->next_same = *chain;
    if (*chain != NULL)
        (*chain)->prev_same = link;
    *chain = link;
    link->prev_idle = upstream->idle_last;
    *(upstream->idle_last == NULL ? &upstream->idle_first : &upstream->idle_last->next_idle) = link;
    upstream->idle_last = link;
    if (++upstream->idle_count > upstream->worker->gateway->shares.idle)
        close_idle(upstream->idle_first);
    if (upstream->idle_timer.place == 0) /* else it comes earlier, and looks again */
        set_idle_timer(upstream);
}

static void on_idle_timer(struct timer *timer)
{
    struct upstream *upstream = (struct upstream *)((char *)timer - offsetof(struct upstream, idle_timer));
    while (upstream->idle_first != NULL && upstream->worker->now_ms - upstream->idle_first->idle_since_ms >= IDLE_MS)
        close_idle(upstream->idle_first);
    set_idle_timer(upstream);
}

struct link *link_take(struct upstream *upstream, struct request *request)
{
    const struct config_route *route = request->route->config;
    const char *origin = origin_of(request);
    struct link *next, *link = upstream->idle[chain_of(route, origin)];
    for (; link != NULL; link = next) {
        next = link->next_same;
        if (link->route != route || strcmp(link->origin, origin) != 0)
            continue;
        leave_idle(link);
        bool young = upstream->worker->now_ms - link->idle_since_ms < IDLE_MS &&
                     upstream->worker->now_ms - link->born_ms < LIFETIME_MS;
        if (young && link_is_silent(link) && link_may_send(link))
            return link;
        link_close(&link);
    }
    return NULL;
}

void link_close_idle(struct upstream *upstream)
{
    while (upstream->idle_first != NULL)
        close_idle(upstream->idle_first);
    timer_clear(&upstream->worker->timers, &upstream->idle_timer);
}

/* ---- making and ending ---- */

static void on_ready(struct io *io, uint32_t events)
{
    struct link *link = (struct link *)io;
    link->upstream->activity = true;
    if (link->call != NULL)
        upstream_link_ready(link, events);
    else if (!link_is_silent(link)) /* TLS may have things of its own to say, like a ticket */
        close_idle(link);
}

static bool set_options(struct link *link)
{
    CURL *easy = link->easy;
    const struct config_route *route = link->route;
    CURLcode bad = CURLE_OK;
#define SET(option, value) (bad = bad != CURLE_OK ? bad : curl_easy_setopt(easy, CURLOPT_##option, value))
    SET(PRIVATE, link);
    SET(CONNECT_ONLY, 1L);
    SET(ERRORBUFFER, link->error);
    SET(NOSIGNAL, 1L);
    SET(HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(PROXY, "");
    SET(NETRC, (long)CURL_NETRC_IGNORED);
    SET(DNS_CACHE_TIMEOUT, (long)DNS_CACHE_S);
    SET(TCP_KEEPALIVE, 1L);
    SET(SSL_VERIFYPEER, 1L);
    SET(SSL_VERIFYHOST, 2L);
    SET(SHARE, link->tls_memory->share);
    SET(CA_CACHE_TIMEOUT, ca_cache_timeout(link));
    SET(OPENSOCKETFUNCTION, upstream_on_socket_open);
    SET(OPENSOCKETDATA, link);
    SET(CLOSESOCKETFUNCTION, upstream_on_socket_close);
    SET(CLOSESOCKETDATA, link->upstream);
    SET(URL, link->origin);
    if (route->kind != ROUTE_SMTP)
        SET(BUFFERSIZE, 1024L); /* its least: we read into our own */
    if (link->look)
        SET(HAPPY_EYEBALLS_TIMEOUT_MS, 1L); /* of the two families' addresses none is waited for */
    if (link->addresses != NULL)
        SET(RESOLVE, link->addresses);
    if (route->tls_ca_file != NULL)
        SET(CAINFO, route->tls_ca_file);
    if (route->tls_ca_file != NULL || has_bundle(easy))
        SET(CAPATH, NULL); /* else the system's authorities would stand beside it */
    if (route->tls_cert_file != NULL) {
        SET(SSLCERT, route->tls_cert_file);
        SET(SSLKEY, route->tls_key_file);
    }
#undef SET
    return bad == CURLE_OK && tls_set_rules(easy, &link->seen);
}

/* Of timeout.connect; never 0, which would be libcurl's own limit. */
static uint64_t connect_left_ms(const struct link *link)
{
    uint64_t end = link->born_ms + link->route->connect_timeout_ms, now = link->upstream->worker->now_ms;
    return now < end ? end - now : 1;
}

bool link_limit_connect(struct link *link, uint64_t ms)
{
    link->connect_ms = ms;
    if (link->smtp != NULL && /* CONNECTTIMEOUT ends with the connection, before the greeting */
        curl_easy_setopt(link->easy, CURLOPT_TIMEOUT_MS, (long)ms) != CURLE_OK)
        return false;
    return curl_easy_setopt(link->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)ms) == CURLE_OK;
}

static bool set_up(struct link *link)
{
    link->easy = curl_easy_init();
    return link->easy != NULL && set_options(link) && (link->route->kind != ROUTE_SMTP || mail_link_set_up(link)) &&
           link_limit_connect(link, connect_left_ms(link)) &&
           curl_multi_add_handle(link->upstream->multi, link->easy) == CURLM_OK;
}

/* ---- the partner's name ---- */

/* "https://name:443": the name into `out`. False: an address, or a name that libcurl knows without asking anybody. */
static bool name_to_look_up(const char *origin, char out[NAME_CAP])
{
    static const char local[] = "localhost";
    struct in_addr v4;
    const char *host = strstr(origin, "://") + 3;
    size_t len = strcspn(host, ":"), tail = sizeof local - 1;
    if (*host == '[' || len >= NAME_CAP)
        return false;
    memcpy(out, host, len);
    out[len] = '\0';
    bool known = len >= tail && strcasecmp(out + len - tail, local) == 0 && (len == tail || out[len - tail - 1] == '.');
    return !known && inet_pton(AF_INET, out, &v4) != 1;
}

/* libcurl takes the addresses for the name from here, and starts no thread to ask for them. False: no memory. */
static bool take_addresses(struct link *link, const char *addresses)
{
    const char *authority = strstr(link->origin, "://") + 3;
    const char *port = strchr(authority, ':') != NULL            ? ""
                       : strncmp(link->origin, "https:", 6) == 0 ? ":443"
                                                                 : ":80"; /* a relay's is always there */
    size_t size = strlen(authority) + strlen(addresses) + 8;
    char *line = malloc(size);
    if (line == NULL)
        return false;
    snprintf(line, size, "+%s%s:%s", authority, port, addresses); /* "+": they grow old like all it remembers */
    link->addresses = curl_slist_append(NULL, line);
    free(line);
    return link->addresses != NULL;
}

static void on_addresses(void *arg, const char *addresses, const char *problem)
{
    struct link *link = arg;
    char name[NAME_CAP];
    link->lookup = NULL;
    link->upstream->activity = true;
    if (addresses != NULL && take_addresses(link, addresses) && set_up(link))
        return;
    if (problem == NULL) {
        call_out_of_memory(link->call);
        return;
    }
    name_to_look_up(link->origin, name);
    snprintf(link->error, sizeof link->error, "Could not resolve host: %.150s (%.60s)", name, problem);
    upstream_connected(link, CURLE_COULDNT_RESOLVE_HOST);
}

/* False: no memory. */
static bool begin_to_connect(struct link *link)
{
    struct worker *worker = link->upstream->worker;
    enum lookup_class class = link->route->kind == ROUTE_WEBHOOK ? LOOKUP_CHOSEN : LOOKUP_FIXED;
    char name[NAME_CAP];
    if (!name_to_look_up(link->origin, name))
        return set_up(link);
    link->lookup = resolver_ask(worker->gateway->resolver, name, class, &worker->inbox, on_addresses, link);
    return link->lookup != NULL;
}

struct link *link_open(struct upstream *upstream, struct request *request, bool look)
{
    struct link *link = calloc(1, sizeof *link);
    if (link == NULL)
        return NULL;
    link->io.ready = on_ready;
    link->upstream = upstream;
    link->fd = -1;
    link->settings = settings_ref(request->settings);
    link->route = request->route->config;
    link->look = look;
    const char *origin = origin_of(request);
    bool mail = link->route->kind == ROUTE_SMTP;
    link->tls = mail ? mail_link_is_tls(link->route) : strncmp(origin, "https:", 6) == 0;
    link->born_ms = upstream->worker->now_ms;
    link->chain = chain_of(link->route, origin);
    link->origin = strdup(origin);
    link->tls_memory = hold_tls_memory(upstream, link->settings);
    if (link->origin == NULL || link->tls_memory == NULL || !begin_to_connect(link))
        link_close(&link);
    return link;
}

static bool socket_is_silent(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

static void let_go(struct link *link)
{
    if (link->easy == NULL)
        return;
    if (link->upstream->multi != NULL)
        curl_multi_remove_handle(link->upstream->multi, link->easy);
    curl_easy_cleanup(link->easy);
    link->easy = NULL;
}

/* libcurl looks through all its connections for that of a handle, and holds 7 KiB for each: with thousands of them
 * that is most of what a call costs. What it closes here is its own descriptor. */
static bool take_over(struct link *link, curl_socket_t fd)
{
    link->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (link->fd < 0) {
        snprintf(link->error, sizeof link->error, "No descriptor for the connection: %s", strerror(errno));
        return false;
    }
    upstream_release_socket(link->upstream, link->fd); /* what it knows of an earlier socket with this number */
    let_go(link);
    return true;
}

bool link_adopt(struct link *link)
{
    curl_socket_t fd = CURL_SOCKET_BAD;
    char byte;
    size_t got;
    link->error[0] = '\0'; /* of an address that did not answer, before the one that did */
    if (curl_easy_getinfo(link->easy, CURLINFO_ACTIVESOCKET, &fd) != CURLE_OK || fd == CURL_SOCKET_BAD)
        return false;
    if (!link->tls && link->smtp == NULL)
        return socket_is_silent(fd) && take_over(link, fd);
    /* The first reading ties libcurl's handle to the connection: before that it counts as idle, and libcurl may close
     * it. */
    if (curl_easy_recv(link->easy, &byte, 1, &got) != CURLE_AGAIN || tls_owes_key_update(link->easy))
        return false;
    link->fd = (int)fd;
    upstream_release_socket(link->upstream, fd);
    return true;
}

void link_abandon(struct link *link)
{
    const struct linger now = {.l_onoff = 1, .l_linger = 0};
    if (link->fd >= 0)
        (void)setsockopt(link->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

void link_close(struct link **which)
{
    struct link *link = *which;
    struct upstream *upstream = link->upstream;
    *which = NULL;
    link_watch(link, 0);
    list_remove(&upstream->again, &link->again);
    if (link->loaded)
        shutdown(link->fd, SHUT_RDWR); /* whatever TLS writes at the end goes nowhere */
    if (link->smtp != NULL)
        mail_link_good_bye(link);
    if (link->easy == NULL && link->fd >= 0)
        close(link->fd);
    lookup_cancel(&link->lookup);
    let_go(link);
    curl_slist_free_all(link->addresses);
    drop_tls_memory(&link->tls_memory);
    settings_unref(&link->settings);
    free(link->origin);
    free(link->smtp);
    worker_retire(upstream->worker, &link->io);
}

/* ---- reading and writing ---- */

void link_watch(struct link *link, uint32_t events)
{
    struct worker *worker = link->upstream->worker;
    if (events == link->events)
        return;
    if (events == 0)
        worker_unwatch(worker, link->fd);
    else if (link->events != 0)
        worker_rewatch(worker, link->fd, events, &link->io);
    else if (!worker_watch(worker, link->fd, events, &link->io))
        return; /* no memory in the kernel: the call's timeout ends it */
    link->events = events;
}

static enum link_io of_errno(ssize_t result)
{
    if (result >= 0)
        return LINK_OK;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? LINK_AGAIN : LINK_FAILED;
}

static enum link_io of_curl(struct link *link, CURLcode result)
{
    if (result == CURLE_OK)
        return LINK_OK;
    if (result == CURLE_AGAIN)
        return LINK_AGAIN;
    if (link->error[0] == '\0')
        snprintf(link->error, sizeof link->error, "%s", curl_easy_strerror(result));
    return LINK_FAILED;
}

enum link_io link_recv(struct link *link, char *data, size_t cap, size_t *got)
{
    enum link_io io;
    *got = 0;
    if (link->tls) {
        io = of_curl(link, curl_easy_recv(link->easy, data, cap, got));
        link->recv_waits_out = io == LINK_AGAIN && tls_wants_write(link->easy);
    } else {
        ssize_t count = recv(link->fd, data, cap, MSG_DONTWAIT);
        io = of_errno(count);
        *got = count > 0 ? (size_t)count : 0;
        if (io == LINK_FAILED)
            snprintf(link->error, sizeof link->error, "%s", strerror(errno));
    }
    return io == LINK_OK && *got == 0 ? LINK_CLOSED : io;
}

/* A record that was not sent whole is not reported as sent, though the kernel has a part of it. */
static enum link_io send_by_tls(struct link *link, const char *data, size_t len, size_t *sent)
{
    uint64_t before = 0, after = 0;
    bool known = link->taken || tls_written(link->easy, &before);
    enum link_io io = of_curl(link, curl_easy_send(link->easy, data, len, sent));
    if (!link->taken)
        link->taken = *sent > 0 || !known || !tls_written(link->easy, &after) || after != before;
    link->loaded = !link->taken && io != LINK_OK;
    link->send_waits_in = io == LINK_AGAIN && tls_wants_read(link->easy);
    return io;
}

static enum link_io send_plainly(struct link *link, const char *data, size_t len, size_t *sent)
{
    ssize_t count = send(link->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    enum link_io io = of_errno(count);
    *sent = count > 0 ? (size_t)count : 0;
    link->taken = link->taken || count > 0;
    if (io == LINK_FAILED) {
        link->torn = errno != EPIPE; /* that one: the partner had ended its side in good order before */
        snprintf(link->error, sizeof link->error, "%s", strerror(errno));
    }
    return io;
}

enum link_io link_send(struct link *link, const char *data, size_t len, size_t *sent)
{
    *sent = 0;
    enum link_io io = link->tls ? send_by_tls(link, data, len, sent) : send_plainly(link, data, len, sent);
    link->send_waits_out = io == LINK_AGAIN && !link->send_waits_in;
    return io;
}

void link_expect(struct link *link)
{
    link->taken = false;
}

bool link_may_send(const struct link *link)
{
    return !link->tls || !tls_is_busy(link->easy);
}

void link_watch_needed(struct link *link)
{
    bool out = link->send_waits_out || link->recv_waits_out;
    link_watch(link, EPOLLIN | EPOLLRDHUP | (out ? (uint32_t)EPOLLOUT : 0u));
}

void link_explain(const struct link *link, const char *otherwise, char *out, size_t cap)
{
    static const char asked[] = "The partner asks for a client certificate, the route has none (tls.cert_file): ";
    const char *words = link->error[0] != '\0' ? link->error : otherwise;
    size_t len = strlen(words);
    while (len > 0 && words[len - 1] == '.') /* some of libcurl's have a full stop */
        len--;
    snprintf(out, cap - 1, "%s%.*s", link->seen.certificate_asked ? asked : "", (int)len, words);
    strcat(out, ".");
}

bool link_ended_well(const struct link *link)
{
    return link->tls ? tls_said_good_bye(link->easy) : !link->torn;
}

bool link_is_silent(struct link *link)
{
    char byte;
    size_t got;
    if (link->tls)
        return link_recv(link, &byte, 1, &got) == LINK_AGAIN && !tls_owes_key_update(link->easy);
    return socket_is_silent(link->fd);
}
