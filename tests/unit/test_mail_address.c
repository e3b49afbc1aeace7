/* tests/unit/test_mail_address.c - addresses from outside: names, mailboxes, domains; nothing that breaks out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/arena.h"
#include "gateway/mail_address.h"

static struct arena arena;

static int set_up(void **state)
{
    (void)state;
    arena_init(&arena);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

#define LONG_64 "0123456789012345678901234567890123456789012345678901234567890123"

static void good(void **state)
{
    static const struct {
        const char *text, *name, *mailbox;
        bool utf8;
    } rows[] = {
        {"a@b", "", "a@b", false},
        {"  a@b.c\t", "", "a@b.c", false},
        {"<a@b.c>", "", "a@b.c", false},
        {"A B <a@b.c>", "A B", "a@b.c", false},
        {"Dr. O'Neil (Sales) <a@b.c>", "Dr. O'Neil (Sales)", "a@b.c", false},
        {"\"Doe, \\\"J\\\" \\\\\" <a@b.c>", "Doe, \"J\" \\", "a@b.c", false},
        {"\"\" <a@b.c>", "", "a@b.c", false},
        {"a@home <a@b.c>", "a@home", "a@b.c", false},
        {"Zo\xc3\xab <a@b.c>", "Zo\xc3\xab", "a@b.c", false},
        {"a+tag/x=1.y@B.Example", "", "a+tag/x=1.y@B.Example", false},
        {"\"a b\"@c.d", "", "\"a b\"@c.d", false},
        {"\"\"@c.d", "", "\"\"@c.d", false},
        {"A <\"\"@c.d>", "A", "\"\"@c.d", false},
        {"\"\\ \\~\"@c.d", "", "\"\\ \\~\"@c.d", false},
        {"\"\xc3\xa9\"@c.d", "", "\"\xc3\xa9\"@c.d", true},
        {"\"a@b\"@c.d", "", "\"a@b\"@c.d", false},
        {"\"a\\\"b\"@c.d", "", "\"a\\\"b\"@c.d", false},
        {"a@[192.0.2.1]", "", "a@[192.0.2.1]", false},
        {"a@[IPv6:2001:db8::1]", "", "a@[IPv6:2001:db8::1]", false},
        {"a@b\xc3\xbc"
         "cher.example",
         "", "a@xn--bcher-kva.example", false},
        {"a@B\xc3\x9c"
         "CHER.example",
         "", "a@xn--bcher-kva.example", false},
        {"a@\xe4\xbe\x8b\xe3\x81\x88.\xe3\x83\x86\xe3\x82\xb9\xe3\x83\x88", "", "a@xn--r8jz45g.xn--zckzah", false},
        {"j\xc3\xb6rg@b.c", "", "j\xc3\xb6rg@b.c", true},
        {LONG_64 "@b.c", "", LONG_64 "@b.c", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mail_address address;
        const char *problem = mail_address_parse(&arena, rows[i].text, strlen(rows[i].text), &address);
        if (problem != NULL)
            fail_msg("%s: %s", rows[i].text, problem);
        assert_string_equal(address.mailbox, rows[i].mailbox);
        assert_int_equal(address.name_len, strlen(rows[i].name));
        assert_memory_equal(address.name, rows[i].name, address.name_len);
        assert_int_equal(address.utf8, rows[i].utf8);
        assert_string_equal(address.domain, strrchr(address.mailbox, '@') + 1);
    }
}

static void bad(void **state)
{
    static const char *const rows[] = {
        "",
        "   ",
        "a",
        "@b",
        "a@",
        "a@b@c",
        "a b@c",
        "a@b c",
        ".a@b",
        "a.@b",
        "a..b@c",
        "a@b..c",
        "a@.b",
        "a@b.",
        "a@-b",
        "a@b-",
        "a@b_c",
        "a@b/c",
        "a@[1.2.3]",
        "a@[1.2.3.4",
        "a@[IPv6:1.2.3.4]",
        "a@[x]",
        "a@1.2.3.4]",
        "\"a@b",
        "\"a\"b@c",
        "\"\\\xc3\xa9\"@c",
        "\"\\\"@c",
        "\"@c",
        "\"a\\\"@c",
        "a,b@c",
        "a@b,c@d",
        "a@b, c@d",
        "A <a@b>, B <c@d>",
        "A, B <a@b>",
        "g: a@b;",
        "A <a@b> B",
        "A <<a@b>>",
        "A <a@b",
        "a@b>",
        "<>",
        "A <>",
        "A \"B\" <a@b>",
        "\"A <a@b>",
        "\"A\"B\" <a@b>",
        "\"A\\\" <a@b>",
        "A\\ <a@b>",
        "<@x:a@b>",
        "a@b> SIZE=1",
        "a@b\r\nRCPT TO:<c@d>",
        "a\r\n@b",
        "a@b\r",
        "a@b\n",
        "\"a\nb\"@c",
        "\"A\r\nB\" <a@b>",
        "A\nB <a@b>",
        "A\x7f <a@b>",
        "A\xc2\x85 <a@b>",
        "A\xe2\x80\xa8 <a@b>",
        "A\xff <a@b>",
        "\xff@b",
        "a@\xff",
        "a@\xc0\xaf.example",
        "a@a\xe3\x80\x82\xe3\x80\x82"
        "b",
        LONG_64 "5@b",
        "a@" LONG_64 ".example",
        "a@" LONG_64 "." LONG_64 "." LONG_64 "." LONG_64,
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mail_address address;
        const char *problem = mail_address_parse(&arena, rows[i], strlen(rows[i]), &address);
        if (problem == NULL)
            fail_msg("row %zu was taken: %s", i, rows[i]);
        assert_ptr_not_equal(problem, mail_no_memory);
    }
    struct mail_address address;
    assert_non_null(mail_address_parse(&arena, "a\0b@c", 5, &address));
    assert_non_null(mail_address_parse(&arena, "A\0 <b@c>", 8, &address));
    assert_non_null(mail_address_parse(&arena, "b@c\0.d", 6, &address));
}

/* Whatever comes in: what is taken has one line, and nothing that ends a command or a field. */
static void noise(void **state)
{
    static const char bytes[] = "a@b.c<>\"\\ ,;:[]()\r\n\t\x7f\xc3\xa9\xe2\x80\xa8-_1";
    static const char *const seeds[] = {"a@b.c", "A <a@b.c>", "\"A\" <a@b.c>", "\"a b\"@c.d", "a@[1.2.3.4]"};
    uint64_t random = 900000;
    size_t taken = 0;
    (void)state;
    for (unsigned round = 0; round < 200000; round++) {
        char text[24];
        const char *from = seeds[round % (sizeof seeds / sizeof seeds[0])];
        size_t len = strlen(from);
        memcpy(text, from, len);
        for (unsigned change = 0; change <= round % 4; change++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            text[(random >> 33) % len] = bytes[(random >> 45) % (sizeof bytes - 1)];
        }
        struct mail_address address;
        if (mail_address_parse(&arena, text, len, &address) != NULL)
            continue;
        taken++;
        bool quoted = address.mailbox[0] == '"';
        assert_null(strpbrk(address.mailbox, "\r\n\t\x7f"));
        assert_true(quoted || strpbrk(address.mailbox, " <>,;:\\\"") == NULL || strchr(address.mailbox, '[') != NULL);
        for (size_t i = 0; i < address.name_len; i++)
            assert_true(address.name[i] != '\r' && address.name[i] != '\n' && address.name[i] != '\0');
        if (taken % 64 == 0) {
            arena_free(&arena);
            arena_init(&arena);
        }
    }
    assert_true(taken > 100);
}

static void mailboxes_alone(void **state)
{
    struct mail_address address;
    (void)state;
    assert_null(mail_mailbox_parse(&arena, " <a@b> ", 7, &address));
    assert_string_equal(address.mailbox, "a@b");
    assert_null(mail_mailbox_parse(&arena, "a@b", 3, &address));
    assert_non_null(mail_mailbox_parse(&arena, "A <a@b>", 7, &address));
    assert_non_null(mail_mailbox_parse(&arena, "<>", 2, &address));
    assert_non_null(mail_mailbox_parse(&arena, "<a@b", 4, &address));
}

static void sameness(void **state)
{
    (void)state;
    assert_true(mail_mailbox_same("a@b.c", "a@B.C"));
    assert_false(mail_mailbox_same("a@b.c", "A@b.c"));
    assert_false(mail_mailbox_same("a@b.c", "a@b.cc"));
    assert_false(mail_mailbox_same("a@b.c", "aa@b.c"));
    assert_false(mail_mailbox_same("aa@b.c", "a@b.c"));
    assert_true(mail_mailbox_same("\"a@x\"@b", "\"a@x\"@B"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(good, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bad, set_up, tear_down),
        cmocka_unit_test_setup_teardown(noise, set_up, tear_down),
        cmocka_unit_test_setup_teardown(mailboxes_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sameness, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
