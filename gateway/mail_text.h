/*
 * gateway/mail_text.h - pieces of a mail message as they go over the wire: header fields with RFC 2047 and RFC 2231
 * encoding, quoted-printable, base64. Pure.
 *
 * What is written is 7-bit, unless a text given as it is (mail_add) is not. Lines end with CRLF and are kept to 76
 * bytes where they can be folded; no line is longer than MAIL_LINE_MAX. One thread; free with mail_text_free().
 */
#ifndef FENCEGATE_MAIL_TEXT_H
#define FENCEGATE_MAIL_TEXT_H

#include <stdbool.h>
#include <stddef.h>

enum {
    MAIL_LINE_MAX = 998, /* RFC 5322 section 2.1.1, without CRLF */
    MAIL_LINE = 76,      /* what is aimed at */
};

/* Zero-initialise. `failed` is sticky: after a failed allocation nothing is added, the caller looks once at the end. */
struct mail_text {
    char *data;
    size_t len, cap;
    size_t line; /* where the last line begins */
    bool failed;
};

void mail_add(struct mail_text *text, const char *data, size_t len); /* as it is */
void mail_add_words(struct mail_text *text, const char *words);      /* as it is, NUL-terminated */
void mail_end_line(struct mail_text *text);                          /* CRLF */
void mail_text_free(struct mail_text *text);
/* Hands over what was written, without the room that is left; the caller frees it. */
char *mail_text_take(struct mail_text *text, size_t *len);

/* Text of a header field behind its name, folded. What is not printable ASCII, or could be taken for an encoded word,
 * becomes encoded words; with `free_text` so does a word too long for a line, which in a structured field (a URL) has
 * to stay. False: a word that, with the blanks before it, no line can hold; nothing useful was added. */
bool mail_add_unstructured(struct mail_text *text, const char *value, size_t len, bool free_text)
    __attribute__((warn_unused_result));
/* A name before an address: as it is, quoted, or as encoded words. */
void mail_add_name(struct mail_text *text, const char *name, size_t len);
/* ";" and a parameter on a line of its own: as it is, quoted, or as RFC 2231 says, in several parts if long. */
void mail_add_parameter(struct mail_text *text, const char *name, const char *value, size_t len);

/* A body with its fields Content-Type (`type` and charset) and Content-Transfer-Encoding: 7bit, quoted-printable or
 * base64, whichever fits the text. Line ends become CRLF. */
void mail_add_text_part(struct mail_text *text, const char *type, const char *body, size_t len);
/* Base64 that is base64 already, in lines. */
void mail_add_base64_lines(struct mail_text *text, const char *base64, size_t len);
/* Padded base64 of the standard alphabet, without blanks. */
bool mail_base64_valid(const char *base64, size_t len);

/* Doubles the dot at the start of each line that begins with one (RFC 5321 section 4.5.2). */
void mail_stuff_dots(struct mail_text *text);

#endif
