/*
 * gateway/admin_body.c - reads the JSON bodies of admin calls. What they change is left to admin_operate.c.
 */
#include "gateway/admin_body.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/json_memory.h"
#include "config/units.h"
#include "gateway/token.h"

bool admin_content_type_json(const char *content_type)
{
    static const char wanted[] = "application/json";
    if (content_type == NULL) {
        return true;
    }
    size_t len = strcspn(content_type, "; \t");
    return len == sizeof wanted - 1 && strncasecmp(content_type, wanted, len) == 0;
}

static json_t *read_object(struct slice body, char *why, size_t why_cap)
{
    json_error_t error;
    if (!json_memory_open(body.len)) {
        snprintf(why, why_cap, "The gateway is out of memory.");
        return NULL;
    }
    json_t *object = json_loadb(body.data == NULL ? "" : body.data, body.len, JSON_REJECT_DUPLICATES, &error);
    if (object == NULL && (json_error_code(&error) == json_error_null_character ||
                           json_error_code(&error) == json_error_null_byte_in_key)) {
        snprintf(why, why_cap, "The body has a NUL (\\u0000) in a string.");
    } else if (object == NULL) {
        snprintf(why, why_cap, "The body is not valid JSON: %s.", error.text);
    } else if (!json_is_object(object)) {
        json_decref(object);
        object = NULL;
        snprintf(why, why_cap, "The body must be a JSON object.");
    }
    return object;
}

static bool known_members(json_t *object, const char *const *names, char *why, size_t why_cap)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        bool known = false;
        for (size_t i = 0; names[i] != NULL && !known; i++) {
            known = strcmp(names[i], name) == 0;
        }
        if (!known) {
            snprintf(why, why_cap, "The member \"%.40s\" is not known here.", name);
            return false;
        }
        if (!json_is_string(value)) {
            snprintf(why, why_cap, "%s must be a JSON string%s.", name,
                     strcmp(name, "token") == 0 ? " of digits: a number would be rounded by many JSON readers" : "");
            return false;
        }
    }
    return true;
}

/* The text of a member; "" when it is absent. */
static struct slice member(json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    return value == NULL ? (struct slice){NULL, 0}
                         : (struct slice){json_string_value(value), json_string_length(value)};
}

static void copy(char *out, struct slice text)
{
    if (text.len > 0) {
        memcpy(out, text.data, text.len);
    }
    out[text.len] = '\0';
}

static const char *take_raise(json_t *object, struct admin_raise *out)
{
    struct slice token = member(object, "token"), reason = member(object, "reason"), wait = member(object, "wait");
    if (!token_parse(token.data == NULL ? "" : token.data, token.len, &out->token)) {
        return "token must be a string of 1 to 20 digits with a value from 1 to 18446744073709551615.";
    }
    if (reason.data != NULL && (reason.len > ADMIN_REASON_MAX || !key_valid(reason.data, reason.len))) {
        return "reason must be 1 to 255 bytes of UTF-8 without control characters.";
    }
    copy(out->reason, reason);
    out->wait_ms = 0;
    if (wait.data != NULL &&
        (!conf_parse_units(wait.data, conf_duration_units, &out->wait_ms) || out->wait_ms > ADMIN_WAIT_MAX_MS)) {
        return "wait must be a duration such as 30s, at most 1h.";
    }
    return NULL;
}

static const char *take_resolution(json_t *object, struct admin_resolution *out)
{
    struct slice outcome = member(object, "outcome"), note = member(object, "note");
    out->sent = outcome.data != NULL && strcmp(outcome.data, "sent") == 0;
    if (!out->sent && (outcome.data == NULL || strcmp(outcome.data, "not-sent") != 0)) {
        return "outcome must be \"sent\" or \"not-sent\".";
    }
    if (note.len == 0 || note.len > ADMIN_NOTE_MAX) {
        return "note must say, in 1 to 4096 bytes, how that is known.";
    }
    copy(out->note, note);
    return NULL;
}

bool admin_body_raise(struct slice body, struct admin_raise *out, char *why, size_t why_cap)
{
    static const char *const names[] = {"token", "reason", "wait", NULL};
    json_t *object = read_object(body, why, why_cap);
    bool ok = object != NULL && known_members(object, names, why, why_cap);
    const char *wrong = ok ? take_raise(object, out) : NULL;
    if (wrong != NULL) {
        snprintf(why, why_cap, "%s", wrong);
    }
    json_decref(object);
    json_memory_close();
    return ok && wrong == NULL;
}

bool admin_body_resolve(struct slice body, struct admin_resolution *out, char *why, size_t why_cap)
{
    static const char *const names[] = {"outcome", "note", NULL};
    json_t *object = read_object(body, why, why_cap);
    bool ok = object != NULL && known_members(object, names, why, why_cap);
    const char *wrong = ok ? take_resolution(object, out) : NULL;
    if (wrong != NULL) {
        snprintf(why, why_cap, "%s", wrong);
    }
    json_decref(object);
    json_memory_close();
    return ok && wrong == NULL;
}
