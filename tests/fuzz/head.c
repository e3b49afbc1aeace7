/* tests/fuzz/head.c - request heads: the same result in whatever pieces they come, and nothing in what was read that
 * could be read in another way. The first byte of an input chooses the pieces. */
#include "gateway/head.h"
#include "gateway/headers.h"
#include "gateway/route.h"
#include "tests/fuzz/fuzz.h"

static const struct head_limits limits = {.head = 2048, .target = 512};
static struct header_field fields[HEAD_FIELDS_MAX], again_fields[HEAD_FIELDS_MAX];

static enum head_verdict read_whole(const char *bytes, size_t len, struct head *out, struct header_field *into)
{
    struct head_progress progress = {0, 0};
    *out = (struct head){.fields = into};
    return head_read(&progress, bytes, len, &limits, out);
}

static bool same(struct slice a, struct slice b)
{
    return a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
}

static void require_same(const struct head *one, const struct head *other)
{
    require(same(one->method, other->method) && same(one->target, other->target));
    require(one->http10 == other->http10 && one->count == other->count && one->size == other->size);
    for (size_t i = 0; i < one->count; i++) {
        const struct header_field *a = &one->fields[i], *b = &other->fields[i];
        require(same((struct slice){a->name, a->name_len}, (struct slice){b->name, b->name_len}));
        require(same((struct slice){a->value, a->value_len}, (struct slice){b->value, b->value_len}));
    }
}

/* A verdict that comes before all bytes are there may differ in which limit it names, never in whether it is whole. */
static void in_pieces(uint8_t how, const char *bytes, size_t len, enum head_verdict verdict, const struct head *whole)
{
    struct head_progress progress = {0, 0};
    enum head_verdict is = HEAD_MORE;
    struct head head;
    size_t at = 0;
    while (at < len && is == HEAD_MORE) {
        at += piece_of(how, at, len - at);
        char *copy = copy_of(bytes, at, false);
        head = (struct head){.fields = again_fields};
        is = head_read(&progress, copy, at, &limits, &head);
        if (is == HEAD_WHOLE) {
            require(verdict == HEAD_WHOLE);
            require_same(whole, &head);
        }
        free(copy);
    }
    require(is == verdict || (is != HEAD_WHOLE && verdict != HEAD_WHOLE && verdict != HEAD_MORE));
}

static void judge(const struct head *head, const char *bytes, size_t len)
{
    require(head->size <= len && head->size >= 4 && memcmp(bytes + head->size - 4, "\r\n\r\n", 4) == 0);
    require(token_chars(head->method.data, head->method.len));
    require(head->target.len > 0 && head->target.len <= limits.target);
    require(memchr(head->target.data, ' ', head->target.len) == NULL);
    require(text_span(head->target.data, head->target.len) == head->target.len);
    for (size_t i = 0; i < head->count; i++) {
        const struct header_field *field = &head->fields[i];
        require(token_chars(field->name, field->name_len));
        for (size_t at = 0; at < field->value_len; at++)
            require(field->value[at] == '\t' || text_span(field->value + at, 1) == 1);
        struct header_field trimmed = *field;
        header_trim(&trimmed);
        require(trimmed.value_len == field->value_len);
    }
}

/* What another server would be sent is read in the same way. */
static void written_again(const struct head *head)
{
    static char out[1 << 14];
    struct head again;
    int len = snprintf(out, sizeof out, "%.*s %.*s HTTP/1.%d\r\n", (int)head->method.len, head->method.data,
                       (int)head->target.len, head->target.data, !head->http10);
    for (size_t i = 0; i < head->count; i++)
        len += snprintf(out + len, sizeof out - (size_t)len, "%.*s:%.*s\r\n", (int)head->fields[i].name_len,
                        head->fields[i].name, (int)head->fields[i].value_len, head->fields[i].value);
    len += snprintf(out + len, sizeof out - (size_t)len, "\r\n");
    enum head_verdict verdict = read_whole(out, (size_t)len, &again, again_fields);
    require(verdict == HEAD_WHOLE && again.size == (size_t)len);
    again.size = head->size;
    require_same(head, &again);
}

static void frame(const struct head *head)
{
    struct screened screened;
    struct target target;
    headers_frame(head->fields, head->count, head->http10, &screened);
    if (screened.problem == NULL) {
        require(!screened.chunked || (!screened.has_length && !head->http10));
        require(head->http10 || screened.host != NULL);
        require(screened.host == NULL || authority_valid(screened.host->value, screened.host->value_len));
    }
    if (target_split(head->target.data, head->target.len, &target) == TARGET_OK)
        require(target.path_len > 0 && target.path[0] == '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    char *bytes = copy_of(data + 1, size - 1, false);
    struct head head;
    enum head_verdict verdict = read_whole(bytes, size - 1, &head, fields);
    if (verdict == HEAD_WHOLE) {
        judge(&head, bytes, size - 1);
        written_again(&head);
        frame(&head);
    }
    require(verdict != HEAD_BROKEN || head.problem != NULL);
    in_pieces(data[0], bytes, size - 1, verdict, &head);
    free(bytes);
    return 0;
}
