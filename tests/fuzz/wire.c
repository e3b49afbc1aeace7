/* tests/fuzz/wire.c - a partner's answer: the same in whatever pieces it comes, its body as long as its framing says,
 * and nothing in the relayed head that ends a line or speaks for the gateway. Of an input's first byte the lowest bit
 * is HEAD, the others choose the pieces. */
#include "gateway/headers.h"
#include "gateway/reply.h"
#include "gateway/wire.h"
#include "tests/fuzz/fuzz.h"

enum { HEAD_MAX = 1024 };

struct answer {
    struct wire wire;
    struct reply reply;
    char *body;
    size_t len, used;
};

static struct answer take(bool head_method, int how, const char *bytes, size_t len)
{
    struct answer is = {.wire = {.head_method = head_method, .head_max = HEAD_MAX}, .body = copy_of(bytes, len, false)};
    while (is.used < len && is.wire.state < WIRE_DONE) {
        size_t piece = how < 0 ? len - is.used : piece_of((uint8_t)how, is.used, len - is.used), at = 0;
        char *copy = copy_of(bytes + is.used, piece, false);
        while (at < piece && is.wire.state < WIRE_DONE) {
            struct slice body;
            size_t used = wire_take(&is.wire, &is.reply, copy + at, piece - at, &body);
            require(used >= 1 && used <= piece - at && body.len <= used);
            if (body.len > 0)
                memcpy(is.body + is.len, body.data, body.len);
            is.len += body.len;
            at += used;
        }
        free(copy);
        is.used += at;
    }
    return is;
}

static void judge_head(const struct reply *reply)
{
    static const char *const never[] = {"Connection", "Content-Length", "Transfer-Encoding", "Keep-Alive", "Trailer"};
    require(reply->status >= 200 && reply->status <= 999);
    for (size_t at = 0; at < reply->head_len;) {
        const char *line = reply->head + at;
        const char *end = memmem(line, reply->head_len - at, "\r\n", 2);
        require(end != NULL);
        struct header_field field;
        require(header_line_split(line, (size_t)(end - line), &field) && token_chars(field.name, field.name_len));
        for (const char *p = field.value; p < end; p++)
            require(*p == '\t' || text_span(p, 1) == 1);
        for (size_t i = 0; i < sizeof never / sizeof never[0]; i++)
            require(!header_is(&field, never[i]));
        require(field.name_len < 10 || strncasecmp(field.name, "Fencegate-", 10) != 0);
        at += (size_t)(end - line) + 2;
    }
}

static void judge(const struct answer *is, bool head_method)
{
    const struct reply *reply = &is->reply;
    require((is->wire.state == WIRE_BROKEN) == (reply->nonsense || reply->complaint != NULL) ||
            is->wire.state == WIRE_BROKEN);
    require(is->wire.state != WIRE_BROKEN || reply->complaint != NULL);
    if (!reply->head_done)
        return;
    judge_head(reply);
    if (head_method || reply->status == 204 || reply->status == 304)
        require(is->len == 0);
    if (is->wire.state == WIRE_DONE && reply->has_length && reply->codings == 0 && !head_method &&
        reply->status != 204 && reply->status != 304)
        require(is->len == reply->length);
}

static void give_back(struct answer *is)
{
    wire_closed(&is->wire);
    require(is->wire.state >= WIRE_DONE || !is->reply.head_done || is->wire.state != WIRE_UNTIL_CLOSE);
    wire_free(&is->wire);
    reply_free(&is->reply);
    free(is->body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    bool head_method = data[0] & 1;
    const char *bytes = (const char *)data + 1;
    struct answer whole = take(head_method, -1, bytes, size - 1);
    struct answer pieces = take(head_method, data[0] / 2, bytes, size - 1);
    require(whole.wire.state == pieces.wire.state && whole.len == pieces.len);
    require(whole.wire.state == WIRE_BROKEN || whole.used == pieces.used);
    require(whole.len == 0 || memcmp(whole.body, pieces.body, whole.len) == 0);
    require(whole.reply.head_done == pieces.reply.head_done && whole.wire.keep_alive == pieces.wire.keep_alive);
    if (whole.reply.head_done) {
        require(whole.reply.status == pieces.reply.status && whole.reply.head_len == pieces.reply.head_len);
        require(whole.reply.head_len == 0 || memcmp(whole.reply.head, pieces.reply.head, whole.reply.head_len) == 0);
    }
    judge(&whole, head_method);
    give_back(&whole);
    give_back(&pieces);
    return 0;
}
