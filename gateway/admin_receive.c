/*
 * gateway/admin_receive.c - see admin_receive.h.
 *
 * libmicrohttpd counts the silence between two bytes only, and does not see an end of sending that was there before it
 * got the connection. Both would keep a connection for long.
 */
#include "gateway/admin_receive.h"

#include <stddef.h>
#include <sys/socket.h>

#include "gateway/admin_calls.h"
#include "gateway/admin_door.h"
#include "gateway/timers.h"

void admin_receive_begin(struct admin_receive **list, struct admin_receive *receive, int fd, uint64_t end_ms)
{
    admin_receive_end(receive);
    *receive = (struct admin_receive){.next = *list, .link = list, .fd = fd, .end_ms = end_ms};
    if (receive->next != NULL) {
        receive->next->link = &receive->next;
    }
    *list = receive;
}

void admin_receive_end(struct admin_receive *receive)
{
    if (receive->link == NULL) {
        return;
    }
    *receive->link = receive->next;
    if (receive->next != NULL) {
        receive->next->link = receive->link;
    }
    receive->link = NULL;
}

bool admin_receive_at_end(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void give_up(struct admin_receive *receive, enum admin_problem kind, const char *detail, const char *hint)
{
    receive->refused = true;
    if (receive->end_ms != ADMIN_RECEIVE_IDLE) {
        admin_raw_problem(receive->fd, kind, detail, hint);
    }
    shutdown(receive->fd, SHUT_RD); /* wakes the library, which finds the end */
}

/* An end counts when it is seen twice: in between the library has looked at everything that it had read. */
static bool has_ended(struct admin_receive *receive)
{
    bool ended = admin_receive_at_end(receive->fd);
    bool twice = ended && receive->ended;
    receive->ended = ended;
    return twice;
}

int admin_receive_run(struct admin_receive *list, const char *hint)
{
    uint64_t now = monotonic_ms(), next = UINT64_MAX;
    for (struct admin_receive *receive = list; receive != NULL; receive = receive->next) {
        if (receive->refused) {
            continue;
        }
        if (has_ended(receive)) {
            give_up(receive, ADMIN_MALFORMED, "The request ends inside its body.", hint);
        } else if (now >= receive->end_ms) {
            give_up(receive, ADMIN_TIMEOUT, "The request did not arrive in time.", hint);
        } else if (receive->ended) {
            next = now;
        } else if (receive->end_ms < next) {
            next = receive->end_ms;
        }
    }
    return next == UINT64_MAX ? -1 : (int)(next - now);
}
