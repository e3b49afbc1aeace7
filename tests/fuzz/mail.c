/* tests/fuzz/mail.c - mails: from JSON, as they are, and addresses. Nothing gets out of its field, line or command. The
 * first byte of an input chooses: 'j' a document; 'r' lines with Envelope-From and Envelope-To, then a message; any
 * other an address. */
#include "gateway/arena.h"
#include "gateway/mail.h"
#include "gateway/mail_address.h"
#include "gateway/mail_text.h"
#include "tests/fuzz/fuzz.h"

/* In an SMTP command it ends where it should, and nothing of it is another parameter. */
static void judge_mailbox(const char *mailbox)
{
    bool quoted = false;
    require(strchr(mailbox, '@') != NULL && strlen(mailbox) <= 256);
    for (const char *p = mailbox; *p != '\0'; p++) {
        require((unsigned char)*p >= 0x20 && *p != 0x7f);
        if (quoted && *p == '\\' && p[1] != '\0')
            p++;
        else if (*p == '"')
            quoted = !quoted;
        else
            require(quoted || (*p != ' ' && *p != '<' && *p != '>' && *p != ','));
    }
    require(!quoted);
}

static void judge_envelope(const struct mail *mail)
{
    if (mail->sender[0] != '\0')
        judge_mailbox(mail->sender);
    require(mail->recipient_count >= 1 && mail->recipient_count <= MAIL_RECIPIENTS_MAX);
    for (size_t i = 0; i < mail->recipient_count; i++) {
        judge_mailbox(mail->recipients[i]);
        for (size_t j = 0; j < i && i < 20; j++)
            require(!mail_mailbox_same(mail->recipients[i], mail->recipients[j]));
    }
}

/* Lines end by CRLF, and none is the lonely dot that ends a message. A message of the caller's own keeps its widths. */
static void judge_lines(const struct mail *mail, size_t width)
{
    const char *at = mail->data, *end = mail->data + mail->len;
    require(mail->len >= 2);
    while (at < end) {
        const char *lf = memchr(at, '\n', (size_t)(end - at));
        require(lf != NULL && lf > at && lf[-1] == '\r');
        require(memchr(at, '\r', (size_t)(lf - at)) == lf - 1);
        require((size_t)(lf - 1 - at) <= width + (*at == '.'));
        require(*at != '.' || at[1] == '.');
        at = lf + 1;
    }
}

static void judge_composed(const struct mail *mail)
{
    unsigned from = 0, to = 0, id = 0;
    judge_lines(mail, MAIL_LINE_MAX);
    for (const char *at = mail->data; *at != '\r'; at = strstr(at, "\r\n") + 2) {
        require(*at == ' ' || *at == '\t' || (*at > ' ' && *at < 0x7f && *at != ':'));
        from += strncasecmp(at, "From:", 5) == 0;
        to += strncasecmp(at, "To:", 3) == 0;
        id += strncasecmp(at, "Message-ID:", 11) == 0;
        require(strncasecmp(at, "Bcc:", 4) != 0);
    }
    require(from == 1 && to <= 1 && id == 1 && (mail->utf8 || !mail->eight_bit));
    for (size_t i = 0; i < mail->len; i++)
        require(mail->utf8 || (unsigned char)mail->data[i] < 0x80);
}

static void compose(const char *json, size_t len)
{
    static const struct mail_stamp stamp = {.now_ms = 1796050985123, .random = {0x01, 0xab}};
    struct arena arena;
    struct mail mail = {0};
    char why[MAIL_WHY] = "";
    arena_init(&arena);
    enum mail_result result = mail_compose(&arena, json, len, &stamp, &mail, why);
    require(result != MAIL_MALFORMED || (why[0] != '\0' && strchr(why, '\n') == NULL));
    if (result == MAIL_OK) {
        judge_envelope(&mail);
        /* with a NUL: judge_composed() looks for line ends */
        char *text = copy_of(mail.data, mail.len, true);
        struct mail copy = mail;
        copy.data = text;
        if (strlen(text) == mail.len)
            judge_composed(&copy);
        else
            judge_lines(&copy, MAIL_LINE_MAX);
        free(text);
    }
    free(mail.data);
    arena_free(&arena);
}

static size_t bytes_but_line_ends(const char *data, size_t len, bool stuffed)
{
    size_t count = 0;
    for (size_t i = 0; i < len; i++) {
        bool starts = i == 0 || data[i - 1] == '\n';
        count += data[i] != '\r' && data[i] != '\n' && !(stuffed && starts && data[i] == '.');
    }
    return count;
}

static void take_raw(const uint8_t *data, size_t size)
{
    const char *line;
    struct arena arena;
    struct mail mail = {0};
    char why[MAIL_WHY] = "";
    size_t len = take_line(&data, &size, &line);
    char *from = copy_of(line, len, true);
    len = take_line(&data, &size, &line);
    char *to = copy_of(line, len, true), *body = copy_of(data, size, false);
    arena_init(&arena);
    enum mail_result result = mail_take_raw(&arena, body, size, from, to, &mail, why);
    require(result != MAIL_MALFORMED || (why[0] != '\0' && strchr(why, '\n') == NULL));
    if (result == MAIL_OK) {
        judge_envelope(&mail);
        judge_lines(&mail, SIZE_MAX - 1);
        require(bytes_but_line_ends(mail.data, mail.len, true) == bytes_but_line_ends(body, size, false));
    }
    free(mail.data);
    arena_free(&arena);
    free(from);
    free(to);
    free(body);
}

static void address(const char *text, size_t len)
{
    struct arena arena;
    struct mail_address is, again;
    arena_init(&arena);
    char *copy = copy_of(text, len, false);
    if (mail_address_parse(&arena, copy, len, &is) == NULL) {
        judge_mailbox(is.mailbox);
        require(is.domain > is.mailbox && is.domain[-1] == '@');
        require(memchr(is.name, '\n', is.name_len) == NULL && memchr(is.name, '\r', is.name_len) == NULL);
        require(mail_mailbox_parse(&arena, is.mailbox, strlen(is.mailbox), &again) == NULL);
        require(strcmp(is.mailbox, again.mailbox) == 0 && is.utf8 == again.utf8);
    }
    free(copy);
    arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    if (data[0] == 'j') {
        char *json = copy_of(data + 1, size - 1, false);
        compose(json, size - 1);
        free(json);
    } else if (data[0] == 'r') {
        take_raw(data + 1, size - 1);
    } else {
        address((const char *)data + 1, size - 1);
    }
    return 0;
}
