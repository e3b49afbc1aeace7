/*
 * gateway/mail_compose.c - from a JSON document to a MIME message and its envelope: the document, the message's head.
 *
 * Leaves the body to mail_body.c, encodings to mail_text.c, addresses to mail_address.c, JSON to jansson.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "config/json_memory.h"
#include "gateway/arena.h"
#include "gateway/mail.h"
#include "gateway/mail_compose_int.h"
#include "gateway/utf8.h"

enum {
    HEADER_NAME_MAX = 100,
    HEADERS_MAX = 200,
    FOLD_BEFORE = 74,
};

bool compose_fail(struct composer *composer, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(composer->why, MAIL_WHY, format, list);
    va_end(list);
    return false;
}

static bool fail_address(struct composer *composer, const char *member, size_t index, const char *problem)
{
    if (problem == mail_no_memory)
        composer->no_memory = true;
    return strcmp(member, "from") == 0 ? compose_fail(composer, "from has %s.", problem)
                                       : compose_fail(composer, "%s[%zu] has %s.", member, index, problem);
}

/* ---- what is in the document ---- */

/* Says which ones are known; the unknown one's name is kept apart, since this goes into the log. */
static bool fail_member(struct composer *composer, const char *name, const char *where, const char *const *names)
{
    char list[120] = "";
    composer->out->unknown = arena_copy(composer->arena, name, utf8_cut(name, strlen(name), MAIL_UNKNOWN_SHOWN));
    size_t used = 0;
    for (size_t i = 0; names[i] != NULL && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i == 0 ? "" : ", ", names[i]);
    return compose_fail(composer, "There is a member that is not known %s: those known are %s.", where, list);
}

bool compose_known_members(struct composer *composer, json_t *object, const char *where, const char *const *names)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        bool known = false;
        for (size_t i = 0; names[i] != NULL && !known; i++)
            known = strcmp(names[i], name) == 0;
        if (!known)
            return fail_member(composer, name, where, names);
    }
    return true;
}

static bool read_address(struct composer *composer, const char *member, size_t index, const json_t *value,
                         struct mail_address *out)
{
    if (!json_is_string(value))
        return fail_address(composer, member, index, "no string");
    const char *problem = mail_address_parse(composer->arena, json_string_value(value), json_string_length(value), out);
    if (problem != NULL)
        return fail_address(composer, member, index, problem);
    composer->out->utf8 = composer->out->utf8 || out->utf8;
    return true;
}

static bool read_addresses(struct composer *composer, const char *member, struct address_list *out)
{
    json_t *array = json_object_get(composer->root, member);
    size_t count = json_array_size(array);
    if (array != NULL && !json_is_array(array))
        return compose_fail(composer, "%s must be an array of addresses.", member);
    if (count > MAIL_RECIPIENTS_MAX)
        return compose_fail(composer, "%s has more than %d addresses.", member, MAIL_RECIPIENTS_MAX);
    out->items = arena_alloc(composer->arena, count * sizeof *out->items);
    if (out->items == NULL) {
        composer->no_memory = true;
        return false;
    }
    for (; out->count < count; out->count++)
        if (!read_address(composer, member, out->count, json_array_get(array, out->count), &out->items[out->count]))
            return false;
    return true;
}

bool mail_add_recipient(const char **list, size_t *count, const char *mailbox)
{
    for (size_t i = 0; i < *count; i++)
        if (mail_mailbox_same(list[i], mailbox))
            return true; /* a relay would deliver it twice */
    if (*count == MAIL_RECIPIENTS_MAX)
        return false;
    list[(*count)++] = mailbox;
    return true;
}

static bool make_envelope(struct composer *composer)
{
    const struct address_list *lists[] = {&composer->to, &composer->cc, &composer->bcc};
    size_t all = composer->to.count + composer->cc.count + composer->bcc.count;
    const char **recipients =
        arena_alloc(composer->arena, (all < MAIL_RECIPIENTS_MAX ? all : MAIL_RECIPIENTS_MAX) * sizeof *recipients);
    if (recipients == NULL) {
        composer->no_memory = true;
        return false;
    }
    size_t count = 0;
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++)
        for (size_t i = 0; i < lists[l]->count; i++)
            if (!mail_add_recipient(recipients, &count, lists[l]->items[i].mailbox))
                return compose_fail(composer, "There are more than %d recipients.", MAIL_RECIPIENTS_MAX);
    if (count == 0)
        return compose_fail(composer, "There is no recipient in to, cc or bcc.");
    composer->out->sender = composer->from.mailbox;
    composer->out->recipients = recipients;
    composer->out->recipient_count = count;
    return true;
}

bool compose_one_line(const char *value, size_t len)
{
    return memchr(value, '\r', len) == NULL && memchr(value, '\n', len) == NULL && memchr(value, '\0', len) == NULL;
}

/* A string member; absent is "". */
static bool read_string(struct composer *composer, const char *member, const char **value, size_t *len)
{
    const json_t *string = json_object_get(composer->root, member);
    if (string != NULL && !json_is_string(string))
        return compose_fail(composer, "%s must be a string.", member);
    *value = string == NULL ? "" : json_string_value(string);
    *len = string == NULL ? 0 : json_string_length(string);
    return true;
}

/* ---- the head ---- */

static void add_date(struct mail_text *text, uint64_t now_ms)
{
    static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    char line[64];
    time_t now = (time_t)(now_ms / 1000);
    struct tm tm = {0};
    gmtime_r(&now, &tm);
    snprintf(line, sizeof line, "Date: %s, %02d %s %d %02d:%02d:%02d +0000", days[tm.tm_wday], tm.tm_mday,
             months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
    mail_add_words(text, line);
    mail_end_line(text);
}

static void add_address(struct mail_text *text, const struct mail_address *address)
{
    size_t len = strlen(address->mailbox);
    if (address->name_len == 0) {
        mail_add(text, address->mailbox, len);
        return;
    }
    mail_add_name(text, address->name, address->name_len);
    if (text->len - text->line + len > FOLD_BEFORE)
        mail_end_line(text);
    mail_add_words(text, " <");
    mail_add(text, address->mailbox, len);
    mail_add_words(text, ">");
}

static void add_addresses(struct mail_text *text, const char *name, const struct mail_address *items, size_t count)
{
    if (count == 0)
        return;
    mail_add_words(text, name);
    mail_add_words(text, ":");
    for (size_t i = 0; i < count; i++) {
        size_t len = items[i].name_len + strlen(items[i].mailbox) + 4;
        if (i > 0)
            mail_add_words(text, ",");
        if (i > 0 && text->len - text->line + len > FOLD_BEFORE)
            mail_end_line(text);
        mail_add_words(text, " ");
        add_address(text, &items[i]);
    }
    mail_end_line(text);
}

static void add_hex(struct mail_text *text, const unsigned char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char two[3];
        snprintf(two, sizeof two, "%02x", bytes[i]);
        mail_add(text, two, 2);
    }
}

static bool add_message_id(struct composer *composer)
{
    struct mail_text id = {0};
    add_hex(&id, composer->stamp->random, 16);
    mail_add_words(&id, "@");
    mail_add_words(&id, composer->stamp->id_domain != NULL ? composer->stamp->id_domain : composer->from.domain);
    char *copy = id.failed ? NULL : arena_copy(composer->arena, id.data, id.len);
    mail_text_free(&id);
    if (copy == NULL) {
        composer->no_memory = true;
        return false;
    }
    composer->out->message_id = copy;
    mail_add_words(&composer->text, "Message-ID: <");
    mail_add_words(&composer->text, copy);
    mail_add_words(&composer->text, ">");
    mail_end_line(&composer->text);
    return true;
}

static bool own_header(const char *name)
{
    static const char *const ours[] = {"From",     "To",   "Cc",         "Bcc",     "Sender",
                                       "Reply-To", "Date", "Message-ID", "Subject", "MIME-Version"};
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (strcasecmp(name, ours[i]) == 0)
            return true;
    return strncasecmp(name, "Content-", 8) == 0;
}

static const char *header_name_problem(const char *name)
{
    size_t len = strlen(name);
    if (len == 0 || len > HEADER_NAME_MAX)
        return "a name that is empty or too long";
    for (size_t i = 0; i < len; i++)
        if (name[i] <= 0x20 || name[i] > 0x7E || name[i] == ':')
            return "a name that is no header name";
    return own_header(name) ? "a name that the gateway or another member sets" : NULL;
}

static bool doubled(json_t *object, const char *name)
{
    const char *other;
    json_t *value;
    json_object_foreach(object, other, value)
    {
        if (strcmp(other, name) == 0)
            return false; /* those behind it look at it */
        if (strcasecmp(other, name) == 0)
            return true;
    }
    return false;
}

static bool add_header(struct composer *composer, const char *name, const char *value, size_t len, bool free_text)
{
    if (!compose_one_line(value, len))
        return compose_fail(composer, "%s has a line break in it.", name);
    mail_add_words(&composer->text, name);
    mail_add_words(&composer->text, ": ");
    if (!mail_add_unstructured(&composer->text, value, len, free_text))
        return compose_fail(composer, "The value of a header has a word that no line can hold.");
    mail_end_line(&composer->text);
    return true;
}

static bool add_headers(struct composer *composer)
{
    json_t *headers = json_object_get(composer->root, "headers");
    const char *name;
    json_t *value;
    size_t index = 0;
    if (headers != NULL && !json_is_object(headers))
        return compose_fail(composer, "headers must be an object of strings.");
    if (json_object_size(headers) > HEADERS_MAX)
        return compose_fail(composer, "headers has more than %d members.", HEADERS_MAX);
    json_object_foreach(headers, name, value)
    {
        const char *problem = doubled(headers, name) ? "a name that is there already" : header_name_problem(name);
        if (problem != NULL)
            return compose_fail(composer, "Member %zu of headers has %s.", index, problem);
        if (!json_is_string(value))
            return compose_fail(composer, "Member %zu of headers is no string.", index);
        if (!compose_one_line(json_string_value(value), json_string_length(value)))
            return compose_fail(composer, "Member %zu of headers has a line break in it.", index);
        if (!add_header(composer, name, json_string_value(value), json_string_length(value), false))
            return false;
        index++;
    }
    return true;
}

static bool add_head(struct composer *composer)
{
    struct mail_text *text = &composer->text;
    const char *subject;
    size_t len;
    if (!read_string(composer, "subject", &subject, &len))
        return false;
    add_date(text, composer->stamp->now_ms);
    add_addresses(text, "From", &composer->from, 1);
    add_addresses(text, "To", composer->to.items, composer->to.count);
    add_addresses(text, "Cc", composer->cc.items, composer->cc.count);
    add_addresses(text, "Reply-To", composer->reply_to.items, composer->reply_to.count);
    if (json_object_get(composer->root, "subject") != NULL && !add_header(composer, "Subject", subject, len, true))
        return false;
    if (!add_message_id(composer) || !add_headers(composer))
        return false;
    mail_add_words(text, "MIME-Version: 1.0");
    mail_end_line(text);
    return true;
}

/* ---- all of it ---- */

static bool compose(struct composer *composer)
{
    static const char *const names[] = {"from", "to",   "cc",      "bcc",         "reply_to", "subject",
                                        "text", "html", "headers", "attachments", NULL};
    const char *ignored;
    size_t len;
    if (!compose_known_members(composer, composer->root, "here", names))
        return false;
    json_t *from = json_object_get(composer->root, "from");
    if (from == NULL)
        return compose_fail(composer, "from is missing.");
    if (!read_address(composer, "from", 0, from, &composer->from) || !read_addresses(composer, "to", &composer->to) ||
        !read_addresses(composer, "cc", &composer->cc) || !read_addresses(composer, "bcc", &composer->bcc) ||
        !read_addresses(composer, "reply_to", &composer->reply_to) || !make_envelope(composer) ||
        !read_string(composer, "text", &ignored, &len) || !read_string(composer, "html", &ignored, &len))
        return false;
    if (json_object_get(composer->root, "text") == NULL && json_object_get(composer->root, "html") == NULL)
        return compose_fail(composer, "There is neither text nor html.");
    return add_head(composer) && compose_body(composer);
}

/* Values and keys outside of strings, so that memory can be taken beforehand. */
static size_t count_values(const char *json, size_t len)
{
    size_t count = 1;
    bool within = false;
    for (size_t i = 0; i < len; i++) {
        if (within && json[i] == '\\')
            i++;
        else if (json[i] == '"')
            within = !within;
        else if (!within && (json[i] == ',' || json[i] == ':' || json[i] == '[' || json[i] == '{'))
            count++;
    }
    return count;
}

/* Without the text near the error that jansson adds. */
static bool fail_json(struct composer *composer, const json_error_t *error)
{
    const char *near = strstr(error->text, " near ");
    int len = (int)(near != NULL ? (size_t)(near - error->text) : strlen(error->text));
    if (json_error_code(error) == json_error_out_of_memory)
        composer->no_memory = true;
    if (json_error_code(error) == json_error_duplicate_key)
        return compose_fail(composer, "The document has a member twice, in line %d.", error->line);
    if (json_error_code(error) == json_error_null_character || json_error_code(error) == json_error_null_byte_in_key)
        return compose_fail(composer, "The document has a NUL (\\u0000) in a string, in line %d.", error->line);
    return compose_fail(composer, "The body is not valid JSON: %.*s, in line %d.", len, error->text, error->line);
}

static bool parse(struct composer *composer, const char *json, size_t len)
{
    json_error_t error;
    size_t values = count_values(json, len);
    if (values > MAIL_JSON_VALUES_MAX)
        return compose_fail(composer, "The document has more than %d values.", MAIL_JSON_VALUES_MAX);
    if (!json_memory_open_for(len, values)) {
        composer->no_memory = true;
        return false;
    }
    composer->root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &error);
    if (composer->root == NULL)
        return fail_json(composer, &error);
    if (!json_is_object(composer->root))
        return compose_fail(composer, "The body must be a JSON object.");
    return compose(composer);
}

enum mail_result mail_compose(struct arena *arena, const char *json, size_t len, const struct mail_stamp *stamp,
                              struct mail *out, char why[MAIL_WHY])
{
    struct composer composer = {.arena = arena, .stamp = stamp, .out = out, .why = why};
    *out = (struct mail){.sender = ""};
    bool done = parse(&composer, json, len);
    json_decref(composer.root);
    json_memory_close();
    if (done)
        mail_stuff_dots(&composer.text);
    if (composer.no_memory || composer.text.failed || !done) {
        mail_text_free(&composer.text);
        return composer.no_memory || (done && composer.text.failed) ? MAIL_NO_MEMORY : MAIL_MALFORMED;
    }
    out->data = mail_text_take(&composer.text, &out->len);
    out->eight_bit = out->utf8; /* addresses in the head; all else is encoded */
    return MAIL_OK;
}
