/* gateway/mail_request.c - what a request on a mail route must look like, and its message in place of its body. */
#include "gateway/mail_request.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "config/config.h"
#include "gateway/headers.h"
#include "gateway/mail.h"
#include "gateway/request.h"
#include "gateway/settings.h"
#include "gateway/worker.h"

/* A field given once; `doubled` when there is more than one line of it. */
struct mail_field {
    const char *value; /* in the arena; NULL: absent */
    bool doubled;
};

struct mail_request {
    struct mail_field content_type, content_encoding, from, to;
};

bool mail_request_take_head(struct request *request, const struct header_field *fields, size_t count)
{
    struct mail_request *mail = arena_alloc(&request->arena, sizeof *mail);
    if (mail == NULL)
        return false;
    *mail = (struct mail_request){0};
    struct {
        const char *name;
        struct mail_field *field;
    } wanted[] = {
        {"Content-Type", &mail->content_type},
        {"Content-Encoding", &mail->content_encoding},
        {"Envelope-From", &mail->from},
        {"Envelope-To", &mail->to},
    };
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < sizeof wanted / sizeof wanted[0]; j++) {
            if (!header_is(&fields[i], wanted[j].name))
                continue;
            wanted[j].field->doubled = wanted[j].field->value != NULL;
            wanted[j].field->value = arena_copy(&request->arena, fields[i].value, fields[i].value_len);
            if (wanted[j].field->value == NULL)
                return false;
        }
    }
    request->mail_request = mail;
    return true;
}

static enum reason malformed(struct request *request, const char *what)
{
    snprintf(request->detail, sizeof request->detail, "%s", what);
    return REASON_MALFORMED_MESSAGE;
}

static enum reason no_memory(struct request *request)
{
    snprintf(request->detail, sizeof request->detail, "The gateway is out of memory.");
    return REASON_OVERLOADED;
}

static bool is_type(const char *value, const char *type)
{
    size_t len = strcspn(value, "; \t");
    return len == strlen(type) && strncasecmp(value, type, len) == 0;
}

static bool fill_random(unsigned char *out, size_t len)
{
    size_t got = 0;
    while (got < len) {
        ssize_t more = getrandom(out + got, len - got, 0);
        if (more < 0 && errno != EINTR)
            return false;
        got += more > 0 ? (size_t)more : 0;
    }
    return true;
}

static enum mail_result make(struct request *request, bool raw, struct mail *mail, char why[MAIL_WHY])
{
    const struct mail_request *head = request->mail_request;
    const char *body = request->body_len == 0 ? "" : request->body;
    struct mail_stamp stamp = {.now_ms = realtime_ms(), .id_domain = request->route->config->smtp.message_id_domain};
    if (raw)
        return mail_take_raw(&request->arena, body, request->body_len, head->from.value, head->to.value, mail, why);
    if (!fill_random(stamp.random, sizeof stamp.random))
        return MAIL_NO_MEMORY;
    return mail_compose(&request->arena, body, request->body_len, &stamp, mail, why);
}

/* What is kept from now on is the message, and it counts against limits.buffered as the body did. */
static void replace_body(struct request *request, const struct mail *mail)
{
    request_body_free(request);
    request->body = mail->data;
    request->body_len = request->body_cap = mail->len;
    atomic_fetch_add_explicit(&request->worker->gateway->buffered, mail->len, memory_order_relaxed);
}

static bool is_raw(const struct mail_request *head)
{
    return is_type(head->content_type.value, "message/rfc822");
}

enum reason mail_request_judge_head(struct request *request)
{
    const struct mail_request *head = request->mail_request;
    if (head == NULL)
        return REASON_NONE;
    if (strcmp(request->method, "POST") != 0)
        return REASON_METHOD_NOT_ALLOWED;
    if (head->content_type.value == NULL || head->content_type.doubled)
        return malformed(request, "One Content-Type is needed: application/json or message/rfc822.");
    bool raw = is_raw(head);
    if (!raw && !is_type(head->content_type.value, "application/json"))
        return malformed(request, "The content type must be application/json or message/rfc822.");
    const struct mail_field *encoding = &head->content_encoding;
    if (encoding->value != NULL && (encoding->doubled || strcasecmp(encoding->value, "identity") != 0))
        return malformed(request, "A message with a Content-Encoding is not taken.");
    const struct mail_field *from = &head->from, *to = &head->to;
    if (raw && (from->value == NULL || from->doubled || to->value == NULL || to->doubled))
        return malformed(request, "A message/rfc822 body needs Envelope-From and Envelope-To, once each.");
    return REASON_NONE;
}

enum reason mail_request_judge(struct request *request)
{
    char why[MAIL_WHY];
    enum reason reason = mail_request_judge_head(request);
    if (request->mail_request == NULL || request->mail != NULL || reason != REASON_NONE)
        return reason;
    struct mail *mail = arena_alloc(&request->arena, sizeof *mail);
    if (mail == NULL)
        return no_memory(request);
    switch (make(request, is_raw(request->mail_request), mail, why)) {
    case MAIL_OK: break;
    case MAIL_MALFORMED:
        if (mail->unknown != NULL)
            request_tell_client(request, REASON_MALFORMED_MESSAGE, "\"%s\" is no member of a mail. %s", mail->unknown,
                                why);
        return malformed(request, why);
    case MAIL_NO_MEMORY: return no_memory(request);
    }
    replace_body(request, mail);
    request->mail = mail;
    return REASON_NONE;
}
