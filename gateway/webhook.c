/*
 * gateway/webhook.c - a webhook's target, id and signature, from the request's head to the moment of sending.
 *
 * Leaves to others: how a URL is read (webhook_target.c), where its address leads (address_rule.c, on the socket that
 * upstream.c opens), the signature itself (webhook_signature.c).
 */
#include "gateway/webhook.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "config/config.h"
#include "gateway/headers.h"
#include "gateway/request.h"
#include "gateway/settings.h"
#include "gateway/webhook_signature.h"

enum {
    ID_MAX = 255,
    ID_RANDOM = 16,
    SIGNED_PER_TURN = 256 * 1024 /* bytes hashed for one call, all secrets together: the others have their turn too */
};

static const char id_name[] = "webhook-id", timestamp_name[] = "webhook-timestamp",
                  signature_name[] = "webhook-signature";

static const struct config_route *route_of(const struct request *request)
{
    return request->route->config;
}

/* The one field of that name; NULL when there is none or more, *found says how many. */
static const struct header_field *only(const struct header_field *fields, size_t count, const char *name, size_t *found)
{
    const struct header_field *field = NULL;
    *found = 0;
    for (size_t i = 0; i < count; i++)
        if (header_is(&fields[i], name) && (*found)++ == 0)
            field = &fields[i];
    return *found == 1 ? field : NULL;
}

/* ---- from the head ---- */

static bool read_target(struct request *request, struct webhook *hook, const struct header_field *fields, size_t count)
{
    size_t found;
    const struct header_field *field = only(fields, count, "Fencegate-Target", &found);
    hook->parts = (struct target){.path = "/", .path_len = 1};
    if (field == NULL) {
        hook->problem = found == 0 ? "The request names no target: Fencegate-Target is missing."
                                   : "The request names more than one target: Fencegate-Target must be given once.";
        return true;
    }
    struct header_field value = *field;
    header_trim(&value);
    char *text = arena_copy(&request->arena, value.value, value.value_len);
    struct webhook_target target;
    if (text == NULL)
        return false;
    hook->problem = webhook_target_parse(text, value.value_len, &target);
    if (hook->problem != NULL)
        return true;
    hook->parts = target.parts;
    webhook_target_origin(&target, hook->origin);
    hook->problem = webhook_target_problem(&route_of(request)->webhook, &target);
    return true;
}

static const char *id_problem(const struct header_field *id)
{
    if (id->value_len < 1 || id->value_len > ID_MAX)
        return "Webhook-Id is empty or longer than 255 bytes.";
    for (size_t i = 0; i < id->value_len; i++)
        if (id->value[i] <= 0x20 || id->value[i] >= 0x7F || id->value[i] == '.')
            return "Webhook-Id has a dot, or something else than visible ASCII.";
    return NULL;
}

static bool read_id(struct request *request, struct webhook *hook, const struct header_field *fields, size_t count)
{
    size_t found;
    const struct header_field *field = only(fields, count, id_name, &found);
    if (route_of(request)->webhook.secret_count == 0 || found == 0)
        return true;
    if (found > 1) {
        hook->id_problem = "Webhook-Id is given more than once.";
        return true;
    }
    struct header_field id = *field;
    header_trim(&id);
    hook->id_problem = id_problem(&id);
    hook->id = arena_copy(&request->arena, id.value, id.value_len);
    return hook->id != NULL;
}

bool webhook_read(struct request *request, const struct header_field *fields, size_t count)
{
    struct webhook *hook = arena_alloc(&request->arena, sizeof *hook);
    if (hook == NULL)
        return false;
    *hook = (struct webhook){0};
    request->webhook = hook;
    return read_target(request, hook, fields, count) && read_id(request, hook, fields, count);
}

bool webhook_holds_back(const struct config_route *route, const struct header_field *field)
{
    if (route->kind != ROUTE_WEBHOOK)
        return false;
    if (header_is(field, "Fencegate-Target"))
        return true;
    return route->webhook.secret_count > 0 &&
           (header_is(field, id_name) || header_is(field, timestamp_name) || header_is(field, signature_name));
}

const char webhook_refused_address[] =
    "The target's address is not a public one, and this route does not allow others (allow_private).";

enum reason webhook_judge(struct request *request)
{
    const struct webhook *hook = request->webhook;
    const char *problem = hook == NULL ? NULL : hook->problem != NULL ? hook->problem : hook->id_problem;
    if (problem == NULL)
        return REASON_NONE;
    snprintf(request->detail, sizeof request->detail, "%s", problem);
    return hook->problem != NULL ? REASON_TARGET_REFUSED : REASON_MALFORMED_REQUEST;
}

/* ---- the signature ---- */

/* Of a repeat by the same worker nothing is known here, so one without an effect record gets an id of its own. */
static const char *make_id(struct request *request)
{
    unsigned char bytes[ID_RANDOM];
    char text[8 + 2 * ID_RANDOM];
    int len = snprintf(text, sizeof text, "msg_%" PRIu64, request->effect_id);
    if (request->effect_id == 0) {
        if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
            return NULL;
        len = 4;
        for (size_t i = 0; i < sizeof bytes; i++)
            len += snprintf(text + len, sizeof text - (size_t)len, "%02x", bytes[i]);
    }
    return arena_copy(&request->arena, text, (size_t)len);
}

/* "name: " and room for a value of up to `room` bytes, which starts at lines' value(). */
static char *make_line(struct arena *arena, const char *name, const char *value, size_t room)
{
    size_t cap = strlen(name) + 2 + room + 1;
    char *line = arena_alloc(arena, cap);
    if (line != NULL)
        snprintf(line, cap, "%s: %s", name, value);
    return line;
}

bool webhook_prepare(struct request *request)
{
    struct webhook *hook = request->webhook;
    size_t secrets = route_of(request)->webhook.secret_count;
    if (hook == NULL || secrets == 0 || hook->lines[0] != NULL)
        return true;
    if (hook->id == NULL)
        hook->id = make_id(request);
    if (hook->id == NULL)
        return false;
    char *lines[WEBHOOK_LINES] = {
        make_line(&request->arena, id_name, hook->id, strlen(hook->id)),
        make_line(&request->arena, timestamp_name, "0", WEBHOOK_TIMESTAMP_MAX),
        make_line(&request->arena, signature_name, "0", WEBHOOK_SIGNATURE_LEN(secrets)),
    };
    for (size_t i = 0; i < WEBHOOK_LINES; i++)
        if (lines[i] == NULL)
            return false;
    memcpy(hook->lines, lines, sizeof lines);
    return true;
}

static char *value_of(char *line)
{
    return strchr(line, ' ') + 1;
}

static bool begin_signing(struct request *request)
{
    struct webhook *hook = request->webhook;
    const struct config_webhook *rules = &route_of(request)->webhook;
    char *timestamp = value_of(hook->lines[1]);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now); /* time() may be some milliseconds late, and so a second */
    snprintf(timestamp, WEBHOOK_TIMESTAMP_MAX + 1, "%" PRId64, (int64_t)now.tv_sec);
    hook->signing = webhook_signing_begin(rules->secrets, rules->secret_count, hook->id, timestamp);
    hook->signed_len = 0;
    return hook->signing != NULL;
}

enum webhook_step webhook_sign_some(struct request *request)
{
    struct webhook *hook = request->webhook;
    if (hook == NULL || hook->lines[0] == NULL)
        return WEBHOOK_SIGNED;
    if (hook->signing == NULL && !begin_signing(request))
        return WEBHOOK_NO_MEMORY;
    size_t left = request->body_len - hook->signed_len,
           slice = SIGNED_PER_TURN / route_of(request)->webhook.secret_count;
    if (left > slice)
        left = slice;
    bool ok = left == 0 || webhook_signing_add(hook->signing, request->body + hook->signed_len, left);
    hook->signed_len += left;
    if (ok && hook->signed_len < request->body_len)
        return WEBHOOK_MORE;
    ok = ok && webhook_signing_end(hook->signing, value_of(hook->lines[2]));
    webhook_signing_free(&hook->signing);
    return ok ? WEBHOOK_SIGNED : WEBHOOK_NO_MEMORY;
}

bool webhook_is_signing(const struct request *request)
{
    return request->webhook != NULL && request->webhook->signing != NULL;
}

void webhook_stop_signing(struct request *request)
{
    if (request->webhook != NULL)
        webhook_signing_free(&request->webhook->signing);
}
