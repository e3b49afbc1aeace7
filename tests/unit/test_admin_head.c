/* tests/unit/test_admin_head.c - the exact look at a head that libmicrohttpd 0.9.x has taken apart in place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "gateway/admin_head.h"
#include "gateway/headers.h"

struct sample {
    char bytes[256];
    size_t size;
    struct header_field fields[4];
    struct head_parts parts;
};

/* "GET|/pay|HTTP/1.1||Host| a||X-E|||…": '|' stands for what libmicrohttpd overwrote with NUL. */
static void load(struct sample *sample, const char *picture, const char *names)
{
    memset(sample, 0, sizeof *sample);
    sample->size = strlen(picture);
    for (size_t i = 0; i < sample->size; i++)
        sample->bytes[i] = picture[i] == '|' ? '\0' : picture[i];
    sample->parts = (struct head_parts){3, 4, 8, sample->fields, 0};
    const char *from = sample->bytes + 18;
    while (*names != '\0') { /* "Host=a X-E= " */
        size_t name = strcspn(names, "="), value = strcspn(names + name + 1, " ");
        struct header_field *field = &sample->fields[sample->parts.count++];
        while (memcmp(from, names, name) != 0)
            from++;
        field->name = from;
        field->name_len = name;
        from += name + 1;
        while (value > 0 && memcmp(from, names + name + 1, value) != 0)
            from++;
        field->value = from;
        field->value_len = value;
        from += value;
        names += name + 1 + value;
        names += *names == ' ';
    }
}

static bool exact(const char *picture, const char *names)
{
    struct sample sample;
    load(&sample, picture, names);
    return head_is_exact(sample.bytes, sample.size, &sample.parts);
}

static void honest_heads_are_exact(void **state)
{
    (void)state;
    assert_true(exact("GET|/pay|HTTP/1.1||||", ""));
    assert_true(exact("GET|/pay|HTTP/1.1||Host| a||||", "Host=a "));
    assert_true(exact("GET|/pay|HTTP/1.1||Host|a||X-A|  \t b \t||X-E|||Z| 1||||", "Host=a X-A=b X-E= Z=1 "));
}

static void what_is_hidden_shows_in_the_gaps(void **state)
{
    (void)state;
    assert_false(exact("GET|/pay|test|HTTP/1.1||Host| a||||", "Host=a "));        /* NUL in the target */
    assert_false(exact("GET|/pay|HTTP/1.1||Host| a||X| v|w||||", "Host=a X=v ")); /* NUL in a value */
    assert_false(exact("GET|/pay|HTTP/1.1||Host| a||| empty||||", "Host=a "));    /* a line without a name */
    assert_false(exact("GET|/pay|HTTP/1.1||Host| a||| empty||", "Host=a "));      /* the same, taken for the end */
    assert_false(exact("GET|/pay|HTTP/1.1|Host| a||", "Host=a "));                /* bare LF */
    assert_false(exact("GET|/pay|HTTP/1.1||Host| a|||", "Host=a "));              /* half an empty line */
    assert_false(exact("GET|/pay|HTTP/1.1||Host| a||||more", "Host=a "));         /* bytes behind the end */
    assert_false(exact("GET||/pay|HTTP/1.1||Host| a||||", "Host=a "));            /* two blanks */
    assert_false(exact("GET|/pay|HTTP/1.1|| ||Host| a||||", "Host=a "));          /* a blank line before the fields */
    assert_false(exact("GET|/pay|HTTP/1.1||Host| a||X| v||Z| 1||||", "Host=a Z=1 ")); /* a line nobody told us of */
}

static void a_folded_field_lies_elsewhere(void **state)
{
    (void)state;
    struct sample sample;
    static const char copy[] = "X-Testcont";
    load(&sample, "GET|/pay|HTTP/1.1||Host| a||X| v||||", "Host=a X=v ");
    assert_true(head_is_exact(sample.bytes, sample.size, &sample.parts));
    sample.fields[1].name = copy;
    sample.fields[1].name_len = sizeof copy - 1;
    assert_false(head_is_exact(sample.bytes, sample.size, &sample.parts));
}

static void a_cut_head_is_never_exact(void **state)
{
    (void)state;
    struct sample sample;
    load(&sample, "GET|/pay|HTTP/1.1||Host| a||X| v||||", "Host=a X=v ");
    for (size_t size = 0; size < sample.size; size++)
        assert_false(head_is_exact(sample.bytes, size, &sample.parts));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_heads_are_exact),
        cmocka_unit_test(what_is_hidden_shows_in_the_gaps),
        cmocka_unit_test(a_folded_field_lies_elsewhere),
        cmocka_unit_test(a_cut_head_is_never_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
