/* gateway/mail_body.c - the body of a mail from JSON: one text, or MIME parts within each other. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "gateway/headers.h"
#include "gateway/mail_compose_int.h"

enum { CONTENT_TYPE_MAX = 200, FILENAME_MAX_BYTES = 255, BOUNDARY = 40 };

static void begin_multipart(struct composer *composer, const char *subtype, const char *boundary)
{
    struct mail_text *text = &composer->text;
    mail_add_words(text, "Content-Type: multipart/");
    mail_add_words(text, subtype);
    mail_add_words(text, ";");
    mail_end_line(text);
    mail_add_words(text, " boundary=\"");
    mail_add_words(text, boundary);
    mail_add_words(text, "\"");
    mail_end_line(text);
    mail_end_line(text);
}

static void part_border(struct composer *composer, const char *boundary, bool last)
{
    mail_add_words(&composer->text, "--");
    mail_add_words(&composer->text, boundary);
    mail_add_words(&composer->text, last ? "--" : "");
    mail_end_line(&composer->text);
}

/* Nobody can foretell it, and so nobody can put it into a text. */
static void make_boundary(const struct composer *composer, char kind, char out[BOUNDARY])
{
    out[0] = kind;
    out[1] = '-';
    for (size_t i = 0; i < 16; i++)
        snprintf(out + 2 + 2 * i, 3, "%02x", composer->stamp->random[16 + i]);
}

static void add_text(struct composer *composer, const char *member, const char *type, bool within)
{
    const json_t *string = json_object_get(composer->root, member);
    const char *body = json_string_value(string);
    size_t len = json_string_length(string);
    mail_add_text_part(&composer->text, type, body, len);
    if (within && len > 0 && (body[len - 1] == '\n' || body[len - 1] == '\r'))
        mail_end_line(&composer->text); /* the line end before a border belongs to the border */
}

static void add_texts(struct composer *composer, bool within)
{
    bool plain = json_object_get(composer->root, "text") != NULL;
    bool html = json_object_get(composer->root, "html") != NULL;
    char boundary[BOUNDARY];
    if (!plain || !html) {
        add_text(composer, plain ? "text" : "html", plain ? "text/plain" : "text/html", within);
        return;
    }
    make_boundary(composer, 'a', boundary);
    begin_multipart(composer, "alternative", boundary);
    part_border(composer, boundary, false);
    add_text(composer, "text", "text/plain", true);
    part_border(composer, boundary, false);
    add_text(composer, "html", "text/html", true);
    part_border(composer, boundary, true);
}

/* type "/" subtype, and parameters of printable ASCII. Composite types can't be base64 (RFC 2045 section 6.4). */
static bool content_type_valid(const char *type)
{
    const char *slash = strchr(type, '/');
    size_t end = strcspn(type, "; \t");
    if (slash == NULL || (size_t)(slash - type) > end || strlen(type) > CONTENT_TYPE_MAX)
        return false;
    if (!token_chars(type, (size_t)(slash - type)) || !token_chars(slash + 1, end - (size_t)(slash - type) - 1))
        return false;
    if (strncasecmp(type, "multipart/", 10) == 0 || strncasecmp(type, "message/", 8) == 0)
        return false;
    for (const char *p = type + end; *p != '\0'; p++)
        if (*p < 0x20 || *p > 0x7E)
            return false;
    return type[end + strspn(type + end, " \t")] == ';' || type[end] == '\0';
}

static bool add_attachment(struct composer *composer, size_t index, json_t *item)
{
    static const char *const names[] = {"filename", "content_type", "content", NULL};
    struct mail_text *text = &composer->text;
    if (!json_is_object(item))
        return compose_fail(composer, "attachments[%zu] is no object.", index);
    if (!compose_known_members(composer, item, "in an attachment", names))
        return false;
    const json_t *filename = json_object_get(item, names[0]), *content = json_object_get(item, names[2]);
    const char *type = json_string_value(json_object_get(item, names[1]));
    if (!json_is_string(filename) || json_string_length(filename) == 0 ||
        json_string_length(filename) > FILENAME_MAX_BYTES ||
        !compose_one_line(json_string_value(filename), json_string_length(filename)))
        return compose_fail(composer, "attachments[%zu].filename must be a string of 1 to 255 bytes in one line.",
                            index);
    if (type == NULL || !content_type_valid(type))
        return compose_fail(
            composer, "attachments[%zu].content_type must be a string like application/pdf, not multipart or message.",
            index);
    if (!json_is_string(content) || !mail_base64_valid(json_string_value(content), json_string_length(content)))
        return compose_fail(composer, "attachments[%zu].content must be padded base64.", index);
    mail_add_words(text, "Content-Type: ");
    mail_add_words(text, type);
    mail_end_line(text);
    mail_add_words(text, "Content-Disposition: attachment");
    mail_add_parameter(text, "filename", json_string_value(filename), json_string_length(filename));
    mail_end_line(text);
    mail_add_words(text, "Content-Transfer-Encoding: base64");
    mail_end_line(text);
    mail_end_line(text);
    mail_add_base64_lines(text, json_string_value(content), json_string_length(content));
    return true;
}

bool compose_body(struct composer *composer)
{
    json_t *attachments = json_object_get(composer->root, "attachments");
    size_t count = json_array_size(attachments);
    char boundary[BOUNDARY];
    if (attachments != NULL && !json_is_array(attachments))
        return compose_fail(composer, "attachments must be an array of objects.");
    if (count == 0) {
        add_texts(composer, false);
        return true;
    }
    make_boundary(composer, 'm', boundary);
    begin_multipart(composer, "mixed", boundary);
    part_border(composer, boundary, false);
    add_texts(composer, true);
    for (size_t i = 0; i < count; i++) {
        part_border(composer, boundary, false);
        if (!add_attachment(composer, i, json_array_get(attachments, i)))
            return false;
    }
    part_border(composer, boundary, true);
    return true;
}
