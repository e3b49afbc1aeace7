/*
 * gateway/headers.h - which header fields pass, and what a request's fields say of its framing. Pure.
 */
#ifndef FENCEGATE_HEADERS_H
#define FENCEGATE_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

struct header_field {
    const char *name;
    size_t name_len;
    const char *value;
    size_t value_len;
};

/* Case-insensitive (RFC 9110 section 5.1). Inline for the length of a name that is a literal; most names differ from it
 * in length or first byte. */
static inline bool header_is(const struct header_field *field, const char *name)
{
    return field->name_len == strlen(name) && field->name_len > 0 && ((field->name[0] ^ name[0]) & ~0x20) == 0 &&
           strncasecmp(field->name, name, field->name_len) == 0;
}
bool token_chars(const char *text, size_t len);  /* a non-empty RFC 9110 token */
size_t token_span(const char *text, size_t len); /* how many bytes at the beginning could be of one */
size_t text_span(const char *text, size_t len);  /* how many there are no controls: below 0x20, HTAB too, or 0x7F */
/* uri-host [":" port]: a name of letters, digits, "-", ".", "_", "~", or a bracketed IPv6 address; a port may be
 * empty. Narrower than RFC 3986: percent-encoding and sub-delims are in no host that a partner's SDK sends. */
bool authority_valid(const char *text, size_t len);
/* Cuts blanks (SP, HTAB) around the value: RFC 9110 section 5.5 keeps them out of it. */
void header_trim(struct header_field *field);

/* What was found out about a request's fields, for those who decide afterwards. */
struct screened {
    const char *problem;    /* static text of what is wrong with the framing; NULL: nothing */
    bool expect_continue;   /* Expect: 100-continue, any case */
    bool expect_unknown;    /* another Expect: 417 */
    bool close, keep_alive; /* what Connection names */
    bool chunked;
    bool has_length;
    uint64_t length;                               /* Content-Length when has_length */
    const struct header_field *host, *token, *key; /* the first of each; NULL: absent */
    bool token_doubled, key_doubled;
    bool connection_names_fence; /* Connection names a fencing header (TRAPS 11): 400 */
    bool fence_twin;             /* a field has a fencing name with `_` for `-` or the other way round: 400 */
};

/* What the fields of a sound head (head.h) say of the framing. Problems: more than one Content-Length, or one that is
 * not 1 to 18 digits; Content-Length beside Transfer-Encoding; a Transfer-Encoding other than one exact "chunked" (any
 * case), or any with HTTP/1.0; more than one Host, none with HTTP/1.1, one that is not a valid uri-host [":" port]
 * (user info, path, blanks, commas; empty); Content_Length and Transfer_Encoding, which partners behind CGI or WSGI
 * can't tell from the real ones. */
void headers_frame(const struct header_field *fields, size_t count, bool http10, struct screened *out);
/* The same where the head was read by another (libmicrohttpd): problems are also a method or name that is no token, and
 * control bytes (all below 0x20 but HTAB, and 0x7F) in a value. */
void headers_screen(const struct header_field *fields, size_t count, const char *method, const char *version,
                    struct screened *out);
/* The part that depends on the route: finds the fencing headers by the route's names. */
void headers_find_fence(const struct header_field *fields, size_t count, const char *token_header,
                        const char *key_header, struct screened *out);
/* Does a field ask the partner for another method than the request line's (X-HTTP-Method-Override and its kin, `_` for
 * `-` included)? */
bool headers_override_method(const struct header_field *fields, size_t count);

/* Does a Via field name this proxy (RFC 9110 section 7.6.3)? Found wherever it stands as a word: in any case, in a
 * list, in a comment. */
bool headers_passed_by(const struct header_field *fields, size_t count, const char *pseudonym);

/* What headers_pass() may let through: names listed in the message's own Connection fields, collected once. */
struct hop_names {
    struct header_field item[32]; /* name, name_len used */
    size_t count;
    bool overflow; /* more than fit: treat the message as malformed */
};
void hop_names_collect(const struct header_field *fields, size_t count, struct hop_names *out);
void hop_names_add(struct hop_names *hops, const char *value, size_t len); /* one Connection value */

/* True for end-to-end fields. Removed: Connection, Keep-Alive, Proxy-Connection, Proxy-Authenticate,
 * Proxy-Authorization, TE, Trailer, Transfer-Encoding, Upgrade, Content-Length, what Connection names (RFC 9110
 * section 7.6.1), and for requests Host, Expect. Fencing headers and route rules are the caller's. */
bool headers_pass_request(const struct header_field *field, const struct hop_names *hops);
/* For answers also removes every Fencegate-* field: a partner's own must not speak for us. */
bool headers_pass_response(const struct header_field *field, const struct hop_names *hops);

/* Splits one line "Name: value" (no line end needed; surrounding blanks of the value are cut). False when it is none.
 */
bool header_line_split(const char *line, size_t len, struct header_field *out);

#endif
