/*
 * gateway/reply.c - collect a partner's answer.
 *
 * RFC 9112 section 6.3 wants a proxy to give up on an answer whose lengths contradict each other: where its body ends,
 * and so what the partner said, is anybody's guess. Where a head and a body end on the connection is wire.c's.
 *
 * Fields are kept as they go out again, end-to-end ones alone: the client's side copies them in one piece.
 */
#include "gateway/reply.h"

#include <stdlib.h>
#include <string.h>

static bool give_up(struct reply *reply, const char *complaint)
{
    reply->nonsense = true;
    reply->complaint = complaint;
    return false;
}

static bool grow(char **data, size_t *cap, size_t need)
{
    if (need <= *cap)
        return true;
    size_t size = *cap < 512 ? 512 : *cap * 2;
    if (size < need)
        size = need;
    char *bigger = realloc(*data, size);
    if (bigger == NULL)
        return false;
    *data = bigger;
    *cap = size;
    return true;
}

/* "HTTP/1.1 200 OK": three digits after the version, which is the caller's. */
bool reply_status_line(struct reply *reply, const char *line, size_t len)
{
    const char *blank = memchr(line, ' ', len);
    size_t at = blank == NULL ? len : (size_t)(blank - line) + 1;
    unsigned status = 0;
    size_t digits = 0;
    for (; at < len && line[at] >= '0' && line[at] <= '9' && digits < 4; at++, digits++)
        status = status * 10 + (unsigned)(line[at] - '0');
    if (digits != 3 || status < 100 || (at < len && line[at] != ' '))
        return give_up(reply, "the partner's status line is malformed");
    reply->status = status;
    reply->head_len = 0;
    reply->dated = reply->nominates = false;
    reply->has_length = reply->length_and_coding = reply->chunked = reply->identity = false;
    reply->wants_close = reply->keeps = false;
    reply->codings = 0;
    return true;
}

static bool content_length(struct reply *reply, const struct header_field *field)
{
    uint64_t length = 0;
    if (field->value_len == 0 || field->value_len > 18)
        return give_up(reply, "the partner's Content-Length is malformed");
    for (size_t i = 0; i < field->value_len; i++) {
        if (field->value[i] < '0' || field->value[i] > '9')
            return give_up(reply, "the partner's Content-Length is malformed");
        length = length * 10 + (uint64_t)(field->value[i] - '0');
    }
    if (reply->has_length && reply->length != length)
        return give_up(reply, "the partner sent two different Content-Length fields");
    reply->has_length = true;
    reply->length = length;
    return true;
}

static bool add_field(struct reply *reply, const struct header_field *field)
{
    size_t need = reply->head_len + field->name_len + field->value_len + 4;
    if (!grow(&reply->head, &reply->head_cap, need))
        return give_up(reply, "out of memory");
    char *at = reply->head + reply->head_len;
    memcpy(at, field->name, field->name_len);
    at += field->name_len;
    memcpy(at, ": ", 2);
    memcpy(at + 2, field->value, field->value_len);
    memcpy(at + 2 + field->value_len, "\r\n", 2);
    reply->head_len = need;
    reply->dated = reply->dated || (field->name_len == 4 && header_is(field, "Date"));
    return true;
}

/* The member of a list that begins at *at, as a name; *at moves on. False at the end. */
static bool next_option(const struct header_field *field, size_t *at, struct header_field *option)
{
    if (*at >= field->value_len)
        return false;
    const char *item = field->value + *at, *comma = memchr(item, ',', field->value_len - *at);
    size_t len = comma == NULL ? field->value_len - *at : (size_t)(comma - item);
    *option = (struct header_field){.value = item, .value_len = len};
    header_trim(option);
    option->name = option->value;
    option->name_len = option->value_len;
    *at += len + 1;
    return true;
}

/* The options that it names: RFC 9110 section 7.6.1. */
static void connection_options(struct reply *reply, const struct header_field *field)
{
    struct header_field option;
    for (size_t at = 0; next_option(field, &at, &option);) {
        bool close = header_is(&option, "close"), keep = header_is(&option, "keep-alive");
        reply->wants_close = reply->wants_close || close;
        reply->keeps = reply->keeps || keep;
        reply->nominates = reply->nominates || (!close && !keep && option.name_len > 0);
    }
}

/* Old servers and proxies announce a close there. A `keep-alive` in it promises nothing: RFC 9112 appendix C.2.2. */
static void proxy_connection_options(struct reply *reply, const struct header_field *field)
{
    struct header_field option;
    for (size_t at = 0; next_option(field, &at, &option);)
        reply->wants_close = reply->wants_close || header_is(&option, "close");
}

/* What a field says of where the answer ends, and of the connection. */
static bool note_framing(struct reply *reply, const struct header_field *field)
{
    struct header_field coding = {.name = field->value, .name_len = field->value_len};
    switch (field->name_len) {
    case 10:
        if (header_is(field, "Connection"))
            connection_options(reply, field);
        return true;
    case 14: return !header_is(field, "Content-Length") || content_length(reply, field);
    case 16:
        if (header_is(field, "Proxy-Connection"))
            proxy_connection_options(reply, field);
        return true;
    case 17:
        if (!header_is(field, "Transfer-Encoding"))
            return true;
        reply->codings++;
        reply->chunked = header_is(&coding, "chunked");
        reply->identity = header_is(&coding, "identity");
        return true;
    default: return true;
    }
}

bool reply_field_line(struct reply *reply, const char *line, size_t len)
{
    static const struct hop_names none;
    struct header_field field;
    if (!header_line_split(line, len, &field))
        return give_up(reply, "the partner sent a malformed header line");
    if (!note_framing(reply, &field))
        return false;
    bool wanted = headers_pass_response(&field, &none) || (reply->nominates && header_is(&field, "Connection"));
    return !wanted || add_field(reply, &field);
}

/* The line of `head` that begins at *at, which moves on; false at the end. */
static bool next_field(const struct reply *reply, size_t *at, struct header_field *field)
{
    if (*at == reply->head_len)
        return false;
    const char *line = reply->head + *at;
    const char *end = memchr(line, '\r', reply->head_len - *at); /* none is in a value */
    const char *colon = memchr(line, ':', (size_t)(end - line));
    *field = (struct header_field){line, (size_t)(colon - line), colon + 2, (size_t)(end - colon) - 2};
    *at = (size_t)(end - reply->head) + 2;
    return true;
}

/* ---- what Connection names ---- */

struct nominated {
    struct header_field *item; /* name, name_len used; sorted: a hostile head names thousands */
    size_t count, cap;
};

static int by_name(const void *left, const void *right)
{
    const struct header_field *a = left, *b = right;
    if (a->name_len != b->name_len)
        return a->name_len < b->name_len ? -1 : 1;
    return strncasecmp(a->name, b->name, a->name_len);
}

static bool nominate(struct nominated *list, const struct header_field *option)
{
    if (list->count == list->cap) {
        size_t cap = list->cap == 0 ? 16 : list->cap * 2;
        struct header_field *bigger = realloc(list->item, cap * sizeof *bigger);
        if (bigger == NULL)
            return false;
        list->item = bigger;
        list->cap = cap;
    }
    list->item[list->count++] = *option;
    return true;
}

/* False: no memory. */
static bool collect_nominated(const struct reply *reply, struct nominated *list)
{
    struct header_field field, option;
    for (size_t at = 0; next_field(reply, &at, &field);) {
        if (!header_is(&field, "Connection"))
            continue;
        for (size_t in = 0; next_option(&field, &in, &option);)
            if (option.name_len > 0 && !nominate(list, &option))
                return false;
    }
    if (list->count > 0)
        qsort(list->item, list->count, sizeof *list->item, by_name);
    return true;
}

static bool is_nominated(const struct nominated *list, const struct header_field *field)
{
    return list->count > 0 && bsearch(field, list->item, list->count, sizeof *list->item, by_name) != NULL;
}

/* Takes out what Connection names, and Connection. Seldom: most partners name `close` or `keep-alive` and no more. */
static bool drop_nominated(struct reply *reply)
{
    static const struct hop_names none;
    struct nominated list = {NULL, 0, 0};
    struct header_field field;
    struct reply kept = {0};
    bool ok = collect_nominated(reply, &list);
    for (size_t at = 0; ok && next_field(reply, &at, &field);)
        if (headers_pass_response(&field, &none) && !is_nominated(&list, &field))
            ok = add_field(&kept, &field);
    free(list.item);
    free(reply->head);
    reply->head = kept.head;
    reply->head_len = kept.head_len;
    reply->head_cap = kept.head_cap;
    reply->dated = kept.dated;
    return ok || give_up(reply, "out of memory");
}

bool reply_head_end(struct reply *reply)
{
    reply->length_and_coding = reply->has_length && reply->codings > 0;
    reply->has_length = reply->has_length && reply->codings == 0;
    if (reply->status == 101)
        return give_up(reply, "the partner switched protocols, which nobody asked it for");
    if (reply->nominates && !drop_nominated(reply))
        return false;
    reply->head_done = reply->status >= 200;
    return true;
}

bool reply_body_add(struct reply *reply, const char *data, size_t len)
{
    if (reply->body_at == reply->body_end)
        reply->body_at = reply->body_end = 0;
    if (reply->body_end + len > reply->body_cap && reply->body_at > 0) {
        memmove(reply->body, reply->body + reply->body_at, reply->body_end - reply->body_at);
        reply->body_end -= reply->body_at;
        reply->body_at = 0;
    }
    if (!grow(&reply->body, &reply->body_cap, reply->body_end + len))
        return false;
    memcpy(reply->body + reply->body_end, data, len);
    reply->body_end += len;
    return true;
}

size_t reply_body_waiting(const struct reply *reply)
{
    return reply->body_end - reply->body_at;
}

const char *reply_body_at(const struct reply *reply)
{
    return reply->body + reply->body_at;
}

void reply_body_drop(struct reply *reply, size_t len)
{
    reply->body_at += len;
}

void reply_reset(struct reply *reply)
{
    if (reply->head_cap > REPLY_KEPT_MAX || reply->body_cap > REPLY_KEPT_MAX)
        reply_free(reply);
    *reply = (struct reply){
        .head = reply->head, .head_cap = reply->head_cap, .body = reply->body, .body_cap = reply->body_cap};
}

void reply_free(struct reply *reply)
{
    free(reply->head);
    free(reply->body);
    reply->head = reply->body = NULL;
    reply->head_len = reply->head_cap = reply->body_at = reply->body_end = reply->body_cap = 0;
}
