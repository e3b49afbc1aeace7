/* tests/fuzz/chunks.c - chunked bodies of requests: the same body and end in whatever pieces they come, never more than
 * what came, and what they are taken for is what the reader of partners' answers takes them for. The first byte of an
 * input chooses the pieces. */
#include "gateway/chunks.h"
#include "gateway/reply.h"
#include "gateway/wire.h"
#include "tests/fuzz/fuzz.h"

struct taken {
    enum chunks_state state;
    size_t used, len;
    char *body;
};

static struct taken take(uint8_t how, bool whole, const char *bytes, size_t len)
{
    struct chunks chunks = {0};
    struct taken is = {.body = copy_of(bytes, len, false)}; /* room: a body is never longer than its chunks */
    while (is.used < len && chunks.state < CHUNKS_DONE) {
        size_t piece = whole ? len - is.used : piece_of(how, is.used, len - is.used), at = 0;
        char *copy = copy_of(bytes + is.used, piece, false);
        while (at < piece && chunks.state < CHUNKS_DONE) {
            struct slice body;
            size_t used = chunks_take(&chunks, copy + at, piece - at, &body);
            require(used >= 1 && used <= piece - at && body.len <= used);
            require(is.len + body.len <= is.used + at + used);
            if (body.len > 0)
                memcpy(is.body + is.len, body.data, body.len);
            is.len += body.len;
            at += used;
        }
        free(copy);
        is.used += at;
    }
    is.state = chunks.state;
    return is;
}

static void as_answer(const char *bytes, const struct taken *is)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    struct wire wire = {.head_max = 1024};
    struct reply reply = {0};
    struct slice body;
    size_t at = wire_take(&wire, &reply, head, sizeof head - 1, &body), len = 0;
    while (at < sizeof head - 1)
        at += wire_take(&wire, &reply, head + at, sizeof head - 1 - at, &body);
    for (at = 0; at < is->used && wire.state < WIRE_DONE;) {
        at += wire_take(&wire, &reply, bytes + at, is->used - at, &body);
        require(len + body.len <= is->len);
        require(body.len == 0 || memcmp(is->body + len, body.data, body.len) == 0);
        len += body.len;
    }
    require(wire.state == WIRE_DONE && at == is->used && len == is->len);
    wire_free(&wire);
    reply_free(&reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const char *bytes = (const char *)data + 1;
    struct taken whole = take(0, true, bytes, size - 1), pieces = take(data[0], false, bytes, size - 1);
    require(whole.state == pieces.state && whole.len == pieces.len);
    require(whole.state == CHUNKS_BROKEN || whole.used == pieces.used);
    require(whole.len == 0 || memcmp(whole.body, pieces.body, whole.len) == 0);
    require(whole.state >= CHUNKS_DONE || whole.used == size - 1);
    if (whole.state == CHUNKS_DONE)
        as_answer(bytes, &whole);
    free(whole.body);
    free(pieces.body);
    return 0;
}
