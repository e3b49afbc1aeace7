/*
 * gateway/upstream_mail.c - mails: links to relays, and what is said on them (smtp_dialogue.c) in place of HTTP.
 *
 * libcurl greets the relay, starts TLS and logs in before it hands the link over. It would hand over the mail too, but
 * holds the whole loop until the relay has answered the final dot, and does not tell which recipient was refused.
 *
 * A mail's call is CONNECTING to its request until the final dot: all before it counts for nothing, whatever becomes of
 * it. The last look falls right before the dot; a first one before anything of the mail is said.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "config/config.h"
#include "gateway/jsonout.h"
#include "gateway/mail.h"
#include "gateway/request.h"
#include "gateway/settings.h"
#include "gateway/upstream_int.h"

enum {
    MAILS_MAX = 100,      /* on one link; many relays allow no more */
    PIECE = 16384,        /* bytes sent at a time */
    PIECES_PER_TURN = 64, /* of one call: the others have their turn too */
    READS_PER_TURN = 8,
};

/* What the relay said while libcurl greeted it, and the dialogue of the mail under way. */
struct smtp_link {
    struct smtp_reply greeting;
    struct smtp_abilities abilities;
    bool after_220; /* the next reply is EHLO's */
    bool login_begun, logged_in;
    unsigned mails;
    struct smtp_dialogue dialogue;
};

/* ---- links to relays ---- */

/* A line of the relay's while libcurl greets it. libcurl itself would go on with HELO, or without a login. */
static size_t on_greeting_line(char *line, size_t size, size_t count, void *arg)
{
    struct smtp_link *smtp = arg;
    size_t len = size * count;
    if (smtp->greeting.done)
        smtp->greeting = (struct smtp_reply){0};
    smtp_reply_feed(&smtp->greeting, line, len);
    if (smtp->greeting.nonsense)
        return 0;
    unsigned code = smtp->greeting.code;
    if (smtp->after_220 && code / 100 == 2)
        smtp_learn_ability(&smtp->abilities, line, len);
    if (!smtp->greeting.done)
        return len;
    bool ehlo_refused = smtp->after_220 && code / 100 != 2;
    smtp->after_220 = code == 220;
    if (code == 220) { /* TLS begins: what was said before counts for nothing */
        smtp->abilities = (struct smtp_abilities){0};
        smtp->login_begun = smtp->logged_in = false;
    }
    smtp->login_begun = smtp->login_begun || code == 334; /* libcurl never sends a password without being asked */
    smtp->logged_in = smtp->logged_in || (code == 235 && smtp->login_begun);
    return ehlo_refused ? 0 : len;
}

bool mail_link_is_tls(const struct config_route *route)
{
    return route->smtp.starttls || strncmp(route->upstream_origin, "smtps:", 6) == 0;
}

bool mail_link_set_up(struct link *link)
{
    CURL *easy = link->easy;
    const struct config_smtp *smtp = &link->route->smtp;
    CURLcode bad = CURLE_OK;
    char url[600];
    link->smtp = calloc(1, sizeof *link->smtp);
    if (link->smtp == NULL)
        return false;
    snprintf(url, sizeof url, "%s/%s", link->origin, smtp->hello_name == NULL ? "" : smtp->hello_name);
#define SET(option, value) (bad = bad != CURLE_OK ? bad : curl_easy_setopt(easy, CURLOPT_##option, value))
    SET(URL, url);
    SET(HEADERFUNCTION, on_greeting_line);
    SET(HEADERDATA, link->smtp);
    SET(USE_SSL, (long)(smtp->starttls ? CURLUSESSL_ALL : CURLUSESSL_NONE));
    SET(TIMEOUT_MS, (long)link->route->connect_timeout_ms); /* CONNECTTIMEOUT ends with the connection */
    if (smtp->username != NULL) {
        SET(USERNAME, smtp->username);
        SET(PASSWORD, smtp->password);
        SET(LOGIN_OPTIONS, "AUTH=PLAIN;AUTH=LOGIN;AUTH=CRAM-MD5"); /* others ask a Kerberos server, and block */
    }
#undef SET
    return bad == CURLE_OK;
}

/* For the answer nobody waits. Inside a message it would be a line of it. */
void mail_link_good_bye(struct link *link)
{
    size_t sent;
    bool between = link->call == NULL || smtp_may_quit(&link->smtp->dialogue);
    if (link->fd >= 0 && between)
        (void)link_send(link, "QUIT\r\n", 6, &sent);
}

/* ---- how a call ends ---- */

/* What the relay said to the dot is the answer: made here, it goes the way of any partner's. */
static void give_answer(struct call *call)
{
    static const char type[] = "Content-Type: application/json";
    const struct smtp_dialogue *dialogue = &call->link->smtp->dialogue;
    struct reply *reply = &call->request->reply;
    struct jsonout body = {0};
    smtp_answer_write(dialogue, &body);
    bool whole =
        reply_field_line(reply, type, sizeof type - 1) && !body.failed && reply_body_add(reply, body.text, body.len);
    (void)whole; /* no memory: the status says it all the same */
    jsonout_free(&body);
    reply->length = reply_body_waiting(reply);
    reply->status = 202;
    reply->head_done = reply->has_length = true;
    call_touch(call);
}

static void keep_link(struct call *call)
{
    link_watch(call->link, EPOLLIN | EPOLLRDHUP);
    link_put(call->link);
    call->link = NULL;
}

/* The link stays if it is good for more. */
static void end_call(struct call *call, enum call_end end, const char *detail)
{
    struct smtp_link *smtp = call->link->smtp;
    if (smtp_reusable(&smtp->dialogue) && ++smtp->mails < MAILS_MAX)
        keep_link(call);
    call_finish(call, end, detail);
}

static void conclude(struct call *call)
{
    const struct smtp_dialogue *dialogue = &call->link->smtp->dialogue;
    struct request *request = call->request;
    enum smtp_outcome outcome = dialogue->outcome;
    char brief[sizeof call->detail];
    smtp_explain_briefly(dialogue, brief, sizeof brief);
    if (outcome == SMTP_NONSENSE || outcome == SMTP_GOING) {
        call_break(call, brief);
        return;
    }
    request->reply.partner_status = smtp_code(dialogue);
    if (outcome == SMTP_TAKEN) {
        give_answer(call);
        end_call(call, CALL_OK, NULL);
        return;
    }
    char *whole = arena_alloc(&request->arena, SMTP_TEXT_MAX + 128);
    if (whole != NULL)
        smtp_explain(dialogue, whole, SMTP_TEXT_MAX + 128);
    request->answer_detail = whole;
    request->answer_detail_of = outcome == SMTP_REFUSED ? REASON_MESSAGE_REFUSED : REASON_RELAY_BUSY;
    end_call(call, outcome == SMTP_REFUSED ? CALL_REFUSED : CALL_BUSY, brief);
}

/* What a relay says to a login can hold the name or more: its code is told, not its words. */
static void quote(const struct smtp_link *smtp, const char *what, char *out, size_t cap)
{
    if (smtp->login_begun)
        snprintf(out, cap, "%s: %u.", what, smtp->greeting.code);
    else
        snprintf(out, cap, "%s: %.120s", what, smtp->greeting.text);
}

bool mail_unconnected(struct call *call)
{
    const struct smtp_link *smtp = call->link->smtp;
    char text[sizeof call->detail];
    if (smtp->greeting.nonsense) {
        call_finish(call, CALL_UNREACHABLE, "What the relay says is no SMTP.");
        return true;
    }
    if (!smtp->greeting.done || smtp->greeting.code < 400)
        return false;
    bool busy = smtp->greeting.code < 500;
    quote(smtp, busy ? "The relay is not ready" : "The relay refused the session", text, sizeof text);
    call->request->reply.partner_status = smtp->greeting.code;
    call_finish(call, busy ? CALL_BUSY : CALL_UNREACHABLE, text);
    return true;
}

/* ---- the dialogue ---- */

/* The kernel took nothing of the dot: the mail is not with the relay. False: the call has ended. */
static bool take_back_dot(struct call *call)
{
    smtp_take_back_dot(&call->link->smtp->dialogue);
    if (request_take_back(call->request))
        return true;
    call_finish(call, CALL_UNREACHABLE, NULL);
    return false;
}

/* False: the call has ended, or waits for room to send. */
static bool send_some(struct call *call)
{
    struct smtp_dialogue *dialogue = &call->link->smtp->dialogue;
    const char *data;
    size_t sent, len = smtp_output(dialogue, &data);
    enum link_io io = link_send(call->link, data, len < PIECE ? len : PIECE, &sent);
    if (io == LINK_OK) {
        smtp_was_sent(dialogue, sent);
        return true;
    }
    if (dialogue->step == SMTP_DOT && !call->link->taken && !take_back_dot(call))
        return false;
    if (io == LINK_AGAIN)
        link_watch_needed(call->link);
    else
        call_break(call, "The connection to the relay was lost.");
    return false;
}

/* Nothing comes between the look and the dot. What the relay has said by now is known. As send_some(). */
static bool look_and_send_dot(struct call *call)
{
    if (!link_may_send(call->link)) {
        link_watch_needed(call->link);
        return false;
    }
    if (!request_last_look(call->request)) {
        call_finish(call, CALL_UNREACHABLE, NULL);
        return false;
    }
    link_expect(call->link);
    smtp_send_dot(&call->link->smtp->dialogue);
    return send_some(call);
}

/* Takes what the relay has said by now. False: the call has ended, or there is more than is read in one turn. */
static bool read_all(struct call *call)
{
    struct upstream *upstream = call->upstream;
    for (int i = 0; i < READS_PER_TURN; i++) {
        size_t got;
        switch (link_recv(call->link, upstream->scratch, READ_BYTES, &got)) {
        case LINK_AGAIN: return true;
        case LINK_OK: break;
        case LINK_CLOSED:
        case LINK_FAILED: call_break(call, "The relay closed the connection."); return false;
        }
        smtp_input(&call->link->smtp->dialogue, upstream->scratch, got);
        if (call->link->smtp->dialogue.outcome != SMTP_GOING) {
            conclude(call);
            return false;
        }
    }
    call_make_hungry(call);
    return false;
}

void mail_talk(struct call *call)
{
    struct smtp_dialogue *dialogue = &call->link->smtp->dialogue;
    const char *data;
    for (int i = 0; i < PIECES_PER_TURN; i++) {
        if (!read_all(call))
            return;
        if (smtp_wants_look(dialogue)) {
            if (!look_and_send_dot(call))
                return;
        } else if (smtp_output(dialogue, &data) == 0) {
            link_watch_needed(call->link);
            return;
        } else if (!send_some(call)) {
            return;
        }
    }
    call_make_hungry(call);
}

void mail_begin(struct call *call)
{
    struct request *request = call->request;
    struct smtp_link *smtp = call->link->smtp;
    if (call->link->route->smtp.username != NULL && !smtp->logged_in) {
        call_finish(call, CALL_UNREACHABLE,
                    "The relay offers no login that the gateway knows (PLAIN, LOGIN, CRAM-MD5).");
        return;
    }
    if (!request_first_look(request)) {
        keep_link(call); /* nothing was said on it */
        call_finish(call, CALL_UNREACHABLE, NULL);
        return;
    }
    call->step = CALL_EXCHANGING;
    smtp_begin(&smtp->dialogue, request->mail, &smtp->abilities, &request->arena);
    if (smtp->dialogue.outcome == SMTP_GOING)
        mail_talk(call);
    else
        conclude(call);
}
