/* gateway/mail_address.c - takes addresses apart; international domains are libidn2's. */
#include "gateway/mail_address.h"

#include <arpa/inet.h>
#include <idn2.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "gateway/arena.h"
#include "gateway/utf8.h"

enum {
    LOCAL_MAX = 64, /* RFC 5321 section 4.5.3.1 */
    DOMAIN_MAX = 253,
    LABEL_MAX = 63,
    MAILBOX_MAX = 254,
};

const char mail_no_memory[] = "the gateway is out of memory";
static const char bad_bytes[] = "control characters or bytes that are no UTF-8";
static const char bad_local[] = "a malformed part before the @";
static const char bad_domain[] = "a malformed domain";

static bool is_alnum(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static void trim(const char **text, size_t *len)
{
    while (*len > 0 && is_blank((*text)[0]))
        (*text)++, (*len)--;
    while (*len > 0 && is_blank((*text)[*len - 1]))
        (*len)--;
}

/* Valid UTF-8 without control characters, those of Unicode and its line ends included. */
static bool clean(const char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        uint32_t code;
        size_t step = utf8_next(text + at, len - at, &code);
        if (step == 0 || code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029)
            return false;
        at += step;
    }
    return true;
}

static bool is_ascii(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] > 0x7E)
            return false;
    return true;
}

/* ---- the part before the @ ---- */

static bool dot_atom(const char *local, size_t len)
{
    bool dot = true; /* before the first byte and behind the last one there is none */
    for (size_t i = 0; i < len; i++) {
        if (local[i] == '.') {
            if (dot)
                return false;
            dot = true;
            continue;
        }
        dot = false;
        if (!is_alnum(local[i]) && (unsigned char)local[i] < 0x80 && strchr("!#$%&'*+-/=?^_`{|}~", local[i]) == NULL)
            return false;
    }
    return !dot;
}

/* RFC 5321: qtext, of which RFC 6531 makes any UTF-8, and pairs of a backslash and 32 to 126. It may be empty. */
static bool quoted_local(const char *local, size_t len)
{
    if (len < 2 || local[0] != '"' || local[len - 1] != '"')
        return false;
    for (size_t i = 1; i < len - 1; i++) {
        if (local[i] == '"')
            return false;
        if (local[i] == '\\' && (++i == len - 1 || (unsigned char)local[i] > 126))
            return false;
    }
    return true;
}

/* Where the @ is that parts local part and domain; `len` when there is none. */
static size_t find_at(const char *text, size_t len)
{
    size_t i = 0;
    if (len > 0 && text[0] == '"')
        for (i = 1; i < len && text[i] != '"'; i++)
            if (text[i] == '\\')
                i++;
    for (; i < len; i++)
        if (text[i] == '@')
            return i;
    return len;
}

/* ---- the part behind it ---- */

static bool address_literal(const char *domain, size_t len)
{
    char copy[64];
    struct in6_addr address;
    if (len < 3 || len - 2 >= sizeof copy || domain[len - 1] != ']')
        return false;
    memcpy(copy, domain + 1, len - 2);
    copy[len - 2] = '\0';
    if (strncasecmp(copy, "IPv6:", 5) == 0)
        return inet_pton(AF_INET6, copy + 5, &address) == 1;
    return inet_pton(AF_INET, copy, &address) == 1;
}

static bool host_name(const char *domain, size_t len)
{
    size_t start = 0;
    if (len == 0 || len > DOMAIN_MAX)
        return false;
    for (size_t i = 0; i <= len; i++) {
        if (i < len && domain[i] != '.') {
            if (!is_alnum(domain[i]) && domain[i] != '-')
                return false;
            continue;
        }
        if (i == start || i - start > LABEL_MAX || domain[start] == '-' || domain[i - 1] == '-')
            return false;
        start = i + 1;
    }
    return true;
}

/* Writes the domain as ASCII into out[DOMAIN_MAX + 1]. */
static const char *ascii_domain(const char *domain, size_t len, char *out)
{
    char copy[DOMAIN_MAX * 4 + 1];
    char *ascii = NULL;
    if (len == 0)
        return "no domain";
    if (len >= sizeof copy)
        return bad_domain;
    memcpy(copy, domain, len);
    copy[len] = '\0';
    if (is_ascii(domain, len)) {
        if (len > DOMAIN_MAX || (domain[0] == '[' ? !address_literal(domain, len) : !host_name(domain, len)))
            return bad_domain;
        memcpy(out, copy, len + 1);
        return NULL;
    }
    int result = idn2_lookup_u8((const uint8_t *)copy, (uint8_t **)&ascii, IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL);
    if (result == IDN2_MALLOC)
        return mail_no_memory;
    bool fine = result == IDN2_OK && host_name(ascii, strlen(ascii));
    if (fine)
        memcpy(out, ascii, strlen(ascii) + 1);
    idn2_free(ascii);
    return fine ? NULL : bad_domain;
}

static const char *take_mailbox(struct arena *arena, const char *text, size_t len, struct mail_address *out)
{
    char domain[DOMAIN_MAX + 1];
    size_t at = find_at(text, len);
    if (len == 0)
        return "no address";
    if (!clean(text, len))
        return bad_bytes;
    if (at == len)
        return "no @";
    if (at == 0 || at > LOCAL_MAX || (!dot_atom(text, at) && !quoted_local(text, at)))
        return bad_local;
    const char *problem = ascii_domain(text + at + 1, len - at - 1, domain);
    if (problem != NULL)
        return problem;
    size_t domain_len = strlen(domain);
    if (at + 1 + domain_len > MAILBOX_MAX)
        return "an address of more than 254 bytes";
    char *mailbox = arena_alloc(arena, at + 1 + domain_len + 1);
    if (mailbox == NULL)
        return mail_no_memory;
    memcpy(mailbox, text, at + 1);
    memcpy(mailbox + at + 1, domain, domain_len + 1);
    out->mailbox = mailbox;
    out->domain = mailbox + at + 1;
    out->utf8 = !is_ascii(text, at);
    return NULL;
}

const char *mail_mailbox_parse(struct arena *arena, const char *text, size_t len, struct mail_address *out)
{
    *out = (struct mail_address){.name = ""};
    trim(&text, &len);
    if (len >= 2 && text[0] == '<' && text[len - 1] == '>')
        text++, len -= 2;
    return take_mailbox(arena, text, len, out);
}

/* ---- the name ---- */

/* "Name": without the quotes and their backslashes. */
static const char *unquote(struct arena *arena, const char *name, size_t len, struct mail_address *out)
{
    char *plain = arena_alloc(arena, len + 1);
    size_t used = 0;
    if (plain == NULL)
        return mail_no_memory;
    for (size_t i = 1; i < len - 1; i++) {
        if (name[i] == '"')
            return "a quote inside the name";
        if (name[i] == '\\' && ++i == len - 1)
            return "a name whose quotes are not closed";
        plain[used++] = name[i];
    }
    out->name = plain;
    out->name_len = used;
    return NULL;
}

static const char *take_name(struct arena *arena, const char *name, size_t len, struct mail_address *out)
{
    trim(&name, &len);
    if (!clean(name, len))
        return bad_bytes;
    if (len >= 2 && name[0] == '"' && name[len - 1] == '"')
        return unquote(arena, name, len, out);
    for (size_t i = 0; i < len; i++)
        if (strchr("<>,;:\"\\", name[i]) != NULL)
            return "a name with one of < > , ; : \" \\ that is not in quotes (one address an element)";
    out->name = arena_copy(arena, name, len);
    out->name_len = len;
    return out->name == NULL ? mail_no_memory : NULL;
}

const char *mail_address_parse(struct arena *arena, const char *text, size_t len, struct mail_address *out)
{
    *out = (struct mail_address){.name = ""};
    trim(&text, &len);
    if (len == 0 || text[len - 1] != '>')
        return take_mailbox(arena, text, len, out);
    size_t open = len;
    while (open > 0 && text[open - 1] != '<')
        open--;
    if (open == 0)
        return "a > without its <";
    const char *problem = take_name(arena, text, open - 1, out);
    return problem != NULL ? problem : take_mailbox(arena, text + open, len - open - 1, out);
}

bool mail_mailbox_same(const char *a, const char *b)
{
    const char *at = strrchr(a, '@');
    size_t local = at == NULL ? 0 : (size_t)(at - a) + 1;
    return at != NULL && strncmp(a, b, local) == 0 && strcasecmp(a + local, b + local) == 0;
}
