/*
 * gateway/inbound_send.c - hands an answer's bytes to the kernel, in as few calls as it takes them in, and keeps what
 * it does not take.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include "config/config.h"
#include "gateway/inbound_int.h"
#include "gateway/request.h"
#include "gateway/settings.h"
#include "gateway/upstream.h"

enum { PARTS_MAX = 4 };

struct parts {
    struct iovec part[PARTS_MAX];
    size_t count, bytes;
};

static void add(struct parts *parts, const char *data, size_t len)
{
    if (len == 0)
        return;
    parts->part[parts->count++] = (struct iovec){(void *)data, len};
    parts->bytes += len;
}

static struct parts gather(const struct connection *conn, struct slice first)
{
    struct parts parts = {.count = 0, .bytes = 0};
    add(&parts, conn->out + conn->out_at, conn->out_len - conn->out_at);
    add(&parts, first.data, first.len);
    if (conn->piece > 0)
        add(&parts, reply_body_at(&conn->request->reply), conn->piece);
    add(&parts, conn->post.data, conn->post.len);
    return parts;
}

static size_t less(size_t *sent, size_t len)
{
    size_t taken = *sent < len ? *sent : len;
    *sent -= taken;
    return taken;
}

static void cut_front(struct slice *slice, size_t *sent)
{
    size_t taken = less(sent, slice->len);
    slice->data += taken;
    slice->len -= taken;
}

static void drop_out(struct connection *conn)
{
    free(conn->out);
    conn->out = NULL;
    conn->out_at = conn->out_len = 0;
}

/* `sent` bytes of what was gathered are gone. A partner that was held up may go on when half of what waited is. */
static void account(struct connection *conn, struct slice *first, size_t sent)
{
    conn->out_at += less(&sent, conn->out_len - conn->out_at);
    if (conn->out != NULL && conn->out_at == conn->out_len)
        drop_out(conn);
    cut_front(first, &sent);
    size_t of_piece = less(&sent, conn->piece);
    if (of_piece > 0) {
        struct reply *reply = &conn->request->reply;
        reply_body_drop(reply, of_piece);
        conn->piece -= of_piece;
        if (reply->paused && reply_body_waiting(reply) < REPLY_BODY_MAX / 2)
            upstream_resume(conn->request);
    }
    cut_front(&conn->post, &sent);
}

static bool keep(struct connection *conn, const struct slice *bytes)
{
    if (bytes->len == 0)
        return true;
    char *out = realloc(conn->out, conn->out_len + bytes->len);
    if (out == NULL)
        return false;
    memcpy(out + conn->out_len, bytes->data, bytes->len);
    conn->out = out;
    conn->out_len += bytes->len;
    return true;
}

bool connection_has_taken(struct connection *conn)
{
    int before = conn->unacked;
    return ioctl(conn->fd, SIOCOUTQ, &conn->unacked) == 0 && conn->unacked < before;
}

/* What lies in the worker's own buffers must go elsewhere. Of a partner's body nothing is copied: it waits where it
 * is, and holds up the partner. */
static void wait_for_room(struct connection *conn, const struct slice *first)
{
    bool kept = keep(conn, first);
    if (kept && conn->framing == FRAMING_MADE) {
        kept = keep(conn, &conn->post);
        conn->post = (struct slice){NULL, 0};
    }
    if (!kept) {
        conn->reset = true;
        connection_end(conn);
        return;
    }
    conn->blocked = true;
    (void)connection_has_taken(conn);
    struct worker *worker = conn->inbound->worker;
    if (conn->step != CONNECTION_LINGER) /* who takes nothing for so long is gone */
        connection_set_deadline(conn, worker->now_ms + worker->settings->config->idle_timeout_ms);
}

bool connection_send(struct connection *conn, struct slice first)
{
    if (conn->blocked) {
        wait_for_room(conn, &first);
        return false;
    }
    for (;;) {
        struct parts parts = gather(conn, first);
        if (parts.count == 0)
            return true;
        struct msghdr message = {.msg_iov = parts.part, .msg_iovlen = parts.count};
        ssize_t sent = sendmsg(conn->fd, &message, MSG_NOSIGNAL);
        if (sent >= 0) {
            account(conn, &first, (size_t)sent);
            if ((size_t)sent == parts.bytes)
                return true;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            wait_for_room(conn, &first);
            return false;
        } else if (errno != EINTR) {
            connection_end(conn);
            return false;
        }
    }
}
