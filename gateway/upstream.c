/*
 * gateway/upstream.c - calls to partners in a worker's loop: their beginning, their place in the turn, their end.
 *
 * A call takes an idle link or has libcurl make one (upstream_link.c) and then exchanges one request for one answer on
 * it (upstream_exchange.c). Whatever happens on the way is only noted; requests are told once a turn, in
 * upstream_run(), so that no step of a request is called from inside another.
 *
 * Leaves to others: what a result means for record and answer (request.c), the answer's way to the client (inbound).
 */
#include "gateway/upstream.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "config/config.h"
#include "gateway/inbound.h"
#include "gateway/request.h"
#include "gateway/settings.h"
#include "gateway/upstream_int.h"

enum {
    SPARE_CALLS = 128,
    TRIM_ABOVE = 128, /* calls under way at once: a spike that is worth giving memory back after */
};

static char library[64];

static void name_library(void)
{
    snprintf(library, sizeof library, "libcurl/%s",
             curl_version_info(CURLVERSION_NOW)->version); /* curl_version() starts LDAP */
}

const char *upstream_library(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, name_library);
    return library;
}

/* ---- libcurl's timer ---- */

static int on_timer_change(CURLM *multi, long timeout_ms, void *arg)
{
    (void)multi;
    struct upstream *upstream = arg;
    timer_clear(&upstream->worker->timers, &upstream->timer);
    upstream->due = timeout_ms == 0;
    if (timeout_ms > 0)
        timer_set(&upstream->worker->timers, &upstream->timer, upstream->worker->now_ms + (uint64_t)timeout_ms);
    return 0;
}

static void on_timer(struct timer *timer)
{
    struct upstream *upstream = (struct upstream *)((char *)timer - offsetof(struct upstream, timer));
    upstream->due = true;
}

/* ---- calls and their lists ---- */

#define CALL_AT(place, list) ((struct call *)((char *)(place)-offsetof(struct call, list)))

void list_add(struct place **list, struct place *place)
{
    if (place->listed)
        return;
    *place = (struct place){*list, true};
    *list = place;
}

void list_remove(struct place **list, struct place *place)
{
    if (!place->listed)
        return;
    while (*list != place)
        list = &(*list)->next;
    *list = place->next;
    place->listed = false;
}

struct place *list_take(struct place **list)
{
    struct place *first = *list;
    if (first != NULL)
        list_remove(list, first);
    return first;
}

void call_touch(struct call *call)
{
    list_add(&call->upstream->touched, &call->touched);
}

void call_make_hungry(struct call *call)
{
    list_add(&call->upstream->hungry, &call->hungry);
}

void call_sate(struct call *call)
{
    list_remove(&call->upstream->hungry, &call->hungry);
}

static struct call *new_call(struct upstream *upstream)
{
    struct call *call = calloc(1, sizeof *call);
    if (call == NULL)
        return NULL;
    if (!timers_promise(&upstream->worker->timers)) {
        free(call);
        return NULL;
    }
    call->upstream = upstream;
    call->timer.fire = call_on_timeout;
    return call;
}

static struct call *take_spare(struct upstream *upstream)
{
    struct call *call = upstream->spare;
    if (call == NULL)
        return new_call(upstream);
    upstream->spare = call->next_spare;
    upstream->spare_count--;
    return call;
}

static void free_call(struct call *call)
{
    timers_release(&call->upstream->worker->timers);
    free(call);
}

static void put_back(struct call *call)
{
    struct upstream *upstream = call->upstream;
    call->request = NULL;
    wire_free(&call->wire);
    if (upstream->spare_count >= SPARE_CALLS) {
        free_call(call);
    } else {
        call->next_spare = upstream->spare;
        upstream->spare = call;
        upstream->spare_count++;
    }
    if (--upstream->running < upstream->peak / 2 && upstream->peak > TRIM_ABOVE) {
        malloc_trim(0); /* after a spike: glibc keeps what lies between live pieces, some 12 KiB a call */
        upstream->peak = upstream->running;
    }
}

/* ---- beginning, breaking off, going on ---- */

static bool make_multi(struct upstream *upstream);

static struct call *new_call_of(struct request *request)
{
    struct upstream *upstream = request->worker->upstream;
    if (upstream->multi == NULL && !make_multi(upstream))
        return NULL;
    struct call *call = take_spare(upstream);
    if (call == NULL)
        return NULL;
    call->request = request;
    call->step = CALL_CONNECTING;
    call->look = false;
    call->out[0] = call->out[1] = (struct slice){NULL, 0};
    if (++upstream->running > upstream->peak)
        upstream->peak = upstream->running;
    upstream->activity = true;
    return call;
}

/* Connected or on its way; without a link nothing has begun. */
static bool go(struct call *call, struct link *link)
{
    struct request *request = call->request;
    uint64_t from = call->look ? request->worker->now_ms : request->call_started_ms; /* the first try's */
    call->link = link;
    if (link == NULL) {
        put_back(call);
        return false;
    }
    link->call = call;
    request->call = call;
    call->total_end_ms = from + request->route->config->total_timeout_ms;
    call_set_timer(call);
    return true;
}

bool upstream_start(struct request *request)
{
    struct call *call = new_call_of(request);
    if (call == NULL)
        return false;
    reply_reset(&request->reply); /* of a try that did not connect */
    struct link *idle = link_take(call->upstream, request);
    if (!go(call, idle != NULL ? idle : link_open(call->upstream, request, false)))
        return false;
    if (idle != NULL)
        call_begin(call);
    return true;
}

bool upstream_look(struct request *request)
{
    struct call *call = new_call_of(request);
    if (call == NULL)
        return false;
    call->look = true;
    return go(call, link_open(call->upstream, request, true));
}

void upstream_cancel(struct request *request)
{
    struct call *call = request->call;
    if (call == NULL)
        return;
    struct upstream *upstream = call->upstream;
    call_finish(call, CALL_FAILED, NULL);
    list_remove(&upstream->ended, &call->ended);
    list_remove(&upstream->touched, &call->touched);
    request->call = NULL;
    put_back(call);
}

void upstream_resume(struct request *request)
{
    struct call *call = request->call;
    if (call == NULL || !request->reply.paused)
        return;
    request->reply.paused = false;
    if (call->step != CALL_EXCHANGING)
        return;
    link_watch_needed(call->link);
    call_make_hungry(call);
}

/* ---- a step of the loop ---- */

static void take_connected(struct upstream *upstream)
{
    int left;
    CURLMsg *message;
    while (upstream->multi != NULL && (message = curl_multi_info_read(upstream->multi, &left)) != NULL) {
        struct link *link = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode result = message->data.result; /* the message dies with its handle */
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&link);
        upstream_connected(link, result);
    }
}

bool upstream_is_hungry(const struct upstream *upstream)
{
    return upstream->hungry != NULL;
}

void upstream_feed(struct upstream *upstream)
{
    struct place *list = upstream->hungry;
    if (list == NULL)
        return;
    upstream->hungry = NULL; /* who is hungry again waits for the next turn */
    upstream->activity = true;
    for (struct place *place = list; place != NULL; place = place->next)
        place->listed = false;
    for (struct place *next; list != NULL; list = next) {
        next = list->next;
        call_go_on(CALL_AT(list, hungry));
    }
}

/* First who is through: an answer that came whole in this turn goes out in one piece. */
static void tell(struct upstream *upstream)
{
    struct place *place;
    while ((place = list_take(&upstream->ended)) != NULL) {
        struct call *call = CALL_AT(place, ended);
        struct request *request = call->request;
        enum call_end end = call->end;
        bool look = call->look;
        char detail[sizeof call->detail];
        memcpy(detail, call->detail, sizeof detail);
        list_remove(&upstream->touched, &call->touched);
        request->reply.ended = true;
        request->reply.cut_short = end == CALL_CUT_SHORT;
        if (end != CALL_OK && end != CALL_CUT_SHORT)
            request->reply.head_done = false; /* not an answer: nothing of it is relayed */
        request->call = NULL;
        put_back(call);
        if (look)
            request_looked(request, end);
        else
            request_call_ended(request, end, detail[0] == '\0' ? NULL : detail);
    }
    while ((place = list_take(&upstream->touched)) != NULL) {
        struct request *request = CALL_AT(place, touched)->request;
        if (request->reply.head_done)
            inbound_reply_ready(request);
    }
}

/* Out of memory libcurl leaves its multi handle in a state that can't be gone on with (it loses calls, and 7.88 divides
 * by zero when it meets the same socket again). Its calls end here as far as they came; a new one takes over. */
static void start_over(struct upstream *upstream)
{
    upstream->broken = true; /* no link is kept */
    for (struct request *request = upstream->worker->live; request != NULL; request = request->next) {
        struct call *call = request->call;
        if (call != NULL && (call->step == CALL_CONNECTING || call->step == CALL_STARTING))
            call_out_of_memory(call);
        else if (call != NULL && call->step == CALL_EXCHANGING)
            call_break(call, "The gateway is out of memory.");
    }
    link_close_idle(upstream);
    if (upstream->multi != NULL)
        curl_multi_cleanup(upstream->multi);
    upstream->multi = NULL;
    upstream->broken = false;
    (void)make_multi(upstream);
}

/* When an address has failed (no socket for it, refused, no answer in its time) libcurl 7.88 turns to the next one only
 * when a timer runs out: half of the time to connect for each, or all of it. A change of the pause puts the handle's
 * turn to now. */
static void go_on(struct upstream *upstream)
{
    struct place *place;
    while ((place = list_take(&upstream->again)) != NULL) {
        struct link *link = (struct link *)((char *)place - offsetof(struct link, again));
        if (upstream->broken)
            continue;
        curl_easy_pause(link->easy, CURLPAUSE_RECV);
        curl_easy_pause(link->easy, CURLPAUSE_CONT); /* nothing was received: no callback comes */
    }
}

void upstream_step(struct upstream *upstream, curl_socket_t fd, int mask)
{
    int running;
    upstream->broken = upstream_starved() || upstream->broken;
    upstream->stepping = true;
    if (!upstream->broken && upstream->multi != NULL &&
        curl_multi_socket_action(upstream->multi, fd, mask, &running) != CURLM_OK)
        upstream->broken = true;
    upstream->stepping = false;
    go_on(upstream);
    upstream->broken = upstream_starved() || upstream->broken;
}

/* libcurl looks at the clock before it looks at a socket. Its limits move on, so that it reads what came meanwhile; the
 * calls' own timers, which fire after that, still hold timeout.connect. */
void upstream_stood_still(struct upstream *upstream, uint64_t ms)
{
    for (struct request *request = upstream->worker->live; request != NULL; request = request->next) {
        struct link *link = request->call == NULL ? NULL : request->call->link;
        bool connecting = link != NULL && link->easy != NULL && request->call->step == CALL_CONNECTING && link->fd < 0;
        if (connecting && !link_limit_connect(link, link->connect_ms + ms))
            return; /* the old limit stays */
    }
}

void upstream_hear(struct upstream *upstream)
{
    while (upstream->due) {
        upstream->due = false;
        upstream_step(upstream, CURL_SOCKET_TIMEOUT, 0);
    }
    take_connected(upstream);
}

bool upstream_run(struct upstream *upstream)
{
    bool any = upstream->activity || upstream->due;
    upstream->activity = false;
    if (any) {
        upstream_hear(upstream);
        if (upstream_starved() || upstream->broken)
            start_over(upstream);
        tell(upstream);
    }
    return any;
}

static bool make_multi(struct upstream *upstream)
{
    upstream->multi = curl_multi_init();
    if (upstream->multi == NULL)
        return false;
    curl_multi_setopt(upstream->multi, CURLMOPT_SOCKETFUNCTION, upstream_on_socket_change);
    curl_multi_setopt(upstream->multi, CURLMOPT_SOCKETDATA, upstream);
    curl_multi_setopt(upstream->multi, CURLMOPT_TIMERFUNCTION, on_timer_change);
    curl_multi_setopt(upstream->multi, CURLMOPT_TIMERDATA, upstream);
    curl_multi_setopt(upstream->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    return true;
}

struct upstream *upstream_new(struct worker *worker)
{
    struct upstream *upstream = calloc(1, sizeof *upstream);
    if (upstream == NULL)
        return NULL;
    upstream->worker = worker;
    upstream->timer.fire = on_timer;
    upstream->scratch = malloc(READ_BYTES);
    bool timers = timers_promise(&worker->timers) && timers_promise(&worker->timers);
    link_pool_init(upstream);
    if (upstream->scratch == NULL || !timers || !make_multi(upstream)) {
        upstream_free(&upstream); /* the process ends: a promise too many does no harm */
        return NULL;
    }
    return upstream;
}

void upstream_free(struct upstream **upstream)
{
    struct upstream *gone = *upstream;
    *upstream = NULL;
    if (gone == NULL)
        return;
    while (gone->spare != NULL) {
        struct call *next = gone->spare->next_spare;
        free_call(gone->spare);
        gone->spare = next;
    }
    link_close_idle(gone);
    if (gone->multi != NULL)
        curl_multi_cleanup(gone->multi);
    link_pool_free(gone);
    upstream_forget_sockets(gone);
    timer_clear(&gone->worker->timers, &gone->timer);
    timers_release(&gone->worker->timers);
    timers_release(&gone->worker->timers);
    free(gone->scratch);
    free(gone);
}
