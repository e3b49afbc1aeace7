/*
 * gateway/admin_query.c - what an admin call asks for, out of the bytes of its target.
 *
 * Strict on purpose: a filter that is silently ignored or half read shows an operator the wrong part of the audit.
 * Who may call and what is answered is left to the others (admin_guard.c, admin_calls.c).
 */
#include "gateway/admin_query.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "gateway/reason.h"
#include "gateway/timeparse.h"
#include "gateway/token.h"

#define NAMESPACE_BYTES_MAX 64

bool admin_target_split(char *target, struct admin_span *path, struct admin_span *query)
{
    for (const char *byte = target; *byte != '\0'; byte++) {
        if (*byte < 0x21 || *byte > 0x7e) {
            return false;
        }
    }
    char *start = target;
    if (strncasecmp(target, "http://", 7) == 0) {
        start += 7 + strcspn(target + 7, "/?");
    }
    if (*start != '/') {
        return false;
    }
    char *mark = strchr(start, '?');
    char *end = start + strlen(start);
    path->data = start;
    path->len = (size_t)((mark == NULL ? end : mark) - start);
    query->data = mark == NULL ? end : mark + 1;
    query->len = (size_t)(end - query->data);
    return true;
}

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    if (digit >= 'a' && digit <= 'f') {
        return digit - 'a' + 10;
    }
    if (digit >= 'A' && digit <= 'F') {
        return digit - 'A' + 10;
    }
    return -1;
}

bool admin_decode(struct admin_span *span, bool form)
{
    size_t to = 0;
    for (size_t from = 0; from < span->len; from++) {
        char byte = span->data[from];
        if (byte == '%') {
            int high = from + 2 < span->len ? hex_value(span->data[from + 1]) : -1;
            int low = from + 2 < span->len ? hex_value(span->data[from + 2]) : -1;
            if (high < 0 || low < 0) {
                return false;
            }
            byte = (char)(unsigned char)(high * 16 + low);
            from += 2;
        } else if (byte == '+' && form) {
            byte = ' ';
        }
        span->data[to++] = byte;
    }
    span->len = to;
    return true;
}

bool admin_path_match(const char *pattern, struct admin_span path, struct admin_span captured[ADMIN_CAPTURES])
{
    size_t at = 0, captures = 0;
    while (*pattern != '\0') {
        if (strncmp(pattern, "{}", 2) == 0 && captures < ADMIN_CAPTURES) {
            size_t start = at;
            while (at < path.len && path.data[at] != '/') {
                at++;
            }
            captured[captures++] = (struct admin_span){path.data + start, at - start};
            pattern += 2;
        } else if (at < path.len && path.data[at] == *pattern) {
            at++;
            pattern++;
        } else {
            return false;
        }
    }
    return at == path.len;
}

/* One "name=value". The name is shown as it came: admin_target_split() left only visible ASCII in it. */
static bool take_param(struct admin_span pair, struct admin_param *params, size_t count, char *why, size_t why_cap)
{
    char *equals = memchr(pair.data, '=', pair.len);
    size_t name_len = equals == NULL ? pair.len : (size_t)(equals - pair.data);
    int shown = name_len > 40 ? 40 : (int)name_len;
    struct admin_param *param = NULL;
    for (size_t i = 0; i < count && param == NULL; i++) {
        if (strlen(params[i].name) == name_len && memcmp(params[i].name, pair.data, name_len) == 0) {
            param = &params[i];
        }
    }
    if (param == NULL) {
        snprintf(why, why_cap, "The parameter \"%.*s\" is not known here.", shown, pair.data);
        return false;
    }
    if (param->value.data != NULL) {
        snprintf(why, why_cap, "The parameter \"%s\" comes twice.", param->name);
        return false;
    }
    struct admin_span value = {pair.data + name_len, 0};
    if (equals != NULL) {
        value = (struct admin_span){equals + 1, pair.len - name_len - 1};
    }
    if (!admin_decode(&value, true)) {
        snprintf(why, why_cap, "The parameter \"%s\" has a broken percent escape.", param->name);
        return false;
    }
    if (value.len == 0) {
        snprintf(why, why_cap, "The parameter \"%s\" has an empty value.", param->name);
        return false;
    }
    param->value = (struct slice){value.data, value.len};
    return true;
}

bool admin_params_parse(struct admin_span query, struct admin_param *params, size_t count, char *why, size_t why_cap)
{
    for (size_t i = 0; i < count; i++) {
        params[i].value = (struct slice){NULL, 0};
    }
    if (query.len == 0) {
        return true;
    }
    for (;;) {
        char *separator = memchr(query.data, '&', query.len);
        size_t len = separator == NULL ? query.len : (size_t)(separator - query.data);
        if (!take_param((struct admin_span){query.data, len}, params, count, why, why_cap)) {
            return false;
        }
        if (separator == NULL) {
            return true;
        }
        query = (struct admin_span){separator + 1, query.len - len - 1};
    }
}

bool admin_namespace_valid(struct slice text)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    if (text.len == 0 || text.len > NAMESPACE_BYTES_MAX) {
        return false;
    }
    for (size_t i = 0; i < text.len; i++) {
        if (memchr(allowed, text.data[i], sizeof allowed - 1) == NULL) {
            return false;
        }
    }
    return true;
}

static bool slice_is(struct slice text, const char *word)
{
    return text.len == strlen(word) && memcmp(text.data, word, text.len) == 0;
}

/* The readers below take an absent value (data NULL) as "leave the default"; false means a bad value. */

static bool read_text(struct slice value, struct slice *out)
{
    *out = value;
    return value.data == NULL || key_valid(value.data, value.len);
}

static bool read_time(struct slice value, uint64_t now_ms, uint64_t *out)
{
    return value.data == NULL || time_parse(value, now_ms, out);
}

/* 0 is taken: whoever follows the audit starts with it. */
static bool read_after(struct slice value, uint64_t *out)
{
    return value.data == NULL || slice_is(value, "0") || token_parse(value.data, value.len, out);
}

static bool read_id(struct slice value, uint64_t *out)
{
    return value.data == NULL || token_parse(value.data, value.len, out);
}

static bool read_limit(struct slice value, size_t *out)
{
    uint64_t number = ADMIN_LIMIT_DEFAULT;
    if (value.data != NULL && (!token_parse(value.data, value.len, &number) || number > ADMIN_LIMIT_MAX)) {
        return false;
    }
    *out = (size_t)number;
    return true;
}

static bool read_order(struct slice value, bool *descending)
{
    *descending = value.data != NULL && slice_is(value, "desc");
    return value.data == NULL || *descending || slice_is(value, "asc");
}

/* A reason of the gateway's own is one of a list; the words of an operator who raised or reset a fence are any. */
static bool read_reason(struct slice value, enum audit_kind kind, struct slice *out)
{
    bool words = value.data == NULL || kind == AUDIT_RAISED || kind == AUDIT_RESET;
    return read_text(value, out) && (words || reason_filter_plausible(value.data, value.len));
}

bool admin_audit_filter(struct admin_span query, uint64_t now_ms, struct audit_filter *out, char *why, size_t why_cap)
{
    enum { NS, KEY, KIND, REASON, ROUTE, SINCE, UNTIL, ID, EFFECT, AFTER, ORDER, LIMIT, COUNT };
    struct admin_param params[COUNT] = {
        [NS] = {.name = "namespace"},  [KEY] = {.name = "key"},     [KIND] = {.name = "kind"},
        [REASON] = {.name = "reason"}, [ROUTE] = {.name = "route"}, [SINCE] = {.name = "since"},
        [UNTIL] = {.name = "until"},   [ID] = {.name = "id"},       [EFFECT] = {.name = "effect_id"},
        [AFTER] = {.name = "after"},   [ORDER] = {.name = "order"}, [LIMIT] = {.name = "limit"},
    };
    if (!admin_params_parse(query, params, COUNT, why, why_cap)) {
        return false;
    }
    const char *wrong = NULL;
    memset(out, 0, sizeof *out);
    out->ns = params[NS].value;
    out->route = params[ROUTE].value;
    if (out->ns.data != NULL && !admin_namespace_valid(out->ns)) {
        wrong = "namespace must be 1 to 64 of A-Z a-z 0-9 . _ -";
    } else if (!read_text(params[KEY].value, &out->key)) {
        wrong = "key must be 1 to 255 bytes of UTF-8 without control characters";
    } else if (params[KIND].value.data != NULL && !audit_kind_parse(params[KIND].value, &out->kind)) {
        wrong = "kind must be dropped, rejected, sent, not-sent, unknown, raised, reset or resolved";
    } else if (!read_text(params[REASON].value, &out->reason)) {
        wrong = "reason must be 1 to 255 bytes of UTF-8 without control characters";
    } else if (!read_reason(params[REASON].value, out->kind, &out->reason)) {
        snprintf(why, why_cap,
                 "The parameter reason must be one of %s; or, with kind=raised or kind=reset, an operator's words.",
                 reason_list);
        return false;
    } else if (params[ROUTE].value.data != NULL && !admin_namespace_valid(params[ROUTE].value)) {
        wrong = "route must be a route's name, 1 to 64 of A-Z a-z 0-9 . _ -";
    } else if (!read_time(params[SINCE].value, now_ms, &out->since_ms)) {
        wrong = "since must be an RFC 3339 time (a + in it written as %2B), a date or an age such as 15m";
    } else if (!read_time(params[UNTIL].value, now_ms, &out->until_ms)) {
        wrong = "until must be an RFC 3339 time (a + in it written as %2B), a date or an age such as 15m";
    } else if (!read_id(params[ID].value, &out->id)) {
        wrong = "id must be the decimal id of a record";
    } else if (!read_id(params[EFFECT].value, &out->effect_id)) {
        wrong = "effect_id must be the decimal id of an effect";
    } else if (!read_after(params[AFTER].value, &out->after)) {
        wrong = "after must be the decimal id of a record";
    } else if (!read_order(params[ORDER].value, &out->descending)) {
        wrong = "order must be asc or desc";
    } else if (!read_limit(params[LIMIT].value, &out->limit)) {
        wrong = "limit must be 1 to 1000";
    }
    if (wrong != NULL) {
        snprintf(why, why_cap, "The parameter %s.", wrong);
        return false;
    }
    if (params[UNTIL].value.data != NULL && out->until_ms == 0) {
        out->until_ms = 1; /* 0 is "open" to the store, and would show everything instead of nothing */
    }
    return true;
}

void admin_cursor_format(struct slice ns, struct slice key, char out[ADMIN_CURSOR_CAP])
{
    static const char digits[] = "0123456789abcdef";
    size_t len = ns.len + 1 + key.len;
    out[0] = '\0';
    for (size_t i = 0; len <= ADMIN_CURSOR_BYTES && i < len; i++) {
        unsigned char byte = 0;
        if (i != ns.len) {
            byte = (unsigned char)(i < ns.len ? ns.data[i] : key.data[i - ns.len - 1]);
        }
        out[2 * i] = digits[byte >> 4];
        out[2 * i + 1] = digits[byte & 15];
        out[2 * i + 2] = '\0';
    }
}

static bool read_cursor(struct slice value, struct admin_cursor *cursor, struct fence_filter *out)
{
    size_t len = value.len / 2;
    if (value.data == NULL) {
        return true;
    }
    if (value.len % 2 != 0 || len > ADMIN_CURSOR_BYTES) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        int high = hex_value(value.data[2 * i]), low = hex_value(value.data[2 * i + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        cursor->bytes[i] = (char)(unsigned char)(high * 16 + low);
    }
    const char *end = memchr(cursor->bytes, '\0', len);
    if (end == NULL) {
        return false;
    }
    out->after_ns = (struct slice){cursor->bytes, (size_t)(end - cursor->bytes)};
    out->after_key = (struct slice){end + 1, len - out->after_ns.len - 1};
    return admin_namespace_valid(out->after_ns) && key_valid(out->after_key.data, out->after_key.len);
}

bool admin_fence_filter(struct admin_span query, struct fence_filter *out, struct admin_cursor *cursor, char *why,
                        size_t why_cap)
{
    enum { NS, PREFIX, CURSOR, LIMIT, COUNT };
    struct admin_param params[COUNT] = {
        [NS] = {.name = "namespace"},
        [PREFIX] = {.name = "prefix"},
        [CURSOR] = {.name = "cursor"},
        [LIMIT] = {.name = "limit"},
    };
    if (!admin_params_parse(query, params, COUNT, why, why_cap)) {
        return false;
    }
    const char *wrong = NULL;
    memset(out, 0, sizeof *out);
    out->ns = params[NS].value;
    if (out->ns.data != NULL && !admin_namespace_valid(out->ns)) {
        wrong = "namespace must be 1 to 64 of A-Z a-z 0-9 . _ -";
    } else if (!read_text(params[PREFIX].value, &out->prefix)) {
        wrong = "prefix must be 1 to 255 bytes of UTF-8 without control characters";
    } else if (!read_cursor(params[CURSOR].value, cursor, out)) {
        wrong = "cursor must be the next_cursor of the page before";
    } else if (!read_limit(params[LIMIT].value, &out->limit)) {
        wrong = "limit must be 1 to 1000";
    }
    if (wrong != NULL) {
        snprintf(why, why_cap, "The parameter %s.", wrong);
    }
    return wrong == NULL;
}

static bool read_state(struct slice value, enum effects_state *out)
{
    static const char *const names[] = {
        [EFFECTS_IN_DOUBT] = "in-doubt", [EFFECTS_RUNNING] = "in-flight", [EFFECTS_UNKNOWN] = "unknown"};
    for (size_t i = 0; i < sizeof names / sizeof names[0] && value.data != NULL; i++) {
        if (slice_is(value, names[i])) {
            *out = (enum effects_state)i;
            return true;
        }
    }
    return value.data == NULL;
}

bool admin_effects_filter(struct admin_span query, struct effects_filter *out, char *why, size_t why_cap)
{
    enum { STATE, NS, AFTER, LIMIT, COUNT };
    struct admin_param params[COUNT] = {[STATE] = {.name = "state"},
                                        [NS] = {.name = "namespace"},
                                        [AFTER] = {.name = "after"},
                                        [LIMIT] = {.name = "limit"}};
    if (!admin_params_parse(query, params, COUNT, why, why_cap)) {
        return false;
    }
    const char *wrong = NULL;
    *out = (struct effects_filter){.state = EFFECTS_IN_DOUBT, .ns = params[NS].value};
    if (!read_state(params[STATE].value, &out->state)) {
        wrong = "state must be in-doubt, in-flight or unknown";
    } else if (out->ns.data != NULL && !admin_namespace_valid(out->ns)) {
        wrong = "namespace must be 1 to 64 of A-Z a-z 0-9 . _ -";
    } else if (!read_after(params[AFTER].value, &out->after)) {
        wrong = "after must be the decimal id of an effect";
    } else if (!read_limit(params[LIMIT].value, &out->limit)) {
        wrong = "limit must be 1 to 1000";
    }
    if (wrong != NULL) {
        snprintf(why, why_cap, "The parameter %s.", wrong);
    }
    return wrong == NULL;
}

bool admin_history_filter(struct admin_span query, size_t *limit, char *why, size_t why_cap)
{
    struct admin_param param = {.name = "limit"};
    if (!admin_params_parse(query, &param, 1, why, why_cap)) {
        return false;
    }
    if (!read_limit(param.value, limit)) {
        snprintf(why, why_cap, "The parameter limit must be 1 to 1000.");
        return false;
    }
    return true;
}
