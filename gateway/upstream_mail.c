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

/* What the next reply answers while libcurl greets the relay. */
enum stage { STAGE_GREETING, STAGE_EHLO, STAGE_STARTTLS, STAGE_LOGIN };

/* What the relay said while libcurl greeted it, and the dialogue of the mail under way. */
struct smtp_link {
    CURL *easy; /* the link's, while it is being made */
    enum stage stage;
    struct smtp_reply greeting;
    struct smtp_abilities abilities;
    bool starttls, tls; /* wanted; begun */
    size_t way;         /* of `ways` */
    bool logged_in;
    unsigned mails;
    struct smtp_dialogue dialogue;
};

/* Relays differ in what they make of AUTH: some take the response only with the command (RFC 4954's initial response),
 * some only when they have asked for it, some offer what they then refuse. So one way is tried after the other, each on
 * a connection of its own, as long as the relay says that it does not know the way (501, 504, or a question where it
 * should have judged). libcurl prefers CRAM-MD5, then PLAIN. Other mechanisms ask a Kerberos server, and block. */
static const struct {
    const char *mechanisms;
    bool initial; /* PLAIN with the initial response */
} ways[] = {
    {"AUTH=PLAIN;AUTH=LOGIN;AUTH=CRAM-MD5", true},
    {"AUTH=PLAIN;AUTH=LOGIN", true}, /* it offers CRAM-MD5 and does not know it */
    {"AUTH=PLAIN;AUTH=LOGIN", false},
    {"AUTH=LOGIN", false},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

/* The next way that makes a difference with a relay that offers this; WAYS: none. */
static size_t next_way(size_t way, const struct smtp_abilities *offered)
{
    switch (way) {
    case 0:
        if (offered->cram_md5)
            return 1;
        /* fall through */
    case 1: return offered->plain ? 2 : WAYS;
    case 2: return offered->login ? 3 : WAYS;
    default: return WAYS;
    }
}

/* ---- links to relays ---- */

static void on_offer(struct smtp_link *smtp)
{
    bool plain = smtp->abilities.plain && (smtp->way > 0 || !smtp->abilities.cram_md5);
    /* Not with LOGIN: a relay that does not expect it asks for the name, and would get the password for one. */
    curl_easy_setopt(smtp->easy, CURLOPT_SASL_IR, (long)(plain && ways[smtp->way].initial));
}

/* A whole reply. False: libcurl would go on, with HELO or another's greeting, and must not. */
static bool on_greeting_reply(struct smtp_link *smtp)
{
    unsigned code = smtp->greeting.code;
    switch (smtp->stage) {
    case STAGE_GREETING: smtp->stage = code == 220 ? STAGE_EHLO : STAGE_GREETING; return code == 220;
    case STAGE_EHLO:
        if (code / 100 != 2)
            return false;
        smtp->stage = smtp->starttls && !smtp->tls ? STAGE_STARTTLS : STAGE_LOGIN;
        on_offer(smtp);
        return true;
    case STAGE_STARTTLS:
        if (code == 220) { /* what was said before TLS counts for nothing */
            smtp->abilities = (struct smtp_abilities){0};
            smtp->tls = true;
            smtp->stage = STAGE_EHLO;
        }
        return true;
    case STAGE_LOGIN:
        smtp->logged_in = smtp->logged_in || (code == 235 && smtp_offers_login(&smtp->abilities));
        return true;
    }
    return false;
}

/* A line of the relay's while libcurl greets it. */
static size_t on_greeting_line(char *line, size_t size, size_t count, void *arg)
{
    struct smtp_link *smtp = arg;
    size_t len = size * count;
    if (smtp->greeting.done)
        smtp->greeting = (struct smtp_reply){0};
    smtp_reply_feed(&smtp->greeting, line, len);
    if (smtp->greeting.nonsense)
        return 0;
    if (smtp->stage == STAGE_EHLO && smtp->greeting.code / 100 == 2)
        smtp_learn_ability(&smtp->abilities, line, len);
    return !smtp->greeting.done || on_greeting_reply(smtp) ? len : 0;
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
    link->smtp->easy = easy;
    link->smtp->starttls = smtp->starttls && strncmp(link->origin, "smtps:", 6) != 0;
    snprintf(url, sizeof url, "%s/%s", link->origin, smtp->hello_name == NULL ? "" : smtp->hello_name);
#define SET(option, value) (bad = bad != CURLE_OK ? bad : curl_easy_setopt(easy, CURLOPT_##option, value))
    SET(URL, url);
    SET(HEADERFUNCTION, on_greeting_line);
    SET(HEADERDATA, link->smtp);
    SET(USE_SSL, (long)(smtp->starttls ? CURLUSESSL_ALL : CURLUSESSL_NONE));
    if (smtp->username != NULL) {
        SET(USERNAME, smtp->username);
        SET(PASSWORD, smtp->password);
        SET(LOGIN_OPTIONS, ways[0].mechanisms);
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

/* Begins again with another way to log in. False: there is none, or no time for it. */
static bool log_in_otherwise(struct call *call)
{
    struct link *link = call->link;
    struct smtp_link *smtp = link->smtp;
    CURLM *multi = link->upstream->multi;
    uint64_t gone_ms = link->upstream->worker->now_ms - link->born_ms;
    size_t way = next_way(smtp->way, &smtp->abilities);
    if (way == WAYS || gone_ms >= link->route->connect_timeout_ms)
        return false;
    *smtp = (struct smtp_link){.easy = smtp->easy, .starttls = smtp->starttls, .way = way};
    curl_multi_remove_handle(multi, link->easy);
    if (curl_easy_setopt(link->easy, CURLOPT_LOGIN_OPTIONS, ways[way].mechanisms) != CURLE_OK ||
        !link_limit_connect(link, link->route->connect_timeout_ms - gone_ms) ||
        curl_multi_add_handle(multi, link->easy) != CURLM_OK)
        call_out_of_memory(call);
    return true;
}

static bool is_unknown_way(unsigned code)
{
    return code == 334 || code == 501 || code == 504;
}

static const char *what_was_refused(const struct smtp_link *smtp)
{
    unsigned code = smtp->greeting.code;
    switch (smtp->stage) {
    case STAGE_GREETING: return code < 400 ? "The relay's greeting is not 220" : "The relay takes no connection";
    case STAGE_EHLO: return "The relay refused EHLO";
    case STAGE_STARTTLS: return "The relay refused STARTTLS";
    case STAGE_LOGIN: break;
    }
    if (code == 535)
        return "The relay refused user name or password";
    return is_unknown_way(code) ? "The relay took none of the ways to log in that it offers and the gateway knows"
                                : "The relay refused the login";
}

bool mail_unconnected(struct call *call, CURLcode result)
{
    const struct smtp_link *smtp = call->link->smtp;
    unsigned code = smtp->greeting.code;
    char text[sizeof call->detail];
    if (smtp->greeting.nonsense) {
        call_finish(call, CALL_UNREACHABLE, "What the relay says is no SMTP.");
        return true;
    }
    bool denied = smtp->stage == STAGE_LOGIN && result == CURLE_LOGIN_DENIED;
    bool odd = smtp->stage == STAGE_EHLO && code >= 300;
    if (!smtp->greeting.done || (code < 400 && smtp->stage != STAGE_GREETING && !denied && !odd)) {
        if (result != CURLE_RECV_ERROR)
            return false;
        call_finish(call, CALL_UNREACHABLE, "The connection to the relay was lost before it was ready for mails.");
        return true;
    }
    if (denied && is_unknown_way(code) && log_in_otherwise(call))
        return true;
    bool busy = code >= 400 && code < 500;
    const char *what = busy ? "The relay is not ready" : what_was_refused(smtp);
    /* What a relay says to a login can hold the name or more: its code is told, not its words. */
    if (smtp->stage == STAGE_LOGIN)
        snprintf(text, sizeof text, "%s: %u.", what, code);
    else
        snprintf(text, sizeof text, "%s: %.*s", what, (int)(sizeof text - strlen(what) - 3), smtp->greeting.text);
    call->request->reply.partner_status = code;
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
