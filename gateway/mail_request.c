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
#include "gateway/composer.h"
#include "gateway/headers.h"
#include "gateway/mail.h"
#include "gateway/request_int.h"
#include "gateway/settings.h"
#include "gateway/worker.h"

enum { INLINE_MAX = 32 << 10 }; /* bytes of a body: larger ones would hold the worker's loop for more than 0.3 ms */

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

/* What a mail is made from and what came of it. */
struct mail_making {
    struct arena *arena;
    const char *body;
    size_t body_len;
    bool raw;
    const char *from, *to; /* of a raw one */
    struct mail_stamp stamp;
    struct mail *mail;
    enum mail_result result;
    char why[MAIL_WHY];
};

/* A mail on its way through the composer. */
struct mail_job {
    struct composer_job job; /* first: a pointer to it is a pointer to this */
    struct request *request;
    struct arena arena; /* of the mail: the request's is the worker's */
    struct mail mail;
    struct mail_making making;
};

static void make(struct mail_making *making)
{
    if (making->raw)
        making->result = mail_take_raw(making->arena, making->body, making->body_len, making->from, making->to,
                                       making->mail, making->why);
    else if (fill_random(making->stamp.random, sizeof making->stamp.random))
        making->result =
            mail_compose(making->arena, making->body, making->body_len, &making->stamp, making->mail, making->why);
    else
        making->result = MAIL_NO_MEMORY;
}

static struct mail_making making_of(const struct request *request, struct arena *arena, struct mail *mail)
{
    const struct mail_request *head = request->mail_request;
    return (struct mail_making){
        .arena = arena,
        .body = request->body_len == 0 ? "" : request->body,
        .body_len = request->body_len,
        .raw = is_type(head->content_type.value, "message/rfc822"),
        .from = head->from.value,
        .to = head->to.value,
        .stamp = {.now_ms = realtime_ms(), .id_domain = request->route->config->smtp.message_id_domain},
        .mail = mail,
    };
}

/* What is kept from now on is the message, and it counts against limits.buffered as the body did. */
static void replace_body(struct request *request, const struct mail *mail)
{
    request_body_free(request);
    request->body = mail->data;
    request->body_len = request->body_cap = mail->len;
    atomic_fetch_add_explicit(&request->worker->gateway->buffered, mail->len, memory_order_relaxed);
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
    bool raw = is_type(head->content_type.value, "message/rfc822");
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

static enum reason take(struct request *request, const struct mail_making *making)
{
    switch (making->result) {
    case MAIL_OK: break;
    case MAIL_MALFORMED:
        if (making->mail->unknown != NULL)
            request_tell_client(request, REASON_MALFORMED_MESSAGE, "%s It is \"%s\".", making->why,
                                making->mail->unknown);
        return malformed(request, making->why);
    case MAIL_NO_MEMORY: return no_memory(request);
    }
    replace_body(request, making->mail);
    request->mail = making->mail;
    return REASON_NONE;
}

enum reason mail_request_judge(struct request *request)
{
    enum reason reason = mail_request_judge_head(request);
    if (request->mail_request == NULL || request->mail != NULL || reason != REASON_NONE)
        return reason;
    struct mail *mail = arena_alloc(&request->arena, sizeof *mail);
    if (mail == NULL)
        return no_memory(request);
    struct mail_making making = making_of(request, &request->arena, mail);
    make(&making);
    return take(request, &making);
}

/* ---- on another thread ---- */

static void work(struct composer_job *job) /* composer's thread */
{
    struct mail_job *mine = (struct mail_job *)job;
    if (!atomic_load(&mine->request->worker->gateway->shutting_down)) /* refused anyway: not worth the time */
        make(&mine->making);
}

static void come_home(struct inbox_item *item)
{
    struct mail_job *mine = (struct mail_job *)((char *)item - offsetof(struct mail_job, job.item));
    request_composed(mine->request);
}

bool mail_request_begin(struct request *request)
{
    struct worker *worker = request->worker;
    if (request->mail_request == NULL || request->mail != NULL || request->body_len <= INLINE_MAX ||
        mail_request_judge_head(request) != REASON_NONE)
        return false;
    struct mail_job *job = calloc(1, sizeof *job);
    if (job == NULL)
        return false;
    job->job = (struct composer_job){.work = work, .home = &worker->inbox, .item = {.run = come_home}};
    job->request = request;
    arena_init(&job->arena);
    job->making = making_of(request, &job->arena, &job->mail);
    job->making.result = MAIL_NO_MEMORY; /* until it is made */
    request->mail_job = job;
    if (composer_submit(worker->gateway->composer, &job->job))
        return true;
    mail_request_free(request);
    return false;
}

enum reason mail_request_end(struct request *request)
{
    return take(request, &request->mail_job->making);
}

void mail_request_free(struct request *request)
{
    struct mail_job *job = request->mail_job;
    request->mail_job = NULL;
    if (job == NULL)
        return;
    if (request->mail != &job->mail) /* made, and never taken */
        free(job->mail.data);
    arena_free(&job->arena);
    free(job);
}
